"""The rows: what drifts, how watch must see it, what it must do, and in which time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sparkop.lab.layout import REGISTRY_NAME, REGISTRY_PORT
from tests.drift.watcher import (
    Event,
    Stage,
    converged,
    done,
    mended,
    noted,
    planned,
    serves,
    told,
    verdict,
)

HEAD, WORKER = "spark-1", "spark-2"

Seen = Callable[[Event], bool]
Do = Callable[[Stage], None]


@dataclass(frozen=True)
class Row:
    """One drift. ``restarts``: groups that may be started for it; 0 with ``same``: the ranks serve on."""

    drift: str
    action: str
    """What watch does, in the docs' words."""
    do: Do
    seen: Seen
    over: Seen
    seconds: float = 60.0
    """For seeing it, and again for its end."""
    restarts: int = 0
    same: bool = True
    """The ranks that ran before run afterwards, where nothing is restarted."""
    then: Do | None = None
    """What the human does once it was told; ``over`` counts from then."""
    fault: str = ""
    """The lab's fault that it is made with."""
    calm: float = 0.0
    """Seconds for which nothing may be started after it was seen."""
    slow: bool = False
    """Takes minutes: only in the whole table."""


def broken(fault: str, host: str, drift: str, action: str, seen: Seen, over: Seen, **more: object) -> Row:
    """A row that one fault of the lab makes."""
    return Row(drift, action, lambda stage: stage.break_(fault, host), seen, over, fault=fault, **more)  # type: ignore[arg-type]


def restarted(fault: str, host: str, drift: str, **more: object) -> Row:
    return broken(fault, host, drift, "all ranks anew", planned, serves, restarts=1, **more)


def only_told(fault: str, host: str, drift: str, what: str, **more: object) -> Row:
    """Told with what to do; nothing is started; over when it is undone by hand."""
    return broken(
        fault,
        host,
        drift,
        "told, nothing restarted",
        told(what),
        mended(what),
        then=lambda stage: stage.mend(fault, host),
        calm=7.0,
        **more,
    )


def repaired(fault: str, host: str, drift: str, action: str, over: Seen, **more: object) -> Row:
    return broken(fault, host, drift, action, planned, over, **more)


def _remove_worker(stage: Stage) -> None:
    stage.user.lab.host(WORKER).docker("rm", "-f", stage.ranks()[1])


def _boot(*hosts: str) -> Do:
    def do(stage: Stage) -> None:
        for host in hosts:
            stage.user.lab.boot(host)

    return do


def _cut_with_restore(stage: Stage) -> None:
    """As after `docker update --restart=always` by somebody: Docker brings the rank back alone at boot."""
    stage.shell(WORKER, "docker update --restart=always $(docker ps -q --filter label=sparkop.role=rank)")
    stage.break_("power-cut", WORKER)


def _cut_both(stage: Stage) -> None:
    stage.break_("power-cut", HEAD)
    stage.break_("power-cut", WORKER)


def _another_key(stage: Stage) -> None:
    key = "$HOME/.sparkop/standin/api_key"
    stage.shell(HEAD, f"cp -p {key} {key}.kept; echo 0123456789abcdef0123456789abcdef >{key}.new; "
                f"chmod 600 {key}.new; mv {key}.new {key}")  # fmt: skip


def _old_key(stage: Stage) -> None:
    stage.shell(HEAD, "mv $HOME/.sparkop/standin/api_key.kept $HOME/.sparkop/standin/api_key")


def _edit(stage: Stage, before: str, after: str) -> None:
    from pathlib import Path

    path = Path(stage.spec)
    text = path.read_text()
    assert before in text
    path.with_suffix(".new").write_text(text.replace(before, after))
    path.with_suffix(".new").replace(path)


def _pause_guard(stage: Stage) -> None:
    stage.shell(WORKER, "docker pause $(docker ps -q --filter label=sparkop.role=memguard)")


_SQUAT = """
import socket, time
while True:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("0.0.0.0", 8000)); s.listen(); break
    except OSError:
        s.close(); time.sleep(0.005)
open("/run/squatter.bound", "w").close()
time.sleep(3600)
"""


