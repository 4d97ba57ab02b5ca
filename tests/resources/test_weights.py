"""The weights resource with real processes on both nodes and a hub over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkop.errors import BlockedError, SparkopError, UnreachableError, WaitInterruptedError
from sparkop.hosts.base import Fence
from sparkop.node.transfer.status import boot_id
from sparkop.reconcile import transfers
from sparkop.resources import transfer_job
from sparkop.resources.events import Event, Phase
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.resources.transfer_program import call
from sparkop.resources.weights import follow as weights_follow
from sparkop.resources.weights import sharing as weights_shared
from sparkop.resources.weights.follow import progress_text
from tests.labkit import until
from tests.node.hub_standin import Hub, running
from tests.resources.weights_world import World

FILES = {
    "config.json": b"{}\n",
    "model-00001-of-00002.safetensors": b"\2\0\0\0\0\0\0\0{}",
    "model-00002-of-00002.bin": os.urandom(20 << 20) + b"tail",
    "sub folder/ä.bin": os.urandom(2 << 20),
    "empty.txt": b"",
}
Make = Callable[..., World]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


@pytest.fixture
def make(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "controller"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    worlds = []

    def make(*names: str, **weights: Any) -> World:
        worlds.append(World.make(tmp_path, hub, names or ("one", "two"), **weights))
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()


def assert_complete(folder: Path) -> None:
    for name, data in FILES.items():
        assert (folder / name).read_bytes() == data, name
    left = [path.name for path in folder.rglob(".sparkop-*")]
    assert left == []


def test_head_downloads_while_the_other_copies_and_then_nothing_is_left_to_do(make: Make, hub: Hub) -> None:
    world = make()
    plan = world.look()
    assert [(o.action, o.node, dict(o.parameters)) for o in plan.operations] == [
        (Action.DOWNLOAD, "one", {}),
        (Action.COPY, "two", {"from": "one"}),
    ]
    assert plan.operations[0].cost.bytes == sum(map(len, FILES.values()))
    world.do(plan.operations)
    for node in world.nodes.values():
        assert_complete(node.home / "models" / "it is ü")
    size = sum(map(len, FILES.values()))
    assert hub.sent <= size * 1.1, "the second node must not ask the hub"
    asked = len(hub.log)
    again = world.look()
    assert (again.operations, again.blockers, again.unknown) == ((), (), ())
    assert len(hub.log) == asked, "a second diff needs no network"


def test_a_changed_file_is_found_by_stat_named_and_only_it_is_copied_again(make: Make, hub: Hub) -> None:
    world = make()
    world.do()
    path = world.nodes["two"].home / "models" / "it is ü" / "sub folder" / "ä.bin"
    path.write_bytes(b"!" + path.read_bytes()[1:])
    (operation,) = world.look().operations
    assert (operation.action, operation.node) == (Action.COPY, "two")
    assert operation.cause.observed == "4 of 5 files verified; unverified sub folder/ä.bin"
    asked = len(hub.log)
    world.do()
    assert_complete(world.nodes["two"].home / "models" / "it is ü")
    assert world.look().operations == ()
    assert len(hub.log) == asked
    assert transferred(world, "two") == len(FILES["sub folder/ä.bin"])


def transferred(world: World, node: str) -> int:
    """Bytes that the node's last transfer has received."""
    status = json.loads((world.nodes[node].state / "transfer.json").read_text())
    return int(status["bytes"]["received"])


def test_a_stall_of_ten_seconds_is_on_the_progress_line() -> None:
    """A bar that stands still says nothing of why."""
    status = {"phase": "fetching", "files": {"done": 3, "total": 9}, "active": {"a": {}}}
    assert (
        progress_text({**status, "silent": 12}, "spark-1") == "no byte for 12 s, 3 of 9 files from spark-1: a"
    )
    assert progress_text({**status, "waits": True}) == "waits for its source to fetch more, 3 of 9 files: a"
    assert progress_text({**status, "silent": 9}) == progress_text(status) == "3 of 9 files: a"


