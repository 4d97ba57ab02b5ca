"""Names and addresses of a lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.lab import layout
from sparkop.lab.layout import LabError, LabPaths


@pytest.mark.parametrize("name", ["", "Lab", "../etc", "a/b", "-x", "a b", "x" * 32, "lab\n"])
def test_a_name_that_is_no_plain_word_is_refused(name: str) -> None:
    """The name becomes a folder and a control group: it must not leave them."""
    if name:
        with pytest.raises(LabError):
            layout.lab_name(name)


def test_environment_names_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.LAB_VARIABLE, "mine")
    assert layout.lab_name() == "mine"
    assert layout.lab_name("other") == "other"
    monkeypatch.delenv(layout.LAB_VARIABLE)
    assert layout.lab_name() == "default"


@pytest.mark.parametrize("host", ["spark-0", "spark-5", "spark1", "spark-1x", "localhost", "spark-1.lab.lab"])
def test_unknown_hosts_are_refused(host: str) -> None:
    with pytest.raises(LabError):
        layout.host_index(host)


def test_addresses_are_the_documented_ones() -> None:
    assert layout.host_addresses("spark-2") == {
        "enP7s7": "10.77.0.12",
        "enp1s0f0np0": "10.78.0.12",
        "enP2p1s0f0np0": "10.79.0.12",
    }
    assert layout.host_index("spark-2.lab") == 2


def test_no_two_cards_share_a_mac_or_a_cable_name() -> None:
    cards = [(nic, index) for nic in layout.NICS for index in range(1, layout.MAX_HOSTS + 1)]
    assert len({nic.mac(index) for nic, index in cards}) == len(cards)
    names = [f"{nic.tag}{index}" for nic, index in cards]
    assert len(set(names)) == len(names)
    assert all(len(name) < 16 for name in [*names, *(nic.name for nic in layout.NICS)])


def test_one_name_under_two_state_roots_has_two_groups() -> None:
    """Else ``down`` of one would end the processes of the other."""
    groups = {LabPaths("default", Path(root)).cgroup for root in ("/var/lib/sparkop-lab", "/a", "/b")}
    assert len(groups) == 3
