"""The engines of a lab, made by ``lab up`` and named in its overlays; the checkpoints go into its hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sparkop.lab import hub, images, miniature, overlay
from sparkop.lab.engine_venv import ensure_venv
from sparkop.lab.lab import Lab
from sparkop.lab.lock import locked

CONTROL_FOLDER = "/run/lab/standin"
"""On each host: files that tell the stand-in what to do wrong; the stand-in reads the same path."""

Say = Callable[[str], None]


def shares() -> tuple[str, ...]:
    """Folders of this machine that the engines' containers need; hosts get them read-only."""
    return tuple(str(path) for path in images.shared_paths())


def provide(lab: Lab, say: Say, *, vllm: bool = True) -> None:
    """Images to the registry, models to the hub, images and the tiny model to the overlays. ``vllm``: also
    the real engine, whose environment takes a minute to install the first time on a machine.
    """
    venv = ensure_venv(say) if vllm else None  # no part of the lab: its own lock is enough, and a lot longer
    with locked(lab.paths):
        lab.running()  # a ``down`` may have come between
        _provide(lab, venv, say)


def _provide(lab: Lab, venv: Path | None, say: Say) -> None:
    model = {name: images.model_folder() / name for name in images.MODEL_FILES}
    commit = hub.add_repository(model, images.MODEL_REPOSITORY, lab=lab.name)
    hub.add_repository(miniature.miniature(), miniature.REPOSITORY, lab=lab.name)
    mounts = {"source": CONTROL_FOLDER, "target": CONTROL_FOLDER, "readOnly": True}
    own: dict[str, overlay.Overlay] = {}
    for name, reference in images.ensure_images(lab, say).items():
        if name == "vllm":
            if venv is None:
                continue
            mounts = {"source": str(venv), "target": images.VENV_TARGET, "readOnly": True}
        own[name] = {
            "image": {"build": {"base": reference}} if name == images.LEGACY else {"reference": reference},
            "engine": {"container": {"mounts": [mounts]}},
        }
    overlay.write(lab.paths, own, models={images.MODEL_REPOSITORY: commit})
    say(f"engines: {', '.join(own)}")
