"""Specs to start from, and shorthands of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.spec.load import LoadedSpec, load
from sparkop.spec.problems import InvalidSpecError, Problem

MINIMAL = """\
apiVersion: sparkop/v1
name: sparks
nodes:
  - name: spark-1
    ssh: local
  - name: spark-2
    ssh: you@10.0.0.2
weights:
  repository: owner/model
  path: ~/models/model
image:
  reference: ghcr.io/owner/engine:1
engine:
  kind: vllm
api:
  servedNames: [model]
"""

SHIPPED = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


def write(folder: Path, text: str | bytes, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(folder: Path, *overlays: str, sets: tuple[str, ...] = (), base: str = MINIMAL) -> LoadedSpec:
    paths = [write(folder, base)]
    paths += [write(folder, text, f"overlay-{number}.yaml") for number, text in enumerate(overlays, 1)]
    return load(paths, sets)


def problems(
    folder: Path, *overlays: str, sets: tuple[str, ...] = (), base: str = MINIMAL
) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpecError) as caught:
        loaded(folder, *overlays, sets=sets, base=base)
    return caught.value.problems


def only(found: tuple[Problem, ...]) -> Problem:
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]
