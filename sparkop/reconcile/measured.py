"""The engine's own figures beside the budget's: the KV cache that it made, the memory that is left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from sparkop.engines.budget.asked import asked
from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.lines import Budget
from sparkop.engines.budget.machine import NodeMemory
from sparkop.errors import SparkopError
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.checkpoint import at_hand
from sparkop.reconcile.observe import Reading
from sparkop.records import dataclass
from sparkop.serving.canary import Serving, read_metrics

TOLERATED = 0.05
"""Of the budget's pool; of a node's memory."""
TAIL = 5000
"""Lines of the head's log in which the engine's own line is looked for, where no metric has the figure."""


@dataclass(frozen=True)
class Measured:
    """One figure twice. ``source``: where the real one was read; ``off``: a warning, empty while it fits."""

    what: str
    node: str
    unit: str
    budget: int | None
    """None where the model's numbers are not known."""
    real: int
    source: str
    off: str = ""
    contexts: float | None = None
    """How many full contexts a KV cache holds."""


def measure(reading: Reading, hosts: Mapping[str, ReadableHost]) -> tuple[Measured, ...]:
    """Empty unless the group serves. What can't be read is left out."""
    spec = reading.desired.spec
    if reading.observed.endpoint.serving is not Serving.READY or not reading.desired.ranks:
        return ()
    head = hosts[spec.head.name]
    checkpoint = at_hand(spec, head)
    made = budget(spec, checkpoint, _memory(reading)) if checkpoint else None
    pool = _pool(reading, head, made)
    return (*([pool] if pool else []), *(_free(reading, made) if made is not None else ()))


def _memory(reading: Reading) -> dict[str, NodeMemory]:
    return {
        name: NodeMemory(document.memory.total)
        for name, document in reading.observed.documents.items()
        if document.memory is not None
    }


def _pool(reading: Reading, head: ReadableHost, made: Budget | None) -> Measured | None:
    """The KV cache that the engine has made, against one context and against the budget."""
    context = asked(reading.desired.spec).context
    planned = made.pool if made is not None else None
    if context is None and planned is None:
        return None
    found = _by_metric(reading, head) or _by_log(reading, head)
    if found is None:
        return None
    real, source = found
    wanted = planned.tokens if planned is not None else None
    off = ""
    if context is not None and real < context:
        off = (
            f"the KV cache holds {real:,} of the {context:,} tokens of one context: longer prompts are "
            "refused or cut; give it more memory, or lower engine.context (sparkop budget --fit context)"
        )
    elif planned is not None and abs(real - planned.tokens) > TOLERATED * max(planned.tokens, 1):
        off = f"the KV cache holds {real:,} tokens, the budget says {planned.tokens:,} ({planned.basis})"
    contexts = round(real / context, 3) if context else None
    return Measured("KV cache", reading.desired.head, "tokens", wanted, real, source, off, contexts)


def _by_metric(reading: Reading, head: ReadableHost) -> tuple[int, str] | None:
    name = reading.desired.engine.manners.metrics.pool_tokens
    if name is None:
        return None
    try:
        api = reading.desired.spec.api
        text = (read_metrics(head, api.port, api.own_address, 5.0) or b"").decode("utf-8", "replace")
    except (SparkopError, OSError):
        return None
    value = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})?\s+([0-9.eE+]+)", text, re.MULTILINE)
    return (int(float(value[1])), f"metric {name}") if value else None


def _by_log(reading: Reading, head: ReadableHost) -> tuple[int, str] | None:
    expression = re.compile(reading.desired.engine.manners.pool_line)
    rank = reading.desired.ranks[0]
    try:
        lines = list(islice(head.log_lines(rank.name, tail=TAIL), TAIL))
    except (SparkopError, OSError):
        return None
    found = [match for match in map(expression.search, lines) if match]
    return (int(found[-1][1].replace(",", "")), "the engine's log") if found else None


def _free(reading: Reading, made: Budget) -> list[Measured]:
    """Memory in use by the node's own word, against what the budget has between two prefills."""
    rows = []
    for rank in made.ranks:
        document = reading.observed.documents.get(rank.node)
        if document is None or document.memory is None or not made.weighed:
            continue
        left, real = rank.total.size - rank.steady, document.memory.available
        off = ""
        if abs(real - left) > TOLERATED * rank.total.size:
            off = f"{real / 1e9:.1f} GB of memory are available, the budget says {left / 1e9:.1f} GB"
        rows.append(Measured("available memory", rank.node, "bytes", left, real, "MemAvailable", off))
    return rows
