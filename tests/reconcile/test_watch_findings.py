"""What only a watch sees: slow tokens, lost GPUs, stuck clocks, short memory. Told; restarted only where a
new container is the cure."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.hosts.base import Fence
from sparkop.reconcile.lease_seen import place, signs_in
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.speeds import FILE, configuration
from sparkop.reconcile.status import Status, status_of
from sparkop.reconcile.watch.loop import once
from sparkop.reconcile.watch.pace import WINDOW, Pace, judged, measure
from sparkop.resources.liveness import Counters
from tests.reconcile.simulation import SIMULATED, Cluster
from tests.reconcile.watching import Watching, entries, serving, watched

NVML = "pynvml.NVMLError_Unknown: Failed to initialize NVML: Unknown Error"
GROUP = ["1@spark-2", "0@spark-1"]


def decoding(generated: float, running: float = 2, prompt: float = 9, waiting: float = 0) -> Counters:
    return Counters(generated=generated, prompt=prompt, kv=0.2, running=running, waiting=waiting)


def looks(*seen: Counters | None) -> list[tuple[int, float]]:
    """What was measured, with a look every ten seconds."""
    pace, found = Pace(), []
    for number, counters in enumerate(seen):
        pace = measure(pace, counters, 1000.0 + 10 * number)
        found += [pace.measured] if pace.measured else []
    return found


def test_a_steady_stretch_gives_a_rate() -> None:
    assert looks(*(decoding(100 * n) for n in range(5))) == [(2, 10.0)]


@pytest.mark.parametrize(
    "disturbed",
    [
        None,
        decoding(250, running=3),
        decoding(250, running=0),
        decoding(250, prompt=500),
        decoding(250, waiting=1),
    ],
)
def test_what_can_not_be_compared_is_not_measured(disturbed: Counters | None) -> None:
    """Another number of requests, a prompt that is read, a queue, counters that did not answer."""
    assert looks(decoding(0), decoding(100), decoding(200), disturbed, decoding(300), decoding(400)) == []


@given(st.lists(st.builds(decoding, st.floats(0, 1e6), st.integers(0, 3), st.integers(0, 2)), max_size=40))
def test_no_rate_is_measured_in_less_than_a_window(seen: list[Counters]) -> None:
    assert len(looks(*seen)) <= 10 * len(seen) / WINDOW


def test_one_slow_measurement_is_not_believed() -> None:
    once = judged(Pace(), "slow")
    assert once.warning == ""
    assert judged(once, "slow").warning == "slow"
    assert judged(judged(once, "slow"), None).warning == ""


def measured_at(cluster: Cluster, decode: dict[str, float]) -> None:
    """What bench has left on the head."""
    content = {
        "version": 1,
        "at": "2026-11-30T12:00:00+0000",
        "configuration": configuration(cluster.spec),
        "prefill": {},
        "decode": decode,
    }
    node = cluster.node("spark-1")
    path = next(p for p in node.files if p.endswith("lease.json")).replace("lease.json", FILE)
    node.files[path] = (json.dumps(content).encode(), 0o644)


def decode_for_ever(cluster: Cluster, rate: float) -> None:
    """One client's endless answer: ``rate`` tokens a second, as the clock has it."""
    answer, began = cluster.answer, cluster.clock.now

    def service(node: Any, container: Any, method: str, path: str, *rest: Any) -> Any:
        if path != "/metrics":
            return answer(node, container, method, path, *rest)
        made = rate * (cluster.clock.now - began)
        text = f"vllm:generation_tokens_total {made}\nvllm:prompt_tokens_total 9\n"
        return 200, [f"{text}vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n".encode()]

    node, container = cluster.rank(0)
    node.services[8000] = lambda *request: service(node, container, *request)


