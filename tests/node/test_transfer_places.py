"""Where the bytes come from and lie: parts, hub cache, copies by other tools, peers."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.node.transfer import fetch, files, serve
from sparkop.node.transfer.ledger import write_whole
from sparkop.resources.operations import Action
from sparkop.resources.weights.follow import action_of
from tests.node.hub_standin import Hub, git_sha1, running, sha256
from tests.node.transfer_world import Node

MIB = 1 << 20
SHARD = random.Random(2).randbytes(40 * MIB + 77)
CUTS = (0, 17 * MIB + 5, 33 * MIB, len(SHARD))
PARTS = {f"model-5.safetensors.part0{i}": SHARD[CUTS[i] : CUTS[i + 1]] for i in range(3)}
FILES = {"config.json": b"{}", "L05.part.safetensors": SHARD[: 2 * MIB], **PARTS}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "the node's own")


def shard(*, manifest: bool = True) -> dict[str, Any]:
    parts = [{"path": name, "size": len(data), "sha256": sha256(data)} for name, data in PARTS.items()]
    whole = {"sha256": sha256(SHARD)} if manifest else {}
    return {"path": "model-5.safetensors", "size": len(SHARD), "parts": parts, **whole}


@pytest.mark.parametrize("manifest", [True, False])
def test_parts_are_fetched_straight_into_the_shard(node: Node, hub: Hub, manifest: bool) -> None:
    job = node.job([*hub.job_files("config.json", "L05.part.safetensors"), shard(manifest=manifest)], hub)
    status = node.run(job)
    assert status["phase"] == "done", status["error"]
    assert (node.weights / "model-5.safetensors").read_bytes() == SHARD
    assert sorted(path.name for path in node.weights.iterdir()) == [
        "L05.part.safetensors",
        "config.json",
        "model-5.safetensors",
    ]
    hub.log.clear()
    assert node.run(job)["phase"] == "done"
    assert hub.log == [], "parts of a rebuilt shard are not fetched again"


def test_a_shard_that_its_parts_do_not_make_is_told_as_that(node: Node, hub: Hub) -> None:
    """A part that the repository lacks shows in the whole's own hash only; another source won't help."""
    status = node.run(node.job([{**shard(), "sha256": "0" * 64}], hub))
    assert (status["phase"], status["error"]["kind"]) == ("failed", "content")
    assert "a part is missing in the repository or its list is wrong" in status["error"]["remedy"]
    assert not (node.weights / "model-5.safetensors").exists()


@pytest.mark.parametrize(
    "path", ["state/ledger/weights.json", "state/ledger/weights.json.lock", "weights/config.json"]
)
def test_a_folder_in_place_of_a_file_is_told(node: Node, hub: Hub, path: str) -> None:
    place = node.folder / path
    place.mkdir(parents=True)
    status = node.run(node.job(hub.job_files("config.json"), hub))
    assert (status["phase"], status["error"]["kind"]) == ("failed", "place")
    assert status["error"]["message"] == f"{place} is a folder, it should be a file"
    moved = shlex.join(["mv", str(place), f"{place}.aside"])
    assert status["error"]["remedy"] == f"on the node: {moved}"


@pytest.mark.parametrize("path", ["state/ledger", "weights", "weights/deep"])
def test_a_file_in_place_of_a_folder_is_told(node: Node, hub: Hub, path: str) -> None:
    place = node.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"")
    hub.files["deep/er/config.json"] = b"{}"
    status = node.run(node.job(hub.job_files("deep/er/config.json"), hub))
    assert (status["phase"], status["error"]["kind"]) == ("failed", "place")
    assert status["error"]["message"] == f"{place} is a file, it should be a folder"


def put_parts(node: Node) -> None:
    node.weights.mkdir(parents=True, exist_ok=True)
    for name, data in PARTS.items():
        (node.weights / name).write_bytes(data)


@pytest.mark.parametrize("manifest", [True, False])
def test_parts_that_lie_there_are_used_and_removed(node: Node, hub: Hub, manifest: bool) -> None:
    put_parts(node)
    status = node.run(node.job([shard(manifest=manifest)], hub))
    assert status["phase"] == "done", status["error"]
    assert hub.log == []
    assert [path.name for path in node.weights.iterdir()] == ["model-5.safetensors"]
    assert (node.weights / "model-5.safetensors").read_bytes() == SHARD


def test_kept_parts_stay(node: Node, hub: Hub) -> None:
    job = node.job([*hub.job_files(*PARTS), shard()], hub, keep_parts=True)
    assert node.run(job)["phase"] == "done"
    for name, data in {**PARTS, "model-5.safetensors": SHARD}.items():
        assert (node.weights / name).read_bytes() == data, name
    assert hub.sent == len(SHARD), "the shard is made of the parts, not fetched beside them"


def test_a_damaged_part_is_fetched_and_the_others_are_used(node: Node, hub: Hub) -> None:
    put_parts(node)
    path = node.weights / "model-5.safetensors.part01"
    path.write_bytes(b"!" + path.read_bytes()[1:])
    assert node.run(node.job([shard()], hub))["phase"] == "done"
    assert (node.weights / "model-5.safetensors").read_bytes() == SHARD
    assert hub.sent == len(PARTS["model-5.safetensors.part01"])


def test_a_foreign_half_of_a_part_is_not_taken_for_ours(node: Node, hub: Hub) -> None:
    put_parts(node)
    os.truncate(node.weights / "model-5.safetensors.part00", 16 * MIB)
    assert node.run(node.job([shard()], hub))["phase"] == "done"
    assert (node.weights / "model-5.safetensors").read_bytes() == SHARD
    assert [path.name for path in node.weights.iterdir()] == ["model-5.safetensors"]


def hub_job(node: Node, hub: Hub, *names: str) -> dict[str, Any]:
    where = {"commit": hub.commit, "reference": "main"}
    return {**node.job(hub.job_files(*names), hub), "hub": where}


def test_the_hub_cache_is_one_that_the_hubs_own_library_loads_offline(
    node: Node, hub: Hub, tmp_path: Path
) -> None:
    home = tmp_path / "hf"
    folder = home / "hub" / "models--org--name"
    job = {**hub_job(node, hub), "directory": str(folder)}
    assert node.run(job)["phase"] == "done"
    assert (folder / "refs" / "main").read_bytes() == hub.commit.encode()
    load = "from huggingface_hub import snapshot_download as d; print(d('org/name', local_files_only=True))"
    done = subprocess.run(
        [sys.executable, "-c", load],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    snapshot = Path(done.stdout.strip())
    for name, data in FILES.items():
        assert (snapshot / name).read_bytes() == data
        assert str((snapshot / name).readlink()).startswith("../../blobs/")
    (snapshot / "config.json").unlink()
    hub.log.clear()
    assert node.run(job)["phase"] == "done"
    assert (snapshot / "config.json").read_bytes() == b"{}"
    assert hub.log == [], "the blob is still there: only its link is made again"


def test_copies_in_a_hub_cache_are_used_for_a_plain_folder_and_the_other_way_round(
    node: Node, hub: Hub, tmp_path: Path
) -> None:
    cache = tmp_path / "hf" / "models--org--name"
    for data in FILES.values():
        blob = cache / "blobs" / (sha256(data) if len(data) >= MIB else git_sha1(data))
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
    names = sorted(FILES)
    status = node.run(node.job(hub.job_files(*names), hub, search=[str(cache)]))
    assert (status["phase"], hub.log) == ("done", [])
    other = Node(tmp_path / "other")
    status = other.run({**hub_job(other, hub, *names), "search": [str(node.weights)]})
    assert (status["phase"], hub.log) == ("done", [])
    for name, data in FILES.items():
        assert (other.weights / "snapshots" / hub.commit / name).read_bytes() == data


def test_leftovers_of_another_revision_are_removed_when_all_is_in_place(node: Node, hub: Hub) -> None:
    node.weights.mkdir(parents=True)
    old = node.weights / f".sparkop-{'0' * 20}.partial"
    other = node.weights / ".sparkop-notes"
    old.write_bytes(b"x")
    other.write_bytes(b"x")
    assert node.run(node.job(hub.job_files("config.json"), hub))["phase"] == "done"
    assert (old.exists(), other.exists()) == (False, True)


def test_a_damaged_copy_elsewhere_is_not_used(node: Node, hub: Hub, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "L05.part.safetensors").write_bytes(b"!" + FILES["L05.part.safetensors"][1:])
    status = node.run(node.job(hub.job_files("L05.part.safetensors"), hub, search=[str(other)]))
    assert status["phase"] == "done"
    assert (node.weights / "L05.part.safetensors").read_bytes() == FILES["L05.part.safetensors"]


def test_a_symlinked_folder_is_written_through(node: Node, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "big disk").mkdir()
    node.folder.mkdir(parents=True)
    node.weights.symlink_to(tmp_path / "big disk")
    assert node.run(node.job(hub.job_files("config.json"), hub))["phase"] == "done"
    assert (tmp_path / "big disk" / "config.json").read_bytes() == b"{}"


def test_a_place_that_can_not_be_used_is_named(node: Node, hub: Hub) -> None:
    node.folder.mkdir(parents=True)
    node.weights.write_bytes(b"a file")
    status = node.run(node.job(hub.job_files("config.json"), hub))
    assert status["error"]["kind"] == "place"
    assert str(node.weights) in status["error"]["message"]


class Peer:
    """A node's share on a TCP port."""

    def __init__(self, node: Node, job: dict[str, Any], token: str = "t") -> None:
        offer = {key: job.get(key) for key in ("directory", "hub", "files")}
        write_whole(str(node.state / "transfer" / "share.json"), json.dumps(offer).encode())
        self.server = serve.bind(str(node.state), "127.0.0.1", token)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.source = {"kind": "peer", "base": f"http://127.0.0.1:{self.server.server_address[1]}/"}


