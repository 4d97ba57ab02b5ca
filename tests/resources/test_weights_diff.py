"""What the weights differ in and what is planned for it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkop.engines.base import FabricFacts, NodeFacts
from sparkop.errors import BlockedError
from sparkop.hosts.document import parse_document
from sparkop.node.leaving import Leaving
from sparkop.resources.base import Difference
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.resources.weights import job as weights_job
from sparkop.resources.weights.files import Checkpoint, probe_file, removal, wanted_files
from sparkop.resources.weights.hub import RemoteFile, Repository
from sparkop.resources.weights.resource import KIND, WeightFiles
from sparkop.spec.models import ClusterSpec, WeightsSpec

GIB = 1 << 30
COMMIT = "a" * 40


def remote(path: str, size: int = GIB, *, large: bool = True) -> RemoteFile:
    return RemoteFile(path, size, "1" * 64 if large else None, None if large else "2" * 40)


def repository(*files: RemoteFile, manifest: Mapping[str, str] | None = None) -> Repository:
    return Repository("org/name", "https://hub.example", "main", COMMIT, files, manifest or {})


CHECKPOINT = Checkpoint(
    repository(remote("a"), remote("b")),
    wanted_files(repository(remote("a"), remote("b")), WeightsSpec(repository="org/name", path="/w")),
)
ALL = {"verified": 2, "verified_bytes": 2 * GIB, "bytes": 2 * GIB}
NONE = {"missing": ["a", "b"], "exists": False}
HALF = {"verified": 1, "verified_bytes": GIB, "bytes": GIB, "missing": ["b"]}
DOUBTFUL = {"verified": 1, "verified_bytes": GIB, "bytes": 2 * GIB, "unverified": ["b"]}
FLAWS = {"b": "5 bytes, not 9"}
WRONG = {"verified": 1, "verified_bytes": GIB, "bytes": GIB + 5, "wrong": ["b"], "flaws": FLAWS}


def spec_of(names: Iterable[str], **weights: Any) -> ClusterSpec:
    return ClusterSpec.model_validate(
        {
            "apiVersion": "sparkop/v1",
            "name": "test",
            "nodes": [{"name": name, "ssh": f"user@{name}"} for name in names],
            "weights": {"repository": "org/name", "path": "/w", **weights},
            "image": {"reference": "x/y:z"},
            "engine": {"kind": "vllm"},
            "api": {"servedNames": ["m"]},
        }
    )


def compare(
    states: Mapping[str, Mapping[str, Any] | str | None],
    *,
    checkpoint: Checkpoint = CHECKPOINT,
    free: int | Mapping[str, int] = 100 * GIB,
    fabric: bool = True,
    transfer: Mapping[str, Any] | None = None,
    **weights: Any,
) -> Difference:
    """The difference of nodes with these states; a text is an error of the section, None an unread node."""
    spec = spec_of(states, **weights)
    nodes, documents = {}, {}
    for index, (name, state) in enumerate(states.items()):
        if state is None:
            continue
        raw: dict[str, Any] = {
            "version": 1,
            "nonce": "n",
            "state": {"transfer.json": transfer} if transfer else {},
        }
        room = free if isinstance(free, int) else free.get(name, 100 * GIB)
        raw["disk"] = {"/w": {"path": "/", "total": room, "free": room, "inodes_free": 999, "device": 1}}
        if isinstance(state, str):
            raw["errors"] = {"weights": state}
        else:
            raw["weights"] = {
                "directory": "/w", "exists": True, "verified": 0, "verified_bytes": 0, "bytes": 0, **state
            }  # fmt: skip
        documents[name] = parse_document(raw)
        link = FabricFacts(address=f"10.0.0.{index + 1}", interface="f0", hcas=(), gid_index=None)
        facts = NodeFacts(name, "/h", link if fabric else None, 1, revision=COMMIT)
        nodes[name] = DesiredNode(name, index, "/h", "/s", "/w", facts)
    desired = Desired(spec, None, nodes, outside={KIND: checkpoint})  # type: ignore[arg-type]
    return WeightFiles().diff(desired, Observed(documents), History())


def lines(difference: Difference) -> list[str]:
    return [
        f"{o.action} {o.node}" + (f" from {o.parameters['from']}" if "from" in o.parameters else "")
        for o in difference.operations
    ]


@pytest.mark.parametrize(
    ("states", "weights", "plan"),
    [
        ((ALL, ALL), {}, []),
        ((NONE, NONE), {}, ["download n1", "copy n2 from n1"]),
        ((ALL, HALF), {}, ["copy n2 from n1"]),
        ((HALF, ALL), {}, ["copy n1 from n2"]),
        ((NONE, NONE, NONE), {}, ["download n1", "copy n2 from n1", "copy n3 from n2"]),
        ((NONE, ALL, NONE), {}, ["copy n1 from n2", "copy n3 from n1"]),
        ((NONE, NONE), {"downloadOn": "n2"}, ["copy n1 from n2", "download n2"]),
        ((NONE, HALF), {"distribution": "direct"}, ["download n1", "download n2"]),
        ((NONE, NONE), {"distribution": "shared"}, ["download n1", "record n2"]),
        ((NONE,), {}, ["download n1"]),
    ],
)
def test_who_gets_what_from_where(states: tuple[Any, ...], weights: dict[str, Any], plan: list[str]) -> None:
    found = compare({f"n{i}": state for i, state in enumerate(states, 1)}, **weights)
    assert sorted(lines(found)) == sorted(plan)
    assert (found.blockers, found.unknown) == ((), ())


def test_a_check_of_a_shared_folder_waits_for_its_download() -> None:
    found = compare({"n1": NONE, "n2": NONE}, distribution="shared")
    assert found.operations[1].needs == (found.operations[0].key,)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"dates": 1, "inodes": 2}, ""),
        ({"dates": 9, "inodes": 9}, "n2: weights: /w is not the folder of n1"),
        ({"dates": 1, "inodes": 9}, "whether /w is the folder of n1 is not known"),
        ({"dates": 9, "inodes": 9, "verified": 1, "unverified": ["b"]}, ""),
    ],
)
def test_a_folder_that_is_called_shared_is_compared_without_writing(other: Any, told: str) -> None:
    """A diff can't write a mark; dates prove a difference, numbers only a doubt."""
    found = compare({"n1": {**ALL, "dates": 1, "inodes": 2}, "n2": {**ALL, **other}}, distribution="shared")
    assert bool(found.warnings) is bool(told)
    assert told in "".join(found.warnings)
    assert "weights.distribution: copy" in "".join(found.warnings) or not told
    copied = compare({"n1": {**ALL, "dates": 1}, "n2": {**ALL, **other}})
    assert not copied.warnings


