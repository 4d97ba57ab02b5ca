"""The last words of ``apply``, ``stop`` and ``destroy``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkop.reconcile.access import access_of
from sparkop.reconcile.history import UNAPPLIED
from sparkop.reconcile.plan import Plan
from sparkop.resources.compare import counted, human_bytes, with_verb
from sparkop.views.console import out, print_json, print_lines, talk
from sparkop.views.documents import document

if TYPE_CHECKING:
    from sparkop.reconcile.converge import Converged
    from sparkop.reconcile.destroy import Destroyed
    from sparkop.reconcile.stop import Stopped

OPEN = "no key: whoever reaches this port may use the model. `api.key: generate` in the spec makes one"


def show_applied(result: Converged, output: str = "text") -> None:
    """URL, model and where the key is, on stdout."""
    if output == "json":
        from sparkop.reconcile.status import status_of

        print_json({"operations": result.operations, **document(status_of(result.reading, Plan()))})
        return
    done = f": {counted(result.operations, 'operation')}" if result.operations else ""
    print_lines([f"converged{done}"], sys.stderr)
    access = access_of(result.reading.desired)
    lines = [f"url    {access.url}", f"model  {', '.join(access.models)}"]
    print_lines([*lines, f"key    {access.key_path}"] if access.key_path else lines)
    if access.open:
        print_lines([OPEN], sys.stderr)


def show_stopped(stopped: Stopped, output: str = "text") -> None:
    """What was removed on each node, and its memory now."""
    from rich.text import Text

    if output == "json":
        print_json(document(stopped))
        return
    console = out()
    if stopped.already:
        talk().print("already stopped: nothing runs; sparkop apply starts it again")
    if stopped.absent:
        talk().print(f"nothing to stop: the cluster was {UNAPPLIED}; sparkop apply starts it")
    for node in dict.fromkeys((*stopped.removed, *stopped.available)):
        removed = stopped.removed.get(node)
        if node in stopped.refused or (node in stopped.unknown and not removed):
            continue
        what = f"removed {', '.join(removed)}" if removed else "nothing ran"
        memory = f"; {human_bytes(stopped.available[node])} available" if node in stopped.available else ""
        console.print(Text.assemble((f"{node}: ", "bold"), what, memory))
    for node, refusal in stopped.refused.items():
        runs = f"; {with_verb(refusal.runs, 'still runs', 'still run')}" if refusal.runs else ""
        console.print(
            Text.assemble((f"{node}: ", "bold"), (f"nothing was stopped: {refusal.reason}{runs}", "red"))
        )
        console.print(Text.assemble(("  do: ", "green"), refusal.remedy))
    for node, reason in stopped.unknown.items():
        console.print(Text.assemble((f"{node}: ", "bold"), (f"unknown: {reason}", "red")))
    if stopped.unknown:
        _tell_again("stop", stopped.unknown)


def show_destroyed(gone: Destroyed, output: str = "text") -> None:
    """What was removed on each node."""
    from rich.text import Text

    if output == "json":
        print_json(document(gone))
        return
    if not gone.removed and not gone.unknown:
        talk().print("nothing of the cluster is there")
    for node, removed in gone.removed.items():
        out().print(Text.assemble((f"{node}: ", "bold"), f"removed {', '.join(removed) or 'nothing'}"))
    for node, reason in gone.unknown.items():
        out().print(Text.assemble((f"{node}: ", "bold"), (f"unknown: {reason}", "red")))
    if gone.unknown:
        _tell_again("destroy", gone.unknown)


def _tell_again(command: str, unknown: Iterable[str]) -> None:
    from rich.text import Text

    where = ", ".join(unknown)
    talk().print(f"what ran on {where} may still run there")
    talk().print(Text.assemble(("  do: ", "green"), f"sparkop {command} again when {where} answers"))
