"""What transfers leave on a node beside the files goes with the last of them: folders, and the lock."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.node import act
from sparkop.node.transfer import peering, shared
from tests.node.hub_standin import Hub, running
from tests.node.transfer_world import Node

NAMES = ("config.json", "sub/one")
FENCE = {"cluster": "c", "holder": "me", "token": 1}
KEYS = ("ssh-ed25519 AAAA sparkop:one:spark-2", "ssh-ed25519 BBBB sparkop:two:spark-2")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, {"config.json": b"{}", "sub/one": b"1"})) as hub:
        yield hub


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """What was there before."""
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def perform(node: Node, action: str, **arguments: Any) -> dict[str, Any]:
    fence = {**FENCE, "directory": str(node.state)}
    done: dict[str, Any] = act.answer({"action": action, "arguments": arguments, "fence": fence})["result"]
    return done


def destroy(node: Node, weights: Path) -> None:
    """As ``destroy --weights`` ends."""
    perform(node, "lease.acquire")
    files = [{"path": name, "blob": "", "key": "k"} for name in NAMES]
    perform(node, "weights.remove", directory=str(weights), files=files)
    assert perform(node, "directory.remove", path=str(node.state)) == {"changed": True}


def fetch(node: Node, hub: Hub, weights: Path) -> None:
    job = {**node.job(hub.job_files(*NAMES), hub), "directory": str(weights)}
    assert node.run(job)["phase"] == "done"


def test_folders_that_a_transfer_made_go_when_they_are_empty(disk: Path, hub: Hub, tmp_path: Path) -> None:
    """An empty ~/models/x stayed. What was there before stays."""
    node = Node(tmp_path / "node")
    fetch(node, hub, disk / "models" / "x")
    destroy(node, disk / "models" / "x")
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("case", ["there before", "made anew", "a link", "in use"])
def test_a_folder_that_is_somebodys_stays(case: str, disk: Path, hub: Hub, tmp_path: Path) -> None:
    node, weights = Node(tmp_path / "node"), disk / "models" / "x"
    if case == "there before":
        weights.mkdir(parents=True)
    fetch(node, hub, weights)
    if case == "in use":
        (weights / "mine").touch()
    if case in ("made anew", "a link"):
        weights.rename(disk / "elsewhere")
    if case == "made anew":
        weights.mkdir()
    if case == "a link":
        weights.symlink_to(disk / "elsewhere")
    destroy(node, weights)
    assert weights.is_dir()
    assert weights.is_symlink() == (case == "a link")


def test_a_folder_that_is_made_for_a_mark_is_known_too(disk: Path, tmp_path: Path) -> None:
    """``shared``: before anything is fetched, one node writes a mark."""
    node, weights = Node(tmp_path / "node"), disk / "models" / "x"
    request = {"directory": str(weights), "nonce": "0f"}
    shared.mark(str(node.state), request)
    shared.unmark(request)
    destroy(node, weights)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("record", [b"{", b"[1]", b'{"/": null}', b"\xff"])
def test_a_record_that_makes_no_sense_stops_nothing(record: bytes, tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    (node.state / "transfer" / "folders.json").write_bytes(record)
    destroy(node, tmp_path / "weights")
    assert not (tmp_path / "node" / "state").exists()


class TestKeys:
    """``~/.ssh`` of a node that others read from."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HOME", str(tmp_path))
        return tmp_path / ".ssh"

    def test_the_lock_goes_with_the_last_key_of_any_cluster(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "authorized_keys").write_text("ssh-rsa CCCC me@home\n")
        for key in KEYS:
            peering.authorise("/state", key)
        peering.forbid("sparkop:one:")
        assert (folder / ".sparkop.lock").exists()
        assert KEYS[1] in (folder / "authorized_keys").read_text()
        peering.forbid("sparkop:two:")
        assert [path.name for path in folder.iterdir()] == ["authorized_keys"]
        assert (folder / "authorized_keys").read_text() == "ssh-rsa CCCC me@home\n"

    def test_where_there_are_no_keys_nothing_is_made(self, folder: Path) -> None:
        peering.forbid("sparkop:one:")
        assert not folder.exists()

    def test_who_waits_for_a_lock_that_goes_takes_the_one_that_is_there(self, folder: Path) -> None:
        """Else two would write the keys at once: one with the file that is gone, one with a new one."""
        peering.authorise("/state", KEYS[0])
        path = folder / ".sparkop.lock"
        with path.open("w") as gone:
            fcntl.flock(gone, fcntl.LOCK_EX)
            waiting = threading.Thread(target=peering.authorise, args=("/state", KEYS[1]))
            waiting.start()
            until_waited_for(gone.fileno())
            path.unlink()
            with path.open("w") as new:
                fcntl.flock(new, fcntl.LOCK_EX)
                fcntl.flock(gone, fcntl.LOCK_UN)
                until_waited_for(new.fileno())
                assert KEYS[1] not in (folder / "authorized_keys").read_text()
        waiting.join()
        assert KEYS[1] in (folder / "authorized_keys").read_text()


def until_waited_for(handle: int) -> None:
    """Another one waits for the lock of this open file (proc_locks(5): its lines begin with an arrow)."""
    inode = Path(f"/proc/self/fdinfo/{handle}").read_text()
    assert "FLOCK" in inode
    number = inode.partition("ino:")[2].split()[0]
    deadline = time.monotonic() + 10
    while not any(
        f":{number} " in line and "->" in line for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
