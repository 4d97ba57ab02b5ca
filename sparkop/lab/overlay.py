"""What changes from one lab to the next, as overlays that sparkop finds by itself.

Keys are those of the ClusterSpec. ``sparkop`` puts the overlay under the user's own when a spec's nodes are
the lab's. There is one for each engine image, because a spec names its engine (``image.reference:
lab/standin``) and the lab knows the digest, and one for each model of the lab's own: only their commit is
pinned, a repository of the user's has other commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from sparkop.lab.layout import CONTROLLER_ADDRESS, HUB_PORT, LabPaths

Overlay = Mapping[str, Mapping[str, object]]


def overlay_path(lab: str | None = None, reference: str | None = None) -> Path:
    """The overlay of a lab for a spec that asks for the image ``reference``; it is there while the lab is up.

    ``lab/NAME`` (with or without tag) means the lab's own image NAME; any other reference stays what it is.
    """
    return _own(lab, reference) or LabPaths.of(lab).root / "overlay.yaml"


def image_reference(lab: str | None, reference: str | None) -> str | None:
    """What the lab's registry holds as ``lab/NAME``, by digest; None when it is no image of the lab."""
    own = _own(lab, reference)
    if own is None:
        return None
    image = json.loads(own.read_text(encoding="utf-8")).get("image", {})
    found = image.get("reference") or image.get("build", {}).get("base")
    return found if isinstance(found, str) else None


def _own(lab: str | None, reference: str | None) -> Path | None:
    """The overlay of one of the lab's images."""
    match = re.fullmatch(r"lab/([a-z0-9-]+)(?::[\w.-]+)?", reference or "")
    own = LabPaths.of(lab).root / f"overlay-{match[1]}.yaml" if match else None
    return own if own is not None and own.exists() else None


def model_overlay(lab: str | None, repository: str) -> Path | None:
    """The overlay that pins the commit of one of the lab's own models; None for any other repository."""
    file = _model_file(LabPaths.of(lab), repository)
    return file if file.exists() else None


def _model_file(paths: LabPaths, repository: str) -> Path:
    return paths.root / f"model-{repository.replace('/', '--')}.yaml"


def hub_endpoint() -> str:
    """HF_ENDPOINT of the lab's hub."""
    return f"http://{CONTROLLER_ADDRESS}:{HUB_PORT}"


def write(paths: LabPaths, engines: Mapping[str, Overlay], *, models: Mapping[str, str]) -> None:
    """Write the overlay that every spec gets, one for each engine image that adds its part, and one for each
    of ``models``, repository -> commit: another lab's hub, at the same address, has another main.
    """
    endpoint = {"endpoint": hub_endpoint()}
    _write(paths.root / "overlay.yaml", {"weights": endpoint})
    for name, own in engines.items():
        _write(
            paths.root / f"overlay-{name}.yaml", {**own, "weights": {**own.get("weights", {}), **endpoint}}
        )
    for repository, commit in models.items():
        _write(_model_file(paths, repository), {"weights": {"revision": commit}})


def _write(file: Path, content: Overlay) -> None:
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(content, indent=2) + "\n")  # YAML reads JSON
    temporary.replace(file)
