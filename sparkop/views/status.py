"""The report of ``status``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from sparkop.reconcile.measured import Measured
from sparkop.reconcile.speeds import Speeds
from sparkop.reconcile.status import GuardStatus, NodeStatus, RankStatus, ResourceStatus, Status
from sparkop.resources.compare import human_bytes, precise_seconds
from sparkop.resources.operations import DO, hiding, with_remedy
from sparkop.resources.trip import FILE as TRIP
from sparkop.resources.trip import Story
from sparkop.views.console import out, print_json
from sparkop.views.documents import document
from sparkop.views.outcomes import OPEN
from sparkop.views.quantities import moment, sparkline

if TYPE_CHECKING:
    from rich.table import Table

_STYLE = {"ok": "green", "differs": "yellow", "unknown": "red"}
_SIGN = {"ok": "✓", "differs": "≠", "unknown": "?"}


def show_status(status: Status, output: str = "text") -> None:
    """Print it."""
    if output == "json":
        print_json(document(status))
        return
    console = out()
    console.print(_headline(status))
    console.print(_nodes_table(status))
    if status.ranks:
        console.print(_ranks_table(status.ranks))
    for node in status.nodes:
        for line in _complaints(node, status.endpoint_remedy):
            console.print(line)
    for transfer in status.transfers:
        console.print(transfer)
    for each in status.measured:
        console.print(_beside(each))
    if status.speeds is not None:
        console.print(_speeds(status.speeds))
    for override in status.overrides:
        console.print(
            Text.assemble(("rule set aside: ", "yellow"), (override.rule, "bold"), f" ({override.reason})")
        )
    for line in watch_lines(status):
        console.print(line)
    for warning in status.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning))
    for note in status.notes:
        console.print(Text(note, style="dim"))


def watch_lines(status: Status) -> list[Text]:
    """Whether a watch runs; if it has given up: why, what was tried, and what to do."""
    watch = status.watch
    alive = [f"{sign.who}, {precise_seconds(sign.seconds)} ago" for sign in watch.signs if sign.alive]
    told = f"not known whether one runs: {watch.unknown}" if watch.running is None else "none runs"
    lines = [Text(f"watch: runs (sign of life of {'; '.join(alive)})" if alive else f"watch: {told}")]
    if not alive and watch.signs:
        lines[0].append(
            f"; the last sign of {watch.signs[0].who} is {precise_seconds(watch.signs[0].seconds)} old"
        )
    gone = watch.gave_up
    if gone is not None:
        lines.append(Text.assemble((f"watch gave up at {moment(gone.at)}: ", "bold red"), gone.why))
        lines += [Text(f"  {moment(each.at)} group {each.epoch}: {each.why}") for each in gone.tried]
        lines += [Text(f"  it ended with: {gone.failure}")] if gone.failure else []
    return lines


def _headline(status: Status) -> Text:
    word = status.endpoint
    line = Text.assemble((status.cluster, "bold"), "  ", (word, _endpoint_style(status)))
    unread = [node.node for node in status.nodes if node.guard is not None and node.guard.trip_damaged]
    if word == "tripped" and unread:
        line.append(f" (its record can't be read: {TRIP} of {', '.join(unread)} is damaged)")
    if status.endpoint_detail:
        line.append(f" ({status.endpoint_detail})")
    if status.loading:
        line.append(f"\n  {status.loading}", style="yellow")
    if status.endpoint_cause:
        line.append(f"\n  likely cause: {status.endpoint_cause}", style="yellow")
    for step in status.endpoint_remedy.splitlines():
        line.append(f"\n  do: {step}", style="yellow")
    line.append(f"\n{status.url}  model {', '.join(status.models)}")
    if status.key_path:
        line.append(f"  key {status.key_path}")
    if status.open:
        line.append(f"\n{OPEN}", style="yellow")
    return line


def _beside(each: Measured) -> Text:
    tell = human_bytes if each.unit == "bytes" else "{:,.0f} tokens".format
    line = Text.assemble((f"{each.node}: ", "bold"), f"{each.what} {tell(each.real)}")
    wanted = f", budget {tell(each.budget)}" if each.budget is not None else ""
    line.append(f"{wanted} ({each.source})", style="dim")
    if each.contexts is not None:
        line.append(f", {each.contexts:.2f} full contexts")
    return line


def _speeds(speeds: Speeds) -> Text:
    """``measured on 2026-11-30: prefill 8192 2,050, code/1 40.1, code/2 60.2 tok/s``."""
    figures = [f"prefill {size} {rate:,.0f}" for size, rate in sorted(speeds.prefill.items(), key=_size)]
    figures += [f"{name} {rate:,.1f}" for name, rate in speeds.decode.items()]
    line = Text.assemble((f"measured on {speeds.at[:10]}: ", "bold"), ", ".join(figures), " tok/s")
    return line if speeds.current else line.append(" (with another configuration)", style="yellow")


def _size(entry: tuple[str, float]) -> tuple[int, str]:
    return len(entry[0]), entry[0]


def _endpoint_style(status: Status) -> str:
    return "bold green" if status.endpoint == "ready" else "bold yellow"


def _table(*columns: str) -> Table:
    from rich.table import Table  # here: an apply with nothing to do shows none

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column)
    return table


def _nodes_table(status: Status) -> Table:
    table = _table("node", "state", "memory available", "guard")
    for node in status.nodes:
        table.add_row(node.node, _state(node), _memory(node), _guard(node.guard))
    return table


def _state(node: NodeStatus) -> Text:
    return Text(f"{_SIGN[node.state]} {node.state}", style=_STYLE[node.state])


def _memory(node: NodeStatus) -> str:
    if node.memory_available is None or node.memory_total is None:
        return "unknown"
    return f"{human_bytes(node.memory_available)} of {human_bytes(node.memory_total)}"


def _guard(guard: GuardStatus | None) -> str:
    if guard is None:
        return "unknown"
    return guard.state if guard.floor is None else f"{guard.state}, floor {human_bytes(guard.floor)}"


def _ranks_table(ranks: tuple[RankStatus, ...]) -> Table:
    table = _table("rank", "node", "container", "state", "for")
    for rank in ranks:
        since = precise_seconds(rank.seconds) if rank.seconds is not None else ""
        table.add_row(str(rank.rank), rank.node, rank.container, rank.state, since)
    return table


def _complaints(node: NodeStatus, told: str) -> list[Text]:
    """``told``: what to do, which is said already."""
    lines = []
    if node.reason:
        lines.append(Text.assemble((f"{node.node}: ", "bold"), (node.reason, "red")))
    if node.memory_under:
        under = f"memory available is under the {node.memory_under} floor"
        style = "yellow" if node.memory_under == "soft" else "red"
        lines.append(Text.assemble((f"{node.node}: ", "bold"), (under, style)))
    for resource in _told_once(node.resources):
        lines.append(
            Text.assemble(
                (f"{node.node}: ", "bold"),
                (f"{_SIGN[resource.state]} {resource.resource}", _STYLE[resource.state]),
                f": {resource.detail}",
            )
        )
    if node.guard and node.guard.story:
        lines += story_lines(node.node, node.guard.story)
    if node.guard and node.guard.advice and node.guard.advice not in told:
        lines.append(Text.assemble((f"{node.node}: ", "bold"), (node.guard.advice, "yellow")))
    return lines


def _told_once(resources: Sequence[ResourceStatus]) -> list[ResourceStatus]:
    """What is not as desired; what one cause hides, as one."""
    hidden: dict[str, list[ResourceStatus]] = {}
    for each in resources:
        if each.state != "ok":
            cause = each.detail.partition(DO)[0] if each.state == "unknown" else f"{each.resource}:"
            hidden.setdefault(cause, []).append(each)
    return [_as_one(cause, same) for cause, same in hidden.items()]


def _as_one(cause: str, same: Sequence[ResourceStatus]) -> ResourceStatus:
    first, *others = same
    if not others:
        return first
    remedy = next((r for each in same if (r := each.detail.partition(DO)[2])), None)
    told = with_remedy(hiding(cause, [each.resource for each in others]), remedy)
    return replace(first, detail=told)


def story_lines(node: str, story: Story) -> list[Text]:
    """What the guard saw before it killed: the last minutes as a picture, then who had the memory."""
    at = datetime.fromtimestamp(story.at, UTC).strftime("%H:%M:%S UTC")
    phase = f" while {story.phase}" if story.phase in ("loading", "serving") else ""
    killed = f"{at}: the guard killed {', '.join(story.containers) or 'the ranks'}{phase}"
    lines = [Text.assemble((f"{node}: ", "bold"), killed)]
    if len(story.samples) > 1:
        minutes = precise_seconds(len(story.samples) * story.step)
        picture = f"  available {human_bytes(story.samples[0])} {sparkline(story.samples)} "
        picture += f"{human_bytes(story.available)}, floor {human_bytes(story.floor)} (the last {minutes})"
        lines.append(Text(picture))
    if story.outside is not None:
        told = f"  something outside the group took it: {human_bytes(story.outside)} of the "
        told += f"{human_bytes(story.missing)} that are missing"
        told += f", most of it {story.taker}" if story.taker else ""
        lines.append(Text(told, "yellow"))
    for when, processes in (("seconds before", story.largest), ("3 s after", story.after)):
        if processes:
            lines.append(Text(f"  largest {when}: {', '.join(processes)}"))
    left = story.available_after
    if story.after and left is not None and left < story.floor:
        told = f"  the kill brought little: {human_bytes(left)} available"
        told += f"; {story.after[0]} is no rank: end it" if story.outside is None else ""
        lines.append(Text(told, "yellow"))
    return lines
