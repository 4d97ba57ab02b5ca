"""Pi's files: backed up, changed in our parts only, put back byte for byte. No Pi is needed for these."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkop.clients import pi as module
from sparkop.clients.files import Change
from sparkop.clients.pi import connect, plan_connect, plan_undo, undo
from sparkop.clients.profile import KeySource, Profile
from sparkop.errors import BlockedError

PROFILE = Profile(
    provider="ours",
    title="Our model",
    model="org/model",
    base_url="http://127.0.0.1:8000/v1",
    key=KeySource("OUR_KEY"),
    context=131072,
    max_output=131072,
    remove_cap=True,
    input=("text",),
    reasoning=True,
    efforts={"low": "low"},
    make_default=True,
)
MODELS = """\
// mine
{
  "providers": {
    "mine": {"baseUrl": "http://x/v1", "apiKey": "literal", "odd": [1, 2,], }, // keep
  },
}
"""
SETTINGS = '{\n    "theme": "dark",\n    "defaultProvider": "mine",\n    "enabledModels": ["mine/*"]\n}'


def snapshot(folder: Path) -> dict[str, Any]:
    """Every path below: bytes and mode of files, targets of links, and folders."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A user's Pi, with models.json as a link into their dotfiles."""
    folder = tmp_path / "agent"
    folder.mkdir()
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "models.json").write_text(MODELS)
    (tmp_path / "dotfiles" / "models.json").chmod(0o640)
    (folder / "models.json").symlink_to(tmp_path / "dotfiles" / "models.json")
    (folder / "settings.json").write_text(SETTINGS)
    return folder


def done(folder: Path, profile: Profile = PROFILE) -> list[Path]:
    return connect(plan_connect(profile, folder))


def undone(folder: Path, provider: str = "ours") -> None:
    plan = plan_undo(folder, provider)
    assert plan is not None
    undo(plan)


def test_undo_puts_every_file_back(agent: Path) -> None:
    before = snapshot(agent.parent)
    backups = done(agent)
    assert sorted(path.read_text() for path in backups) == sorted([MODELS, SETTINGS])
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in backups)
    text = (agent / "models.json").read_text()
    assert text.startswith(MODELS[: MODELS.index("// keep")])
    settings = json.loads((agent / "settings.json").read_text())
    assert settings == {
        "theme": "dark",
        "defaultProvider": "ours",
        "enabledModels": ["mine/*", "ours/org/model"],
        "defaultModel": "org/model",
    }
    assert (agent / "models.json").is_symlink()
    assert stat.S_IMODE((agent / "models.json").stat().st_mode) == 0o640
    undone(agent)
    assert snapshot(agent.parent) == before


def test_a_second_time_changes_nothing(agent: Path) -> None:
    done(agent)
    before = snapshot(agent.parent)
    assert not plan_connect(PROFILE, agent).needed
    assert done(agent) == []
    assert snapshot(agent.parent) == before


def test_where_nothing_was_nothing_is_left(tmp_path: Path) -> None:
    done(tmp_path / ".pi" / "agent")
    assert (tmp_path / ".pi" / "agent" / "extensions" / "sparkop-ours.js").exists()
    undone(tmp_path / ".pi" / "agent")
    assert snapshot(tmp_path) == {}


def test_another_spec_leaves_nothing_of_the_first_and_undo_goes_back_to_before_both(agent: Path) -> None:
    before = snapshot(agent.parent)
    done(agent)
    done(agent, replace(PROFILE, model="second", remove_cap=False, make_default=False))
    text = (agent / "settings.json").read_text() + (agent / "models.json").read_text()
    assert "org/model" not in text
    assert "ours/second" in text
    assert json.loads((agent / "settings.json").read_text())["defaultProvider"] == "mine"
    assert not (agent / "extensions" / "sparkop-ours.js").exists()
    undone(agent)
    assert snapshot(agent.parent) == before


def test_what_others_have_written_since_stays(agent: Path) -> None:
    """Pi rewrites settings.json itself; the user goes on editing."""
    done(agent)
    settings = json.loads((agent / "settings.json").read_text()) | {"lastChangelogVersion": "1.6.0"}
    (agent / "settings.json").write_text(json.dumps(settings, indent=2))
    text = (agent / "models.json").read_text()
    (agent / "models.json").write_text(text.replace("// mine", "// still mine"))
    undone(agent)
    assert (agent / "models.json").read_text() == MODELS.replace("// mine", "// still mine")
    assert json.loads((agent / "settings.json").read_text()) == {
        "theme": "dark",
        "defaultProvider": "mine",
        "enabledModels": ["mine/*"],
        "lastChangelogVersion": "1.6.0",
    }


def test_drift_that_was_mended_does_not_spoil_undo(agent: Path) -> None:
    """As when the spec lists Pi: our part was changed by hand, and apply has put it right."""
    (agent / "models.json").write_text('{\n  // mine\n  "providers": {}\n}\n')
    before = snapshot(agent.parent)
    done(agent)
    text = (agent / "models.json").read_text()
    (agent / "models.json").write_text(text.replace(":8000/v1", ":9999/v1"))
    (agent / "extensions" / "sparkop-ours.js").unlink()
    assert len(done(agent)) == 1
    assert (agent / "models.json").read_text() == text
    undone(agent)
    assert snapshot(agent.parent) == before


