"""What the GPUs say: one that a container has lost, and clocks that are stuck.

Asked once a minute, and at once when tokens fail to come. A container that has lost its GPU (NVML says
"Unknown Error") goes on as long as nothing opens the GPU anew; only a new container helps. Stuck clocks are
physical: told, and never a reason to restart (principle 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.errors import SparkopError
from sparkop.hosts.base import Json, ReadableHost
from sparkop.hosts.document import Document, LostGpu, parse_document
from sparkop.node.gpus import LOST
from sparkop.resources.base import Clock
from sparkop.resources.checks import machine
from sparkop.resources.checks.model import Look, Nodes, State, findings
from sparkop.resources.desired import Desired
from sparkop.resources.group import Found
from sparkop.threads import side_by_side

EVERY = 60.0
"""Seconds between two questions while tokens come."""
SOON = 10.0
"""The same, while they do not."""
TIMEOUT = 15.0
CLOCKS = next(check for check in machine.CHECKS if check.id == "gpu.clock")


class Gpus:
    """Remembers what was said last."""

    def __init__(self, hosts: Mapping[str, ReadableHost], clock: Clock) -> None:
        self.hosts = hosts
        self.clock = clock
        self.lost = ""
        """Which rank's container has lost its GPU, and what says so."""
        self.node = ""
        """Where it runs."""
        self.certain = False
        """NVML itself was asked in the container; else only a line of its log says so."""
        self.stuck: dict[str, str] = {}
        """Node -> what to do about its clocks; seen at two readings."""
        self.readings: dict[str, str] = {}
        """Node -> use, clock and power, for the evidence."""
        self._doubt: set[str] = set()
        self._asked_at: float | None = None
        self._asked_of: tuple[str, ...] = ()

    def look(self, desired: Desired, ranks: tuple[Found, ...], *, failing: bool) -> None:
        """Ask when it is time. ``failing``: the last generation brought no good tokens."""
        now, of = self.clock.monotonic(), tuple(found.container.id for found in ranks)
        if of != self._asked_of:
            self.lost, self.certain = "", False
        elif self._asked_at is not None and now - self._asked_at < (SOON if failing else EVERY):
            return
        self._asked_at, self._asked_of = now, of
        gpus = desired.spec.engine.container.gpus
        by_node: dict[str, list[str]] = {}
        for found in ranks:
            by_node.setdefault(found.node, []).append(found.container.name)

        def ask(node: str) -> Document | None:
            request: dict[str, Json] = {"sections": ["lost_gpus", *(("gpu",) if gpus else ())]}
            request["lost_gpus"] = {"containers": by_node[node], "always": gpus and failing}
            try:
                raw = self.hosts[node].probe({**request, "gpu": gpus}, timeout=TIMEOUT)
                return parse_document(raw, node=node)
            except (SparkopError, OSError):
                return None  # the tick tells it

        answers = dict(zip(by_node, side_by_side(ask, by_node, "gpus"), strict=True))
        self._judge_lost(ranks, answers)
        self._judge_clocks(desired, answers, failing)

    def _judge_lost(self, ranks: tuple[Found, ...], answers: Mapping[str, Document | None]) -> None:
        self.lost, self.certain = "", False
        for found in ranks:
            document = answers[found.node]
            said = (document.lost_gpus or {}).get(found.container.name) if document else None
            evidence = _evidence(said)
            if evidence and not self.certain:
                self.node = found.node
                self.lost = f"the container of {found.resource} on {found.node} has lost its GPU: {evidence}"
                self.certain = said is not None and said.exec is not None

    def _judge_clocks(self, desired: Desired, answers: Mapping[str, Document | None], failing: bool) -> None:
        """A group whose ranks wait for each other looks the same: only while tokens come it is the clocks."""
        for node in desired.spec.nodes:
            document = answers.get(node.name)
            if document is None or document.gpu is None:
                continue
            said = findings(CLOCKS, Look(desired, node, Nodes({node.name: document})))
            self.readings[node.name] = "; ".join(each.text for each in said)
            bad = [each for each in said if each.state is State.FAIL]
            if bad and not failing:
                if node.name in self._doubt:
                    self.stuck[node.name] = f"{bad[0].text}: {bad[0].remedy}"
                self._doubt.add(node.name)
            elif not bad and any(_under_load(device) for device in document.gpu.devices):
                self._doubt.discard(node.name)
                self.stuck.pop(node.name, None)


def _evidence(said: LostGpu | None) -> str:
    """What says that the GPU is lost; empty when nothing does, or NVML answers."""
    if said is None or said.exec == "ok":
        return ""
    if said.exec is not None:
        return " ".join(said.exec.split())[:200] if LOST.search(said.exec) else ""
    return (said.log or "")[:200]


def _under_load(device: Any) -> bool:
    """At rest a GPU is slow and cool, stuck or not."""
    return (device.utilization_percent or 0) >= machine.FULL
