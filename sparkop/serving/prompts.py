"""What bench asks: random tokens, prose, code, and a long text with numbers to find again."""

from __future__ import annotations

import random
import re
from typing import Literal

from sparkop.records import dataclass

WorkKind = Literal["code", "prose"]
PROSE = (
    "Write a long story about a lighthouse keeper and the first storm of the winter.",
    "Explain at length how a river shapes the land from its spring to the sea.",
    "Write a detailed essay on how bread is made, from the field to the oven.",
    "Describe the life of a medieval town over one year, season by season.",
)
CODE = (
    "Write a Python module with an interval tree: insertion, removal, overlap queries, and tests.",
    "Write a JSON parser in Rust with error positions, and unit tests for it.",
    "Write a job queue with retries and priorities in Go, with tests and comments.",
    "Write a TypeScript library for two-dimensional geometry: lines, polygons, clipping, with tests.",
)
GATES = ("amber", "crimson", "ivory", "jade", "violet", "silver")
"""Each has a number somewhere in the long text."""


def random_tokens(count: int, vocabulary: int | None, source: random.Random) -> list[int]:
    """Token ids that no earlier request had; control tokens lie at the ends of a vocabulary."""
    size = vocabulary or 32768
    low = min(1000, size // 4)
    return [source.randrange(low, size * 9 // 10) for _ in range(count)]


def work(kind: WorkKind, stream: int, run: str) -> str:
    """The question of one of several simultaneous streams; ``run`` makes it new."""
    questions = CODE if kind == "code" else PROSE
    return f"{questions[stream % len(questions)]} (Version {run}.{stream})"


@dataclass(frozen=True)
class Recall:
    """A long text, the question after it, and the numbers that the answer must hold."""

    text: str
    question: str
    numbers: tuple[str, ...]

    @property
    def prompt(self) -> str:
        return f"{self.text}\n\n{self.question}"

    def found(self, answer: str) -> int:
        """How many of the numbers are in the answer."""
        said = set(re.findall(r"\d+", answer))
        return sum(number in said for number in self.numbers)


def real_text(characters: int, source: random.Random) -> str:
    """English text of Python's own documentation, in an order that no earlier request had."""
    from pydoc_data.topics import topics

    parts: list[str] = []
    length = 0
    while length < characters:
        order = sorted(topics)
        source.shuffle(order)
        for name in order:
            parts.append(topics[name])
            length += len(topics[name]) + 2
            if length >= characters:
                break
    return "\n\n".join(parts)[:characters]


def recall(characters: int, source: random.Random) -> Recall:
    """``characters`` of real text with a number for each gate, spread evenly."""
    text = real_text(characters, source)
    numbers = tuple(str(number) for number in source.sample(range(10_000, 100_000), len(GATES)))
    step = len(text) // len(GATES)
    parts = []
    for index, (gate, number) in enumerate(zip(GATES, numbers, strict=True)):
        parts.append(text[index * step : (index + 1) * step])
        parts.append(f"\n\nNote: the {gate} gate has the number {number}.\n\n")
    parts.append(text[len(GATES) * step :])
    question = f"Which numbers do these gates have, by the notes in the text: {', '.join(GATES)}?"
    return Recall("".join(parts), question, numbers)
