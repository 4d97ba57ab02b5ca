"""The report of ``doctor``: a table of signs, then each complaint with its fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.text import Text

from sparkop.reconcile.doctor import Report
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
    for line in table_lines(report):
        console.print(line)
    if everything:
        for result in report.results:
            if result.evidence:
                told = _head(result.node, [result.check], State.OK).append(f" {result.evidence}", style="dim")
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
                        "ports": list(found.ports),
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
    for state, node, checks, told, remedy in complaints(report):
        lines.append(_head(node, checks, state).append(f" {told}"))
        if remedy:
            lines.append(Text.assemble(("    do: ", "green"), remedy))
    return [*lines, *_not_read_lines(report)]


def complaints(report: Report) -> Iterator[tuple[State, str, tuple[str, ...], str, str]]:
    """State, node, checks, what and remedy, the worst first. What several checks say of a node in the same
    words is said once. Without what nobody asked for."""
    for state in ORDER:
        same: dict[tuple[str, str, str], list[str]] = {}
        for result in report.results:
            for found in result.complaints:
                if found.state is state and not _not_read(found):
                    same.setdefault((result.node, found.text, found.remedy), []).append(result.check)
        for (node, told, remedy), checks in same.items():
            yield state, node, tuple(dict.fromkeys(checks)), told, remedy


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


def _head(node: str, checks: Iterable[str], state: State) -> Text:
    return Text.assemble(
        (f"{SIGNS[state]} ", STYLES[state]), (node, "bold"), f" {', '.join(checks)}:", no_wrap=False
    )


def table_lines(report: Report) -> list[Text]:
    """One line a check, one column a node. Names are never cut, however narrow the terminal is."""
    found = {(result.check, result.node): result.state for result in report.results}
    rows = [(check.id, [found.get((check.id, node)) for node in report.nodes]) for check in CHECKS]
    rows = [(name, states) for name, states in rows if any(states)]
    first = max((len(name) for name, _ in rows), default=0)
    lines = [Text("  ".join(["check".ljust(first), *report.nodes]), "dim")] if rows else []
    for name, states in rows:
        line = Text(name.ljust(first))
        for node, state in zip(report.nodes, states, strict=True):
            left = (len(node) - 1) // 2
            line.append("  " + " " * left)
            line.append(*((SIGNS[state], STYLES[state]) if state else ("-", "dim")))
            line.append(" " * (len(node) - left - 1))
        line.rstrip()
        lines.append(line)
    return lines


def summary(report: Report) -> Text:
    """``34 ok, 1 warned, 0 failed, 2 unknown in 1.2 s``."""
    line = Text.assemble(
        (f"{report.count(State.OK)} ok", "green"),
        f", {report.count(State.WARN)} warned, ",
        (f"{report.count(State.FAIL)} failed", "bold red" if report.count(State.FAIL) else ""),
        f", {report.count(State.UNKNOWN)} unknown",
    )
    return line.append(f" in {report.seconds:.1f} s", style="dim") if report.seconds else line
