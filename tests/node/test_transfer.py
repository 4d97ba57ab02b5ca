"""Downloads against a hub that misbehaves: they end verified, or in a clear error."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.client import IncompleteRead
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sparkop.node.transfer import fetch, http
from sparkop.node.transfer import status as statuses
from sparkop.node.transfer.files import TransferError, parse_job
from sparkop.node.transfer.http import RetryError
from sparkop.node.transfer.sources import Crew
from sparkop.resources.transfer_program import failure
from tests.node.hub_standin import Faults, Hub, running
from tests.node.transfer_world import Node, quick_stalls

MIB = 1 << 20
LARGE = random.Random(1).randbytes(50 * MIB + 12345)
FILES = {"config.json": b"{}", "model.bin": LARGE, "sub/ä b.bin": LARGE[: 2 * MIB], "empty": b""}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def assert_whole(node: Node, hub: Hub) -> None:
    for name, data in hub.files.items():
        assert (node.weights / name).read_bytes() == data, name
    assert node.leftovers() == []
    assert len(node.ledger()) == len(hub.files)


def test_a_download_is_verified_and_the_second_asks_for_nothing(node: Node, hub: Hub) -> None:
    job = node.job(hub.job_files(), hub)
    status = node.run(job)
    assert status["phase"] == "done"
    assert status["bytes"]["received"] == sum(map(len, FILES.values()))
    assert_whole(node, hub)
    hub.log.clear()
    status = node.run(job)
    assert (status["phase"], status["bytes"]["hashed"], hub.log) == ("done", 0, [])


def test_what_the_hub_keeps_in_its_chunk_store_comes_by_plain_http(node: Node, hub: Hub) -> None:
    """See docs/decisions/0005: its redirect and its hash are enough, the chunk store is never asked."""
    hub.xet = True
    assert node.run(node.job(hub.job_files(), hub))["phase"] == "done"
    assert_whole(node, hub)
    assert not any("/v1/" in entry["path"] or "xet" in entry["path"] for entry in hub.log)


MENDED: dict[str, Callable[[Faults], None]] = {
    "answers that end early": lambda faults: setattr(faults, "cut", 3),
    "answers that stall": lambda faults: setattr(faults, "stall", 2),
    "one flipped byte": lambda faults: setattr(faults, "flip", 1),
    "200 to a Range": lambda faults: setattr(faults, "ignore_range", True),
    "200 to a Range and broken off": lambda faults: vars(faults).update(ignore_range=True, cut=2),
    "signed addresses that expire": lambda faults: setattr(faults, "expire_after", 2),
    "429 with Retry-After": lambda faults: setattr(faults, "statuses", [(429, "0")] * 3),
    "503": lambda faults: setattr(faults, "statuses", [(503, None), (500, None), (502, "0")]),
    "503 of the store": lambda faults: setattr(faults, "store_statuses", [(503, "0")] * 4),
    "404 of the store": lambda faults: setattr(faults, "store_statuses", [(404, None)]),
}


@pytest.mark.parametrize("fault", MENDED)
def test_a_fault_that_passes_is_survived(node: Node, hub: Hub, fault: str) -> None:
    MENDED[fault](hub.faults)
    with quick_stalls():
        status = node.run(node.job(hub.job_files(), hub))
    assert status["phase"] == "done", status["error"]
    assert_whole(node, hub)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Of a server on 127.0.0.1 whose certificate the transfer trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = datetime.now(tz=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "hub.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture(params=["plain", "tls"])
def either(request: pytest.FixtureRequest, tls: ssl.SSLContext) -> Iterator[Hub]:
    """A hub without and with TLS: a socket is read in another way then."""
    with running(Hub("org/name", "c" * 40, dict(FILES)), tls if request.param == "tls" else None) as hub:
        yield hub


@pytest.mark.parametrize("fault", [None, "cut", "stall", "flip"])
def test_a_hub_with_tls_is_read_whole(node: Node, tls: ssl.SSLContext, fault: str | None) -> None:
    with running(Hub("org/name", "c" * 40, dict(FILES)), tls) as hub, quick_stalls():
        if fault:
            setattr(hub.faults, fault, 2)
        status = node.run(node.job(hub.job_files(), hub))
        assert status["phase"] == "done", status["error"]
        assert_whole(node, hub)


def test_a_hub_that_stalls_is_told_in_words(node: Node, either: Hub) -> None:
    """After a minute it was told as [Errno 11]; the words say who is silent, and for how long."""
    either.faults.mute = True
    with quick_stalls(), mock.patch.object(fetch, "TOLD_AFTER", 0.3):
        status = node.run(node.job(either.job_files("model.bin"), either, patience=2.5))
    silent = f"{either.store} has sent nothing for 1 s"
    assert f"{silent}; asked again for 2 s" in status["notes"]
    assert status["error"]["kind"] == "network"
    assert status["error"]["message"].startswith("no byte came for ")
    assert status["error"]["message"].endswith(f"s; last: {silent}")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionResetError(), "it was closed"),
        (IncompleteRead(b"abc", 5), "it ended early"),
    ],
)
def test_a_connection_that_fails_is_told_in_words(error: Exception, told: str) -> None:
    """An error without words of its own was told with none, or by its class."""
    assert http.in_words(error) == told


def test_a_hub_that_takes_a_question_and_says_nothing_is_told_in_words(node: Node, hub: Hub) -> None:
    hub.faults.gate = threading.Event()
    with quick_stalls(), mock.patch.object(fetch, "TOLD_AFTER", 0.3):
        status = node.run(node.job(hub.job_files("model.bin"), hub, patience=2.5, streams=1))
    hub.faults.gate.set()
    told = f"{hub.store} does not answer: nothing came for 1 s"
    assert f"{told}; asked again for 2 s" in status["notes"]


def test_a_silent_hub_is_told_of_once_whatever_is_asked_of_it(node: Node, hub: Hub) -> None:
    """Each file of a checkpoint had a line of its own."""
    hub.faults.mute = True
    with quick_stalls(), mock.patch.object(fetch, "TOLD_AFTER", 0.3):
        status = node.run(node.job(hub.job_files("model.bin", "sub/ä b.bin"), hub, patience=2.5))
    assert status["notes"] == [f"{hub.store} has sent nothing for 1 s; asked again for 2 s"]


def test_a_stall_shows_in_the_progress_and_a_word_to_stop_is_heard_in_it(node: Node, either: Hub) -> None:
    """`download --cancel` waited for the stalled connection, and gave up before it."""
    either.faults.mute = True
    stop = threading.Event()
    job = node.job(either.job_files("model.bin"), either, patience=900.0)
    thread = threading.Thread(target=node.run, args=(job, stop))
    thread.start()
    node.wait(lambda status: status.get("silent", 0) >= 2)
    stop.set()
    thread.join(http.TIMEOUT / 2)
    assert not thread.is_alive()
    assert node.status()["phase"] == "cancelled"


def test_who_waits_for_its_source_to_fetch_more_tells_no_rate_and_no_stall_of_its_own(node: Node) -> None:
    """A copy whose source downloaded slowly said "no byte for 16 s" and "19 h left": nothing was wrong."""
    job = parse_job({**node.job([{"path": "a", "size": 1 << 30, "sha256": "0" * 64}], None, patience=900.0)})
    status = statuses.Status(str(node.state), job)
    fetching = fetch.Fetch(job, status, threading.Event(), mock.Mock(), mock.Mock())
    status.phase("fetching")
    status.document()
    with mock.patch("time.monotonic", return_value=time.monotonic() + 8):
        status.received(1 << 20)
        assert status.document()["rate"] > 0
        fetching._check_patience(RetryError("it is still to come", alive=True))
        assert (status.document()["rate"], status.document()["remaining"]) == (0.0, None)
    with mock.patch("time.monotonic", return_value=time.monotonic() + 30):
        found = status.document()
        assert (found["silent"], found["waits"]) == (0, True)
        fetching._check_patience(RetryError("it answered 500"))
        found = status.document()
        assert (found["silent"] > 15, found["waits"]) == (True, False), "now it is a fault"


def test_what_was_hashed_in_memory_is_not_written_over(node: Node, hub: Hub) -> None:
    """A server without ranges sends the beginning again, now with another byte: what is on disk stays."""
    job = node.job(hub.job_files("model.bin"), hub, streams=1)
    hub.faults.ignore_range, hub.faults.cut = True, 1
    thread = threading.Thread(target=node.run, args=(job,))
    thread.start()
    deadline = time.monotonic() + 30
    while hub.faults.cut:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    hub.files["model.bin"] = bytes([LARGE[0] ^ 1]) + LARGE[1:]
    thread.join()
    assert node.status()["phase"] == "done"
    assert (node.weights / "model.bin").read_bytes() == LARGE


REFUSED: dict[str, tuple[Callable[[Hub], None], str, str]] = {
    "a token is needed": (lambda hub: setattr(hub, "token", "hf_x"), "refused", "HF_TOKEN"),
    "403": (lambda hub: hub.faults.statuses.extend([(403, None)] * 99), "refused", "HF_TOKEN"),
    "404": (lambda hub: hub.faults.statuses.extend([(404, None)] * 99), "missing", ""),
    "another file by its ETag": (lambda hub: setattr(hub.faults, "linked_etag", "f" * 64), "content", ""),
    "always wrong bytes": (
        lambda hub: setattr(hub.faults, "flip_always", True),
        "content",
        "weights.endpoint",
    ),
    "always 500": (
        lambda hub: hub.faults.statuses.extend([(500, "0")] * 100000),
        "network",
        "run the same command again",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_that_stays_ends_in_a_clear_error(node: Node, hub: Hub, fault: str) -> None:
    make, kind, remedy = REFUSED[fault]
    make(hub)
    status = node.run(node.job(hub.job_files(), hub, patience=1.0))
    assert status["phase"] == "failed"
    assert status["error"]["kind"] == kind
    assert remedy in status["error"]["remedy"]
    assert not (node.weights / "model.bin").exists()


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_store_that_refuses_every_new_address_is_not_hammered(node: Node, hub: Hub, code: int) -> None:
    """A proxy between the node and the store: the hub gives an address each time, and none of them holds."""
    hub.faults.store_statuses = [(code, None)] * 10**6
    status = node.run(node.job(hub.job_files("model.bin"), hub, patience=3))
    error = status["error"]
    assert error["kind"] == "network"
    assert f"store refuses each new address that the hub gives: {hub.store}/model.bin" in error["message"]
    assert error["message"].endswith(f"answered {code}")
    assert "proxy" in error["remedy"]
    assert len(hub.log) < 200
    assert status["notes"] == [f"{hub.store}/model.bin answered {code}; asked again for 3 s"]


@pytest.mark.parametrize("code", [503, 429, 206])
def test_what_is_asked_for_in_vain_is_told_while_it_stands_still(
    node: Node, hub: Hub, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of an hour without a byte showed no reason until its end (a reader)."""
    monkeypatch.setattr(fetch, "TOLD_AFTER", 0.3)
    if code == 206:
        hub.faults.other_range = True
    else:
        hub.faults.statuses = [(code, "0")] * 10**6
    (note,) = node.run(node.job(hub.job_files("config.json"), hub, patience=2))["notes"]
    told = "answered with another range" if code == 206 else f"answered {code}"
    assert told in note
    assert note.endswith("asked again for 2 s")


