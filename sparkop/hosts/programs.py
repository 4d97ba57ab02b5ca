"""The programs of `sparkop.node`, packed to be run by a node's Python, and their framed answers.

The remote command holds nothing but ``python3 -c 'import sys;exec(sys.stdin.buffer.read(N))'``: one pair of
single quotes, without ``$``, backslash, ``!`` or newline, means the same in sh, bash, zsh, fish and csh. The
program and its request follow on standard input, so nothing secret is in argv.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from functools import cache
from importlib import resources
from shlex import quote
from typing import Any

from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, unreadable
from sparkop.hosts.obstacle import obstacle
from sparkop.hosts.silent_docker import silent_engine
from sparkop.records import dataclass

PYTHON_OPTIONS = ("-I", "-S")
"""Isolated, and without site-packages: the node's programs use the standard library only."""

_LOADER = """\
import sys
from importlib.machinery import ModuleSpec

class Packed:
    sources = {sources!r}

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name == "node") if name in self.sources else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(self.sources[name], name.replace(".", "/") + ".py", "exec"), module.__dict__)

sys.meta_path.insert(0, Packed())
from node import {main}
sys.exit({main}.main(sys.stdin.buffer, sys.stdout.buffer))
"""
"""A module is compiled when it is imported: what is imported in a function, only when that is called."""


@dataclass(frozen=True)
class Program:
    """A program of a node: what goes to standard input before the request."""

    name: str
    source: bytes

    @property
    def statement(self) -> str:
        """The argument of ``python3 -c``."""
        return f"import sys;exec(sys.stdin.buffer.read({len(self.source)}))"

    @property
    def command(self) -> str:
        """The command line for a login shell, whichever it is."""
        return f"python3 {' '.join(PYTHON_OPTIONS)} -c '{self.statement}'"


@cache
def program(*modules: str) -> Program:
    """A program made of modules of `sparkop.node`; the last has ``main``."""
    folder = resources.files("sparkop.node")
    sources = {f"node.{name}": (folder / f"{name}.py").read_text(encoding="utf-8") for name in modules}
    return Program(modules[-1], _LOADER.format(sources={"node": "", **sources}, main=modules[-1]).encode())


def probe_program() -> Program:
    """Reads everything observed (node/probe.py)."""
    parts = (
        "facts",
        "engine",
        "gpus",
        "network",
        "headers",
        "health",
        "ping",
        "units",
        "claims",
        "leaving",
        "ground",
        "weights",
    )
    return program("wire", *parts, "probe")


def act_program() -> Program:
    """Performs one effect under the fence (node/act.py)."""
    return program(
        *("wire", "lease", "units", "unit_act", "follow", "claims", "leaving", "ground"),
        *("request", "file_act", "container_act", "act"),
    )


def relay_program() -> Program:
    """Passes standard input and output on to a TCP port of the node (node/relay.py)."""
    return program("relay")


def new_nonce() -> str:
    """Tells this request's answer from any other's."""
    return secrets.token_hex(16)


_HEAD = re.compile(rb"^sparkop ([0-9a-f]+) (\d+)\n", re.MULTILINE)
"""The line before an answer: its nonce and its size in bytes."""


def _head_of(output: bytes | bytearray, nonce: str) -> re.Match[bytes] | None:
    return next((head for head in _HEAD.finditer(output) if head[1] == nonce.encode()), None)


def whole_length(output: bytes | bytearray, nonce: str) -> int | None:
    """How many bytes a program has printed once its answer to this request is whole; None before it."""
    found = _head_of(output, nonce)
    return None if found is None else found.end() + int(found[2]) + len(b"\nend \n") + len(nonce)


