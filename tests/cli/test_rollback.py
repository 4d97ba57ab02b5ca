"""``sparkop rollback`` as a user runs it: after a bad spec, after a broken file.

Nodes, clock and weights are simulated; the spec, what this machine remembers and the command are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkop.cli import run
from sparkop.errors import (
    BlockedError,
    DeclinedError,
    ExitCode,
    LeaseHeldError,
    SparkopError,
    SpecError,
    TimedOutError,
    UnreachableError,
    WaitInterruptedError,
)
from sparkop.hosts.base import Host
from sparkop.hosts.simulated_node import Answer, Fault, SimulatedCrash
from sparkop.reconcile import converge as converging
from sparkop.reconcile import destroy as destroying
from sparkop.reconcile import nodes
from sparkop.reconcile.ready_specs import ready_specs
from sparkop.reconcile.remembered import Applied, last_applied, remember
from sparkop.spec.models import ClusterSpec
from sparkop.views.console import out, talk
from sparkop.views.rollback import differences
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.worlds import CHANGES

Write = Callable[..., Path]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two nodes that every command of this test reaches."""
    cluster = Cluster.make()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SPARKOP_SPEC", raising=False)
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def reached(spec: ClusterSpec) -> Iterator[dict[str, Host]]:
        cluster.spec = spec
        yield cluster.hosts()

    played = partial(converging.converge, clock=cluster.clock, resources=SIMULATED)
    monkeypatch.setattr(nodes, "writable_nodes", reached)
    monkeypatch.setattr(converging, "converge", played)
    out.cache_clear()
    talk.cache_clear()
    return cluster


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(**changes: Any) -> Path:
        document = spec_of(**changes).model_dump(mode="json", by_alias=True, exclude_unset=True)
        path = tmp_path / "my-cluster.yaml"
        path.write_text(json.dumps(document))
        return path

    return written


