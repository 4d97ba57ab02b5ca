"""The typed document: strict, tolerant to news, and unknown is not empty. Rails from recorded tables."""

from __future__ import annotations

from typing import Any

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.base import VERSION
from sparkop.hosts.document import Document, parse_document
from sparkop.hosts.rails import Rail, joined, joined_everywhere, rails, select_fabric

EMPTY = {"version": VERSION, "nonce": "n"}


def test_what_was_not_read_is_unknown() -> None:
    document = parse_document({**EMPTY, "errors": {"docker": "denied", "files:/a": "EACCES"}})
    assert document.docker is None
    assert document.memory is None
    assert document.error("docker") == document.error("docker", "x") == "denied"
    assert document.error("files", "/a") == "EACCES"
    assert document.error("files") is None


def test_news_of_a_newer_probe_is_ignored() -> None:
    memory = {"total": 2, "available": 1, "free": 1, "huge": 7}
    document = parse_document({**EMPTY, "memory": memory, "weather": "fine"})
    assert document.memory is not None
    assert document.memory.total == 2


@pytest.mark.parametrize(
    ("part", "where"),
    [
        (
            {"memory": {"total": "2", "available": 1, "free": 1}},
            "memory.total should be a whole number, not str",
        ),
        (
            {"memory": {"total": True, "available": 1, "free": 1}},
            "memory.total should be a whole number, not bool",
        ),
        ({"memory": {"total": 1.5, "available": 1, "free": 1}}, "memory.total"),
        ({"memory": {"available": 1, "free": 1}}, "memory.total is missing"),
        ({"memory": []}, "memory should be a mapping"),
        (
            {"fabric": {"devices": [{"name": "a", "state": "ACTIVE", "netdevs": "b"}]}},
            "fabric.devices.0.netdevs",
        ),
        ({"ports": {"8000": {"listening": 1}}}, "ports.8000.listening should be true or false"),
        ({"version": 2}, "version 2"),
    ],
)
def test_wrong_types_are_unknown_and_named(part: dict[str, Any], where: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        parse_document({**EMPTY, **part}, node="spark-1")
    assert where in (caught.value.cause or "")
    assert caught.value.node == "spark-1"


def gid(index: int, address: str, kind: str = "RoCE v2") -> dict[str, Any]:
    return {"index": index, "gid": address, "type": kind, "netdev": None}


MAPPED = "0000:0000:0000:0000:0000:ffff:c0a8:64"


def fabric(*devices: tuple[str, str, str, str | None, list[dict[str, Any]]]) -> Document:
    """Device, state, interface, address, GIDs."""
    return parse_document(
        {
            **EMPTY,
            "fabric": {
                "devices": [
                    {"name": name, "state": state, "netdevs": [interface], "gids": gids}
                    for name, state, interface, _, gids in devices
                ],
                "interfaces": [
                    {
                        "name": interface,
                        "operstate": "up",
                        "carrier": True,
                        "mtu": 9000,
                        "addresses": ["fe80::1/64", *([address] if address else [])],
                    }
                    for _, _, interface, address, _ in devices
                ],
            },
        }
    )


def test_the_recorded_pair_in_one_subnet() -> None:
    """show_gids of a real Spark: both halves in 192.168.100.x, link-local GIDs first, v1 before v2."""
    table = [
        (
            "roceP2p1s0f0",
            "ACTIVE",
            "enP2p1s0f0np0",
            "192.168.100.14/24",
            [gid(1, "fe80::1"), gid(2, MAPPED + "0e", "IB/RoCE v1"), gid(3, MAPPED + "0e")],
        ),
        ("roceP2p1s0f1", "DOWN", "enP2p1s0f1np1", None, [gid(1, "fe80::2")]),
        (
            "rocep1s0f0",
            "ACTIVE",
            "enp1s0f0np0",
            "192.168.100.10/24",
            [gid(0, "fe80::3", "IB/RoCE v1"), gid(2, MAPPED + "0a", "IB/RoCE v1"), gid(3, MAPPED + "0a")],
        ),
        ("rocep1s0f1", "DOWN", "enp1s0f1np1", None, [gid(1, "fe80::4")]),
    ]
    selected = select_fabric(fabric(*table))
    assert selected is not None
    assert selected.hcas == ("rocep1s0f0", "roceP2p1s0f0")
    assert (selected.address, selected.interface, selected.gid_index) == ("192.168.100.10", "enp1s0f0np0", 3)


def test_devices_that_disagree_leave_the_index_open() -> None:
    document = fabric(
        ("a", "ACTIVE", "i0", "192.168.100.10/24", [gid(3, MAPPED + "0a")]),
        ("b", "ACTIVE", "i1", "192.168.100.14/24", [gid(5, MAPPED + "0e")]),
    )
    selected = select_fabric(document)
    assert selected is not None
    assert selected.gid_index is None
    only = select_fabric(document, ["b"])
    assert only is not None
    assert (only.hcas, only.gid_index, only.address) == (("b",), 5, "192.168.100.14")


def test_an_index_that_is_not_there_yet() -> None:
    selected = select_fabric(fabric(("a", "ACTIVE", "i0", "192.168.100.10/24", [gid(1, "fe80::1")])))
    assert selected is not None
    assert selected.gid_index is None


@pytest.mark.parametrize("state", ["DOWN", "INIT", "UNKNOWN"])
def test_only_active_devices_with_ipv4_are_rails(state: str) -> None:
    document = fabric(("a", state, "i0", "192.168.100.10/24", []), ("b", "ACTIVE", "i1", None, []))
    assert rails(document) == ()
    assert select_fabric(document) is None


def rail(device: str, address: str) -> Rail:
    return Rail(device, f"i{device}", address, 24, 3, 9000)


def ends(*pairs: tuple[Rail, Rail]) -> list[str]:
    return [f"{own.device}-{other.device}" for own, other in pairs]


def test_rails_are_joined_by_their_network() -> None:
    """Crossed ports: names say nothing. Both halves in one subnet: names say what belongs together."""
    own = [rail("a", "10.0.1.1"), rail("b", "10.0.2.1")]
    crossed = [rail("a", "10.0.2.2"), rail("b", "10.0.1.2")]
    assert ends(*joined(own, crossed)) == ["a-b", "b-a"]
    assert ends(*joined(own, [rail("c", "10.0.2.2")])) == ["b-c"]
    assert ends(*joined(own, [rail("a", "10.0.3.2")])) == []
    one = [rail("a", "10.0.1.1"), rail("b", "10.0.1.2")]
    assert ends(*joined(one, [rail("b", "10.0.1.3"), rail("a", "10.0.1.4")])) == ["a-a", "b-b"]
    assert ends(*joined(one, [rail("b", "10.0.1.3"), rail("c", "10.0.1.4")])) == ["a-c", "b-b"]
    assert ends(*joined(one, [rail("c", "10.0.1.4")])) == ["a-c"]


def test_the_nth_rails_of_all_nodes_are_in_one_network() -> None:
    first = [rail("a", "10.0.1.1"), rail("b", "10.0.2.1"), rail("c", "10.0.3.1")]
    second = [rail("a", "10.0.3.2"), rail("b", "10.0.1.2"), rail("c", "10.0.2.2")]
    third = [rail("x", "10.0.3.3"), rail("y", "10.0.1.3")]
    found = joined_everywhere([first, second, third])
    assert [[each.device for each in node] for node in found] == [["a", "c"], ["b", "a"], ["y", "x"]]
    assert joined_everywhere([first, second, []]) == ((), (), ())
    assert joined_everywhere([first]) == ((),)
    assert joined_everywhere([]) == ()
