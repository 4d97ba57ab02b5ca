"""The lab's image registry: Debian's docker-registry on the controller's address."""

from __future__ import annotations

import json

from sparkop.lab.layout import CONTROLLER_ADDRESS, REGISTRY_PORT, LabPaths


def prepare(paths: LabPaths) -> list[str]:
    """Write its configuration and return the command that runs it."""
    paths.registry.mkdir(parents=True, exist_ok=True)
    configuration = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(paths.registry)}, "delete": {"enabled": True}},
        "http": {"addr": f"{CONTROLLER_ADDRESS}:{REGISTRY_PORT}"},
    }
    file = paths.root / "registry.yml"
    file.write_text(json.dumps(configuration))  # YAML reads JSON
    return ["docker-registry", "serve", str(file)]
