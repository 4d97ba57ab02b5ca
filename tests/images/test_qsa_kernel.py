"""The QSA fallback kernel without a GPU: interpreted on the CPU, and compiled for SM121.

Needs torch, triton, numpy, pytest and hypothesis, and nothing of this project's own dependencies. What only a
GPU shows, speed and replays of a CUDA graph, `python -m tests.bench kernel` measures and checks.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from tests.images import qsa_interpreter  # noqa: F401  (must come before the kernel module)

# isort: split
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.images.qsa_reference import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    KERNEL_PATH,
    TOLERANCE,
    Case,
    attend,
    cases,
    error_against_fp64,
    load_kernel,
    poisoned_memory,
    prefix_sums,
)

qsa = load_kernel()

H200 = qsa.Device(sm_count=132, memory_bytes_per_second=4.8e12, shared_memory_bytes=232_448)
SM121_SHARED_BYTES = 101_376


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    with poisoned_memory():
        yield


def assert_matches_fp64(result: torch.Tensor, arguments: dict[str, Any]) -> None:
    assert result.shape == arguments["q"].shape
    assert result.dtype == arguments["q"].dtype
    assert result.is_contiguous()
    assert error_against_fp64(result, arguments) <= TOLERANCE[result.dtype]


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_matches_fp64_and_gives_zeros_where_there_are_no_keys(case: Case) -> None:
    arguments = case.arguments()
    assert_matches_fp64(attend(arguments, case.splits), arguments)


def test_the_public_call_is_the_one_that_the_backend_makes() -> None:
    """All by keyword, one tensor back."""
    arguments = Case("", (1, 1, 1), (300, 1, 0), heads=(24, 2)).arguments()
    assert_matches_fp64(qsa.qsa_varlen_attention(**{**arguments, "max_seqlen_k": 2051}), arguments)


def test_views_of_q_k_and_v_give_the_bits_of_their_copies() -> None:
    """q as a slice of a fused buffer, transposed, with gaps in between; k and v as halves of a buffer, and
    each laid out in its own way.
    """
    plain = Case("", (1,) * 4, (40, 9, 0, 33), heads=(4, 2), head_dim=48, dtype=FP16).arguments()
    expected = attend(plain, 2)
    q, k, v = plain["q"], plain["k"], plain["v"]
    fused = torch.full((6, 3 * 4 * 48), torch.nan, dtype=FP16)
    fused[:4, 192:384] = q.reshape(4, -1)
    gaps = torch.full((4, 4, 96), torch.nan, dtype=FP16)
    gaps[..., ::2] = q
    by_head = q.transpose(0, 1).contiguous().transpose(0, 1)
    for view in (fused[:4, 192:384].unflatten(1, (4, 48)), gaps[..., ::2], by_head):
        assert not view.is_contiguous()
        assert torch.equal(attend({**plain, "q": view}, 2), expected)
    both = torch.cat([k, v], dim=1)
    heads_first = k.transpose(0, 1).contiguous().transpose(0, 1)
    for k_view, v_view in ((both[:, :2], both[:, 2:]), (k, both[:, 2:]), (heads_first, v)):
        assert torch.equal(attend({**plain, "k": k_view, "v": v_view}, 2), expected)


def test_offsets_beyond_32_bits() -> None:
    """Packed rows so far apart that row * stride passes 2**31 elements: inside a block, from block to block,
    from sequence to sequence. Of the 6 GiB only a page for each row is touched.
    """
    stride = 3 * 2**24
    case = Case("", (1, 1), (66, 66), heads=(2, 1), head_dim=16, dtype=FP16, kv_dtype=E4M3)
    arguments = case.arguments()
    expected = attend(arguments, 1)
    torch.use_deterministic_algorithms(False)
    far = torch.empty(132 * stride, dtype=torch.uint8).view(E4M3)
    for name, offset in (("k", 0), ("v", 16)):
        view = far[offset:].as_strided((132, 1, 16), (stride, 16, 1))
        view.copy_(arguments[name][:132])
        arguments[name] = view
    assert torch.equal(attend(arguments, 1), expected)


def test_lengths_are_read_on_the_device_and_scratch_needs_no_clearing() -> None:
    """As in a graph replay: the prefix sums change in place, longer and shorter, to zero and back."""
    arguments = Case("", (1,) * 3, (64, 64, 64), head_dim=64, dtype=FP16).arguments()
    for key_counts in ([64, 64, 64], [1, 0, 100], [0, 0, 0], [190, 1, 1]):
        arguments["cu_seqlens_k"].copy_(prefix_sums(key_counts))
        assert_matches_fp64(attend(arguments, 3), arguments)


class _OnlyAllocates(TorchDispatchMode):
    """Fails on every torch operation but allocation: a copy to the host, a clear, a hidden contiguous()."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket in (torch.ops.aten.empty, torch.ops.aten.new_empty), f"{func} in a call"
        return func(*args, **(kwargs or {}))


