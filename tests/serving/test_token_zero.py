"""TileLang's warning is no fault, token 0 for ever is one: told apart."""

from __future__ import annotations

import pytest

from sparkop.resources.failure import likely_cause
from sparkop.serving.canary import EndpointState, Serving
from sparkop.serving.smoke import Check, Verdict
from sparkop.serving.token_zero import explain, explain_text, harmless, is_harmless, is_token_zero
from sparkop.views.smoke import show_smoke
from tests.engines.specs import RECIPE_A, RECIPE_B, spec

FORMS = (
    "Data race detected: `Logits(bx, position)`is written by multiple threads in loop (token,), Example:",
    "2026-09-02 10:11:12 [WARNING] verify_parallel_loop.cc:83: Data race detected: `Logits(bx, position)` is "
    "written by multiple threads in loop (token,), Example:",
    "  [1] `Logits(bx, position)` is written by multiple threads in loop (token,) at qsa/mqa.py:117",
    "Logits(bx, position) is written by multiple threads in loop (token,)",
)
"""As TileLang's versions print it."""
OTHERS = (
    "Data race detected: `partial(i,)` is written by multiple threads in loop (kk,)",
    "Data race detected: 1 potential race(s)",
    "Logits(bx, position) out of bounds",
    "The server is fired up and ready to roll!",
)


@pytest.mark.parametrize("line", FORMS)
def test_the_warning_is_known_in_each_form(line: str) -> None:
    assert is_harmless(line)
    assert harmless(["Capture cuda graph begin.", line]).startswith("harmless: ")


@pytest.mark.parametrize("line", OTHERS)
def test_no_other_line_is_called_harmless(line: str) -> None:
    """Another race may be a true one."""
    assert not is_harmless(line)
    assert harmless([line]) == ""


def test_the_warning_is_never_why_a_rank_died() -> None:
    assert likely_cause(None, list(FORMS)) is None


@pytest.mark.parametrize(
    ("text", "zero"), [("!!!!!!!!", True), ("! ! !\n!", True), ("!", False), ("Hi!", False), ("", False)]
)
def test_token_zero(text: str, zero: bool) -> None:
    """One ``!`` may be an answer."""
    assert is_token_zero(text) is zero


def degenerate(text: str) -> EndpointState:
    return EndpointState(Serving.DEGENERATE, "only '!', 16 times", text=text)


def test_an_image_that_is_used_as_it_is_comes_first() -> None:
    cluster = spec(RECIPE_B, {"image": {"reference": "lmsysorg/sglang:qwen38flashnext"}})
    explained = explain(cluster, degenerate("!!!!"))
    assert explained is not None
    assert "unpatched" in explained.cause
    assert "widened" in explained.cause
    assert "image.build" in explained.remedy
    assert "sparkop apply" in explained.remedy


def test_of_a_checked_image_the_cache_and_the_thinking_are_named() -> None:
    explained = explain(spec(RECIPE_B), degenerate("!!!!"))
    assert explained is not None
    assert "prefix cache" in explained.cause
    assert "engine.thinking: false" in explained.remedy


def test_another_token_or_another_engine_is_no_kernel_of_sglang() -> None:
    for cluster, text in ((spec(RECIPE_B), "the the the"), (spec(RECIPE_A), "!!!!"), (spec(RECIPE_B), "")):
        explained = explain(cluster, degenerate(text))
        assert explained is not None
        assert "token 0" not in explained.cause


def test_what_serves_is_not_explained() -> None:
    assert explain(spec(RECIPE_B), EndpointState(Serving.READY, text="!!!!")) is None


def test_smoke_tells_the_cause_and_that_the_warning_is_not_it(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Check("text", Verdict.FAIL, "only '!' comes", 1.0, "What is 17 * 23?", "!!!!", loop="!")
    note = harmless(FORMS)
    assert not show_smoke(
        [loop], explain=lambda text: explain_text(spec(RECIPE_B), text), harmless=lambda: note
    )
    told = " ".join(capsys.readouterr().out.split())
    assert "likely cause: token 0" in told
    assert "do: sparkop apply" in told
    assert "harmless: TileLang" in told


def test_smoke_says_nothing_of_it_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    good = Check("text", Verdict.PASS, "17 * 23 = 391", 1.0)

    def never() -> str:
        raise AssertionError("nobody needs it")

    assert show_smoke([good], explain=lambda text: explain_text(spec(RECIPE_B), text), harmless=never)
    assert "likely cause" not in capsys.readouterr().out