@pytest.mark.parametrize(
    ("state", "told", "cost"),
    [
        (NONE, "absent", 2 * GIB),
        (HALF, "1 of 2 files verified; missing b", GIB),
        (WRONG, "1 of 2 files verified; wrong b (5 bytes, not 9)", GIB),
        (DOUBTFUL, "1 of 2 files verified; unverified b", 0),
    ],
)
def test_the_cause_names_the_files_and_the_cost_counts_bytes(state: Any, told: str, cost: int) -> None:
    (operation,) = compare({"n1": ALL, "n2": state}).operations
    assert operation.cause.observed == told
    assert operation.cause.desired == "2 files, 2.0 GiB, of aaaaaaaaaaaa, verified"
    assert operation.cost.bytes == cost


def test_a_node_that_was_not_read_is_neither_source_nor_target() -> None:
    assert lines(compare({"n1": None, "n2": NONE})) == [], "the node that downloads is unknown"
    assert lines(compare({"n1": None, "n2": ALL, "n3": NONE})) == ["copy n3 from n2"]
    found = compare({"n1": "Permission denied", "n2": ALL})
    assert lines(found) == []
    assert [(u.node, u.reason) for u in found.unknown] == [("n1", "Permission denied")]


def test_too_little_room_blocks_before_anything_starts() -> None:
    found = compare({"n1": NONE, "n2": ALL}, free=GIB)
    assert lines(found) == []
    (blocker,) = found.blockers
    assert "1.0 GiB free" in blocker.cause.observed
    assert "2.0 GiB still to come" in blocker.cause.desired
    staged = {"phase": "failed", "bytes": {"total": 2 * GIB, "done": GIB, "staged": GIB}, "active": {}}
    assert lines(compare({"n1": NONE, "n2": ALL}, free=GIB, transfer=staged)) == ["copy n1 from n2"]


