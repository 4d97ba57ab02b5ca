"""The hub's list through the real huggingface_hub, against a hub over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkop.errors import BlockedError
from sparkop.resources.weights.hub import Repository, describe, parse_manifest
from sparkop.resources.weights.hub_words import in_words
from tests.node.hub_standin import Hub, git_sha1, running, sha256

LARGE = bytes(1 << 20)
FILES = {"config.json": b"{}", "model.bin": LARGE, "sums.txt": f"{sha256(LARGE)}  model.bin\n".encode()}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


def ask(
    hub: Hub, revision: str = "main", *, manifest: str | None = None, refresh: bool = False
) -> Repository:
    return describe(hub.repository, revision, endpoint=hub.base, manifest=manifest, refresh=refresh)


def test_the_list_holds_sizes_and_hashes_and_the_branch_is_pinned(hub: Hub) -> None:
    found = ask(hub)
    assert found.commit == hub.commit
    by_path = {file.path: file for file in found.files}
    assert (by_path["model.bin"].size, by_path["model.bin"].sha256) == (len(LARGE), sha256(LARGE))
    assert by_path["config.json"].git == git_sha1(b"{}")
    assert by_path["config.json"].sha256 is None
    assert found.base() == f"{hub.base}/org/name/resolve/{hub.commit}/"


def test_files_that_lie_in_the_chunk_store_are_listed_like_all_others(hub: Hub) -> None:
    plain = ask(hub, manifest="sums.txt")
    hub.xet = True
    assert ask(hub, manifest="sums.txt", refresh=True) == plain


def test_a_second_time_asks_nobody_until_it_is_refreshed(hub: Hub) -> None:
    first = ask(hub)
    hub.log.clear()
    assert ask(hub) == first
    assert hub.log == []
    hub.commit = "d" * 40
    assert ask(hub).commit == "c" * 40, "a branch is resolved once"
    assert ask(hub, refresh=True).commit == "d" * 40
    assert ask(hub).commit == "d" * 40


def test_the_configuration_is_kept_with_the_list(hub: Hub) -> None:
    """Rules look at it before the weights come, also where the hub can't be asked any more."""
    hub.files["config.json"] = b'{"num_attention_heads": 28}'
    assert ask(hub).config == {"num_attention_heads": 28}
    hub.log.clear()
    assert ask(hub).config == {"num_attention_heads": 28}
    assert hub.log == []


@pytest.mark.parametrize("content", [b"no JSON", b"[]", None])
def test_a_list_without_a_configuration_is_a_list(hub: Hub, content: bytes | None) -> None:
    if content is None:
        del hub.files["config.json"]
    else:
        hub.files["config.json"] = content
    assert ask(hub).config == {}


def test_a_full_commit_is_asked_again_only_when_it_is_refreshed(hub: Hub, tmp_path: Path) -> None:
    """It can't change, but what was remembered of it can be wrong: errors of content point to --update."""
    first = ask(hub, hub.commit)
    (kept,) = tmp_path.rglob(f"{hub.commit}.json")
    kept.write_text(kept.read_text().replace(str(len(LARGE)), "7"))
    assert ask(hub, hub.commit) != first
    assert ask(hub, hub.commit, refresh=True) == first
    assert ask(hub, hub.commit) == first


def test_the_manifest_is_read_at_the_same_commit(hub: Hub) -> None:
    assert ask(hub).manifest == {}
    assert ask(hub, manifest="sums.txt").manifest == {"model.bin": sha256(LARGE)}


