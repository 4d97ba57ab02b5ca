"""One engine's state: limits, counters, and the tokens that come out, or do not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from standin.faults import Faults
from standin.group import Group, PeerLostError, StepTimeoutError

TOKEN_ZERO = "!"
POLL_SECONDS = 0.05
PREFILL_CHUNK, PREFILL_SECONDS = 512, 0.5
"""Of a prompt that takes very long: tokens of each step, and how long it takes."""
DEATH_SECONDS = 0.5
"""Between the error answer and the end of the process, as measured of vLLM."""


class EngineDeadError(Exception):
    """The engine has lost a rank or hung: the request is answered with 500 and the process ends."""


@dataclass(frozen=True)
class Manner:
    """What differs between the engines in state and time."""

    name: str
    model: str
    """The served name."""
    context: int
    """Tokens of a prompt and its answer together."""
    pool: int
    """Tokens of the whole key-value cache."""
    parallel: int
    """Requests that run at once; more wait."""
    step_seconds: float
    """A step that takes longer kills the engine."""
    exit_code: int | None
    """Of an engine that died: vLLM ends with 0; None is SIGKILL, as SGLang does it."""
    dies_at_once: bool
    """vLLM dies in the first step that lacks a rank; SGLang hangs in it until its watchdog ends it."""


@dataclass
class Timing:
    """Count and sum of one kind of duration, in seconds, with the bounds of a histogram."""

    bounds: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0, 5.0, 20.0, 80.0)
    counts: list[int] = field(default_factory=lambda: [0] * 7)
    count: int = 0
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        for index, bound in enumerate(self.bounds):
            self.counts[index] += seconds <= bound


@dataclass
class Counters:
    running: int = 0
    waiting: int = 0
    held: int = 0
    """Requests that hold a part of the cache."""
    prompt: int = 0
    generated: int = 0
    stopped: int = 0
    cut: int = 0
    first_token: Timing = field(default_factory=Timing)
    between_tokens: Timing = field(default_factory=Timing)
    whole: Timing = field(default_factory=Timing)


class Engine:
    """Yields tokens while all ranks take part, as fast and as well as the faults allow."""

    def __init__(self, manner: Manner, group: Group, faults: Faults, log: Callable[[str], None]) -> None:
        self.manner, self.group, self.faults, self.log = manner, group, faults, log
        self.counters = Counters()
        self.started = time.time()
        self.dead = False
        self._slots = threading.Semaphore(manner.parallel)
        self._lock = threading.Lock()
        self._token_seconds = float(os.environ.get("LAB_STANDIN_TOKEN_SECONDS", "0.002"))

    def generate(self, prompt: int, pieces: list[str], reason: str) -> Iterator[str]:
        """The pieces one by one; counts them. `prompt`: its length in tokens. Raises EngineDeadError."""
        begun = time.monotonic()
        count = self._count
        count("waiting", 1)
        self._slots.acquire()
        count("waiting", -1)
        count("running", 1)
        held = 0
        try:
            last = begun
            for piece in pieces:
                self._step()
                if not held:  # as the engines do: a prompt counts, and fills the cache, when it was read
                    held = 1
                    count("prompt", prompt)
                    count("held", held)
                now = time.monotonic()
                (self.counters.first_token if last == begun else self.counters.between_tokens).add(now - last)
                last = now
                count("generated", 1)
                yield piece
            count("stopped" if reason == "stop" else "cut", 1)
            self.counters.whole.add(time.monotonic() - begun)
        finally:
            count("running", -1)
            count("held", -held)
            self._slots.release()

    def _count(self, name: str, by: int) -> None:
        with self._lock:
            setattr(self.counters, name, getattr(self.counters, name) + by)

    def _step(self) -> None:
        """One token's worth of work on all ranks."""
        if self.dead:
            raise EngineDeadError
        began = time.monotonic()
        while self.faults.on("prefill"):
            self._count("prompt", PREFILL_CHUNK)
            time.sleep(PREFILL_SECONDS)
        slow = self.faults.value("slow")
        time.sleep(self._token_seconds if slow is None else slow)
        try:
            while self.faults.on("wedge"):
                if time.monotonic() - began > self.manner.step_seconds:
                    raise StepTimeoutError("RPC call to execute_model timed out.")
                time.sleep(POLL_SECONDS)
            self.group.step(self.manner.step_seconds)
        except PeerLostError as error:
            if not self.manner.dies_at_once:
                time.sleep(max(0.0, self.manner.step_seconds - (time.monotonic() - began)))
            self._die(str(error))
        except StepTimeoutError as error:
            self._die(str(error))

    def _die(self, why: str) -> None:
        with self._lock:
            first, self.dead = not self.dead, True
        if first:
            self.log(f"EngineCore encountered a fatal error: {why}")
            threading.Timer(DEATH_SECONDS, self._end).start()
        raise EngineDeadError(why)

    def _end(self) -> None:
        if self.manner.exit_code is None:
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(137)  # pid 1 of a container can't kill itself
        os._exit(self.manner.exit_code)

    def healthy(self, seconds: float) -> bool:
        """SGLang's health check: does one token come out within `seconds`?"""
        deadline = time.monotonic() + seconds
        while self.faults.on("wedge"):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        try:
            self.group.step(max(0.0, deadline - time.monotonic()))
        except PeerLostError:
            time.sleep(max(0.0, deadline - time.monotonic()))
            return False
        except StepTimeoutError:
            return False
        return True


