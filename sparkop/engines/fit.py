"""The largest safe value of one setting, by the memory budget and every rule. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sparkop.engines.budget.asked import asked
from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.checkpoint import Checkpoint
from sparkop.engines.budget.lines import Budget
from sparkop.engines.budget.machine import NodeMemory
from sparkop.engines.rules import check
from sparkop.errors import SpecError, UsageError
from sparkop.records import dataclass
from sparkop.spec.engines import SglangEngine, VllmEngine
from sparkop.spec.models import ClusterSpec, RulesSpec
from sparkop.spec.quantities import ByteSize

What = Literal["context", "sequences", "kv", "fraction"]
LONGEST = 1 << 24
"""Tokens; no model bears more."""
MOST_SEQUENCES = 4096
LARGEST = 1 << 40
"""Bytes; no node has more."""
KV_STEP = 10_000_000
"""Bytes between two sizes of the KV cache that are tried."""


@dataclass(frozen=True)
class Fit:
    """What was found. ``setting``: as ``--set`` takes it. ``stop``: what refuses the next larger value."""

    what: What
    setting: str
    value: str
    now: str
    """The spec's own value."""
    stop: str
    budget: Budget
    """With the value."""


@dataclass(frozen=True)
class _Knob:
    """One setting: steps from ``least`` to ``most``; ``make`` gives the spec with a step's value."""

    setting: str
    least: int
    most: int
    make: Callable[[int], ClusterSpec]
    text: Callable[[int], str]
    now: str
    enough: Callable[[Budget, int], str | None] = lambda _budget, _step: None
    """Why a value is too large although no rule refuses it."""


def fit(
    spec: ClusterSpec,
    what: What,
    checkpoint: Checkpoint | None = None,
    memory: dict[str, NodeMemory] | None = None,
) -> Fit:
    """The largest value of ``what`` that no rule refuses; overrides of the spec do not count here.

    Raises UsageError when the spec's engine has no such setting or an extra argument hides it, SpecError when
    no value is safe or the model has no budget.
    """
    spec = spec.model_copy(update={"rules": RulesSpec()})
    knob = _knob(spec, what)

    def refusal(step: int) -> str | None:
        changed = knob.make(step)
        found = budget(changed, checkpoint, memory)
        if found is None:
            raise SpecError(
                f"{spec.weights.repository} has no budget",
                remedy="read its configuration: sparkop budget --from nodes, or --from hub",
            )
        if found.pool is None and what in ("context", "sequences"):
            raise SpecError(f"the largest {what} is not known", cause=" ".join(found.unknown))
        for finding in check(changed, budget=found):
            lower = what in ("kv", "fraction") and finding.rule.id in ("budget.pool", "budget.state")
            if finding.refuses and not lower:
                return f"{finding.observed} [{finding.rule.id}]"
        return knob.enough(found, step)

    low, high = knob.least, knob.most
    first = refusal(low)
    if first is not None:
        raise SpecError(f"no {what} is safe, not even {knob.text(low)}", cause=first)
    stop = f"the largest that is tried is {knob.text(high)}"
    while low < high:
        middle = (low + high + 1) // 2
        refused = refusal(middle)
        if refused is None:
            low = middle
        else:
            high, stop = middle - 1, refused
    best = knob.make(low)
    found = budget(best, checkpoint, memory)
    assert found is not None
    for finding in check(best, budget=found):
        if finding.refuses:
            raise SpecError(
                f"no {what} is safe: {knob.text(low)} is the most that memory allows",
                cause=f"{finding.observed} [{finding.rule.id}]",
            )
    return Fit(what, f"{knob.setting}={knob.text(low)}", knob.text(low), knob.now, stop, found)


def _knob(spec: ClusterSpec, what: What) -> _Knob:
    wanted, engine = asked(spec), spec.engine
    names = {"context": "context", "sequences": "requests", "kv": "kv", "fraction": "fraction"}
    if wanted.paths.get(names[what]) == ("engine", "extraArgs"):
        raise UsageError(
            f"engine.extraArgs sets {what}, and it wins over the spec's field",
            remedy="take it out of engine.extraArgs, or look with --set",
        )
    if what == "context":
        step = wanted.block or 1
        return _Knob(
            "engine.context",
            1,
            LONGEST // step,
            lambda n: _engine(spec, context=n * step),
            lambda n: str(n * step),
            str(engine.context),
        )
    if what == "sequences":
        field = "max_sequences" if isinstance(engine, VllmEngine) else "max_requests"
        name = "maxSequences" if isinstance(engine, VllmEngine) else "maxRequests"
        return _Knob(
            f"engine.{name}",
            1,
            MOST_SEQUENCES,
            lambda n: _engine(spec, **{field: n}),
            str,
            str(getattr(engine, field)),
            _room_for,
        )
    if what == "fraction":
        return _Knob(
            "memory.gpuFraction",
            1,
            100,
            lambda n: _memory(spec, gpu_fraction=n / 100),
            lambda n: f"{n / 100:g}",
            str(spec.memory.gpu_fraction),
        )
    if isinstance(engine, SglangEngine):
        raise UsageError(
            "SGLang has no size of the KV cache in bytes: it follows from memory.gpuFraction",
            remedy="sparkop budget --fit fraction finds the largest share, and with it the largest cache",
        )
    return _Knob(
        "memory.kvCache",
        1,
        LARGEST // KV_STEP,
        lambda n: _memory(spec, kv_cache=ByteSize(n * KV_STEP)),
        lambda n: f"{n * KV_STEP // 10**6}MB",
        str(spec.memory.kv_cache),
    )


def _room_for(found: Budget, sequences: int) -> str | None:
    """Sequences that really run at once: by state slots where there are any, else by full contexts."""
    if found.slots is not None:
        if sequences > found.slots.requests:
            return f"{found.slots.count} state slots let {found.slots.requests} requests run"
    elif found.pool is not None and found.pool.context and sequences > found.pool.contexts:
        return f"the KV cache holds {found.pool.contexts:.2f} full contexts"
    return None


def _engine(spec: ClusterSpec, **values: object) -> ClusterSpec:
    return spec.model_copy(update={"engine": spec.engine.model_copy(update=values)})


def _memory(spec: ClusterSpec, **values: object) -> ClusterSpec:
    return spec.model_copy(update={"memory": spec.memory.model_copy(update=values)})
