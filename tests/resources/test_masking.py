"""Keys that engines print must not pass through logs (row S7, design decision 10)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.node.act import masked
from sparkop.resources.masking import MASK, ON_NODES, mask

SENTINEL = "sentinel-Zq81_x"


@pytest.mark.parametrize(
    "line",
    [
        f"serve /model --api-key {SENTINEL} --port 8000",
        f"serve /model --api-key={SENTINEL}",
        f"ServerArgs(model_path='/model', api_key='{SENTINEL}', admin_api_key='{SENTINEL}')",
        f"non-default args: {{'api_key': ['{SENTINEL}'], 'port': 8000}}",
        f'{{"api_key": "{SENTINEL}"}}',
        f"api-key: {SENTINEL}",
        f"sys.argv: ['launch_server', '--api-key', '{SENTINEL}', '--port', '8000']",
        f"\x1b[1mapi_key\x1b[0m=\x1b[32m'{SENTINEL}'\x1b[0m",
        f"curl -H 'Authorization: Bearer {SENTINEL}' http://spark-1",
        f"environment: HF_TOKEN={SENTINEL}",
        "downloading with hf_abcdefghijklmnopqrstuv",
    ],
)
def test_keys_are_masked_in_every_form_that_engines_print(line: str) -> None:
    masked = mask(line)
    assert SENTINEL not in masked
    assert "hf_abcdefghijklmnopqrstuv" not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "line",
    [
        "GPU KV cache size: 2,023,717 tokens",
        "ServerArgs(api_key=None, port=8888)",
        "loading /root/.cache/huggingface/hub/models--org--hf_model",
        "bearer of bad news"[:6],
        "the api-key is wrong",
        "no api_key given; the admin-api-key was not asked for.",
        "Unauthorized: invalid API-Key provided!",
    ],
)
def test_harmless_lines_stay_as_they_are(line: str) -> None:
    assert mask(line) == line


WORDS = st.from_regex(r"[A-Za-z]{1,15}[.,;:!?]*", fullmatch=True)
KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True).filter(
    lambda key: re.fullmatch(r"[A-Za-z]{1,15}", key) is None
)
NAMES = st.sampled_from(["api-key", "api_key", "API_KEY", "admin-api-key", "admin_api_key"])


def on_nodes(text: str) -> str:
    return masked(text.encode(), ON_NODES).decode()


@given(NAMES, WORDS, st.sampled_from(["", "the ", "no ("]), st.sampled_from(["", " stands here", "\nnext"]))
def test_a_word_of_prose_is_no_key(name: str, word: str, before: str, after: str) -> None:
    line = f"{before}{name} {word}{after}"
    assert mask(line) == on_nodes(line) == line


@given(NAMES, KEYS, st.sampled_from(["", "the ", "no ("]), st.sampled_from([" ", "  ", "=", ": ", ", "]))
def test_what_is_no_word_is_masked_after_the_name_alone(
    name: str, key: str, before: str, between: str
) -> None:
    line = f"{before}{name}{between}{key} end"
    assert mask(line) == on_nodes(line) == f"{before}{name}{between}{MASK} end"


@given(
    NAMES,
    st.one_of(KEYS, st.from_regex(r"[A-Za-z]{1,15}", fullmatch=True)).filter(
        lambda key: key.casefold() not in ON_NODES["harmless"]
    ),
    st.sampled_from(
        [
            "--{} {}",
            "--{}={}",
            "'--{}', '{}'",
            "--{} '{}'",
            "VLLM_{}={}",
            "{}='{}'",
            "{} '{}'",
            "{}  {}",
            "{}\t{}",
            '"{}": "{}"',
        ]
    ),
)
def test_the_value_of_an_argument_is_masked_whatever_it_is(name: str, key: str, form: str) -> None:
    line = f"serve {form.format(name, key)} end"
    assert mask(line) == on_nodes(line) == f"serve {form.format(name, MASK)} end"
