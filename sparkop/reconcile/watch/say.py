"""What ``watch`` says on stdout: what has changed since the last look, as structured events."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Protocol

from sparkop.errors import NO_FAILURES
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.watch.story import Fault
from sparkop.resources.endpoint import NO_GOOD_TOKENS
from sparkop.resources.events import Event, Phase
from sparkop.resources.liveness import Life
from sparkop.resources.operations import with_remedy


class Say(Protocol):
    """Gets every structured event: a name and its fields, never a secret."""

    def __call__(self, event: str, **fields: Any) -> None: ...


class Teller:
    """Says each thing once, and again only when it has changed."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.told: dict[str, str] = {}

    def tell(
        self,
        reading: Reading,
        plan: Plan,
        life: Life,
        faults: Mapping[str, Fault],
        *,
        undecided: bool,
        aside: bool,
    ) -> None:
        """One look: how the group does, what is wrong, what is planned or held back. ``undecided``: whether
        the group gives tokens is not known yet, so that nobody can say that all is well. ``aside``: another
        writer is at work: what is planned is left to it, and that nothing is says nothing yet."""
        self.state("life", str(life.verdict), event="group", verdict=str(life.verdict), detail=life.detail)
        self.faults(faults, over=[what for what in self._faults() if what not in faults])
        known = [f"{fault.node}: {with_remedy(fault.what, fault.remedy)}" for fault in faults.values()]
        notes = (text for text in plan.warnings if text not in known)
        warnings = {f"warning {text.partition(':')[0]}": text for text in notes}
        for name, text in warnings.items():
            self.state(name, text, event="note", text=text)
        held = {f"held {_steady(text)}": text for text in plan.held}
        for name, text in held.items():
            self.state(name, "told", event="held", text=text)
        self._forget({*warnings, *held}, bad=life.last_bad is not None)
        if plan.operations and aside:
            self.told.pop("rest", None)
        elif plan.operations:
            why, node = why_of(plan), cause_node(plan)
            self.told.pop("rest", None)
            self.state("plan", why, event="planned", operations=len(plan.operations), node=node, why=why)
        else:
            nodes, of = len(reading.observed.documents), len(reading.desired.spec.nodes)
            good = plan.converged
            self.told.pop("plan", None)
            if not (good and (undecided or aside)):
                self.state("rest", str(good), event="looked", nodes=nodes, of=of, converged=good)

    def faults(self, faults: Mapping[str, Fault], *, over: Iterable[str]) -> None:
        """What is wrong, and which of what was wrong is ``over``."""
        for what, fault in faults.items():
            self.state(
                f"fault {what}",
                _steady(fault.text),
                event="fault",
                node=fault.node,
                what=what,
                text=fault.text,
            )
        for what in over:
            if self.told.pop(f"fault {what}", None) is not None:
                self.say("mended", what=what)

    def _forget(self, texts: Container[str], *, bad: bool) -> None:
        """``bad``: the last tokens were not good either. What was a warning has become more than that."""
        for name in [n for n in self.told if n.startswith(("warning ", "held ")) and n not in texts]:
            text = self.told.pop(name)
            if name.startswith("warning ") and not (bad and NO_GOOD_TOKENS in text):
                self.say("note-over", text=text)

    def _faults(self) -> list[str]:
        return [name.removeprefix("fault ") for name in self.told if name.startswith("fault ")]

    def state(self, name: str, value: str, *, event: str = "", **fields: Any) -> None:
        """Say it when it is not what was said last."""
        if self.told.get(name, "") == value:
            return
        self.told[name] = value
        if event:
            self.say(event, **{key: field for key, field in fields.items() if field not in (None, "")})

    def listen(self, event: Event) -> None:
        """The executor's events, as structured ones."""
        operation = event.operation
        if event.phase is Phase.NOTE:
            self.say("note", node=event.node, text=event.text)
        elif operation is not None and event.phase in (Phase.STARTED, Phase.DONE, Phase.FAILED):
            fields: dict[str, Any] = {"node": operation.node, "resource": operation.resource}
            if event.phase is Phase.DONE:
                fields["seconds"] = round(event.seconds, 1)
            if isinstance(event.error, NO_FAILURES):  # it is to yield, to end or to begin anew
                self.say(f"{operation.action}-left", **fields, text=event.text)
                return
            if event.phase is Phase.FAILED:
                fields["error"] = event.text
            self.say(f"{operation.action}-{event.phase}", **fields)


def why_of(plan: Plan) -> str:
    """The cause of its first operation, in one line."""
    first = plan.operations[0]
    return f"{first.resource}: {first.cause.told_of(first.resource)}"


def cause_node(plan: Plan) -> str:
    """Where that is: a group is planned on the head, also when a worker is the cause."""
    first = plan.operations[0]
    return str(first.parameters.get("cause_node", first.node))


def _steady(text: str) -> str:
    """Without its times: a pause that gets shorter is told once."""
    return re.sub(r"[\d.]+ (s|min|h)\b", "", text)