def _take_port(stage: Stage) -> None:
    """A foreign process that has the API's port as soon as the head's rank has ended."""
    stage.shell(
        HEAD,
        f"printf '%s' '{_SQUAT}' >/run/squatter.py; "
        "setsid python3 -IS /run/squatter.py </dev/null >/dev/null 2>&1 & echo $! >/run/squatter.pid",
    )
    stage.break_("kill-rank", HEAD)


def _give_port(stage: Stage) -> None:
    stage.shell(HEAD, "test -e /run/squatter.bound; kill $(cat /run/squatter.pid); rm /run/squatter.*")


def _registry_away(stage: Stage) -> None:
    """On both nodes, and their images are gone: every pull fails."""
    refused = f"docker pull {REGISTRY_NAME}:{REGISTRY_PORT}/none 2>&1 | grep -q 'connection refused'"
    nowhere = f"sed 's/ {REGISTRY_NAME}//; $ a 127.0.0.1 {REGISTRY_NAME}' /run/hosts.kept >/etc/hosts"
    for host in (HEAD, WORKER):  # Docker remembers for a while what the file said
        stage.shell(host, f"cp /etc/hosts /run/hosts.kept; {nowhere}")
        stage.shell(host, f'timeout 30 sh -c "until {refused}; do sleep 0.5; done"')
    for host in (HEAD, WORKER):
        stage.break_("image-drift", host)


def _pulled_by_hand(stage: Stage) -> None:
    for host in (HEAD, WORKER):
        stage.shell(host, "cat /run/hosts.kept >/etc/hosts; rm /run/hosts.kept")
        stage.mend("image-drift", host)


def _relieved(stage: Stage) -> None:
    assert stage.ranks() == [], "the rank that was not killed is down, too"
    stage.mend("memory-pressure", WORKER)
    stage.sparkop("apply", "--after-trip", check=0)


def _start_slowly(stage: Stage) -> None:
    stage.break_("slow-start", HEAD, amount="20")
    stage.break_("kill-rank", WORKER)


def _one_bad_answer(stage: Stage) -> None:
    """Garbage for one generation only."""
    stage.break_("degenerate", HEAD)


def _dockerd_gone_for_a_moment(stage: Stage) -> None:
    stage.break_("dockerd-freeze", WORKER)


_CLIENTS = """
import http.client, json, sys, threading
body = json.dumps({"model": "tiny-chat", "messages": [{"role": "user", "content": "Tell me a long story."}],
                   "max_tokens": 400, "ignore_eos": True})
key = open("/root/.sparkop/standin/api_key").read().strip()
def ask():
    c = http.client.HTTPConnection("127.0.0.1", 8000, timeout=600)
    c.request("POST", "/v1/chat/completions", body,
              {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    c.getresponse().read()
threads = [threading.Thread(target=ask) for _ in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]
"""


def _full_queue(stage: Stage) -> None:
    """Ten clients for four places, at two tokens a second."""
    stage.shell(HEAD, "docker exec $(docker ps -q --filter label=sparkop.role=rank) "
                "sh -c 'mkdir -p /control; echo 0.5 >/control/slow'")  # fmt: skip
    start = "setsid python3 -I /run/clients.py </dev/null >/dev/null 2>&1 & echo $! >/run/clients.pid"
    stage.shell(HEAD, f"printf '%s' '{_CLIENTS}' >/run/clients.py; {start}")


def _empty_queue(stage: Stage) -> None:
    stage.shell(HEAD, "docker exec $(docker ps -q --filter label=sparkop.role=rank) rm /control/slow; "
                "kill $(cat /run/clients.pid) 2>/dev/null || true; rm -f /run/clients.*")  # fmt: skip


