"""A tiny streamed generation: the only proof that a group serves (principle 5).

``/health`` and ``/v1/models`` stay green on a dead or wedged group. A false alarm is worse than a late one:
a long prefill, the first compilation and a busy queue are no wedge, so *wedged* needs two generations
without a token, and after them everything that the engine counts (tokens in and out, use of the KV cache)
standing still for a while: our own requests move counters too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from enum import StrEnum

from sparkop.hosts.base import LOOPBACK, HttpResponse, ReadableHost
from sparkop.records import dataclass
from sparkop.serving.stream import events, in_one_line, pieces

LOADING_STATUS = (502, 503, 504)
AGAIN = 0.5
"""Part of the deadline that the second generation gets."""
GLANCE = 15.0
"""Seconds until somebody at a screen is told of an API that gives no token and answers for nothing else."""
GLANCE_COUNTS = 5.0
"""Seconds that its counters get then, each of two times."""
STANDSTILL = 10.0
"""Seconds for which the counters must stand still, while we ask nothing."""
DEGENERATE_FROM = 4
"""A repetition of fewer pieces proves nothing: a short answer may be one word twice."""


class Serving(StrEnum):
    """What the API did when it was asked for a few tokens."""

    READY = "ready"
    """Tokens came, and they were no single repeated one."""
    SILENT = "silent"
    """Nothing listens."""
    LOADING = "loading"
    """Something listens and says that it is not ready yet."""
    UNAUTHORISED = "unauthorised"
    """401 or 403: the key that runs is not the key on disk."""
    WEDGED = "wedged"
    """Takes requests, gives no token, twice, and its counters stand still or do not answer either."""
    BUSY = "busy"
    """No token for us within the deadline, but its counters move or can't be read: no fault."""
    BROKEN = "broken"
    """Answers HTTP 500, or breaks off, twice: the engine behind the API is dead."""
    DEGENERATE = "degenerate"
    """Repeats one token or is empty, twice: the prefix cache may be poisoned."""
    GPU_LOST = "GPU lost"
    """A rank's container can't reach its GPU any more, by NVML: only a new container helps."""
    FAILED = "failed"
    """Answers an error that waiting will not mend (404 for the model's name, 400)."""
    NOT_ASKED = "not asked"
    """No rank runs on the head, or nobody wanted to know."""


SUSPECT = (Serving.DEGENERATE, Serving.WEDGED, Serving.BROKEN)
"""What is believed only when it was seen twice."""


@dataclass(frozen=True)
class EndpointState:
    """One look at the API. ``detail`` is for the human; ``seconds`` until the first token."""

    serving: Serving
    detail: str = ""
    seconds: float | None = None
    text: str = ""
    """The tokens that came, as text, in one line."""
    lasted: float | None = None
    """Seconds for which it is known to be so; None after a single look, which can't know."""


@dataclass(frozen=True)
class Question:
    """What is asked, and of whom."""

    port: int
    model: str
    prompt: str
    max_tokens: int
    deadline: float
    """Seconds for the whole answer."""
    key: str | None = None
    """Never shown (see ``__repr__``)."""
    counters: tuple[str, ...] = ()
    """Names in /metrics that move while the engine works: tokens in and out, use of the KV cache."""
    address: str = LOOPBACK
    """The head's own address that the API listens on."""

    def __repr__(self) -> str:
        return f"Question(port={self.port}, model={self.model!r})"


def ask_once(
    host: ReadableHost, question: Question, monotonic: Callable[[], float] = time.monotonic
) -> EndpointState:
    """One generation. WEDGED stands for "no token", BROKEN and DEGENERATE for one sighting: see ``look``."""
    began = monotonic()
    body = {
        "model": question.model,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
    }
    headers = {"Content-Type": "application/json"}
    if question.key is not None:
        headers["Authorization"] = f"Bearer {question.key}"
    try:
        response = host.http(
            "POST",
            question.port,
            "/v1/chat/completions",
            headers=headers,
            body=json.dumps(body).encode(),
            timeout=question.deadline,
            address=question.address,
        )
    except TimeoutError:
        return EndpointState(Serving.WEDGED, f"no answer within {question.deadline:.0f} s")
    except OSError as error:
        return EndpointState(Serving.SILENT, f"nothing answers on {_place(question)}: {error}")
    with closing(response):
        if response.status != 200:
            return _refused(response, question)
        return _read(response, question, began, monotonic)


def _place(question: Question) -> str:
    where = "" if question.address == LOOPBACK else f" of {question.address}"
    return f"port {question.port}{where}"


def look(
    host: ReadableHost,
    question: Question,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    believed: EndpointState | None = None,
) -> EndpointState:
    """One generation, and a second one before anything bad is believed.

    ``believed``: of such a look a moment ago. A wedge then needs one more generation without a token or a
    counter that moves: judging it all again would take minutes.
    """
    if believed is not None and believed.serving is Serving.WEDGED:
        before = counts(host, question)
        again = ask_once(host, replace(question, deadline=question.deadline * AGAIN), monotonic)
        after = counts(host, question)
        if again.serving is Serving.WEDGED and stand_still(before, after):
            return believed
    first = ask_once(host, question, monotonic)
    if first.serving not in SUSPECT:
        return first
    second = ask_once(host, replace(question, deadline=question.deadline * AGAIN), monotonic)
    if second.serving is not Serving.WEDGED or first.serving is not Serving.WEDGED:
        return second
    before = counts(host, question)
    sleep(min(STANDSTILL, question.deadline * AGAIN))
    after = counts(host, question)
    if before is not None and after is None:  # it may have frozen just now, or be slow once
        sleep(min(STANDSTILL, question.deadline * AGAIN))
        after = counts(host, question)
        before = before if after is not None else None
    detail = f"{first.detail}, nor when asked again"
    if stand_still(before, after):
        told = "its counters do not answer either" if before is None else "its counters stand still"
        return EndpointState(Serving.WEDGED, f"{detail}, and {told}")
    if before and after:
        return EndpointState(Serving.BUSY, f"{detail}, but it works for others")
    return EndpointState(Serving.BUSY, f"{detail}; its counters can't be read")


