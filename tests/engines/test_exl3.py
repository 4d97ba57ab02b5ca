"""The EXL3 plan as the ranks must see it."""

from __future__ import annotations

import json

import pytest

from sparkop.engines.exl3 import bank_folders, plan_file, rewritten
from sparkop.errors import BlockedError

PLAN = json.dumps({"qdir": "qn:q31:some/where/q31s/", "layers": {"3": [1, 2]}, "bits": 2.77}).encode()


def test_bank_folders_are_rewritten_to_where_they_are_mounted() -> None:
    plan = json.loads(rewritten(PLAN, "/model"))
    assert plan == {
        "qdir": "/model/exl3/qn:/model/exl3/q31:/model/exl3/q31s",
        "layers": {"3": [1, 2]},
        "bits": 2.77,
    }
    assert bank_folders(PLAN) == ("qn", "q31", "q31s")
    assert plan_file("J268.json") == "exl3/plan/J268.json"


def test_rewriting_again_changes_nothing() -> None:
    """The copy is compared by content: a second pass that differs would be drift for ever."""
    once = rewritten(PLAN, "/model")
    assert rewritten(once, "/model") == once


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "no JSON"),
        (b'{"qdir": "qn"', "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "qdir"),
        (b'{"qdir": ["qn"]}', "qdir"),
        (b'{"qdir": "qn::q31"}', "empty folder"),
        (b'{"qdir": "../.."}', "empty folder"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_plan_is_a_clear_error(content: bytes, cause: str) -> None:
    with pytest.raises(BlockedError) as caught:
        rewritten(content, "/model")
    assert caught.value.cause is not None
    assert cause in caught.value.cause
