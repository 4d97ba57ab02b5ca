"""The lease of every node, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from sparkop.errors import SparkopError
from sparkop.reconcile.lease_seen import LeaseState
from sparkop.resources.operations import with_remedy
from sparkop.views.console import out, print_json
from sparkop.views.documents import document


def show_leases(leases: Mapping[str, LeaseState | SparkopError | None], output: str = "text") -> None:
    """Print who holds the lease on each node, or why it could not be read."""
    if output == "json":
        print_json({node: _json(lease) for node, lease in leases.items()})
        return
    for node, lease in leases.items():
        out().print(Text.assemble((f"{node}: ", "bold"), _words(lease)))


def _words(lease: LeaseState | SparkopError | None) -> tuple[str, str]:
    if isinstance(lease, SparkopError):
        return f"unknown: {with_remedy(lease.reason, lease.remedy)}", "red"
    if lease is None or lease.released:
        return "free", "green"
    return f"held by {lease.told}", "yellow"


def _json(lease: LeaseState | SparkopError | None) -> object:
    if isinstance(lease, SparkopError):
        return {"unknown": with_remedy(lease.reason, lease.remedy)}
    return document(lease) if lease is not None else None
