"""A real sshd on the loopback interface, with keys and client configuration of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparkop.hosts.connect import Target

INSTALL = "install openssh-server and openssh-client"


@dataclass
class Sshd:
    """A running server. Its client configuration knows it as ``node``."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def host_key(self) -> str:
        """Type and key, without comment."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    def target(self, name: str = "node") -> Target:
        return Target(name=name, host="node", config_file=str(self.config))

    def client(self, *lines: str) -> None:
        """Client settings that come before the usual ones (the first of each counts)."""
        usual = [
            "HostName 127.0.0.1",
            f"Port {self.port}",
            f"User {getpass.getuser()}",
            f"IdentityFile {self.folder}/key",
            "IdentityAgent none",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
        ]
        self.config.write_text("\n".join(["Host node", *lines, *usual]) + "\n")

    def know(self, key: str | None = None) -> None:
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key or self.host_key}\n")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@cache
def _keys(name: str) -> dict[str, bytes]:
    """A key pair, made once for all servers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        make_key(path)
        return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", ".pub")}


def make_key(path: Path, *options: str) -> None:
    keygen = shutil.which("ssh-keygen")
    assert keygen, INSTALL
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", *options, "-f", path], check=True)


@contextlib.contextmanager
def running_sshd(folder: Path, settings: Sequence[str] = ()) -> Iterator[Sshd]:
    """Start a server with extra sshd_config lines; end it, and all that it started, at the end."""
    program = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    assert program, INSTALL
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    for name in ("host_key", "key"):
        for suffix, content in _keys(name).items():
            (folder / f"{name}{suffix}").write_bytes(content)
            (folder / f"{name}{suffix}").chmod(0o600)
    (folder / "authorized_keys").write_bytes((folder / "key.pub").read_bytes())
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    lines = [
        *settings,
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "PidFile none",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UsePAM no",
        "UseDNS no",
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    log = (folder / "sshd.log").open("wb")
    with log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", folder / "sshd_config"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    server = Sshd(folder, port, process)
    try:
        wait_listening(server)
        server.client()
        server.know()
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def wait_listening(server: Sshd) -> None:
    end = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 1):
            return
        assert server.process.poll() is None, (server.folder / "sshd.log").read_text()
        assert time.monotonic() < end, "sshd does not listen"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
