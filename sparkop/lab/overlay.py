"""What changes from one lab to the next, as an overlay that sparkop finds by itself.

Keys are those of the ClusterSpec. ``sparkop`` puts the overlay under the user's own when a spec's nodes are
the lab's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sparkop.lab.layout import CONTROLLER_ADDRESS, HUB_PORT, LabPaths


def overlay_path(lab: str | None = None) -> Path:
    """Where the overlay of a lab is; the file is there while the lab is up."""
    return LabPaths.of(lab).overlay


def hub_endpoint() -> str:
    """HF_ENDPOINT of the lab's hub."""
    return f"http://{CONTROLLER_ADDRESS}:{HUB_PORT}"


def write(paths: LabPaths, hosts: int, content: Mapping[str, object] | None = None) -> None:
    """Write the overlay; ``content`` is merged in at the top level."""
    del hosts
    temporary = paths.overlay.with_suffix(".new")
    temporary.write_text(json.dumps(dict(content or {}), indent=2) + "\n")  # YAML reads JSON
    temporary.replace(paths.overlay)
