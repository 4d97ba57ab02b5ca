"""Seeing that an answer goes round in circles: token 0 (``!``) for ever, or a short cycle."""

from __future__ import annotations

SAME_PIECE = 64
"""One piece so many times in a row."""
LONGEST_CYCLE = 64
"""Characters of a cycle."""
CYCLED = 1536
"""Characters at an answer's end that do nothing but repeat a cycle; tables and rulers are shorter."""
SAME_CHARACTER = 256
"""One character so many times in a row."""
LOOK_EVERY = 256


class LoopWatch:
    """Gets an answer's pieces as they come."""

    def __init__(self) -> None:
        self._last = ""
        self._times = 0
        self._tail = ""
        self._unseen = 0

    def add(self, piece: str) -> str | None:
        """What is repeated, once that is sure; None as long as it is not."""
        self._times = self._times + 1 if piece == self._last else 1
        self._last = piece
        if self._times >= SAME_PIECE and piece.strip():
            return piece
        self._tail = (self._tail + piece)[-CYCLED:]
        self._unseen += len(piece)
        if self._unseen < LOOK_EVERY:
            return None
        self._unseen = 0
        return cycle(self._tail)


def cycle(text: str) -> str | None:
    """The cycle that ``text`` ends in: one character for long enough, or a short cycle for longer."""
    end = text[-SAME_CHARACTER:]
    if len(end) == SAME_CHARACTER and len(set(end)) == 1:
        return end[0]
    text = text[-CYCLED:]
    if len(text) < CYCLED:
        return None
    for length in range(1, LONGEST_CYCLE + 1):
        if text[length:] == text[:-length]:
            return text[-length:]
    return None