def test_a_token_of_the_environment_is_used_and_not_kept(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.token = "hf_sentinel"
    monkeypatch.setenv("HF_TOKEN", "hf_sentinel")
    assert ask(hub).commit == hub.commit
    kept = [p for p in tmp_path.rglob("*") if p.is_file() and b"hf_sentinel" in p.read_bytes()]
    assert kept == []


def test_refusals_are_told_in_words(hub: Hub) -> None:
    with pytest.raises(BlockedError, match="no revision nope"):
        ask(hub, "nope")
    with pytest.raises(BlockedError, match=r"lacks the file nope\.txt") as caught:
        ask(hub, manifest="nope.txt")
    assert "weights.manifest" in str(caught.value.remedy)
    with pytest.raises(BlockedError, match=r"config\.json of org/name .* line 1") as caught:
        ask(hub, manifest="config.json")
    assert "weights.manifest" in str(caught.value.remedy)
    with pytest.raises(BlockedError, match="no repository other/name"):
        describe("other/name", "main", endpoint=hub.base)
    hub.token = "hf_x"
    with pytest.raises(BlockedError) as caught:
        ask(hub, "e" * 40)
    assert "HF_TOKEN" in str(caught.value.remedy)


def test_the_remedy_names_the_setting_that_is_wrong(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these said "correct weights.manifest", or "try again later"."""
    for name in ("word", "org/two--dashes"):
        with pytest.raises(BlockedError, match=name) as caught:
            describe(name, "main", endpoint=hub.base)
        assert "weights.repository" in str(caught.value.remedy)
    hub.faults.statuses = [(404, None)]
    with pytest.raises(BlockedError, match="404") as caught:
        ask(hub)
    assert "weights.endpoint" in str(caught.value.remedy)
    hub.faults.statuses = [(401, None)]
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(BlockedError, match="refuses the token") as caught:
        ask(hub)
    assert "another HF_TOKEN" in str(caught.value.remedy)
    assert "hf_bad" not in repr(vars(caught.value))


def test_an_answer_that_is_no_hubs_is_told_so() -> None:
    """A page of a proxy or a login in place of the hub's JSON."""
    with (
        pytest.raises(BlockedError, match="can't be read") as caught,
        in_words("org/name", "main", "http://hub"),
    ):
        json.loads("<html>")
    assert "weights.endpoint" in str(caught.value.remedy)


@pytest.mark.parametrize("path", ["../../x", "/root/x", "a/../x", "a//x", "..part01"])
def test_a_list_that_leaves_its_repository_is_refused_and_the_path_named(hub: Hub, path: str) -> None:
    hub.files[path] = b""
    with pytest.raises(BlockedError) as caught:
        ask(hub)
    assert hub.base in caught.value.message
    refused = path.removesuffix(".part01")
    assert caught.value.cause == f"refused path {refused!r}: it leaves the weights folder"


def test_one_that_was_kept_before_that_was_looked_at_is_asked_for_again(hub: Hub, tmp_path: Path) -> None:
    found = ask(hub)
    (kept,) = tmp_path.rglob(f"{hub.commit}.json")
    kept.write_text(kept.read_text().replace("config.json", "../../x"))
    assert ask(hub) == found


def test_a_hub_that_is_away_is_told_with_its_address() -> None:
    with pytest.raises(BlockedError, match=r"http://127.0.0.1:9 can't be reached"):
        describe("org/name", "main", endpoint="http://127.0.0.1:9")


def test_a_hub_that_stumbles_is_asked_again_and_one_that_stays_down_is_told(hub: Hub) -> None:
    """One 503 must not block an apply; a hub that is down must not be asked for ever."""
    hub.faults.statuses = [(503, None), (502, None)]
    assert ask(hub).commit == hub.commit
    hub.faults.statuses = [(503, None)] * 20
    with pytest.raises(BlockedError, match="503"):
        ask(hub, refresh=True)


def test_manifests() -> None:
    text = f"# comment\n{'a' * 64}  x y.bin\n{'B' * 64} *./z\r\n\n"
    assert parse_manifest(text) == {"x y.bin": "a" * 64, "z": "b" * 64}
    assert parse_manifest(text, "sub") == {"sub/x y.bin": "a" * 64, "sub/z": "b" * 64}
    with pytest.raises(ValueError, match="line 1"):
        parse_manifest("<html>")
