"""The lease of every node, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from sparkop.errors import SparkopError
from sparkop.reconcile.lease_seen import LeaseState, life_of
from sparkop.resources.operations import with_remedy
from sparkop.views.console import out, print_json, talk
from sparkop.views.documents import document


def show_leases(leases: Mapping[str, LeaseState | SparkopError | None], output: str = "text") -> None:
    """Print who holds the lease on each node, or why it could not be read."""
    if output == "json":
        print_json({node: _json(lease) for node, lease in leases.items()})
        return
    for node, lease in leases.items():
        out().print(Text.assemble((f"{node}: ", "bold"), _words(lease)))


def show_broken(broken: Mapping[str, str | SparkopError | None]) -> None:
    """Of every node, on stderr: from whom the lease was taken, or why it was not; nodes that say the same in
    one line."""
    lines = {node: _outcome(each) for node, each in broken.items()}
    for line in dict.fromkeys(lines.values()):
        where = ", ".join(node for node, told in lines.items() if told == line)
        talk().print(Text.assemble((f"{where}: ", "bold"), line))


def _outcome(each: str | SparkopError | None) -> str:
    if isinstance(each, SparkopError):
        again = "sparkop lease break again when it answers"
        told = with_remedy(each.reason, f"{each.remedy.rstrip('.')}; then {again}" if each.remedy else again)
        return f"not taken: {told}"
    return "nobody held it" if each is None else f"taken from {each}, and given back"


def _words(lease: LeaseState | SparkopError | None) -> tuple[str, str]:
    if isinstance(lease, SparkopError):
        return f"unknown: {with_remedy(lease.reason, lease.remedy)}", "red"
    if lease is None or lease.released:
        return "free", "green"
    return f"held by {lease.told}; {life_of(lease)}", "yellow"


def _json(lease: LeaseState | SparkopError | None) -> object:
    if isinstance(lease, SparkopError):
        return {"unknown": with_remedy(lease.reason, lease.remedy)}
    if lease is None:
        return None
    return {**document(lease), **({} if lease.released else {"gone": lease.gone, "life": life_of(lease)})}
