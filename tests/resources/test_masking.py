"""Keys that engines print must not pass through logs (principle 10)."""

from __future__ import annotations

import pytest

from sparkop.resources.masking import MASK, mask

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
    ],
)
def test_harmless_lines_stay_as_they_are(line: str) -> None:
    assert mask(line) == line