def test_tokens_far_slower_than_measured_are_told_and_nothing_is_restarted() -> None:
    cluster = serving()
    measured_at(cluster, {"code/1": 40.0, "prose/1": 30.0})
    watching = Watching(cluster)
    decode_for_ever(cluster, rate=8.0)
    watching.minutes(3)
    assert cluster.started == []
    told = entries(cluster, "fault")
    assert [entry["what"] for entry in told] == ["speed@spark-1"]
    assert "8.0 tok/s for 1 at a time, 30.0 were measured" in told[0]["text"]
    assert "sparkop doctor" in told[0]["text"]
    decode_for_ever(cluster, rate=29.0)
    watching.minutes(3)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["speed@spark-1"]


def test_tokens_as_fast_as_measured_are_no_news() -> None:
    cluster = serving()
    measured_at(cluster, {"code/1": 40.0})
    watching = Watching(cluster)
    decode_for_ever(cluster, rate=25.0)
    watching.minutes(5)
    assert entries(cluster, "fault") == []


def test_a_lost_gpu_makes_the_containers_anew_when_tokens_fail_to_come() -> None:
    """The line in the log alone is told; with a failed generation the group is replaced at once."""
    cluster, watching = watched(ticks=2)
    cluster.node("spark-2").lost_gpus["test-r1"] = NVML
    watching.minutes(3)
    assert cluster.started == []
    assert entries(cluster, "fault")[0]["what"] == "gpu@spark-2"
    assert "rank/1 on spark-2" in entries(cluster, "fault")[0]["text"]
    cluster.manner = "wedge"

    def start(node: Any, container: Any) -> None:
        cluster.manner = "serve"
        cluster.node("spark-2").lost_gpus.clear()
        cluster.started_one(node, container)

    cluster.world.on_start = start
    watching.minutes(2)
    assert cluster.started == GROUP
    assert "GPU lost: the container of rank/1" in entries(cluster, "start")[-1]["why"]
    assert entries(cluster, "mended")[-1]["what"] == "gpu@spark-2"


