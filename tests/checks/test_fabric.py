"""`sparkop fabric`: what is drawn is true, whatever the nodes are like, and can be read."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sparkop.cli import run
from tests.checks.cases import BASE, ROOT, SPEC

DEVICES = ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")
REASON = "OSError: [Errno 5] Input/output error, told in a sentence that is wider than the box of any node"
SVG = "{http://www.w3.org/2000/svg}"


def spark(number: int, networks: dict[str, int]) -> dict[str, Any]:
    """A node whose devices are in these networks (10.N.0.0/24); the others are down."""
    node: dict[str, Any] = deepcopy(json.loads(BASE.read_text())["spark-1"])
    node["machine"]["machine_id"] = f"machine-{number}"
    fabric = node["fabric"]
    interfaces = {interface["name"]: interface for interface in fabric["interfaces"]}
    fabric["routes"], node["pings"], node["health"] = {}, None, None
    for device in fabric["devices"]:
        up = device["name"] in networks
        interface = interfaces[device["netdevs"][0]]
        address = f"10.{networks.get(device['name'])}.0.{10 + number}"
        gid = (
            "0000:0000:0000:0000:0000:ffff:"
            + "{:02x}{:02x}:{:02x}{:02x}".format(*(int(part) for part in address.split(".")))
            if up
            else ""
        )
        device["state"] = "ACTIVE" if up else "DOWN"
        device["gids"] = [{"index": 3, "gid": gid, "type": "RoCE v2"}] if up else []
        interface |= {"carrier": up, "operstate": "up" if up else "down", "mtu": 9000, "speed_mbps": 200000}
        interface["addresses"] = [f"{address}/24"] if up else []
    return node


def unread(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "fabric": None, "errors": {"fabric": REASON}}


BOTH = dict(zip(DEVICES, range(4), strict=True))
CROSSED = dict(zip(DEVICES, (2, 3, 0, 1), strict=True))
FOUR = [spark(number, BOTH) for number in range(1, 5)]
WORLDS = {
    "two cables": [spark(1, BOTH), spark(2, BOTH)],
    "crossed cages": [spark(1, BOTH), spark(2, CROSSED)],
    "one rail, in other cages": [spark(1, {DEVICES[0]: 22}), spark(2, {DEVICES[2]: 22})],
    "nobody joined": [spark(1, {DEVICES[0]: 22}), spark(2, {DEVICES[2]: 23})],
    "one rail alone": [spark(1, BOTH), spark(2, {DEVICES[0]: 0})],
    "worker not read": [FOUR[0], unread(FOUR[1])],
    "four": FOUR,
    "four, head not read": [unread(FOUR[0]), *FOUR[1:]],
    "four, one apart": [*FOUR[:2], spark(3, {DEVICES[0]: 9, DEVICES[3]: 3}), unread(FOUR[3])],
}


def fabric(tmp_path: Path, nodes: list[dict[str, Any]], *more: str) -> tuple[int, Path]:
    """Exit code and picture."""
    facts, overlay, picture = tmp_path / "facts.json", tmp_path / "nodes.yaml", tmp_path / "fabric.svg"
    names = [f"spark-{number}" for number in range(1, len(nodes) + 1)]
    facts.write_text(json.dumps(dict(zip(names, nodes, strict=True))))
    listed = "".join(f"  - {{name: {name}, ssh: {name}}}\n" for name in names)
    overlay.write_text(f"nodes:\n{listed}engine: {{tensorParallel: {len(nodes)}}}\n")
    words = ["fabric", str(ROOT / SPEC), "--overlay", str(overlay), "--facts", str(facts)]
    return run([*words, "--picture", str(picture), *more]), picture


def boxes(picture: Path) -> tuple[list[tuple[float, float, float, float, str]], float, float]:
    """Of every text in the picture, about: left, top, right, bottom; and the size of the picture."""
    root = ElementTree.parse(picture).getroot()
    found = []
    for text in root.iter(f"{SVG}text"):
        words, size = "".join(text.itertext()), float(text.get("font-size", 13))
        width, x, y = 0.56 * size * len(words), float(text.attrib["x"]), float(text.attrib["y"])
        x -= {"start": 0.0, "middle": width / 2, "end": width}[text.get("text-anchor", "start")]
        found.append((x, y - 0.8 * size, x + width, y + 0.2 * size, words))
    return found, float(root.attrib["width"]), float(root.attrib["height"])


@pytest.mark.parametrize("world", WORLDS)
def test_no_words_of_the_picture_lie_on_others_or_outside(tmp_path: Path, world: str) -> None:
    """Wires cross where ports are crossed: words in their middle were unreadable."""
    _, picture = fabric(tmp_path, WORLDS[world])
    texts, width, height = boxes(picture)
    assert [text for text in texts if text[0] < 0 or text[2] > width or text[3] > height] == []
    overlapping = [
        (one[4], other[4])
        for index, one in enumerate(texts)
        for other in texts[index + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]
    assert overlapping == []


@pytest.mark.parametrize("world", WORLDS)
def test_picture_names_nodes_cages_devices_and_addresses(tmp_path: Path, world: str) -> None:
    nodes = WORLDS[world]
    _, picture = fabric(tmp_path, nodes)
    words = "\n".join(text[4] for text in boxes(picture)[0])
    for number, node in enumerate(nodes, 1):
        assert f"spark-{number}" in words
        for device in node["fabric"]["devices"] if node["fabric"] else ():
            assert f"cage {device['name'][-1]} · {device['name']} · {device['netdevs'][0]}" in words
        for interface in node["fabric"]["interfaces"] if node["fabric"] else ():
            if interface["name"].startswith(("enp1", "enP2")):
                assert all(address in words for address in interface["addresses"] if ":" not in address)


def test_a_fabric_that_was_not_read_is_unknown_and_not_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Nobody else is there" would send its reader to a cable that is in."""
    code, picture = fabric(tmp_path, WORLDS["worker not read"])
    shown = capsys.readouterr().out
    assert code == 4
    assert "no other node is in" not in shown
    assert "no usable rail" not in shown
    assert "who else is in 10.0.0.0/24 is not known" in shown
    assert f"spark-2: its fabric was not read: {REASON}" in shown
    assert "#c62828" not in picture.read_text()  # the colour of a failure


