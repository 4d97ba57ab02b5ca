"""What of a checkpoint goes when it is removed: the pinned revision's own, and nothing of anybody else's."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkop.node import act, leaving

PINNED, OTHER = "c0ffee00" * 5, "deadbeef" * 5
KEY = "0123456789abcdef0123"


class Cache:
    """A hub cache with one repository, as huggingface_hub lays it out."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "a home with spaces" / "hugging face"
        self.state = folder / "state"
        self.root = self.home / "hub" / "models--owner--model"
        self.files: dict[str, str] = {}

    def add(self, commit: str, path: str, blob: str, size: int = 10) -> Path:
        """A file of a revision: the blob, and the link to it."""
        whole = self.root / "blobs" / blob
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(b"x" * size)
        shown = self.root / "snapshots" / commit / path
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.symlink_to(os.path.relpath(whole, shown.parent))
        if commit == PINNED:
            self.files[path] = blob
        return shown

    def name(self, reference: str, commit: str) -> Path:
        path = self.root / "refs" / reference
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
        return path

    def wanted(self) -> dict[str, Any]:
        files = [{"path": path, "blob": blob, "key": KEY} for path, blob in self.files.items()]
        return {"directory": str(self.root), "hub": {"commit": PINNED, "reference": "main"}, "files": files}

    def look(self) -> dict[str, Any]:
        return leaving.Leaving(self.wanted(), str(self.state)).look()

    def act(self, action: str, **arguments: Any) -> dict[str, Any]:
        fence = {"cluster": "c", "holder": "me", "token": 1, "directory": str(self.state)}
        return act.answer({"action": action, "arguments": arguments, "fence": fence})

    def remove(self) -> dict[str, Any]:
        return self.act("weights.remove", **self.wanted())

    def left(self) -> set[str]:
        """What is there below the cache, folders too."""
        return {str(path.relative_to(self.home)) for path in self.home.rglob("*")}

    def bytes(self) -> int:
        return sum(p.lstat().st_size for p in self.home.rglob("*") if p.is_file() and not p.is_symlink())


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """Two files of the pinned revision that main names, and a lease that is ours."""
    made = Cache(tmp_path)
    made.add(PINNED, "config.json", "a" * 40)
    made.add(PINNED, "sub/model.safetensors", "b" * 64, 1000)
    made.name("main", PINNED)
    assert "result" in made.act("lease.acquire")
    return made


def test_the_repository_s_folder_goes_when_nothing_else_is_in_it(cache: Cache) -> None:
    """And no other repository's. No run leaves anything for the next one."""
    beside = cache.home / "hub" / "models--owner--model-2" / "blobs" / "f"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"theirs")
    assert cache.look() == {"path": str(cache.root), "there": True, "bytes": 1050, "link": None, "kept": {}}
    assert cache.remove() == {"result": {"changed": True}}
    assert not cache.root.exists()
    assert beside.read_bytes() == b"theirs"
    assert not cache.look()["there"]
    assert cache.remove() == {"result": {"changed": False}}


def test_what_another_revision_needs_stays_whole(cache: Cache) -> None:
    """A blob that both have, refs that name the other one, and what nobody knows of."""
    kept = cache.add(OTHER, "config.json", "a" * 40)
    own = cache.add(OTHER, "deep/er/model.safetensors", "c" * 64)
    named, gone = cache.name("pr/1", OTHER), cache.name("pr/2", PINNED)
    (cache.root / "blobs" / "stranger").write_bytes(b"somebody fetches this")
    (cache.root / "blobs" / ("b" * 64 + ".incomplete")).write_bytes(b"so does the hub's library")
    before = cache.bytes()
    told = cache.look()
    assert told["path"] == str(cache.root / "snapshots" / PINNED)
    cache.remove()
    assert before - cache.bytes() == told["bytes"], "what was said is what went"
    assert kept.read_bytes() == own.read_bytes() == b"x" * 10
    assert named.read_text() == OTHER
    assert not gone.exists()
    assert not (cache.root / "refs" / "main").exists()
    assert sorted(p.name for p in (cache.root / "blobs").iterdir()) == sorted(
        ["a" * 40, "b" * 64 + ".incomplete", "c" * 64, "stranger"]
    )
    assert [p.name for p in (cache.root / "snapshots").iterdir()] == [OTHER]


