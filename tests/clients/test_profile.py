"""From spec to what clients are told: base URL, key, limits, levels; Pi's provider of both recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.clients.pi_files import LEVELS, extension_text, provider_entry
from sparkop.clients.profile import Profile, profile_of
from sparkop.errors import BlockedError, UsageError
from sparkop.spec.load import load
from tests.clients.conftest import ROOT, SPEC


def profile(tmp_path: Path, *sets: str, base_url: str | None = None, key: str | None = None) -> Profile:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return profile_of(
        load([path], sets).spec, "~/.sparkop/sparks/api_key", base_url=base_url, key_variable=key
    )


def recipe(name: str) -> Profile:
    return profile_of(load([ROOT / "specs" / name], ()).spec, "~/key")


def test_recipe_a_s_provider() -> None:
    """Pi with the recipe's own values, and what it left to Pi's guess."""
    entry = provider_entry(recipe("deepseek-v4.1-flash.yaml"))
    (model,) = entry["models"]
    assert (model["id"], model["contextWindow"], model["maxTokens"]) == (
        "deepseek-v4.1-flash",
        262144,
        262144,
    )
    assert (model["input"], model["reasoning"]) == (["text", "image"], True)
    assert model["thinkingLevelMap"] == {
        "minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max",
    }  # fmt: skip
    assert entry["api"] == "openai-completions"
    assert entry["apiKey"].startswith("!printenv DSV41_API_KEY")
    assert entry["compat"]["supportsDeveloperRole"] is False
    assert entry["compat"]["supportsStore"] is False
    assert entry["compat"]["maxTokensField"] == "max_tokens"


def test_recipe_b_s_provider_sends_no_effort_and_no_key() -> None:
    """What the recipe's README says of any other client."""
    found = recipe("qwen3.8-flash-next.yaml")
    entry = provider_entry(found)
    assert (entry["models"][0]["contextWindow"], entry["models"][0]["maxTokens"]) == (900000, 32768)
    assert entry["compat"]["supportsReasoningEffort"] is False
    assert "thinkingLevelMap" not in entry["models"][0]
    assert entry["apiKey"] == "unused"
    assert not found.remove_cap


def test_levels_that_the_spec_does_not_name_are_hidden(tmp_path: Path) -> None:
    """Pi would send their names, which the server may refuse."""
    entry = provider_entry(profile(tmp_path, 'clients.reasoningEffort={high: high, "off": none}'))
    levels = entry["models"][0]["thinkingLevelMap"]
    assert {level for level in LEVELS if levels[level] is not None} == {"high"}
    assert levels["off"] == "none"


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ((), "http://one.invalid:8000/v1"),
        (("api.port=8080",), "http://one.invalid:8080/v1"),
        (("nodes=[{name: one, ssh: local}]",), "http://127.0.0.1:8000/v1"),
        (("api.bind=10.0.0.7",), "http://10.0.0.7:8000/v1"),
        (("api.bind=::",), "http://one.invalid:8000/v1"),
        (("api.bind=fd00::1",), "http://[fd00::1]:8000/v1"),
        (("nodes=[{name: one, ssh: local}]", "api.bind=127.0.0.1"), "http://127.0.0.1:8000/v1"),
    ],
)
def test_where_clients_reach_the_api(tmp_path: Path, sets: tuple[str, ...], told: str) -> None:
    assert profile(tmp_path, *sets).base_url == told


def test_an_api_that_only_its_head_can_reach_is_told_with_the_tunnel(tmp_path: Path) -> None:
    with pytest.raises(BlockedError) as caught:
        profile(tmp_path, "api.bind=127.0.0.1")
    assert "ssh -N -L 8000:127.0.0.1:8000 someone@one.invalid" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/v1/", "https://h/v1"),
        ("https://h/proxy/v1", "https://h/proxy/v1"),
    ],
)
def test_a_base_url_is_taken_with_or_without_v1(tmp_path: Path, given: str, taken: str) -> None:
    assert profile(tmp_path, base_url=given).base_url == taken


@pytest.mark.parametrize(
    "given",
    [
        "h:8000",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://[::1",
        "http://u:secret@h/v1",
        "http://h/v1?k=secret",
    ],
)
def test_what_is_no_base_url_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError):
        profile(tmp_path, base_url=given)


def test_the_head_s_key_goes_only_to_the_head(tmp_path: Path) -> None:
    """With another URL or another variable, the key of the head's file may belong to somebody else."""
    own = profile(tmp_path).key
    assert own is not None
    assert own.command == (
        "printenv OUR_KEY || ssh -o BatchMode=yes -o ConnectTimeout=5 -l someone one.invalid "
        "'cat ~/.sparkop/sparks/api_key'"
    )
    for other in (profile(tmp_path, base_url="http://h/v1"), profile(tmp_path, key="MINE")):
        assert other.key is not None
        assert other.key.otherwise is None


def test_names_reach_the_extension_as_data(tmp_path: Path) -> None:
    """A model's name is any text, and must not become a part of the program."""
    text = extension_text(profile(tmp_path, 'api.servedNames=["a\\"; process.exit(1); //"]'))
    assert '"model": "a\\"; process.exit(1); //"' in text