def test_nothing_is_copied_from_a_node_that_can_not_get_it() -> None:
    """The copy waited in silence for a source without room, for a quarter of an hour."""
    head = compare({"n1": NONE, "n2": NONE, "n3": NONE}, free={"n1": GIB})
    assert lines(head) == []
    assert [blocker.node for blocker in head.blockers] == ["n1"]
    assert head.blockers[0].remedy.endswith("; until then nothing comes to n2, n3"), "they were not named"
    both = compare({"n1": NONE, "n2": NONE, "n3": NONE}, free={"n1": GIB, "n3": GIB})
    assert lines(both) == []
    assert [blocker.node for blocker in both.blockers] == ["n1", "n3"], "each without room is told at once"
    assert both.blockers[0].remedy.endswith("; until then nothing comes to n2")
    assert "until then" not in both.blockers[1].remedy
    middle = compare({"n1": ALL, "n2": NONE, "n3": NONE}, free={"n2": GIB})
    assert lines(middle) == ["copy n3 from n1"]
    assert [blocker.node for blocker in middle.blockers] == ["n2"]


def test_a_download_needs_the_room_that_the_spec_asks_for_and_half_of_it_for_the_second_half() -> None:
    """freeSpace counts before a download begins; one lost file must not ask for all of it again."""
    asked: dict[str, Any] = {"freeSpace": "10 GiB", "distribution": "direct"}
    short = compare({"n1": NONE, "n2": ALL}, free=9 * GIB, **asked)
    assert [(b.node, b.cause.desired) for b in short.blockers] == [("n1", "10.0 GiB free")]
    assert "weights.freeSpace" in short.blockers[0].remedy
    assert lines(compare({"n1": HALF, "n2": ALL}, free=5 * GIB, **asked)) == ["download n1"]
    assert compare({"n1": HALF, "n2": ALL}, free=5 * GIB - 1, **asked).blockers
    assert not compare({"n1": DOUBTFUL}, free=1, **asked).blockers, "what is only hashed needs no room"
    copied = compare({"n1": ALL, "n2": NONE}, free=9 * GIB, freeSpace="10 GiB")
    assert lines(copied) == ["copy n2 from n1"]


def test_without_a_fabric_nothing_is_copied() -> None:
    found = compare({"n1": ALL, "n2": NONE}, fabric=False)
    assert lines(found) == []
    assert "distribution: direct" in found.blockers[0].remedy


def test_a_list_that_the_hub_did_not_give_blocks_and_says_why() -> None:
    error = BlockedError("org/name is gated", cause="no token", remedy="set HF_TOKEN")
    found = compare({"n1": NONE}, checkpoint=Checkpoint(None, error=error))
    (blocker,) = found.blockers
    assert blocker.cause.observed == "org/name is gated"
    assert blocker.remedy == "set HF_TOKEN (no token)"


def select(*files: RemoteFile, manifest: Mapping[str, str] | None = None, **weights: Any) -> list[str]:
    spec = WeightsSpec.model_validate({"repository": "org/name", "path": "/w", **weights})
    return [file.path for file in wanted_files(repository(*files, manifest=manifest), spec)]


def test_include_and_exclude_select_as_the_hub_does() -> None:
    files = [remote(path) for path in ("a.json", "x/b.bin", "x/y/c.bin", "d.md")]
    assert select(*files, include=["x/"]) == ["x/b.bin", "x/y/c.bin"]
    assert select(*files, include=["*.bin"], exclude=["x/y/*"]) == ["x/b.bin"]
    with pytest.raises(BlockedError, match="no file"):
        select(*files, include=["nothing"])


