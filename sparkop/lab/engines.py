"""The engine images of a lab, made by ``lab up`` and named in its overlay."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType

from sparkop.lab import overlay
from sparkop.lab.lab import Lab


def _images() -> ModuleType | None:
    name = "sparkop.lab.images"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def shares() -> tuple[str, ...]:
    """Folders of this machine that the engines' containers need; hosts get them read-only."""
    module = _images()
    return tuple(str(path) for path in module.shared_paths()) if module and hasattr(module, "shared_paths") else ()


def provide(lab: Lab, say: Callable[[str], None]) -> None:
    """Build what is missing, push it to the lab's registry, and write the references to the overlay."""
    if module := _images():
        references = module.ensure_images(lab)
        say(f"images: {', '.join(references)}")
        overlay.write(lab.paths, lab.config.hosts, {"images": references})
