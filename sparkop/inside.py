"""Whether this program runs inside a lab: then its network, ~/.ssh and known_hosts are not the user's own."""

from __future__ import annotations

import os

INSIDE_VARIABLE = "SPARKOP_LAB_INSIDE"
"""Set in every process that runs inside a lab's network namespace, to ``NAME:TOKEN``."""


def mark(lab: str, token: str) -> str:
    """Value of SPARKOP_LAB_INSIDE. ``token``: tells this lab from another of its name, before or after."""
    return f"{lab}:{token}"


def inside() -> str | None:
    """The lab whose network namespace this process is in."""
    return os.environ.get(INSIDE_VARIABLE, "").partition(":")[0] or None