Link = Callable[[Cache, Path], Path]


def _moved(path: Path, outside: Path) -> Path:
    """What lies at the path lies outside now, and a link leads there."""
    shutil.move(path, outside)
    path.symlink_to(outside)
    return outside


FOLDERS: dict[str, Link] = {
    "repository": lambda cache, outside: _moved(cache.root, outside),
    "blobs": lambda cache, outside: _moved(cache.root / "blobs", outside),
    "refs": lambda cache, outside: _moved(cache.root / "refs", outside),
    "snapshots": lambda cache, outside: _moved(cache.root / "snapshots", outside),
    "revision": lambda cache, outside: _moved(cache.root / "snapshots" / PINNED, outside),
    "notes": lambda cache, outside: _moved(_noted(cache), outside),
    "notes of the revision": lambda cache, outside: _moved(_noted(cache) / PINNED, outside),
    "trees": lambda cache, outside: _moved(_listed(cache).parent, outside),
}


def _noted(cache: Cache) -> Path:
    """Where the hub's library notes what it has asked for in vain."""
    note = cache.root / ".no_exist" / PINNED / "added_tokens.json"
    note.parent.mkdir(parents=True)
    note.touch()
    return note.parent.parent


def _listed(cache: Cache, commit: str = PINNED) -> Path:
    """Where it keeps what a revision consists of."""
    path = cache.root / "trees" / f"{commit}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("case", FOLDERS)
def test_where_a_folder_is_a_link_nothing_goes_and_that_is_told(case: str, cache: Cache) -> None:
    outside = FOLDERS[case](cache, cache.home.parent / "outside")
    every = [cache.root, *sorted(cache.root.rglob("*"))]
    link = next(path for path in every if path.is_symlink() and path.is_dir())
    before = (cache.left(), sorted(outside.rglob("*")))
    assert cache.look()["link"] == str(link)
    assert str(link) in cache.remove()["error"]["message"]
    assert (cache.left(), sorted(outside.rglob("*"))) == before


def _other(cache: Cache) -> Path:
    cache.add(OTHER, "own.json", "c" * 40)
    return cache.root / "snapshots" / OTHER


def _linked(link: Path, target: str | Path) -> Path:
    link.symlink_to(target)
    return link


def _using(cache: Cache, outside: Path) -> Path:
    """A folder elsewhere that uses a blob of the pinned revision."""
    outside.mkdir()
    (outside / "x").symlink_to(cache.root / "blobs" / ("b" * 64))
    return outside


ENTANGLED: dict[str, Link] = {
    "a snapshot elsewhere": lambda cache, outside: _linked(
        cache.root / "snapshots" / OTHER, _using(cache, outside)
    ),
    "a folder elsewhere": lambda cache, outside: _linked(_other(cache) / "sub", _using(cache, outside)),
    "the pinned one by another name": lambda cache, _: _linked(cache.root / "snapshots" / "v1", PINNED),
    "its file": lambda cache, _: _linked(_other(cache) / "x", f"../{PINNED}/config.json"),
    "its folder": lambda cache, _: _linked(_other(cache) / "sub", f"../{PINNED}/sub"),
    "all of it": lambda cache, _: _linked(_other(cache) / "sub", f"../{PINNED}"),
    "by way of another folder": lambda cache, outside: _linked(
        _other(cache) / "x", _linked(outside, cache.root / "snapshots" / PINNED / "config.json")
    ),
}


@pytest.mark.parametrize("case", ENTANGLED)
def test_where_another_revision_may_use_this_one_by_a_link_nothing_goes(case: str, cache: Cache) -> None:
    link = ENTANGLED[case](cache, cache.home.parent / "outside")
    before = cache.left()
    assert cache.look()["link"] == str(link)
    assert str(link) in cache.remove()["error"]["message"]
    assert cache.left() == before


def test_links_in_the_snapshot_and_among_the_blobs_go_what_they_lead_to_stays(cache: Cache) -> None:
    outside = cache.home.parent / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "mine").write_bytes(b"mine")
    (outside / "blob").write_bytes(b"mine too")
    blob = cache.root / "blobs" / ("b" * 64)
    blob.unlink()
    blob.symlink_to(outside / "blob")
    (cache.root / "snapshots" / PINNED / "folder").symlink_to(outside / "folder")
    (cache.root / "snapshots" / PINNED / "file").symlink_to(outside / "blob")
    (cache.root / "snapshots" / PINNED / "lost").symlink_to("../../../../../../nowhere")
    cache.remove()
    assert not cache.root.exists()
    assert (outside / "folder" / "mine").read_bytes() == b"mine"
    assert (outside / "blob").read_bytes() == b"mine too"


