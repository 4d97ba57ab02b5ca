"""What any client of the served API needs to know."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from sparkop.errors import BlockedError, UsageError
from sparkop.hosts.ssh_options import Target, read_options, ssh_words
from sparkop.records import dataclass
from sparkop.spec.clients import Level
from sparkop.spec.models import ClusterSpec

NO_KEY = "unused"
"""Given as the key where the API asks for none: clients insist on one."""


@dataclass(frozen=True)
class KeySource:
    """Where a client takes the key from: an environment variable, and a command for when it is not set."""

    variable: str
    otherwise: str | None = None
    """Shell command that prints the key; fails, or prints nothing, when there is none."""

    @property
    def command(self) -> str:
        """Shell command that prints the key, and fails when there is none."""
        return f"printenv {self.variable}" + (f" || {self.otherwise}" if self.otherwise else "")


@dataclass(frozen=True)
class Profile:
    """One model of one cluster, as clients see it. Lengths in tokens."""

    provider: str
    title: str
    model: str
    base_url: str
    """Ends in ``/v1``."""
    key: KeySource | None
    """None: the API asks for no key."""
    context: int | None
    max_output: int | None
    remove_cap: bool
    input: tuple[Literal["text", "image"], ...]
    reasoning: bool
    efforts: Mapping[Level, str | None]
    make_default: bool = False


def profile_of(
    spec: ClusterSpec,
    key_file: str,
    *,
    base_url: str | None = None,
    key_variable: str | None = None,
    make_default: bool = False,
) -> Profile:
    """The spec's profile. ``key_file``: of the API key, on the head; may begin with ``~``.

    The key comes from an environment variable, else from the head's own file; only from the variable when
    ``base_url`` or ``key_variable`` is given: then it may be another server's. Raises UsageError for a base
    URL that is none, BlockedError when the API can't be reached from outside the head.
    """
    clients = spec.clients
    key = None
    if spec.api.key != "none":
        own = base_url is None and key_variable is None
        key = KeySource(
            key_variable or clients.key_environment, _key_command(spec, key_file) if own else None
        )
    context = clients.context_window or spec.engine.context
    return Profile(
        provider=clients.provider or spec.name,
        title=clients.title or spec.api.served_names[0],
        model=spec.api.served_names[0],
        base_url=_base_url(base_url) if base_url else f"http://{_authority(spec)}/v1",
        key=key,
        context=context,
        max_output=clients.max_output_tokens or context,
        remove_cap=clients.output_cap == "remove",
        input=clients.input,
        reasoning=clients.reasoning,
        efforts=clients.reasoning_effort,
        make_default=make_default or clients.make_default,
    )


def _base_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, a bracket that is not closed
        good = False
    if not good:
        raise UsageError("--base-url is no base URL", remedy="--base-url http://HOST:PORT/v1")
    if parts.username is not None or parts.password is not None:
        raise UsageError("the base URL holds a user or password", remedy="leave it out: clients send the key")
    if parts.query or parts.fragment:
        raise UsageError("--base-url is no base URL: it ends before ? and #")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _authority(spec: ClusterSpec) -> str:
    """Host and port of the API, as this machine reaches it."""
    bind, remote, port = spec.api.bind, spec.head.remote, spec.api.port
    if _any_address(bind):
        host = "127.0.0.1" if remote is None else _host_name(spec)
    elif remote is not None and (bind == "localhost" or _loopback(bind)):
        where = remote.host if remote.user is None else f"{remote.user}@{remote.host}"
        raise BlockedError(
            f"the API listens on {bind} of {spec.head.name} only (api.bind)",
            remedy=f"make a tunnel (ssh -N -L {port}:127.0.0.1:{port} {where}) and add "
            f"--base-url http://127.0.0.1:{port}/v1",
        )
    else:
        host = bind
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_name(spec: ClusterSpec) -> str:
    """The head's name or address; an alias of ~/.ssh/config is no name for other programs."""
    target = _target(spec)
    assert target is not None
    return read_options(target).hostname


def _any_address(bind: str) -> bool:
    try:
        return ip_address(bind).is_unspecified
    except ValueError:
        return False


def _loopback(bind: str) -> bool:
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return False


def _target(spec: ClusterSpec) -> Target | None:
    ssh = spec.head.remote
    if ssh is None:
        return None
    return Target(spec.head.name, ssh.host, ssh.user, ssh.port, ssh.identity_file)


def _key_command(spec: ClusterSpec, key_file: str) -> str:
    """Prints the key file of the head. Asks nothing, so that a client never hangs."""
    quoted = f"~/{shlex.quote(key_file[2:])}" if key_file.startswith("~/") else shlex.quote(key_file)
    target = _target(spec)
    if target is None:
        return f"cat {quoted}"
    words = ssh_words(target, "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")
    return shlex.join([*words, f"cat {quoted}"])