class _Launches:
    """In the place of both kernels: notes grid and arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *_, **constants: self.seen.append((grid, constants))


def test_the_host_part_allocates_launches_and_does_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture-safe, and the launch is the same whatever the lengths on the device are."""
    launches = _Launches()
    monkeypatch.setattr(qsa, "_attend_split", launches)
    monkeypatch.setattr(qsa, "_merge_splits", launches)
    arguments = Case("", (1,) * 4, (2048, 7, 1, 0)).arguments()
    with _OnlyAllocates():
        qsa.qsa_varlen_attention(**arguments)
    first = launches.seen.copy()
    arguments["cu_seqlens_k"].zero_()
    with _OnlyAllocates():
        qsa.qsa_varlen_attention(**arguments)
    assert launches.seen[len(first) :] == first
    assert [grid for grid, _ in first] == [(4, 1, 12), (4, 12)]


def _in_a_buffer(rows: torch.Tensor, row_elements: int, first: int) -> torch.Tensor:
    """The same values, in rows of a wider buffer that begin `first` elements in."""
    buffer = torch.zeros(rows.shape[0] * row_elements + first, dtype=rows.dtype)
    view = buffer[first:].as_strided(rows.shape, (row_elements, rows.shape[2], 1))
    return view.copy_(rows)


