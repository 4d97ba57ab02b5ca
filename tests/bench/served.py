"""`python -m tests.bench served --aiperf PROGRAM [SPEC]`: bench's figures beside those of aiperf.

Both measure the same answers of the lab's real vLLM: a tap on the head gives every piece to both at the same
moment, so what differs is the measuring and not the machine's mood. sparkop reads through SSH as always,
aiperf by TCP. The bar: time to the first token of long prompts, time between tokens and tokens a second of
each request agree within 5 %. Exit code 1 when one does not.

Needs the lab with the spec applied (`sparkop lab up`, `sparkop apply specs/lab.yaml`), and aiperf (0.13 was
used) in a virtual environment of its own: its requirements are not sparkop's.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkop.cli.options import reach_spec
from sparkop.engines.paths import key_path
from sparkop.hosts.base import ReadableHost
from sparkop.inside import inside
from sparkop.lab.enter import enter
from sparkop.lab.layout import lab_name
from sparkop.reconcile.nodes import readable_nodes
from sparkop.serving.api import Answer, Api, Limits
from sparkop.serving.figures import request_record, stream_rate
from sparkop.serving.prompts import real_text
from sparkop.spec.models import ClusterSpec

PORT = 8199
BAR = 0.05
LONG = 5000
"""Characters of a prompt from which its first token takes long against the tap's own milliseconds."""
TAP = Path(__file__).with_name("served_tap.py")


@contextmanager
def tapped(spec: ClusterSpec) -> Iterator[None]:
    """The tap, running on the head for as long as this lasts."""
    remote = spec.head.remote
    assert remote is not None, "the head is reached by ssh"
    target = f"{remote.user}@{remote.host}" if remote.user else remote.host
    program = shlex.quote(TAP.read_text(encoding="utf-8"))
    command = f"exec python3 -c {program} {PORT} {spec.api.port} {key_path(spec)}"
    with subprocess.Popen(
        ["ssh", target, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            running.stdin.close()
            running.wait(10)


def aiperf(
    program: str,
    spec: ClusterSpec,
    tokenizer: Path,
    folder: Path,
    texts: list[str],
    streams: int,
    tokens: int,
) -> list[dict[str, Any]]:
    """aiperf's records of the requests: milliseconds, tokens by the server's count."""
    (folder / "inputs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert spec.head.remote is not None
    command = [
        program, "profile", "-m", spec.api.served_names[0], "-u", f"http://{spec.head.remote.host}:{PORT}",
        "--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--tokenizer", str(tokenizer),
        "--input-file", str(folder / "inputs.jsonl"), "--custom-dataset-type", "single_turn",
        "--concurrency", str(streams), "--request-count", str(len(texts)),
        "--extra-inputs", "ignore_eos:true", "--extra-inputs", f"max_tokens:{tokens}",
        "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(folder / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = (folder / "out" / "profile_export.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def listen(head: ReadableHost, model: str, count: int, streams: int) -> list[Answer]:
    """The same answers by sparkop's own reader, until ``count`` have come."""
    api = Api(head, PORT, model)
    answers: list[Answer] = []
    tickets = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(tickets, None) is None:
                    return
            status, _ = api.get("/held", 400.0)
            assert status == 200
            answers.append(api.ask("/second", {"stream": True}, Limits(600.0)))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def side_by_side(
    options: argparse.Namespace,
    spec: ClusterSpec,
    head: ReadableHost,
    texts: list[str],
    streams: int,
    tokens: int,
) -> list[tuple[str, float, float]]:
    """Name, aiperf's median, sparkop's median of each figure."""
    with tempfile.TemporaryDirectory() as folder:
        answers: list[Answer] = []
        ours = threading.Thread(
            target=lambda: answers.extend(listen(head, spec.api.served_names[0], len(texts), streams)),
            daemon=True,
        )
        ours.start()
        theirs = aiperf(options.aiperf, spec, options.tokenizer, Path(folder), texts, streams, tokens)
        ours.join(60)
    assert len(answers) == len(theirs) == len(texts), (len(answers), len(theirs))
    records = [request_record(answer) for answer in answers]

    def of(name: str) -> float:
        return statistics.median(float(record[name]["value"]) for record in theirs)

    def ours_of(values: Iterable[float]) -> float:
        return statistics.median(values)

    counted = ours_of(r["prompt_tokens"] or 0 for r in records)
    figures = [("tokens of the prompt", of("usage_prompt_tokens"), counted)]
    if len(texts[0]) > LONG:
        first = ours_of(r["ttft"] * 1e3 for r in records)
        return [*figures, ("first token, ms", of("time_to_first_token"), first)]
    gaps = [(r["t_last"] - r["t_first"]) / (r["completion_tokens"] - 1) * 1e3 for r in records]
    rates = [stream_rate(r) or 0.0 for r in records]
    answered = ours_of(r["completion_tokens"] for r in records)
    return [
        *figures,
        ("tokens of an answer", of("output_sequence_length"), answered),
        ("between tokens, ms", of("inter_token_latency"), ours_of(gaps)),
        ("a stream, tok/s", of("output_token_throughput_per_user"), ours_of(rates)),
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench served", description=__doc__)
    parser.add_argument("spec", nargs="?", default="specs/lab.yaml")
    parser.add_argument("--aiperf", default="aiperf", help="the program")
    parser.add_argument("--tokenizer", type=Path, default=Path("images/lab-model"), help="of the model")
    parser.add_argument("--requests", type=int, default=4, help="of each kind")
    parser.add_argument("--tokens", type=int, default=150, help="of an answer")
    parser.add_argument("--characters", type=int, default=40_000, help="of a long prompt")
    options = parser.parse_args(argv)
    options.tokenizer = options.tokenizer.resolve()
    if shutil.which(options.aiperf) is None:
        print("no aiperf: install it into a virtual environment of its own, then --aiperf", file=sys.stderr)
        return 64
    if inside() is None:
        enter(lab_name(None), [sys.executable, "-m", "tests.bench", "served", *argv])
    loaded, _ = reach_spec(options.spec, (), ())
    source = random.Random(17)
    short = ["Write a long story about two computers."] * options.requests
    long = [real_text(options.characters, source) for _ in range(options.requests)]
    kept = True
    with readable_nodes(loaded.spec) as hosts, tapped(loaded.spec):
        head = hosts[loaded.spec.head.name]
        for title, texts, streams, tokens in (
            ("one stream", short, 1, options.tokens),
            ("two streams", short, 2, options.tokens),
            ("long prompts", long, 1, 16),
        ):
            print(f"\n{title:24} {'aiperf':>10} {'sparkop':>10}  ratio")
            for name, theirs, ours in side_by_side(options, loaded.spec, head, texts, streams, tokens):
                ratio = ours / theirs
                agreed = abs(ratio - 1) <= BAR
                kept = kept and agreed
                print(
                    f"  {name:22} {theirs:10.2f} {ours:10.2f}  {ratio:.3f} {'ok' if agreed else 'APART'}",
                    flush=True,
                )
    return 0 if kept else 1