def test_a_cache_behind_its_owner_s_link_is_the_cache(cache: Cache) -> None:
    """~/.cache/huggingface is a link to the large disk: the user has named it so."""
    disk = cache.home.parent / "disk"
    _moved(cache.home, disk)
    assert cache.look()["path"] == str(disk / "hub" / cache.root.name)
    cache.remove()
    assert list((disk / "hub").iterdir()) == []


def test_ours_that_was_never_completed_goes_what_is_being_written_stays(cache: Cache) -> None:
    """Also a blob that no link names yet. Another cluster may fetch the same file at this moment."""
    blobs = cache.root / "blobs"
    (blobs / ("d" * 64)).write_bytes(b"whole, and not shown yet")
    cache.files["late.safetensors"] = "d" * 64
    mine = [blobs / f".sparkop-{KEY}.{ending}" for ending in ("partial", "blocks")]
    theirs = blobs / ".sparkop-ffffffffffffffffffff.partial"
    for path in (*mine, theirs):
        path.write_bytes(b"half")
    with mine[0].open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cache.remove()
        assert sorted(blobs.iterdir()) == sorted([*mine, theirs])
    cache.remove()
    assert list(blobs.iterdir()) == [theirs]


def test_what_the_library_noted_of_the_revision_goes_too(cache: Cache) -> None:
    """Names that it asked for in vain; the other revision's notes stay."""
    for commit in (PINNED, OTHER):
        note = cache.root / ".no_exist" / commit / "sub" / "added_tokens.json"
        note.parent.mkdir(parents=True)
        note.touch()
    cache.remove()
    assert {p.name for p in cache.root.rglob("*")} == {".no_exist", OTHER, "sub", "added_tokens.json"}


def test_the_library_s_list_of_the_revision_goes_and_so_does_the_repository(cache: Cache) -> None:
    theirs = _listed(cache, OTHER)
    mine = _listed(cache)
    cache.remove()
    assert (mine.exists(), theirs.exists()) == (False, True)
    theirs.unlink()
    _listed(cache)
    assert cache.look()["path"] == str(cache.root)
    cache.remove()
    assert not cache.root.exists()


def steps(cache: Cache, monkeypatch: pytest.MonkeyPatch, *, ends_before: int) -> int:
    """Remove, and end before a change of the disk; returns how many changes there were."""
    count = 0
    real = {name: getattr(os, name) for name in ("unlink", "rmdir")}

    def counting(name: str) -> Callable[[str], None]:
        def change(path: str) -> None:
            nonlocal count
            if str(path).startswith(str(cache.home)):
                count += 1
                if count > ends_before:
                    raise KeyboardInterrupt
            real[name](path)

        return change

    with monkeypatch.context() as patched:
        for name in real:
            patched.setattr(leaving.os, name, counting(name))
        try:
            cache.remove()
        except KeyboardInterrupt:
            return -1
    return count