def peer_job(node: Node, job: dict[str, Any], peer: Peer, token: str = "t") -> dict[str, Any]:
    return {
        **job,
        "directory": str(node.weights),
        "sources": [peer.source],
        "secrets": {"peer": token},
        "streams": 2,
    }


def test_a_peer_gets_blocks_while_they_arrive(node: Node, hub: Hub, tmp_path: Path) -> None:
    hub.faults.gate = threading.Event()
    hub.faults.rate = 40 * MIB
    job = node.job([shard()], hub, streams=2)
    peer = Peer(node, job)
    other = Node(tmp_path / "other")
    threads = [
        threading.Thread(target=node.run, args=(job,)),
        threading.Thread(target=other.run, args=(peer_job(other, job, peer),)),
    ]
    for thread in threads:
        thread.start()
    hub.faults.gate.set()
    for thread in threads:
        thread.join()
    peer.server.shutdown()
    assert other.status()["phase"] == "done", other.status()["error"]
    assert (other.weights / "model-5.safetensors").read_bytes() == SHARD
    assert hub.sent == len(SHARD)
    told = [action_of(each.status()) for each in (node, other)]
    assert told == [Action.DOWNLOAD, Action.COPY], "what --follow calls them, as the plan did"


def test_a_peer_is_refused_without_the_token_and_outside_the_share(
    node: Node, hub: Hub, tmp_path: Path
) -> None:
    job = node.job(hub.job_files("config.json"), hub)
    node.run(job)
    peer = Peer(node, job)
    other = Node(tmp_path / "other")
    assert other.run(peer_job(other, job, peer, token="wrong"))["error"]["kind"] == "refused"
    (node.weights / "secret").write_bytes(b"x")
    stolen = {"path": "secret", "size": 1, "sha256": sha256(b"x")}
    assert other.run(peer_job(other, {**job, "files": [stolen]}, peer))["error"]["kind"] == "missing"
    peer.server.shutdown()


