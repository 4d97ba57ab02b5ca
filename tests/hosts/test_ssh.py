"""SSH hosts against a real sshd: connecting as ssh does, failures told apart, limits of servers."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparkop.errors import HostKeyError, UnreachableError
from sparkop.hosts.connect import Target, close_all, connect_all
from sparkop.hosts.ssh import SshHost
from sparkop.inside import INSIDE_VARIABLE
from tests.hosts.services import Api, running_api
from tests.hosts.sshd import Sshd, free_port, make_key

Start = Callable[[Sequence[str]], Sshd]
MEMORY = {"sections": ["memory"]}


@pytest.fixture
def host_of() -> Iterator[Callable[[Target], SshHost]]:
    """Makes hosts and closes them."""
    made: list[SshHost] = []

    def make(target: Target) -> SshHost:
        made.append(SshHost(target))
        return made[-1]

    yield make
    close_all(made)


def works(host: SshHost) -> bool:
    return bool(host.probe(MEMORY)["memory"]["total"])


def failure(host: SshHost) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        host.probe(MEMORY)
    assert caught.value.node == "node"
    return caught.value


class TestShells:
    """The remote command means the same in every login shell, and noise does not disturb it."""

    @pytest.mark.parametrize(
        "shell", ["sh -c", "dash -c", "bash -c", "zsh -c", "fish -c", "tcsh -c", "busybox sh -c"]
    )
    def test_login_shell(
        self, shell: str, start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        program = shell.split()[0]
        assert shutil.which(program), f"install {program}"
        settings = [f'ForceCommand exec {shell} "$SSH_ORIGINAL_COMMAND"', "AllowTcpForwarding no"]
        host = host_of(start_sshd(settings).target())
        assert works(host)
        assert host.http("GET", api, "/x").read() == b"/x None"

    def test_start_up_files_that_print(
        self, start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        noise = r'printf "Welcome\nsparkop 00 12\n{}"; echo oops >&2; eval "$SSH_ORIGINAL_COMMAND"; echo bye'
        host = host_of(start_sshd([f"ForceCommand {noise}", "AllowTcpForwarding no"]).target())
        assert works(host)
        assert host.http("GET", api, "/x").read() == b"/x None"

    def test_a_node_without_python_is_told(
        self, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        error = failure(host_of(start_sshd(["ForceCommand exec no-such-python3"]).target()))
        assert "python3" in (error.detail or "")

    @pytest.mark.parametrize(
        "noise",
        ["yes", "head -c 50000000 /dev/zero", r'printf "\nsparkop 00 99999999\n"; cat /dev/zero'],
        ids=["for ever", "and ends", "like an answer"],
    )
    def test_a_flood_is_no_answer_and_holds_nobody(
        self, noise: str, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        """Each part of it came in time, so that no wait ever ran out."""
        host = host_of(start_sshd([f"ForceCommand {noise}"]).target())
        error = failure(host)
        assert "more than 4 MiB that are no answer" in (error.cause or "")

    def test_a_trickle_ends_in_time(self, start_sshd: Start, host_of: Callable[[Target], SshHost]) -> None:
        trickle = "while :; do echo x; sleep 0.1; done"
        host = host_of(start_sshd([f"ForceCommand {trickle}"]).target())
        with pytest.raises(UnreachableError, match="does not answer") as caught:
            host.probe(MEMORY, timeout=1)
        assert caught.value.cause == "no answer in 1 s"

    def test_an_answer_that_is_larger_than_the_noise_comes_whole(
        self, tmp_path: Path, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        (tmp_path / "large").write_bytes(b"x" * (6 << 20))
        host = host_of(start_sshd([]).target())
        assert host.read_file(str(tmp_path / "large")) == b"x" * (6 << 20)

    @pytest.mark.parametrize("part", ["head -c 200", "sed s/sparkop/sparkop0/"], ids=["half", "foreign"])
    def test_an_answer_that_is_not_whole_or_not_ours(
        self, part: str, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        settings = [f'ForceCommand eval "$SSH_ORIGINAL_COMMAND" | {part}']
        with pytest.raises(UnreachableError):
            host_of(start_sshd(settings).target()).probe(MEMORY, timeout=2)


class TestHostKeys:
    """Unknown and changed keys are refused, and the remedy is the way to accept them."""

    def follow(self, error: UnreachableError) -> None:
        """Do as the remedy says."""
        assert error.remedy
        _, *commands = error.remedy.splitlines()
        for command in commands:
            subprocess.run(command, shell=True, check=True, capture_output=True)

    def test_unknown(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        sshd.known_hosts.write_text("")
        host = host_of(sshd.target())
        error = failure(host)
        assert isinstance(error, HostKeyError)
        assert "not known" in error.message
        key = subprocess.run(
            ["ssh-keygen", "-lf", sshd.folder / "host_key.pub"], capture_output=True, text=True, check=True
        )
        assert key.stdout.split()[1] in (error.cause or "")
        self.follow(error)
        assert works(host)

    def test_unknown_in_a_lab(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The user's shell is outside: neither the node nor the known_hosts that sparkop reads is there."""
        monkeypatch.setenv(INSIDE_VARIABLE, "mine:1")
        sshd.known_hosts.write_text("")
        remedy = str(failure(host_of(sshd.target())).remedy)
        assert "\nsparkop lab run -- sh -c 'ssh-keyscan " in remedy

    def test_changed(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        make_key(sshd.folder / "former")
        former = (sshd.folder / "former.pub").read_text().strip()
        sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {former}\nother {former}\n")
        host = host_of(sshd.target())
        error = failure(host)
        assert isinstance(error, HostKeyError)
        assert "changed" in error.message
        self.follow(error)
        assert works(host)
        assert "other" in sshd.known_hosts.read_text()

    def test_the_key_of_a_jump_host_is_told_as_its_own(
        self, sshd: Sshd, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        """It was told as the key of the node behind it."""
        sshd.known_hosts.write_text("")
        behind = start_sshd([])
        behind.client("ProxyJump bastion")
        bastion = sshd.config.read_text().replace("Host node", "Host bastion")
        behind.config.write_text(behind.config.read_text() + bastion)
        host = host_of(behind.target())
        error = failure(host)
        assert error.message == "The host key of bastion, a jump host of node, is not known."
        assert "If that is the jump host's key" in (error.remedy or "")
        self.follow(error)
        assert works(host)

    def test_revoked(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        with sshd.known_hosts.open("a") as stream:
            stream.write(f"@revoked * {sshd.host_key}\n")
        assert isinstance(failure(host_of(sshd.target())), HostKeyError)

    def test_hashed_names(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        subprocess.run(["ssh-keygen", "-H", "-f", sshd.known_hosts], check=True, capture_output=True)
        assert "127.0.0.1" not in sshd.known_hosts.read_text()
        assert works(host_of(sshd.target()))

    def test_the_users_own_wish_to_accept_new_keys(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        sshd.known_hosts.write_text("")
        sshd.client("StrictHostKeyChecking accept-new")
        assert works(host_of(sshd.target()))
        sshd.client()
        assert works(host_of(sshd.target()))  # it was noted

    def test_an_alias_is_the_name_of_the_key(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        sshd.known_hosts.write_text(f"my-spark {sshd.host_key}\n")
        sshd.client("HostKeyAlias my-spark")
        assert works(host_of(sshd.target()))


class TestKeysAndWays:
    """Keys, agents, jump hosts and proxies as the configuration says."""

    @pytest.fixture
    def agent(self, short_folder: Path) -> Iterator[Path]:
        path = short_folder / "agent"
        process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        yield path
        process.terminate()
        process.wait(10)

    def add(self, agent: Path, key: Path) -> None:
        environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
        subprocess.run(["ssh-add", key], check=True, capture_output=True, env=environment)

    def test_key_of_the_agent(self, agent: Path, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        self.add(agent, sshd.folder / "key")
        (sshd.folder / "key").unlink()
        sshd.client(f"IdentityAgent {agent}")
        assert works(host_of(sshd.target()))

    def test_only_the_agents_keys_that_are_named(
        self, agent: Path, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        self.add(agent, sshd.folder / "key")
        make_key(sshd.folder / "other")
        sshd.client(f"IdentityAgent {agent}", "IdentitiesOnly yes", f"IdentityFile {sshd.folder}/other")
        config = sshd.config.read_text().replace(f"IdentityFile {sshd.folder}/key\n", "")
        sshd.config.write_text(config)
        assert "permission denied" in (failure(host_of(sshd.target())).cause or "")

    def test_a_key_that_needs_its_passphrase(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        key = sshd.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True)
        error = failure(host_of(sshd.target()))
        assert "passphrase" in (error.cause or "")
        assert f"ssh-add {key}" in (error.remedy or "")

    def test_permission_denied(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        (sshd.folder / "authorized_keys").write_text("")
        error = failure(host_of(sshd.target()))
        assert f"permission denied for {getpass.getuser()}" in (error.cause or "")
        assert "ssh-copy-id" in (error.remedy or "")
        assert f"{sshd.folder}/key" in (error.detail or "")

    @pytest.mark.parametrize("way", ["jump", "command"])
    def test_through_another_host(
        self, way: str, sshd: Sshd, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        behind = start_sshd(['ForceCommand echo behind >&2; eval "$SSH_ORIGINAL_COMMAND"'])
        ways = {
            "jump": "ProxyJump bastion",
            "command": f"ProxyCommand ssh -F {behind.config} -W %h:%p bastion",
        }
        behind.client(ways[way])
        bastion = sshd.config.read_text().replace("Host node", "Host bastion")
        behind.config.write_text(behind.config.read_text() + bastion)
        assert works(host_of(behind.target()))
        sshd.stop()
        assert failure(host_of(behind.target())).cause

    def test_user_port_and_key_of_the_spec_come_first(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        key = sshd.folder / "key"
        sshd.config.write_text(f"Host *\nUser nobody\nPort 1\nUserKnownHostsFile {sshd.known_hosts}\n")
        there = Target(
            "node", "127.0.0.1", getpass.getuser(), sshd.port, str(key), config_file=str(sshd.config)
        )
        assert works(host_of(there))


class TestFailures:
    """Told apart, in seconds."""

    def test_refused(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        sshd.stop()
        assert "refused" in (failure(host_of(sshd.target())).cause or "")

    def test_unknown_name(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        there = Target("node", "no-such-host.invalid", config_file=str(sshd.config))
        assert "does not resolve" in (failure(host_of(there)).cause or "")

    def test_a_hung_host_accepts_and_says_nothing(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            sshd.client("ConnectTimeout 1", f"Port {silent.getsockname()[1]}")
            begin = time.monotonic()
            error = failure(host_of(sshd.target()))
        assert "says nothing: the node may hang" in (error.cause or "")
        assert (error.remedy or "").startswith("Look at"), "a step, no cause"
        assert time.monotonic() - begin < 5

    def test_a_host_that_hangs_up_at_once(self, sshd: Sshd, host_of: Callable[[Target], SshHost]) -> None:
        """One that boots, or whose sshd has too many: it says nothing, but it does not hang."""
        with socket.create_server(("127.0.0.1", 0)) as hasty, ThreadPoolExecutor() as beside:
            beside.submit(lambda: hasty.accept()[0].close())
            sshd.client(f"Port {hasty.getsockname()[1]}")
            error = failure(host_of(sshd.target()))
        assert "closes the connection at once" in (error.cause or "")

    def test_a_program_that_does_not_end(
        self, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(start_sshd(["ForceCommand sleep 30"]).target())
        begin = time.monotonic()
        with pytest.raises(UnreachableError, match="does not answer"):
            host.probe(MEMORY, timeout=1)
        assert time.monotonic() - begin < 5

    def test_a_broken_connection_is_opened_again(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(sshd.target())
        assert works(host)
        kill_sessions(sshd)
        end = time.monotonic() + 10
        while host._links[0].alive:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert works(host)

    def test_a_warm_program_reads_anew_and_threads_share_the_host(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost], short_folder: Path
    ) -> None:
        host = host_of(sshd.target())
        file = short_folder / "file"

        def size() -> int:
            return int(host.probe({"sections": ["files"], "files": [str(file)]})["files"][str(file)]["size"])

        for length in range(3):
            file.write_bytes(b"x" * length)
            assert size() == length
        assert len(host._idle) == 1
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: size(), range(24))) == {2}
        assert len(host._idle) == 1  # the others ended

    def test_a_warm_program_that_was_killed_is_started_again(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(sshd.target())
        assert works(host)
        host._idle["probe"].close()
        assert works(host)

    def test_a_dead_peer_is_noticed_by_the_kernel(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(sshd.target())
        host.open()
        sock = host._links[0].transport.sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 10_000


class TestLimits:
    """Servers that forbid or limit."""

    def test_one_session_at_a_time(self, start_sshd: Start, host_of: Callable[[Target], SshHost]) -> None:
        host = host_of(start_sshd(["MaxSessions 1"]).target())
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(lambda _: works(host), range(12)))
        assert len(host._links) <= 4

    def test_a_held_stream_does_not_starve_programs(
        self, start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(start_sshd(["MaxSessions 1", "AllowTcpForwarding no"]).target())
        answer = host.http("POST", api, "/", body=b"x")
        lines = answer.lines()
        assert next(lines) == b"first x"
        assert works(host)
        Api.released.set()
        assert list(lines) == [b"second", b"last"]

    def test_programs_that_wait_make_room(
        self, start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        """Warm programs take sessions; where these are few, streams come first."""
        host = host_of(start_sshd(["MaxSessions 1", "AllowTcpForwarding no"]).target())
        for _ in range(3):
            assert works(host)
            assert host.http("GET", api, "/x").read() == b"/x None"
        assert len(host._links) <= 2

    @pytest.mark.parametrize("settings", [[], ["AllowTcpForwarding no"]], ids=["forwarded", "relayed"])
    def test_lines_arrive_as_they_are_sent(
        self, settings: list[str], start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(start_sshd(settings).target())
        lines = host.http("POST", api, "/", body=b"x").lines()
        assert next(lines) == b"first x"
        assert next(lines) == b"second"
        assert not Api.released.is_set()  # the last line was not sent yet
        Api.released.set()
        assert list(lines) == [b"last"]

    @pytest.mark.parametrize("settings", [[], ["AllowTcpForwarding no"]], ids=["forwarded", "relayed"])
    def test_a_stream_that_falls_silent_ends_in_time(
        self, settings: list[str], start_sshd: Start, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(start_sshd(settings).target())
        lines = host.http("POST", api, "/", body=b"x", timeout=4).lines()
        begin = time.monotonic()
        with pytest.raises(OSError, match="nothing more"):
            list(lines)
        assert time.monotonic() - begin < 10

    @pytest.mark.parametrize("settings", [[], ["AllowTcpForwarding no"]], ids=["forwarded", "relayed"])
    def test_a_service_that_listens_on_one_address(
        self, settings: list[str], start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        """``api.bind: 10.0.0.7``: on the node's loopback nothing answers then."""
        host = host_of(start_sshd(settings).target())
        with running_api("127.0.0.2") as port:
            assert host.http("GET", port, "/x", address="127.0.0.2").read() == b"/x None"
            with pytest.raises(ConnectionError):
                host.http("GET", port, "/x")

    def test_nothing_listens_behind_a_relay(
        self, start_sshd: Start, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(start_sshd(["AllowTcpForwarding no"]).target())
        with pytest.raises(ConnectionRefusedError):
            host.http("GET", free_port(), "/")

    def test_closing_ends_every_stream(
        self, sshd: Sshd, api: int, host_of: Callable[[Target], SshHost]
    ) -> None:
        host = host_of(sshd.target())
        lines = host.http("POST", api, "/", body=b"x").lines()
        next(lines)
        timer = threading.Timer(0.3, host.close)
        timer.start()
        with pytest.raises(OSError, match="is lost"):
            list(lines)
        timer.join()

    def test_a_lost_connection_is_no_end_of_a_stream(
        self, sshd: Sshd, host_of: Callable[[Target], SshHost]
    ) -> None:
        """``logs -f`` ended with 0 and without a word when its node lost power."""
        host = host_of(sshd.target())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ended = host.dial_port(listener.getsockname()[1], 5)
            listener.accept()[0].close()
            assert ended.makefile("rb").read() == b""
            lost = host.dial_port(listener.getsockname()[1], 5)
            with listener.accept()[0]:
                kill_sessions(sshd)
                with pytest.raises(ConnectionResetError, match="is lost"):
                    lost.makefile("rb").read()


def test_a_host_for_reading_has_nothing_that_writes(sshd: Sshd) -> None:
    """``diff`` gets these: structurally unable to write."""
    target = sshd.target()
    host: Any = connect_all([target], writable=False)[target.name]
    public = {name for name in dir(host) if not name.startswith("_")}
    assert public == {"name", "probe", "http", "read_file", "log_lines", "close"}
    assert not re.search("SshHost", repr(vars(host).keys()))


def kill_sessions(sshd: Sshd) -> None:
    """End the server's processes of open connections, as a reboot would."""
    children = Path(f"/proc/{sshd.process.pid}/task/{sshd.process.pid}/children")
    found = children.read_text().split() if children.exists() else children_of(sshd.process.pid)
    for pid in found:
        os.kill(int(pid), signal.SIGKILL)


def children_of(parent: int) -> list[str]:
    """By /proc, for kernels without the list of children."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(status.parent.name)
    return found