def test_a_default_that_the_user_has_chosen_since_stays(agent: Path) -> None:
    done(agent)
    settings = json.loads((agent / "settings.json").read_text()) | {
        "defaultProvider": "third",
        "defaultModel": "m",
    }
    (agent / "settings.json").write_text(json.dumps(settings))
    undone(agent)
    assert json.loads((agent / "settings.json").read_text())["defaultProvider"] == "third"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_two_clusters_are_undone_in_any_order(agent: Path, first: str) -> None:
    before = snapshot(agent.parent)
    done(agent, replace(PROFILE, make_default=False))
    done(agent, replace(PROFILE, provider="theirs", make_default=False))
    assert json.loads((agent / "settings.json").read_text())["enabledModels"] == [
        "mine/*", "ours/org/model", "theirs/org/model",
    ]  # fmt: skip
    undone(agent, first)
    undone(agent, "theirs" if first == "ours" else "ours")
    assert snapshot(agent.parent) == before


def test_our_name_in_the_user_s_own_file_is_replaced_and_comes_back(agent: Path) -> None:
    """As for somebody who comes from the recipe."""
    old = '{"providers": {"ours": {"baseUrl": "http://old/v1"}, "z": {"baseUrl": "http://z/v1"}}}'
    (agent / "models.json").write_text(old)
    before = snapshot(agent.parent)
    done(agent)
    value = json.loads((agent / "models.json").read_text())
    assert value["providers"]["ours"]["baseUrl"] == PROFILE.base_url
    assert value["providers"]["z"] == {"baseUrl": "http://z/v1"}
    undone(agent)
    assert snapshot(agent.parent) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("models.json", b'{"providers": {'),
        ("models.json", b'{"providers": []}'),
        ("models.json", b"[]"),
        ("models.json", b'{"providers": {} /* no */}'),
        ("models.json", b"\xff\xfe{}"),
        ("settings.json", b'{"theme": "dark", // a comment\n}'),
        ("settings.json", b'{"enabledModels": "all"}'),
    ],
)
def test_a_broken_file_is_told_and_nothing_is_changed(agent: Path, name: str, content: bytes) -> None:
    """Pi drops all of a broken file; changing it would hide the user's own fault."""
    (agent / name).write_bytes(content)
    before = snapshot(agent.parent)
    with pytest.raises(BlockedError, match=name):
        plan_connect(PROFILE, agent)
    assert snapshot(agent.parent) == before


def test_a_file_that_changes_meanwhile_is_not_overwritten(agent: Path) -> None:
    plan = plan_connect(PROFILE, agent)
    (agent / "settings.json").write_text('{"theme": "light"}')
    with pytest.raises(BlockedError, match="changed by another program"):
        connect(plan)
    assert (agent / "settings.json").read_text() == '{"theme": "light"}'
    undone(agent)
    assert (agent / "models.json").read_text() == MODELS
    assert (agent / "settings.json").read_text() == '{"theme": "light"}'


def test_of_two_runs_at_once_one_wins_and_its_record_stays(agent: Path) -> None:
    """The loser must not replace the record: undo would take the winner's files for changed by others."""
    before = snapshot(agent.parent)
    loser = plan_connect(replace(PROFILE, title="Another title"), agent)
    done(agent)
    after = snapshot(agent.parent)
    with pytest.raises(BlockedError, match="another sparkop"):
        connect(loser)
    assert snapshot(agent.parent) == after
    undone(agent)
    assert snapshot(agent.parent) == before


def test_a_link_into_a_folder_that_is_not_there_is_told_before_anything_is_written(agent: Path) -> None:
    (agent / "models.json").unlink()
    (agent / "models.json").symlink_to(agent.parent / "gone" / "models.json")
    before = snapshot(agent.parent)
    with pytest.raises(BlockedError, match="gone, which is not there"):
        plan_connect(PROFILE, agent)
    assert snapshot(agent.parent) == before


@pytest.mark.parametrize("writes", range(7))
def test_cut_off_anywhere_it_can_be_done_again_and_undone(
    agent: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The record is written before the first file changes."""
    before = snapshot(agent.parent)
    real, left = module.write, [writes]

    def cut(change: Change) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        real(change)

    monkeypatch.setattr(module, "write", cut)
    try:
        done(agent)
        assert writes > 5
    except KeyboardInterrupt:
        assert not list(agent.rglob("*.tmp"))
    monkeypatch.setattr(module, "write", real)
    done(agent)
    assert json.loads((agent / "settings.json").read_text())["defaultProvider"] == "ours"
    assert not plan_connect(PROFILE, agent).needed
    undone(agent)
    assert snapshot(agent.parent) == before


def test_backups_never_carry_a_name_that_pi_loads(agent: Path) -> None:
    done(agent)
    (agent / "extensions" / "sparkop-ours.js").write_text("// mine now")
    done(agent)
    names = [path.name for path in agent.rglob("*") if path.is_file()]
    assert [name for name in names if name.endswith((".js", ".ts"))] == ["sparkop-ours.js"]
