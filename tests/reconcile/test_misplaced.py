"""A folder where sparkop writes a file, or a file where its folder belongs: told with path and command, and
mended by nobody but a human. Taken for unknown, apply ended with 4 each time and never said why."""

from __future__ import annotations

import json
import posixpath

import pytest

from sparkop.errors import BlockedError, ExitCode
from sparkop.resources.memguard import NEEDED, USEFUL
from tests.reconcile.simulation import Cluster

STATE = "/home/spark/.sparkop/test"
ENGINE = {"exl3": {"plan": "P.json"}}


def serving() -> Cluster:
    cluster = Cluster.make(engine=ENGINE)
    cluster.apply()
    return cluster


def written() -> list[tuple[str, str]]:
    """Node and path of every file that an apply leaves in the state folders. The status of a transfer is the
    transfer program's own (tests/node); without a log the ranks serve all the same."""
    return [
        (name, path)
        for name, node in serving().world.nodes.items()
        for path in sorted(node.files)
        if path.startswith(STATE) and not path.endswith(("/image.json", "/logs.json"))
    ]


WRITTEN = written()


def refused(cluster: Cluster) -> BlockedError:
    with pytest.raises(BlockedError) as told:
        cluster.apply()
    assert told.value.exit_code == ExitCode.FAILED
    return told.value


@pytest.mark.parametrize("what", ["a folder", "not a regular file"])
@pytest.mark.parametrize(("name", "path"), WRITTEN)
def test_a_folder_or_fifo_in_place_of_any_file_is_told_and_stays(name: str, path: str, what: str) -> None:
    cluster = serving()
    node, ran = cluster.node(name), list(cluster.started)
    del node.files[path]
    if what == "a folder":
        node.folders[path] = 0o755
    else:
        node.fifos.add(path)
    assert not cluster.plan().unknown, "it was read"
    if posixpath.basename(path) == "lease.json":  # nothing is written while nothing differs
        node.containers.clear()
    error = refused(cluster)
    assert error.node == name
    assert path in error.message
    assert what in error.message
    assert error.remedy is not None
    assert f"mv {path} {path}.aside  # on {name}" in error.remedy
    assert cluster.started == ran, "nothing is restarted around it"
    assert path in {*node.folders, *node.fifos}

    node.folders.pop(path, None)
    node.fifos.discard(path)
    cluster.apply()
    assert not cluster.plan().operations, "what the human was told to do is enough"


def test_a_folder_in_place_of_the_follower_s_record_is_a_warning_with_the_command() -> None:
    cluster = serving()
    node = cluster.node("spark-2")
    del node.files[f"{STATE}/logs.json"]
    node.folders[f"{STATE}/logs.json"] = 0o755
    plan = cluster.plan()
    assert (plan.operations, plan.unknown, plan.blockers) == ((), (), ())
    assert f"mv {STATE}/logs.json {STATE}/logs.json.aside  # on spark-2" in "\n".join(plan.warnings)


@pytest.mark.parametrize("name", ["spark-1", "spark-2"])
def test_a_file_in_place_of_a_folder_is_told(name: str) -> None:
    cluster = serving()
    node = cluster.node(name)
    del node.files[f"{STATE}/plans/P.json"]
    node.files[f"{STATE}/plans"] = (b"", 0o644)
    error = refused(cluster)
    assert error.node == name
    assert f"{STATE}/plans is a file, it should be a folder" in error.message
    assert f"mv {STATE}/plans {STATE}/plans.aside" in (error.remedy or "")
    del node.files[f"{STATE}/plans"]
    cluster.apply()


def test_a_stop_is_told_too() -> None:
    cluster = serving()
    cluster.node("spark-1").folders[f"{STATE}/intent.json"] = 0o755
    with pytest.raises(BlockedError, match=r"intent\.json is a folder"):
        cluster.stop()


@pytest.mark.parametrize("name", NEEDED)
def test_a_folder_in_place_of_the_guard_s_record_is_told_and_the_guard_is_mended_all_the_same(
    name: str,
) -> None:
    """Without the record of a trip the numbers that were too large would be launched again; the guard can
    tell nobody. apply converged, with 0."""
    cluster = serving()
    node, path, ran = cluster.node("spark-2"), f"{STATE}/{name}", list(cluster.started)
    node.folders[path] = 0o755
    del node.containers["test-memguard"]
    plan = cluster.plan()
    assert [o.resource for o in plan.operations if o.action == "start"] == ["memguard"]
    error = refused(cluster)
    assert f"mv {path} {path}.aside  # on spark-2" in (error.remedy or "")
    assert cluster.started == ran
    assert not cluster.plan().operations, "the guard runs again"

    del node.folders[path]
    cluster.apply()


@pytest.mark.parametrize("name", USEFUL)
def test_without_its_log_the_guard_guards_and_that_is_a_warning_with_the_command(name: str) -> None:
    cluster = serving()
    path = f"{STATE}/{name}"
    cluster.node("spark-2").folders[path] = 0o755
    plan = cluster.plan()
    assert (plan.operations, plan.unknown, plan.blockers) == ((), (), ())
    assert f"mv {path} {path}.aside  # on spark-2" in "\n".join(plan.warnings)


def test_a_guard_that_can_t_write_its_heartbeat_is_not_replaced_again_and_again() -> None:
    cluster = serving()
    node, last = cluster.node("spark-2"), json.dumps({"at": cluster.clock.time()}).encode()
    node.files[f"{STATE}/memguard.json"] = (last, 0o644)
    cluster.clock.sleep(3600)
    assert cluster.plan().operations, "silent for an hour"
    node.folders[f"{STATE}/memguard.json.draft"] = 0o755
    assert not cluster.plan().operations
