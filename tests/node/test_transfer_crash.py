"""A power cut at every write and fsync of ledger, staging and rebuild: nothing wrong is believed."""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkop.node import weights
from sparkop.node.transfer.blocks import ALIGN, Staging, page_buffer
from sparkop.node.transfer.files import File, Piece
from sparkop.node.transfer.ledger import Ledger, agrees
from sparkop.node.transfer.place import Place
from sparkop.node.transfer.rebuild import take_parts
from tests.node.hub_standin import sha256
from tests.node.power import Machine, PowerCut

BLOCK = 8
DATA = bytes(range(1, 60))
MANY = settings(deadline=None, max_examples=40)


def through_cuts(folder: Path, dice: random.Random, cuts: list[int], work: Callable[[], None]) -> None:
    """Do the work, cut off at each of these effects in turn, and once to its end."""
    machine = Machine(folder, dice)
    for at in cuts:
        try:
            with machine.running(at):
                work()
        except PowerCut:
            machine.cut()
    with machine.running(-1):
        work()
    machine.remove()


def every_effect(make: Callable[[Path], Callable[[], None]], dice: random.Random) -> None:
    """One cut at each effect of the work, each on a fresh disk."""
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "count"
        folder.mkdir()
        work = make(folder)
        machine = Machine(folder, dice)
        with machine.running(-1):
            work()
        for at in range(machine.count):
            folder = Path(top) / str(at)
            folder.mkdir()
            through_cuts(folder, dice, [at], make(folder))


def fetching(folder: Path, data: bytes = DATA, size: int = BLOCK) -> Callable[[], None]:
    """Write what is missing of a file block by block, and publish it. Checks what is believed on the way."""
    target, file = folder / "x", File("x", len(data), sha256(data))

    def work() -> None:
        if target.exists():
            assert target.read_bytes() == data, "a published file is whole"
            return
        staging = Staging(str(target), file, size)
        with closing(staging):
            fetch(staging)
        assert sorted(path.name for path in folder.iterdir()) == ["x"]

    def fetch(staging: Staging) -> None:
        staging.open()
        missing = staging.missing()
        held = {block.index for block in staging.blocks} - {block.index for block in missing}
        written = Path(staging.partial).read_bytes()
        for block in staging.blocks:
            here = written[block.offset : block.offset + block.length]
            assert block.index not in held or here == data[block.offset : block.offset + block.length]
        for first in range(0, len(missing), 2):
            for block in missing[first : first + 2]:
                buffer = page_buffer(block.length)  # large blocks go past the page cache
                buffer[:] = data[block.offset : block.offset + block.length]
                staging.write(block.offset, buffer)
                staging.written(block.index)
            staging.commit([block.index for block in missing[first : first + 2]])
        assert staging.hash_along(threading.Event()).matches()
        staging.publish()

    return work


PAGES = random.Random(1).randbytes(3 * ALIGN + 5)
"""Written past the page cache, where the file system can, but for the end."""


def test_fetching_survives_a_cut_at_every_effect() -> None:
    for seed in range(2):
        every_effect(fetching, random.Random(seed))
    every_effect(lambda folder: fetching(folder, PAGES, ALIGN), random.Random(3))


@MANY
@given(
    st.integers(0, 1 << 30), st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([(DATA, BLOCK), (PAGES, ALIGN)]),
)  # fmt: skip
def test_fetching_survives_cuts_one_after_the_other(
    seed: int, cuts: list[int], what: tuple[bytes, int]
) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "disk"
        folder.mkdir()
        through_cuts(folder, random.Random(seed), cuts, fetching(folder, *what))
        assert (folder / "x").read_bytes() == what[0]


CUTS = (0, 20, 24, len(DATA))
PARTS = tuple(
    Piece(f"x.part{i:02}", CUTS[i + 1] - CUTS[i], sha256(DATA[CUTS[i] : CUTS[i + 1]])) for i in range(3)
)


def rebuilding(folder: Path, *, keep: bool = False) -> Callable[[], None]:
    """Rebuild a file of parts; not a byte may have to come from elsewhere."""
    file = File("x", len(DATA), None, None, PARTS)
    if not (folder / "x").exists():
        for i, part in enumerate(PARTS):
            (folder / part.path).write_bytes(DATA[CUTS[i] : CUTS[i + 1]])
    place = Place(str(folder), None)

    def good(path: str, part: File) -> bool:
        return sha256(Path(path).read_bytes()) == part.sha256

    def work() -> None:
        if (folder / "x").exists():
            assert (folder / "x").read_bytes() == DATA
            return
        with closing(Staging(str(folder / "x"), file, BLOCK)) as staging:
            staging.open()
            take_parts(staging, place, good, keep=keep, stop=threading.Event())
            assert staging.missing() == []
            assert staging.hash_along(threading.Event()).matches()
            staging.publish()

    return work


def test_rebuilding_survives_a_cut_at_every_effect() -> None:
    for seed in range(2):
        every_effect(rebuilding, random.Random(seed))


@MANY
@given(st.integers(0, 1 << 30), st.lists(st.integers(0, 60), max_size=8))
def test_rebuilding_survives_cuts_one_after_the_other(seed: int, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "disk"
        folder.mkdir()
        through_cuts(folder, random.Random(seed), cuts, rebuilding(folder))
        assert (folder / "x").read_bytes() == DATA


def test_kept_parts_are_never_touched_by_a_cut() -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "disk"
        folder.mkdir()
        through_cuts(folder, random.Random(1), [5, 9, 14], rebuilding(folder, keep=True))
        for i, part in enumerate(PARTS):
            assert (folder / part.path).read_bytes() == DATA[CUTS[i] : CUTS[i + 1]]


def test_the_ledger_survives_a_cut_at_every_effect() -> None:
    """After any cut it is the old one or the new one; an entry that it has is true."""

    def make(folder: Path) -> Callable[[], None]:
        paths = [folder.parent / f"{folder.name}.{i}" for i in range(3)]
        for path in paths:
            path.write_bytes(b"abc")

        def work() -> None:
            ledger = Ledger(str(folder.parent), folder.name)
            for path in paths:
                ledger.record(str(path), path.stat(), {"sha256": sha256(b"abc")})
            ledger.forget(str(paths[0]))
            entries = json.loads((folder / "weights.json").read_text())["files"]
            assert set(entries) == {str(path.resolve()) for path in paths[1:]}

        return work

    for seed in range(3):
        every_effect(make, random.Random(seed))


def test_a_stat_that_changed_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    ledger = Ledger(str(tmp_path))
    file = File("x", 3, sha256(b"abc"))
    ledger.record(str(path), path.stat(), {"sha256": sha256(b"abc")})
    entry = ledger.snapshot()[str(path.resolve())]
    assert agrees(str(path), entry, file)
    assert not agrees(str(path), entry, File("x", 3, sha256(b"abd")))
    for name in ("inode", "size", "mtime_ns", "ctime_ns"):
        assert not agrees(str(path), {**entry, name: entry[name] + 1}, file), name


def test_a_device_with_another_number_after_a_boot_costs_no_second_hash(tmp_path: Path) -> None:
    """An entry of an older sparkop has the device's number of its boot."""
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    ledger = Ledger(str(tmp_path))
    ledger.record(str(path), path.stat(), {"sha256": sha256(b"abc")})
    entry = {**ledger.snapshot()[str(path.resolve())], "device": path.stat().st_dev + 1}
    assert agrees(str(path), entry, File("x", 3, sha256(b"abc")))
    probed = {"size": 3, "sha256": sha256(b"abc")}
    assert weights.judge(probed, path.stat(), entry) == "verified"
