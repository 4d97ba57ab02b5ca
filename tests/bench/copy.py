"""`python -m tests.bench copy [--size MIB] [--rounds N]`: a checked copy to a peer, as ratios.

Against rsync over ssh, an rsync daemon and a raw sendfile, on loopback, in one run; then download and copy
side by side against the slower of them alone. Bars: over ssh at least 1.7 x one default rsync; on a trusted
fabric without ssh at least 1.2 x the rsync daemon; together at most 1.15 x the slower alone. Needs sshd and
rsync. Exit code 1 when one is missed.

By default more is copied than Linux lets lie in the page cache unwritten (a fifth of the memory): less of it
measures memory. The source lies in memory (/dev/shm), as two nodes have two disks; the copy goes to the disk.

The bars are against rsync as it is by default: it says done while its bytes are in the page cache. Ours are
on the disk by then; rsync with ``--fsync``, where it has that, is shown beside it, without a bar.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkop.node.transfer.serve import send_file
from sparkop.resources.peers import PEER_STREAMS, SSH_STREAMS, ssh_command
from sparkop.resources.transfer_program import program
from tests.bench.rounds import Bar, Contestant, measure, report
from tests.bench.weights import Server, wait_done
from tests.node.hub_standin import sha256

MIB = 1 << 20


class Node:
    """Weights and state of one side; the packed program."""

    def __init__(self, folder: Path) -> None:
        self.weights = folder / "weights"
        self.state = folder / "state"
        (self.state / "transfer").mkdir(parents=True)
        self.weights.mkdir()
        self.program = self.state / "transfer" / "transfer.pyz"
        self.program.write_bytes(program())

    def call(self, command: str, request: dict[str, Any], home: Path | None = None) -> dict[str, Any]:
        words = [sys.executable, "-I", "-S", str(self.program), command, str(self.state)]
        environment = {**os.environ, **({"HOME": str(home)} if home else {})}
        done = subprocess.run(
            words, input=json.dumps(request).encode(), stdout=subprocess.PIPE, env=environment
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer

    def job(self, files: list[dict[str, Any]], sources: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"kind": "fetch", "directory": str(self.weights), "files": files, "sources": sources, **more}

    def fetch(self, job: dict[str, Any]) -> None:
        self.call("start", job)
        wait_done(self.state)

    def clear(self) -> None:
        shutil.rmtree(self.weights)
        self.weights.mkdir()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def sshd(folder: Path, keys: Path) -> Iterator[int]:
    """An sshd of our own on loopback; its port."""
    port = free_port()
    host_key = folder / "host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key)], check=True)
    settings = folder / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nAuthorizedKeysFile {keys}\n"
        f"PidFile {folder}/sshd.pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxStartups 64\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(settings)],
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_listening(port)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def rsync_daemon(folder: Path, weights: Path) -> Iterator[int]:
    port = free_port()
    settings = folder / "rsyncd.conf"
    settings.write_text(f"use chroot = no\n[weights]\npath = {weights}\nread only = yes\nuid = 0\ngid = 0\n")
    words = [
        "rsync",
        "--daemon",
        "--no-detach",
        f"--port={port}",
        "--address=127.0.0.1",
        f"--config={settings}",
    ]
    process = subprocess.Popen(words)
    try:
        wait_listening(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_listening(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port}")


def raw(source: Path, target: Path) -> None:
    """One sendfile to one receiver that writes: what this machine does with one stream, unchecked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            connection, _ = listener.accept()
            with connection, source.open("rb") as file:
                send_file(connection.fileno(), file.fileno(), 0, source.stat().st_size)

        thread = threading.Thread(target=send)
        thread.start()
        buffer = memoryview(bytearray(MIB))
        with (
            socket.create_connection(listener.getsockname()) as client,
            target.open("wb", buffering=0) as out,
        ):
            while count := client.recv_into(buffer):
                out.write(buffer[:count])
        thread.join()


def rsync_can_sync() -> bool:
    """This rsync knows ``--fsync`` (since 3.2.4)."""
    return "--fsync" in subprocess.run(["rsync", "--help"], capture_output=True, text=True).stdout


