"""From a command line to a running rank."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from standin import flags
from standin.engine import Engine, Manner
from standin.faults import Faults
from standin.group import Group, JoinError, fingerprint
from standin.pool import pool_of
from standin.requests import Limits
from standin.web import DummyHealth, Server

FOLLOWER_STOP_SECONDS = 1.0
"""vLLM's follower takes its time to end after SIGTERM (11 s were measured); tests need not wait that long."""


class LoadError(Exception):
    """The model is not there or not as it must be."""


def vllm_log(text: str) -> None:
    print(f"INFO {time.strftime('%m-%d %H:%M:%S')} [standin] {text}")


def sglang_log(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')} TP0] {text}")


def run(name: str, arguments: list[str]) -> int:
    """Be one rank of `name` ("vllm" or "sglang") until it ends. Returns the exit code."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    started = time.monotonic()
    faults = Faults()
    if name == "vllm":
        options, log = flags.parse_vllm(arguments), vllm_log
        rank = vllm_rank(options)
    else:
        options, log = flags.parse_sglang(arguments), sglang_log
        rank = sglang_rank(options)
    # As the engines do: their first line shows all arguments, the key included.
    given = {key: value for key, value in vars(options).items() if value not in (None, False)}
    log(f"non-default args: {given}" if name == "vllm" else f"server_args={given}")
    faults.watch_for_death()
    try:
        load(Path(rank.model), faults, log, started, follower=rank.number > 0)
        return rank.run(options, faults, log)
    except (LoadError, JoinError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def tilelang_warning() -> None:
    """As TileLang prints it when it compiles the indexer: on every group of this model, good or bad."""
    print(
        "Data race detected: `Logits(bx, position)` is written by multiple threads in loop (token,), Example:"
    )


class Rank:
    """What one rank needs to know of its command line, whichever engine's it is."""

    def __init__(
        self, model: str, number: int, size: int, master: tuple[str, int], agreed: list[object]
    ) -> None:
        self.model, self.number, self.size, self.master = model, number, size, master
        self.group = Group(number, size, fingerprint(agreed))

    def run(self, options: Namespace, faults: Faults, log: Callable[[str], None]) -> int:
        raise NotImplementedError

    def meet(self, log: Callable[[str], None]) -> None:
        """Wait for all ranks. SIGTERM does not end a rank that waits, as with torch's rendezvous."""
        if self.size == 1:
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        log(f"rank {self.number} of {self.size}: rendezvous at {self.master[0]}:{self.master[1]}")
        if self.number == 0:
            self.group.gather(self.master[1], log)
        else:
            self.group.join(*self.master)


class VllmRank(Rank):
    def run(self, options: Namespace, faults: Faults, log: Callable[[str], None]) -> int:
        self.meet(log)
        if self.number > 0:
            signal.signal(
                signal.SIGTERM, lambda *_: threading.Timer(FOLLOWER_STOP_SECONDS, os._exit, (0,)).start()
            )
            log("headless: waiting for work")
            if self.group.follow(lambda: faults.on("wedge")) == "lost":
                forever()  # measured: a follower does not notice that rank 0 has gone
            return 0
        context = options.max_model_len or model_context(Path(self.model))
        pool = kv_tokens(options, model_config(Path(self.model)), context)
        manner = Manner(
            "vllm", (options.served_model_name or [self.model])[0], context, pool, options.max_num_seqs,
            float(os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "300")), 0, dies_at_once=True,
        )  # fmt: skip
        limits = Limits(
            context, False, (options.limit_mm_per_prompt or {}).get("image"),
            bool(options.enable_auto_tool_choice and options.tool_call_parser),
            "reasoning" if options.reasoning_parser else None, thinks_by_default(options),
        )  # fmt: skip
        server = Server(
            (options.host or "0.0.0.0", options.port), Engine(manner, self.group, faults, log), limits,
            [key for key in options.api_key or [os.environ.get("VLLM_API_KEY", "")] if key], metrics=True,
            details=options.enable_prompt_tokens_details, force_usage=options.enable_force_include_usage,
        )  # fmt: skip
        log(
            f"GPU KV cache size: {pool:,} tokens, "
            f"Maximum concurrency for {context:,} tokens per request: {pool / context:.2f}x"
        )
        log(f"Starting vLLM server on http://{options.host or '0.0.0.0'}:{options.port}")
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # its follower is not told
        print("INFO:     Application startup complete.")
        server.serve_forever()
        return 0


