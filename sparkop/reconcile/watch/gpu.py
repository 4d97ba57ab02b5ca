"""What the GPUs say: one that a container has lost, and clocks that are stuck.

Asked once a minute, and at once when tokens fail to come. Stuck clocks are physical: told, and never a reason
to restart (principle 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document
from sparkop.resources import lost_gpu
from sparkop.resources.base import Clock
from sparkop.resources.checks import machine
from sparkop.resources.checks.model import Look, Nodes, State, findings
from sparkop.resources.desired import Desired
from sparkop.resources.group import Found
from sparkop.resources.observed import Loss

EVERY = 60.0
"""Seconds between two questions while tokens come."""
SOON = 10.0
"""The same, while they do not."""
CLOCKS = next(check for check in machine.CHECKS if check.id == "gpu.clock")


class Gpus:
    """Remembers what was said last."""

    def __init__(self, hosts: Mapping[str, ReadableHost], clock: Clock) -> None:
        self.hosts = hosts
        self.clock = clock
        self.loss: Loss | None = None
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
            self.loss = None
        elif self._asked_at is not None and now - self._asked_at < (SOON if failing else EVERY):
            return
        self._asked_at, self._asked_of = now, of
        gpus = desired.spec.engine.container.gpus
        answers = lost_gpu.ask(self.hosts, ranks, gpus=gpus, always=gpus and failing)
        self.loss = lost_gpu.loss_in(ranks, answers)
        self._judge_clocks(desired, answers, failing)

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


def _under_load(device: Any) -> bool:
    """At rest a GPU is slow and cool, stuck or not."""
    return (device.utilization_percent or 0) >= machine.FULL
