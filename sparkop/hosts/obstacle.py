"""What stands in the way on a node: a folder or a FIFO where a file belongs, a file where a folder does.

It was read, so it is not unknown; sparkop has not made it, so sparkop does not move it away.
"""

from __future__ import annotations

import re
import shlex

from sparkop.records import dataclass

_SAID = re.compile(r"(IsADirectory|NotRegular|NotADirectory|FileExists)Error: [^:]+: (/.+)")

_KINDS = {"IsADirectory": ("a folder", "a file"), "NotRegular": ("not a regular file", "a file")}
"""What is there, and what should be."""


@dataclass(frozen=True)
class Obstacle:
    """``path`` is ``observed`` and should be ``desired``."""

    path: str
    observed: str
    desired: str

    def remedy(self, node: str) -> str:
        """What a human has to type there."""
        path = shlex.quote(self.path)
        return f"mv {path} {path}.aside  # on {node}; then the same command again"


def obstacle(said: str) -> Obstacle | None:
    """What an error of a node's program (``node/wire.py``: ``describe``) says of such a thing."""
    found = _SAID.search(said)
    if found is None:
        return None
    return Obstacle(found[2], *_KINDS.get(found[1], ("a file", "a folder")))
