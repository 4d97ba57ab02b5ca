"""The way from one node to another, for whatever travels over the fabric: weights and images.

Over ssh with a key of sparkop's own that can do nothing else; a plain stream with a token of the moment where
the spec calls the fabric trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.rails import rails
from sparkop.resources.base import Context
from sparkop.resources.transfer_program import call
from sparkop.spec.nodes import NodeSpec

PEER_STREAMS = 1
"""Over a trusted fabric: the receiver's hash is the limit, and what comes in order is hashed from memory."""
SSH_STREAMS = 8
"""One ssh connection is one core of encryption on each side; a node with fewer cores uses fewer."""


def way(context: Context, source: str, node: str, offer: Mapping[str, Any]) -> dict[str, Any]:
    """Sources, streams and secrets of a job on ``node`` that reads what ``source`` offers it."""
    address = fabric_address(context, source)
    offer = {**offer, "fabric": address, **_end(context, source, node, "to")}
    if context.desired.spec.fabric.trusted:
        found = _plain(context, source, offer)
    else:
        found = _over_ssh(context, source, node, offer)
    ends = {**_end(context, node, source, "address"), "speed": _link_speed(context, node), "node": source}
    return {**found, "sources": [{**each, **ends} for each in found["sources"]]}


def _end(context: Context, own: str, other: str, key: str) -> dict[str, str]:
    """The other's fabric address, and by what ``own`` must reach it unless the spec allows other ways."""
    to = {key: fabric_address(context, other)}
    if context.desired.spec.fabric.other_routes:
        return to
    facts = context.desired.nodes[own].facts
    assert facts is not None
    assert facts.fabric is not None
    return {**to, "from": facts.fabric.address, "interface": facts.fabric.interface}


def _plain(context: Context, source: str, offer: Mapping[str, Any]) -> dict[str, Any]:
    """The source serves on its fabric address; a token of the moment is the key."""
    address = fabric_address(context, source)
    shared = call(context.host(source), context.fence(source), "share", {**offer, "address": address})
    host = f"[{address}]" if ":" in address else address
    return {
        "sources": [{"kind": "peer", "base": f"http://{host}:{shared['port']}/"}],
        "streams": PEER_STREAMS,
        "secrets": {"peer": shared["token"]},
    }


def _over_ssh(context: Context, source: str, node: str, offer: Mapping[str, Any]) -> dict[str, Any]:
    """The receiver reads the source's share over ssh, with a key of its own that can do nothing else."""
    call(context.host(source), context.fence(source), "share", {**offer, "address": None})
    comment = key_comment(context.desired.spec.name, node)
    made = call(context.host(node), context.fence(node), "key", {"comment": comment})
    allowed = call(context.host(source), context.fence(source), "authorise", {"public": made["public"]})
    alias = f"sparkop-{source}"
    lines = [f"{alias} {key}" for key in allowed["host_keys"]]
    call(context.host(node), context.fence(node), "know", {"lines": lines})
    state = context.desired.nodes[node].state
    machine = context.observed.documents[source].machine
    assert machine is not None
    command = ssh_command(
        user=machine.user,
        address=fabric_address(context, source),
        port=_ssh_port(context.desired.spec.node(source)),
        key=made["path"],
        known_hosts=f"{state}/transfer/known_hosts",
        alias=alias,
    )
    return {"sources": [{"kind": "ssh", "command": command}], "streams": SSH_STREAMS, "secrets": {}}


def ssh_command(*, user: str, address: str, port: int, key: str, known_hosts: str, alias: str) -> list[str]:
    """The receiver's ssh, by nothing but these settings. The answer is the key's forced command."""
    options = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": f'"{known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": alias,
        "Ciphers": "^aes128-gcm@openssh.com",
        "Compression": "no",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "10",
        "ServerAliveCountMax": "3",
    }
    settings = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", "-T", "-i", key, "-p", str(port), *settings, "-l", user, address, "pipe"]


def key_comment(cluster: str, node: str) -> str:
    """Marks the lines of authorized_keys that are ours."""
    return f"sparkop:{cluster}:{node}"


def withdraw(context: Context, node: str) -> None:
    """End the node's transfers, offer nothing more, and take back the keys that other nodes were given."""
    if context.observed.documents[node].state:
        prefix = key_comment(context.desired.spec.name, "")
        call(context.host(node), context.fence(node), "withdraw", {"prefix": prefix})


def fabric_address(context: Context, name: str) -> str:
    """The node's address on the fabric; nothing is planned that needs one which is not known."""
    facts = context.desired.nodes[name].facts
    assert facts is not None
    assert facts.fabric is not None
    return facts.fabric.address


def _link_speed(context: Context, name: str) -> int:
    """Of the interface with the node's fabric address, in Mb/s; 0 where it is not known."""
    own = fabric_address(context, name)
    found = rails(context.observed.documents[name])
    return next((rail.speed_mbps or 0 for rail in found if rail.address == own), 0)


def _ssh_port(node: NodeSpec) -> int:
    remote = node.remote
    return remote.port if remote is not None and remote.port else 22
