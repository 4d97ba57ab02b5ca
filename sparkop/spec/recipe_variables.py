"""Every variable of both recipes: the spec field that it became, or why it has none."""

from __future__ import annotations

from enum import StrEnum

from sparkop.records import dataclass


class Recipe(StrEnum):
    """The two recipes, by the spec that replaces each."""

    A = "deepseek-v4.1-flash"
    B = "qwen3.8-flash-next"


class Form(StrEnum):
    """How a variable's text becomes a value of the spec."""

    TEXT = "text"
    PATH = "path"
    INTEGER = "integer"
    NUMBER = "number"
    BYTES = "bytes"
    """A number of bytes."""
    GIB = "gib"
    """A number of GiB."""
    MINUTES = "minutes"
    SWITCH = "switch"
    """1 or 0."""
    WORDS = "words"
    """Split at blanks, without quotes."""
    SHELL_WORDS = "shell words"
    """Split as a shell does."""
    COMMAS = "commas"
    NUMBERS = "numbers"
    """Whole numbers between blanks, commas or brackets."""
    ONE_NAME = "one name"
    """A list of one."""
    DOWNLOAD = "download"
    """rsync or direct."""
    FLAG = "flag"
    """Has an effect of its own, or together with others."""


_HUB_LOGIN = "a secret: export it when you run apply or download, or log in with hf; sparkop never stores it"
SPACE_WITH_PARTS = "680GB"
"""What recipe A asks for when parts and the shards made of them lie side by side."""
HEAD, WORKER = "nodes[0]", "nodes[1]"


@dataclass(frozen=True)
class Variable:
    """One variable. Either ``field`` or ``reason`` is set; with both, the reason explains a special case."""

    name: str
    field: str | None = None
    """Path in the spec; ``nodes[0]`` is the head, ``nodes[1]`` the worker."""
    form: Form = Form.TEXT
    reason: str | None = None
    empty_counts: bool = False
    """An empty value means something of its own; else it counts as not set."""


A = (
    Variable("WORKER", f"{WORKER}.ssh"),
    Variable("MODEL_DIR", "weights.path", Form.PATH),
    Variable("WORKER_MODEL_DIR", f"{WORKER}.paths.weights", Form.PATH),
    Variable("STATE_DIR", "stateDirectory", Form.PATH),
    Variable("HEAD_IP", f"{HEAD}.fabric.address"),
    Variable("WORKER_IP", f"{WORKER}.fabric.address"),
    Variable("HEAD_IFNAME", f"{HEAD}.fabric.interface"),
    Variable("WORKER_IFNAME", f"{WORKER}.fabric.interface"),
    Variable("HEAD_HCAS", f"{HEAD}.fabric.hcas", Form.COMMAS),
    Variable("WORKER_HCAS", f"{WORKER}.fabric.hcas", Form.COMMAS),
    Variable("PORT", "api.port", Form.INTEGER),
    Variable("MPORT", "engine.rendezvousPort", Form.INTEGER),
    Variable("IMG", "image.reference"),
    Variable("PLAN_NAME", "engine.exl3.plan"),
    Variable("API_KEY_FILE", "api.keyFile", Form.PATH),
    Variable("MEMGUARD_GIB", "memory.guard.actionFloor", Form.GIB),
    Variable("KV_BYTES", "memory.kvCache", Form.BYTES),
    Variable("MAX_LEN", "engine.context", Form.INTEGER),
    Variable("MAX_SEQS", "engine.maxSequences", Form.INTEGER),
    Variable("NSPEC", "engine.speculative.draftTokens", Form.INTEGER),
    Variable("BATCH", "engine.maxBatchedTokens", Form.INTEGER),
    Variable("GPU_UTIL", "memory.gpuFraction", Form.NUMBER),
    Variable("GRAPH_MODE", "engine.graphs.mode"),
    Variable("CAPS", "engine.graphs.sizes", Form.NUMBERS),
    Variable("EXTRA", "engine.headExtraArgs", Form.SHELL_WORDS),
    Variable("REVISION", "weights.revision"),
    Variable(
        "KEEP_PARTS",
        "weights.keepParts",
        Form.SWITCH,
        f"1 also raises weights.freeSpace to {SPACE_WITH_PARTS}: the parts stay beside their shards",
    ),
    Variable("KEY_ENV", "clients.keyEnvironment"),
    Variable("SET_DEFAULT", "clients.makeDefault", Form.SWITCH),
    Variable(
        "SSH_OPTS",
        reason="options of ssh belong in ~/.ssh/config, which sparkop reads as ssh does; user, port and key "
        "can also stand in the node's ssh field",
    ),
    Variable("WAIT", reason="apply always waits until tokens come out; Ctrl-C leaves the ranks running"),
    Variable(
        "HF_TOKEN",
        reason=_HUB_LOGIN,
    ),
    Variable(
        "DSV41_API_KEY",
        reason="a secret that the client reads from its own environment; clients.keyEnvironment names it",
    ),
    Variable("PI_CODING_AGENT_DIR", reason="Pi's own variable: sparkop connect pi reads it as Pi does"),
)