@pytest.mark.parametrize("keep", [False, True])
def test_parts_that_lie_there_go_with_their_shard(keep: bool, tmp_path: Path) -> None:
    """Another tool has fetched them, or putting them together was interrupted."""
    spec = spec_of(["n"], path=str(tmp_path), keepParts=keep, exclude=["n.*"])
    names = ("config.json", "sub/m.part00", "sub/m.part01", "n.part00")
    known = repository(*map(remote, names))
    wanted = removal(spec, spec.nodes[0], Checkpoint(known, wanted_files(known, spec.weights)))
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).touch()
    assert set(Leaving(wanted, str(tmp_path / "state")).paths()) == {
        str(tmp_path / name) for name in names[:3]
    }


def test_parts_stand_for_their_shard_in_order_of_their_numbers() -> None:
    parts = [remote(f"m.safetensors.part{i}", size=i + 1) for i in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9)]
    files = [remote("L05.part.safetensors"), *parts]
    spec = WeightsSpec(repository="org/name", path="/w")
    lone, shard = wanted_files(repository(*files), spec)
    assert (lone.path, shard.path) == ("L05.part.safetensors", "m.safetensors")
    assert [piece.size for piece in shard.parts] == list(range(1, 12))
    assert shard.size == sum(range(1, 12))
    assert set(probe_file(shard)) == {"path", "size", "pieces", "parts", "made_of"}
    assert probe_file(shard)["made_of"][0] == "m.safetensors.part0"
    assert len(select(*files, keepParts=True)) == 13


PARTS = (remote("c.json"), remote("m.safetensors.part00"), remote("m.safetensors.part01"))
KEPT = {"verified": 4, "verified_bytes": 5 * GIB, "bytes": 5 * GIB}
COPIED = {"verified": 2, "verified_bytes": 3 * GIB, "bytes": 3 * GIB}
NO_SHARD = {"verified": 1, "verified_bytes": GIB, "bytes": GIB, "missing": ["m.safetensors"]}


def with_parts(states: Mapping[str, Any], **weights: Any) -> tuple[Difference, Checkpoint]:
    chosen = WeightsSpec.model_validate({"repository": "org/name", "path": "/w", "keepParts": True})
    checkpoint = Checkpoint(repository(*PARTS), wanted_files(repository(*PARTS), chosen))
    return compare(states, checkpoint=checkpoint, keepParts=True, **weights), checkpoint


@pytest.mark.parametrize(
    ("states", "weights", "plan"),
    [
        ((KEPT, COPIED), {}, []),
        ((KEPT, NO_SHARD), {}, ["copy n2 from n1"]),
        ((NO_SHARD, COPIED), {}, ["download n1"]),
        ((COPIED, NO_SHARD), {"downloadOn": "n2"}, ["download n2"]),
    ],
)
def test_parts_that_are_kept_stay_where_they_were_downloaded(
    states: tuple[Any, ...], weights: dict[str, Any], plan: list[str]
) -> None:
    """They are 197 GB of recipe A, whose own copy skips them; nobody else can give them to the downloader."""
    found, _ = with_parts({f"n{i}": state for i, state in enumerate(states, 1)}, **weights)
    assert (lines(found), found.blockers) == (plan, ())


def test_a_copy_is_asked_and_told_without_the_parts() -> None:
    found, _ = with_parts({"n1": KEPT, "n2": NO_SHARD})
    (copy,) = found.operations
    assert copy.cause.observed == "1 of 2 files verified; missing m.safetensors"
    assert copy.cause.desired.startswith("2 files, 3.0 GiB")
    assert copy.cost.bytes == 2 * GIB