def test_a_stream_that_was_sent_away_holds_up_no_end_and_is_told(node: Node, hub: Hub) -> None:
    """The others fetched all; the job ended when one stream's Retry-After was over (a reader)."""
    hub.faults.statuses = [(429, "60")]
    began = time.monotonic()
    status = node.run(node.job(hub.job_files(), hub, streams=4))
    assert status["phase"] == "done"
    assert time.monotonic() - began < 30
    (note,) = status["notes"]
    assert "answered 429" in note


def test_an_expired_address_is_renewed_at_once(node: Node, hub: Hub) -> None:
    """And the next one too, when bytes have come in between."""
    hub.faults.expire_after = 1
    started = time.monotonic()
    with mock.patch.object(fetch, "PAUSES", (60.0,)):
        assert node.run(node.job(hub.job_files("model.bin"), hub, streams=1))["phase"] == "done"
    assert len(hub.uses) >= 3
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("listed", [1, 3])
def test_a_small_file_of_another_size_than_listed_is_told_while_it_is_asked_for_again(
    node: Node, hub: Hub, listed: int
) -> None:
    """It may be a proxy's page that passes; when it stays, the hub's list is what to ask for."""
    status = node.run(
        node.job([{**hub.entry("config.json"), "size": listed}, *hub.job_files("empty")], hub, patience=1.0)
    )
    text = f"config.json has 2 bytes, not {listed}"
    assert (status["phase"], status["error"]["kind"]) == ("failed", "content")
    assert status["error"]["message"].endswith(text)
    assert "sparkop download --update" in (failure(status["error"], "n").remedy or "")
    (note,) = status["notes"]
    assert text in note