def glance(
    host: ReadableHost,
    question: Question,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> EndpointState:
    """``look`` for who only wants to see, and plans nothing: an API whose processes are frozen answers
    neither for tokens nor for its counters, and that is told without the whole patience for tokens. One that
    answers for its counters gets all of it."""
    short = replace(question, deadline=min(GLANCE, question.deadline))
    first = ask_once(host, short, monotonic)
    if first.serving not in SUSPECT:
        return first
    brief = replace(question, deadline=min(GLANCE_COUNTS, question.deadline))
    frozen = first.serving is Serving.WEDGED and all(counts(host, brief) is None for _ in range(2))
    if frozen:
        return EndpointState(Serving.WEDGED, f"{first.detail}, and its counters do not answer either")
    return look(host, question, monotonic, sleep)


def stand_still(before: tuple[float | None, ...] | None, after: tuple[float | None, ...] | None) -> bool:
    """Two ``counts`` are evidence of a wedge: nothing has grown, or neither was answered at all (a frozen
    API: an engine answers for its counters while it computes). Counters that are not told are none."""
    if before is None or after is None:
        return before is None and after is None
    return bool(before and after) and not worked(before, after)


def worked(before: tuple[float | None, ...], after: tuple[float | None, ...]) -> bool:
    """Whether something has grown between two ``counts``. What falls is no work: our own request, given up,
    frees its part of the cache."""
    pairs = zip(before, after, strict=True)
    return any(then is not None and now is not None and now > then for then, now in pairs)


def read_metrics(host: ReadableHost, port: int, address: str, timeout: float) -> bytes | None:
    """What the engine tells in /metrics; None when it gives none. Raises OSError, UnreachableError."""
    with closing(host.http("GET", port, "/metrics", timeout=timeout, address=address)) as response:
        return response.read() if response.status == 200 else None


def counts(host: ReadableHost, question: Question) -> tuple[float | None, ...] | None:
    """The engine's own counters; empty when it tells none of them, None when it does not answer."""
    try:
        content = read_metrics(host, question.port, question.address, min(10.0, question.deadline))
    except OSError:
        return None
    if content is None:
        return ()
    exposition = content.decode("utf-8", "replace")
    found = tuple(sum_of(name, exposition) for name in question.counters)
    return found if any(value is not None for value in found) else ()


def sum_of(name: str, exposition: str) -> float | None:
    """The sum of a metric over its labels, in Prometheus' text format; None when it is not there."""
    found = None
    for line in exposition.splitlines():
        if line.startswith(name) and line[len(name) : len(name) + 1] in ("{", " "):
            try:
                found = (found or 0.0) + float(line.rsplit(" ", 1)[1])
            except ValueError:
                continue
    return found


def _refused(response: HttpResponse, question: Question) -> EndpointState:
    try:
        answer = in_one_line(response.read().decode("utf-8", "replace"), 200)
    except OSError:
        answer = ""
    detail = f"HTTP {response.status}{': ' + answer if answer else ''}"
    if response.status in (401, 403):
        return EndpointState(Serving.UNAUTHORISED, f"HTTP {response.status}")
    if response.status in LOADING_STATUS:
        return EndpointState(Serving.LOADING, detail)
    if response.status == 404:
        return EndpointState(Serving.FAILED, f"no model is served as {question.model} ({detail})")
    if response.status >= 500:
        return EndpointState(Serving.BROKEN, detail)
    return EndpointState(Serving.FAILED, detail)


def _read(
    response: HttpResponse, question: Question, began: float, monotonic: Callable[[], float]
) -> EndpointState:
    pieces: list[str] = []
    first: float | None = None
    ended = False
    try:
        for piece in _pieces(response):
            if piece is None:
                ended = True
                break
            first = monotonic() - began if first is None else first
            pieces.append(piece)
            if monotonic() - began > question.deadline:
                break
    except TimeoutError:
        pass
    except OSError as error:
        return EndpointState(Serving.BROKEN, f"the answer broke off: {error}")
    if not pieces and not ended:
        return EndpointState(Serving.WEDGED, f"no token within {question.deadline:.0f} s")
    text = " ".join("".join(pieces).split())[:200]
    if degenerate(pieces):
        what = f"only {pieces[0]!r}, {len(pieces)} times" if pieces else "an empty answer"
        return EndpointState(Serving.DEGENERATE, what, first, text)
    return EndpointState(Serving.READY, "", first, text)


def degenerate(pieces: list[str]) -> bool:
    """Nothing at all, or one piece again and again."""
    if not any(piece.strip() for piece in pieces):
        return True
    return len(pieces) >= DEGENERATE_FROM and len({piece.strip() for piece in pieces}) == 1


def _pieces(response: HttpResponse) -> Iterator[str | None]:
    """The texts of a stream as they come; None when it says that it is done. Raises StreamError."""
    for event in events(response.lines()):
        if event is None:
            yield None
            return
        for piece in pieces(event):
            yield piece.text
