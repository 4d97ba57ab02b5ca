"""The miniature of recipe A's checkpoint has the recipe's shape, and its overlay changes nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sparkop.engines.exl3 import bank_folders, plan_file
from sparkop.lab import layout, miniature
from sparkop.lab.hub import add_repository
from sparkop.resources.weights.files import wanted_files
from sparkop.resources.weights.hub import RemoteFile, Repository, parse_manifest
from sparkop.spec.load import load

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs/deepseek-v4.1-flash.yaml"
OVERLAY = ROOT / "tests/data/overlays/lab-recipe-a.yaml"
FILES = miniature.miniature()


def _tensors(content: bytes) -> dict[str, dict[str, object]]:
    """Header of a safetensors file; the data must fill the rest of it exactly."""
    size = int.from_bytes(content[:8], "little")
    header: dict[str, dict[str, object]] = json.loads(content[8 : 8 + size])
    ends = [entry["data_offsets"][1] for entry in header.values()]  # type: ignore[index]
    assert max(ends) == len(content) - 8 - size
    return header


def _shard(name: str) -> bytes:
    parts = sorted(path for path in FILES if path.startswith(f"{name}.part"))
    return b"".join(FILES[part] for part in parts) if parts else FILES[name]


def test_six_shards_of_which_two_come_in_parts_and_hash_as_the_manifest_says() -> None:
    manifest = parse_manifest(FILES["sha256-manifest.txt"].decode())
    assert list(manifest) == [miniature.shard_name(number) for number in range(1, 7)]
    for name, value in manifest.items():
        assert hashlib.sha256(_shard(name)).hexdigest() == value
    in_parts = {path.rpartition(".part")[0] for path in FILES if ".part" in path and path[-1].isdigit()}
    assert in_parts == {"model-00005-of-00006.safetensors", "model-00006-of-00006.safetensors"}
    assert not in_parts & set(FILES)


def test_the_index_names_the_tensors_of_the_shards() -> None:
    index = json.loads(FILES["model.safetensors.index.json"])["weight_map"]
    assert {(t, shard) for shard in set(index.values()) for t in _tensors(_shard(shard))} == set(
        index.items()
    )


def test_the_plan_and_its_banks() -> None:
    spec = load([SPEC]).spec
    plan = FILES[plan_file(spec.engine.exl3.plan)]  # type: ignore[union-attr]
    assert bank_folders(plan) == ("qn", "q31", "q31s")
    for bank in bank_folders(plan):
        names = [path for path in FILES if path.startswith(f"exl3/{bank}/")]
        assert names
        for name in names:
            assert name.endswith(".part.safetensors")
            assert _tensors(FILES[name])


def test_the_spec_wants_nothing_that_the_miniature_lacks() -> None:
    listed = [
        RemoteFile(path, len(data), hashlib.sha256(data).hexdigest(), None) for path, data in FILES.items()
    ]
    manifest = parse_manifest(FILES["sha256-manifest.txt"].decode())
    weights = load([SPEC, OVERLAY]).spec.weights
    repository = Repository(miniature.REPOSITORY, "http://hub", "main", "c" * 40, tuple(listed), manifest)
    assert len(wanted_files(repository, weights)) == len(FILES) - 2 * miniature.PARTS + 2
    assert weights.free_space == 10_000_000, "the recipe's 470 GB would not fit on a lab host"


def test_the_overlay_pins_the_commit_that_the_labs_hub_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch would be remembered by the controller from another lab, whose sparkop made other files."""
    monkeypatch.setenv(layout.STATE_VARIABLE, str(tmp_path))
    weights = load([SPEC, OVERLAY]).spec.weights
    assert weights.repository == miniature.REPOSITORY
    assert weights.revision == add_repository(FILES, miniature.REPOSITORY, lab="mini")


def test_the_overlay_changes_only_addresses_repository_sizes_and_image() -> None:
    """What the lab proves, it proves of the recipe's own settings."""
    recipe, lab = load([SPEC]).spec, load([SPEC, OVERLAY]).spec
    own = {name: getattr(recipe.weights, name) for name in ("repository", "revision", "free_space")}
    weights = lab.weights.model_copy(update=own)
    assert lab.model_copy(update={"nodes": recipe.nodes, "image": recipe.image, "weights": weights}) == recipe
    changed = {"name", "ssh"}
    assert all(node.model_dump(exclude_unset=True).keys() <= changed for node in lab.nodes)