def test_the_last_word_is_not_written_over_by_one_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of twice a second has read its words and is slow to write them while the job ends."""
    kept = statuses.Status(str(tmp_path), parse_job({"kind": "fetch", "directory": "/w", "files": []}))
    reached, go_on, real = threading.Event(), threading.Event(), os.replace

    def slow(old: str, new: str) -> None:
        if threading.current_thread() is writer:
            reached.set()
            go_on.wait(1.0)
        real(old, new)

    monkeypatch.setattr(os, "replace", slow)
    writer = threading.Thread(target=kept.write)
    writer.start()
    assert reached.wait(30)
    kept.end("done")
    go_on.set()
    writer.join()
    assert json.loads((tmp_path / "transfer.json").read_text())["phase"] == "done"


def test_retry_after_is_obeyed(node: Node, hub: Hub) -> None:
    hub.faults.statuses = [(429, "2")]
    started = time.monotonic()
    status = node.run(node.job(hub.job_files("config.json"), hub, streams=1))
    assert status["phase"] == "done"
    assert time.monotonic() - started >= 2.0


def test_the_token_goes_to_the_hub_and_not_to_its_store_nor_to_disk(node: Node, hub: Hub) -> None:
    hub.token = "hf_sentinel"
    status = node.run(node.job(hub.job_files(), hub, secrets={"hub": "hf_sentinel"}))
    assert status["phase"] == "done"
    assert {entry["authorization"] for entry in hub.log if not entry["store"]} == {"Bearer hf_sentinel"}
    assert {entry["authorization"] for entry in hub.log if entry["store"]} == {None}
    kept = [path for path in node.folder.rglob("*") if path.is_file() and b"hf_sentinel" in path.read_bytes()]
    assert kept == []


def test_a_stopped_download_goes_on_where_it_was(node: Node, hub: Hub) -> None:
    hub.faults.rate = 20 * MIB
    stop = threading.Event()
    job = node.job(hub.job_files("model.bin"), hub, streams=2)
    thread = threading.Thread(target=node.run, args=(job, stop))
    thread.start()
    deadline = time.monotonic() + 30
    while not list(node.weights.glob(".sparkop-*.blocks")) or hub.sent < 34 * MIB:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stop.set()
    thread.join()
    assert node.status()["phase"] == "cancelled"
    hub.faults.rate, before = 0, hub.sent
    assert node.run(job)["phase"] == "done"
    assert (node.weights / "model.bin").read_bytes() == LARGE
    assert hub.sent - before < len(LARGE), "something of the first run must have been used"


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: os.truncate(path, 7 * MIB), f"{7 * MIB} bytes, not {len(LARGE)}"),
        (
            lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid x"),
            "a git LFS pointer",
        ),
        (lambda path: path.write_bytes(LARGE[:-1] + b"!"), "its bytes are not the published ones"),
        (lambda path: path.unlink(), "missing"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
    ],
    ids=["empty", "truncated", "pointer", "flipped", "missing", "fifo"],
)
def test_a_bad_file_is_named_and_only_it_is_fetched_again(
    node: Node, hub: Hub, flaw: Callable[[Path], object], reason: str
) -> None:
    job = node.job(hub.job_files(), hub)
    node.run(job)
    flaw(node.weights / "model.bin")
    status = node.run({**job, "kind": "verify"})
    assert status["phase"] == "failed"
    assert list(status["bad"]) == ["model.bin"]
    assert status["bad"]["model.bin"].startswith(reason)
    hub.log.clear()
    assert node.run(job)["phase"] == "done"
    assert {entry["path"].rpartition("/")[2] for entry in hub.log} == {"model.bin"}
    assert_whole(node, hub)


def test_the_ledger_is_believed_and_deep_does_not_believe_it(node: Node, hub: Hub) -> None:
    job = node.job(hub.job_files(), hub)
    node.run(job)
    path = node.weights / "model.bin"
    ledger = node.state / "ledger" / "weights.json"
    path.write_bytes(LARGE[:-1] + b"!")
    status = path.stat()
    entries = node.ledger()
    entries[str(path.resolve())].update(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)
    ledger.write_text(json.dumps({"version": 1, "files": entries}))
    assert node.run({**job, "kind": "verify"})["bytes"]["hashed"] == 0
    assert list(node.run({**job, "kind": "verify", "deep": True})["bad"]) == ["model.bin"]
    assert list(node.run({**job, "kind": "verify"})["bad"]) == ["model.bin"], "what deep found is remembered"


def test_too_little_room_is_told_before_anything_is_fetched(node: Node, hub: Hub) -> None:
    huge = {"path": "huge.bin", "size": 1 << 44, "sha256": "0" * 64}
    status = node.run(node.job([*hub.job_files(), huge], hub))
    assert status["error"]["kind"] == "space"
    assert "16.0 TiB are still to come" in status["error"]["message"]
    assert "weights.path" in status["error"]["remedy"]
    assert hub.log == []


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a//b", "", "a/./b"])
def test_a_path_that_leaves_the_folder_is_refused(node: Node, hub: Hub, path: str) -> None:
    from sparkop.node.transfer.files import TransferError, parse_job

    with pytest.raises(TransferError, match="leaves the weights folder"):
        parse_job(node.job([{"path": path, "size": 1, "sha256": "0" * 64}], hub))


def test_a_rate_limit_is_kept(node: Node, hub: Hub) -> None:
    started = time.monotonic()
    node.run(node.job(hub.job_files("sub/ä b.bin"), hub, rate=MIB))
    assert time.monotonic() - started > 1.5


def test_a_disk_that_fills_up_on_the_way_stops_cleanly_and_is_carried_on(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was durable is used; the error says what to do; no file has its name."""
    real, left = os.pwrite, 24 * MIB

    def pwrite(handle: int, data: Any, offset: int) -> int:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    job = node.job(hub.job_files("model.bin"), hub, streams=2)
    status = node.run(job)
    assert status["error"]["kind"] == "space"
    assert str(node.weights) in status["error"]["message"]
    assert "free space and run the same command again" in status["error"]["remedy"]
    assert not (node.weights / "model.bin").exists()
    monkeypatch.undo()
    before = hub.sent
    assert node.run(job)["phase"] == "done"
    assert (node.weights / "model.bin").read_bytes() == LARGE
    assert hub.sent - before < len(LARGE)


