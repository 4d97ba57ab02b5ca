"""A degraded link is named before a long copy; a busy machine or a slow disk is not called one (A4)."""

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
    ("gigabits", "busy", "named"),
    [(13, 0.1, True), (92, 0.1, False), (97, 0.1, False), (30, 0.1, False), (13, 0.9, False)],
)
def test_a_figure_is_judged_by_the_links_own_speed(gigabits: float, busy: float, named: bool) -> None:
    """The known figures of healthy and degraded halves; and none of a processor that could not do more."""
    told = verdict("10.0.0.1", SPARK, gigabits * 1e9 / 8, busy)
    assert bool(told) is named
    assert not told or "13.0 of 200 Gb/s" in told


def test_what_a_processor_limits_says_nothing_of_the_link() -> None:
    """Loopback is as fast as the processor: never named, whatever else this machine does now."""
    rate, busy, theirs = measured()
    assert rate > 0
    assert verdict("127.0.0.1", SPARK, rate, max(busy, theirs)) == ""


def test_a_link_that_only_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shaped link: the sender's bytes leave slowly and nobody's processor is busy."""
    real = link.socket.socket.sendall

    def slowly(self: link.socket.socket, data: bytes) -> None:
        time.sleep(0.05)
        real(self, data[:4096])

    monkeypatch.setattr(link.socket.socket, "sendall", slowly)
    rate, busy, theirs = measured()
    assert "degraded" in verdict("127.0.0.1", SPARK, rate, max(busy, theirs))


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
        assert "degraded" in link.look(source, command, "http://peer/speed", {})
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