ROWS: tuple[Row, ...] = (
    restarted("kill-rank", WORKER, "a rank killed (137)"),
    restarted("kill-rank", HEAD, "the head killed (137)"),
    restarted("exit-zero", WORKER, "a rank ended with exit code 0"),
    restarted("kill-launcher", HEAD, "a launcher killed"),
    Row("a container removed by hand", "all ranks anew", _remove_worker, planned, serves, restarts=1),
    restarted("degenerate", HEAD, "degenerate output", seconds=90),
    restarted("wedge", HEAD, "wedged: the head", seconds=120),
    restarted("wedge", WORKER, "wedged: a worker", seconds=120),
    restarted("not-ready", HEAD, "API answers 503 after it had served", seconds=60),
    restarted("server-error", HEAD, "API answers 500", seconds=60),
    restarted("gpu-lost", WORKER, "GPU lost in the container", seconds=120),
    restarted("hang", HEAD, "API silent for five minutes", seconds=480, slow=True),
    Row(
        "spec changed",
        "planned and applied",
        lambda stage: _edit(stage, "kvCache: 64MiB", "kvCache: 48MiB"),
        planned,
        serves,
        restarts=1,
    ),
    repaired("kill-guard", WORKER, "guard dead", "the guard alone anew", done("start", "memguard")),
    Row("guard hangs", "the guard alone anew", _pause_guard, planned, done("start", "memguard")),
    repaired("image-drift", WORKER, "image gone on one node", "pulled by digest", converged),
    Row(
        "every pull fails, then the image is pulled by hand",
        "tried at growing pauses; seen at the next look",
        _registry_away,
        lambda event: event["event"] == "pull-failed",
        converged,
        then=_pulled_by_hand,
        calm=40.0,
    ),
    repaired("corrupt-weight", HEAD, "a weight file damaged", "the file alone fetched", converged),
    repaired("missing-weight", WORKER, "a weight file missing", "the file alone fetched", converged),
    only_told("cable", WORKER, "cable pulled", f"fabric@{WORKER}"),
    only_told("admin-down", WORKER, "links set down", f"fabric@{WORKER}"),
    only_told("mtu", WORKER, "MTU changed", f"fabric@{WORKER}"),
    Row(
        "one rail of two down",
        "told as degraded",
        lambda stage: stage.break_("cable", WORKER, rail=1),
        noted("degraded"),
        lambda event: event["event"] == "note-over" and "degraded" in event["text"],
        then=lambda stage: stage.mend("cable", WORKER),
        calm=7.0,
    ),
    only_told("disk-full", WORKER, "disk full", f"disk@{WORKER}"),
    Row(
        "the key file changed (401)",
        "told, nothing restarted",
        _another_key,
        told(f"rank/all@{HEAD}"),
        mended(f"rank/all@{HEAD}"),
        then=_old_key,
        calm=7.0,
        seconds=90,
    ),
    broken(
        "memory-pressure",
        WORKER,
        "the guard killed ranks",
        "told; started again only when confirmed",
        told(f"trip@{WORKER}"),
        mended(f"trip@{WORKER}"),
        then=_relieved,
        calm=10.0,
        seconds=120,
        same=False,
    ),
    Row(
        "a foreign process holds the port",
        "named, not killed; started when it is gone",
        _take_port,
        told(HEAD),
        serves,
        then=_give_port,
        calm=7.0,
        restarts=1,
    ),
    only_told("mgmt-cut", WORKER, "a node does not answer", f"node@{WORKER}", seconds=150),
    only_told("freeze", WORKER, "a node hangs", f"node@{WORKER}", seconds=150),
    broken(
        "power-cut",
        WORKER,
        "a node loses power and boots",
        "guard, then all ranks anew",
        told(f"node@{WORKER}"),
        serves,
        then=_boot(WORKER),
        calm=5.0,
        restarts=1,
        seconds=150,
    ),
    Row(
        "both nodes lose power and boot",
        "guards, then all ranks anew",
        _cut_both,
        told("node@"),
        serves,
        then=_boot(HEAD, WORKER),
        restarts=1,
        seconds=150,
    ),
    Row(
        "a rank that Docker brought back alone after a power cut",
        "all ranks anew",
        _cut_with_restore,
        told(f"node@{WORKER}"),
        serves,
        then=_boot(WORKER),
        restarts=1,
        seconds=150,
    ),
    broken(
        "dockerd-kill",
        WORKER,
        "Docker dies and comes back",
        "all ranks anew",
        lambda event: event["event"] in ("planned", "fault"),
        serves,
        restarts=1,
        seconds=90,
    ),
)
"""What must be seen and acted on, or told."""

