"""The QSA kernel's bar on an H200: `python -m tests.bench kernel [--json FILE]`.

Imports torch and triton only. Prints tables and a verdict on every part of the bar; exit code 1 if one is
missed. The bar, and where it comes from: docs/explanation/qsa-kernel.md.

A time is that of one call inside a CUDA graph of many, over inputs that rotate through more than 1 GB, so
that no call finds its keys in the cache: the median of replays, competitors in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from tests.images.qsa_reference import (
    TOLERANCE,
    Case,
    attend,
    cases,
    error_against_fp64,
    load_kernel,
    poisoned_memory,
    prefix_sums,
)

# ruff: noqa: N803  (compile-time constants are upper case in Triton)

qsa = load_kernel()

HEAD_DIM = 256
TOP_K, TAIL = 2048, 3
SOFTMAX_SCALE = HEAD_DIM**-0.5
HEADS = ((12, 1), (24, 2))
"""Query and KV heads of the model: on two nodes, and on one."""
ROWS = (1, 4, 16, 56, 112, 1024)
BUCKETS = (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Rows of the recipe's CUDA graphs: its batch sizes times four draft tokens."""
SPLIT_COUNTS = (1, 2, 4, 8, 16, 32)

FLASH_RATIO, FLASH_RATIO_FEW_ROWS, FEW_ROWS = 1.02, 0.80, 4
READ_FRACTION = {
    ((12, 1), 56): 0.60, ((12, 1), 112): 0.72, ((12, 1), 1024): 0.90,
    ((24, 2), 56): 0.70, ((24, 2), 112): 0.80, ((24, 2), 1024): 0.90,
}  # fmt: skip
PADDED = [TOP_K] * 4 + [1] * 108
PADDED_LIMIT_US = 40.0
UNSPLIT_SPEEDUP, UNSPLIT_ROWS = 6.0, 112

ROTATED_BYTES = 1.2e9
ROUNDS, REPLAYS = 3, 5

Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Inputs:
    """One call's tensors, and the competitors that take them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    max_seqlen_k: int

    def arguments(self) -> dict[str, Any]:
        return {**vars(self), "max_seqlen_q": 1, "softmax_scale": SOFTMAX_SCALE, "causal": True}

    def qsa(self) -> torch.Tensor:
        result: torch.Tensor = qsa.qsa_varlen_attention(**self.arguments())
        return result

    def flash_attention(self) -> torch.Tensor:
        """FlashAttention 2 as built into torch; takes grouped heads, and lengths on the device."""
        result: torch.Tensor = torch.ops.aten._flash_attention_forward(
            self.q, self.k, self.v, self.cu_seqlens_q, self.cu_seqlens_k, 1, self.max_seqlen_k, 0.0, True,
            False, scale=SOFTMAX_SCALE,
        )[0]  # fmt: skip
        return result

    def unsplit(self) -> torch.Tensor:
        """The structure that the kernel replaces."""
        out = torch.empty_like(self.q)
        _attend_unsplit[self.q.shape[:2]](
            self.q, self.k, self.v, self.cu_seqlens_k, out, SOFTMAX_SCALE,
            GROUP=self.q.shape[1] // self.k.shape[1], HEAD_DIM=HEAD_DIM, BLOCK_N=64,
        )  # fmt: skip
        return out


@triton.jit
def _attend_unsplit(
    q_ptr, k_ptr, v_ptr, cu_ptr, out_ptr, scale,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program per query head walks all keys: no split, and each head of a group reads them again."""
    row, head = tl.program_id(0), tl.program_id(1)
    heads = tl.num_programs(1)
    start, end = tl.load(cu_ptr + row), tl.load(cu_ptr + row + 1)
    dim = tl.arange(0, HEAD_DIM)
    query = tl.load(q_ptr + (row * heads + head) * HEAD_DIM + dim).to(tl.float32) * scale
    total, maximum = 0.0, -1.0e30
    accumulator = tl.zeros([HEAD_DIM], tl.float32)
    for first in range(start, end, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        offset = (key.to(tl.int64) * (heads // GROUP) + head // GROUP)[:, None] * HEAD_DIM + dim[None, :]
        exists = (key < end)[:, None]
        keys = tl.load(k_ptr + offset, mask=exists, other=0.0).to(tl.float32)
        scores = tl.where(key < end, tl.sum(keys * query[None, :], axis=1), -1.0e30)
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=0))
        weights = tl.exp(scores - new_maximum)
        rescale = tl.exp(maximum - new_maximum)
        values = tl.load(v_ptr + offset, mask=exists, other=0.0).to(tl.float32)
        accumulator = accumulator * rescale + tl.sum(weights[:, None] * values, axis=0)
        total, maximum = total * rescale + tl.sum(weights, axis=0), new_maximum
    result = (accumulator / total).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + (row * heads + head) * HEAD_DIM + dim, result)


@triton.jit
def _read(data_ptr, sums_ptr, steps, BLOCK: tl.constexpr):
    """Reads everything once and writes next to nothing."""
    offsets = tl.program_id(0).to(tl.int64) * steps * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        total += tl.load(data_ptr + offsets + step * BLOCK).to(tl.float32)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total, axis=0))


