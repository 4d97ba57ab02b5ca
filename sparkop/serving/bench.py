"""How fast the model is served: prefill, decode, long context. The document has the recipe's shape.

The document is a plain dictionary, as it is saved::

    {"version", "cluster", "model", "configuration", "label", "ts", "finished",
     "prefill": {"8192": {"median": tok/s, "runs": [request + "tok_s"]}},
     "decode": [{"C", "kind", "rep", "per_stream", "per_stream_median", "aggregate", "reqs",
                 "acceptance", "pool_peak", "others"}],
     "ctx": [request + {"target_tokens", "prefill_tok_s", "decode_tok_s", "recalled", "asked", ...}]}

Rates in tokens a second, times in seconds. Token counts come from the server's usage.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from sparkop.errors import BlockedError
from sparkop.records import dataclass
from sparkop.serving.api import CHAT, COMPLETIONS, Answer, Api, Limits
from sparkop.serving.figures import (
    Gauge,
    MetricNames,
    active,
    request_record,
    stream_rate,
    together_rate,
)
from sparkop.serving.prompts import GATES, Recall, WorkKind, random_tokens, recall, work
from sparkop.threads import side_by_side

VERSION = 1
WARM_TOKENS = 4096
"""Two batches of recipe A."""
SPARE = 16
"""Tokens that a cut prefill leaves of the context."""
ANSWER = 16384
"""Tokens that a cut long context leaves for the answer, at most a quarter of it."""
SAMPLE = 12_000
"""Characters that show how many of them a token has."""
CHARACTERS_A_TOKEN = 3.2
"""Where the server does not tell usage early."""
QUIET_SECONDS = 30.0
"""How long a run waits for others' requests, and for our own closed ones, to end."""
REFUSED = (400, 413, 422)
"""What engines answer to a prompt that is too long for them."""
Document = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is measured. ``deadline``: seconds for one answer."""

    prefill: tuple[int, ...] = (8192, 32768)
    kinds: tuple[WorkKind, ...] = ("code", "prose")
    concurrencies: tuple[int, ...] = (1, 2)
    contexts: tuple[int, ...] = ()
    repeats: int = 3
    deadline: float = 3600.0


@dataclass(frozen=True)
class Step:
    """One run. ``size``: tokens of a prompt, or simultaneous streams."""

    what: str
    size: int
    kind: WorkKind | None = None
    repeat: int = 0

    def __str__(self) -> str:
        if self.what == "decode":
            return f"decode {self.kind}, {self.size} at a time"
        return f"{self.what} {self.size:,}"


def steps(plan: Plan, context: int | None) -> list[Step]:
    """Everything to run, in order; prompts are cut to what the context holds, and then not run twice."""
    sizes = _cut(plan.prefill, None if context is None else context - SPARE)
    room = None if context is None else context - min(ANSWER, context // 4)
    found = [Step("prefill", size, repeat=r) for size in sizes for r in range(plan.repeats)]
    found += [
        Step("decode", streams, kind, r)
        for kind in plan.kinds
        for streams in dict.fromkeys(plan.concurrencies)
        for r in range(plan.repeats)
    ]
    return found + [Step("context", size) for size in _cut(plan.contexts, room)]


def _cut(sizes: Sequence[int], most: int | None) -> list[int]:
    return list(dict.fromkeys(size if most is None else max(1, min(size, most)) for size in sizes))


def missing(found: Sequence[Step], document: Document) -> list[Step]:
    """The steps that the document does not have yet."""
    return [step for step in found if not _has(step, document)]


def _has(step: Step, document: Document) -> bool:
    if step.what == "prefill":
        return len(document["prefill"].get(str(step.size), {"runs": ()})["runs"]) > step.repeat
    if step.what == "decode":
        done = [d for d in document["decode"] if (d["C"], d["kind"]) == (step.size, step.kind)]
        return len(done) > step.repeat
    return any(each["target_tokens"] == step.size for each in document["ctx"])


class Bench:
    """Runs steps against an API."""

    def __init__(
        self,
        api: Api,
        names: MetricNames,
        vocabulary: int | None,
        deadline: float,
        *,
        source: random.Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.api, self.names, self.vocabulary = api, names, vocabulary
        self.limits = Limits(deadline)
        self.source = source or random.SystemRandom()
        self.sleep = sleep

    def warm_up(self, left: Sequence[Step]) -> None:
        """Requests like those of ``left`` that are not recorded: kernels compile, graphs and caches fill."""
        prompts = [step.size for step in left if step.what == "prefill"]
        if prompts:
            self._prefill(min(WARM_TOKENS, *prompts))
        streams = max((step.size for step in left if step.what == "decode"), default=1)
        self._together([self._chat("Say hello.") for _ in range(streams)])

    def run(self, step: Step, document: Document) -> str:
        """Measure one step and add it to the document. Returns its figure in words.

        Raises BlockedError when the engine does not answer, or refuses; UnreachableError.
        """
        busy = not self._quiet()
        gauge = Gauge(self.api, self.names, step.size if step.what == "decode" else 1)
        runs = {"prefill": self._run_prefill, "decode": self._run_decode, "context": self._run_context}
        with gauge.watching():
            record, told = runs[step.what](step)
        engine = gauge.record()
        engine["others"] = engine["others"] or busy
        _add(step, record | engine, document)
        return told + (", while others used the API" if engine["others"] else "")

    def _quiet(self) -> bool:
        """Wait until nothing runs or waits in the engine; False when others do not end."""
        end = self.api.monotonic() + QUIET_SECONDS
        gauge = Gauge(self.api, self.names, 0)
        while (text := gauge.read()) is not None and active(text, self.names) > 0:
            if self.api.monotonic() > end:
                return False
            self.sleep(0.2)
        return True

    def _prefill(self, size: int) -> Answer:
        tokens = random_tokens(size, self.vocabulary, self.source)
        body = {
            "prompt": tokens,
            "stream": True,
            "temperature": 0,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        limits = Limits(self.limits.seconds, first_token=True)
        return _sound(self.api.ask(COMPLETIONS, body, limits), f"a prompt of {size:,} tokens")

    def _run_prefill(self, step: Step) -> tuple[Document, str]:
        answer = self._prefill(step.size)
        record = request_record(answer)
        record["prompt_tokens"] = record["prompt_tokens"] or step.size
        if answer.first is None:
            raise BlockedError(f"no token came after a prompt of {step.size:,} tokens")
        record["tok_s"] = round(record["prompt_tokens"] / answer.first, 3)
        return record, f"{record['tok_s']:,.0f} tok/s"

    def _chat(self, question: str) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _together(self, bodies: list[dict[str, Any]]) -> list[Answer]:
        """Ask all at once. Daemon threads: after Ctrl-C nobody waits for an answer that may take an hour."""

        def ask(body: dict[str, Any]) -> Answer:
            return self.api.ask(CHAT, body, self.limits)

        answers = side_by_side(ask, bodies, "chat", at_once=len(bodies))
        return [_sound(answer, "a chat") for answer in answers]

    def _run_decode(self, step: Step) -> tuple[Document, str]:
        kind = step.kind or "prose"
        run = f"{self.source.randrange(10**6)}"
        answers = self._together([self._chat(work(kind, i, run)) for i in range(step.size)])
        requests = [request_record(answer) for answer in answers]
        rates = [rate for rate in map(stream_rate, requests) if rate is not None]
        record = {
            "C": step.size,
            "kind": kind,
            "rep": step.repeat,
            "per_stream": [round(rate, 3) for rate in rates],
            "per_stream_median": round(statistics.median(rates), 3) if rates else None,
            "aggregate": _rounded(together_rate(requests)),
            "reqs": requests,
        }
        tokens = sum(request["completion_tokens"] for request in requests)
        if not rates:
            return record, f"{tokens} tokens: too few for a rate"
        each = f"{record['per_stream_median']:,.1f} tok/s a stream"
        return record, each + (f", {record['aggregate']:,.1f} together" if step.size > 1 else "")

    def _run_context(self, step: Step) -> tuple[Document, str]:
        asked = self._recall(step.size)
        answer = self._together([self._chat(asked.prompt)])[0]
        record = request_record(answer)
        record["target_tokens"] = step.size
        prompt = record["prompt_tokens"] or step.size
        if answer.first is None:
            raise BlockedError(f"an empty answer to a text of {prompt:,} tokens", remedy="sparkop smoke")
        record["prefill_tok_s"] = round(prompt / answer.first, 3)
        record["decode_tok_s"] = _rounded(stream_rate(record))
        record["recalled"], record["asked"] = asked.found(answer.message.content), len(GATES)
        told = f"{prompt:,} tokens at {record['prefill_tok_s']:,.0f} tok/s"
        return record, f"{told}, {record['recalled']} of {record['asked']} numbers found again"

    def _recall(self, tokens: int) -> Recall:
        """A text of about ``tokens``: a sample shows how long this model's tokens are."""
        sample = recall(SAMPLE, self.source)
        body = self._chat(sample.prompt)
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        answer = _sound(
            self.api.ask(CHAT, body, Limits(self.limits.seconds, first_token=True)), "a sample of the text"
        )
        counted = answer.usage.get("prompt_tokens")
        length = len(sample.prompt) / counted if counted else CHARACTERS_A_TOKEN
        extra = len(sample.prompt) - SAMPLE
        return recall(max(1, int(tokens * length) - extra), self.source)


def _add(step: Step, record: Document, document: Document) -> None:
    if step.what == "prefill":
        entry = document["prefill"].setdefault(str(step.size), {"median": 0.0, "runs": []})
        entry["runs"].append(record)
        rates = [run["tok_s"] for run in entry["runs"] if run.get("tok_s") is not None]
        entry["median"] = round(statistics.median(rates), 3)
    else:
        document["decode" if step.what == "decode" else "ctx"].append(record)


def _sound(answer: Answer, what: str) -> Answer:
    """The answer, when it can be measured. One that goes in circles can: its tokens are tokens."""
    came = answer.arrivals or answer.finish
    if answer.status == 200 and came and (not answer.error or answer.loop is not None):
        return answer
    raise BlockedError(
        f"{what} was not answered",
        cause=answer.told if answer.status not in (0, 200) else answer.error or "no token came",
        remedy=(
            "give smaller --prefill, --ctx or --conc: it asks for more than the engine takes"
            if answer.status in REFUSED
            else "sparkop status and sparkop smoke tell more; the same command carries on"
        )
        + "; what was measured is kept",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