CALM: tuple[Row, ...] = (
    broken(
        "long-prefill",
        HEAD,
        "a long prefill",
        "nothing: slow",
        verdict("slow"),
        verdict("serving"),
        then=lambda stage: stage.mend("long-prefill", HEAD),
        calm=40.0,
        seconds=90,
    ),
    Row(
        "a full queue",
        "nothing: slow",
        _full_queue,
        verdict("slow"),
        verdict("serving"),
        then=_empty_queue,
        calm=30.0,
        seconds=120,
    ),
    Row(
        "one bad answer",
        "nothing: one is not believed",
        _one_bad_answer,
        verdict("suspected"),
        verdict("serving"),
        then=lambda stage: stage.mend("degenerate", HEAD),
        seconds=90,
    ),
    Row(
        "a slow start (loading, compilation)",
        "waited for: one start",
        _start_slowly,
        planned,
        serves,
        restarts=1,
        seconds=90,
        fault="slow-start",
    ),
    Row(
        "Docker does not answer for a while",
        "told as unknown",
        _dockerd_gone_for_a_moment,
        told(WORKER),
        mended(WORKER),
        then=lambda stage: stage.mend("dockerd-freeze", WORKER),
        calm=7.0,
        seconds=90,
        fault="dockerd-freeze",
    ),
)
"""False alarms: nothing may be restarted."""


VLLM = ("kill-rank", "kill-launcher", "cable", "freeze", "power-cut")
"""Faults that are also played with a real vLLM."""


def play(stage: Stage, row: Row, patience: float = 1.0) -> tuple[float, float]:
    """Break it, and check what watch does. Seconds until it was seen, and until it was over (from the fault,
    or from what the human did about it). AssertionError when anything else happens, or not in time.
    ``patience``: how many times the row's seconds."""
    watcher, before = stage.watcher, stage.ranks()
    began, since = time.time(), len(watcher.said())
    row.do(stage)
    number = watcher.until(row.seen, patience * row.seconds, since)
    seen = max(0.0, watcher.at(number) - began)
    if row.calm:
        time.sleep(row.calm)  # nothing may happen in it
        starts = [e for e in watcher.said()[since:] if done("start", "rank/")(e)]
        assert not starts, f"{row.drift}: started {starts}"
    if row.then is not None:
        began, number = time.time(), len(watcher.said())
        row.then(stage)
    number = watcher.until(row.over, patience * row.seconds, number - 1)
    over = max(0.0, watcher.at(number) - began)
    check(stage, row, since, before)
    return seen, over


def check(stage: Stage, row: Row, since: int, before: list[str]) -> None:
    """Started as often as it may be, what runs is what must run, and a client gets tokens."""
    said = stage.watcher.said()[since:]
    starts = sum(done("start", "rank/")(event) for event in said)
    assert starts == 2 * row.restarts, f"{row.drift}: {starts} ranks started: {said}"
    if row.restarts == 0 and row.same:
        assert stage.ranks() == before, f"{row.drift}: other ranks run"
    assert stage.tokens(60), f"{row.drift}: no tokens come"


def clean(stage: Stage, row: Row) -> None:
    """Whatever came of it: without the fault, and serving."""
    for host in (HEAD, WORKER):
        if stage.user.lab.host(host).pid is None:
            stage.user.lab.boot(host)
        for fault in (
            "cable",
            "mgmt-cut",
            "freeze",
            "admin-down",
            "mtu",
            "dockerd-freeze",
            "memory-pressure",
            "disk-full",
            "slow-start",
        ):
            try:
                stage.mend(fault, host)
            except Exception as error:
                print(f"mending {fault} on {host}: {error}")
    stage.sparkop("apply", "--after-trip")


def fault_names() -> set[str]:
    """The lab's faults that some row is made with."""
    return {row.fault for row in (*ROWS, *CALM) if row.fault}