@pytest.mark.parametrize(
    ("change", "warps"),
    [
        (lambda keys: keys, 4),
        (lambda keys: _in_a_buffer(keys, 512, 16), 4),
        (lambda keys: _in_a_buffer(keys, 512, 1), 8),
        (lambda keys: _in_a_buffer(keys, 260, 0), 8),
        (lambda keys: keys[..., :250], 8),
    ],
    ids=["the backend's", "part of a buffer", "odd start", "odd stride", "odd dimension"],
)
def test_keys_that_cannot_be_copied_straight_get_the_warps_that_do_not_spill(
    change: Callable[[torch.Tensor], torch.Tensor], warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler sees pointers and strides, not only the head dimension."""
    launches = _Launches()
    monkeypatch.setattr(qsa, "_attend_split", launches)
    arguments = Case("", (1,), (70,), splits=1).arguments()
    for name in ("k", "v"):
        changed = change(arguments[name])
        query = arguments["q"][..., : changed.shape[2]]
        attend({**arguments, "q": query, "k": changed, "v": changed}, 1)
        if changed.shape[2] == 256:
            attend({**arguments, name: changed}, 1)
    assert {constants["num_warps"] for _, constants in launches.seen} == {warps}


@pytest.mark.parametrize(("rows", "heads"), [(0, (12, 1)), (3, (0, 1))])
def test_nothing_to_do_gives_an_empty_tensor(rows: int, heads: tuple[int, int]) -> None:
    arguments = Case("", (1,) * rows, (5,) * rows, heads=heads).arguments()
    assert qsa.qsa_varlen_attention(**arguments).shape == (rows, heads[0], 256)


@st.composite
def fuzzed_cases(draw: st.DrawFn) -> Case:
    key_counts = draw(st.lists(st.integers(0, 100), min_size=1, max_size=3))
    single = draw(st.booleans())
    kv_heads = draw(st.integers(1, 2))
    return Case(
        "fuzzed",
        tuple(1 if single else draw(st.integers(0, 5)) for _ in key_counts),
        tuple(key_counts),
        heads=(kv_heads * draw(st.sampled_from([1, 3, 12, 17])), kv_heads),
        head_dim=draw(st.integers(1, 40)),
        dtype=draw(st.sampled_from([BF16, FP16])),
        kv_dtype=draw(st.sampled_from([None, E4M3, E5M2])),
        causal=draw(st.booleans()),
        softmax_scale=draw(st.sampled_from([0.02, 0.3, 1.0])),
        splits=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**20)),
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(fuzzed_cases(), st.booleans())
def test_fuzzed_calls_match_fp64(case: Case, transposed: bool) -> None:
    arguments = case.arguments()
    # Positive values do not cancel, so that a relative error means something for a single element too.
    arguments["v"] = arguments["v"].float().abs().to(arguments["v"].dtype)
    if transposed:
        arguments["q"] = arguments["q"].transpose(0, 2).contiguous().transpose(0, 2)
    assert_matches_fp64(attend(arguments, case.splits), arguments)


WRONG: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (TypeError, "q is", {"q": torch.zeros(2, 4, 32)}),
    (TypeError, "k is", {"k": torch.zeros(9, 2, 32, dtype=BF16), "v": torch.zeros(9, 2, 32, dtype=BF16)}),
    (TypeError, "v is", {"v": torch.zeros(9, 2, 32, dtype=E4M3)}),
    (TypeError, "int32", {"cu_seqlens_k": torch.tensor([0, 1, 2])}),
    (ValueError, "shapes", {"v": torch.zeros(8, 2, 32, dtype=FP16)}),
    (ValueError, "shapes", {"q": torch.zeros(2, 4, 16, dtype=FP16)}),
    (ValueError, "head dim", {name: torch.zeros(2, 2, 257, dtype=FP16) for name in "qkv"}),
    (ValueError, "multiple", {"q": torch.zeros(2, 3, 32, dtype=FP16)}),
    (ValueError, "contiguous", {"k": torch.zeros(9, 2, 64, dtype=FP16)[..., ::2]}),
    (ValueError, "cu_seqlens", {"cu_seqlens_q": torch.zeros(2, dtype=torch.int32)}),
    (ValueError, "contiguous", {"cu_seqlens_k": torch.zeros(6, dtype=torch.int32)[::2]}),
    (ValueError, "device", {"q": torch.zeros(2, 4, 32, dtype=FP16, device="meta")}),
]


@pytest.mark.parametrize(("error", "message", "change"), WRONG)
def test_what_the_kernel_cannot_do_is_refused(
    error: type[Exception], message: str, change: dict[str, Any]
) -> None:
    arguments = Case("", (1, 1), (1, 1), heads=(4, 2), head_dim=32, dtype=FP16).arguments()
    with pytest.raises(error, match=message):
        qsa.qsa_varlen_attention(**{**arguments, **change})


@pytest.mark.parametrize(
    ("device", "splits_by_tiles"),
    [
        # Two programs for each of 132 SMs; the measured optimum at every tile count of the benchmark.
        (H200, {1: 32, 2: 32, 4: 32, 8: 32, 16: 16, 32: 8, 56: 4, 112: 2, 224: 1, 1024: 1}),
        # One for each of 48: an SM's share of 273 GB/s is a sixth of what one program reads, and one fits in.
        (qsa.GB10, {1: 32, 2: 24, 4: 12, 8: 6, 16: 3, 24: 2, 48: 1, 64: 1, 112: 1}),
    ],
)
def test_split_choice_of_both_devices(device: Any, splits_by_tiles: dict[int, int]) -> None:
    assert {tiles: qsa.choose_splits(device, tiles, 2048) for tiles in splits_by_tiles} == splits_by_tiles
    assert qsa.choose_splits(device, 1, 2051) == 33, "the tail of three keys has a split of its own"


@given(
    st.sampled_from([H200, qsa.GB10, qsa.Device(1, 1e9, 48 * 1024)]),
    st.integers(0, 5000),
    st.integers(0, 1_000_000),
)
def test_splits_fit_the_device_and_the_keys(device: Any, tiles: int, max_seqlen_k: int) -> None:
    """Never none; never so many that programs wait for an SM, splits are empty, or the merge spills."""
    splits = qsa.choose_splits(device, tiles, max_seqlen_k)
    assert 1 <= splits <= qsa.MAX_SPLITS
    if splits > 1:
        resident = device.sm_count * max(1, device.shared_memory_bytes // qsa.PROGRAM_SHARED_BYTES)
        assert tiles * splits <= resident
        assert (splits - 1) * qsa.BLOCK_N < max_seqlen_k


def test_a_memory_clock_that_is_not_reported_counts_as_a_gb10s(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = {
        "multiprocessor_count": 48,
        "max_shared_mem": 101_376,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }
    utils = SimpleNamespace(get_device_properties=lambda index: reported)
    monkeypatch.setattr(qsa.triton.runtime, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    qsa.device_properties.cache_clear()
    assert qsa.device_properties(torch.device("cuda", 0)) == qsa.GB10
    qsa.device_properties.cache_clear()


def test_the_module_imports_torch_triton_and_the_standard_library_only() -> None:
    """The image gets this one file."""
    tree = ast.parse(KERNEL_PATH.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= {"torch", "triton", *sys.stdlib_module_names}


def test_all_variants_compile_for_sm121_within_shared_memory_and_without_spills() -> None:
    """The launch fails on a GB10 when a program asks for more; spills would be slow, silently."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    lines = subprocess.run(
        [sys.executable, "-m", "tests.images.qsa_compile_sm121"],
        cwd=KERNEL_PATH.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout.splitlines()
    programs = [json.loads(line) for line in lines]
    assert len(programs) > 20
    for program in programs:
        assert program["shared"] <= SM121_SHARED_BYTES, program
        assert (program["stack"], program["local"]) == (0, 0), program
    assert max(program["shared"] for program in programs) + 1024 == qsa.PROGRAM_SHARED_BYTES
    assert programs[0]["async_copies"] >= 32, "the main loop of the backend's shape is not pipelined"