@pytest.mark.parametrize("shared", [False, True])
def test_interrupted_anywhere_and_run_again_it_ends_the_same(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(folder: str) -> Cache:
        cache = Cache(tmp_path / folder)
        cache.add(PINNED, "config.json", "a" * 40)
        cache.add(PINNED, "sub/model.safetensors", "b" * 64)
        cache.add(PINNED, "README.md", "e" * 40)
        del cache.files["README.md"]  # somebody has fetched more of the revision than the spec wants
        if shared:
            cache.add(OTHER, "config.json", "a" * 40)
        cache.name("main", PINNED)
        cache.act("lease.acquire")
        return cache

    undisturbed = made("undisturbed")
    count = steps(undisturbed, monkeypatch, ends_before=10**6)
    assert count > 8
    for number in range(count):
        cache = made(str(number))
        assert steps(cache, monkeypatch, ends_before=number) == -1
        assert cache.look()["there"] or cache.left() == undisturbed.left(), number
        cache.remove()
        assert cache.left() == undisturbed.left(), number


def test_what_can_t_be_read_is_not_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another snapshot that somebody else may read only: its blobs would be taken for nobody's."""
    cache.add(OTHER, "config.json", "a" * 40)
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith(OTHER):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    before = cache.left()
    with pytest.raises(PermissionError):
        cache.look()
    assert cache.remove()["error"]["kind"] == "os"
    assert cache.left() == before


@pytest.mark.parametrize("commit", ["..", ".", "", "a/../..", "/"])
def test_what_is_no_commit_is_refused(commit: str, cache: Cache) -> None:
    before = cache.left()
    wanted = {**cache.wanted(), "hub": {"commit": commit}}
    assert "error" in cache.act("weights.remove", **wanted)
    assert cache.left() == before


@pytest.mark.parametrize("path", ["../emptydir/x", "/etc/x", "sub/../../x", ".."])
@pytest.mark.parametrize("hub", [True, False])
def test_a_path_that_leaves_the_folder_is_refused(path: str, hub: bool, cache: Cache) -> None:
    (cache.root.parent / "emptydir").mkdir()
    before = cache.left()
    wanted = {**cache.wanted(), "files": [{"path": path, "blob": "x", "key": KEY}]}
    if not hub:
        del wanted["hub"]
    assert "leaves the folder" in cache.act("weights.remove", **wanted)["error"]["message"]
    assert cache.left() == before


def test_without_the_lease_nothing_goes(cache: Cache) -> None:
    cache.act("lease.release")
    before = cache.left()
    assert cache.remove()["error"]["kind"] == "lease"
    assert cache.left() == before


@pytest.fixture
def plain(cache: Cache) -> tuple[Path, dict[str, Any]]:
    """A plain folder with two wanted files, one half one, and what is not wanted."""
    folder = cache.home.parent / "my models" / "model"
    for path in ("config.json", "sub/a.safetensors", "sub/notes.txt", f"only/.sparkop-{KEY}.partial"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"12345")
    names = ("config.json", "sub/a.safetensors", "only/b.safetensors", "absent.json")
    return folder, {"directory": str(folder), "files": [{"path": p, "blob": "x", "key": KEY} for p in names]}


def test_of_a_plain_folder_the_wanted_files_go(cache: Cache, plain: tuple[Path, dict[str, Any]]) -> None:
    folder, wanted = plain
    told = leaving.Leaving(wanted, str(cache.state)).look()
    assert told == {"path": str(folder), "there": True, "bytes": 15, "link": None, "kept": {}}
    assert cache.act("weights.remove", **wanted) == {"result": {"changed": True}}
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) == ["sub", "sub/notes.txt"]
    assert not leaving.Leaving(wanted, str(cache.state)).look()["there"]


def test_a_link_out_of_a_plain_folder_is_not_followed(
    cache: Cache, plain: tuple[Path, dict[str, Any]]
) -> None:
    folder, wanted = plain
    outside = _moved(folder / "sub", folder.parent / "outside")
    cache.act("weights.remove", **wanted)
    assert sorted(p.name for p in outside.iterdir()) == ["a.safetensors", "notes.txt"]
    assert (folder / "sub").is_symlink()


@pytest.mark.parametrize("target", ["../outside", "inside"])
def test_an_empty_folder_behind_a_link_stays(target: str, cache: Cache) -> None:
    folder = cache.home.parent / "model"
    (folder / target / "deep").mkdir(parents=True)
    (folder / "sub").symlink_to(target)
    file = {"path": "sub/deep/a.safetensors", "blob": "x", "key": KEY}
    assert "result" in cache.act("weights.remove", directory=str(folder), files=[file])
    assert (folder / target / "deep").is_dir()


class Other:
    """Another cluster's state folder on the same node."""

    def __init__(self, cache: Cache, name: str = "two") -> None:
        self.state = cache.state.parent / name
        for folder in ("ledger", "transfer"):
            (self.state / folder).mkdir(parents=True)
        (self.state / "cluster.json").write_text(json.dumps({"cluster": f"cluster-{name}"}))

    def has_verified(self, *paths: Path) -> None:
        files = {str(path.resolve()): {"inode": 1} for path in paths}
        (self.state / "ledger" / "weights.json").write_text(json.dumps({"version": 1, "files": files}))

    def fetches(self, directory: Path, *files: dict[str, Any], **more: Any) -> None:
        job = {"directory": str(directory), "files": list(files), **more}
        (self.state / "transfer" / "job.json").write_text(json.dumps(job))


