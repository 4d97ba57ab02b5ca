"""Public key authentication in ssh's order: the agent's keys that the configuration names, the agent's other
keys, then key files. Never asks: as ssh with BatchMode.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH
from paramiko.pkey import PublicBlob, UnknownKeyType

from sparkop.hosts.ssh_options import SshOptions


class NotAuthenticatedError(paramiko.AuthenticationException):
    """No key was accepted. ``locked``: key files that need a passphrase and were not tried."""

    def __init__(self, tried: list[str], locked: list[str], allowed: list[str]) -> None:
        super().__init__("permission denied")
        self.tried = tried
        self.locked = locked
        self.allowed = allowed
        """Methods that the server would take, where it said so."""


class Agent(AgentSSH):
    """The agent behind a socket (paramiko's own Agent knows only SSH_AUTH_SOCK)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        try:
            connection.connect(str(path))
            self._connect(connection)  # type: ignore[attr-defined]  # missing in its stubs
        except (OSError, paramiko.SSHException):
            connection.close()

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


class Authentication:
    """What `paramiko.SSHClient.connect` calls to authenticate."""

    def __init__(self, options: SshOptions) -> None:
        self.options = options

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Try every key. Raises NotAuthenticatedError, or SSHException when the server hangs up."""
        agent = Agent(self.options.agent) if self.options.agent else None
        tried: list[str] = []
        locked: list[str] = []
        allowed: list[str] = []
        try:
            for label, key in self._keys(agent, locked):
                tried.append(label)
                try:
                    allowed = transport.auth_publickey(self.options.user, key)
                except paramiko.BadAuthenticationType as error:
                    raise NotAuthenticatedError(tried, locked, error.allowed_types) from error
                except paramiko.AuthenticationException:
                    continue
                if not allowed:
                    return
                break  # the server wants a second factor
        finally:
            if agent is not None:
                agent.close()
        raise NotAuthenticatedError(tried, locked, allowed)

    def _keys(self, agent: Agent | None, locked: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
        files = [f for f in self.options.identity_files if f.exists()]
        named = {blob: file for file in files if (blob := _public_blob(file)) is not None}
        held = list(agent.get_keys()) if agent else []
        first = [key for key in held if key.asbytes() in named]
        rest = [] if self.options.identities_only else [key for key in held if key.asbytes() not in named]
        for key in (*first, *rest):
            yield f"{key.comment or key.get_name()} (agent)", key
        in_agent = {named[key.asbytes()] for key in first}
        for file in files:
            if file not in in_agent and file.suffix != ".pub":
                loaded = _load(file, locked)
                if loaded is not None:
                    yield str(file), loaded


def _public_blob(file: Path) -> bytes | None:
    """The public half of a key file in wire form, by the .pub beside it (or itself)."""
    public = file if file.suffix == ".pub" else file.with_name(file.name + ".pub")
    try:
        blob: bytes = PublicBlob.from_file(str(public)).key_blob
        return blob
    except (OSError, ValueError, paramiko.SSHException):
        return None


def _load(file: Path, locked: list[str]) -> paramiko.PKey | None:
    try:
        key = paramiko.PKey.from_path(file)
    except (paramiko.PasswordRequiredException, TypeError):  # cryptography's word for a missing passphrase
        locked.append(str(file))
        return None
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType):
        return None
    certificate = file.with_name(file.name + "-cert.pub")
    if certificate.exists():
        key.load_certificate(str(certificate))
    return key
