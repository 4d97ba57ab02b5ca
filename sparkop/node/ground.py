"""Whether the state folder is a folder of our own: apply writes there, and destroy removes it whole.

Stdlib-only, Python 3.8 or newer. Paths are compared as the node has them: with its home, and without links.
"""

from __future__ import annotations

import os
import re
from typing import Any

from . import wire
from .leaving import is_within

OWNER = "cluster.json"
"""Its presence says that the folder is a cluster's already."""
OURS = re.compile(
    r"(cluster|history|lease|intent|trip|logs|transfer|image)\.json|memguard.*|trip\.draft|api_key|engine\.yaml"
    r"|plans|cache|ledger|incidents|logs|units|transfer|folders|lost\+found"
    r"|\.lock|\..*\.(draft|new)|.*\.draft|.*\.damaged(-.*)?"
)
"""Names at the top of a state folder; ``lost+found`` is a disk's. A recipe's folder, which is taken over,
holds some of these, too."""


def look(wanted: dict[str, Any], state: str) -> dict[str, Any]:
    """What the probe tells; reads only. ``foreign``: names in a folder without an owner that are not ours.
    ``apart``: the real path of a folder that is to lie elsewhere, and lies within the state folder."""
    top = os.path.abspath(os.path.expanduser(state))
    own = {os.path.relpath(wire.expand(path, top), top).split("/")[0] for path in wanted["ours"]}
    try:
        names = sorted(os.listdir(top))
    except FileNotFoundError:
        names = []
    others = [name for name in names if name not in own and not OURS.fullmatch(name)]
    return {"foreign": [] if OWNER in names else others, "apart": inside(wanted["apart"], top)}


def inside(path: str, state: str) -> str | None:
    """The real path of a folder when it lies within the state folder, else None."""
    real = os.path.realpath(wire.expand(path, state))
    return real if is_within(real, os.path.realpath(state)) else None