def test_deep_finds_what_a_stat_hides(make: Make) -> None:
    world = make()
    world.do()
    node = world.nodes["two"]
    path = node.home / "models" / "it is ü" / "model-00002-of-00002.bin"
    path.write_bytes(b"!" + path.read_bytes()[1:])
    ledger = node.state / "ledger" / "weights.json"
    document = json.loads(ledger.read_text())
    status = path.stat()
    entry = document["files"][str(path.resolve())]
    entry.update(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)
    ledger.write_text(json.dumps(document))
    assert world.look().operations == ()
    (operation,) = world.look(deep=True).operations
    told = "wrong model-00002-of-00002.bin (other bytes than published)"
    assert operation.cause.observed == f"4 of 5 files verified; {told}"


def test_every_node_downloads_by_itself_when_the_spec_says_so(make: Make, hub: Hub) -> None:
    world = make(distribution="direct")
    world.do()
    for node in world.nodes.values():
        assert_complete(node.home / "models" / "it is ü")
    assert hub.sent >= 2 * sum(map(len, FILES.values()))


def test_a_shared_folder_is_filled_once_and_proven_on_every_node(
    make: Make, hub: Hub, tmp_path: Path
) -> None:
    world = make(distribution="shared", path=str(tmp_path / "nfs" / "model"))
    plan = world.look()
    assert [(o.action, o.node) for o in plan.operations] == [(Action.DOWNLOAD, "one"), (Action.RECORD, "two")]
    for operation in plan.operations:
        world.do([operation])
    assert_complete(tmp_path / "nfs" / "model")
    assert hub.sent <= sum(map(len, FILES.values())) * 1.1
    again = world.look()
    assert (again.operations, again.warnings) == ((), ())
    assert not list((tmp_path / "nfs" / "model").glob(".sparkop-shared-*"))


def test_a_shared_folder_that_holds_everything_is_hashed_and_not_written_to(
    make: Make, hub: Hub, tmp_path: Path
) -> None:
    """It may be mounted read-only on every node: a mark could be written on none."""
    folder = tmp_path / "nfs" / "model"
    world = make(distribution="shared", path=str(folder))
    world.do(world.look().operations[:1])
    for node in world.nodes.values():
        (node.state / "ledger" / "weights.json").unlink(missing_ok=True)
    sent, before = hub.sent, folder.stat().st_mtime_ns
    plan = world.look()
    assert [(o.action, o.node) for o in plan.operations] == [(Action.DOWNLOAD, "one"), (Action.RECORD, "two")]
    for operation in plan.operations:
        world.do([operation])
    assert world.look().operations == ()
    assert (hub.sent, folder.stat().st_mtime_ns) == (sent, before)