def test_a_reason_that_many_checks_have_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric(tmp_path, WORLDS["worker not read"])
    lines = [line for line in capsys.readouterr().out.splitlines() if REASON in line]
    assert len(lines) == 2  # of the node, and of all its checks
    assert "rdma.active, rdma.pair, fabric.link" in lines[1]


def test_nodes_are_joined_without_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A silent head leaves three nodes that are in one network: they are drawn so."""
    fabric(tmp_path, WORLDS["four, head not read"], "-o", "json")
    wires = json.loads(capsys.readouterr().out)["wires"]
    assert [[end["node"] for end in wire["ends"]] for wire in wires] == [
        ["spark-2", "spark-3", "spark-4"]
    ] * 4
    assert {wire["problem"] for wire in wires} == {"ok"}


def test_a_port_that_lost_its_link_is_drawn_at_the_end_of_its_wire(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its address says where it belongs: the cable of one host is out, the other is not alone."""
    worker = deepcopy(spark(2, BOTH))
    worker["fabric"]["devices"][0]["state"] = "DOWN"
    fabric(tmp_path, [spark(1, BOTH), worker])
    shown = capsys.readouterr().out
    dead = next(d for d in worker["fabric"]["devices"] if d["state"] == "DOWN")
    assert f"DOWN 10.{BOTH[dead['name']]}.0.12 {dead['netdevs'][0]}" in shown
    assert "no other node" not in shown


def test_a_rail_of_its_own_is_a_warning_where_another_joins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second network of a node, to a storage box for instance, keeps nobody from serving."""
    fabric(tmp_path, WORLDS["one rail alone"], "-o", "json")
    wires = json.loads(capsys.readouterr().out)["wires"]
    assert [wire["problem"] for wire in wires if len(wire["ends"]) == 1] == ["warn"] * 3
    fabric(tmp_path, WORLDS["nobody joined"], "-o", "json")
    wires = json.loads(capsys.readouterr().out)["wires"]
    assert [wire["problem"] for wire in wires] == ["fail", "fail"]


CAGE = {device: BOTH[device] for device in DEVICES[:2]}
LOST: dict[str, tuple[list[dict[str, int]], dict[str, list[str]]]] = {
    "a worker": ([BOTH, BOTH, {**BOTH, DEVICES[0]: 9}, BOTH], {"spark-3": [DEVICES[0]]}),
    "the head": ([{**BOTH, DEVICES[2]: 9}, BOTH, BOTH, BOTH], {"spark-1": [DEVICES[2]]}),
    "half of the nodes": (
        [BOTH, BOTH, {**BOTH, DEVICES[0]: 9}, {**BOTH, DEVICES[0]: 9}],
        {"spark-3": [DEVICES[0]], "spark-4": [DEVICES[0]]},
    ),
    "two of one": ([BOTH, {**BOTH, DEVICES[0]: 8, DEVICES[3]: 9}], {"spark-2": [DEVICES[0], DEVICES[3]]}),
    "crossed": ([BOTH, {**CROSSED, DEVICES[0]: 9}], {"spark-2": [DEVICES[0]]}),
    "nobody: crossed": ([BOTH, CROSSED], {}),
    "nobody: one cable at one node": ([BOTH, CAGE], {}),
    "nobody: one cable at the head": ([CAGE, BOTH], {}),
}


@pytest.mark.parametrize("world", LOST)
def test_a_rail_that_joins_nobody_is_told_of_once_and_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: str
) -> None:
    """The group started with the other devices only, and nobody said so; but a node that has one cable, or a
    network of its own, has no fault."""
    networks, lost = LOST[world]
    nodes = [spark(number, each) for number, each in enumerate(networks, 1)]
    code, _ = fabric(tmp_path, nodes, "-o", "json")
    shown = json.loads(capsys.readouterr().out)
    marked: dict[str, list[str]] = {}
    for port in shown["ports"]:
        if port["problem"] != "ok":
            assert port["problem"] == "warn"
            marked.setdefault(port["node"], []).append(port["device"])
    assert {node: sorted(devices) for node, devices in marked.items()} == {
        node: sorted(devices) for node, devices in lost.items()
    }
    assert code == 0
    asked = min(len(each) for each in networks)
    code, _ = fabric(tmp_path, nodes, "-o", "json", "--set", f"fabric.rails={asked}")
    failing = {
        check["node"]
        for check in json.loads(capsys.readouterr().out)["checks"]
        if (check["check"], check["state"]) == ("rdma.active", "fail")
    }
    assert (code, failing) == (6 if lost else 0, set(lost))


def test_names_of_checks_are_whole_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut to "fab…" they could not be given to --only; which also takes several at once."""
    monkeypatch.setenv("COLUMNS", "30")
    facts = str(ROOT / "tests/data/facts/two-sparks.json")
    run(["doctor", str(ROOT / SPEC), "--facts", facts, "--only", "fabric,rdma.pair"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "check              spark-1  spark-2"
    assert "fabric.counters" in [line.split()[0] for line in lines if line]
    assert lines[1].split()[0] == "rdma.pair"
