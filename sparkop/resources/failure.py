"""Why a rank died: its last lines, and the likely cause by what they say. Pure.

The patterns are what vLLM, SGLang, NCCL and gloo print (recorded from real runs; see the comments).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from sparkop.hosts.document import Container
from sparkop.records import dataclass
from sparkop.resources.group import state_text

REBOOTED = "a reboot or a power cut ended what ran there"
"""Of a node that has another boot id than before."""
TAIL = 40
"""Lines of a rank's log that are shown."""
READ = 10 * TAIL
"""Lines that are read for them: what only repeats takes one of those that are shown."""
_REQUEST = re.compile(r'"(?:GET|POST) [^"]*"\s+[1-5]\d\d\b')
"""As uvicorn prints each request, with the asker's port and often the time before it."""


@dataclass(frozen=True)
class Pattern:
    """What a log line says, what it means, what to do."""

    expression: str
    """Compiled when a rank has died: a plan needs none of them."""
    cause: str
    remedy: str


PATTERNS = (
    # 64 MiB is Docker's default: "Insufficient space in /dev/shm ... 160 MiB required"
    Pattern(
        r"insufficient space in /dev/shm|no space left on device: '?/dev/shm|"
        r"bus error.*shared memory",
        "the container's /dev/shm is too small",
        "set engine.container.shm (for example 32 GiB), or engine.container.ipc: host",
    ),
    Pattern(
        r"unable to find address for|ifa != nullptr|no interface .* found|could not find any interface",
        "the network interface that the rank was given has no address on this node",
        "check the fabric addresses (sparkop status); set nodes[].fabric.interface if detection is wrong",
    ),
    Pattern(
        r"is less than desired gpu memory utilization|free memory on device .* on startup",
        "memory on the node is taken, so the asked share is not free",
        "end what holds memory there, or lower memory.gpuFraction",
    ),
    Pattern(
        r"cuda out of memory|torch\.OutOfMemoryError|NV_ERR_NO_MEMORY|cudaErrorMemoryAllocation|"
        r"no available memory for the cache blocks|"
        r"larger than the maximum number of tokens that can be stored",
        "the model and its caches do not fit into the memory that they may use",
        "lower memory.kvCache, the context length or the number of sequences",
    ),
    # The kernel fault of 7.0.0-1019-nvidia without kho=off
    Pattern(
        r"ibv_reg_mr\w* failed with error cannot allocate memory",
        "the kernel can't register memory for RDMA (memlock limit, or a kernel with the KHO fault)",
        "set engine.container.ulimits.memlock: -1; kernel 7.0.0-1019-nvidia needs kho=off at boot",
    ),
    Pattern(
        r"cannot find any model weights",
        "the repository holds no weight files (*.safetensors) at this revision, or none was selected",
        "see the files on the model's page, and correct weights.repository, weights.revision, "
        "weights.include or weights.exclude",
    ),
    Pattern(
        r"no such file or directory: '?[^ ']*(safetensors|\.json)|"
        r"safetensors.*(not found|incomplete|header)|"
        r"error while deserializing header|does not appear to have a file named",
        "a file of the checkpoint is missing or damaged",
        "sparkop diff shows which, and sparkop apply fetches it again; where nothing differs the repository "
        "has it so: correct weights.repository or weights.revision",
    ),
    Pattern(
        r"address already in use|errno 98",
        "a port that the rank needs is taken on the node",
        "find who holds it (sudo ss -ltnp), or change api.port or engine.rendezvousPort",
    ),
    Pattern(
        r"connection refused|connect\(\) timed out|timed out .*(rendezvous|TCPStore|master)|"
        r"the client socket has timed out|failed to connect to .*:\d+",
        "the rank could not reach the head at the rendezvous address",
        "check that the fabric lets the nodes reach each other (cable, firewall: sudo ufw status)",
    ),
    Pattern(
        r"connection reset by peer|connection closed by peer|remote process exited",
        "another rank went away first",
        "look at the other ranks' lines: the first one to die tells why",
    ),
    Pattern(
        r"unrecognized arguments?|invalid choice|error: argument --",
        "this engine does not know one of its arguments",
        "correct the engine section of the spec, or use the image that it was written for",
    ),
    Pattern(
        r"no kernel image is available|unsupported .*sm_?12\d|nvml unknown error|"
        r"cuda driver version is insufficient",
        "the image's kernels and the node's GPU or driver do not fit",
        "use an image built for SM121; for NVML errors recreate the container (sparkop apply)",
    ),
    Pattern(
        r"exit status 127|command not found|executable file not found",
        "the image lacks a program that the engine calls",
        "use the image that the spec was written for",
    ),
    Pattern(
        r"401 client error|gatedrepo|repository not found for url",
        "the rank asked the hub, although the weights lie on the node",
        "set engine.offline: true, or correct weights.path",
    ),
)


def last_lines(lines: Iterable[str]) -> list[str]:
    """The last ones, those that repeat one after another told once: an API that answers 503 to every question
    of ours hid all else."""
    runs = [list(run) for _, run in groupby(lines, key=_without_numbers)]
    told = [run[-1] if len(run) == 1 else f"{run[-1]} ({len(run)} times)" for run in runs]
    return told[-TAIL:]


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+", "0", line) if _REQUEST.search(line) else line


def likely_cause(container: Container | None, lines: list[str]) -> tuple[str, str] | None:
    """Cause and remedy; None when nothing is recognised. The kernel's word goes first."""
    if container is not None and container.oom_killed:
        return (
            "the kernel ended it because the node or the container was out of memory",
            "lower memory.kvCache or memory.gpuFraction",
        )
    text = "\n".join(lines)
    for pattern in PATTERNS:
        if re.search(pattern.expression, text, re.IGNORECASE):
            return pattern.cause, pattern.remedy
    if container is not None and container.exit_code == 137:
        return (
            "it was killed (docker kill, the memory guard); 137 alone does not mean out of memory",
            "sparkop status shows whether the guard fired",
        )
    return None


def headline(rank: str, container: Container | None) -> str:
    """``rank/1 exited (1)``."""
    return f"{rank} {state_text(container) if container is not None else 'is gone'}"
