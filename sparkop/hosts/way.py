"""The way to a node: what the user's ssh would do, and the TCP stream.

No SSH library is needed for it: the ways to all nodes are found while that is imported, which takes as long.
"""

from __future__ import annotations

import errno
import socket

from sparkop.errors import UnreachableError, unreadable
from sparkop.hosts.ssh_options import SshOptions, Target, read_options
from sparkop.records import dataclass

USER_TIMEOUT_MS = 6000
"""A sent byte that is not acknowledged for this long ends the connection (a node without power)."""
KEEPALIVE = (3, 1, 3)
"""Seconds of silence before the first question, between questions, and how many go unanswered."""


@dataclass(frozen=True)
class Way:
    """How to reach a node."""

    options: SshOptions
    stream: socket.socket | None
    """Open; None where a jump host or a proxy command gives it. Whoever takes the way closes it."""


def find_way(target: Target, jump: str | None = None) -> Way:
    """Ask ssh, and connect. ``jump``: the hosts to go through, instead of those of the configuration.

    Raises UnreachableError, whose cause tells apart an unknown name, no route, no answer and refused.
    """
    options = read_options(target, jump=jump)
    if options.proxy_jump or options.proxy_command:
        return Way(options, None)
    try:
        return Way(options, _dial(options))
    except (OSError, UnicodeError) as error:  # of a name that no DNS could hold
        raise network_error(error, target, options) from error


def network_error(error: BaseException, target: Target, options: SshOptions) -> UnreachableError:
    """A failure below SSH in the user's words."""
    cause, remedy = _network_cause(error, place_of(options))
    return UnreachableError(
        f"No SSH connection to {target.name}.", node=target.name, cause=cause, remedy=remedy
    )


def place_of(options: SshOptions) -> str:
    """The server's address, as messages have it."""
    return options.hostname if options.port == 22 else f"{options.hostname} port {options.port}"


def _dial(options: SshOptions) -> socket.socket:
    stream = socket.create_connection((options.hostname, options.port), options.connect_timeout)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms a round trip
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        for name, value in zip(names, (*KEEPALIVE, USER_TIMEOUT_MS), strict=True):
            stream.setsockopt(socket.IPPROTO_TCP, name, value)
    return stream


def _network_cause(error: BaseException, place: str) -> tuple[str, str]:
    number = getattr(error, "errno", None)
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"the name {place} does not resolve", "Check the host in the spec or in ~/.ssh/config."
    if number == errno.ECONNREFUSED:
        return f"{place} refused the connection", "Check that sshd runs there, and the port."
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {place}", "Check the cable, the address and that the node is on."
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return f"{place} did not answer in time", "Check that the node is on, and the network between."
    if "protocol banner" in str(error) and isinstance(error.__context__, (EOFError, ConnectionError)):
        cause = f"{place} closes the connection at once: it goes up or down, or its sshd has too many"
        return cause, "Try again in a minute; `ssh -v` to the same host shows how far it comes."
    if "banner" in str(error) or "No existing session" in str(error):
        cause = f"{place} accepts the connection but says nothing: the node may hang, or that is no sshd"
        return cause, "Look at the node's console and its power, and check the port."
    return f"{place}: {why_broken(error)}", "Try `ssh -v` to the same host."


_CLOSED = ("ocket is closed", "hannel closed", "hannel is not open", "session not active", "existing session")
"""How paramiko says that a connection is over, where it says more than EOFError."""


def why_broken(error: BaseException) -> str:
    """Why a connection ended, in plain words: those of its library are for who knows that library."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    if not text or isinstance(error, EOFError) or any(words in text for words in _CLOSED):
        ends = "the node lost power or went down, its sshd was stopped, or the network between was cut"
        return f"the connection was closed: {ends}"
    return text


def broken(error: BaseException, node: str) -> UnreachableError:
    """A failure in the middle of whatever went on, in the user's words."""
    if isinstance(error, ValueError):
        return unreadable(str(error), node=node)
    return UnreachableError("The connection to the node broke.", node=node, cause=why_broken(error))
