"""The two command lines: every flag of the two recipes and of the lab, and nothing else.

Sources: vLLM 0.33 (`vllm serve`: dashes and underscores are the same, a configuration file stands before the
command line, the last of a repeated flag wins) and SGLang 0.5.23 (`sglang.launch_server`: plain argparse).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from standin import simple_yaml

MASTER_PORT = 29501
"""vLLM's default rendezvous port."""


class Parser(argparse.ArgumentParser):
    """argparse whose message has no usage: a hundred flags would hide it. Exit code 2, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"Value {text} is not a JSON object")
    return value


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def length(text: str) -> int:
    """vLLM's human-readable numbers: 32768, 32k (1000s), 32K (1024s)."""
    scale = {"k": 1000, "m": 1000**2, "K": 1024, "M": 1024**2}.get(text[-1:], 1)
    return positive(str(int(float(text[:-1]) * scale))) if scale > 1 else positive(text)


def fraction(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{value} is not in (0, 1]")
    return value


for _type, _name in ((json_object, "JSON"), (positive, "int"), (length, "int"), (fraction, "float")):
    _type.__name__ = _name

JSON_FLAGS = (
    "--compilation-config", "--default-chat-template-kwargs", "--engram-config", "--hf-overrides",
    "--limit-mm-per-prompt", "--speculative-config",
)  # fmt: skip
SWITCHES = (
    "--async-scheduling", "--enable-auto-tool-choice", "--enable-chunked-prefill",
    "--enable-force-include-usage",
    "--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager", "--trust-remote-code",
)  # fmt: skip
VLLM_TEXTS = (
    "--attention-backend", "--chat-template", "--config-format", "--generation-config", "--linear-backend",
    "--load-format", "--moe-backend", "--quantization", "--reasoning-parser", "--revision",
    "--tokenizer-mode",
    "--tokenizer", "--tool-call-parser", "--uvicorn-log-level", "--distributed-executor-backend",
)  # fmt: skip


def vllm_parser() -> Parser:
    parser = Parser(prog="vllm serve")
    add = parser.add_argument
    add("model_tag", nargs="?")
    add("--model")
    add("--served-model-name", nargs="+")
    add("--host")
    add("--port", type=int, default=8000)
    add("--api-key", nargs="+")
    add("--headless", action="store_true")
    add("--tensor-parallel-size", "-tp", type=positive, default=1)
    add("--pipeline-parallel-size", "-pp", type=positive, default=1)
    add("--nnodes", "-n", type=positive, default=1)
    add("--node-rank", "-r", type=int, default=0)
    add("--master-addr", default="127.0.0.1")
    add("--master-port", type=int, default=MASTER_PORT)
    add("--distributed-timeout-seconds", type=positive)
    add("--cpu-distributed-timeout-seconds", type=positive)
    add("--dtype", default="auto", choices=("auto", "half", "float16", "bfloat16", "float", "float32"))
    add("--kv-cache-dtype", default="auto")
    add("--kv-cache-memory-bytes", type=length)
    add("--gpu-memory-utilization", type=fraction, default=0.9)
    add("--block-size", type=positive, default=128)
    add("--swa-block-size", type=positive)
    add("--max-model-len", type=length)
    add("--max-num-seqs", type=positive, default=256)
    add("--max-num-batched-tokens", type=length, default=8192)
    add("--max-cudagraph-capture-size", type=positive)
    add("--seed", type=int, default=0)
    add("--safetensors-load-strategy", choices=("lazy", "eager", "prefetch", "torchao"), default="lazy")
    for flag in JSON_FLAGS:
        add(flag, type=json_object)
    for flag in SWITCHES:
        add(flag, action=argparse.BooleanOptionalAction, default=False)
    for flag in VLLM_TEXTS:
        add(flag)
    return parser


def dashed(arguments: list[str]) -> list[str]:
    """``--max_num_seqs=2`` as ``--max-num-seqs=2``; values stay."""
    result = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        result.append(flag.replace("_", "-") + equals + value if flag.startswith("--") else argument)
    return result


def with_file(parser: Parser, arguments: list[str]) -> list[str]:
    """Put what the file of ``--config`` says before the flags of the command line, so that these win."""
    for index, argument in enumerate(arguments):
        if argument == "--config" or argument.startswith("--config="):
            inline = argument.partition("=")[2]
            path = inline or (arguments[index + 1] if index + 1 < len(arguments) else "")
            rest = arguments[:index] + arguments[index + (1 if inline else 2) :]
            try:
                keys = simple_yaml.load(Path(path).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                parser.error(f"--config {path}: {error}")
            extra: list[str] = []
            for key, values in keys.items():
                flag = "--" + key.replace("_", "-")
                if values == ["true"]:
                    extra.append(flag)
                elif values != ["false"]:
                    extra += [flag, *values]
            # A list (--api-key a b) would swallow a model name behind it: the file's flags stand after that.
            named = 1 if rest and not rest[0].startswith("-") else 0
            return rest[:named] + extra + rest[named:]
    return arguments


def parse_vllm(arguments: list[str]) -> argparse.Namespace:
    """Parsed arguments of ``vllm serve``. Exits with 2 as argparse does."""
    parser = vllm_parser()
    options = parser.parse_args(with_file(parser, dashed(arguments)))
    options.model = options.model_tag or options.model
    if not options.model:
        parser.error("the following arguments are required: model_tag")
    if options.enable_auto_tool_choice and not options.tool_call_parser:
        parser.error("Error: --enable-auto-tool-choice requires --tool-call-parser")
    check_ranks(parser, options.nnodes, options.node_rank, options.tensor_parallel_size)
    if options.headless and options.node_rank == 0 and options.nnodes > 1:
        parser.error("a headless rank 0 would leave nobody to serve the API")
    return options


def check_ranks(parser: Parser, nodes: int, rank: int, parallel: int) -> None:
    if parallel % nodes:
        parser.error(f"world size {parallel} is not divisible by nnodes {nodes}")
    if not 0 <= rank < nodes:
        parser.error(f"node_rank {rank} must be between 0 and nnodes - 1 ({nodes - 1})")


SGLANG_TEXTS = (
    "--attention-backend", "--dtype", "--fp4-gemm-backend", "--load-format", "--mamba-ssm-dtype",
    "--moe-runner-backend", "--ple-offload-dir", "--quantization", "--reasoning-parser", "--revision",
    "--speculative-algorithm", "--tokenizer-path", "--tool-call-parser", "--chat-template", "--log-level",
)  # fmt: skip
SGLANG_NUMBERS = (
    "--chunked-prefill-size", "--dist-timeout", "--mamba-track-interval", "--max-mamba-cache-size",
    "--max-prefill-tokens", "--max-total-tokens", "--page-size", "--random-seed", "--speculative-eagle-topk",
    "--speculative-num-draft-tokens", "--speculative-num-steps",
)  # fmt: skip
SGLANG_SWITCHES = (
    "--allow-auto-truncate", "--disable-cuda-graph", "--disable-prefill-cuda-graph", "--disable-radix-cache",
    "--enable-cache-report", "--enable-metrics", "--skip-server-warmup", "--trust-remote-code",
)  # fmt: skip
KV_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16")


def sglang_parser() -> Parser:
    parser = Parser(prog="sglang serve")
    add = parser.add_argument
    add("--model-path", "--model", required=True)
    add("--served-model-name")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=30000)
    add("--api-key")
    add("--admin-api-key")
    add("--tp-size", "--tensor-parallel-size", type=positive, default=1)
    add("--nnodes", type=positive, default=1)
    add("--node-rank", type=int, default=0)
    add("--dist-init-addr", "--nccl-init-addr")
    add("--mem-fraction-static", type=fraction)
    add("--mamba-full-memory-ratio", type=float, default=0.9)
    add("--mamba-radix-cache-strategy", choices=("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"))
    add("--kv-cache-dtype", choices=KV_DTYPES, default="auto")
    add("--max-running-requests", type=positive)
    add("--context-length", type=positive)
    add("--watchdog-timeout", type=float, default=300.0)
    add("--soft-watchdog-timeout", type=float)
    add("--cuda-graph-bs-decode", type=positive, nargs="+")
    add("--cuda-graph-backend-decode", choices=("full", "breakable", "disabled"))
    add("--json-model-override-args", type=json_object)
    add("--default-chat-template-kwargs", type=json_object)
    add("--ple-offload-embedding", action=argparse.BooleanOptionalAction)
    add("--ple-offload-backend", choices=("pinned", "file"))
    for flag in SGLANG_TEXTS:
        add(flag)
    for flag in SGLANG_NUMBERS:
        add(flag, type=positive)
    for flag in SGLANG_SWITCHES:
        add(flag, action="store_true")
    return parser


def parse_sglang(arguments: list[str]) -> argparse.Namespace:
    """Parsed arguments of ``python3 -m sglang.launch_server``. Exits with 2 as argparse does."""
    parser = sglang_parser()
    if sum(argument.partition("=")[0] == "--config" for argument in arguments) > 1:
        parser.error("--config can be given once only")
    options = parser.parse_args(with_file(parser, arguments))
    if options.nnodes > 1 and not options.dist_init_addr:
        parser.error("--dist-init-addr is needed with --nnodes above 1")
    if options.dist_init_addr and ":" not in options.dist_init_addr:
        parser.error("--dist-init-addr is HOST:PORT")
    check_ranks(parser, options.nnodes, options.node_rank, options.tp_size)
    topk, steps = options.speculative_eagle_topk, options.speculative_num_steps
    draft = options.speculative_num_draft_tokens
    if topk == 1 and steps and draft and draft != steps + 1:
        parser.error(
            f"speculative_num_draft_tokens must be {steps + 1} (steps + 1) when topk is 1, not {draft}"
        )
    return options


def long_context_allowed() -> bool:
    return os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
