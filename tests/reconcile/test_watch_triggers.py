"""What wakes watch before its next tick, and that following it ends with the watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.streams import Closable, Stream
from sparkop.reconcile.watch.triggers import Triggers
from tests.reconcile.simulation import spec_of

Stamp = list[int] | None


class Node:
    """Answers when the test lets it; remembers what it was asked to wait for."""

    def __init__(self) -> None:
        self.containers = self
        self.stamps: list[Stamp] = []
        self.asked: list[Mapping[str, Any]] = []
        self.more = threading.Condition()

    def events(self, _filters: object) -> Stream[Any]:
        def nothing(_opened: object) -> Iterator[Any]:
            return iter(())

        return Stream(nothing)

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        with self.more:
            self.asked.append(request["changed"])
            self.more.notify_all()
            if not self.more.wait_for(lambda: bool(self.stamps), 10):
                raise UnreachableError("no answer")
            return {"changed": {"stamp": self.stamps.pop(0)}}

    def answer(self, stamp: Stamp) -> None:
        """Answer the question that is open, and see the next one."""
        with self.more:
            before = len(self.asked)
            self.stamps.append(stamp)
            self.more.notify_all()
            assert self.more.wait_for(lambda: len(self.asked) > before, 10)


def test_a_record_of_the_guard_wakes_and_an_old_one_does_not() -> None:
    """Also while Docker hangs: it is a file of the state folder that is waited for."""
    node, wake = Node(), threading.Event()
    with Triggers(spec_of(1), {"spark-1": node}, wake):  # type: ignore[dict-item]
        with node.more:
            assert node.more.wait_for(lambda: bool(node.asked), 10)
        node.answer([7, 1, 100])  # of last week: there before anybody watched
        assert not wake.is_set()
        assert node.asked[-1]["path"] == "trip.json"
        assert node.asked[-1]["seen"] == [7, 1, 100]
        node.answer([7, 1, 100])  # the time was over
        node.answer(None)  # apply --after-trip took it away
        assert not wake.is_set()
        node.answer([8, 2, 200])
        assert wake.wait(10)


@pytest.mark.parametrize("had_opened", [True, False])
def test_an_engine_that_ends_wakes_and_one_that_is_away_does_not(had_opened: bool) -> None:
    """Docker was killed and was back before the next look: events told of dead ranks, and not of Docker."""
    node, wake = Node(), threading.Event()
    ended = threading.Event()

    def ends(opened: Callable[[Closable], None]) -> Iterator[Any]:
        if had_opened:
            opened(BytesIO())
        ended.set()
        raise UnreachableError("Docker does not answer")
        yield

    spec = spec_of(1, memory={"guard": {"enabled": False}})
    node.events = lambda _filters: Stream(ends)  # type: ignore[method-assign]
    with Triggers(spec, {"spark-1": node}, wake):  # type: ignore[dict-item]
        assert ended.wait(10)
        assert wake.wait(10 if had_opened else 0.2) is had_opened


def test_a_cluster_without_guard_is_not_followed() -> None:
    node = Node()
    with Triggers(spec_of(1, memory={"guard": {"enabled": False}}), {"spark-1": node}, threading.Event()):  # type: ignore[dict-item]
        pass
    assert node.asked == []


def test_a_node_that_hangs_while_its_stream_is_opened_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    node, hangs, over, answered = Node(), threading.Event(), threading.Event(), []

    def hang(_filters: object) -> Stream[Any]:
        hangs.set()
        over.wait(10)
        answered.append(1)
        raise UnreachableError("no answer")

    monkeypatch.setattr(node, "events", hang)
    with Triggers(spec_of(2), {"spark-1": node, "spark-2": node}, threading.Event()):  # type: ignore[dict-item]
        assert hangs.wait(10)
    assert not answered
    over.set()
