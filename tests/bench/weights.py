"""`python -m tests.bench weights [--size MIB] [--rounds N]`: download, hash, second look, as ratios.

Against curl, aria2, huggingface_hub and openssl on the same machine in one run; the server is a process of
its own. Bars: with checksum at most 1.3 x curl uncapped and 0.25 x capped; at least 0.95 x
openssl a core and 1.9 x on two; a second look at 200 files in 5 ms. Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sparkop.node.transfer.files import File
from sparkop.node.transfer.hashing import hash_file
from sparkop.node.transfer.ledger import Ledger, agrees, read_json
from sparkop.resources.transfer_program import program
from tests.bench.rounds import Bar, measure, report
from tests.bench.weights_kill import lock_holder, report_again, sent_again, stopped
from tests.node.hub_standin import Hub, running, sha256

MIB = 1 << 20
CAP = 50_000_000
"""Bytes a second a connection, in the capped run."""


def serve(size: int, rate: int, pipe: Connection) -> None:
    """A hub with one large file, until the pipe is closed."""
    data = os.urandom(16 * MIB) * (size // (16 * MIB))
    hub = Hub("org/name", "c" * 40, {"model.bin": data}, xet=True)
    hub.faults.rate = rate
    with running(hub):
        pipe.send((hub.url, hub.base, hub.entry("model.bin")))
        while pipe.recv() == "sent":
            pipe.send(hub.sent)


class Server:
    """`serve` in a process of its own."""

    def __init__(self, size: int, rate: int = 0) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        self._process = multiprocessing.Process(target=serve, args=(size, rate, theirs), daemon=True)
        self._process.start()
        self.url, self.base, self.entry = ours.recv()

    def sent(self) -> int:
        """Bytes of files that went out so far."""
        self._pipe.send("sent")
        count: int = self._pipe.recv()
        return count

    def close(self) -> None:
        self._pipe.send("end")
        self._process.join()


class Folder:
    """An empty folder for each contestant's turn."""

    def __init__(self, top: Path) -> None:
        self.path = top / "turn"

    def fresh(self) -> Path:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        return self.path


def sparkop_start(folder: Path, server: Server) -> Path:
    """Start the packed program as a node does; returns its state folder."""
    state = folder / "state"
    (state / "transfer").mkdir(parents=True, exist_ok=True)
    path = state / "transfer" / "transfer.pyz"
    path.write_bytes(program())
    job = {
        "kind": "fetch",
        "directory": str(folder / "weights"),
        "files": [server.entry],
        "sources": [{"kind": "hub", "base": server.url}],
    }
    (state / "transfer.json").unlink(missing_ok=True)
    command = [sys.executable, "-I", "-S", str(path), "start", str(state)]
    subprocess.run(command, input=json.dumps(job).encode(), check=True, stdout=subprocess.DEVNULL)
    return state


def sparkop_download(folder: Path, server: Server) -> None:
    """Start it, and wait for its status file to say done."""
    wait_done(sparkop_start(folder, server))


def wait_done(state: Path) -> dict[str, Any]:
    while True:
        time.sleep(0.02)
        status: dict[str, Any] = read_json(str(state / "transfer.json"))
        if status.get("phase") in ("done", "failed", "cancelled"):
            if status["phase"] != "done":
                raise RuntimeError(str(status["error"]))
            return status


def aria2_command(folder: Path, server: Server) -> list[str]:
    options = ["-q", "-c", "-x8", "-s8", "-k1M", "--file-allocation=none", "-d", str(folder)]
    return ["aria2c", *options, "-o", "model.bin", server.url + "model.bin"]


def huggingface_command(folder: Path) -> list[str]:
    where = folder / "w"
    return [
        sys.executable,
        "-c",
        f"from huggingface_hub import *; snapshot_download('org/name', local_dir='{where}')",
    ]


