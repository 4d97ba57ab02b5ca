"""A file that is being fetched: which of its blocks are to be handed out."""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Sequence, Tuple

from .blocks import Staging
from .files import Block
from .http import Reader


class Active:
    """A file that is being fetched. Guarded by the lock of `Fetch`."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.file = staging.file
        self.pending: Deque[Block] = deque(staging.missing())
        self.durable = staging.durable_bytes()
        self.readers: Dict[Tuple[int, int], Reader] = {}
        self.whole: Dict[int, int] = {}
        """Piece -> the stream that reads it from its beginning, because the server knows no ranges."""
        self.begun: Dict[int, int] = {}
        """Block -> bytes of it that are written already, after a connection broke in its middle."""

    @property
    def single(self) -> bool:
        return len(self.staging.blocks) <= 1

    def take(self, most: int) -> List[Block]:
        """A run of neighbouring missing blocks of one piece; empty when there is none to hand out."""
        run: List[Block] = []
        skipped: List[Block] = []
        while self.pending and len(run) < most:
            block = self.pending[0]
            if block.piece in self.whole:
                skipped.append(self.pending.popleft())
                continue
            if run and (block.index != run[-1].index + 1 or block.piece != run[-1].piece):
                break
            run.append(self.pending.popleft())
        self.give_back(skipped)
        return run

    def take_piece(self, piece: int, position: int) -> List[Block]:
        """All missing blocks of a piece from a position on."""
        mine = [block for block in self.pending if block.piece == piece and block.piece_offset >= position]
        for block in mine:
            self.pending.remove(block)
        return mine

    def give_back(self, blocks: Sequence[Block]) -> None:
        if blocks:
            self.pending = deque(sorted([*self.pending, *blocks], key=lambda block: block.index))