@pytest.mark.parametrize(
    ("change", "keepers"),
    [({}, {"n1"}), ({"downloadOn": "n2"}, {"n2"}), ({"distribution": "direct"}, {"n1", "n2"})],
)
def test_only_a_node_that_downloads_is_looked_at_and_told_to_have_parts(
    change: dict[str, Any], keepers: set[str]
) -> None:
    _, checkpoint = with_parts({"n1": KEPT, "n2": COPIED})
    spec = spec_of({"n1": ALL, "n2": ALL}, keepParts=True, **change)
    nodes = {
        node.name: DesiredNode(node.name, i, "/h", "/s", "/w", None) for i, node in enumerate(spec.nodes)
    }
    context: Any = SimpleNamespace(desired=Desired(spec, None, nodes, outside={KIND: checkpoint}))  # type: ignore[arg-type]
    for node in spec.nodes:
        operation = Operation(Action.COPY, node.name, KIND, Cause("", "", ""))
        asked: Any = WeightFiles().request(spec, node, checkpoint)["weights"]
        for files in (asked["files"], weights_job._job(operation, context)["files"]):
            assert len(files) == (4 if node.name in keepers else 2)


def test_a_shard_that_was_not_put_together_is_told_with_what_to_do() -> None:
    """The engine only says that a shard is missing; a list of names has no remedy."""
    flaw = "2 of its 2 parts are here, not put together"
    lost = {**NO_SHARD, "flaws": {"m.safetensors": flaw}}
    found, _ = with_parts({"n1": KEPT, "n2": lost})
    (told,) = found.warnings
    assert told.startswith(f"n2: weights: m.safetensors is missing: {flaw}; sparkop apply")
    assert f"missing m.safetensors ({flaw})" in found.operations[0].cause.observed
    bare, _ = with_parts({"n1": KEPT, "n2": {**lost, "exists": False}})
    assert not bare.warnings, "nothing was fetched yet: nothing is lost"


def test_a_missing_part_is_told() -> None:
    with pytest.raises(BlockedError, match="lacks a part of m") as caught:
        select(remote("m.part00"), remote("m.part02"))
    assert caught.value.cause == "its parts are numbered 0, 2"


def test_the_manifest_gives_a_shard_its_hash_and_must_agree_with_the_hub() -> None:
    parts = [remote("m.part00"), remote("m.part01")]
    spec = WeightsSpec(repository="org/name", path="/w", manifest="sums.txt")
    (shard,) = wanted_files(repository(*parts, manifest={"m": "3" * 64}), spec)
    assert shard.wanted == ("sha256", "3" * 64)
    with pytest.raises(BlockedError, match="disagree on a"):
        wanted_files(repository(remote("a"), manifest={"a": "4" * 64}), spec)
    with pytest.raises(BlockedError, match="lists b"):
        wanted_files(repository(remote("a"), manifest={"b": "4" * 64}), spec)


def test_a_repository_without_a_required_file_is_told_before_it_is_fetched() -> None:
    """A checkpoint that can't start is not worth its download."""
    files = [
        remote("config.json"),
        remote("exl3/qn/L03.part.safetensors"),
        remote("m.part00"),
        remote("m.part01"),
    ]
    assert select(*files, required=["config.json", "m", "exl3/qn/"])
    for lost in ("config.jso", "exl3/q31/", "exl3/qn", "m.part00"):
        with pytest.raises(BlockedError, match=f"lacks {lost}, "):
            select(*files, required=[lost])


@pytest.mark.parametrize("manifest", [{}, {"other": "1" * 64}])
def test_a_shard_in_parts_that_the_manifest_does_not_list_is_named(manifest: Mapping[str, str]) -> None:
    """Parts verify one by one also when the last of them is missing; only the whole's hash tells."""
    parts = (remote("m.part00"), remote("m.part01"))
    others = (remote("other"),) if manifest else ()
    spec = WeightsSpec(repository="org/name", path="/w", manifest="sums.txt")
    with pytest.raises(BlockedError, match=r"sums\.txt has no SHA-256 of m, which is put together"):
        wanted_files(repository(*parts, *others, manifest=manifest), spec)
    assert select(*parts) == ["m"], "without a manifest each part's own hash is what is known"