class SglangRank(Rank):
    def run(self, options: Namespace, faults: Faults, log: Callable[[str], None]) -> int:
        self.meet(log)
        if self.number > 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            dummy = ThreadingHTTPServer((options.host, options.port), DummyHealth)
            threading.Thread(target=dummy.serve_forever, daemon=True).start()
            log(f"Dummy health check server started at {options.host}:{options.port}")
            if self.group.follow(lambda: faults.on("wedge")) == "lost":
                forever()
            return 0
        context = options.context_length or model_context(Path(self.model))
        pool = (
            options.max_total_tokens
            or int(os.environ.get("LAB_STANDIN_KV_TOKENS", "0"))
            or context * 17 // 16
        )
        parallel = options.max_running_requests or 48
        manner = Manner(
            "sglang", options.served_model_name or self.model, context, pool, parallel,
            options.watchdog_timeout, None, dies_at_once=False,
        )  # fmt: skip
        limits = Limits(
            context, options.allow_auto_truncate, None, bool(options.tool_call_parser),
            "reasoning_content" if options.reasoning_parser else None, thinks_by_default(options),
        )  # fmt: skip
        server = Server(
            (options.host, options.port), Engine(manner, self.group, faults, log), limits,
            [options.api_key] if options.api_key else [], metrics=options.enable_metrics,
            details=options.enable_cache_report, force_usage=False,
        )  # fmt: skip
        log(
            f"max_total_num_tokens={pool}, chunked_prefill_size={options.chunked_prefill_size}, "
            f"max_prefill_tokens={options.max_prefill_tokens or 16384}, max_running_requests={parallel}, "
            f"context_len={context}, available_gpu_mem=17.50 GB"
        )

        def end(*_: object) -> None:
            self.group.dismiss()
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        tilelang_warning()
        log("The server is fired up and ready to roll!")
        server.serve_forever()
        return 0


def vllm_rank(options: Namespace) -> Rank:
    agreed = [
        options.model,
        options.tensor_parallel_size,
        options.nnodes,
        options.max_model_len,
        options.dtype,
    ]
    return VllmRank(
        options.model, options.node_rank, options.nnodes, (options.master_addr, options.master_port), agreed
    )


def sglang_rank(options: Namespace) -> Rank:
    host, _, port = (options.dist_init_addr or "127.0.0.1:0").rpartition(":")
    agreed = [options.tp_size, options.nnodes, options.context_length, options.served_model_name]
    return SglangRank(options.model_path, options.node_rank, options.nnodes, (host, int(port)), agreed)


def thinks_by_default(options: Namespace) -> bool:
    wanted = options.default_chat_template_kwargs or {}
    return bool(wanted.get("enable_thinking", wanted.get("thinking", False)))


def forever() -> None:
    while True:
        time.sleep(3600)


def model_config(model: Path) -> dict[str, Any]:
    """The parsed config.json. Raises LoadError."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"Can't load the configuration of '{model}': there is no config.json in it") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"Can't load the configuration of '{model}': {error}") from error
    return config if isinstance(config, dict) else {}


def kv_tokens(options: Namespace, config: dict[str, Any], context: int) -> int:
    """What the KV cache holds; for a model that does not tell its layers, a figure that fits one context."""
    size = options.kv_cache_memory_bytes or 64 << 20
    found = pool_of(
        config, size, context=context, shards=options.tensor_parallel_size, block=options.block_size,
        batch=options.max_num_batched_tokens, dtype=options.kv_cache_dtype,
    )  # fmt: skip
    return found or size // 9000 + context


def model_context(model: Path) -> int:
    config = model_config(model)
    text = config.get("text_config") or config
    return int(text.get("max_position_embeddings") or 4096)


def shards(model: Path) -> list[Path]:
    """The weight files of a checkpoint. Raises LoadError when one is missing or empty."""
    index = model / "model.safetensors.index.json"
    if index.exists():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [model / name for name in names]
    else:
        files = sorted(model.glob("*.safetensors"))
    if not files:
        raise LoadError(f"Cannot find any model weights with `{model}`")
    for file in files:
        if not file.is_file() or not file.stat().st_size:
            raise LoadError(f"No such file or directory: {file}")
    return files


def check_plan() -> None:
    """Recipe A's allocation plan, when the environment names one. Raises LoadError."""
    plan = os.environ.get("ST_EXL3_PLAN")
    if not plan:
        return
    try:
        banks = str(json.loads(Path(plan).read_text(encoding="utf-8")).get("qdir", ""))
    except (OSError, ValueError) as error:
        raise LoadError(f"ST_EXL3_PLAN={plan}: {error}") from error
    for bank in filter(None, banks.split(":")):
        if not Path(bank).is_dir():
            raise LoadError(f"ST_EXL3_PLAN={plan}: no bank directory {bank}")


def load(model: Path, faults: Faults, log: Callable[[str], None], started: float, *, follower: bool) -> None:
    """Look at the checkpoint and take as long as the faults say. Raises LoadError."""
    model_config(model)
    files = shards(model)
    check_plan()
    log(f"Starting to load model {model}...")
    shown = -1
    while True:
        seconds = faults.value("start-slowly") or 0.0
        share = min(1.0, (time.monotonic() - started) / seconds) if seconds else 1.0
        done = int(share * len(files))
        if done != shown and not follower:
            print(f"Loading safetensors checkpoint shards: {share:4.0%} Completed | {done}/{len(files)}")
        shown = done
        if share >= 1:
            break
        time.sleep(0.1)
    code = faults.value("fail-start")
    if code is not None:
        print("RuntimeError: Engine core initialization failed. See root cause above.", file=sys.stderr)
        raise SystemExit(int(code))
    log("Model loading took 0.01 GiB memory and 0.1 seconds")
