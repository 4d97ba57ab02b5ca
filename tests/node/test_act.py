"""Effects on a node: whole or not at all, under the fence, safe to repeat."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import threading
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.programs import raise_act_error
from sparkop.node import act, container_act, lease, wire
from sparkop.resources.masking import ON_NODES

FENCE = {"cluster": "c", "holder": "me", "token": 1}


def perform(folder: Path, action: str, **arguments: Any) -> dict[str, Any]:
    fence = {**FENCE, "directory": str(folder / "state")}
    return act.answer({"action": action, "arguments": arguments, "fence": fence})


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder whose lease is ours."""
    assert "result" in perform(tmp_path, "lease.acquire")
    return tmp_path


def content(data: bytes) -> str:
    return b64encode(data).decode()


class TestFiles:
    """Whole, with the right mode, and nothing left over."""

    def test_a_failed_write_leaves_the_old_file(self, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        perform(held, "file.write", path="f", content=content(b"old"))

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        answer = perform(held, "file.write", path="f", content=content(b"new"))
        assert answer["error"]["kind"] == "os"
        assert "No space left" in answer["error"]["message"]
        assert (held / "state" / "f").read_bytes() == b"old"

    def test_drafts_are_never_open_to_others_and_do_not_pile_up(
        self, held: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[int] = []
        replace = os.replace

        def spying(source: str, target: str) -> None:
            seen.append(stat.S_IMODE(Path(source).stat().st_mode))
            replace(source, target)

        (held / "state" / ".key.draft").write_bytes(b"left by a crash, and longer than what follows")
        monkeypatch.setattr(os, "replace", spying)
        perform(held, "file.write", path="key", content=content(b"x"), mode=0o600)
        assert seen == [0o600]
        assert sorted(p.name for p in (held / "state").iterdir()) == [".lock", "key", "lease.json"]
        assert (held / "state" / "key").read_bytes() == b"x"

    def test_a_draft_that_is_a_link_is_not_followed(self, held: Path) -> None:
        victim = held / "victim"
        victim.write_bytes(b"mine")
        (held / "state" / ".f.draft").symlink_to(victim)
        assert perform(held, "file.write", path="f", content=content(b"x"))["error"]["kind"] == "os"
        assert victim.read_bytes() == b"mine"

    def test_the_state_folder_is_its_owners(self, held: Path) -> None:
        assert stat.S_IMODE((held / "state").stat().st_mode) == 0o700

    def test_a_damaged_history_is_put_aside(self, held: Path) -> None:
        (held / "state" / "history.json").write_text("{")
        assert perform(held, "history.append", entry={"id": "1"})["result"] == {"changed": True}
        assert [path.read_text() for path in (held / "state").glob("history.json.damaged-*")] == ["{"]
        found = json.loads((held / "state" / "history.json").read_text())["entries"]
        assert [entry["event"] for entry in found if "event" in entry] == ["damaged"]
        assert found[-1] == {"id": "1"}

    def test_a_damaged_history_is_mended_once(self, held: Path) -> None:
        (held / "state" / "history.json").write_text('{"entries": 3}')
        assert perform(held, "history.append", entry=None)["result"] == {"changed": True}
        assert perform(held, "history.append", entry=None)["result"] == {"changed": False}

    def test_a_history_that_is_full_keeps_what_is_ours(self, held: Path) -> None:
        """Faults that came and went had pushed out which images are ours to remove."""
        perform(held, "history.append", entry={"id": "p", "event": "pulled", "reference": "r@sha256:1"})
        for number in range(12):
            perform(held, "history.append", entry={"id": f"f{number}", "event": "fault"}, limit=8)
        found = json.loads((held / "state" / "history.json").read_text())["entries"]
        assert [entry["id"] for entry in found] == ["p", *(f"f{number}" for number in range(5, 12))]

    def test_a_damaged_file_is_kept_beside_the_new_one_and_the_new_one_is_never_taken_for_it(
        self, held: Path
    ) -> None:
        """The reply to the first request may be lost."""
        (held / "state" / "f").write_bytes(b"{{{")
        for changed in (True, False):
            done = perform(held, "file.write", path="f", content=content(b"new"), aside=True)
            assert done["result"] == {"changed": changed}
        assert (held / "state" / "f").read_bytes() == b"new"
        assert [path.read_bytes() for path in (held / "state").glob("f.damaged-*")] == [b"{{{"]

    @pytest.mark.parametrize("path", ["..", "../..", "/", "~"])
    def test_nothing_outside_is_removed(self, path: str, held: Path) -> None:
        assert perform(held, "directory.remove", path=path)["error"]["kind"] == "arguments"

    def test_of_the_state_folder_what_is_to_be_kept_stays(self, held: Path) -> None:
        state = held / "state"
        (state / "incidents" / "epoch-1").mkdir(parents=True)
        (state / "history.json").write_text("{}")
        (state / "logs").symlink_to("incidents")
        wanted = {"path": str(state), "keep": ["history.json", "never-there"]}
        assert perform(held, "directory.remove", **wanted)["result"] == {"changed": True}
        assert [path.name for path in state.iterdir()] == ["history.json"]

    def test_what_somebody_has_put_into_the_state_folder_stays_and_is_named(self, held: Path) -> None:
        """It went with destroy, unasked. So does a disk's own folder stay, which is not named."""
        state = held / "state"
        (state / "mine" / "deep").mkdir(parents=True)
        for name in ("cluster.json", "bench.json", "key", "notes.txt", "notes.draft"):
            (state / name).touch()
        for name in ("kernels", "lost+found", "logs"):
            (state / name).mkdir()
        wanted: dict[str, Any] = {"path": str(state), "ours": [f"{state}/key", "kernels/x"]}
        done = perform(held, "directory.remove", **wanted)["result"]
        assert done == {"changed": True, "left": ["mine", "notes.draft", "notes.txt"]}
        assert {path.name for path in state.iterdir()} == {*done["left"], "lost+found"}
        assert (state / "mine" / "deep").is_dir()

    def test_the_owners_mark_goes_last(self, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What an engine wrote as root ends destroy; the next one must still know whose the folder is."""

        def refused(path: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", path)

        for name in ("notes.txt", "cluster.json"):
            (held / "state" / name).touch()
        (held / "state" / "units").mkdir()
        monkeypatch.setattr(shutil, "rmtree", refused)
        assert perform(held, "directory.remove", path=str(held / "state"))["error"]["kind"] == "os"
        assert (held / "state" / "cluster.json").exists()

    @pytest.mark.parametrize("linked", ["home", "home/state"])
    @pytest.mark.parametrize("named", ["home/state", "disk"])
    def test_a_state_folder_behind_a_link_is_removed_and_nothing_that_it_leads_to(
        self, linked: str, named: str, tmp_path: Path
    ) -> None:
        """apply worked there, and destroy ended with "not below the state folder", each time."""
        disk, mine, state = tmp_path / "disk", tmp_path / "mine", tmp_path / "home" / "state"
        for folder in (disk, mine):
            folder.mkdir()
        (mine / "file").touch()
        (tmp_path / linked).parent.mkdir(exist_ok=True)
        (tmp_path / linked).symlink_to(disk)
        fence = {**FENCE, "directory": str(state)}

        def done(action: str, **arguments: str) -> dict[str, Any]:
            return act.answer({"action": action, "arguments": arguments, "fence": fence})

        assert "result" in done("lease.acquire")
        (state / "cache").mkdir()
        (state / "link").symlink_to(mine)
        for outside in ("link", str(mine), "..", "../home"):
            assert done("directory.remove", path=outside)["error"]["kind"] == "arguments"
        assert done("directory.remove", path="cache") == {"result": {"changed": True}}
        (state / "link").rename(state / "logs")
        path = str(state if named != "disk" else state.resolve())
        assert done("directory.remove", path=path) == {"result": {"changed": True}}
        assert not os.path.lexists(state)
        assert disk.exists() == (linked == "home")
        assert (mine / "file").exists()

    @pytest.mark.parametrize("error", [errno.EBUSY, errno.EACCES])
    def test_a_state_folder_that_is_a_disks_or_lies_in_one_of_roots_stays_empty(
        self, error: int, held: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(path: str) -> None:
            raise OSError(error, os.strerror(error), path)

        monkeypatch.setattr(os, "rmdir", refused)
        assert perform(held, "directory.remove", path=str(held / "state"))["result"] == {"changed": True}
        assert list((held / "state").iterdir()) == []

    def test_a_checkpoint_within_the_state_folder_is_never_removed_with_it(
        self, held: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By its real path, with the node's own home."""
        monkeypatch.setenv("HOME", str(held))
        (held / "state" / "w").mkdir()
        (held / "models").symlink_to(held / "state" / "w")
        for apart in ("~/state/w", "~/models"):
            done = perform(held, "directory.remove", path=str(held / "state"), apart=apart)
            assert done["error"]["kind"] == "arguments"
            assert "lies within" in done["error"]["message"]
        assert (held / "state" / "w").is_dir()
        assert (held / "state" / "lease.json").exists()

    @pytest.mark.parametrize("beside", ["nothing", "another cluster's", "a link"])
    def test_the_home_of_state_folders_goes_with_the_last_of_them(
        self, beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An empty ~/.sparkop stayed after destroy."""
        monkeypatch.setenv("HOME", str(tmp_path))
        home, there = tmp_path / ".sparkop", tmp_path / "disk"
        if beside == "a link":
            there.mkdir()
            home.symlink_to(there)
        if beside == "another cluster's":
            (home / "other").mkdir(parents=True)
        state = home.resolve() / "test"
        fence = {**FENCE, "directory": str(state)}
        for action, arguments in (("lease.acquire", {}), ("directory.remove", {"path": str(state)})):
            done = act.answer({"action": action, "arguments": arguments, "fence": fence})
            assert "result" in done
        assert not state.exists()
        assert home.exists() == (beside != "nothing")

    @pytest.mark.parametrize("since", ["nothing", "a file", "another folder"])
    def test_folders_that_were_made_elsewhere_go_with_the_state_folder_when_they_are_empty(
        self, since: str, held: Path
    ) -> None:
        """One made for weights, before the guard that mounts it and before any transfer, stayed for ever."""
        (held / "mine").mkdir()
        made = held / "mine" / "models" / "deep"
        for changed in (True, False):
            assert perform(held, "directory.ensure", path=str(made))["result"] == {"changed": changed}
        assert perform(held, "directory.ensure", path="logs")["result"] == {"changed": True}
        if since == "a file":
            (made / "model.bin").touch()
        if since == "another folder":
            made.rename(held / "mine" / "models" / "other")
            made.mkdir()
        perform(held, "directory.remove", path=str(held / "state"))
        assert (held / "mine").is_dir()
        assert made.is_dir() == (since != "nothing")
        assert made.parent.is_dir() == (since != "nothing")

    def test_a_link_out_of_the_folder_is_not_followed(self, held: Path) -> None:
        outside = held / "outside"
        outside.mkdir()
        (held / "state" / "link").symlink_to(outside)
        assert perform(held, "directory.remove", path="link")["error"]["kind"] == "arguments"
        assert outside.is_dir()

    def test_a_missing_argument_is_named(self, held: Path) -> None:
        assert perform(held, "file.write")["error"] == {
            "kind": "arguments",
            "message": "file.write needs content",
        }


class TestLock:
    """The lease can't change hands inside an effect."""

    def test_an_effect_waits_for_the_lock(self, held: Path) -> None:
        done = threading.Event()

        def write() -> None:
            perform(held, "file.write", path="f", content=content(b"x"))
            done.set()

        with lease.locked(str(held / "state")):
            thread = threading.Thread(target=write)
            thread.start()
            assert not done.wait(0.3)
            assert not (held / "state" / "f").exists()
        assert done.wait(10)
        thread.join()

    @pytest.mark.parametrize("action", sorted(set(lease.STEPS) - {"lease.acquire"}))
    def test_who_asks_for_a_lease_that_is_gone_makes_no_folder(self, tmp_path: Path, action: str) -> None:
        """A watch's sign of life made the folder of a destroyed cluster again."""
        perform(tmp_path, action)
        assert not (tmp_path / "state").exists()

    def test_a_damaged_lease_lets_nobody_write_until_it_is_broken(self, held: Path) -> None:
        (held / "state" / "lease.json").write_text("{")
        assert perform(held, "file.write", path="f", content="")["error"]["kind"] == "lease"
        assert perform(held, "lease.acquire")["error"]["kind"] == "lease"
        assert perform(held, "lease.acquire", force=True)["result"]["lease"]["holder"] == "me"


class Engine:
    """Docker's side of the conversation: scripted answers by request, and what was asked."""

    def __init__(self, containers: dict[str, dict[str, Any]], fail: dict[str, tuple[int, str]]) -> None:
        self.containers = containers
        self.fail = fail
        self.asked: list[str] = []
        self.given: dict[str, float | None] = {}
        self.timeout = 1.0

    def request(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> bytes:
        self.asked.append(f"{method} {path}")
        self.given[method] = timeout
        for start, (status, text) in self.fail.items():
            if f"{method} {path}".startswith(start):
                raise wire.EngineError(status, text)
        if path.startswith("/containers/create"):
            name = path.partition("=")[2]
            self.containers[name] = {"Id": name, "State": {"Status": "created"}, "Config": body}
            return json.dumps({"Id": name}).encode()
        name = path.split("/")[2].partition("?")[0]
        found = self.containers.get(name)
        if found is None:
            raise wire.EngineError(404, "no such container")
        if path.endswith("/start"):
            found["State"]["Status"] = "running"
        if method == "DELETE":
            del self.containers[name]
        if "/kill" in path:
            if found["State"]["Status"] != "running":
                raise wire.EngineError(409, "is not running")
            found["State"]["Status"] = "exited"
        return json.dumps(found).encode()

    def json(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> Any:
        return json.loads(self.request(method, path, body, timeout))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine({}, {})
    monkeypatch.setattr(wire, "Engine", lambda timeout: made)
    return made


CONFIG = {"Image": "i", "Labels": {"sparkop.hash": "v1:1"}}


class TestContainers:
    """Moments at which a writer can die."""

    def test_created_but_not_started_is_started(self, held: Path, engine: Engine) -> None:
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "created"}, "Config": CONFIG}
        answer = perform(held, "container.run", name="r0", config=CONFIG)
        assert answer["result"] == {"id": "r0", "changed": True}
        assert engine.containers["r0"]["State"]["Status"] == "running"

    def test_one_that_can_not_start_is_not_left_in_the_way(self, held: Path, engine: Engine) -> None:
        engine.fail["POST /containers/r0/start"] = (500, "port is taken")
        answer = perform(held, "container.run", name="r0", config=CONFIG)
        assert answer["error"] == {"kind": "docker", "message": "Docker: port is taken (500)"}
        assert engine.containers == {}

    def test_the_home_in_mounts_is_the_nodes(self, held: Path, engine: Engine) -> None:
        mounts = [{"Type": "bind", "Source": "~/models", "Target": "/models"}]
        config = {**CONFIG, "HostConfig": {"Mounts": mounts}}
        perform(held, "container.run", name="r0", config=config)
        made = engine.containers["r0"]["Config"]["HostConfig"]["Mounts"][0]
        assert made["Source"] == str(Path("~/models").expanduser())

    def test_removal_that_goes_on_already_is_waited_for(
        self, held: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "exited"}, "Config": CONFIG}
        engine.fail["DELETE /containers/r0"] = (409, "removal of container r0 is already in progress")
        monkeypatch.setattr(container_act.time, "sleep", lambda _seconds: engine.containers.clear())
        assert perform(held, "container.remove", name="r0", grace=1)["result"] == {"changed": True}

    def test_removal_that_never_ends_is_told(self, held: Path, engine: Engine) -> None:
        engine.timeout = 0.0
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "dead"}, "Config": CONFIG}
        engine.fail["DELETE /containers/r0"] = (409, "removal of container r0 is already in progress")
        assert "still there" in perform(held, "container.remove", name="r0", grace=0)["error"]["message"]

    def test_its_own_stop_signal_is_used(self, held: Path, engine: Engine) -> None:
        config = {**CONFIG, "StopSignal": "SIGINT"}
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "running"}, "Config": config}
        perform(held, "container.remove", name="r0", grace=1)
        assert "POST /containers/r0/kill?signal=SIGINT" in engine.asked

    def test_the_lease_may_be_lost_while_a_container_takes_its_time(
        self, held: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The killing half of a removal is a write of its own."""
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "running"}, "Config": CONFIG}

        def lose(_request: object, _seconds: float) -> None:
            rival = {**FENCE, "holder": "rival", "token": 2, "directory": str(held / "state")}
            act.answer({"action": "lease.acquire", "arguments": {"force": True}, "fence": rival})

        monkeypatch.setattr(container_act, "_wait_stopped", lose)
        assert perform(held, "container.remove", name="r0", grace=1)["error"]["kind"] == "lease"
        assert "r0" in engine.containers

    def test_docker_has_what_the_grace_leaves_of_the_requests_time(
        self, held: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that froze in the grace answered after who had asked was gone: the node was called silent."""
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "running"}, "Config": CONFIG}
        now = [100.0]

        def wait(_request: object, grace: float) -> None:
            now[0] += grace

        monkeypatch.setattr("sparkop.node.request.time", SimpleNamespace(monotonic=lambda: now[0]))
        monkeypatch.setattr(container_act, "_wait_stopped", wait)
        perform(held, "container.remove", name="r0", grace=15)
        assert engine.given["DELETE"] == 45.0

    @pytest.mark.parametrize(
        ("is_there", "told"),
        [
            ("nothing", "there is no /var/run/docker.sock; sudo systemctl start docker"),
            ("dead", "Connection refused; sudo systemctl start docker"),
            ("frozen", "timed out; sudo systemctl restart docker"),
        ],
    )
    def test_an_engine_that_gives_no_answer_is_no_refusal(
        self, held: Path, monkeypatch: pytest.MonkeyPatch, is_there: str, told: str
    ) -> None:
        """What it did is unknown (exit 4): told as what the node can't do (6), it had no cause and no next
        step. One that is frozen was to be started, which does nothing."""
        monkeypatch.chdir(held)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            if is_there != "nothing":
                listening.bind("docker.sock")
            if is_there == "frozen":
                listening.listen()
            engine = wire.Engine("docker.sock", 0.2)
            monkeypatch.setattr(wire, "Engine", lambda timeout: engine)
            error = perform(held, "container.kill", name="r0")["error"]
        assert error["kind"] == "engine"
        with pytest.raises(UnreachableError, match="Docker engine does not answer") as caught:
            raise_act_error({"error": error}, node="spark-1")
        assert f"{caught.value.cause}; {caught.value.remedy}".startswith(told)

    def test_logs_of_both_streams_are_kept_for_the_owner_only(
        self, held: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.containers["r0"] = {"Id": "r0", "State": {"Status": "exited"}, "Config": CONFIG}
        plain = engine.request

        def request(method: str, path: str, body: Any = None, timeout: float | None = None) -> bytes:
            if "/logs" in path:
                return b"\1\0\0\0\0\0\0\4out\n" + b"\2\0\0\0\0\0\0\4err\n"
            return plain(method, path, body, timeout)

        monkeypatch.setattr(engine, "request", request)
        assert perform(held, "container.logs.keep", name="r0", path="incidents/1/r0.log")["result"] == {
            "bytes": 8
        }
        kept = held / "state" / "incidents" / "1" / "r0.log"
        assert kept.read_bytes() == b"out\nerr\n"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    def test_a_kept_log_is_bounded_and_shows_no_key(
        self, held: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Engines print their arguments, the key among them (principle 10)."""
        engine.containers["r0"] = {
            "Id": "r0",
            "State": {"Status": "exited"},
            "Config": {**CONFIG, "Tty": True},
        }
        said = (
            b"early\n" + b"args: {'api_key': 'sentinel-1', 'api_key': None} Bearer sentinel-2 hf_" + b"x" * 20
        )
        plain = engine.request

        def request(method: str, path: str, body: Any = None, timeout: float | None = None) -> bytes:
            return said if "/logs" in path else plain(method, path, body, timeout)

        monkeypatch.setattr(engine, "request", request)
        perform(held, "container.logs.keep", name="r0", path="incidents/epoch-1/r0.log", most=90, **ON_NODES)
        kept = (held / "state/incidents/epoch-1/r0.log").read_text()
        assert kept == "args: {'api_key': '********', 'api_key': None} Bearer ******** ********"

    def test_the_oldest_evidence_makes_room(self, held: Path) -> None:
        """By number and by size; other names, and what is no folder, are left alone."""
        folder = held / "state" / "incidents"
        for number in (9, 10, 11, 100):
            (folder / f"epoch-{number}").mkdir(parents=True)
            (folder / f"epoch-{number}/r0.log").write_bytes(b"x" * 100)
        (folder / "kept by hand").mkdir()
        (folder / "note-1").write_text("of the owner's")

        def prune(keep: int, most: int) -> set[str]:
            perform(held, "directory.prune", path="incidents", keep=keep, most=most)
            return {path.name for path in folder.iterdir() if path.name.startswith("epoch")}

        assert prune(3, 10**6) == {"epoch-10", "epoch-11", "epoch-100"}
        assert prune(3, 250) == {"epoch-11", "epoch-100"}
        assert prune(3, 50) == {"epoch-100"}, "the newest stays"
        assert (folder / "kept by hand").is_dir()
        assert (folder / "note-1").is_file()


@pytest.mark.parametrize(
    ("name", "action", "arguments"),
    [
        ("f", "file.write", {"path": "f", "content": content(b"x")}),
        ("history.json", "history.append", {"entry": {"id": "1"}}),
        ("api_key", "key.ensure", {"path": "api_key"}),
        ("lease.json", "lease.acquire", {}),
    ],
)
def test_a_fifo_in_place_of_a_file_is_told_and_never_waited_for(
    held: Path, name: str, action: str, arguments: dict[str, Any]
) -> None:
    """Whoever opens it as a file waits for its writer, with the node's lock in the hand."""
    path = held / "state" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(perform(held, action, **arguments)), daemon=True)
    thread.start()
    thread.join(20)
    assert answers, "it waits"
    assert answers[0]["error"]["message"] == f"NotRegularError: Not a regular file: {path}"
    assert stat.S_ISFIFO(path.stat().st_mode), "it stays"
