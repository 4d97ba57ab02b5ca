"""Flags found in command lines: repeated ones and such that carry a key."""

from __future__ import annotations

import pytest

from sparkop.engines.words import flags_in, repeated, secrets_in, switch


def test_spellings_of_one_flag_are_one() -> None:
    words = [
        "--max_num_seqs=4",
        "--no-enable-prefix-caching",
        "--speculative-config.method",
        "ngram",
        "-tp",
        "2",
    ]
    assert flags_in(words, {"-tp": "--tensor-parallel-size"}) == [
        "--max-num-seqs",
        "--enable-prefix-caching",
        "--speculative-config",
        "--tensor-parallel-size",
    ]


def test_values_are_no_flags() -> None:
    """Negative numbers and JSON would be reported as unknown or repeated flags."""
    assert flags_in(["--a", "-1", "--b", "-.5", "--c", '{"--a":1}', "-"], {}) == ["--a", "--b", "--c"]


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        (["--max-num-seqs", "4"], [("--max-num-seqs", "--max-num-seqs")]),
        (["--max_num_seqs=4"], [("--max-num-seqs", "--max-num-seqs")]),
        (["--max-num", "4"], [("--max-num", "--max-num-seqs")]),
        (["--seed", "1", "--seed", "2"], [("--seed", "--seed")]),
        (["--max-num-seqs-extra", "4"], []),
        (["--seed", "1"], []),
    ],
)
def test_repeated_flags_are_found(extra: list[str], found: list[tuple[str, str]]) -> None:
    """The last one wins silently in both engines, abbreviations included."""
    assert repeated(["--max-num-seqs", "2"], extra, {}) == found


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", "x"],
        ["--api-key=x"],
        ["--api_key", "x"],
        ["--api-key x"],
        ["--api-key\tx"],
        ["--api-k", "x"],
        ["--admin-api-key", "x"],
        ["--hf-token=x"],
    ],
)
def test_flags_that_carry_a_secret_are_found(words: list[str]) -> None:
    assert len(secrets_in(["--seed", "1", *words])) == 1


@pytest.mark.parametrize(
    "words", [["--api-server-count", "2"], ["--seed", "api-key"], ["--hf-overrides", "{}"]]
)
def test_flags_that_only_look_like_it_are_left_alone(words: list[str]) -> None:
    assert secrets_in(words) == []


def test_switch_has_three_states() -> None:
    assert switch("--async-scheduling", True) == ["--async-scheduling"]
    assert switch("--async-scheduling", False) == ["--no-async-scheduling"]
    assert switch("--async-scheduling", None) == []
