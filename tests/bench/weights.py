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
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sparkop.node.transfer.files import File
from sparkop.node.transfer.hashing import hash_file
from sparkop.node.transfer.ledger import Ledger, agrees, read_json
from sparkop.resources.weights_program import program
from tests.bench.rounds import Bar, measure, report
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
        pipe.poll(None)


class Server:
    """`serve` in a process of its own."""

    def __init__(self, size: int, rate: int = 0) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        self._process = multiprocessing.Process(target=serve, args=(size, rate, theirs), daemon=True)
        self._process.start()
        self.url, self.base, self.entry = ours.recv()

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


def sparkop_download(folder: Path, server: Server) -> None:
    """Start the packed program as a node does, and wait for its status file to say done."""
    state = folder / "state"
    (state / "transfer").mkdir(parents=True)
    path = state / "transfer" / "transfer.pyz"
    path.write_bytes(program())
    job = {
        "kind": "fetch",
        "directory": str(folder / "weights"),
        "files": [server.entry],
        "sources": [{"kind": "hub", "base": server.url}],
    }
    command = [sys.executable, "-I", "-S", str(path), "start", str(state)]
    subprocess.run(command, input=json.dumps(job).encode(), check=True, stdout=subprocess.DEVNULL)
    wait_done(state)


def wait_done(state: Path) -> dict[str, Any]:
    while True:
        time.sleep(0.02)
        status: dict[str, Any] = read_json(str(state / "transfer.json"))
        if status.get("phase") in ("done", "failed", "cancelled"):
            if status["phase"] != "done":
                raise RuntimeError(str(status["error"]))
            return status


def downloads(folder: Folder, size: int, rounds: int, *, rate: int = 0) -> bool:
    server = Server(size, rate)
    url = server.url + "model.bin"

    def curl() -> None:
        target = str(folder.fresh() / "model.bin")
        subprocess.run(["curl", "-sSfL", "-o", target, url], check=True)

    def aria2() -> None:
        where = str(folder.fresh())
        options = ["-q", "-x8", "-s8", "-k1M", "--file-allocation=none", "-d", where, "-o", "model.bin"]
        subprocess.run(["aria2c", *options, url], check=True)

    def huggingface(*, xet: bool = False) -> None:
        where = folder.fresh()
        code = "from huggingface_hub import snapshot_download as d; d('org/name', local_dir='%s')" % (
            where / "w"
        )
        environment = {
            **os.environ, "HF_ENDPOINT": server.base, "HF_HOME": str(where / "hf"),
            "HF_HUB_DISABLE_XET": "0" if xet else "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    def ours() -> None:
        sparkop_download(folder.fresh(), server)

    contestants = {
        "curl": curl, "aria2 (8)": aria2, "huggingface_hub": huggingface,
        "huggingface_hub with hf_xet": lambda: huggingface(xet=True), "sparkop, checked": ours,
    }  # fmt: skip
    if shutil.which("aria2c") is None:
        print("aria2c is not installed: left out", file=sys.stderr)
        del contestants["aria2 (8)"]
    medians = measure(contestants, rounds)
    server.close()
    capped = f", {CAP // 10**6} MB/s a connection" if rate else ""
    bar = Bar("sparkop, checked", "curl", 0.25 if rate else 1.3)
    return report(f"download of {size // MIB} MiB{capped}", medians, [bar], size)


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
            hashes(folder, size // 4, options.rounds),
            second_look(folder),
        ]
    return 0 if all(kept) else 1
