"""The report of ``doctor``: a table of signs, then each complaint with its fix."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from sparkop.reconcile.doctor import Report, Result
from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Finding, State
from sparkop.views.console import out, print_json

SIGNS = {State.OK: "✓", State.WARN: "!", State.FAIL: "✗", State.UNKNOWN: "?"}
STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red", State.UNKNOWN: "magenta"}
ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


def show_report(report: Report, output: str = "text", *, everything: bool = False) -> None:
    """Print it. ``everything``: with the evidence of what is ok."""
    if output == "json":
        print_json(report_json(report))
        return
    console = out()
    console.print(_table(report))
    if everything:
        for result in report.results:
            if result.evidence:
                told = _head(result, State.OK).append(f" {result.evidence}", style="dim")
                console.print(told)
    for line in complaint_lines(report):
        console.print(line)
    console.print(summary(report))


def report_json(report: Report) -> dict[str, Any]:
    """``checks``: one entry a check and node, with every finding."""
    return {
        "cluster": report.cluster,
        "exitCode": int(report.exit_code),
        "seconds": round(report.seconds, 2),
        "counts": {str(state): report.count(state) for state in State},
        "unreachable": dict(report.unreachable),
        "checks": [
            {
                "node": result.node,
                "check": result.check,
                "state": str(result.state),
                "evidence": result.evidence,
                "findings": [
                    {
                        "state": str(found.state),
                        "text": found.text,
                        "field": found.field,
                        "observed": found.observed,
                        "desired": found.desired,
                        "remedy": found.remedy,
                    }
                    for found in result.complaints
                ],
            }
            for result in report.results
        ],
    }


def complaint_lines(report: Report) -> list[Text]:
    """The worst first: what, where, and what to do."""
    lines = []
    for state in ORDER:
        for result in report.results:
            for found in result.complaints:
                if found.state is state and not _not_read(found):
                    lines.append(_head(result, state).append(f" {found.text}"))
                    if found.remedy:
                        lines.append(Text.assemble(("    do: ", "green"), found.remedy))
    return [*lines, *_not_read_lines(report)]


def _not_read(found: Finding) -> bool:
    """Nobody asked for it: older recorded facts lack it."""
    return found.state is State.UNKNOWN and not found.error and not found.remedy


def _not_read_lines(report: Report) -> list[Text]:
    """One line a node instead of one a check."""
    by_node: dict[str, list[str]] = {}
    for result in report.results:
        if any(_not_read(found) for found in result.complaints):
            by_node.setdefault(result.node, []).append(result.check)
    return [
        Text.assemble(
            (f"{SIGNS[State.UNKNOWN]} ", STYLES[State.UNKNOWN]),
            (node, "bold"),
            f" not read: {', '.join(checks)}",
        )
        for node, checks in by_node.items()
    ]


def _head(result: Result, state: State) -> Text:
    return Text.assemble(
        (f"{SIGNS[state]} ", STYLES[state]), (result.node, "bold"), f" {result.check}:", no_wrap=False
    )


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("check")
    for node in report.nodes:
        table.add_column(node, justify="center")
    found = {(result.check, result.node): result.state for result in report.results}
    for check in CHECKS:
        states = [found.get((check.id, node)) for node in report.nodes]
        if any(states):
            signs = (Text(SIGNS[s], STYLES[s]) if s else Text("-", "dim") for s in states)
            table.add_row(check.id, *signs)
    return table


def summary(report: Report) -> Text:
    """``34 ok, 1 warned, 0 failed, 2 unknown in 1.2 s``."""
    line = Text.assemble(
        (f"{report.count(State.OK)} ok", "green"),
        f", {report.count(State.WARN)} warned, ",
        (f"{report.count(State.FAIL)} failed", "bold red" if report.count(State.FAIL) else ""),
        f", {report.count(State.UNKNOWN)} unknown",
    )
    return line.append(f" in {report.seconds:.1f} s", style="dim") if report.seconds else line
