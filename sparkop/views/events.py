"""The story of a cluster, one line an event."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from sparkop.reconcile.events import Happened
from sparkop.resources.masking import mask
from sparkop.views.console import out, print_json, talk
from sparkop.views.documents import document
from sparkop.views.quantities import moment

_STYLE = {
    "fault": "bold red",
    "failed": "bold red",
    "restart": "bold yellow",
    "trip": "bold red",
    "gave-up": "bold red",
    "spec-refused": "bold red",
    "healed": "green",
    "spec-accepted": "green",
}


def show_events(events: Sequence[Happened], output: str = "text") -> None:
    """``2026-11-30 14:22:05  restart  group 3 by watch: ...``; the times are the reader's own."""
    if output == "json":
        print_json(document(list(events)))
        return
    if not events:
        talk().print("nothing is remembered: the cluster was never started, or its state folder is new")
        return
    for each in events:
        when = moment(each.at)
        style = _STYLE.get(each.event, "green" if each.event in ("ready", "served", "mended") else "")
        out().print(Text.assemble((when, "dim"), "  ", (f"{each.event:<8}", style), f" {mask(each.text)}"))
