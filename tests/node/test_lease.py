"""The lease as a machine of states: whatever the order of events, at most one may write, and tokens grow."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
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


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be made or grow."""
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", opened)


def test_a_write_drops_the_signs_of_watches_that_were_killed(tmp_path: Path) -> None:
    """They stayed in the file until another watch came."""
    now = time.time()
    signs = {"alive": {"at": now - 20}, "killed": {"at": now - lease.FORGOTTEN - 1}, "broken": None}
    lease.write(str(tmp_path), {**HELD, "watches": signs})
    fence = {"cluster": "c", "holder": "a", "token": 3}
    lease.perform(str(tmp_path), "lease.renew", fence, {})
    after = lease.read(str(tmp_path))
    assert after is not None
    assert list(after["watches"]) == ["alive"]


def test_the_file_tells_when_the_lease_was_renewed_last(tmp_path: Path) -> None:
    """By the node's clock: who only looks once can't see a heartbeat stand still."""
    fence = {"cluster": "c", "holder": "a", "token": 3}
    lease.write(str(tmp_path), {**HELD, "renewed": 1.0})
    assert lease.perform(str(tmp_path), "lease.watching", fence, {"info": {}})["renewed"] == 1.0
    before = time.time()
    assert before <= lease.perform(str(tmp_path), "lease.renew", fence, {})["renewed"] <= time.time()
    assert lease.perform(str(tmp_path), "lease.release", fence, {})["renewed"] >= before


HELD: dict[str, Any] = {
    "version": 1, "cluster": "c", "holder": "a", "epoch": 3, "heartbeat": 9, "released": False,
    "info": {"host": "laptop", "command": "apply"}, "wanted": {"holder": "b", "info": {}},
}  # fmt: skip


def test_who_has_lost_the_lease_is_told_that_another_had_it_since(tmp_path: Path) -> None:
    """An apply that woke up was told that "the lease of token 16 was given back": it had given back none."""
    lease.write(str(tmp_path), {**HELD, "holder": "b", "epoch": 4, "released": True})
    fence = {"cluster": "c", "holder": "a", "token": 3}
    with pytest.raises(
        lease.LeaseError, match=r"another sparkop has had it since: b \(apply\), token 4; the"
    ):
        lease.perform(str(tmp_path), "lease.renew", fence, {})


@pytest.mark.parametrize("step", ["lease.renew", "lease.release", "lease.acquire"])
def test_on_a_full_disk_a_lease_is_kept_given_back_and_taken_again(
    step: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It could not be given back: the next command watched for half a minute a holder that was gone."""
    lease.write(str(tmp_path), HELD if step != "lease.acquire" else {**HELD, "released": True})
    fence = {"cluster": "c", "holder": "a", "token": 3}
    if step == "lease.acquire":
        fence = {"cluster": "c", "holder": "somebody-else", "token": 4}
    request.getfixturevalue("full_disk")
    after = lease.perform(str(tmp_path), step, fence, {"info": {"host": "laptop", "command": "a" * 99}})
    assert lease.read(str(tmp_path)) == after
    assert after != HELD


def test_a_lease_that_needs_room_is_not_written_over_on_a_full_disk(tmp_path: Path, full_disk: None) -> None:
    """Half a lease is worse than none: what does not fit into one write where it stands is refused."""
    path = tmp_path / lease.NAME
    path.write_text(json.dumps(HELD))
    with pytest.raises(OSError, match="No space left"):
        lease.write(str(tmp_path), {**HELD, "info": {"host": "x" * lease.PAGE}})
    assert json.loads(path.read_text()) == HELD
    path.unlink()
    with pytest.raises(OSError, match="No space left"):
        lease.write(str(tmp_path), HELD)
    assert not path.exists()
