"""One SSH connection: opened as the user's ssh would, with its failures told apart."""

from __future__ import annotations

import logging
import shlex
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import paramiko
from fabric import Config, Connection
from paramiko.pkey import UnknownKeyType

from sparkop.errors import HostKeyError, UnreachableError
from sparkop.hosts.known_hosts import add_key, fingerprint, known_keys
from sparkop.hosts.ssh_auth import Authentication, NotAuthenticatedError
from sparkop.hosts.ssh_options import SshOptions, Target, jump_target, lookup_name
from sparkop.hosts.way import Way, find_way, network_error, place_of
from sparkop.inside import inside

CHANNEL_TIMEOUT = 10.0

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks are no output of ours


class _UnknownKeyError(paramiko.SSHException):
    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__("unknown host key")
        self.key = key


class _Policy(paramiko.MissingHostKeyPolicy):
    """Refuse an unknown host key, or note it where the user's configuration says so."""

    def __init__(self, options: SshOptions) -> None:
        self.options = options

    def missing_host_key(self, _client: paramiko.SSHClient, _name: str, key: paramiko.PKey) -> None:
        if not self.options.accept_new_keys or not self.options.known_hosts:
            raise _UnknownKeyError(key)
        add_key(self.options.known_hosts[0], self.options.host_key_name, key.get_name(), key.asbytes())


class Link:
    """An open connection, with the jump host's behind it."""

    def __init__(self, connection: Connection, options: SshOptions, behind: Link | None) -> None:
        self.connection = connection
        self.options = options
        self.behind = behind

    @property
    def transport(self) -> paramiko.Transport:
        transport: paramiko.Transport = self.connection.transport
        return transport

    @property
    def alive(self) -> bool:
        return self.transport.is_active()

    def close(self) -> None:
        self.connection.close()
        if self.behind is not None:
            self.behind.close()


def open_link(target: Target, way: Way | None = None, after: tuple[str, ...] = ()) -> Link:
    """Connect and authenticate, by a way that was found before if there is one. ``after``: the places that
    are reached through this one.

    Raises HostKeyError, or UnreachableError whose cause tells apart an unknown name, no route, no answer,
    refused, and permission denied.
    """
    way = way or find_way(target)
    options, behind = way.options, None
    if options.proxy_jump:
        hop, before = jump_target(target, options.proxy_jump)
        here = place_of(options)
        if here in after:
            raise _in_a_circle(target, (*after, here))
        behind = open_link(hop, find_way(hop, before), (*after, here))
    try:
        stream = way.stream or _stream_through(target, options, behind)
        return Link(_connect(target, options, stream), options, behind)
    except BaseException:
        if behind is not None:
            behind.close()
        raise


def _in_a_circle(target: Target, places: tuple[str, ...]) -> UnreachableError:
    return UnreachableError(
        f"No SSH connection to {target.name}.",
        node=target.name,
        cause=f"its jump hosts lead in a circle: {', then '.join(places)}",
        remedy="Mend ProxyJump in ~/.ssh/config.",
    )


def _connect(target: Target, options: SshOptions, stream: Any) -> Connection:
    known = known_keys(options.known_hosts, options.host_key_name)
    connection = Connection(
        options.hostname,
        user=options.user,
        port=options.port,
        gateway=False,
        config=Config(lazy=True, overrides={"load_ssh_configs": False}),
        connect_kwargs={
            "sock": stream,
            "auth_strategy": Authentication(options),
            "timeout": 2 * options.connect_timeout,  # of the whole handshake, its first line included
            "banner_timeout": options.connect_timeout,
            "auth_timeout": options.connect_timeout,
            "channel_timeout": CHANNEL_TIMEOUT,
        },
    )
    client: paramiko.SSHClient = connection.client
    client.set_missing_host_key_policy(_Policy(options))
    # paramiko looks a host up by address and port; what it may find there are the keys of the name.
    lookup = lookup_name(options.hostname, options.port)
    for kind, blob in known.keys:
        if blob not in known.revoked:
            _add_known(client, lookup, kind, blob)
    try:
        connection.open()
        key = connection.transport.get_remote_server_key()
        if key.asbytes() in known.revoked:
            raise _host_key_error(target, options, key, "is revoked", changed=True)
    except BaseException as error:
        client.close()
        stream.close()
        if isinstance(error, (OSError, EOFError, paramiko.SSHException)):
            raise _explain(error, target, options) from error
        raise
    return connection