def test_what_another_cluster_has_verified_in_a_plain_folder_stays_and_is_named(
    cache: Cache, plain: tuple[Path, dict[str, Any]]
) -> None:
    """Two clusters on one folder: destroy --weights of one took the files of the other."""
    folder, wanted = plain
    Other(cache).has_verified(folder / "config.json")
    told = leaving.Leaving(wanted, str(cache.state)).look()
    assert told["kept"] == {"cluster-two": ["config.json"]}
    assert told["bytes"] == 10
    cache.act("weights.remove", **wanted)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*")} == {"config.json", "sub", "sub/notes.txt"}
    assert not leaving.Leaving(wanted, str(cache.state)).look()["there"]
    shutil.rmtree(cache.state.parent / "two")
    cache.act("weights.remove", **wanted)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*")} == {"sub", "sub/notes.txt"}


def test_what_another_cluster_fetches_stays_whole_or_not(
    cache: Cache, plain: tuple[Path, dict[str, Any]]
) -> None:
    """Interrupted, it goes on with the half file. By whatever name it knows the folder."""
    folder, wanted = plain
    (folder.parent / "by another name").symlink_to(folder)
    known = [{"path": path, "size": 5} for path in ("sub/a.safetensors", "only/b.safetensors")]
    Other(cache).fetches(folder.parent / "by another name", *known)
    for file in wanted["files"]:
        file["key"] = KEY if file["path"].startswith("only") else KEY[::-1]
    cache.act("weights.remove", **wanted)
    left = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert left == {"sub/a.safetensors", "sub/notes.txt", f"only/.sparkop-{KEY}.partial"}


def test_what_another_node_knows_of_others_stays_in_a_folder_that_all_share(
    cache: Cache, plain: tuple[Path, dict[str, Any]]
) -> None:
    folder, wanted = plain
    cache.act("weights.remove", **wanted, keep=["config.json"])
    assert (folder / "config.json").exists()
    assert not (folder / "sub/a.safetensors").exists()


def test_of_a_hub_cache_the_revision_stays_as_far_as_another_cluster_uses_it(cache: Cache) -> None:
    config = {"path": "config.json", "size": 10, "git": "a" * 40}
    Other(cache).fetches(cache.root, config, hub={"commit": PINNED, "reference": "main"})
    assert cache.look()["kept"] == {"cluster-two": [f"blobs/{'a' * 40}"]}
    cache.remove()
    shown = cache.root / "snapshots" / PINNED
    assert (shown / "config.json").read_bytes() == b"x" * 10
    assert not (shown / "sub").exists()
    assert not (cache.root / "blobs" / ("b" * 64)).exists()
    assert (cache.root / "refs/main").read_text() == PINNED


def test_of_a_hub_cache_another_cluster_s_other_revision_keeps_its_own_alone(cache: Cache) -> None:
    shown = cache.add(OTHER, "config.json", "a" * 40)
    other = Other(cache)
    other.has_verified(shown)
    other.fetches(cache.root, {"path": "config.json", "size": 10, "git": "a" * 40}, hub={"commit": OTHER})
    cache.remove()
    assert shown.read_bytes() == b"x" * 10
    assert not (cache.root / "snapshots" / PINNED).exists()
    assert not (cache.root / "refs").exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"files": 3}', '{"files": [3], "directory": "/"}', '{"files": [{}], "hub": 1}']
)
def test_another_s_state_that_makes_no_sense_claims_nothing(text: str, cache: Cache) -> None:
    other = Other(cache)
    for name in ("ledger/weights.json", "transfer/job.json", "cluster.json"):
        (other.state / name).write_text(text)
    assert cache.look()["kept"] == {}
    assert cache.remove() == {"result": {"changed": True}}
    assert cache.left() == {"hub"}


def test_a_cluster_whose_mark_is_gone_is_named_by_its_folder(
    cache: Cache, plain: tuple[Path, dict[str, Any]]
) -> None:
    other = Other(cache)
    other.has_verified(plain[0] / "config.json")
    (other.state / "cluster.json").unlink()
    assert list(leaving.Leaving(plain[1], str(cache.state)).look()["kept"]) == ["two"]
