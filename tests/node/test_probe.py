"""Single facts of the probe, against what the machine's own programs say and against made-up inputs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sparkop.hosts.obstacle import obstacle
from sparkop.node import engine, facts, gpus, network, probe, weights, wire

LOST_TEXT = "Failed to initialize NVML: Unknown Error"
LOST = f"pynvml.NVMLError_Unknown: {LOST_TEXT}\n".encode()


def document(**request: Any) -> dict[str, Any]:
    return probe.Probe({"nonce": "n", **request}).document()


class TestWeights:
    """The ledger is believed only while the file is the one that was hashed."""

    FILE: ClassVar = {"path": "a.bin", "size": 3, "sha256": "s" * 64}

    def look(self, folder: Path, **change: Any) -> dict[str, Any]:
        return document(
            sections=["weights"],
            state=str(folder / "state"),
            weights={"directory": str(folder / "w"), "files": [{**self.FILE, **change}]},
        )["weights"]

    def place(self, folder: Path, **entry: Any) -> Path:
        path = folder / "w" / "a.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"abc")
        known = {**weights.stamp(path.stat()), "sha256": "s" * 64, **entry}
        ledger = folder / "state" / "ledger" / "weights.json"
        ledger.parent.mkdir(parents=True, exist_ok=True)
        ledger.write_text(json.dumps({"version": 1, "files": {os.path.realpath(path): known}}))
        return path

    def test_verified(self, tmp_path: Path) -> None:
        self.place(tmp_path)
        found = self.look(tmp_path)
        assert (found["verified"], found["verified_bytes"], found["bytes"]) == (1, 3, 3)
        assert found["missing"] == found["wrong"] == found["unverified"] == []

    def test_a_file_that_was_not_put_together_from_its_parts(self, tmp_path: Path) -> None:
        (tmp_path / "w").mkdir()
        made_of = [f"a.bin.part0{number}" for number in range(3)]
        assert self.look(tmp_path, made_of=made_of)["flaws"] == {"a.bin": "none of its 3 parts is here"}
        for name in made_of[:2]:
            (tmp_path / "w" / name).write_bytes(b"x")
        found = self.look(tmp_path, made_of=made_of)
        assert found["missing"] == ["a.bin"]
        assert found["flaws"] == {"a.bin": "2 of its 3 parts are here, not put together"}
        self.place(tmp_path)
        assert self.look(tmp_path, made_of=made_of)["flaws"] == {}

    def test_missing_folder_and_file(self, tmp_path: Path) -> None:
        found = self.look(tmp_path)
        assert not found["exists"]
        assert found["missing"] == ["a.bin"]

    @pytest.mark.parametrize("change", ["touch", "rewrite", "replace"])
    def test_any_change_makes_it_unverified(self, change: str, tmp_path: Path) -> None:
        path = self.place(tmp_path)
        if change == "touch":
            os.utime(path, (1, 1))
        elif change == "rewrite":
            path.write_bytes(b"abd")
        else:
            other = path.with_name("other")
            other.write_bytes(b"abc")
            facts = path.stat()
            os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            other.replace(path)
        assert self.look(tmp_path)["unverified"] == ["a.bin"]

    def test_another_size_is_wrong(self, tmp_path: Path) -> None:
        self.place(tmp_path)
        found = self.look(tmp_path, size=4)
        assert (found["wrong"], found["flaws"]) == (["a.bin"], {"a.bin": "3 bytes, not 4"})

    def test_a_pointer_in_place_of_a_file_is_called_so(self, tmp_path: Path) -> None:
        """What ``git clone`` without git-lfs leaves behind."""
        self.place(tmp_path).write_bytes(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n"
        )
        assert self.look(tmp_path)["flaws"] == {"a.bin": "a git LFS pointer in place of the file"}

    def test_another_hash_is_wrong(self, tmp_path: Path) -> None:
        self.place(tmp_path)
        found = self.look(tmp_path, sha256="t" * 64)
        assert (found["wrong"], found["flaws"]) == (["a.bin"], {"a.bin": "other bytes than published"})

    def test_size_alone_is_no_proof(self, tmp_path: Path) -> None:
        self.place(tmp_path, sha256=None)
        assert self.look(tmp_path)["unverified"] == ["a.bin"]

    def test_a_damaged_ledger_proves_nothing(self, tmp_path: Path) -> None:
        self.place(tmp_path)
        (tmp_path / "state" / "ledger" / "weights.json").write_text("{")
        assert self.look(tmp_path)["unverified"] == ["a.bin"]

    def test_through_the_links_of_a_hub_cache(self, tmp_path: Path) -> None:
        path = self.place(tmp_path)
        link = tmp_path / "w" / "link.bin"
        link.symlink_to(path)
        assert self.look(tmp_path, path="link.bin")["verified"] == 1


class TestUnknown:
    """What can't be read is an error of its own, never empty."""

    def test_one_bad_file_leaves_the_others(self, tmp_path: Path) -> None:
        good = tmp_path / "good"
        good.write_bytes(b"")
        answer = document(sections=["files"], files=[str(good), str(tmp_path)])
        assert list(answer["files"]) == [str(good)]
        assert "IsADirectoryError" in answer["errors"][f"files:{tmp_path}"]

    @pytest.mark.parametrize("content", [b"\0" * 4096, b"", b'{"at": 1'])
    def test_a_draft_of_the_guards_record_is_one_when_it_is_filled(
        self, tmp_path: Path, content: bytes
    ) -> None:
        """It may lie there for seconds after the kill; taken space or a half of a record are none."""
        (tmp_path / "trip.draft").write_bytes(content)
        answer = document(sections=["state"], state=str(tmp_path))
        assert (answer["state"], answer["errors"]) == ({}, {})
        (tmp_path / "trip.draft").write_bytes(b'{"at": 1}'.ljust(4096) + b"\n")
        assert document(sections=["state"], state=str(tmp_path))["state"] == {"trip.draft": {"at": 1}}

    def test_a_record_that_is_published_while_the_folder_is_read_is_seen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is in no list that was taken before, and its draft is gone, or empty again."""
        (tmp_path / "trip.draft").write_bytes(b'{"at": 1}')
        real = os.listdir

        def listdir(path: str) -> list[str]:
            names = real(path)
            if path == str(tmp_path) and "trip.json" not in names:
                (tmp_path / "trip.draft").rename(tmp_path / "trip.json")
            return names

        monkeypatch.setattr(probe.os, "listdir", listdir)
        answer = document(sections=["state"], state=str(tmp_path))
        assert (answer["state"], answer["errors"]) == ({"trip.json": {"at": 1}}, {})

    def test_a_damaged_state_file(self, tmp_path: Path) -> None:
        (tmp_path / "good.json").write_text("1")
        (tmp_path / "bad.json").write_text("{")
        answer = document(sections=["state"], state=str(tmp_path))
        assert answer["state"] == {"good.json": 1, "bad.json": None}

    @pytest.mark.parametrize(
        ("names", "foreign"),
        [
            (["other", "user-file.json"], ["other", "user-file.json"]),
            (["other", "cluster.json", "thesis.draft", "a.damaged"], ["a.damaged", "other", "thesis.draft"]),
            (["api_key", "key", "kernels", "ledger", "lease.json", ".lock", ".trip.json.draft"], []),
            (["api_key", "cache", "memguard.log", "memguard.pid", "plans"], []),  # a recipe's
            (["history.json.damaged-20261201T000000Z", "lost+found"], []),
        ],
    )
    def test_what_is_in_a_state_folder_and_is_somebodys(
        self, names: list[str], foreign: list[str], tmp_path: Path
    ) -> None:
        """What the spec names there is not."""
        for name in names:
            (tmp_path / name).touch()
        wanted = {"apart": "/elsewhere", "ours": [f"{tmp_path}/key", "kernels/x"]}
        for state in (tmp_path, tmp_path / "absent"):
            answer = document(sections=["ground"], state=str(state), ground=wanted)
            assert answer["ground"]["foreign"] == (foreign if state == tmp_path else [])
            assert answer["ground"]["owned"] == (state == tmp_path and "cluster.json" in names)

    def test_a_checkpoint_within_the_state_folder_is_seen_by_its_real_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "link").symlink_to(tmp_path / "state")
        real = str((tmp_path / "state" / "w").resolve())
        places = {"~/state/w": real, "~/link/w": real, "~/state-w": None, "~/w": None}
        for place, told in places.items():
            wanted = {"apart": place, "ours": []}
            answer = document(sections=["ground"], state=f"{tmp_path}/state", ground=wanted)
            assert answer["ground"]["apart"] == told

    def test_a_section_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(facts, "read_text", lambda _path: "nothing: here\n")
        answer = document(sections=["memory"])
        assert "memory" not in answer
        assert answer["errors"]["memory"]

    def test_no_docker(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        nowhere = wire.Engine(str(tmp_path / "no.sock"), 1)
        monkeypatch.setattr(engine.wire, "Engine", lambda timeout: nowhere)
        answer = document(sections=["docker"])
        assert "docker" not in answer
        assert "FileNotFoundError" in answer["errors"]["docker"]


class TestNetwork:
    """Against ip(8) and this process's own sockets."""

    def test_addresses_and_routes_are_those_of_ip(self) -> None:
        with network.Netlink() as netlink:
            found = netlink.addresses()
            route = netlink.route("127.0.0.1")
            none = netlink.route("2001:db8::1") if not _has_route("2001:db8::1") else None
        said = json.loads(subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True).stdout)
        expected = {
            entry["ifname"]: sorted(f"{a['local']}/{a['prefixlen']}" for a in entry["addr_info"])
            for entry in said
            if entry["addr_info"]
        }
        assert {name: sorted(addresses) for name, addresses in found.items()} == expected
        assert route == {"interface": "lo", "source": "127.0.0.1", "gateway": None}
        assert none is None

    @pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
    @pytest.mark.parametrize("way", ["diag", "proc"])
    def test_listeners(self, way: str, family: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if way == "proc":
            monkeypatch.setattr(network, "diag_listeners", _refuse)
        with socket.create_server((address, 0), family=family) as listener:
            port = listener.getsockname()[1]
            found = network.ports([port, 1])
        assert found["1"] == {"listening": False}
        assert found[str(port)]["listening"]
        assert found[str(port)]["addresses"] == [address]
        assert (found[str(port)]["uid"], found[str(port)]["pid"]) == (os.getuid(), os.getpid())
        assert found[str(port)]["cgroup"] == Path("/proc/self/cgroup").read_text().strip()


def _has_route(address: str) -> bool:
    return subprocess.run(["ip", "route", "get", address], capture_output=True).returncode == 0


def _refuse(_family: int) -> Iterator[network.Listener]:
    raise OSError("no sock_diag")


class TestEngine:
    """The Docker engine's answers, by a socket that gives them."""

    @contextmanager
    def speaking(self, folder: Path, answers: dict[str, tuple[int, bytes]]) -> Iterator[wire.Engine]:
        path = str(folder / "docker.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen()

            def serve() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection:
                        asked = connection.recv(1 << 16).split()[1].decode()
                        status, body = answers.get(asked, (404, b'{"message":"none"}'))
                        head = f"HTTP/1.0 {status} X\r\nApi-Version: 1.51\r\n"
                        head += "Server: Docker/28.1.0 (linux)\r\n\r\n"
                        connection.sendall(head.encode() + body)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            yield wire.Engine(path, 5)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def test_a_process_that_a_signal_has_stopped_is_known_by_its_state(self) -> None:
        """Docker calls its container running, and nobody knew which rank hangs."""
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                assert not engine.halted(process.pid)
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                assert engine.halted(process.pid)
                running = {"Status": "running", "Pid": process.pid}
                assert engine.container({"Id": "1", "Name": "/rank", "State": running})["halted"]
            finally:
                process.kill()
        assert not engine.halted(process.pid), "gone"
        assert not engine.halted(None)

    def test_containers_and_images(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        listed = [
            {"Id": "1", "Names": ["/ours"], "Labels": {"sparkop.cluster": "c"}},
            {"Id": "2", "Names": ["/foreign"], "Labels": {"sparkop.cluster": "d"}},
            {"Id": "3", "Names": ["/named"], "Labels": None},
            {"Id": "4", "Names": ["/broken"], "Labels": {"sparkop.cluster": "c"}},
        ]
        dead = {"Status": "exited", "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z", "OOMKilled": True}
        made = {"Status": "created", "ExitCode": 0, "StartedAt": "0001-01-01T00:00:00Z"}
        config = {"Image": "i", "Labels": {"a": "b"}, "Env": ["SECRET=1"]}
        answers = {
            "/containers/json?all=1": (200, json.dumps(listed).encode()),
            "/containers/1/json": (200, _json(Id="1", Name="/ours", Image="sha", State=dead, Config=config)),
            "/containers/3/json": (200, _json(Id="3", Name="/named", Image="sha", State=made, Config=config)),
            "/containers/4/json": (500, b'{"message":"disk on fire"}'),
            "/images/i/json": (200, _json(Id="sha", RepoDigests=None, Config=None, Size=5)),
        }
        with self.speaking(tmp_path, answers) as speaking:
            monkeypatch.setattr(engine.wire, "Engine", lambda timeout: speaking)
            errors: dict[str, str] = {}
            request = {"labels": ["sparkop.cluster=c"], "containers": ["named"], "images": ["i", "j"]}
            found = engine.read(request, 5, errors)
        assert (found["version"], found["api_version"]) == ("28.1.0", "1.51")
        assert [c["name"] for c in found["containers"]] == ["ours", "named"]
        ours, named = found["containers"]
        assert (ours["state"], ours["exit_code"], ours["oom_killed"]) == ("exited", 0, True)
        assert (named["state"], named["exit_code"], named["started_at"]) == ("created", None, None)
        assert found["images"] == {"i": {"id": "sha", "digests": [], "labels": {}, "size": 5}, "j": None}
        assert "disk on fire" in errors["docker:4"]
        assert "SECRET" not in json.dumps(found)

    @pytest.mark.parametrize(
        ("history", "wanted"),
        [
            (b'{"entries": [{"event": "pulled", "reference": "old"}, {"event": "ready"}, 3]}', ["i", "old"]),
            (b'{"entries": null}', ["i"]),
            (b"[", ["i"]),
            (None, ["i"]),
        ],
    )
    def test_what_was_pulled_is_looked_for_when_asked(
        self, history: bytes | None, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """destroy removes images of older specs too."""
        if history is not None:
            (tmp_path / "history.json").write_bytes(history)
        with self.speaking(tmp_path, {"/containers/json?all=1": (200, b"[]")}) as speaking:
            monkeypatch.setattr(engine.wire, "Engine", lambda timeout: speaking)
            asked = {"images": ["i"], "state": str(tmp_path)}
            found = [engine.read({**asked, **more}, 5, {})["images"] for more in ({"pulled": True}, {})]
        assert [list(each) for each in found] == [wanted, ["i"]]

    @pytest.mark.parametrize(
        ("log", "code", "said", "wanted"),
        [
            (b"all is well\n", 0, b"", {"log": None, "exec": None}),
            (LOST, 255, b"Failed to initialize NVML: Unknown Error\r\n", {"log": True, "exec": LOST_TEXT}),
            (LOST, 0, b"GPU 0: NVIDIA GB10\r\n", {"log": True, "exec": "ok"}),
            (LOST, 127, b"no such file", {"log": True, "exec": None}),
        ],
    )
    def test_lost_gpus(
        self,
        log: bytes,
        code: int,
        said: bytes,
        wanted: dict[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """nvidia-smi is started in a container only when its log gives a reason to."""
        framed = b"\2\0\0\0" + len(log).to_bytes(4, "big") + log
        answers = {
            "/containers/r0/logs?stdout=1&stderr=1&tail=200": (200, framed),
            "/containers/r0/exec": (201, _json(Id="e")),
            "/exec/e/start": (200, said),
            "/exec/e/json": (200, _json(ExitCode=code)),
        }
        if log != LOST:
            del answers["/containers/r0/exec"]
        with self.speaking(tmp_path, answers) as speaking:
            monkeypatch.setattr(gpus.wire, "Engine", lambda timeout: speaking)
            asked = {"containers": ["r0", "gone"], "always": False}
            found = document(sections=["lost_gpus"], lost_gpus=asked)
        assert found["errors"] == {}
        assert list(found["lost_gpus"]) == ["r0"]
        assert bool(found["lost_gpus"]["r0"]["log"]) is bool(wanted["log"])
        assert found["lost_gpus"]["r0"]["exec"] == wanted["exec"]


def test_a_file_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once when it is not as it was seen; else when it changes, when the time is over, or when whoever
    asked is gone: a watch that was killed must leave no program behind."""
    path, (reader, writer) = tmp_path / "trip.json", os.pipe()
    monkeypatch.setattr(probe.sys, "stdin", os.fdopen(reader))

    def asked(seen: Any, seconds: float) -> Any:
        wanted = {"path": "trip.json", "seen": seen, "seconds": seconds}
        return document(sections=["changed"], state=str(tmp_path), changed=wanted)["changed"]["stamp"]

    assert asked(None, 0.1) is None
    path.write_text("{}")
    seen = asked(None, 60)
    assert seen is not None
    assert asked(seen, 0.1) == seen
    threading.Timer(0.2, path.unlink).start()
    assert asked(seen, 60) is None
    os.close(writer)
    assert asked(None, 60) is None


def _json(**answer: Any) -> bytes:
    return json.dumps(answer).encode()


class TestGpu:
    """What nvidia-smi prints on a GB10 (recorded), and when it fails."""

    def say(self, folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def test_recorded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.say(
            tmp_path,
            'case "$1" in\n'
            '--query-gpu*) echo "NVIDIA GB10, 580.142, 3, 12.42, 36, [N/A]";;\n'
            '*) echo "601168, /home/user/Comfy,UI/bin/python, 1927";; esac',
            monkeypatch,
        )
        found = gpus.answer(gpus.ask(), 5)
        assert found["devices"] == [
            {
                "name": "NVIDIA GB10",
                "driver": "580.142",
                "utilization_percent": 3.0,
                "power_w": 12.42,
                "temperature_c": 36.0,
                "clock_mhz": None,
            }
        ]
        process = {"pid": 601168, "name": "/home/user/Comfy,UI/bin/python", "used_bytes": 1927 << 20}
        assert found["processes"] == [process]

    def test_failing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.say(tmp_path, "echo NVML: Unknown Error; exit 9", monkeypatch)
        answer = document(sections=["gpu"])
        assert "gpu" not in answer
        assert "Unknown Error" in answer["errors"]["gpu"]

    def test_absent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "FileNotFoundError" in document(sections=["gpu"])["errors"]["gpu"]


def test_disk_of_a_folder_that_is_still_to_be_made(tmp_path: Path) -> None:
    found = document(sections=["disk"], disk=[str(tmp_path / "a" / "b")])["disk"]
    assert found[str(tmp_path / "a" / "b")]["path"] == str(tmp_path)


def test_tools_are_found_where_a_login_without_sbin_would_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = facts.tools(["sh", "no-such-tool"])
    assert found["sh"] in ("/usr/bin/sh", "/bin/sh")
    assert found["no-such-tool"] is None


def _place(kind: str, path: Path) -> contextlib.AbstractContextManager[object]:
    """Put something there that is no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        listener = socket.socket(socket.AF_UNIX)
        here = Path.cwd()
        os.chdir(path.parent)  # its name may be too long for a socket
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)
        return listener
    return contextlib.nullcontext()


ODD = ("fifo", "socket", "link to a device")
CHECKPOINT = {"path": "a.bin", "size": 0, "sha256": "s" * 64}
READERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "files": ("s/plans/p.json", "files:plans/p.json", {"files": ["plans/p.json"]}),
    "contents": ("s/plans/p.json", "contents:plans/p.json", {"contents": ["plans/p.json"]}),
    "state": ("s/intent.json", "state:intent.json", {}),
    "log of the guard": ("s/memguard.log", "state:memguard.log", {}),
    "follower": ("s/logs.json", "follower", {"follower": True}),
    "library": ("l.so", "libraries:{}/l.so", {"libraries": ["{}/l.so"]}),
    "configuration": ("w/config.json", "headers", {"headers": "{}/w"}),
    "index": ("w/model.safetensors.index.json", "headers", {"headers": "{}/w"}),
    "tensors": ("w/a.safetensors", "headers", {"headers": "{}/w"}),
}
"""What is read -> its place, where the fault is told, and the request."""


def _in(folder: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in(folder, each) for key, each in value.items()}
    if isinstance(value, list):
        return [_in(folder, each) for each in value]
    return value.replace("{}", str(folder)) if isinstance(value, str) else value


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path, kind: str, reader: str) -> None:
    """A FIFO gave no byte for 30 s, and the node counted as one that does not answer."""
    place, told, request = READERS[reader]
    with _place(kind, tmp_path / place):
        found = _within(lambda: document(state=str(tmp_path / "s"), sections=None, **_in(tmp_path, request)))
    said = found["errors"][_in(tmp_path, told)]
    assert said.startswith("NotRegularError: Not a regular file: ")
    assert obstacle(said) is not None


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", ODD)
def test_weights_that_are_no_file_are_told_and_never_waited_for(
    tmp_path: Path, kind: str, deep: bool
) -> None:
    with _place(kind, tmp_path / "w" / "a.bin"), _place(kind, tmp_path / "s" / "ledger" / "weights.json"):
        found = _within(
            lambda: document(
                sections=["weights"],
                state=str(tmp_path / "s"),
                weights={"directory": str(tmp_path / "w"), "files": [CHECKPOINT]},
                deep=deep,
            )
        )
    assert found["weights"]["flaws"] == {"a.bin": "not a regular file"}


def _within(work: Callable[[], dict[str, Any]], seconds: float = 20.0) -> dict[str, Any]:
    """The answer; a failure when it does not come in time."""
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert answers, "it waits"
    return answers[0]
