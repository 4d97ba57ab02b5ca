"""Rules of engines and models as data: what is refused or warned of, why, and how to set it aside.

A rule looks at a spec, and at facts of the nodes where it needs them. A rule that refuses can be set aside
by its id, with a reason, in ``rules.override`` of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from sparkop.engines.base import NodeFacts
from sparkop.engines.budget.lines import Budget
from sparkop.records import dataclass
from sparkop.spec.models import ClusterSpec
from sparkop.spec.suggest import nearest

Path = tuple[str | int, ...]
"""Where a value stands in the spec, in YAML keys."""
Facts = Sequence[NodeFacts] | None
"""Facts of the nodes that were read, or None when no node was asked."""


class Severity(StrEnum):
    """What a finding means."""

    ERROR = "error"
    """The spec is refused."""
    WARNING = "warning"
    """The user is told."""


@dataclass(frozen=True)
class Breach:
    """A place that a rule objects to, in words that begin a sentence (``chunkedPrefill is 4096``)."""

    path: Path
    observed: str


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. ``reason`` and ``remedy`` are shown to the user."""

    id: str
    applies_to: str
    reason: str
    source: str
    """Where the fact comes from: a recipe, a principle, an engine's source."""
    remedy: str
    find: Callable[[ClusterSpec, Facts], Iterable[Breach]]
    severity: Severity = Severity.ERROR
    overridable: bool = True


@dataclass(frozen=True)
class Finding:
    """A rule that objects to something."""

    rule: Rule
    path: Path
    observed: str
    override: str | None = None
    """The user's reason, when the rule was set aside."""

    @property
    def refuses(self) -> bool:
        """Whether the spec may not be applied as it is."""
        return self.rule.severity is Severity.ERROR and self.override is None

    @property
    def message(self) -> str:
        """What is wrong, why, and what to do: three clauses of one line."""
        return f"{self.observed}: {self.rule.reason}. Instead: {self.rule.remedy}"


def all_rules(budget: Budget | None = None) -> tuple[Rule, ...]:
    """Every rule, in the order in which findings are shown; those of memory on ``budget`` if it is given."""
    from sparkop.engines import rules_budget, rules_common, rules_sglang, rules_vllm

    memory = rules_budget.rules(budget)
    return (*rules_common.RULES, *rules_sglang.RULES, *rules_vllm.RULES, *memory)


def check(spec: ClusterSpec, facts: Facts = None, budget: Budget | None = None) -> list[Finding]:
    """What the rules object to, errors first. Rules that were set aside are in it, with the user's reason.

    ``budget``: None makes one of the shipped numbers, where the model's are shipped.
    """
    reasons = {each.id: each.reason for each in spec.rules.override}
    rules = all_rules(budget)
    findings = [
        Finding(rule, breach.path, breach.observed, reasons.get(rule.id) if rule.overridable else None)
        for rule in rules
        for breach in rule.find(spec, facts)
    ]
    findings += _useless_overrides(spec, rules)
    return sorted(findings, key=lambda finding: finding.rule.severity is Severity.WARNING)


def refusals(findings: Iterable[Finding]) -> list[tuple[Path, str, str]]:
    """Path, message and rule id of what refuses the spec, as ``LoadedSpec.refuse`` takes them."""
    return [(each.path, each.message, each.rule.id) for each in findings if each.refuses]


def _useless_overrides(spec: ClusterSpec, rules: Sequence[Rule]) -> list[Finding]:
    known = {rule.id: rule for rule in rules}
    found = []
    for index, override in enumerate(spec.rules.override):
        path = ("rules", "override", index, "id")
        rule = known.get(override.id)
        if rule is None:
            near = nearest(override.id, known)
            hint = f"; {near}" if near else ""
            found.append(Finding(_UNKNOWN, path, f"there is no rule {override.id}{hint}"))
        elif not rule.overridable:
            found.append(Finding(_FIXED, path, f"{override.id} can't be set aside"))
    return found


def _nothing(_spec: ClusterSpec, _facts: Facts) -> Iterable[Breach]:
    return ()


_UNKNOWN = Rule(
    id="rules.unknown",
    applies_to="every spec",
    reason="an override without its rule protects nothing and hides a misspelling",
    source="sparkop",
    remedy="take it out, or write the id as the refusal shows it",
    find=_nothing,
    overridable=False,
)
_FIXED = Rule(
    id="rules.fixed",
    applies_to="every spec",
    reason="it guards a secret",
    source="principle 10",
    remedy="take the override out and follow the rule's remedy",
    find=_nothing,
    overridable=False,
)