def huggingface_environment(folder: Path, server: Server, *, xet: bool) -> dict[str, str]:
    return {
        **os.environ, "HF_ENDPOINT": server.base, "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "0" if xet else "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip


def has_aria2() -> bool:
    if shutil.which("aria2c") is None:
        print("aria2c is not installed: left out", file=sys.stderr)
        return False
    return True


def downloads(folder: Folder, size: int, rounds: int, *, rate: int = 0) -> bool:
    server = Server(size, rate)

    def curl() -> None:
        target = str(folder.fresh() / "model.bin")
        subprocess.run(["curl", "-sSfL", "-o", target, server.url + "model.bin"], check=True)

    def aria2() -> None:
        subprocess.run(aria2_command(folder.fresh(), server), check=True)

    def huggingface(*, xet: bool = False) -> None:
        where = folder.fresh()
        environment = huggingface_environment(where, server, xet=xet)
        subprocess.run(huggingface_command(where), check=True, env=environment)

    def ours() -> None:
        sparkop_download(folder.fresh(), server)

    contestants = {
        "curl": curl, "aria2 (8)": aria2, "huggingface_hub": huggingface,
        "huggingface_hub with hf_xet": lambda: huggingface(xet=True), "sparkop, checked": ours,
    }  # fmt: skip
    if not has_aria2():
        del contestants["aria2 (8)"]
    medians = measure(contestants, rounds)
    server.close()
    capped = f", {CAP // 10**6} MB/s a connection" if rate else ""
    bar = Bar("sparkop, checked", "curl", 0.25 if rate else 1.3)
    return report(f"download of {size // MIB} MiB{capped}", medians, [bar], size)


def killed_once(folder: Folder, size: int) -> bool:
    """Each contestant is killed in the middle and started again."""
    server = Server(size, CAP)
    where = folder.path

    def restarted(command: list[str], environment: dict[str, str] | None = None) -> int:
        folder.fresh()
        start = stopped(command, environment)
        return sent_again(server, size, start, lambda: subprocess.run(command, env=environment, check=True))

    def sparkop() -> int:
        folder.fresh()

        def start() -> Callable[[], None]:
            state = sparkop_start(where, server)
            return lambda: os.kill(lock_holder(state), signal.SIGKILL)

        return sent_again(server, size, start, lambda: sparkop_download(where, server))

    results = {
        name: restarted(huggingface_command(where), huggingface_environment(where, server, xet=xet))
        for name, xet in (("huggingface_hub", False), ("huggingface_hub with hf_xet", True))
    }
    if has_aria2():
        results["aria2 (8)"] = restarted(aria2_command(where, server))
    results["sparkop, checked"] = sparkop()
    server.close()
    return report_again(results, size)


def hashes(folder: Folder, size: int, rounds: int) -> bool:
    where = folder.fresh()
    files = []
    for name in ("a", "b"):
        with (where / name).open("wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
        files.append(where / name)
    wanted = File("a", size, "0" * 64)

    def warm() -> None:
        for path in files:
            with path.open("rb") as file:
                while file.read(8 * MIB):
                    pass

    def openssl() -> float:
        warm()
        started = time.perf_counter()
        subprocess.run(["openssl", "dgst", "-sha256", str(files[0])], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started

    def one() -> float:
        warm()
        started = time.perf_counter()
        hash_file(str(files[0]), wanted)
        return time.perf_counter() - started

    def two() -> float:
        warm()
        threads = [threading.Thread(target=hash_file, args=(str(path), wanted)) for path in files]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - started) / 2

    medians = measure({"openssl": openssl, "sparkop, one core": one, "sparkop, two, a file": two}, rounds)
    bars = [Bar("sparkop, one core", "openssl", 1 / 0.95), Bar("sparkop, two, a file", "openssl", 1 / 1.9)]
    return report(f"SHA-256 of {size // MIB} MiB from the page cache", medians, bars, size)


def second_look(folder: Folder) -> bool:
    where = folder.fresh()
    ledger = Ledger(str(where))
    files = []
    for number in range(200):
        path = where / f"{number}.bin"
        path.write_bytes(b"%d" % number)
        digest = sha256(b"%d" % number)
        ledger.record(str(path), path.stat(), {"sha256": digest})
        files.append((str(path), File(path.name, path.stat().st_size, digest)))

    def look() -> None:
        entries = ledger.snapshot()
        assert all(agrees(path, entries.get(os.path.realpath(path)), file) for path, file in files)

    medians = measure({"stat ledger": look, "the bar": lambda: 0.005}, 9)
    return report("second look at 200 verified files", medians, [Bar("stat ledger", "the bar", 1.0)])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench weights", description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="MiB to download")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to write; default the temporary folder"
    )
    options = parser.parse_args(argv)
    size = options.size * MIB
    with tempfile.TemporaryDirectory(dir=options.folder) as top:
        folder = Folder(Path(top))
        kept = [
            downloads(folder, size, options.rounds),
            downloads(folder, size // 4, options.rounds, rate=CAP),
            killed_once(folder, size // 4),
            hashes(folder, size // 4, options.rounds),
            second_look(folder),
        ]
    return 0 if all(kept) else 1