def _add_known(client: paramiko.SSHClient, name: str, kind: str, blob: bytes) -> None:
    try:
        key = paramiko.PKey.from_type_string(kind, blob)
    except (UnknownKeyType, paramiko.SSHException, ValueError):
        return  # a kind that paramiko can't check: the host may have another
    client.get_host_keys().add(name, kind, key)


def _stream_through(target: Target, options: SshOptions, behind: Link | None) -> Any:
    """The stream below SSH, through a jump host or a proxy command."""
    try:
        if behind is not None:
            place = (options.hostname, options.port)
            return behind.transport.open_channel("direct-tcpip", place, ("", 0), timeout=CHANNEL_TIMEOUT)
        return _proxy(options.proxy_command or "")
    except (OSError, paramiko.SSHException) as error:
        raise _explain(error, target, options) from error


def _proxy(command: str) -> socket.socket:
    """A ProxyCommand, as a real socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        end = theirs.fileno()
        process = subprocess.Popen(f"exec {command}", shell=True, stdin=end, stdout=end)  # noqa: S602
    threading.Thread(target=process.wait, daemon=True).start()  # it ends with the socket; leave no zombie
    return ours


def _explain(error: BaseException, target: Target, options: SshOptions) -> UnreachableError:
    """The failure in the user's words."""
    if isinstance(error, UnreachableError):
        return error
    if isinstance(error, _UnknownKeyError):
        return _host_key_error(target, options, error.key, "is not known", changed=False)
    if isinstance(error, paramiko.BadHostKeyException):
        return _host_key_error(target, options, error.key, "has changed", changed=True)
    if isinstance(error, NotAuthenticatedError):
        return _denied(error, target, options)
    if isinstance(error, paramiko.ChannelException):
        return UnreachableError(
            f"No SSH connection to {target.name}.",
            node=target.name,
            cause=f"the jump host could not reach {place_of(options)} ({error.text})",
            remedy="Check the jump host.",
        )
    return network_error(error, target, options)


def _denied(error: NotAuthenticatedError, target: Target, options: SshOptions) -> UnreachableError:
    remedy = f"Put your public key there: ssh-copy-id -p {options.port} {options.user}@{options.hostname}"
    cause = f"permission denied for {options.user} at {place_of(options)}"
    given = target.identity_file
    if given and not Path(given).expanduser().exists():
        cause += f"; {given} does not exist"
    if error.locked:
        cause += f"; {', '.join(error.locked)} needs its passphrase"
        remedy = "Load the key into the agent: " + shlex.join(["ssh-add", *error.locked])
    elif not error.tried:
        cause += "; there is no key to try"
        remedy = f"Make one with ssh-keygen. {remedy}"
    elif error.allowed and "publickey" not in error.allowed:
        cause += f"; it takes only {', '.join(error.allowed)}"
    return UnreachableError(
        f"{target.told} refuses the login.",
        node=target.name,
        cause=cause,
        remedy=remedy,
        detail="Keys tried: " + ", ".join(error.tried) if error.tried else None,
    )


def _typed(step: str) -> str:
    """A command as the user types it, outside the lab if this program is inside one."""
    return f"sparkop lab run -- sh -c {shlex.quote(step)}" if inside() else step


def _host_key_error(
    target: Target, options: SshOptions, key: paramiko.PKey, what: str, *, changed: bool
) -> HostKeyError:
    file = shlex.quote(str(options.known_hosts[0])) if options.known_hosts else "~/.ssh/known_hosts"
    kind = key.get_name().removeprefix("ssh-")
    steps = []
    if changed:
        steps.append(f"ssh-keygen -f {file} -R {shlex.quote(options.host_key_name)}")
    direct = lookup_name(options.hostname, options.port) == options.host_key_name
    if options.proxy_jump or options.proxy_command or not direct:
        steps.append(f"ssh {shlex.quote(options.alias)}   # compare the fingerprint, then answer yes")
    else:
        algorithm = kind.partition("-")[0]
        steps.append(f"ssh-keyscan -t {algorithm} -p {options.port} {options.hostname} >> {file}")
    return HostKeyError(
        f"The host key of {target.told} {what}.",
        node=target.name,
        cause=f"{options.host_key_name} shows {fingerprint(key.asbytes())} ({kind})",
        remedy=f"If that is the {'jump host' if target.jump else 'node'}'s key "
        "(there: ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), accept it:\n" + "\n".join(map(_typed, steps)),
    )