def parse_answer(output: bytes, nonce: str, *, node: str, said: bytes = b"") -> dict[str, Any]:
    """The framed answer in what a program printed, start-up noise before and after it or not.

    ``said``: standard error, for the message. Raises UnreachableError when there is no whole answer of
    this request: half of one, an old one, or one of another.
    """
    found = _head_of(output, nonce)
    if found is None:
        if _HEAD.search(output):  # an answer is no text for people, and may hold a key
            cause, detail = "it answered another request", _tail(said)
        else:
            cause, detail = "it gave no answer", _tail(said or output)
        raise unreadable(cause, node=node, detail=detail)
    size = int(found[2])
    payload, trailer = output[found.end() :][:size], output[found.end() + size :]
    if len(payload) < size or not trailer.startswith(b"\nend " + nonce.encode() + b"\n"):
        raise unreadable(f"it ended after {len(payload)} of {size} bytes", node=node, detail=_tail(said))
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise unreadable(f"it is no JSON ({error})", node=node) from error
    if not isinstance(answer, dict):
        raise unreadable("it is no JSON object", node=node)
    return answer


def probed_document(output: bytes, nonce: str, *, node: str, said: bytes = b"") -> dict[str, Any]:
    """A probe's document; its own nonce must be the request's too. Raises UnreachableError."""
    document = parse_answer(output, nonce, node=node, said=said)
    if document.get("nonce") != nonce:
        raise unreadable("it answered another request", node=node)
    return document


_REMEDIES = (
    (
        "PermissionError",
        "give that path to the user that sparkop logs in as (there: sudo chown -R THAT-USER PATH), "
        "or name another folder: stateDirectory, weights.path",
    ),
    ("No space left", "make room there: df -h shows which disk is full"),
    ("Disk quota exceeded", "make room there, or raise that user's quota"),
    (
        "Read-only file system",
        "that file system is mounted read-only: findmnt -T PATH shows the mount, sudo mount -o remount,rw "
        "MOUNT-POINT makes it writable. If it was writable before, the kernel may have found the disk "
        "damaged: sudo dmesg tells",
    ),
)
"""What to do about a refusal of the node's operating system."""
_START = re.compile(
    r"exec: \\*\"(?P<program>[^\"\\]+)\\*\": .*(permission denied|not found|no such file|is a directory)"
)
"""How Docker tells that an image has no such program."""


def _docker_remedy(message: str) -> str:
    """For what the node's Docker engine has refused."""
    found = _START.search(message)
    if found is None:
        return "there: journalctl -u docker -n 20 says more; then run the same command again"
    return (
        f"the image has no program {found['program']} to start: see that image.reference, or image.build, "
        "makes an image of the engine, and that engine.container.entrypoint names a program in it; "
        "or leave that out"
    )


def _remedy(message: str) -> str | None:
    """With the path in its place, where the system has named one."""
    told = next((told for word, told in _REMEDIES if word in message), None)
    path = message.rpartition(": ")[2]
    return told.replace(" PATH", f" {quote(path)}") if told and path.startswith("/") else told


def _lease_error(message: str, node: str) -> LeaseHeldError:
    if message.endswith(_FREE):
        return LeaseHeldError(
            "This command does not have the lease any more.",
            node=node,
            cause=message,
            remedy="sparkop diff shows what is left to do",
        )
    return LeaseHeldError(
        "Another sparkop writes to this cluster.",
        node=node,
        cause=message,
        remedy="Wait until it has ended; `sparkop lease show` says who it is.",
    )


_FREE = ("was given back", "nobody holds the lease")
"""How node/lease.py ends when a writer's lease is gone, and no other has it."""


def raise_act_error(answer: Mapping[str, Any], *, node: str) -> None:
    """Raise what an act's answer says went wrong; nothing when it went well."""
    failure = answer.get("error")
    if failure is None:
        return
    kind, message = failure.get("kind"), str(failure.get("message"))
    if kind == "lease":
        raise _lease_error(message, node)
    if kind == "engine":
        raise silent_engine(message, node=node)
    found = obstacle(message) if kind == "os" else None
    if found is not None:
        raise BlockedError(
            f"{found.path} is {found.observed}, it should be {found.desired}",
            node=node,
            cause="something else has made it; sparkop moves nothing away that is not its own",
            remedy=found.remedy(node),
        )
    if kind in ("docker", "os"):
        remedy = _remedy(message) if kind == "os" else _docker_remedy(message)
        raise BlockedError(f"The node could not do it: {message}", node=node, remedy=remedy)
    raise SparkopError(f"The node's program failed: {message}", node=node, detail=failure.get("detail"))


def _tail(output: bytes) -> str | None:
    text = output.decode("utf-8", "replace").strip()
    return text[-600:] or None