def copies(top: Path, memory: Path, size: int, rounds: int) -> bool:
    """``memory``: where the source lies. Two nodes have two disks, and here is one."""
    head, worker, home = Node(memory / "head"), Node(top / "worker"), top / "home"
    (home / ".ssh").mkdir(parents=True)
    data = os.urandom(16 * MIB) * (size // (16 * MIB))
    (head.weights / "model.bin").write_bytes(data)
    files = [{"path": "model.bin", "size": len(data), "sha256": sha256(data)}]
    del data
    head.fetch(head.job(files, []))  # hashes it, so that it is verified
    shared = head.call("share", {"directory": str(head.weights), "files": files, "address": "127.0.0.1"})
    public = worker.call("key", {"comment": "sparkop:bench:worker"})["public"]
    head.call("authorise", {"public": public}, home)
    plain = top / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(plain)], check=True)
    keys = home / ".ssh" / "authorized_keys"
    keys.write_text(keys.read_text() + (top / "id.pub").read_text())
    with sshd(top, keys) as port, rsync_daemon(top, head.weights) as daemon:
        known = worker.state / "transfer" / "known_hosts"
        known.write_text(f"bench {(top / 'host_key.pub').read_text()}")
        login = ssh_command(
            user=os.environ.get("USER", "root"), address="127.0.0.1", port=port,
            key=str(worker.state / "transfer" / "id_ed25519"), known_hosts=str(known), alias="bench",
        )  # fmt: skip
        shell = (
            f"ssh -F none -i {plain} -p {port} -o UserKnownHostsFile={known} -o HostKeyAlias=bench "
            "-o StrictHostKeyChecking=yes"
        )

        def rsync_ssh(*options: str) -> None:
            worker.clear()
            source = f"127.0.0.1:{head.weights}/"
            subprocess.run(["rsync", "-a", *options, "-e", shell, source, f"{worker.weights}/"], check=True)

        def rsync_plain(*options: str) -> None:
            worker.clear()
            source = f"rsync://127.0.0.1:{daemon}/weights/"
            subprocess.run(["rsync", "-a", *options, source, f"{worker.weights}/"], check=True)

        def sendfile() -> None:
            worker.clear()
            raw(head.weights / "model.bin", worker.weights / "model.bin")

        def over_ssh() -> None:
            worker.clear()
            worker.fetch(worker.job(files, [{"kind": "ssh", "command": login}], streams=SSH_STREAMS))

        def trusted() -> None:
            worker.clear()
            source = {"kind": "peer", "base": f"http://127.0.0.1:{shared['port']}/"}
            worker.fetch(worker.job(files, [source], streams=PEER_STREAMS, secrets={"peer": shared["token"]}))

        bars = [
            Bar("sparkop over ssh, checked", "rsync over ssh", 1 / 1.7),
            Bar("sparkop, trusted, checked", "rsync daemon", 1 / 1.2),
        ]
        contestants: dict[str, Contestant] = {
            "rsync over ssh": rsync_ssh,
            "rsync daemon": rsync_plain,
            "sendfile, unchecked": sendfile,
            "sparkop over ssh, checked": over_ssh,
            "sparkop, trusted, checked": trusted,
        }
        if rsync_can_sync():
            contestants["rsync over ssh, synced"] = lambda: rsync_ssh("--fsync")
            contestants["rsync daemon, synced"] = lambda: rsync_plain("--fsync")
            bars += [
                Bar("sparkop over ssh, checked", "rsync over ssh, synced", None),
                Bar("sparkop, trusted, checked", "rsync daemon, synced", None),
            ]
        medians = measure(contestants, rounds)
    head.call("unshare", {})
    return report(f"copy of {size // MIB} MiB to a peer", medians, bars, size)


def together(top: Path, size: int, rounds: int, rate: int) -> bool:
    """Download with copy at its side. ``rate``: bytes a second of each of eight connections to the hub."""
    server = Server(size, rate)
    head, worker = Node(top / "head2"), Node(top / "worker2")
    files = [{**server.entry}]
    shared = head.call("share", {"directory": str(head.weights), "files": files, "address": "127.0.0.1"})
    hub = head.job(files, [{"kind": "hub", "base": server.url}])
    peer = worker.job(
        files, [{"kind": "peer", "base": f"http://127.0.0.1:{shared['port']}/"}],
        streams=PEER_STREAMS, secrets={"peer": shared["token"]},
    )  # fmt: skip

    def download() -> None:
        head.clear()
        head.fetch(hub)

    def copy() -> None:
        worker.clear()
        worker.fetch(peer)

    def both() -> None:
        head.clear()
        worker.clear()
        head.call("start", hub)
        worker.call("start", peer)
        wait_done(head.state)
        wait_done(worker.state)

    medians = measure({"download": download, "copy": copy, "both at once": both}, rounds)
    head.call("unshare", {})
    server.close()
    medians["the slower alone"] = max(medians["download"], medians["copy"])
    return report(
        f"download and copy of {size // MIB} MiB",
        medians,
        [Bar("both at once", "the slower alone", 1.15)],
        size,
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench copy", description=__doc__)
    parser.add_argument("--size", type=int, default=6144, help="MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to write; default the temporary folder"
    )
    options = parser.parse_args(argv)
    size = options.size * MIB
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as top,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        kept = [
            copies(Path(top), Path(memory), size, options.rounds),
            together(Path(top), min(size, 1024 * MIB), options.rounds, rate=8_000_000),
        ]
    return 0 if all(kept) else 1