B = (
    Variable("HEAD_CX7_IP", f"{HEAD}.fabric.address"),
    Variable("WORKER_CX7_IP", f"{WORKER}.fabric.address"),
    Variable("HEAD_CX7_IF", f"{HEAD}.fabric.interface"),
    Variable("WORKER_CX7_IF", f"{WORKER}.fabric.interface"),
    Variable("HEAD_CX7_IB", f"{HEAD}.fabric.hcas", Form.COMMAS),
    Variable("WORKER_CX7_IB", f"{WORKER}.fabric.hcas", Form.COMMAS),
    Variable("WORKER_HOST", f"{WORKER}.ssh", Form.FLAG, "host of the worker's ssh target"),
    Variable("WORKER_USER", f"{WORKER}.ssh", Form.FLAG, "user of the worker's ssh target"),
    Variable("WORKER_SSH", f"{WORKER}.ssh", reason="wins over WORKER_HOST and WORKER_USER"),
    Variable("PORT", "api.port", Form.INTEGER),
    Variable("HOST_BIND", "api.bind"),
    Variable("DIST_PORT", "engine.rendezvousPort", Form.INTEGER),
    Variable(
        "API_KEY",
        "api.key",
        Form.FLAG,
        "becomes generate; the key itself is a secret and goes into the key's file on the head",
    ),
    Variable("MEM_FRACTION_STATIC", "memory.gpuFraction", Form.NUMBER),
    Variable("CONTEXT_LENGTH", "engine.context", Form.INTEGER),
    Variable("CHUNKED_PREFILL_SIZE", "engine.chunkedPrefillSize", Form.INTEGER),
    Variable("MAX_RUNNING_REQUESTS", "engine.maxRequests", Form.INTEGER),
    Variable("SPEC_STEPS", "engine.speculative.steps", Form.INTEGER),
    Variable("SPEC_TOPK", "engine.speculative.topK", Form.INTEGER),
    Variable("SPEC_DRAFT", "engine.speculative.draftTokens", Form.INTEGER),
    Variable("MAMBA_FULL_MEMORY_RATIO", "engine.mamba.fullMemoryRatio", Form.NUMBER),
    Variable("MAMBA_RADIX_CACHE_STRATEGY", "engine.mamba.radixCacheStrategy"),
    Variable("MAMBA_TRACK_INTERVAL", "engine.mamba.trackInterval", Form.INTEGER),
    Variable("PLE_OFFLOAD", "engine.pleOffload", Form.SWITCH),
    Variable("ENABLE_DECODE_GRAPHS", "engine.graphs.decode", Form.SWITCH),
    Variable("CUDA_GRAPH_BS", "engine.graphs.decodeSizes", Form.NUMBERS),
    Variable("ATTENTION_BACKEND", "engine.attention"),
    Variable("KERNEL_PATCH", "image.build", Form.FLAG, "0: the base image as it is, without a build"),
    Variable("BASE_IMAGE", "image.build.base"),
    Variable("PATCHED_IMAGE", "image.build.tag"),
    Variable("IMAGE", "image.reference", Form.FLAG, "an image as it is; it replaces image.build"),
    Variable("DOWNLOAD_MODE", "weights.distribution", Form.DOWNLOAD),
    Variable("HF_HOME", "weights.hubCache", Form.PATH),
    Variable("WORKER_HF_HOME", f"{WORKER}.paths.weights", Form.PATH),
    Variable("HF_REVISION", "weights.revision"),
    Variable(
        "HF_TOKEN",
        reason=_HUB_LOGIN,
    ),
    Variable("USE_HOST_NCCL", "engine.nccl.preload", Form.FLAG, "0: the image's own NCCL"),
    Variable("NCCL_HOST_DIR", "engine.nccl.preload.directory", Form.PATH),
    Variable("NCCL_DEBUG", "engine.nccl.debug"),
    Variable("NCCL_CROSS_NIC", "engine.nccl.crossNic", Form.INTEGER),
    Variable("CPUSET", "engine.container.cpuset", empty_counts=True),
    Variable("REASONING_PARSER", "engine.parsers.reasoning"),
    Variable("TOOL_CALL_PARSER", "engine.parsers.tools"),
    Variable("SERVED_MODEL_NAME", "api.servedNames", Form.ONE_NAME),
    Variable("WAIT_TIMEOUT_MIN", "ready.deadline", Form.MINUTES),
    Variable("EXTRA_ARGS", "engine.extraArgs", Form.WORDS),
    Variable("ALLOW_AUTO_TRUNCATE", "engine.autoTruncate", Form.SWITCH),
)

VARIABLES = {Recipe.A: A, Recipe.B: B}


def reference_page() -> str:
    """docs/reference/recipe-variables.md."""
    lines = [
        "# Variables of the recipes",
        "",
        "What each variable of the two recipes became. `sparkop import` turns an `.env` file or exported",
        "variables into an overlay. Made by `sparkop import --list`.",
    ]
    for recipe, variables in VARIABLES.items():
        lines += ["", f"## {recipe.value}", "", "| variable | field | note |", "| --- | --- | --- |"]
        for each in variables:
            field = f"`{each.field}`" if each.field else "none"
            note = each.reason or ""
            lines.append(f"| `{each.name}` | {field} | {note[:1].upper()}{note[1:]} |")
    return "\n".join(lines) + "\n"