def test_a_folder_that_is_not_shared_is_refused_before_a_byte_comes(
    make: Make, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has a folder of that name in its own home: the mark of one is not seen on the other."""
    monkeypatch.setattr(weights_shared, "PATIENCE", 0.5)
    world = make(distribution="shared")
    planned = world.look().operations[:1]
    asked = hub.sent
    with pytest.raises(BlockedError, match="it is ü is not the folder of one") as caught:
        world.do(planned)
    assert caught.value.node == "two"
    assert "findmnt -T" in str(caught.value.remedy)
    assert "weights.distribution: copy" in str(caught.value.remedy)
    assert hub.sent == asked, "nothing is fetched for a spec that is wrong"
    assert not list((world.nodes["one"].home / "models" / "it is ü").iterdir()), "the mark is taken away"

    make("one").do()
    (operation,) = [o for o in world.look().operations if o.node == "two"]
    assert operation.parameters == {"shared": "one"}
    with pytest.raises(BlockedError, match="is not the folder of one"):
        world.do([operation])

    make().do()  # a copy of its own on each node
    (told,) = world.look().warnings
    assert told.startswith("two: weights: ")


@pytest.mark.parametrize("wrong", ["one", "two"])
def test_bytes_that_would_leave_the_fabric_are_refused_whichever_end_has_the_wrong_route(
    make: Make, wrong: str
) -> None:
    """The sender's own route carries the bytes, the receiver's the requests; the spec may allow others.

    The kernel answers from 127.0.0.1, which is not the fabric address of the node in question.
    """
    world = make("one")
    world.do()
    refused = make()
    refused.addresses = {wrong: "127.0.0.2"}
    with pytest.raises(BlockedError, match=r"leaves the fabric: by lo from 127.0.0.1, not by lo") as caught:
        refused.do()
    assert caught.value.node == wrong
    assert caught.value.remedy is not None
    assert "fabric.otherRoutes: true" in caught.value.remedy
    allowed = make(otherRoutes=True)
    allowed.addresses = refused.addresses
    allowed.do()
    assert_complete(allowed.nodes["two"].home / "models" / "it is ü")


def test_the_hub_cache_layout_is_copied_too(make: Make, hub: Hub) -> None:
    world = make(hubCache="~/hf")
    world.do()
    for node in world.nodes.values():
        folder = node.home / "hf" / "hub" / "models--org--name"
        assert_complete(folder / "snapshots" / hub.commit)
        assert (folder / "refs" / "main").read_bytes() == hub.commit.encode()
    assert world.look().operations == ()


def test_a_failure_of_the_download_is_told_in_its_words_on_both_nodes(make: Make, hub: Hub) -> None:
    world = make()
    world.look()
    hub.faults.statuses = [(403, None)] * 999
    with pytest.raises(BlockedError, match=r"access refused|gave up") as caught:
        world.do()
    assert caught.value.node in ("one", "two")
    hub.faults.statuses = []
    world.do()
    assert world.look().operations == ()


def test_a_file_that_the_hub_no_longer_has_is_told_with_what_to_do(make: Make, hub: Hub) -> None:
    """It ended with the status alone."""
    world = make("one")
    world.look()
    hub.faults.statuses = [(404, None)] * 99
    with pytest.raises(BlockedError, match="answered 404") as caught:
        world.do()
    assert "--update" in str(caught.value.remedy)


def test_stopping_leaves_the_job_running_and_the_next_run_finds_it(make: Make, hub: Hub) -> None:
    world = make("one")
    hub.faults.rate = 4 << 20
    operations = world.look().operations
    once_sending(hub, world.stop.set).start()
    with pytest.raises(WaitInterruptedError, match="goes on by itself"):
        world.do(operations)
    assert call(world.nodes["one"], world.nodes["one"].fence, "status")["running"]  # type: ignore[arg-type]
    world.stop.clear()
    hub.faults.rate = 0
    world.do(operations)
    assert world.look().operations == ()
    assert hub.sent <= sum(map(len, FILES.values())) * 1.05


def test_a_killed_job_is_started_again_by_who_follows_it(make: Make, hub: Hub, monkeypatch: Any) -> None:
    monkeypatch.setattr(weights_follow, "SILENT", 1.0)
    world = make("one")
    hub.faults.rate = 8 << 20
    killer = once_sending(hub, lambda: os.kill(transfer_pid(world), signal.SIGKILL))
    killer.start()
    world.do()
    killer.join()
    assert_complete(world.nodes["one"].home / "models" / "it is ü")


@pytest.mark.parametrize(
    "followed", [True, False], ids=["while it is followed", "when the command runs again"]
)
def test_a_copy_heals_whose_source_was_killed_and_is_not_sent_again_what_has_arrived(
    make: Make, monkeypatch: pytest.MonkeyPatch, *, followed: bool
) -> None:
    """On a trusted fabric the share comes back at another address: the receiver asked the old one for a
    quarter of an hour, and running the command again did not help."""
    monkeypatch.setattr(transfer_job, "SOURCE_SILENT", 1.0 if followed else 600.0)
    world = make("one", "two")
    world.do(world.look().operations[:1])
    one, two = world.nodes.values()
    limit = {"from": "one", "rate": 6 << 20}
    copy = Operation(Action.COPY, "two", "weights", Cause("weights", "absent", "verified"), parameters=limit)
    arrived = []

    def kill() -> None:
        until(lambda: bytes_of(world, "two", "done") > 9 << 20)
        if not followed:
            world.stop.set()
        os.kill(int((one.state / "transfer" / "share.lock").read_text()), signal.SIGKILL)
        arrived.append(bytes_of(world, "two", "done"))

    killer = threading.Thread(target=kill)
    killer.start()
    if followed:
        world.do([copy])
    else:
        with pytest.raises(WaitInterruptedError):
            world.do([copy])
        world.stop.clear()
        world.do([copy])
    killer.join()
    assert_complete(two.home / "models" / "it is ü")
    assert transferred(world, "two") <= sum(map(len, FILES.values())) - arrived[0]
    told = [
        event.text for event in world.events if event.phase is Phase.LOG and "offered again" in event.text
    ]
    assert len(told) == followed


def bytes_of(world: World, node: str, counted: str) -> int:
    """A figure of the node's transfer; 0 before it has begun."""
    status = world.nodes[node].read_file(str(world.nodes[node].state / "transfer.json"))
    return int(json.loads(status or b'{"bytes": {}}')["bytes"].get(counted, 0))


def test_a_share_whose_start_was_killed_is_taken_over_by_the_next(make: Make) -> None:
    """The server kept the lock that the killed one had held for it: every share after it hung."""
    world = make("one")
    node = world.nodes["one"]
    request = {"directory": str(node.home), "files": [], "address": "127.0.0.1"}
    (node.state / "transfer").mkdir()
    killed = (
        "import os; from sparkop.node.transfer import main\n"
        "real = main._detach\n"
        "main._detach = lambda *arguments: (real(*arguments), os.kill(os.getpid(), 9))\n"
        f"main._share({str(node.state)!r}, {request!r})"
    )
    assert subprocess.run([sys.executable, "-c", killed]).returncode == -signal.SIGKILL
    assert call(node, node.fence, "share", request, seconds=5.0)["port"]  # type: ignore[arg-type]


def test_a_transfer_program_that_was_killed_says_so_and_what_to_do() -> None:
    """It exited 1 with "the transfer program failed", no cause and no remedy."""

    class Node:
        name = "one"

        def act(self, *_arguments: object, **_options: object) -> dict[str, Any]:
            return {"exit": -9, "output": "", "said": ""}

    node: Any = Node()
    with pytest.raises(BlockedError, match="was killed") as caught:
        call(node, Fence("test", "tester", 1, "/state"), "share")
    assert "signal 9" in str(caught.value.cause)
    assert "run the same command again" in str(caught.value.remedy)


def once_sending(hub: Hub, act: Callable[[], None]) -> threading.Thread:
    """Does it when the hub has sent a part of the files."""

    def wait() -> None:
        before = hub.sent
        until(lambda: hub.sent > before + (2 << 20))
        act()

    return threading.Thread(target=wait, daemon=True)


def transfer_pid(world: World) -> int:
    return int((world.nodes["one"].state / "transfer" / "lock").read_text())


def test_the_hub_token_reaches_the_hub_and_nothing_that_stays(
    make: Make, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.token = "hf_sentinel"
    monkeypatch.setenv("HF_TOKEN", "hf_sentinel")
    world = make()
    world.do()
    assert world.look().operations == ()
    kept = [p for p in tmp_path.rglob("*") if p.is_file() and b"hf_sentinel" in p.read_bytes()]
    assert kept == []
    assert "hf_sentinel" not in repr(world.events)


def test_who_only_looks_on_leaves_time_to_start_it_again_and_then_says_what_to_do() -> None:
    """``--follow`` gave up at the very moment at which ``download`` starts a killed process again."""
    silence = weights_follow.SILENT

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    class Node:
        name = "one"

        def __init__(self, ends: float) -> None:
            self._ends = ends

        def read_file(self, _path: str) -> bytes:
            ended = clock.now > self._ends
            return json.dumps(
                {"id": "x", "sequence": ended, "phase": "done" if ended else "fetching"}
            ).encode()

    def look_on(ends: float) -> str:
        clock.now = 0.0
        node: Any = Node(ends)
        last = weights_follow.follow(
            node, "/s", "x", clock=clock, stopped=lambda: False, tell=lambda _status: None
        )
        return str(last["phase"])

    clock = Clock()
    assert look_on(silence * 1.5) == "done"
    with pytest.raises(SparkopError, match="without a word") as caught:
        look_on(silence * 3)
    assert "sparkop download" in str(caught.value.remedy)


def copy_behind(world: World, monkeypatch: pytest.MonkeyPatch, read: Callable[[str], bytes | None]) -> None:
    """``one`` copies from ``two``, which waits for ``three``, of which ``read`` reads files."""
    monkeypatch.setattr(transfer_job, "SOURCE_SILENT", 0.2)
    waits = {"phase": "fetching", "from": "three", "pid": os.getpid(), "boot_id": boot_id()}
    (world.nodes["two"].state / "transfer.json").write_text(json.dumps(waits))
    monkeypatch.setattr(world.nodes["three"], "read_file", read)
    cause = Cause("weights", "absent", "verified")
    world.do([Operation(Action.COPY, "one", "weights", cause, parameters={"from": "two"})])


def test_a_node_that_is_gone_is_found_behind_one_that_only_waits_for_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of four waited a quarter of an hour for one that waited for a node without power."""

    def gone(_path: str) -> bytes:
        raise UnreachableError("no answer", node="three")

    with pytest.raises(UnreachableError) as caught:
        copy_behind(make("one", "two", "three"), monkeypatch, gone)
    assert caught.value.node == "three"


def test_a_link_that_is_down_is_named_once_while_a_copy_stands_still(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pulled cable was not told: the copy stood still for a quarter of an hour."""
    world = make("one", "two", "three")
    looks = iter(range(2))

    def pulled(path: str) -> bytes | None:
        if not path.endswith("/lo/operstate"):
            return None
        if next(looks, None) is None:
            world.stop.set()
        return b"down\n"

    with pytest.raises(WaitInterruptedError):
        copy_behind(world, monkeypatch, pulled)
    (told,) = [event.text for event in world.events if event.phase is Phase.LOG]
    assert told.startswith("the link of lo on three is down, no bytes come over it")
    assert "sparkop doctor" in told


def test_a_node_that_is_lost_is_told_by_follow_at_once_with_what_to_do(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told when the others had ended, and the advice was to follow a node without power."""
    world = make("one", "two")
    runs = {"id": "x", "phase": "fetching", "sequence": 1, "pid": os.getpid(), "boot_id": boot_id()}
    for node in world.nodes.values():
        (node.state / "transfer.json").write_text(json.dumps(runs))
    context = world.context()
    reading = SimpleNamespace(desired=context.desired, observed=context.observed)
    monkeypatch.setattr(transfers, "_look", lambda *_: reading)
    told = threading.Event()

    def gone(_path: str) -> bytes:
        raise UnreachableError("the connection broke", node="one")

    def goes_on(_path: str) -> bytes:
        return json.dumps({**runs, "phase": "done" if told.is_set() else "fetching"}).encode()

    def emit(event: Event) -> None:
        if event.phase is Phase.FAILED and event.node == "one":
            told.set()

    monkeypatch.setattr(world.nodes["one"], "read_file", gone)
    monkeypatch.setattr(world.nodes["two"], "read_file", goes_on)
    with pytest.raises(UnreachableError) as caught:
        transfers.follow_all(world.spec, world.nodes, emit=emit)  # type: ignore[arg-type]
    assert told.is_set()
    assert "if one has gone down: sparkop apply or sparkop download carries on" in str(caught.value.remedy)
