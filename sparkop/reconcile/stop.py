"""Stop serving, and remember that a human wanted it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkop.hosts.base import Host
from sparkop.resources.base import Clock
from sparkop.resources.events import Listener, ignore
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class Stopped:
    """What was removed, by node, and how much memory each node has now (bytes; MemAvailable)."""

    removed: Mapping[str, tuple[str, ...]]
    available: Mapping[str, int]
    unknown: Mapping[str, str]
    """Nodes that did not answer, and why: their containers may still run."""


def stop_serving(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    holder: str | None = None,
    clock: Clock | None = None,
) -> Stopped:
    """Remove ranks and guards on every node that answers, check that they are gone and memory is back.

    Raises LeaseHeldError; BlockedError when a container stays or memory does not come back. Nodes that do
    not answer are in the result (the command's exit code is 4 then).
    """
    raise NotImplementedError
