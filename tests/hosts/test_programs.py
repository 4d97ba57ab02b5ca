"""Frames: what is a whole answer of this request, and what is not. And what the programs may use."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkop.node
from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, UnreachableError
from sparkop.hosts.programs import (
    Program,
    act_program,
    new_nonce,
    parse_answer,
    probe_program,
    probed_document,
    raise_act_error,
    relay_program,
)
from sparkop.node import lease, wire

NONCE = "0123456789abcdef"
NODE = Path(sparkop.node.__file__).parent


def framed(answer: dict[str, object], nonce: str = NONCE) -> bytes:
    stream = io.BytesIO()
    wire.write_answer(stream, nonce, answer)
    return stream.getvalue()


@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_noise_does_not_disturb(before: bytes, after: bytes) -> None:
    assert parse_answer(before + framed({"a": "é\n"}) + after, NONCE, node="n") == {"a": "é\n"}


@given(st.data())
def test_no_part_of_an_answer_is_an_answer(data: st.DataObject) -> None:
    whole = framed({"a": list(range(30))})
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UnreachableError):
        parse_answer(whole[:length], NONCE, node="n")


@pytest.mark.parametrize(
    "output",
    [
        b"",
        framed({"a": 1}, new_nonce()),
        framed({"a": 1}).replace(b'{"a":1}', b'{"a":1'),
        framed({"a": 1}).replace(b'{"a":1}', b"[1,2,3]"),
        f"\nsparkop {NONCE} 3\nabc\nend {NONCE}\n".encode(),
    ],
    ids=["nothing", "old", "cut", "list", "no json"],
)
def test_what_is_no_answer(output: bytes) -> None:
    with pytest.raises(UnreachableError) as caught:
        parse_answer(output, NONCE, node="n")
    assert "sparkop doctor" in str(caught.value.remedy), "the next step"


def test_an_answer_is_not_told_as_what_the_node_said() -> None:
    """It may hold a key; only its end would have been told, in a line for people."""
    with pytest.raises(UnreachableError, match="can't be read") as told:
        parse_answer(framed({"contents": {"api_key": "sentinel"}}, new_nonce()), NONCE, node="n")
    assert told.value.detail is None
    assert "sentinel" not in told.value.reason


def test_a_document_of_another_request_in_this_ones_frame() -> None:
    with pytest.raises(UnreachableError, match="can't be read"):
        probed_document(framed({"nonce": "other"}), NONCE, node="n")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("lease", LeaseHeldError),
        ("docker", BlockedError),
        ("engine", UnreachableError),
        ("os", BlockedError),
        ("internal", SparkopError),
        ("arguments", SparkopError),
    ],
)
def test_errors_of_acts(kind: str, error: type[SparkopError]) -> None:
    with pytest.raises(error) as caught:
        raise_act_error({"error": {"kind": kind, "message": "m"}}, node="n")
    assert type(caught.value) is error
    assert caught.value.node == "n"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"holder": "ada", "epoch": 3}, "Another sparkop writes"),
        ({"holder": "me", "epoch": 3, "released": True}, "does not have the lease any more"),
        (None, "does not have the lease any more"),
    ],
)
def test_a_lease_that_was_broken_is_not_told_as_another_writer(
    state: dict[str, object] | None, told: str
) -> None:
    """To wait for the end of the writer would be to wait for nobody. The words are the node's own."""
    with pytest.raises(lease.LeaseError) as refused:
        lease.check(
            {**state, "cluster": "c"} if state else None, {"cluster": "c", "holder": "me", "token": 3}
        )
    with pytest.raises(LeaseHeldError, match=told):
        raise_act_error({"error": {"kind": "lease", "message": str(refused.value)}}, node="n")


def test_what_the_system_refuses_has_a_way_on() -> None:
    """Somebody else's folder, a full disk: the words of the kernel alone help nobody."""
    for message, way in (
        ("PermissionError: Permission denied: /s x", "chown -R THAT-USER '/s x')"),
        ("OSError: No space left", "df"),
        ("OSError: Read-only file system: /s", "mounted read-only: findmnt -T /s shows"),
    ):
        with pytest.raises(BlockedError) as caught:
            raise_act_error({"error": {"kind": "os", "message": message}}, node="n")
        assert way in str(caught.value.remedy)


def test_what_docker_refuses_has_a_way_on() -> None:
    """An image that is not of the engine: the words of the container runtime had no next step."""
    start = 'OCI runtime create failed: unable to start container process: exec: "/model"'
    for message, way in (
        (f"EngineError: 400 {start}: permission denied: unknown", "no program /model to start"),
        (f"EngineError: 400 {start}: stat /model: no such file or directory", "engine.container.entrypoint"),
        ("EngineError: 500 what nobody has seen", "journalctl -u docker"),
    ):
        with pytest.raises(BlockedError) as caught:
            raise_act_error({"error": {"kind": "docker", "message": message}}, node="n")
        assert way in str(caught.value.remedy)


@pytest.mark.parametrize("program", [probe_program(), act_program(), relay_program()], ids=lambda p: p.name)
def test_the_remote_command_has_no_quoting_traps(program: object) -> None:
    """One pair of single quotes around harmless characters: the same in every shell."""
    command = str(program.command)  # type: ignore[attr-defined]
    assert re.fullmatch(r"python3 -I -S -c '[A-Za-z0-9 ;().]+'", command)


@pytest.mark.parametrize("path", sorted(NODE.glob("*.py")), ids=lambda p: p.name)
def test_programs_are_written_for_python_3_8_and_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


@pytest.mark.parametrize("program", [probe_program(), act_program(), relay_program()], ids=lambda p: p.name)
def test_a_program_holds_every_module_that_its_modules_import(program: Program) -> None:
    """Also inside functions: a module that the probe did not have was missed by `destroy --weights` only."""
    held = set(re.findall(r"'node\.(\w+)': ", program.source.decode()))
    assert program.name in held
    for name in held:
        for node in ast.walk(ast.parse((NODE / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                wanted = {node.module.partition(".")[0]} if node.module else {a.name for a in node.names}
                assert wanted <= held, f"{name}.py imports {wanted - held}, which is not packed with it"


def test_a_probe_starts_no_process_and_loads_nothing_heavy() -> None:
    """It runs every few seconds: what it imports is most of what it costs."""
    program = probe_program()
    source = program.source.replace(
        b"sys.exit(probe.main(sys.stdin.buffer, sys.stdout.buffer))",
        b"probe.main(sys.stdin.buffer, sys.stdout.buffer); print(*sys.modules, file=sys.stderr)",
    )
    assert source != program.source
    statement = program.statement.replace(str(len(program.source)), str(len(source)))
    command = [sys.executable, "-I", "-S", "-c", statement]
    request = b'{"version":1,"nonce":"n","files":["/etc/hostname"],"ports":[22]}'
    done = subprocess.run(command, input=source + request, capture_output=True, check=True)
    loaded = set(done.stderr.decode().split())
    assert "socket" in loaded
    assert not loaded & {
        "subprocess",
        "http.client",
        "ssl",
        "email",
        "asyncio",
        "logging",
        "urllib",
        "typing",
    }
    assert not loaded & {
        "node.health",
        "node.gpus",
        "node.headers",
        "node.leaving",
        "node.ping",
        "node.weights",
    }, "not asked"