@pytest.mark.parametrize("said", ["ok", "Failed to initialize NVML: Unknown Error"])
def test_nvml_itself_is_believed_more_than_a_log(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt can put the words into the log. NVML in the container decides; nobody is served just now."""
    from sparkop.hosts import simulated_document

    def document(node: Any, request: Any, nonce: str) -> Any:
        found = simulated(node, request, nonce)
        for each in found.get("lost_gpus", {}).values():
            if each["log"]:
                each["exec"] = said
        return found

    simulated = simulated_document.document
    monkeypatch.setattr("sparkop.hosts.simulated.document", document)
    cluster, watching = watched(ticks=2)
    cluster.node("spark-2").lost_gpus["test-r1"] = NVML
    cluster.world.on_start = lambda node, container: (
        cluster.node("spark-2").lost_gpus.clear(),
        cluster.started_one(node, container),
    )[1]
    watching.minutes(3)
    assert cluster.started == ([] if said == "ok" else GROUP)


def gpu(clock: float, power: float, used: float = 96.0) -> dict[str, Any]:
    figures = {"utilization_percent": used, "power_w": power, "clock_mhz": clock}
    return {"devices": [{"name": "NVIDIA GB10", **figures}], "processes": []}


def test_stuck_clocks_are_told_with_what_helps_and_never_restarted_around() -> None:
    cluster = serving(engine={"kind": "vllm", "context": 32768, "container": {"gpus": True}})
    watching = Watching(cluster)
    cluster.node("spark-2").gpu.update(gpu(510, 14))
    watching.minutes(5)
    assert cluster.started == []
    told = entries(cluster, "fault")
    assert [entry["what"] for entry in told] == ["clocks@spark-2"]
    assert "510 MHz, 14 W at 96 % use" in told[0]["text"]
    assert "pull the power plug" in told[0]["text"]
    cluster.node("spark-2").gpu.update(gpu(208, 5, used=0))
    watching.minutes(3)
    assert entries(cluster, "mended") == [], "a GPU at rest tells nothing"
    cluster.node("spark-2").gpu.update(gpu(2400, 80))
    watching.minutes(3)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["clocks@spark-2"]


def test_one_low_reading_of_a_clock_is_not_believed() -> None:
    cluster = serving(engine={"kind": "vllm", "context": 32768, "container": {"gpus": True}})
    watching = Watching(cluster)
    cluster.node("spark-2").gpu.update(gpu(510, 14))
    watching.ticks(3)
    cluster.node("spark-2").gpu.update(gpu(2400, 80))
    watching.minutes(5)
    assert entries(cluster, "fault") == []


def test_ranks_that_wait_for_each_other_are_a_wedge_and_no_stuck_clock() -> None:
    """96 % use at 15 W is what a hung collective looks like: restarting both is what helps."""
    cluster = serving(engine={"kind": "vllm", "context": 32768, "container": {"gpus": True}})
    watching = Watching(cluster)
    watching.ticks(3)
    cluster.manner = "wedge"
    for name in ("spark-1", "spark-2"):
        cluster.node(name).gpu.update(gpu(900, 16))

    def start(node: Any, container: Any) -> None:
        cluster.manner = "serve"
        for each in ("spark-1", "spark-2"):
            cluster.node(each).gpu.update(gpu(2400, 80))
        cluster.started_one(node, container)

    cluster.world.on_start = start
    watching.minutes(3)
    assert cluster.started == GROUP
    assert "wedged" in entries(cluster, "start")[-1]["why"]
    assert entries(cluster, "fault") == []
    plan = next(p for p in cluster.node("spark-1").files if p.endswith("epoch-1/plan.json"))
    kept = json.loads(cluster.node("spark-1").files[plan][0])
    assert "900 MHz, 16 W at 96 % use" in kept["gpus"]["spark-2"], "the evidence has the power"


def test_short_memory_while_serving_is_told_with_the_figures() -> None:
    cluster, watching = watched(ticks=2)
    node = cluster.node("spark-2")
    path = next(p for p in node.files if p.endswith("lease.json")).replace("lease.json", "memguard.json")
    beat = {"version": 1, "phase": "loading"}
    node.files[path] = (json.dumps(beat).encode(), 0o644)
    floor = int(cluster.spec.memory.guard.action_floor)
    node.memory_used += node.memory_available - floor * 5 // 4
    watching.minutes(2)
    assert entries(cluster, "fault") == [], "while it loads the guard's releaser works"
    node.files[path] = (json.dumps({**beat, "phase": "serving"}).encode(), 0o644)
    watching.minutes(2)
    told = entries(cluster, "fault")
    assert [entry["what"] for entry in told] == ["memory@spark-2"]
    assert "memory.kvCache" in told[0]["text"]
    node.memory_used -= 3 * floor
    watching.minutes(2)
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["memory@spark-2"]
    assert cluster.started == []


def test_an_api_that_is_silent_has_its_five_minutes_however_old_the_group_is() -> None:
    """A group that has served for a day is past every start deadline: that makes no blip a reason."""
    cluster = serving()
    watching = Watching(cluster)
    watching.minutes(60)
    service = cluster.node("spark-1").services.pop(8000)
    watching.minutes(4)
    assert cluster.started == []
    cluster.node("spark-1").services[8000] = service
    watching.minutes(10)
    assert cluster.started == []
    cluster.node("spark-1").services.pop(8000)
    watching.minutes(8)
    assert cluster.started == GROUP


def test_once_waits_for_the_five_minutes_of_a_head_whose_processes_are_frozen() -> None:
    """Neither tokens nor counters: it left after half a minute, and cron's next run began to count anew."""
    cluster = serving()

    def frozen(*_: Any) -> Any:
        raise TimeoutError("no answer")

    cluster.rank(0)[0].services[8000] = frozen
    began = cluster.clock.now
    once(Watching(cluster, steps_aside=False).watch)
    assert cluster.started == GROUP
    assert "silent" in entries(cluster, "start")[-1]["why"]
    assert cluster.clock.now - began >= 300
    assert cluster.plan().converged


def test_once_leaves_a_head_alone_that_thaws_within_its_five_minutes() -> None:
    cluster = serving()
    node, _ = cluster.rank(0)
    serve, until = node.services[8000], cluster.clock.now + 200

    def frozen(*request: Any) -> Any:
        if cluster.clock.now < until:
            raise TimeoutError("no answer")
        return serve(*request)

    node.services[8000] = frozen
    once(Watching(cluster, steps_aside=False).watch)
    assert cluster.started == []


def status(cluster: Cluster) -> Status:
    reading = cluster.observe()
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    return status_of(reading, plan, SIMULATED)


def test_status_says_that_watch_has_given_up_why_and_what_was_tried() -> None:
    cluster, watching = watched()
    assert status(cluster).watch.gave_up is None
    cluster.manner = "die on start of rank 1"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    watching.minutes(40)
    gone = status(cluster).watch.gave_up
    assert gone is not None
    assert gone.why.startswith("4 restarts did not last (spark-2 rank/1 exited (1), 4 times); ")
    assert gone.why.endswith("sparkop apply")
    assert [each.epoch for each in gone.tried] == [2, 3, 4, 5]
    assert "exited (1)" in gone.tried[0].why
    assert "/dev/shm" in gone.failure
    cluster.manner = "serve"
    cluster.apply()
    assert status(cluster).watch.gave_up is None


def test_status_says_whether_a_watch_runs() -> None:
    cluster = serving()
    assert not status(cluster).watch.running
    watching = Watching(cluster)
    tick = watching.ticks(1)[0]
    watching.watch.sign(tick.reading)
    found = status(cluster).watch
    assert found.running
    assert len(found.signs) == 1
    cluster.apply()
    assert status(cluster).watch.running, "the lease changes hands, the sign stays"
    watching.watch.leave()
    assert not status(cluster).watch.running
    assert signs_in(cluster.observe().observed.documents["spark-1"]) == ()


def test_a_watch_that_was_killed_does_not_count_beside_the_next_one() -> None:
    """Two and a half minutes later it still ran, and its user and machine were told twice."""
    document = serving().observe().observed.documents["spark-1"]
    assert document.state is not None
    assert document.machine is not None
    ages = {"ada@desk/1/a": 146.0, "ada@desk/2/b": 25.0, "bob@lap/3/c": 100.0}
    watches = {
        holder: {"info": {"who": holder.partition("/")[0]}, "at": document.machine.time_s - seconds}
        for holder, seconds in ages.items()
    }
    state = {**document.state, "lease.json": {**document.state["lease.json"], "watches": watches}}
    signs = signs_in(replace(document, state=state))
    assert [(sign.who, round(sign.seconds), sign.alive) for sign in signs] == [
        ("ada@desk", 25, True),
        ("bob@lap", 100, False),
    ]


@pytest.mark.parametrize(("here", "runs"), [(True, False), (False, True)])
def test_a_watch_that_was_killed_on_this_machine_is_told_at_once(here: bool, runs: bool) -> None:
    """It "ran" for 90 seconds more. Of another machine only its silence can tell."""
    cluster = serving()
    watching = Watching(cluster)
    ended = subprocess.Popen(["true"])
    ended.wait()
    info = {"who": "ada@desk", "pid": ended.pid, "place": place() if here else "another boot"}
    fence = Fence("test", "ada@desk/1/a", 0, "~/.sparkop/test")
    cluster.hosts()["spark-1"].act("lease.watching", {"info": info, "over": False}, fence)
    found = status(cluster).watch
    assert (bool(found.running), [sign.who for sign in found.signs]) == (runs, ["ada@desk"])
    watching.watch.sign(watching.ticks(1)[0].reading)
    assert status(cluster).watch.running, "the next one does"
    watching.watch.leave()
    left = [sign.who for sign in status(cluster).watch.signs]
    assert left == ([] if here else ["ada@desk"]), "the next one takes the sign of the dead along"


def test_a_watch_that_waits_for_a_start_gives_signs_of_life() -> None:
    """It looked dead meanwhile: a large model starts for many minutes."""
    cluster = serving()
    watching = Watching(cluster)
    watching.watch.faults_now({})
    assert status(cluster).watch.running