def test_on_a_full_disk_the_last_word_is_one_write_over_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written and then cut short, a reader saw the end of the longer words behind the last one."""
    kept = statuses.Status(str(tmp_path), parse_job({"kind": "fetch", "directory": "/w", "files": []}))
    kept.problems.append("long" * 200)
    kept.write()
    path, real, seen = tmp_path / "transfer.json", os.write, []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(handle: int, data: bytes) -> int:
        done = real(handle, data)
        seen.append(json.loads(path.read_bytes())["phase"])
        return done

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(os, "write", write)
    kept.end("failed", TransferError("space", "the disk is full"))
    assert seen == ["failed"]
    assert json.loads(path.read_bytes())["error"]["message"] == "the disk is full"


class Line:
    """A network on which streams share ``total`` bytes a second and one gets ``each`` at most."""

    def __init__(self, crew: Crew, clock: list[float], each: float, total: float) -> None:
        self.crew, self.each, self.total = crew, each, total
        self._clock = clock
        self._arrived = 0.0

    def after(self, seconds: float) -> int:
        """Streams that work then."""
        for _ in range(round(seconds / 0.05)):
            self._clock[0] += 0.05
            self._arrived += 0.05 * min(self.total, self.each * self.crew.size)
            self.crew.tune(int(self._arrived))
        return self.crew.size


def test_streams_grow_while_each_is_slow_and_stay_where_more_gain_nothing() -> None:
    clock = [0.0]
    with mock.patch("time.monotonic", side_effect=lambda: clock[0]):
        assert Line(Crew(8), clock, 50e6, math.inf).after(0.6) == 8, "capped: all, at once"
        assert Line(Crew(8), clock, 1e9, 1e9).after(2.5) == 1
        assert Line(Crew(8), clock, 1e9, 1e9).after(9.0) == 1, "the limit is this machine: tried, and left"
        assert Line(Crew(8), clock, 300e6, 1200e6).after(20.0) == 4, "a fast line: as many as it takes"
        assert Line(Crew(6, slow=math.inf), clock, 1e9, 1e9).after(0.6) == 6, "ssh: a core for each"
        assert Line(Crew(8), clock, 0.0, 0.0).after(0.6) == 8
        line = Line(Crew(8), clock, 150e6, 150e6)
        line.after(9.0)
        line.each = 10e6
        assert line.after(4.0) == 8, "a line that becomes slow"
