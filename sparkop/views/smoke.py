"""The report of ``smoke``: one line a check; what was asked and answered where one failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.text import Text

from sparkop.serving.smoke import Check, Verdict, passed
from sparkop.serving.token_zero import Explained
from sparkop.views.console import out, print_json
from sparkop.views.documents import document

_STYLE = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.NOT_OFFERED: "dim"}
_WIDTH = 20


def show_smoke(
    checks: Iterable[Check],
    output: str = "text",
    explain: Callable[[str], Explained] | None = None,
    harmless: Callable[[], str] = str,
) -> bool:
    """Print each check as it comes; whether all that is offered passed.

    ``explain`` is asked why an answer went round in circles, ``harmless`` then, what in the log is not why.
    """
    found: list[Check] = []
    for check in checks:
        found.append(check)
        if output == "text":
            for line in _lines(check):
                out().print(line)
    loop = next((check.loop for check in found if check.loop), None)
    explained = explain(loop * 2) if explain and loop else None
    note = harmless() if explained else ""
    hang = found[-1].hang if found else None
    if output == "json":
        more = {"explained": document(explained), "note": note} if explained else {}
        print_json({"passed": passed(found), "checks": document(found), **more})
    elif hang is not None:
        out().print(Text.assemble(("what hangs: ", "yellow"), hang.cause))
        out().print(Text.assemble(("do: ", "green"), hang.remedy))
    elif explained:
        out().print(Text.assemble(("likely cause: ", "yellow"), explained.cause))
        out().print(Text.assemble(("do: ", "green"), explained.remedy))
        out().print(Text(note, style="dim"), end="\n" if note else "")
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
