"""What the user's ssh would do for a host, as ``ssh -G`` says it: with Include, Match, tokens, defaults."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparkop.errors import UnreachableError
from sparkop.records import dataclass

CONNECT_TIMEOUT = 10.0
"""Seconds, where the configuration names none."""


@dataclass(frozen=True)
class Target:
    """Where a node is. Without user, port or key the user's ssh configuration decides.

    ``local``: the machine that runs sparkop, reached without SSH. ``config_file``: read instead of the
    user's and the system's ssh configuration.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    local: bool = False
    config_file: str | None = None
    jump: bool = False
    """This is a jump host on the way to the node."""

    @property
    def told(self) -> str:
        """What answers there, in messages: of a jump host not the node behind it."""
        return f"{self.host}, a jump host of {self.name}," if self.jump else self.name


@dataclass(frozen=True)
class SshOptions:
    """The settings of ssh that sparkop follows. Paths are expanded."""

    alias: str
    """The host as the spec writes it."""
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    identities_only: bool
    agent: Path | None
    known_hosts: tuple[Path, ...]
    """The user's files, then the system's."""
    host_key_name: str
    """The name under which the host key is known: ``[host]:port`` unless the port is 22."""
    accept_new_keys: bool
    """StrictHostKeyChecking is ``accept-new`` or ``no``: the user wants unknown keys noted, as ssh does."""
    connect_timeout: float
    proxy_jump: str | None
    proxy_command: str | None


def read_options(target: Target, *, jump: str | None = None) -> SshOptions:
    """Ask ``ssh -G``. ``jump``: the hosts to go through, instead of those of the configuration.

    Raises UnreachableError when there is no ssh, or it refuses its configuration.
    """
    command = ["ssh", "-G"]
    for option, value in (
        ("-F", target.config_file),
        ("-l", target.user),
        ("-p", target.port),
        ("-i", target.identity_file and str(Path(target.identity_file).expanduser())),
        ("-J", jump),
    ):
        if value is not None:
            command += [option, str(value)]
    try:
        done = subprocess.run([*command, "--", target.host], capture_output=True, text=True, timeout=10)
    except FileNotFoundError as error:
        raise UnreachableError(
            "The ssh program was not found.",
            node=target.name,
            remedy="Install openssh-client on this machine.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UnreachableError("ssh did not say how to reach the node.", node=target.name) from error
    if done.returncode:
        raise UnreachableError(
            f"ssh refuses the settings for {target.host}.", node=target.name, detail=done.stderr.strip()
        )
    return parse_options(target.host, done.stdout)


def ssh_words(target: Target, *options: str) -> list[str]:
    """The command by which the user's ssh gets there, for messages and scripts. What runs there follows."""
    words = ["ssh", *options]
    for option, value in (("-l", target.user), ("-p", target.port), ("-i", target.identity_file)):
        if value is not None:
            words += [option, str(value)]
    return [*words, target.host]


def parse_options(alias: str, text: str) -> SshOptions:
    """The settings in the output of ``ssh -G``."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key.lower(), []).append(value.strip())

    def one(key: str, default: str = "") -> str:
        value = values.get(key, [default])[0]
        return default if value.lower() == "none" else value

    port, user = int(one("port", "22")), one("user", getpass.getuser())
    tokens = _tokens(alias, one("hostname", alias), port, user)
    files = [_path(f, tokens) for f in values.get("identityfile", []) if f.lower() != "none"]
    known = [f for key in ("userknownhostsfile", "globalknownhostsfile") for f in one(key).split()]
    name = one("hostkeyalias", tokens["h"])
    return SshOptions(
        alias=alias,
        hostname=tokens["h"],
        port=port,
        user=user,
        identity_files=tuple(dict.fromkeys(files)),
        identities_only=one("identitiesonly") == "yes",
        agent=_agent(values.get("identityagent", ["SSH_AUTH_SOCK"])[0], tokens),
        known_hosts=tuple(_path(f, tokens) for f in known),
        host_key_name=name if "hostkeyalias" in values else lookup_name(name, port),
        accept_new_keys=one("stricthostkeychecking") in ("accept-new", "no", "off", "false"),
        connect_timeout=float(one("connecttimeout") or CONNECT_TIMEOUT),
        proxy_jump=one("proxyjump") or None,
        proxy_command=_expand(one("proxycommand"), tokens) or None,
    )


def lookup_name(host: str, port: int) -> str:
    """The name of a host in known_hosts."""
    return host if port == 22 else f"[{host}]:{port}"


def jump_target(target: Target, jump: str) -> tuple[Target, str | None]:
    """The last of the hosts to go through, and the way to it (the hosts before it)."""
    before, _, last = jump.rpartition(",")
    found = re.fullmatch(r"(?:ssh://)?(?:([^@]*)@)?(\[[^\]]+\]|[^:\[\]]+)(?::(\d+))?/?", last.strip())
    if found is None:
        raise UnreachableError(f"ProxyJump {jump} can't be read.", node=target.name)
    user, host, port = found.groups()
    hop = Target(
        name=target.name,
        host=host.strip("[]"),
        user=user,
        port=int(port) if port else None,
        config_file=target.config_file,
        jump=True,
    )
    return hop, before or None


def _tokens(alias: str, hostname: str, port: int, user: str) -> Mapping[str, str]:
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "i": str(os.getuid()),
        "L": socket.gethostname().partition(".")[0],
        "l": socket.gethostname(),
        "n": alias,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }
    return {**tokens, "h": _expand(hostname, {**tokens, "h": alias})}


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    return Path(_expand(text, tokens)).expanduser()


def _agent(text: str, tokens: Mapping[str, str]) -> Path | None:
    """The agent's socket: IdentityAgent may be none, SSH_AUTH_SOCK, $VARIABLE or a path."""
    if text.lower() == "none":
        return None
    if text == "SSH_AUTH_SOCK" or text.startswith("$"):
        value = os.environ.get(text.removeprefix("$").strip("{}"))
        return Path(value) if value else None
    return _path(text, tokens)
