"""A spec that is refused: what watch does when it starts with one, and what is remembered of an edit."""

from __future__ import annotations

import pytest

from sparkop.errors import SpecError
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.events import happened
from sparkop.reconcile.watch.loop import once
from sparkop.reconcile.watch.story import accepted_edit, refused_edit
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import Watching, answers, entries, serving, silent, watched

GIB = 1 << 30
LARGE = {
    "weights": {"repository": "RadixArk/Qwen3.8-Flash-Next-NVFP4", "path": "~/models/model"},
    "engine": {"kind": "sglang", "context": 65536, "container": {"cpuset": "0-19"}},
    "memory": {"gpuFraction": 0.82},
}
"""Fits a Spark, by its own numbers."""


def too_small(node: str = "spark-1") -> Cluster:
    """A cluster of which one node has half of the memory that the spec needs."""
    cluster = Cluster.make(**LARGE)
    cluster.node(node).memory_total = 64 * GIB
    return cluster


@pytest.mark.parametrize("options", [{}, {"dry_run": True}])
def test_a_start_with_a_spec_that_the_nodes_refuse_ends_the_watch(options: dict[str, bool]) -> None:
    """It told "failed" for ever and healed nothing, while status said that watch starts the group again."""
    cluster = too_small("spark-2")
    before = cluster.shape()
    with pytest.raises(SpecError, match="spark-2") as refused:
        Watching(cluster, **options).run(minutes=5)
    assert refused.value.exit_code == 65
    assert str(refused.value.remedy).startswith("to set it aside knowingly: "), "the only way out is no 'or'"
    assert cluster.shape() == before, "not even a sign of life was left"


@pytest.mark.parametrize("options", [{}, {"dry_run": True}])
def test_once_exits_as_apply_does_for_a_spec_that_the_nodes_refuse(options: dict[str, bool]) -> None:
    watching = Watching(too_small("spark-2"), steps_aside=False, **options)
    with pytest.raises(SpecError, match="spark-2"):
        once(watching.watch)


def test_a_group_that_runs_does_not_keep_such_a_watch() -> None:
    """It ended only when something was to be done: on the day of the fault."""
    cluster = serving(**LARGE)
    cluster.node("spark-1").memory_total = 64 * GIB
    with pytest.raises(SpecError, match="spark-1"):
        Watching(cluster).ticks(1)


def test_a_node_that_nobody_can_read_ends_no_watch_and_the_whole_look_does() -> None:
    """A node that was not read is taken for a Spark: a refusal by that may be none."""
    cluster = serving(**LARGE)
    cluster.node("spark-1").memory_total = 64 * GIB
    silent(cluster)
    watching = Watching(cluster)
    watching.run(minutes=3)
    assert "fault" in watching.names()
    assert _signed(cluster)
    answers(cluster)
    with pytest.raises(SpecError, match="spark-1"):
        watching.run(minutes=3)
    watching.watch.leave()
    assert not _signed(cluster), "what the command does at its end"


def test_a_node_whose_memory_was_not_read_ends_no_watch() -> None:
    """A budget of a Spark's memory is none of this node."""
    cluster = too_small("spark-1")
    cluster.node("spark-2").answer = Answer.SILENT
    [tick] = Watching(cluster).ticks(1)
    assert tick.reading.observed.unknown


def test_an_edit_that_was_refused_is_in_the_story_once() -> None:
    """Only watch's own output told it, which nobody reads while a service writes it."""
    cluster, watching = watched()
    refused = [refused_edit("spec.yaml:4:3: memory.kvCache: 5 has no unit", cluster.clock.time())]
    watching = Watching(cluster, edits=refused)
    watching.minutes(5)
    assert refused == []
    assert len(entries(cluster, "spec-refused")) == 1
    [told] = [each for each in happened(cluster.observe(canary=False)) if each.event == "spec-refused"]
    assert told.text == (
        "an edit of the spec was refused, and watch keeps the one before: "
        "spec.yaml:4:3: memory.kvCache: 5 has no unit"
    )


def test_that_a_refused_edit_is_mended_is_in_the_story_once() -> None:
    """Events told that an edit was refused, and never that the spec is right again (issue 5). A watch that
    starts tells it of an edit that another one refused; one that was never refused is no news."""
    cluster, _ = watched()
    edits = [accepted_edit(cluster.clock.time())]
    watching = Watching(cluster, edits=edits)
    before = len(cluster.world.writes)
    watching.ticks(3)
    assert edits == []
    assert len(cluster.world.writes) == before
    edits.append(refused_edit("no unit", cluster.clock.time()))
    watching.ticks(3)
    edits += [accepted_edit(cluster.clock.time() + more) for more in (0, 1)]
    Watching(cluster, edits=edits).ticks(3)
    assert edits == []
    told = [each.text for each in happened(cluster.observe(canary=False)) if each.event.startswith("spec")]
    assert told == [
        "an edit of the spec was refused, and watch keeps the one before: no unit",
        "the spec is accepted again",
    ]


def test_an_edit_is_remembered_after_a_head_that_was_away() -> None:
    cluster, _ = watched()
    refused = [refused_edit("no number", cluster.clock.time())]
    watching = Watching(cluster, edits=refused)
    cluster.node("spark-1").answer = Answer.SILENT
    watching.minutes(1)
    assert len(refused) == 1
    cluster.node("spark-1").answer = Answer.WHOLE
    watching.minutes(1)
    assert refused == []
    assert len(entries(cluster, "spec-refused")) == 1


def test_an_edited_spec_that_the_nodes_refuse_leaves_what_was_known() -> None:
    """The watch that it stood instead of is the one to tell of the boot."""
    cluster = serving(**LARGE)
    watching = Watching(cluster)
    watching.ticks(3)
    silent(cluster)
    watching.ticks(1)
    known = watching.watch.known
    cluster.node("spark-1").memory_total = 64 * GIB
    edited = Watching(cluster, known=known, instead=True)
    edited.ticks(1)
    answers(cluster)
    cluster.node("spark-2").reboot()
    with pytest.raises(SpecError):
        edited.ticks(1)
    cluster.node("spark-1").memory_total = 128 * GIB
    Watching(cluster, known=known).minutes(3)
    assert [each["node"] for each in entries(cluster, "booted")] == ["spark-2"]
    assert [each["what"] for each in entries(cluster, "fault")] == ["node@spark-2"]


def _signed(cluster: Cluster) -> bool:
    path = next(path for path in cluster.node("spark-1").files if path.endswith("lease.json"))
    return bool(cluster.node("spark-1").document_of(path).get("watches"))
