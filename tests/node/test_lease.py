"""The lease as a machine of states: whatever the order of events, at most one may write, and tokens grow."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkop.node import lease

HOLDERS = st.sampled_from(["a", "b", "c"])


class Contenders(RuleBasedStateMachine):
    """Three holders that look, take, renew, give back, break, and sleep in between with what they saw."""

    def __init__(self) -> None:
        super().__init__()
        self.lease: dict[str, Any] | None = None
        self.seen: dict[str, dict[str, Any] | None] = {}
        self.token: dict[str, int] = dict.fromkeys("abc", 0)
        self.highest = 0

    def fence(self, holder: str) -> dict[str, Any]:
        return {"cluster": "c", "holder": holder, "token": self.token[holder]}

    def step(self, name: str, holder: str, **arguments: Any) -> bool:
        try:
            self.lease = lease.STEPS[name](self.lease, self.fence(holder), arguments)
        except lease.LeaseError:
            return False
        return True

    @rule(holder=HOLDERS)
    def look(self, holder: str) -> None:
        self.seen[holder] = dict(self.lease) if self.lease else None

    @rule(holder=HOLDERS)
    def take(self, holder: str) -> None:
        before, saw = self.lease, self.seen.get(holder)
        self.token[holder] = (saw["epoch"] if saw else 0) + 1
        taken = self.step("lease.acquire", holder, expected=saw)
        held = before is not None and not before["released"] and before["holder"] != holder
        if taken and held:
            assert before == {**(saw or {}), "wanted": before["wanted"]}, "it had moved since it was seen"

    @rule(holder=HOLDERS)
    def break_it(self, holder: str) -> None:
        self.token[holder] = (self.lease["epoch"] if self.lease else 0) + 1
        assert self.step("lease.acquire", holder, force=True)

    @rule(holder=HOLDERS)
    def renew(self, holder: str) -> None:
        before = self.lease
        if self.step("lease.renew", holder):
            assert before is not None
            assert self.lease is not None
            assert self.lease["heartbeat"] == before["heartbeat"] + 1

    @rule(holder=HOLDERS)
    def give_back(self, holder: str) -> None:
        self.step("lease.release", holder)

    @rule(holder=HOLDERS)
    def ask(self, holder: str) -> None:
        owner = self.lease and self.lease["holder"]
        self.step("lease.ask", holder)
        assert (self.lease and self.lease["holder"]) == owner

    @invariant()
    def at_most_one_may_write(self) -> None:
        writers = []
        for holder in "abc":
            with contextlib.suppress(lease.LeaseError):
                lease.check(self.lease, self.fence(holder))
                writers.append(holder)
        assert len(writers) <= 1

    @invariant()
    def tokens_grow(self) -> None:
        now = self.lease["epoch"] if self.lease else 0
        assert now >= self.highest
        self.highest = now


TestContenders = Contenders.TestCase
