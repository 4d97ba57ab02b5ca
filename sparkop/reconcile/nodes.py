"""The spec's nodes as hosts: for reading only, or for writing. They connect when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sparkop.hosts.base import Host, ReadableHost
from sparkop.hosts.connect import close_all, connect_all
from sparkop.hosts.ssh_options import Target
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec


@contextmanager
def readable_nodes(spec: ClusterSpec) -> Iterator[Mapping[str, ReadableHost]]:
    """Hosts that have no method that could change a node."""
    hosts = connect_all([target_of(node) for node in spec.nodes], writable=False)
    try:
        yield hosts
    finally:
        close_all(hosts.values())


@contextmanager
def writable_nodes(spec: ClusterSpec) -> Iterator[Mapping[str, Host]]:
    """Hosts for apply, stop and watch."""
    hosts = connect_all([target_of(node) for node in spec.nodes], writable=True)
    try:
        yield hosts
    finally:
        close_all(hosts.values())


def target_of(node: NodeSpec) -> Target:
    """How hosts reaches a node of the spec."""
    ssh = node.remote
    if ssh is None:
        return Target(node.name, host="localhost", local=True)
    return Target(node.name, host=ssh.host, user=ssh.user, port=ssh.port, identity_file=ssh.identity_file)
