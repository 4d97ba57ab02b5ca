"""The fabric as a picture: nodes, cages, ports and wires, in SVG."""

from __future__ import annotations

from textwrap import wrap
from xml.sax.saxutils import escape

from sparkop.plain import one_line
from sparkop.resources.checks.model import State
from sparkop.views.doctor import complaints
from sparkop.views.fabric_map import FabricMap, Port, Wire

NODE_WIDTH, PORT_HEIGHT, HEAD = 360, 50, 48
"""Pixels: of a node's box, of a port in it, of its title."""
GAP, MARGIN, TOP = 340, 24, 70
LOOP, STUB = 190, 140
"""Pixels: how far a wire between two nodes of one column goes out; length of one without another end."""
LINE = 20
CHARACTER = 8
"""Pixels that a character of the text takes at most, about."""
COLOURS = {State.OK: "#2e7d32", State.UNKNOWN: "#7b1fa2", State.WARN: "#e08e00", State.FAIL: "#c62828"}
IDLE = "#9e9e9e"


def svg(drawn: FabricMap) -> str:
    """The head on the left, every other node on the right. What is wrong has its colour and its sentence."""
    nodes = drawn.report.nodes
    spots = _places(drawn)
    height = TOP + max(y + _height(drawn, node) for node, (_, y) in spots.items()) + 20
    width = 2 * MARGIN + NODE_WIDTH + (GAP + NODE_WIDTH if len(nodes) > 1 else 0)
    told = _complaints(drawn, (width - 2 * MARGIN) // CHARACTER)
    full = height + 22 * len(told) + 20
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {full}" width="{width}" '
        f'height="{full}" font-family="sans-serif" font-size="13">',
        f"<title>Fabric of {escape(drawn.report.cluster)}</title>",
        f'<rect width="{width}" height="{full}" fill="white"/>',
        f'<text x="{MARGIN}" y="38" font-size="20">Fabric of {escape(drawn.report.cluster)}</text>',
    ]
    for node in nodes:
        body += _node(drawn, node, *spots[node])
    for wire in drawn.wires:
        body += _wire(drawn, wire, spots)
    for index, (state, text) in enumerate(told):
        y = height + 22 * index + 12
        body.append(f'<text x="{MARGIN}" y="{y}" fill="{COLOURS[state]}">{escape(text)}</text>')
    return "\n".join([*map(one_line, body), "</svg>", ""])


def _height(drawn: FabricMap, node: str) -> int:
    ports, words = PORT_HEIGHT * max(1, len(drawn.of(node))), LINE * len(_reason(drawn, node))
    return HEAD + max(ports, words + 8)