def test_a_spec_that_rules_refuse_is_not_what_later_commands_are_about(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`diff` without a spec took three nodes that were never applied for the cluster applied last."""
    spec = write()

    def refused(*_: object, **__: object) -> None:
        raise SpecError("the heads can't be shared")

    with monkeypatch.context() as first:
        first.setattr(converging, "converge", refused)
        assert run(["apply", str(spec)]) == ExitCode.INVALID_SPEC
        assert last_applied() is None
    assert run(["apply", str(spec)]) == ExitCode.OK
    other = spec.with_name("other.yaml")
    other.write_text(spec.read_text())
    monkeypatch.setattr(converging, "converge", refused)
    assert run(["apply", str(other)]) == ExitCode.INVALID_SPEC
    applied = last_applied()
    assert applied is not None
    assert applied.spec == str(spec)


def test_a_spec_that_was_never_ready_is_left_for_the_last_one_that_was(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1 serves, S2 dies at its start: back to S1, the same world, and nothing is left to do."""
    spec = write()
    assert run(["apply", str(spec)]) == ExitCode.OK
    before = cluster.shape()
    write(memory={"kvCache": "32 MiB"})
    cluster.manner = "die-1"
    capsys.readouterr()
    assert run(["apply", str(spec), "-o", "json"]) == ExitCode.FAILED
    said = capsys.readouterr()
    told = json.loads(said.out)["error"]
    assert (told["exit"], told["node"]) == (ExitCode.FAILED, "spark-2"), "a failure is data too"
    assert "sparkop rollback goes back" in said.err
    assert "/dev/shm" in told["detail"]
    cluster.manner = "serve"
    assert run(["rollback", "-o", "json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["operations"] > 0
    assert cluster.shape() == before
    assert cluster.plan().converged


@pytest.mark.parametrize(
    "broken",
    ["name: [", "name: test\nengine: {knid: vllm}\n", "\x00\x01", None],
    ids=["yaml", "key", "bytes", "gone"],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_spec_broken_on_disk_is_told_and_left_for_the_last_one_that_was_ready(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str], broken: str | None, named: bool
) -> None:
    """With nothing of the file to go by, the cluster is the one that was applied last from that very file."""
    spec = write()
    assert run(["apply", str(spec)]) == ExitCode.OK
    before = cluster.shape()
    cluster.node("spark-2").exit("test-r1", 137)
    if broken is None:
        spec.unlink()
    else:
        spec.write_text(broken)
    capsys.readouterr()
    assert run(["rollback", *([str(spec)] if named else [])]) == ExitCode.OK
    told = capsys.readouterr().err
    (note,) = [line for line in told.splitlines() if line.startswith("note: ")]
    assert str(spec) in note, "what is wrong with the file is said all the same"
    assert note.endswith("; going back does without it")
    assert "sparkop: " not in told, "it goes on: that is no failure"
    assert "rolling back from" in told
    assert cluster.shape() == before


def _serve_two(cluster: Cluster, write: Write) -> tuple[Path, dict[str, Any]]:
    """64 MiB serves, then 32 MiB does, from the same file; the file, and the world of the first."""
    spec = write()
    assert run(["apply", str(spec)]) == ExitCode.OK
    before = cluster.shape()
    assert run(["apply", str(write(memory={"kvCache": "32 MiB"}))]) == ExitCode.OK
    return spec, before


def _interrupt(cluster: Cluster, after: int) -> bool:
    """A rollback that dies after its nth write, as by `kill -9`; False: it was over before."""
    cluster.world.faults[cluster.world.attempts + after] = Fault.AFTER
    try:
        return run(["rollback", "--yes"]) != ExitCode.OK
    except SimulatedCrash:
        return True
    finally:
        cluster.world.revive()


@pytest.mark.parametrize("repeat", ["rollback", "rollback SPEC", "rollback gone", "apply", "apply, rollback"])
def test_an_interrupted_rollback_goes_on_whatever_it_was_doing(
    cluster: Cluster, write: Write, repeat: str
) -> None:
    """Killed after any write, run again: it went to the spec that it had just fled from. SPEC may be gone by
    then; `apply` alone goes on with it too. Killed over the lease, it was none."""
    spec, before = _serve_two(cluster, write)
    left = cluster.shape()
    after, died = 0, True
    while died:
        if not spec.exists():
            write()
        assert run(["apply", str(write(memory={"kvCache": "32 MiB"}))]) == ExitCode.OK
        died = _interrupt(cluster, after)
        applied = last_applied()
        begun = applied is not None and applied.rollback is not None
        if not begun:
            assert cluster.shape() == left
            assert after < 5, "a rollback takes the lease, and begins"
            after += 1
            continue
        if repeat == "rollback gone":
            spec.unlink()
        words = {"rollback SPEC": ["rollback", str(spec)], "rollback gone": ["rollback", str(spec)]}
        for each in repeat.split(", "):
            assert run(words.get(each, [each])) == ExitCode.OK
        assert cluster.shape() == before, f"died after write {after}"
        after += 1 if repeat == "rollback" else 5
    assert after > 5, "a rollback is more than a few writes"


def test_a_rollback_that_came_ready_is_not_done_twice(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user may not have seen its end. Where else one can go is told; going there is an apply."""
    spec, before = _serve_two(cluster, write)
    assert run(["rollback"]) == ExitCode.OK
    told = capsys.readouterr().err
    assert f"rolling back from {spec} to the spec that was ready at 20" in told
    assert "\n  memory.kvCache: 32 MiB -> 64 MiB\n" in told
    for named in ([], [str(spec)]):
        writes = len(cluster.world.writes)
        assert run(["rollback", *named]) == ExitCode.OK
        told = capsys.readouterr().err
        assert f"rolled back already from {spec} to" in told
        assert "memory.kvCache: 64 MiB -> 32 MiB" in told
        assert len(cluster.world.writes) == writes
    assert cluster.shape() == before
    other = next(line for line in told.splitlines() if line.startswith("  sparkop apply ")).split()[2]
    assert run(["apply", other]) == ExitCode.OK
    assert cluster.shape() != before
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.OK, "from there it goes back again"
    assert cluster.shape() == before
    assert f"rolling back from {other} to" in capsys.readouterr().err


def test_other_specs_are_told_only_where_one_of_them_can_help(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cable was out, and "other specs of this cluster that were ready" came before what to plug in. A
    rollback of a cluster that was taken down said only "rolled back already", and then started it."""
    _serve_two(cluster, write)
    assert run(["rollback"]) == ExitCode.OK
    target = ready_specs("test")[0].path
    cluster.stop()
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.OK
    assert "stopped, destroyed or changed, it is applied" in capsys.readouterr().err
    cluster.stop()
    cluster.manner = "die-1"
    assert run(["apply", str(target), "--yes"]) == ExitCode.FAILED
    assert "other specs of this cluster that were ready" in capsys.readouterr().err
    cluster.stop()
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    assert run(["apply", str(target), "--yes"]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "plug the cable in" in told
    assert "other specs" not in told


def test_no_rollback_is_offered_by_an_apply_that_changed_nothing(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was blocked before its first operation: a rollback would have left the spec that serves."""
    _serve_two(cluster, write)
    offered = "sparkop rollback goes back"
    bad = write(memory={"kvCache": "16 MiB"}).rename("bad.yaml")
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    capsys.readouterr()
    assert run(["apply", str(bad), "--yes"]) == ExitCode.FAILED
    assert offered not in capsys.readouterr().err
    CHANGES["rails_up"](cluster.node("spark-2"), [0, 1])
    cluster.manner = "die-1"
    assert run(["apply", str(bad), "--yes"]) == ExitCode.FAILED
    assert offered in capsys.readouterr().err, "its ranks were started"


def test_a_node_of_which_something_is_kept_is_told_until_that_is_gone(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "destroy again" was the advice, and the file that it needs was gone."""
    played = partial(destroying.destroy, clock=cluster.clock, resources=SIMULATED)
    monkeypatch.setattr(destroying, "destroy", played)
    assert run(["apply", str(write())]) == ExitCode.OK
    write(nodes=[{"name": "spark-1"}])
    capsys.readouterr()
    node = cluster.node("spark-2")
    assert run(["apply", "my-cluster.yaml", "--yes"]) == ExitCode.OK
    told = capsys.readouterr().err
    command = next(each for each in told.split(";") if "sparkop destroy" in each).split()[1:3]
    CHANGES["containers"](node, {"by-hand": {}})
    node.containers["by-hand"].image_id = next(iter(node.images.values())).id
    assert run([*command, "--yes"]) == ExitCode.OK
    del node.containers["by-hand"]
    assert run([*command, "--yes"]) == ExitCode.OK
    assert node.images == {}
    capsys.readouterr()
    assert run(["apply", "my-cluster.yaml", "--yes"]) == ExitCode.OK
    assert "spark-2" not in capsys.readouterr().err


def test_a_rollback_that_was_declined_was_none(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Later commands are about what runs; one that goes on stays under way when the user says no."""
    spec, before = _serve_two(cluster, write)
    with monkeypatch.context() as no:
        no.setattr("sparkop.views.plan.ask_approval", lambda _plan: False)
        assert run(["rollback"]) == ExitCode.FAILED
        told = capsys.readouterr().err
        assert "sparkop rollback --yes goes ahead" in told
        assert "has not served" not in told
        applied = last_applied()
        assert applied is not None
        assert applied.spec == str(spec)
    assert _interrupt(cluster, 3)
    assert run(["rollback"]) == ExitCode.OK
    assert cluster.shape() == before


def test_a_rollback_that_fails_names_the_other_specs(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another rollback goes on with this one: where else one can go is an apply."""
    _serve_two(cluster, write)
    cluster.manner = "die-1"
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "has not served" not in told
    assert "  sparkop apply /" in told


def test_a_value_that_may_be_a_secret_is_not_told() -> None:
    """Rules refuse one in a spec, but a kept spec may be older than the rule."""
    one, two = ({"engine": {"environment": {"HF_TOKEN": value}}} for value in ("abcdefgh1", "abcdefgh2"))
    assert differences(json.dumps(one), json.dumps(two)) == ["engine.environment.HF_TOKEN: changed"]
    assert differences("a: 1", "{}") == []


def test_another_broken_file_is_no_reason_to_touch_the_cluster_applied_last(
    cluster: Cluster, write: Write, tmp_path: Path
) -> None:
    """It may have been any cluster's: nothing is guessed."""
    assert run(["apply", str(write())]) == ExitCode.OK
    other = tmp_path / "other.yaml"
    other.write_text("name: [")
    writes = len(cluster.world.writes)
    assert run(["rollback", str(other)]) == ExitCode.INVALID_SPEC
    assert len(cluster.world.writes) == writes


def test_without_a_spec_that_was_ready_there_is_nothing_to_go_back_to(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first spec of a cluster, bad: told with what to do, and nothing is written."""
    spec = write()
    cluster.manner = "die-1"
    assert run(["apply", str(spec)]) == ExitCode.FAILED
    writes = len(cluster.world.writes)
    assert run(["rollback"]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "no other spec of cluster test" in told
    assert f"do: correct {spec}, then sparkop apply {spec}" in told
    assert len(cluster.world.writes) == writes


def test_a_rollback_from_a_set_that_it_does_not_know_of_says_what_to_type(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bad `--set`, and a plain rollback with ./spec.yaml: that spec is the one to go back to."""
    spec = write().rename("spec.yaml").absolute()
    overlay = spec.with_name("my overlay.yaml")
    overlay.write_text("{}")
    bad = ["apply", str(spec), "--overlay", str(overlay), "--set", "memory.kvCache=32 MiB"]
    cluster.manner = "die-1"
    assert run([*bad, "--yes"]) == ExitCode.FAILED
    capsys.readouterr()
    assert run(["rollback", *bad[1:]]) == ExitCode.FAILED
    assert f"do: sparkop apply {spec}  # without --set and overlays" in capsys.readouterr().err
    cluster.manner = "serve"
    assert run(["apply", str(spec), "--overlay", str(overlay)]) == ExitCode.OK
    cluster.manner = "die-1"
    assert run([*bad, "--yes"]) == ExitCode.FAILED
    capsys.readouterr()
    assert run(["rollback", "--overlay", str(overlay)]) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().err.split())
    assert f"do: sparkop apply {spec} --overlay '{overlay}' # it has served" in told
    cluster.manner = "serve"
    assert run(["apply", str(spec), "--overlay", str(overlay), "--yes"]) == ExitCode.OK


def test_a_node_that_the_spec_has_no_more_is_told_and_not_touched(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others serve without it; what still runs there is out of reach, so the command for it is given."""
    spec = write()
    assert run(["apply", str(spec)]) == ExitCode.OK
    node, container = cluster.rank(1)
    write(nodes=[{"name": "spark-1"}])
    capsys.readouterr()
    writes = len(cluster.world.writes)
    assert run(["apply", str(spec)]) == ExitCode.OK
    told = capsys.readouterr().err
    assert "spark-2 belonged to this cluster and is not in the spec" in told
    assert {each.node for each in cluster.world.writes[writes:]} == {"spark-1"}
    assert container.running
    assert node.containers[container.spec.name] is container
    assert cluster.plan().converged


def test_diff_tells_of_a_node_that_the_spec_has_no_more(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only apply warned that a rank still runs there."""
    assert run(["apply", str(write())]) == ExitCode.OK
    one = write(nodes=[{"name": "spark-1"}])
    capsys.readouterr()

    @contextmanager
    def unreached(_spec: ClusterSpec) -> Iterator[dict[str, Host]]:
        yield {}

    monkeypatch.setattr(nodes, "readable_nodes", unreached)
    run(["diff", str(one)])
    assert "spark-2 belonged to this cluster and is not in the spec" in capsys.readouterr().err


def test_a_state_folder_that_the_spec_has_left_is_told(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another stateDirectory: the old one stayed, unsaid. The default in words is none."""
    assert run(["apply", str(write())]) == ExitCode.OK
    assert run(["apply", str(write(stateDirectory="~/.sparkop/test")), "--yes"]) == ExitCode.OK
    assert "the state folder was" not in capsys.readouterr().err
    run(["apply", str(write(stateDirectory="~/elsewhere")), "--yes"])
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("the state folder was ~/.sparkop/test before") == 2


def test_what_a_destroy_has_cleared_is_no_more_warned_of(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An apply told of the state folder and of the node of an earlier spec, and both were gone."""
    played = partial(destroying.destroy, clock=cluster.clock, resources=SIMULATED)
    monkeypatch.setattr(destroying, "destroy", played)
    first = write().rename("first.yaml")
    second = write(stateDirectory="~/elsewhere", nodes=[{"name": "spark-1"}])
    warnings = ("the state folder was", "is not in the spec")
    assert run(["apply", str(first)]) == ExitCode.OK
    cluster.node("spark-2").answer = Answer.SILENT
    assert run(["destroy", str(first), "--yes"]) == ExitCode.UNREACHABLE
    capsys.readouterr()
    cluster.manner = "die-0"
    assert run(["apply", str(second)]) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().err.split())
    assert [each in told for each in warnings] == [False, True], "it was cleared where it answered"
    cluster.node("spark-2").answer = Answer.WHOLE
    assert run(["destroy", str(first), "--yes"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["apply", str(second)]) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().err.split())
    assert not any(each in told for each in warnings)
    cluster.manner = "serve"
    assert run(["apply", str(first), "--yes"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["apply", str(second), "--yes"]) == ExitCode.OK
    told = " ".join(capsys.readouterr().err.split())
    assert all(each in told for each in warnings), "it served there again"


def test_a_node_that_left_the_spec_is_told_until_it_is_destroyed_and_by_its_own_file(
    cluster: Cluster, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once the new spec had served nobody told that the old rank still ran, destroy neither. The command that
    is given must not touch those that serve."""
    played = partial(destroying.destroy, clock=cluster.clock, resources=SIMULATED)
    monkeypatch.setattr(destroying, "destroy", played)
    told = "spark-2 belonged to this cluster and is not in the spec"
    spec = write()
    assert run(["apply", str(spec)]) == ExitCode.OK
    write(nodes=[{"name": "spark-1"}])
    assert run(["apply", str(spec), "--yes"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["apply", str(spec)]) == ExitCode.OK
    first = capsys.readouterr().err
    assert told in first
    command = next(each for each in first.split(";") if "sparkop destroy" in each).split()
    assert run(["destroy", str(spec), "--yes"]) == ExitCode.OK
    assert told in capsys.readouterr().err
    assert run(["apply", str(spec), "--yes"]) == ExitCode.OK
    assert cluster.node("spark-2").containers
    writes = len(cluster.world.writes)
    capsys.readouterr()
    assert run([*command[1:3], "--yes"]) == ExitCode.OK
    assert "warning" not in capsys.readouterr().err, "of those that serve there is nothing to warn"
    assert {each.node for each in cluster.world.writes[writes:]} == {"spark-2"}
    assert not cluster.node("spark-2").containers
    for again in ("apply", "destroy"):
        assert run([again, str(spec), "--yes"]) == ExitCode.OK
        assert told not in capsys.readouterr().err


def test_a_node_that_never_served_is_left_behind_too(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rank was started; only nodes of a spec that had come ready were remembered."""
    cluster.manner = "die-0"
    assert run(["apply", str(write())]) == ExitCode.FAILED
    cluster.manner = "serve"
    capsys.readouterr()
    assert run(["apply", str(write(nodes=[{"name": "spark-1"}])), "--yes"]) == ExitCode.OK
    assert "spark-2 belonged to this cluster and is not in the spec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaseHeldError("another writes"), ExitCode.LEASE_HELD),
        (UnreachableError("no node answers"), ExitCode.UNREACHABLE),
        (BlockedError("a cable is out"), ExitCode.FAILED),
        (DeclinedError("you said no"), ExitCode.FAILED),
        (SpecError("refused"), ExitCode.INVALID_SPEC),
        (TimedOutError("too slow"), ExitCode.TIMED_OUT),
        (WaitInterruptedError("while reading"), ExitCode.INTERRUPTED),
    ],
    ids=lambda value: value.name if isinstance(value, ExitCode) else "",
)
@pytest.mark.parametrize("command", ["apply", "rollback"])
def test_what_changed_nothing_is_not_what_later_commands_are_about(
    cluster: Cluster,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    error: SparkopError,
    code: ExitCode,
) -> None:
    """An apply that found the lease another's was taken for the spec of the cluster from then on."""
    spec, _ = _serve_two(cluster, write)
    known = last_applied()
    other = spec.with_name("other.yaml")
    other.write_text(spec.read_text().replace("32 MiB", "48 MiB"))

    def ended(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(converging, "converge", ended)
    assert run([command, str(other), "--yes"]) == code
    assert last_applied() == known


def test_what_began_to_change_the_cluster_is_what_later_commands_are_about(
    cluster: Cluster, write: Write
) -> None:
    """However it ends; and so is what found nothing to do."""
    spec, _ = _serve_two(cluster, write)
    other = spec.with_name("other.yaml")
    other.write_text(spec.read_text().replace("32 MiB", "48 MiB"))
    cluster.manner = "die-1"
    assert run(["apply", str(other), "--yes"]) == ExitCode.FAILED
    applied = last_applied()
    assert applied is not None
    assert applied.spec == str(other)
    cluster.manner = "serve"
    assert run(["apply", str(other), "--yes"]) == ExitCode.OK
    same = spec.with_name("same.yaml")
    same.write_text(other.read_text())
    writes = len(cluster.world.writes)
    assert run(["apply", str(same)]) == ExitCode.OK
    assert len(cluster.world.writes) == writes
    applied = last_applied()
    assert applied is not None
    assert applied.spec == str(same)


def _kept(number: int) -> Path:
    """The file of a spec that was ready, the newest first."""
    return ready_specs("test")[number].path


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b'{"name": "test"}', None])
def test_a_damaged_kept_spec_is_told_and_the_one_before_it_is_taken(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    """It ended with 65 for ever."""
    spec, before = _serve_two(cluster, write)
    assert run(["apply", str(write(memory={"kvCache": "48 MiB"}))]) == ExitCode.OK
    damaged = _kept(1)
    if content is None:
        damaged.write_text(damaged.read_text().replace("32 MiB", "0 MiB"))  # refused by now
    else:
        damaged.write_bytes(content)
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.OK
    told = capsys.readouterr().err
    assert (
        f"warning: {damaged} on this machine can't be applied: 1 error" in told or content == b"\xff\xfe\x00"
    )
    assert told.index(f"warning: {damaged} on this machine") < told.index(f"rolling back from {spec}")
    assert cluster.shape() == before
    assert f"sparkop apply {damaged}" not in told
    cluster.manner = "serve"
    assert run(["apply", str(write(memory={"kvCache": "32 MiB"}))]) == ExitCode.OK
    assert "32 MiB" in damaged.read_text(), "it is whole again once it serves again"


def test_without_a_whole_spec_a_rollback_says_which_file_is_damaged_and_what_to_do(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, _ = _serve_two(cluster, write)
    damaged = _kept(1)
    damaged.write_text("{")
    writes = len(cluster.world.writes)
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.INVALID_SPEC
    told = capsys.readouterr().err
    assert f"{damaged} on this machine is damaged" in told
    assert f"do: rm {damaged} forgets one that is damaged; sparkop apply {spec}  # it has served" in told
    assert len(cluster.world.writes) == writes
    damaged.unlink()
    assert run(["rollback"]) == ExitCode.FAILED
    assert "no other spec of cluster test is known to have been ready" in capsys.readouterr().err


def test_an_apply_by_hand_of_what_a_rollback_was_going_to_goes_on_with_it(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next rollback went to the spec that was fled from."""
    spec, before = _serve_two(cluster, write)
    assert _interrupt(cluster, 8)
    mine = spec.with_name("mine.yaml")
    write().rename(mine)
    assert run(["apply", str(mine)]) == ExitCode.OK
    assert cluster.shape() == before
    writes = len(cluster.world.writes)
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.OK
    told = capsys.readouterr().err
    assert f"rolled back already from {spec} to" in told
    assert f"sparkop apply {_kept(1)}" in told
    assert len(cluster.world.writes) == writes
    assert cluster.shape() == before
    write(memory={"kvCache": "48 MiB"}).rename(mine)
    assert run(["apply", str(mine), "--yes"]) == ExitCode.OK
    assert run(["rollback"]) == ExitCode.OK, "another spec in the same file ends it"
    assert f"rolling back from {mine} to" in capsys.readouterr().err
    assert cluster.shape() == before


def test_no_rollback_goes_to_what_one_has_fled_until_it_is_applied_again(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken off, and another spec by hand: back to the one that it was going to."""
    _, before = _serve_two(cluster, write)
    fled = _kept(0)
    assert _interrupt(cluster, 8)
    cluster.manner = "die-1"
    assert run(["apply", str(write(memory={"kvCache": "48 MiB"})), "--yes"]) == ExitCode.FAILED
    cluster.manner = "serve"
    assert run(["rollback"]) == ExitCode.OK
    assert cluster.shape() == before
    assert run(["apply", str(write(memory={"kvCache": "96 MiB"})), "--yes"]) == ExitCode.OK
    for path in [each.path for each in ready_specs("test")[1:] if each.path != fled]:
        path.unlink()
    capsys.readouterr()
    assert run(["rollback"]) == ExitCode.FAILED
    assert f"sparkop apply {fled} goes there all the same" in capsys.readouterr().err
    assert run(["apply", str(fled), "--yes"]) == ExitCode.OK
    assert run(["apply", str(write(memory={"kvCache": "96 MiB"})), "--yes"]) == ExitCode.OK
    assert run(["rollback"]) == ExitCode.OK
    assert f": {fled}\n" in capsys.readouterr().err


def test_what_a_rollback_has_fled_is_remembered_while_other_clusters_are_applied(
    cluster: Cluster, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file held the last apply of all clusters: another's made rollback go to what it had fled."""
    _serve_two(cluster, write)
    fled, other = _kept(0), Applied("other", "/nowhere.yaml")
    assert run(["rollback"]) == ExitCode.OK
    remember(other)
    mine = write(memory={"kvCache": "96 MiB"})
    assert run(["apply", str(mine), "--yes"]) == ExitCode.OK
    remember(other)
    for path in [each.path for each in ready_specs("test")[1:] if each.path != fled]:
        path.unlink()
    capsys.readouterr()
    assert run(["rollback", str(mine)]) == ExitCode.FAILED
    assert f"sparkop apply {fled} goes there all the same" in capsys.readouterr().err


def test_overlays_and_set_of_both_specs_are_told(
    cluster: Cluster, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two specs of one file differ by nothing else; a repeat knows them still."""
    spec = write()
    overlay = tmp_path / "over.yaml"
    overlay.write_text("memory: {kvCache: 32 MiB}\n")
    assert run(["apply", str(spec), "--set", "memory.kvCache=48 MiB"]) == ExitCode.OK
    changed = [str(spec), "--overlay", "over.yaml", "--set", "memory.kvCache=40MiB"]
    assert run(["apply", *changed, "--yes"]) == ExitCode.OK
    left = f"{spec} + {overlay} --set memory.kvCache=40MiB"
    for what in ("rolling back", "rolled back already"):
        capsys.readouterr()
        assert run(["rollback"]) == ExitCode.OK
        told = capsys.readouterr().err
        assert f"{what} from {left} to the spec that was ready at" in told
        assert f"\n  it was {spec} --set memory.kvCache=48 MiB\n" in told
