"""The fabric as a picture: nodes, cages, ports and wires, in SVG."""

from __future__ import annotations

from textwrap import wrap
from xml.sax.saxutils import escape

from sparkop.plain import one_line
from sparkop.resources.checks.model import State
from sparkop.views.fabric_map import FabricMap, Port, Wire

NODE_WIDTH, PORT_HEIGHT, HEAD = 360, 50, 48
"""Pixels: of a node's box, of a port in it, of its title."""
GAP, MARGIN, TOP = 260, 24, 70
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
    complaints = _complaints(drawn, (width - 2 * MARGIN) // CHARACTER)
    full = height + 22 * len(complaints) + 20
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
    for index, (state, text) in enumerate(complaints):
        y = height + 22 * index + 12
        body.append(f'<text x="{MARGIN}" y="{y}" fill="{COLOURS[state]}">{escape(text)}</text>')
    return "\n".join([*map(one_line, body), "</svg>", ""])


def _height(drawn: FabricMap, node: str) -> int:
    return HEAD + PORT_HEIGHT * max(1, len(drawn.of(node)))


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
    reason = drawn.report.unreachable.get(node)
    edge = COLOURS[State.UNKNOWN] if reason else "#333"
    parts = [
        f'<g aria-label="{escape(node)}">',
        f'<rect x="{x}" y="{y}" width="{NODE_WIDTH}" height="{_height(drawn, node)}" rx="8" fill="#f7f8fa" '
        f'stroke="{edge}"/>',
        f'<text x="{x + 12}" y="{y + 28}" font-size="16" font-weight="bold">{escape(node)}</text>',
    ]
    if reason:
        parts.append(f'<text x="{x + 12}" y="{y + HEAD + 20}" fill="{edge}">{escape(reason)}</text>')
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
    left, *others = wire.ends
    found = []
    for right in others:
        x1, y1 = _socket(drawn, left, spots, right_side=True)
        x2, y2 = _socket(drawn, right, spots, right_side=False)
        colour = COLOURS[wire.problem]
        speed = f"{left.speed_mbps // 1000} Gb/s" if left.speed_mbps else "? Gb/s"
        found += [
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="4"'
            + (' stroke-dasharray="8 6"' if wire.problem is not State.OK else "")
            + f"><title>{escape(wire.network)}</title></line>",
            f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 8}" text-anchor="middle" fill="{colour}">'
            f"{escape(wire.network)}  {speed}</text>",
        ]
    return found


def _socket(
    drawn: FabricMap, port: Port, spots: dict[str, tuple[int, int]], *, right_side: bool
) -> tuple[int, int]:
    x, y = spots[port.node]
    index = drawn.of(port.node).index(port)
    at = TOP + y + HEAD + PORT_HEIGHT * index + PORT_HEIGHT // 2 - 4
    return (x + NODE_WIDTH if right_side else x), at


def _complaints(drawn: FabricMap, characters: int) -> list[tuple[State, str]]:
    """Line by line, as wide as the picture."""
    return [
        (found.state, line)
        for result in drawn.report.results
        for found in result.complaints
        if found.state is not State.UNKNOWN or found.error
        for line in wrap(f"{result.node} {result.check}: {found.text}", characters, subsequent_indent="— ")
    ]
