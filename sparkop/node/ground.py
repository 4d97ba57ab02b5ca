"""What in the state folder is ours: apply takes none that is somebody's, destroy leaves what is not.

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
    r"((cluster|history|lease|intent|trip|logs|transfer|image|bench)\.json|memguard.*|api_key|engine\.yaml)"
    r"(\.damaged(-.*)?)?"
    r"|plans|cache|ledger|incidents|logs|units|transfer|folders"
    r"|trip\.draft|\.lock|\..*\.(draft|new)|(transfer|image)\.json\.[0-9.]+\.new"
)
"""Names at the top of a state folder. A recipe's folder, which is taken over, holds some of these, too."""
DISKS = "lost+found"
"""A disk's, that is nobody's."""


def look(wanted: dict[str, Any], state: str) -> dict[str, Any]:
    """What the probe tells; reads only. ``foreign``: names that are not ours. ``owned``: it is a cluster's.
    ``apart``: the real path of a folder that is to lie elsewhere, and lies within the state folder."""
    top = os.path.abspath(os.path.expanduser(state))
    try:
        names = os.listdir(top)
    except FileNotFoundError:
        names = []
    others = foreign(names, wanted["ours"], top)
    return {"foreign": others, "owned": OWNER in names, "apart": inside(wanted["apart"], top)}


def foreign(names: list[str], ours: list[str], state: str) -> list[str]:
    """Those at the top of a state folder that are not ours. ``ours``: paths in it that the spec names."""
    own = {os.path.relpath(wire.expand(path, state), state).split("/")[0] for path in ours}
    return sorted(name for name in names if name not in own and name != DISKS and not OURS.fullmatch(name))


def inside(path: str, state: str) -> str | None:
    """The real path of a folder when it lies within the state folder, else None."""
    real = os.path.realpath(wire.expand(path, state))
    return real if is_within(real, os.path.realpath(state)) else None
