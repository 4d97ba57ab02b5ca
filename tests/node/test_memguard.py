"""The guard's decisions over recorded and made traces, with an injected clock."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkop.node.memguard.guard import FASTEST, GATE, LOADING, MARGIN, RATE, SERVING, Floors
from tests.node.memguard_world import FLOORS, GIB, MIB, World, line

GB10_LOAD = line(
    (0, 116 * GIB), (8, 112 * GIB), (70, 40 * GIB), (100, 6 * GIB), (160, 2.6 * GIB), (400, 2.5 * GIB)
)
"""A load as the recipe describes it: 2 to 3 GiB are left in the steady state."""


def test_a_load_that_leaves_enough_is_let_through() -> None:
    """2.5 GiB are the steady state of a healthy group: under the soft floor, told, not killed."""
    world = World(GB10_LOAD)
    rank = world.rank()
    world.run(400)
    assert rank.killed == []
    assert 3 <= sum("under the soft floor" in text for text in world.said()) <= 7
    assert world.guard.phase == SERVING


def test_the_record_is_written_before_the_kill() -> None:
    """What is done next may be the last thing that this machine does."""
    world = World(line((0, 8 * GIB), (10, 8 * GIB), (12, 0)))
    rank = world.rank()
    world.run(12)
    assert world.order == ["record", "kill"]
    record = world.records[0]
    assert record["hashes"] == ["v1:77"]
    assert record["numbers"] == ["v1:88"]
    assert record["available"] < record["floor"] == GIB
    assert record["samples"][0] == 8 * 1024
    assert record["phase"] == LOADING
    assert rank.killed[0][1] > FLOORS.hard


@settings(deadline=None, max_examples=150)
@given(
    start=st.integers(2 * GIB, 100 * GIB),
    falls=st.lists(st.tuples(st.floats(0.001, 20), st.floats(0, 1)), min_size=1, max_size=12),
    margin=st.integers(MARGIN, 2 * GIB),
    disk=st.sampled_from([0.0, 0.005, 0.5, 10.0]),
    serving=st.booleans(),
)
def test_the_kill_starts_above_the_hard_floor(
    start: int, falls: list[tuple[float, float]], margin: int, disk: float, serving: bool
) -> None:
    """For any trace that falls no faster than the stated rate, however slow the disk, in any phase."""
    points, now, level = [(0.0, float(start))], 0.0, float(start)
    if serving:
        now = 130.0
        points.append((now, level))
    for seconds, part in (*falls, (100 * GIB / RATE, 1.0)):
        now += seconds
        level -= seconds * RATE * part
        points.append((now, level))
    floors = Floors(GIB + margin, GIB, 10 * GIB)
    world = World(line(*points), floors, disk=disk)
    rank = world.rank(dies=None)
    end = now
    while not rank.killed and world.now < end:
        world.now += world.guard.tick()
    assert rank.killed, "the trace ends at zero"
    assert rank.killed[0][1] > floors.hard


def test_the_least_margin_is_what_growth_eats_in_one_poll() -> None:
    """Specs with less are refused; whoever changes rate or polls has to change it with them."""
    eaten = RATE * max(FASTEST[LOADING], FASTEST[SERVING])
    assert eaten <= MARGIN < 1.1 * eaten


def test_an_old_reading_does_not_kill() -> None:
    """It is read again before the kill: one short dip that is over is none."""
    values = itertools.chain([20 * GIB, 900 * MIB], itertools.repeat(20 * GIB))
    world = World(lambda _now: next(values))
    rank = world.rank()
    world.guard.tick()
    world.guard.tick()
    assert rank.killed == []
    assert world.records == []


def test_there_is_no_storm_of_kills() -> None:
    """A rank that needs three seconds to give its memory back is killed once; its record is written once."""
    world = World(line((0, 900 * MIB)))
    slow, quick = world.rank("x-r0", dies=3.0), world.rank("x-r1", dies=0.1)
    world.run(4)
    assert (len(slow.killed), len(quick.killed)) == (1, 1)
    assert len(world.records) == 1
    assert world.records[0]["containers"] == ["x-r0", "x-r1"]


def test_a_rank_that_does_not_die_is_killed_again_after_a_while() -> None:
    """Each five seconds, without a second record."""
    world = World(line((0, 900 * MIB)))
    rank = world.rank(dies=None)
    world.run(12)
    assert [round(at) for at, _ in rank.killed] == [0, 5, 10]
    assert len(world.records) == 1


def test_a_new_group_after_a_trip_has_its_own_record() -> None:
    """The first kill does not make the guard blind."""
    world = World(line((0, 900 * MIB)))
    world.rank("x-r0", dies=0.1)
    world.run(1)
    world.guard.ranks = ()
    world.run(1)
    world.rank("x-r0")
    world.run(1)
    assert len(world.records) == 2


def test_a_disk_that_does_not_answer_delays_the_kill_by_little() -> None:
    """Killing matters more than telling, and the log says that the record was late."""
    world = World(line((0, 900 * MIB)), disk=60.0)
    rank = world.rank()
    world.guard.tick()
    assert rank.killed[0][0] <= 0.03
    assert any("not on the disk" in text for text in world.said())


def test_under_the_hard_floor_nothing_is_waited_for() -> None:
    """There is no time left that could be given to a disk."""
    world = World(line((0, 100 * MIB)), disk=60.0)
    rank = world.rank()
    world.guard.tick()
    assert rank.killed[0][0] <= 0.001


def test_with_nothing_to_kill_there_is_no_record_and_one_line() -> None:
    """A foreign program took the memory: told, but the ranks' numbers are not to blame."""
    world = World(line((0, 900 * MIB)))
    world.run(30)
    assert world.records == []
    assert [text for text in world.said() if "no rank runs" in text] != []
    assert world.looks < 3000


def test_the_nearer_the_floor_the_sooner_the_next_look() -> None:
    """Never later than half of the time that the fastest growth needs to get there."""
    guard = World(GB10_LOAD).guard
    guard.phase = SERVING
    pauses = [guard.pause(FLOORS.action + free * MIB) for free in (20_000, 4_000, 500, 0)]
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] == 1.0
    assert pauses[1] == pytest.approx(4_000 * MIB / RATE / 2)
    assert guard.pause(FLOORS.action + 4_000 * MIB, rate=2.0 * RATE) == pytest.approx(pauses[1] / 2)


def test_far_from_the_floor_it_looks_once_a_second() -> None:
    """Half a percent of a core is the most that it may take there."""
    world = World(line((0, 64 * GIB)))
    world.rank()
    world.run(100)
    assert world.looks <= 101


def test_phases_follow_the_ranks() -> None:
    """Before a launch, while memory moves, and when it has come to rest; a new group loads again."""
    world = World(GB10_LOAD)
    world.run(1)
    assert world.guard.phase == GATE
    world.rank()
    world.run(200)
    assert world.guard.phase == LOADING
    world.run(150)
    assert world.guard.phase == SERVING
    world.rank("x-r1")
    world.run(2)
    assert world.guard.phase == LOADING


def test_the_last_five_minutes_are_kept_as_lows() -> None:
    """A dip between two kept values is in the picture."""
    world = World(line((0, 8 * GIB), (400, 8 * GIB), (400.5, 3 * GIB), (401, 8 * GIB)))
    world.run(405)
    samples = world.guard.samples()
    assert len(samples) == 150
    assert min(samples) < 5 * 1024
    assert samples[0] == 8 * 1024
