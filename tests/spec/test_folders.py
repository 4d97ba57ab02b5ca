"""Which folders sparkop takes for its own. What it refuses stands among the bad specs."""

from __future__ import annotations

import pytest

from sparkop.spec.folders import is_within
from sparkop.spec.load import load_text
from tests.spec.samples import MINIMAL


@pytest.mark.parametrize(
    "path", ["/data", "/mnt/x", "/srv/models", "/root/m", "/home/you/m", "/var/lib/docker-models", "~/a/../m"]
)
def test_folders_that_a_user_may_give_are_taken(path: str) -> None:
    spec = load_text(MINIMAL.replace("~/models/model", path) + f"stateDirectory: {path}-state\n").spec
    assert spec.weights.path == path


def test_what_lies_within() -> None:
    """By whole names, whatever the spelling."""
    assert is_within("~/a/b/", "~/a")
    assert is_within("~/a/../b", "~//b/")
    assert not is_within("~/ab", "~/a")
    assert not is_within("~/a", "~/a/b")
