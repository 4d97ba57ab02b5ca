"""The command line of watch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import cast

import pytest

from sparkop.cli import run
from sparkop.cli.watch import _changed, _forever, _once, _pauses, _run, _Source, _Watched
from sparkop.errors import ExitCode, SpecError, UsageError
from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.watch.known import Known
from sparkop.reconcile.watch.story import edits_due
from sparkop.spec.load import LoadedSpec


def test_pauses_are_times_with_units() -> None:
    assert _pauses("2min, 5min,15min") == (120.0, 300.0, 900.0)
    with pytest.raises(UsageError, match="no list of times"):
        _pauses("2,5")


def test_a_wrong_pause_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--pauses", "soon", "x.yaml"]) == ExitCode.USAGE
    assert "2min,5min,15min" in capsys.readouterr().err


def test_a_spec_that_is_refused_leaves_the_watch_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the file was written a new watch told anew that it watches and the group serves."""
    said: list[str] = []
    watches: list[Played] = []
    good, other = _loaded(1), _loaded(2)
    same = _loaded(1)
    specs = iter([SpecError("no number"), SpecError("no number"), SpecError("gone"), same, other])

    class Played:
        def __init__(self, *_: object, **__: object) -> None:
            watches.append(self)

        def run(self, _changed: object) -> bool:
            return True  # the file is written again at once

        def leave(self) -> None:
            said.append("left")

    def read() -> LoadedSpec:
        spec = next(specs)
        if isinstance(spec, SpecError):
            raise spec
        return spec

    monkeypatch.setattr("sparkop.reconcile.watch.loop.Watch", Played)
    monkeypatch.setattr("sparkop.reconcile.nodes.writable_nodes", lambda _: nullcontext({}))
    source = _Source((Path("spec.yaml"),), lambda: False, read, [])
    now = _Watched(good, Known())
    new = _run(now, lambda event, **_: said.append(event), Event(), Asked(By.WATCH), 10.0, source)
    assert new is not None
    assert new[0].loaded is other
    assert said == ["watching", "spec-refused", "spec-refused", "spec-unchanged"], "it goes on: no sign back"
    assert len(watches) == 1, "a comment is no other spec"
    told = [str(entry["text"]).partition("before: ")[2] for entry in edits_due([], source.edits)]
    assert told == ["no number", "gone", ""], "once an edit, for the history; and once that it is mended"


def test_a_spec_that_the_nodes_facts_refuse_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken at once: a rank that died then stayed dead until the file was mended."""
    said: list[str] = []
    good, big = _loaded("good"), _loaded("big")
    watched: list[tuple[str, bool, int]] = []
    stop = Event()

    class Played:
        def __init__(
            self,
            spec: SimpleNamespace,
            *_: object,
            instead: bool,
            edits: list[object],
            known: Known,
            **__: object,
        ) -> None:
            watched.append((spec.context, instead, len(edits)))
            knew.append(known)

        def run(self, _changed: object) -> bool:
            if watched[-1][1]:
                raise SpecError("does not fit", cause="64 GiB")
            if len(watched) > 1:
                stop.set()
            return len(watched) == 1

        def leave(self) -> None:
            left.append(len(watched))

    knew: list[Known] = []
    left: list[int] = []
    monkeypatch.setattr("sparkop.reconcile.watch.loop.Watch", Played)
    monkeypatch.setattr("sparkop.reconcile.nodes.writable_nodes", lambda _: nullcontext({}))
    source = _Source((Path("spec.yaml"),), lambda: False, lambda: big, [])
    _forever(good, lambda event, **_: said.append(event), stop, Asked(By.WATCH), 10.0, source)
    assert watched == [("good", False, 0), ("big", True, 1), ("good", False, 1)]
    [edit] = source.edits
    assert "does not fit: 64 GiB" in edit["text"], "the one before writes it down, and that none was accepted"
    assert said == ["watching", "spec-changed", "watching", "spec-refused", "watching"]
    assert knew[0] is knew[1] is knew[2], "what is known of the nodes outlives both"
    assert left == [3], "status said for a while that none runs"


def test_an_edit_of_the_nodes_begins_anew() -> None:
    """The boot id of another machine is no boot."""
    now = _Watched(_loaded(1), Known())
    assert now.edited(_loaded(2)).known is now.known
    assert now.edited(_loaded(1, nodes=["spark-1", "spark-3"])).known is not now.known
    assert now.edited(_loaded(1, name="other")).known is not now.known


def _loaded(context: object, *, name: str = "test", nodes: Sequence[str] = ("spark-1",)) -> LoadedSpec:
    spec = SimpleNamespace(name=name, nodes=list(nodes), context=context)
    return cast("LoadedSpec", SimpleNamespace(spec=spec))


def test_a_start_that_is_refused_says_what_to_do_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 65 with the refusal, how it is set aside, and the next command."""

    class Played:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def run(self, _changed: object) -> bool:
            raise SpecError("does not fit", remedy="take less")

        def leave(self) -> None:
            did.append("left")

    did: list[str] = []
    monkeypatch.setattr("sparkop.reconcile.watch.loop.Watch", Played)
    monkeypatch.setattr("sparkop.reconcile.nodes.writable_nodes", lambda _: nullcontext({}))
    loaded = _loaded(1)
    source = _Source((), lambda: False, lambda: loaded, [])
    with pytest.raises(SpecError, match="does not fit") as refused:
        _forever(loaded, lambda *_, **__: None, Event(), Asked(By.WATCH), 10.0, source)
    assert refused.value.exit_code == ExitCode.INVALID_SPEC
    assert (refused.value.remedy or "").startswith("take less\n  then start watch again when it is mended")
    assert did == ["left"]


def test_once_takes_its_sign_of_life_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """status said for two minutes that a watch runs, and to wait for it."""
    did: list[str] = []

    class Played:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def leave(self) -> None:
            did.append("left")

    def once(_watch: Played) -> None:
        did.append("once")
        raise UsageError("whatever")

    monkeypatch.setattr("sparkop.reconcile.watch.loop.Watch", Played)
    monkeypatch.setattr("sparkop.reconcile.watch.loop.once", once)
    monkeypatch.setattr("sparkop.reconcile.nodes.writable_nodes", lambda _: nullcontext({}))
    loaded = cast("LoadedSpec", SimpleNamespace(spec=None))
    with pytest.raises(UsageError, match="whatever"):
        _once(loaded, lambda *_, **__: None, Event(), Asked(By.WATCH), dry_run=False)
    assert did == ["once", "left"]


def test_a_spec_that_is_written_again_is_noticed(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("a: 1")
    changed = _changed((spec,))
    assert not changed()
    spec.write_text("a: 22")
    assert changed()
    spec.unlink()
    assert changed()