def test_a_peer_that_damages_bytes_is_found_out(node: Node, hub: Hub, tmp_path: Path) -> None:
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    node.run(job)
    path = node.weights / "L05.part.safetensors"
    data = path.read_bytes()
    path.write_bytes(b"!" + data[1:])
    entries = node.ledger()
    status = path.stat()
    entries[str(path.resolve())].update(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)
    (node.state / "ledger" / "weights.json").write_text(json.dumps({"version": 1, "files": entries}))
    peer = Peer(node, job)
    other = Node(tmp_path / "other")
    status_of = other.run(peer_job(other, job, peer))
    peer.server.shutdown()
    assert status_of["error"]["kind"] == "content"
    assert not (other.weights / path.name).exists()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "cut": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "other bytes": lambda path: path.write_bytes(b"!" + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("of_shard", DAMAGES)
@pytest.mark.parametrize("of_file", ["missing", "other bytes"])
@pytest.mark.parametrize("where", ["head", "peer"])
def test_files_with_and_without_parts_that_are_damaged_together_are_mended_together(
    node: Node, hub: Hub, tmp_path: Path, where: str, of_file: str, of_shard: str
) -> None:
    """Files without parts come first: what is still to be mended then is no wrong byte of the source."""
    job = node.job([*hub.job_files("L05.part.safetensors"), shard()], hub)
    assert node.run(job)["phase"] == "done"
    damaged, again, peer = node, job, Peer(node, job)
    if where == "peer":
        damaged = Node(tmp_path / "other")
        again = peer_job(damaged, job, peer)
        assert damaged.run(again)["phase"] == "done"
    DAMAGES[of_file](damaged.weights / "L05.part.safetensors")
    DAMAGES[of_shard](damaged.weights / "model-5.safetensors")
    status = damaged.run(again)
    peer.server.shutdown()
    assert (status["phase"], status["error"], status["bad"]) == ("done", None, {})
    assert (damaged.weights / "L05.part.safetensors").read_bytes() == FILES["L05.part.safetensors"]
    assert (damaged.weights / "model-5.safetensors").read_bytes() == SHARD


def test_only_the_file_whose_bytes_came_wrong_is_accused(node: Node, hub: Hub) -> None:
    job = node.job([*hub.job_files("config.json"), shard()], hub)
    assert node.run(job)["phase"] == "done"
    hub.files["config.json"] = b"[]"
    (node.weights / "config.json").unlink()
    DAMAGES["cut"](node.weights / "model-5.safetensors")
    error = node.run(job)["error"]
    assert (error["kind"], error["message"]) == ("content", "wrong bytes came twice for config.json")


@pytest.mark.parametrize("why", ["the hub has none", "a file lies in place of the folder"])
def test_a_peer_gives_up_when_its_source_has_given_up(
    node: Node, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(fetch, "SOURCE_GRACE", 1.0)
    if why == "the hub has none":
        hub.faults.statuses = [(404, None)] * 99
    else:
        node.folder.mkdir()
        node.weights.write_bytes(b"")
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    node.run(job)
    peer = Peer(node, job)
    other = Node(tmp_path / "other")
    status = other.run(peer_job(other, job, peer))
    peer.server.shutdown()
    assert status["error"]["kind"] == "source"


def test_the_last_of_a_chain_names_the_node_at_which_it_broke(
    node: Node, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the node that it copies from had failed, without a name, and that one had only waited."""
    monkeypatch.setattr(fetch, "SOURCE_GRACE", 0.1)
    hub.faults.statuses = [(404, None)] * 99
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    own = node.run(job)["error"]["message"]
    told, before = [], node
    for name, following in (("first", "second"), ("second", "third")):
        peer = Peer(before, job)
        peer.source["node"] = name
        before = Node(tmp_path / following)
        told.append(before.run(peer_job(before, job, peer))["error"])
        peer.server.shutdown()
    assert told[0]["message"] == f"first gave up: its own transfer has failed ({own})"
    assert told[1] == told[0], "the second had nothing wrong with it"
    assert "see to that node first" in told[1]["remedy"]


def test_a_peer_gives_up_when_its_source_was_killed_or_without_power(
    node: Node, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last word is "fetching"; the process, or the start of the machine, is another one."""
    monkeypatch.setattr(fetch, "PENDING_GRACE", 1.0)
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    peer = Peer(node, job)
    last = {"phase": "fetching", "pid": os.getpid(), "boot_id": "of another start"}
    write_whole(str(node.state / "transfer.json"), json.dumps(last).encode())
    other = Node(tmp_path / "other")
    status = other.run(peer_job(other, job, peer))
    peer.server.shutdown()
    assert status["error"]["kind"] == "source"
    assert "vanished" in status["error"]["message"]


@pytest.mark.parametrize("last", [{}, {"phase": "done"}], ids=["none", "done"])
def test_a_peer_gives_up_on_a_source_that_lacks_it_and_fetches_nothing(
    last: dict[str, Any], node: Node, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights were removed after its transfer, or it has never had one."""
    monkeypatch.setattr(fetch, "PENDING_GRACE", 1.0)
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    peer = Peer(node, job)
    write_whole(str(node.state / "transfer.json"), json.dumps(last).encode())
    other = Node(tmp_path / "other")
    status = other.run(peer_job(other, job, peer))
    peer.server.shutdown()
    assert status["error"]["kind"] == "source"


def test_a_peer_waits_for_a_source_that_starts_again(node: Node, hub: Hub, tmp_path: Path) -> None:
    hub.faults.statuses = [(404, None)] * 99
    job = node.job(hub.job_files("L05.part.safetensors"), hub)
    node.run(job)
    peer = Peer(node, job)
    other = Node(tmp_path / "other")
    thread = threading.Thread(target=other.run, args=(peer_job(other, job, peer),))
    thread.start()
    deadline = time.monotonic() + 20
    while not (other.state / "transfer.json").exists() or other.status()["phase"] != "fetching":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hub.faults.statuses = []
    node.run(job)
    thread.join()
    peer.server.shutdown()
    assert other.status()["phase"] == "done"


def test_names_of_parts() -> None:
    assert files.part_of("a/model-5.safetensors.part07") == "a/model-5.safetensors"
    assert files.part_of("L05.part.safetensors") is None
    assert files.part_of("x.partial") is None


def test_a_link_that_leads_nowhere_is_refused(node: Node, hub: Hub, tmp_path: Path) -> None:
    """A folder on a disk that is not mounted: the weights would have filled the first disk."""
    node.weights.parent.mkdir(parents=True, exist_ok=True)
    disk = tmp_path / "mnt"
    node.weights.symlink_to(disk / "models")
    status = node.run(node.job(hub.job_files("config.json"), hub))
    assert status["phase"] == "failed"
    assert "which is not there" in status["error"]["message"]
    assert "mount" in status["error"]["remedy"]
    assert not disk.exists()
    (disk / "models").mkdir(parents=True)
    assert node.run(node.job(hub.job_files("config.json"), hub))["phase"] == "done"
    assert (disk / "models" / "config.json").read_bytes() == b"{}"