def vllm_metrics(engine: Engine) -> str:
    label = f'{{engine="0",model_name="{engine.manner.model}"}}'
    counters = engine.counters
    lines = [
        gauge("vllm:num_requests_running", label, counters.running),
        gauge("vllm:num_requests_waiting", label, counters.waiting),
        gauge("vllm:kv_cache_usage_perc", label, min(1.0, counters.held / engine.manner.parallel)),
        counter("vllm:num_preemptions_total", label, 0),
        counter("vllm:prefix_cache_queries_total", label, counters.prompt),
        counter("vllm:prefix_cache_hits_total", label, 0),
        counter("vllm:prompt_tokens_total", label, counters.prompt),
        counter("vllm:generation_tokens_total", label, counters.generated),
        *(
            counter("vllm:request_success_total", label[:-1] + f',finished_reason="{reason}"}}', number)
            for reason, number in (("stop", counters.stopped), ("length", counters.cut))
        ),
        histogram("vllm:time_to_first_token_seconds", label, counters.first_token),
        histogram("vllm:inter_token_latency_seconds", label, counters.between_tokens),
        histogram("vllm:e2e_request_latency_seconds", label, counters.whole),
        gauge("vllm:cache_config_info", label[:-1] + f',num_gpu_blocks="{engine.manner.pool // 16}"}}', 1.0),
    ]
    return "".join(lines)


def sglang_metrics(engine: Engine) -> str:
    label = f'{{engine_type="unified",model_name="{engine.manner.model}",tp_rank="0"}}'
    counters = engine.counters
    uptime = max(1.0, time.time() - engine.started)
    lines = [
        gauge("sglang:num_running_reqs", label, counters.running),
        gauge("sglang:num_queue_reqs", label, counters.waiting),
        gauge("sglang:token_usage", label, min(1.0, counters.held / engine.manner.parallel)),
        gauge("sglang:cache_hit_rate", label, 0.0),
        gauge("sglang:gen_throughput", label, round(counters.generated / uptime, 3)),
        gauge("sglang:max_total_num_tokens", label, engine.manner.pool),
        gauge("sglang:context_len", label, engine.manner.context),
        counter("sglang:prompt_tokens_total", label, counters.prompt),
        counter("sglang:generation_tokens_total", label, counters.generated),
        counter("sglang:num_requests_total", label, counters.stopped + counters.cut),
        histogram("sglang:time_to_first_token_seconds", label, counters.first_token),
        histogram("sglang:inter_token_latency_seconds", label, counters.between_tokens),
        histogram("sglang:e2e_request_latency_seconds", label, counters.whole),
    ]
    return "".join(lines)


def gauge(name: str, label: str, value: float) -> str:
    return f"# TYPE {name} gauge\n{name}{label} {float(value)}\n"


def counter(name: str, label: str, value: float) -> str:
    return f"# TYPE {name} counter\n{name}{label} {float(value)}\n"


def histogram(name: str, label: str, timing: Timing) -> str:
    buckets = [*zip(map(str, timing.bounds), timing.counts, strict=True), ("+Inf", timing.count)]
    lines = [f'{name}_bucket{label[:-1]},le="{bound}"}} {float(count)}' for bound, count in buckets]
    lines += [f"{name}_sum{label} {timing.total}", f"{name}_count{label} {float(timing.count)}"]
    return f"# TYPE {name} histogram\n" + "\n".join(lines) + "\n"
