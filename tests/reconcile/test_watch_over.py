"""A fault is told to be over when a look has seen it gone: not when nobody could see it, nor while another
command has only cleared it out of the way."""

from __future__ import annotations

from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.watch.pace import BELIEVED, Pace
from tests.reconcile.simulation import Cluster
from tests.reconcile.test_watch_beside import in_a_pause, killed, remembered
from tests.reconcile.watching import (
    Watching,
    answers,
    entries,
    leased,
    plugged_in,
    serving,
    silent,
    unplugged,
    watched,
)


def given_up() -> tuple[Cluster, Watching]:
    """A group that no restart helped."""
    cluster, watching = watched(ticks=2)
    while not cluster.observe(canary=False).history.gave_up:
        if cluster.rank(1)[1].running:
            killed(cluster)
        watching.ticks(1)
    return cluster, watching


def test_a_rank_whose_container_another_command_removes_is_still_down() -> None:
    """An apply holds the lease, and has taken the dead rank away: events told that it is over, at a time
    minutes before the rank ran."""
    cluster = in_a_pause()
    watching = Watching(cluster)
    watching.ticks(2)
    node, container = cluster.rank(1)
    for beat in range(5):
        leased(cluster, beat)
        if beat == 2:
            del node.containers[container.spec.name]
        watching.ticks(1)
    leased(cluster, 5, released=True)
    while "serving" not in watching.names():
        watching.ticks(1)
    assert "mended" not in watching.names()[: watching.names().index("serving")]
    assert ("mended", "spark-2, rank/1") not in remembered(cluster), "not before it was seen to run"
    watching.ticks(2)
    [mended], [*_, ready] = entries(cluster, "mended"), entries(cluster, "ready")
    assert (mended["what"], mended["at"] >= ready["at"]) == ("rank/1@spark-2", True)


def test_a_group_that_watch_gave_up_is_not_mended_when_a_cable_is_out() -> None:
    """Nothing of the group is planned then; events told that it is over, and status forgot the giving up."""
    cluster, watching = given_up()
    before = [entry["id"] for entry in entries(cluster, "fault")]
    unplugged(cluster)
    watching.ticks(4)
    Watching(cluster).ticks(4)  # another watch goes on
    assert entries(cluster, "mended") == []
    assert "mended" not in watching.names()
    assert cluster.observe(canary=False).history.gave_up
    plugged_in(cluster)
    watching.ticks(4)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["fabric@spark-2"]
    assert [entry["id"] for entry in entries(cluster, "fault")][: len(before)] == before
    cluster.apply()
    watching.ticks(4)
    assert not cluster.observe(canary=False).history.gave_up


def test_what_is_seen_first_beside_another_command_is_not_over_when_its_node_falls_silent() -> None:
    """The look before did not know of it: stdout told that the cable is mended."""
    cluster, watching = watched()
    killed(cluster)
    for beat in range(4):
        leased(cluster, beat)
        if beat == 1:
            unplugged(cluster)
        if beat == 2:
            silent(cluster)
        watching.ticks(1)
    assert ("fault", "fabric@spark-2") in [(name, fields.get("what")) for name, fields in watching.said]
    assert "mended" not in watching.names()


def test_what_is_written_down_late_is_over_at_its_own_time() -> None:
    """Another held the lease: "mended" bore the time of its writing, minutes after it was (issue 5)."""
    cluster, watching = watched()
    for beat in range(20):
        leased(cluster, beat)
        if beat == 1:
            unplugged(cluster)
        if beat == 4:
            plugged_in(cluster)
        watching.ticks(1)
    leased(cluster, 20, released=True)
    watching.ticks(3)
    [fault], [mended] = entries(cluster, "fault"), entries(cluster, "mended")
    assert (fault["what"], mended["what"]) == ("fabric@spark-2", "fabric@spark-2")
    assert 0 < mended["at"] - fault["at"] < 60


def test_a_node_that_comes_back_before_the_head_is_in_the_story() -> None:
    """Both were off, and only the head's loss was told (issue 5)."""
    cluster, watching = watched()
    head = cluster.node("spark-1")
    head.answer = Answer.SILENT
    silent(cluster)
    watching.ticks(3)
    answers(cluster)
    watching.ticks(3)
    head.answer = Answer.WHOLE
    watching.ticks(4)
    told = {(event, entry["what"]) for event in ("fault", "mended") for entry in entries(cluster, event)}
    both = ("node@spark-1", "node@spark-2")
    assert told == {(event, what) for event in ("fault", "mended") for what in both}
    [worker] = [entry for entry in entries(cluster, "mended") if entry["what"] == "node@spark-2"]
    [of_head] = [entry for entry in entries(cluster, "mended") if entry["what"] == "node@spark-1"]
    assert worker["at"] < of_head["at"]


def test_a_docker_that_does_not_answer_is_one_fault_of_its_node() -> None:
    """Four were told: the prerequisites, the image, the guard and the rank, each with the same words, and
    none of them called Docker (issue 5)."""
    cluster, watching = watched()
    node = cluster.node("spark-2")
    node.docker_up = False
    watching.ticks(3)
    node.docker_up = True
    watching.ticks(3)
    told = [fields for event, fields in watching.said if event == "fault"]
    assert [fields["what"] for fields in told] == ["docker@spark-2"]
    assert "Docker does not answer: Connection refused; sudo systemctl start docker" in told[0]["text"]
    assert remembered(cluster) == [("fault", "spark-2, docker"), ("mended", "spark-2, docker")]
    assert cluster.plan().converged


def test_a_rail_that_the_group_goes_without_is_in_the_story() -> None:
    """The group was started anew: events told of another --master-addr, and of no rail (issue 5)."""
    cluster, watching = watched()
    fabric = cluster.node("spark-2").fabric
    device, interface = fabric["devices"][0], fabric["interfaces"][0]
    device["state"] = "DOWN"
    interface.update(carrier=False, operstate="down")
    watching.ticks(3)
    [told] = entries(cluster, "fault")
    assert told["what"] == "fabric@spark-2"
    assert [name for name, _ in watching.said].count("note") == 0, "once"
    assert f"{device['name']}: DOWN, with 10.78.0.12/24 on {interface['name']}" in told["text"]
    assert "--master-addr" in entries(cluster, "start")[-1]["why"]
    assert cluster.plan().converged, "it serves"
    device["state"] = "ACTIVE"
    interface.update(carrier=True, operstate="up")
    watching.ticks(4)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["fabric@spark-2"]


def test_a_speed_that_was_too_low_is_not_well_again_because_a_node_is_silent() -> None:
    """The group can't be asked then, and nobody measures."""
    cluster = serving()
    watching = Watching(cluster)
    watching.ticks(1)
    watching.watch.eye.pace = Pace(slow=BELIEVED, told="8 tok/s, 30 were measured")
    watching.ticks(3)
    assert [entry["what"] for entry in entries(cluster, "fault")] == ["speed@spark-1"]
    silent(cluster)
    watching.ticks(4)
    answers(cluster)
    watching.ticks(3)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["node@spark-2"]