def _reason(drawn: FabricMap, node: str) -> list[str]:
    """Why a node's fabric is not drawn, line by line."""
    return wrap(drawn.unread(node), (NODE_WIDTH - 24) // CHARACTER)


def _places(drawn: FabricMap) -> dict[str, tuple[int, int]]:
    """Left upper corner of each node's box, below the title."""
    head, *others = drawn.report.nodes
    spots = {head: (MARGIN, 0)}
    y = 0
    for node in others:
        spots[node] = (MARGIN + NODE_WIDTH + GAP, y)
        y += _height(drawn, node) + 24
    return spots


def _node(drawn: FabricMap, node: str, x: int, y: int) -> list[str]:
    y += TOP
    reason = _reason(drawn, node)
    edge = COLOURS[State.UNKNOWN] if reason else "#333"
    parts = [
        f'<g aria-label="{escape(node)}">',
        f'<rect x="{x}" y="{y}" width="{NODE_WIDTH}" height="{_height(drawn, node)}" rx="8" fill="#f7f8fa" '
        f'stroke="{edge}"/>',
        f'<text x="{x + 12}" y="{y + 28}" font-size="16" font-weight="bold">{escape(node)}</text>',
    ]
    for index, line in enumerate(reason):
        parts.append(
            f'<text x="{x + 12}" y="{y + HEAD + 14 + LINE * index}" fill="{edge}">{escape(line)}</text>'
        )
    for index, port in enumerate(drawn.of(node)):
        parts += _port(port, x + 10, y + HEAD + PORT_HEIGHT * index)
    return [*parts, "</g>"]


def _port(port: Port, x: int, y: int) -> list[str]:
    active = port.state == "ACTIVE"
    colour = COLOURS[port.problem] if active or port.problem is not State.OK else IDLE
    cage = f"cage {port.cage}" if port.cage is not None else "cage ?"
    first = f"{cage} · {port.device} · {port.interface}"
    second = f"{port.state} · {port.address or 'no address'} · mtu {port.mtu}"
    if port.gid_index is not None:
        second += f" · gid {port.gid_index}"
    return [
        f'<rect x="{x}" y="{y}" width="{NODE_WIDTH - 20}" height="{PORT_HEIGHT - 8}" rx="4" fill="white" '
        f'stroke="{colour}" stroke-width="2"/>',
        f'<text x="{x + 8}" y="{y + 17}">{escape(first)}</text>',
        f'<text x="{x + 8}" y="{y + 34}" fill="#555" font-size="12">{escape(second)}</text>',
    ]


def _wire(drawn: FabricMap, wire: Wire, spots: dict[str, tuple[int, int]]) -> list[str]:
    """A line from the first end to each other one. Its words stand at that other end: lines may cross, and
    words in their middle would lie upon each other."""
    left, *others = wire.ends
    colour = COLOURS[wire.problem]
    if not others:
        return _stub(drawn, wire, spots)
    found = []
    for right in others:
        x1, y1 = _socket(drawn, left, spots)
        x2, y2 = _socket(drawn, right, spots)
        out = x1 - LOOP - 12 * drawn.of(left.node).index(left)
        bend = f"L{out},{y1} L{out},{y2} " if x1 == x2 else ""
        speed = f"{left.speed_mbps // 1000} Gb/s" if left.speed_mbps else "? Gb/s"
        found += [
            f'<path d="M{x1},{y1} {bend}L{x2},{y2}" fill="none" stroke="{colour}" stroke-width="4"'
            + (' stroke-dasharray="8 6"' if wire.problem is not State.OK else "")
            + f"><title>{escape(wire.network)}</title></path>",
            _words(x2 - 6, y2 - 6, "end", colour, f"{wire.network}  {speed}"),
        ]
    return found


def _stub(drawn: FabricMap, wire: Wire, spots: dict[str, tuple[int, int]]) -> list[str]:
    """A wire that nobody is at the other end of, as far as it was read."""
    (end,), colour = wire.ends, COLOURS[wire.problem]
    x, y = _socket(drawn, end, spots)
    way = 1 if _leftmost(spots, end) else -1
    far = "not read" if wire.alone is State.UNKNOWN else "nobody"
    return [
        f'<path d="M{x},{y} L{x + way * STUB},{y}" fill="none" stroke="{colour}" stroke-width="4" '
        'stroke-dasharray="8 6"/>',
        _words(x + way * 6, y - 6, "start" if way > 0 else "end", colour, f"{wire.network}  {far}"),
    ]


def _words(x: int, y: int, anchor: str, colour: str, words: str) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" font-size="11">{escape(words)}</text>'
    )


def _leftmost(spots: dict[str, tuple[int, int]], port: Port) -> bool:
    return spots[port.node][0] == MARGIN


def _socket(drawn: FabricMap, port: Port, spots: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Where a wire meets a port: on the side of the gap between the two columns."""
    x, y = spots[port.node]
    index = drawn.of(port.node).index(port)
    at = TOP + y + HEAD + PORT_HEIGHT * index + PORT_HEIGHT // 2 - 4
    return (x + NODE_WIDTH if _leftmost(spots, port) else x), at


def _complaints(drawn: FabricMap, characters: int) -> list[tuple[State, str]]:
    """Line by line, as wide as the picture."""
    return [
        (state, line)
        for state, node, checks, told, _ in complaints(drawn.report)
        for line in wrap(f"{node} {', '.join(checks)}: {told}", characters, subsequent_indent="— ")
    ]
