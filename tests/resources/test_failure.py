"""What a dead rank's last lines mean: the lines are recorded ones, or quoted from reports."""

from __future__ import annotations

import pytest

from sparkop.hosts.document import Container
from sparkop.resources.failure import TAIL, last_lines, likely_cause


def container(code: int = 1, *, oom: bool = False) -> Container:
    return Container(
        id="x", name="x-r0", image="i", image_id="j", state="exited", exit_code=code, oom_killed=oom
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("RuntimeError: Insufficient space in /dev/shm: 160 MiB required", "/dev/shm"),
        (
            "[enforce fail at ../gloo/transport/tcp/device.cc:84] ifa != nullptr. "
            "Unable to find address for: enp1s0f1np1",
            "no address",
        ),
        (
            "ValueError: Free memory on device cuda:0 (36.75/121.63 GiB) on startup is less than desired GPU "
            "memory utilization (0.85, 103.38 GiB).",
            "memory on the node is taken",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "do not fit"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "RDMA"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/model/model-00005-of-00006.safetensors'",
            "missing or damaged",
        ),
        ("SafetensorError: Error while deserializing header: incomplete metadata", "missing or damaged"),
        (
            "RuntimeError: Cannot find any model weights with `/model`",
            "holds no weight files (*.safetensors)",
        ),
        ("OSError: [Errno 98] Address already in use", "port"),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying "
            "to connect to (10.77.0.1, 29501).",
            "rendezvous",
        ),
        ("RuntimeError: [../gloo/transport/tcp/pair.cc] Connection reset by peer", "another rank"),
        ("vllm: error: unrecognized arguments: --swa-block-size 128", "argument"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "kernels"),
        (
            "subprocess.CalledProcessError: Command 'lscpu' returned non-zero exit status 127.",
            "lacks a program",
        ),
    ],
)
def test_known_lines_name_the_cause_and_a_remedy(line: str, says: str) -> None:
    """The user reads the cause instead of forty lines."""
    found = likely_cause(container(), ["INFO loading", line, "Traceback ends"])
    assert found is not None
    assert says in found[0]
    assert found[1]


def test_a_repository_without_weights_is_not_fetched_again() -> None:
    """All of it was verified: the same files would come."""
    found = likely_cause(None, ["RuntimeError: Cannot find any model weights with `/model`"])
    assert found is not None
    assert "correct weights.repository, weights.revision" in found[1]
    assert "fetch" not in found[1]


def test_the_kernels_word_goes_first() -> None:
    """An OOM kill explains whatever the log says."""
    found = likely_cause(container(137, oom=True), ["Address already in use"])
    assert found is not None
    assert "out of memory" in found[0]


def test_137_alone_is_not_taken_for_out_of_memory() -> None:
    """A false alarm that peers had."""
    found = likely_cause(container(137), ["INFO loading"])
    assert found is not None
    assert found[0].startswith("it was killed")
    assert "does not mean out of memory" in found[0]


@pytest.mark.parametrize(
    "line",
    [
        "INFO: No available shared memory broadcast block found in 60 seconds",
        "INFO 11-30 Loading safetensors checkpoint shards:  50% Completed | 3/6",
        'INFO: 127.0.0.1 - "POST /v1/chat/completions HTTP/1.1" 200',
    ],
)
def test_ordinary_lines_mean_nothing(line: str) -> None:
    """The poll for a broadcast block is no proof of a hang; progress is no missing file."""
    assert likely_cause(container(0), [line]) is None


def test_requests_that_repeat_take_one_of_the_lines_that_are_shown() -> None:
    """Forty times the same answer to sparkop's own question were all that was shown."""
    asked = [
        f'INFO:     127.0.0.1:{port} - "POST /v1/chat/completions HTTP/1.1" 503 Service Unavailable'
        for port in range(40_000, 40_100)
    ]
    lines = [f"Loading shard {number}/50" for number in range(50)]
    shown = last_lines([*lines, *asked, "still loading", "still loading"])
    assert len(shown) == TAIL
    assert shown[-2:] == [f"{asked[-1]} (100 times)", "still loading (2 times)"]
    assert shown[-3] == lines[-1], "progress is no repetition"
