"""Which folders sparkop takes for its own. What it refuses stands among the bad specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkop.spec.folders import is_within
from sparkop.spec.load import load_text
from sparkop.spec.problems import InvalidSpecError
from tests.spec.samples import MINIMAL, loaded


@pytest.mark.parametrize(
    "path",
    [
        *("/data", "/mnt/x", "/srv/models", "/root/m", "/home/you/m", "/var/lib/docker-models", "~/a/../m"),
        *("/usr/local/models", "/usr/local/share/models", "/var/models", "~/.cache/huggingface", "~/.models"),
    ],
)
def test_folders_that_a_user_may_give_are_taken(path: str) -> None:
    spec = load_text(MINIMAL.replace("~/models/model", path) + f"stateDirectory: {path}-state\n").spec
    assert spec.weights.path == path


SHARED = "is shared by all programs"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("stateDirectory: ~/.sparkop/x/deep", "lies within ~/.sparkop/x, a state folder"),
        ("stateDirectory: ~/.config", SHARED),
        ("stateDirectory: /home/you/.local/share", SHARED),
        ("stateDirectory: /var/cache", SHARED),
        ("stateDirectory: /usr/local/share", "is the system's"),
        ("stateDirectory: /usr/local/lib/x", "is the system's"),
        ('stateDirectory: "~/a\\rb"', "no line breaks or control characters"),
        ('stateDirectory: "~/a\\e[31mb"', "no line breaks or control characters"),
        ("api: {servedNames: [m], keyFile: ~/.bashrc}", "is another program's file"),
        ("api: {servedNames: [m], keyFile: /root/.netrc}", "is another program's file"),
        ("api: {servedNames: [m], keyFile: ~/.sparkop/other/api_key}", "the state folder of another cluster"),
        ("weights: {repository: o/m, path: ~/.sparkop/models}", "the state folder of another cluster"),
        ("nodes: [{name: a, paths: {cache: ~/m, weights: ~/m/w}}]", "which the ranks write"),
    ],
)
def test_folders_that_are_others_or_lie_within_one_another_are_refused(line: str, told: str) -> None:
    """All of them were taken, and a key would have gone into a shell's start-up file."""
    key = line.partition(":")[0]
    document = yaml_of(MINIMAL, key)
    with pytest.raises(InvalidSpecError) as caught:
        load_text(f"{document}{line}\n")
    assert told in str(caught.value.detail)


def yaml_of(text: str, without: str) -> str:
    """A spec without one of its keys at the top."""
    found = re.sub(rf"^{without}:.*\n(?:[ -].*\n)*", "", text, flags=re.MULTILINE)
    return found if found.endswith("\n") else f"{found}\n"


def test_a_key_file_in_the_clusters_own_folder_is_taken() -> None:
    """Also where the nodes have folders of their own."""
    nodes = "nodes: [{name: a, paths: {state: ~/.sparkop/a}}, {name: b, paths: {state: ~/.sparkop/b}}]\n"
    api = "api: {servedNames: [m], keyFile: ~/.sparkop/a/keys/key}\n"
    spec = load_text(yaml_of(yaml_of(MINIMAL, "nodes"), "api") + nodes + api).spec
    assert spec.api.key_file == "~/.sparkop/a/keys/key"


@pytest.mark.parametrize("key", ["keyFile", "file", "sk-2b1c0d6e9f8a7b6c5d4e"])
def test_a_refused_key_names_the_field_to_use(key: str, tmp_path: Path) -> None:
    """The hint was masked where the value stood in it; the value itself is never told."""
    with pytest.raises(InvalidSpecError) as caught:
        loaded(tmp_path, sets=(f"api.key={key}",))
    told = str(caught.value.detail)
    assert "goes into the file that keyFile names" in told
    assert f"api.key={key}" not in told


def test_what_lies_within() -> None:
    """By whole names, whatever the spelling."""
    assert is_within("~/a/b/", "~/a")
    assert is_within("~/a/../b", "~//b/")
    assert not is_within("~/ab", "~/a")
    assert not is_within("~/a", "~/a/b")
