"""The report of ``smoke``: one line a check; what was asked and answered where one failed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from sparkop.serving.smoke import Check, Verdict, passed
from sparkop.views.console import out, print_json
from sparkop.views.documents import document

_STYLE = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.NOT_OFFERED: "dim"}
_WIDTH = 20


def show_smoke(checks: Iterable[Check], output: str = "text") -> bool:
    """Print each check as it comes; whether all that is offered passed."""
    found = []
    for check in checks:
        found.append(check)
        if output == "text":
            for line in _lines(check):
                out().print(line)
    if output == "json":
        print_json({"passed": passed(found), "checks": document(found)})
    return passed(found)


def _lines(check: Check) -> list[Text]:
    time = f"  {check.seconds:.1f} s" if check.seconds else ""
    style = _STYLE[check.verdict]
    lines = [
        Text.assemble(f"{check.name:{_WIDTH}}", (f"{check.verdict:13}", style), check.detail, (time, "dim"))
    ]
    if check.verdict is Verdict.FAIL:
        lines.append(Text.assemble(" " * _WIDTH, ("asked     ", "dim"), check.asked))
        lines.append(Text.assemble(" " * _WIDTH, ("answered  ", "dim"), check.answered))
    return lines
