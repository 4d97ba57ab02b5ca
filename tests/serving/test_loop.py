"""Answers in circles are seen soon, and honest ones never are."""

from __future__ import annotations

import re
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.serving.loop import LoopWatch


def seen(pieces: list[str]) -> tuple[str | None, int]:
    """What is repeated, and after how many pieces it was seen."""
    watch = LoopWatch()
    for number, piece in enumerate(pieces, start=1):
        found = watch.add(piece)
        if found is not None:
            return found, number
    return None, len(pieces)


@given(st.sampled_from(["!", "!!!!!!!", " the", "\n\n", "的"]), st.text(max_size=30))
def test_one_token_again_and_again_is_seen_within_a_second_of_tokens(token: str, before: str) -> None:
    found, after = seen([before, *([token] * 2000)])
    assert found is not None
    assert after <= 520


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=30))
def test_a_short_cycle_is_seen_however_it_is_cut(cycle: str) -> None:
    text = cycle * (6000 // len(cycle))
    assert seen(re.findall(r"(?s).{1,7}", text))[0] is not None


@pytest.mark.parametrize(
    "honest",
    [
        "-" * 120, "=" * 200, " " * 200, "| a | b |\n|---|---|\n" * 12, "0, " * 60, "ha " * 40, "\t" * 40,
        "the same sentence of more than sixty-four characters, which a model may say now and then. " * 20,
    ],
)  # fmt: skip
def test_rulers_tables_and_refrains_are_no_loops(honest: str) -> None:
    """A false alarm would fail a good model."""
    assert seen(["Here:\n", *re.findall(r"(?s).{1,4}", honest), "\nDone."])[0] is None


def test_real_text_is_no_loop() -> None:
    """Documentation with grammar tables, code and rulers."""
    text = "\n".join(topics.values())
    assert seen(re.findall(r"(?s).{1,5}", text))[0] is None
