"""``sparkop fabric``: a table of ports, a drawing of the wires, and what the ranks are told."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from sparkop.resources.checks.model import State
from sparkop.views.console import out, print_json
from sparkop.views.doctor import SIGNS, STYLES, complaint_lines, report_json
from sparkop.views.documents import document
from sparkop.views.fabric_map import FabricMap, Port

LINES = {State.OK: "━", State.UNKNOWN: "╍", State.WARN: "╍", State.FAIL: "╳"}


def show_fabric(drawn: FabricMap, output: str = "text") -> None:
    """Print it."""
    if output == "json":
        print_json(
            {
                "ports": document(drawn.ports),
                "wires": [
                    {
                        "network": wire.network,
                        "problem": str(wire.problem),
                        "ends": [{"node": end.node, "device": end.device} for end in wire.ends],
                    }
                    for wire in drawn.wires
                ],
                "variables": {node: dict(found) for node, found in drawn.variables.items()},
                **_checks(drawn),
            }
        )
        return
    console = out()
    for line in table(drawn):
        console.print(line)
    console.print()
    for line in drawing(drawn):
        console.print(line)
    console.print()
    for node, variables in drawn.variables.items():
        if not variables:  # a single node needs none
            continue
        told = " ".join(f"{name}={value}" for name, value in variables.items())
        console.print(Text.assemble((node, "bold"), f"  {told}"))
    for line in complaint_lines(drawn.report):
        console.print(line)


def _checks(drawn: FabricMap) -> dict[str, Any]:
    report = report_json(drawn.report)
    return {key: report[key] for key in ("exitCode", "unreachable", "checks")}


def table(drawn: FabricMap) -> list[Text]:
    """One line a port. Names of devices are never cut, however narrow the terminal is."""
    rows = [("node", "cage", "device", "interface", "state", "address", "mtu", "Mb/s", "gid")]
    rows += [
        (
            port.node,
            _known(port.cage),
            port.device,
            port.interface,
            port.state,
            port.address or "-",
            _known(port.mtu),
            _known(port.speed_mbps),
            _known(port.gid_index),
        )
        for port in drawn.ports
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    told = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [Text(f"  {told[0]}".rstrip(), "dim")] + [
        Text.assemble(_sign(port), f" {line}".rstrip(), style="dim" if _idle(port) else "")
        for port, line in zip(drawn.ports, told[1:], strict=True)
    ]


def _sign(port: Port) -> tuple[str, str]:
    return (" ", "") if _idle(port) else (SIGNS[port.problem], STYLES[port.problem])


def _idle(port: Port) -> bool:
    """Nothing is plugged in, and nobody misses it."""
    return port.state != "ACTIVE" and port.problem is State.OK


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def drawing(drawn: FabricMap) -> list[Text]:
    """One line a pair of ends: ``spark-1 [cage 0] enp1s0f0np0 10.78.0.11 ●━━ 200 Gb/s, 9000 ━━● ...``."""
    lines = []
    for wire in drawn.wires:
        left, *others = wire.ends
        if not others:
            told = (
                f"not every node was read: who else is in {wire.network} is not known"
                if wire.alone is State.UNKNOWN
                else f"no other node is in {wire.network}"
            )
            sign = LINES[wire.alone]
            lines.append(Text.assemble(_end(left), f" ●{sign}  {told}", style=STYLES[wire.problem]))
        lines += [_wire(left, right) for right in others]
    for node in drawn.report.nodes:
        reason = drawn.unread(node)
        if reason:
            lines.append(Text(f"{node}: {reason}", STYLES[State.UNKNOWN]))
        elif len(drawn.report.nodes) > 1 and not any(
            end.node == node for wire in drawn.wires for end in wire.ends
        ):
            lines.append(Text(f"{node}: no usable rail", STYLES[State.FAIL]))
    return lines


def _wire(left: Port, right: Port) -> Text:
    worst = max((left.problem, right.problem), key=list(State).index)
    speeds = [end.speed_mbps for end in (left, right) if end.speed_mbps]
    speed = f"{min(speeds) // 1000} Gb/s" if speeds else "? Gb/s"
    same = left.mtu == right.mtu
    mtu = f"mtu {left.mtu}" if same else f"mtu {left.mtu} ≠ {right.mtu}"
    line = LINES[worst] * 3
    return Text.assemble(
        _end(left), " ●", (f"{line} {speed}, {mtu} {line}", STYLES[worst]), "● ", _end(right, mirrored=True)
    )


def _end(port: Port, *, mirrored: bool = False) -> str:
    cage = f"cage {port.cage}" if port.cage is not None else "cage ?"
    parts = [port.node, cage, port.interface, (port.address or "-").partition("/")[0]]
    if port.state != "ACTIVE":
        parts.append(port.state)
    return " ".join(reversed(parts) if mirrored else parts)
