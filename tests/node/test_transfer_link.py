"""A degraded link is named before a long copy; a busy machine or a slow disk is not called one."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkop.node.transfer import link, peering
from sparkop.node.transfer.files import TransferError
from sparkop.node.transfer.link import verdict

SPARK = 200_000
"""Mb/s that a Spark's port reports."""


def measured() -> tuple[float, float, float]:
    """Rate and both ends' busy shares over loopback."""
    offered, serve = link.offer("127.0.0.1")
    theirs: list[float] = []
    sender = threading.Thread(target=lambda: theirs.append(serve()["busy"]))
    sender.start()
    rate, busy = link.measure("127.0.0.1", offered["port"], offered["token"])
    sender.join()
    return rate, busy, theirs[0]


@pytest.mark.parametrize(
    ("tries", "said"),
    [
        ([(13, 0.1)], "carries 13.0 of 200 Gb/s: degraded"),
        ([(92, 0.1)], ""),
        ([(97, 0.1)], ""),
        ([(30, 0.1)], ""),
        ([(9, 0.9), (13, 0.9)], "unknown: the processors are busy, and 13.0 of 200 Gb/s"),
        ([(9, 0.9), (13, 0.1), (8, 0.9)], "carries 13.0 of 200 Gb/s: degraded"),
        ([(13, 0.1), (92, 0.9)], ""),
        ([], ""),
    ],
)
def test_a_figure_is_judged_by_the_links_own_speed(tries: list[tuple[float, float]], said: str) -> None:
    """The known figures of healthy and degraded halves; of a processor that could not do more, just that."""
    told = verdict("10.0.0.1", SPARK, [(gigabits * 1e9 / 8, busy) for gigabits, busy in tries])
    assert said in told
    assert bool(told) is bool(said)


def test_what_a_processor_limits_says_nothing_of_the_link() -> None:
    """Loopback is as fast as the processor: never called degraded, whatever else this machine does now."""
    rate, busy, theirs = measured()
    assert rate > 0
    assert "degraded." not in verdict("127.0.0.1", SPARK, [(rate, max(busy, theirs))])


@pytest.mark.parametrize(
    ("tries", "asked", "said"),
    [
        ([(13, 0.9), (92, 0.2), (1, 0.1)], 2, ""),
        ([(13, 0.1), (12, 0.1), (14, 0.1)], 3, "carries 14.0 of 200 Gb/s"),
        ([(5, 0.9), (6, 0.9), (4, 0.9)], 3, "the processors are busy"),
        ([None], 1, ""),
        ([(13, 0.1), None], 2, "carries 13.0 of 200 Gb/s"),
    ],
)
def test_a_bad_figure_is_doubted(
    tries: list[tuple[float, float] | None], asked: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment in which the processors had other work is no property of the link."""
    left = [each and (each[0] * 1e9 / 8, each[1]) for each in tries]
    monkeypatch.setattr(link, "_try_once", lambda *_: left.pop(0))
    monkeypatch.setattr(link, "PAUSE", 0.0)
    told = link.look({"address": "10.0.0.1", "speed": SPARK}, None, "http://peer/speed", {})
    assert said in told
    assert bool(told) is bool(said)
    assert len(tries) - len(left) == asked


def test_a_link_that_only_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shaped link: the sender's bytes leave slowly and nobody's processor is busy."""
    real = link.socket.socket.sendall

    def slowly(self: link.socket.socket, data: bytes) -> None:
        time.sleep(0.05)
        real(self, data[:4096])

    monkeypatch.setattr(link.socket.socket, "sendall", slowly)
    rate, busy, theirs = measured()
    assert "carries" in verdict("127.0.0.1", SPARK, [(rate, max(busy, theirs))])


def test_a_share_is_asked_over_a_connection_that_both_ends_keep(tmp_path: Path) -> None:
    """As over ssh, whose end would be that of the measurement."""
    state = tmp_path / "state"
    (state / "transfer").mkdir(parents=True)
    (state / "transfer" / "share.json").write_text(json.dumps({"fabric": "127.0.0.1"}))
    program = f"from sparkop.node.transfer.serve import answer_on_stdio; answer_on_stdio({str(state)!r})"
    source = {"address": "127.0.0.1", "speed": 10**9}  # so fast that any figure is a degraded one
    command = [sys.executable, "-c", program]
    known = link.BUSY
    try:
        link.BUSY = float("inf")
        assert "carries" in link.look(source, command, "http://peer/speed", {})
    finally:
        link.BUSY = known


def test_a_way_that_bears_the_fabrics_address_out_of_another_interface_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A route with ``src`` may show the fabric's address and yet leave by Wi-Fi: the interface counts too."""
    peering.check_route("127.0.0.1", "127.0.0.1", "lo")
    monkeypatch.setattr(peering, "_interface_to", lambda _: "wlan0")
    with pytest.raises(TransferError, match=r"leaves the fabric: by wlan0 from 127.0.0.1, not by lo"):
        peering.check_route("127.0.0.1", "127.0.0.1", "lo")
    peering.check_route("127.0.0.1", "127.0.0.1", "a name that the kernel does not know")
    peering.check_route("127.0.0.1", "", "lo")


def test_who_does_not_show_the_token_gets_nothing() -> None:
    offered, serve = link.offer("127.0.0.1")
    threading.Thread(target=serve, daemon=True).start()
    rate, _ = link.measure("127.0.0.1", offered["port"], "0" * 32)
    assert rate == 0