class Pool:
    """Random keys and values, many times the cache's size; calls take their inputs from it in turn."""

    def __init__(self) -> None:
        self.elements = 2 * 1024 * (TOP_K + TAIL) * 2 * HEAD_DIM
        generator = torch.Generator("cuda").manual_seed(14)

        def random(elements: int) -> torch.Tensor:
            return torch.randn(elements, generator=generator, dtype=torch.bfloat16, device="cuda")

        self.k, self.v = random(self.elements), random(self.elements)
        self.q = random(max(ROWS) * 24 * HEAD_DIM)

    def inputs(self, heads: tuple[int, int], key_counts: Sequence[int]) -> list[Inputs]:
        rows, tokens = len(key_counts), sum(key_counts)
        size = tokens * heads[1] * HEAD_DIM
        count = min(self.elements // size, max(2, round(ROTATED_BYTES / (4 * size))))
        q = self.q[: rows * heads[0] * HEAD_DIM].view(rows, heads[0], HEAD_DIM)
        cu_q, cu_k = prefix_sums([1] * rows).cuda(), prefix_sums(key_counts).cuda()

        def part(pool: torch.Tensor, index: int) -> torch.Tensor:
            return pool[index * size : (index + 1) * size].view(tokens, heads[1], HEAD_DIM)

        return [
            Inputs(q, part(self.k, index), part(self.v, index), cu_q, cu_k, max(key_counts))
            for index in range(count)
        ]


def captured(calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
    """All calls, one after the other, in one graph."""
    calls[0]()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def microseconds(competitors: dict[str, Sequence[Call]]) -> dict[str, float]:
    """Time of one call of each competitor."""
    graphs = {name: captured(calls) for name, calls in competitors.items()}
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            graph.replay()
            for _ in range(REPLAYS):
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                stop.record()
                stop.synchronize()
                samples[name].append(start.elapsed_time(stop) * 1e3 / len(competitors[name]))
    return {name: statistics.median(values) for name, values in samples.items()}


def read_limit(pool: Pool) -> float:
    """Bytes a second that a read-only stream through the pool's keys and values reaches."""
    block, steps = 8192, 16
    programs = pool.elements // (block * steps)
    sums = torch.empty(programs, device="cuda")

    def read(data: torch.Tensor) -> Call:
        def call() -> torch.Tensor:
            _read[(programs,)](data, sums, steps, BLOCK=block, num_warps=8)
            return sums

        return call

    time = microseconds({"read": [read(pool.k), read(pool.v)]})["read"]
    return 2.0 * programs * block * steps / (time * 1e-6)


@dataclass(frozen=True)
class Result:
    """One row of a table; times in microseconds."""

    table: str
    heads: tuple[int, int]
    rows: int
    keys: int
    splits: int
    ideal: float
    """Keys and values, read once at the read limit."""
    qsa: float
    flash_attention: float
    unsplit: float | None
    error: float
    """Relative, against fp64."""
    by_splits: dict[int, float] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        return f"{self.heads[0]}/{self.heads[1]} {self.rows} x {self.keys} {self.table}"


def measure(
    pool: Pool, table: str, heads: tuple[int, int], key_counts: Sequence[int], limit: float
) -> Result:
    sets = pool.inputs(heads, key_counts)
    rows = len(key_counts)
    competitors: dict[str, Sequence[Call]] = {
        "qsa": [one.qsa for one in sets],
        "flash_attention": [one.flash_attention for one in sets],
    }
    if table != "bucket" and rows <= UNSPLIT_ROWS:
        competitors["unsplit"] = [one.unsplit for one in sets]
    counts = SPLIT_COUNTS if table != "bucket" else ()
    for count in counts:
        competitors[str(count)] = [_with_splits(one, count) for one in sets]
    times = microseconds(competitors)
    return Result(
        table=table,
        heads=heads,
        rows=rows,
        keys=max(key_counts),
        splits=qsa.choose_splits(qsa.device_properties(sets[0].q.device), rows * heads[1], max(key_counts)),
        ideal=4.0 * sum(key_counts) * heads[1] * HEAD_DIM / limit * 1e6,
        qsa=times["qsa"],
        flash_attention=times["flash_attention"],
        unsplit=times.get("unsplit"),
        error=error_against_fp64(sets[0].qsa(), sets[0].arguments()),
        by_splits={count: times[str(count)] for count in counts},
    )


def _with_splits(inputs: Inputs, splits: int) -> Call:
    return lambda: attend(inputs.arguments(), splits)


def measure_all(pool: Pool, limit: float) -> Iterator[Result]:
    for heads in HEADS:
        for rows in ROWS:
            for keys in (TOP_K, TOP_K + TAIL):
                yield measure(pool, "table", heads, [keys] * rows, limit)
        yield measure(pool, "padded", heads, PADDED, limit)
        for rows in BUCKETS:
            yield measure(pool, "bucket", heads, [TOP_K + TAIL] * rows, limit)


def replays_differ(heads: tuple[int, int], rows: int) -> int:
    """For how many rewrites of cu_seqlens_k a replay's bits differ from a fresh eager call's, or are wrong.

    Behind the packed prefix everything is NaN, and so is the scratch before each replay.
    """
    generator = torch.Generator().manual_seed(rows)
    lengths = torch.randint(0, TOP_K + TAIL + 1, (4, rows), generator=generator).tolist()
    lengths += [[TOP_K + TAIL] * rows, [0] * rows, [TOP_K + TAIL, *[1] * (rows - 1)], [0, *[7] * (rows - 1)]]
    case = Case("replay", (1,) * rows, (TOP_K + TAIL,) * rows, heads=heads)
    arguments = case.arguments("cuda")
    keys, values = arguments["k"].clone(), arguments["v"].clone()
    call = Inputs(**{name: arguments[name] for name in Inputs.__dataclass_fields__}).qsa
    with poisoned_memory():
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
    wrong = 0
    for counts in lengths:
        arguments["cu_seqlens_k"].copy_(prefix_sums(counts))
        for name, whole in (("k", keys), ("v", values)):
            arguments[name].copy_(whole)[sum(counts) :] = torch.nan
        graph.replay()
        with poisoned_memory():
            fresh = call()
        same = torch.equal(result, fresh)
        wrong += not (same and error_against_fp64(result, arguments) <= TOLERANCE[result.dtype])
    return wrong


@dataclass(frozen=True)
class Verdict:
    rule: str
    about: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    for result in results:
        ratio = result.qsa / result.flash_attention
        few = result.rows <= FEW_ROWS
        yield Verdict(
            "time / FlashAttention", result.shape, ratio, FLASH_RATIO_FEW_ROWS if few else FLASH_RATIO
        )
        yield Verdict("relative error", result.shape, result.error, TOLERANCE[torch.bfloat16])
        if result.table == "table" and (result.heads, result.rows) in READ_FRACTION:
            bound = READ_FRACTION[result.heads, result.rows]
            yield Verdict("of the read limit", result.shape, result.ideal / result.qsa, bound, at_least=True)
        if result.table == "table" and result.unsplit is not None:
            speedup = result.unsplit / result.qsa
            yield Verdict("times the unsplit", result.shape, speedup, UNSPLIT_SPEEDUP, at_least=True)
        if result.table == "padded" and result.heads == HEADS[0]:
            yield Verdict("microseconds", result.shape, result.qsa, PADDED_LIMIT_US)
    for heads in HEADS:
        for rows in (4, 16, 112):
            about = f"{heads[0]}/{heads[1]} {rows} rows"
            yield Verdict("replays that differ from eager", about, replays_differ(heads, rows), 0)
    for case in cases():
        arguments = case.arguments("cuda")
        with poisoned_memory():
            attended = attend(arguments, case.splits)
        error = error_against_fp64(attended, arguments)
        yield Verdict("relative error", case.name, error, TOLERANCE[case.dtype])


def as_text(results: Sequence[Result]) -> str:
    lines = [
        f"{'heads, rows x keys':<28}{'splits':>6}{'ideal':>8}{'qsa':>8}{'of limit':>9}{'FA2':>8}"
        f"{'ratio':>6}{'unsplit':>8}{'error':>9}  us by split count"
    ]
    for one in results:
        unsplit = f"{one.unsplit:8.1f}" if one.unsplit is not None else " " * 8
        counts = "  ".join(f"{count}: {time:.1f}" for count, time in one.by_splits.items())
        lines.append(
            f"{one.shape:<28}{one.splits:6}{one.ideal:8.1f}{one.qsa:8.1f}{one.ideal / one.qsa:9.2f}"
            f"{one.flash_attention:8.1f}{one.qsa / one.flash_attention:6.2f}{unsplit}{one.error:9.1e}"
            f"  {counts}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench kernel")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args(arguments)
    pool = Pool()
    limit = read_limit(pool)
    device = qsa.device_properties(pool.q.device)
    print(f"{torch.cuda.get_device_name()}: {device}; read limit {limit / 1e12:.2f} TB/s")
    results = list(measure_all(pool, limit))
    print(as_text(results))
    judged = list(verdicts(results))
    for one in judged:
        relation = "at least" if one.at_least else "at most"
        mark = "PASS" if one.passed else "FAIL"
        print(f"{mark}  {one.about}: {one.rule} {one.value:.4g} ({relation} {one.bound})")
    missed = [one for one in judged if not one.passed]
    print(f"{len(judged) - len(missed)} of {len(judged)} parts of the bar met")
    if options.json:
        document = {
            "command": "python -m tests.bench kernel --json FILE",
            "gpu": torch.cuda.get_device_name(),
            "device": asdict(device),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "read_bytes_per_second": limit,
            "results": [asdict(one) for one in results],
            "verdicts": [{**asdict(one), "passed": one.passed} for one in judged],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if missed else 0
