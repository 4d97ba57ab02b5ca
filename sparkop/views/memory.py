"""``sparkop memory``: what every node's memory is, and what its guard sees."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sparkop.reconcile.memory import NodeMemory
from sparkop.resources.compare import human_bytes, human_seconds
from sparkop.views.console import out, print_json
from sparkop.views.documents import document
from sparkop.views.quantities import sparkline


def show_memory(nodes: Sequence[NodeMemory], output: str = "text") -> None:
    """Print it once. JSON: ``nodes``, in bytes."""
    if output == "json":
        print_json({"nodes": [document(node) for node in nodes]})
    else:
        out().print(memory_picture(nodes))


def memory_picture(nodes: Sequence[NodeMemory]) -> Group:
    """A table of the nodes; under it containers and the last minutes of each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("node", "available", "free", "page cache", "of", "phase", "floors: soft, action, hard"):
        table.add_column(name)
    for node in nodes:
        table.add_row(node.node, *_figures(node), node.phase or "-", _floors(node))
    return Group(table, *(line for node in nodes for line in _lines(node)))


def _figures(node: NodeMemory) -> list[Text]:
    style = {"hard": "bold red", "action": "red", "soft": "yellow"}.get(node.under, "green")
    available = Text("unknown", "red") if node.available is None else Text(human_bytes(node.available), style)
    return [available, *(Text(_bytes(size)) for size in (node.free, node.cached, node.total))]


def _bytes(size: int | None) -> str:
    return "unknown" if size is None else human_bytes(size)


def _floors(node: NodeMemory) -> str:
    return ", ".join(map(human_bytes, (node.soft_floor, node.action_floor, node.hard_floor)))


def _lines(node: NodeMemory) -> list[Text]:
    lines = []
    if node.reason:
        lines.append(Text.assemble((f"{node.node}: ", "bold"), (node.reason, "red")))
    if node.guard != "guarding":
        lines.append(Text.assemble((f"{node.node}: ", "bold"), (f"guard: {node.guard}", "yellow")))
    if node.samples:
        span = human_seconds(len(node.samples) * node.step)
        lowest = f", lowest {human_bytes(node.lowest)}" if node.lowest is not None else ""
        picture = f"{sparkline(node.samples)} the last {span}{lowest}"
        lines.append(Text.assemble((f"{node.node}: ", "bold"), picture))
    for container in node.containers:
        lines.append(Text(f"  {container.name} {human_bytes(container.resident)} resident"))
    if node.large_blocks is not None:
        lines.append(Text(f"  free in blocks of 2 MiB and more: {human_bytes(node.large_blocks)}"))
    return lines
