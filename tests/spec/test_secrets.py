"""No error quotes a secret that was written into a spec by mistake, wherever it stands."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sparkop.spec.problems import InvalidSpecError, Problem
from sparkop.spec.secrets import MASK, mask_line, spans
from tests.spec.samples import MINIMAL, only, problems

SECRET = "AbCdEf-9"
"""Short, and without a look of its own: known by its name or its place only."""
BESIDE = [
    "{HF_TOKEN: AbCdEf-9, FAST: yes}",
    "{HF_TOKEN: AbCdEf-9, 1: a}",
    "{HF-TOKEN: AbCdEf-9}",
    "{DB_PASSWD: 'AbCdEf-9', FAST: no}",
    "{HF_TOKEN: [AbCdEf-9]}",
    "HF_TOKEN=AbCdEf-9",
    "\n    - HF_TOKEN=AbCdEf-9",
    "\n    HF_TOKEN:\n      value: AbCdEf-9",
    "\n    HF_TOKEN: !secret AbCdEf-9",
]
BROKEN = [
    "\n    HF_TOKEN: @AbCdEf-9",
    "\n    HF_TOKEN: AbCdEf-9: x",
    '\n    HF_TOKEN: "AbCdEf-9',
    "\n    HF_TOKEN: AbCdEf-9\n    HF_TOKEN: AbCdEf-9",
    "\n\tHF_TOKEN: AbCdEf-9",
    "\n    HF_TOKEN: AbCdEf-9\x07",
    "\n    HF_TOKEN: |\n      first\n      AbCdEf-9\x07",
]
ELSEWHERE = [
    "token: AbCdEf-9",
    "api: {apiKey: AbCdEf-9}",
    "api: {key: AbCdEf-9}",
    "api: {keyFile: AbCdEf-9}",
    "api:\n  key:\n    AbCdEf-9",
    "engine: {extraArgs: --api-key AbCdEf-9}",
    "engine: {extraArgs: [{--api-key: AbCdEf-9}]}",
    "engine: {extraArgs: [--api-key, AbCdEf-9, 1.5]}",
    "weights: {endpoint: 'ftp://user:AbCdEf-9@hub'}",
    "weights: {endpoint: 'https://user:AbCdEf-9@hub'}",
    'api: {key: "AbCdEf-9\n  AbCdEf-9"}',
    "nodes: [{name: spark-1, ssh: 'root:AbCdEf-9@spark-1'}]",
    "engine: {environment: {HF_TOKEN: &t AbCdEf-9}}\napi: {port: *t}",
]


@pytest.mark.parametrize(
    "overlay", [*(f"engine:\n  environment: {each}" for each in (*BESIDE, *BROKEN)), *ELSEWHERE]
)
def test_files(tmp_path: Path, overlay: str) -> None:
    told = problems(tmp_path, f"{overlay}\n")
    assert told
    _no_secret(told)


@pytest.mark.parametrize(
    "setting",
    [
        "engine.environment.HF-TOKEN=AbCdEf-9",
        "engine.environment={HF_TOKEN: AbCdEf-9, FAST: yes}",
        "engine.environment=HF_TOKEN=AbCdEf-9",
        "engine.env.HF_TOKEN=AbCdEf-9",
        "engine.extraArgs=--api-key AbCdEf-9",
        "HF_TOKEN AbCdEf-9",
        "api.key=AbCdEf-9",
        "token=AbCdEf-9",
    ],
)
def test_settings(tmp_path: Path, setting: str) -> None:
    _no_secret(problems(tmp_path, sets=(setting,)))


def test_short_password_in_an_address(tmp_path: Path) -> None:
    told = str(only(problems(tmp_path, "weights: {endpoint: 'https://you:x7@hub/'}\n")))
    assert "x7" not in told
    assert f"https://you:{MASK}@hub/" in told


@pytest.mark.parametrize("digits", ["0123456712345", "1234_5678_9012", "12e45678"])
def test_digits_in_no_other_notation(tmp_path: Path, digits: str) -> None:
    """An error of a number tells what it reads as: for a secret that would be the secret."""
    (told,) = problems(tmp_path, f"engine: {{environment: {{HF_TOKEN: {digits}}}}}\n")
    assert "reads as" in told.message or "YAML 1.1" in told.message
    shown = str(told) + json.dumps(told.as_json())
    for leak in (digits, "11219473637", "123456712345", "123456789012"):
        assert leak not in shown


def _no_secret(told: tuple[Problem, ...]) -> None:
    for each in told:
        assert SECRET not in str(each)
        assert SECRET not in json.dumps(each.as_json())
    assert SECRET not in str(InvalidSpecError(told).detail)


@pytest.mark.parametrize(
    "line",
    [
        "  key: generate   # anyone may use it. generate: a bearer key",
        "  key: Generat",
        "  keyFile: ~/api-key",
        "  reference: registry.lab:5000/engine:1@sha256:0a1b",
        "    ssh: you@10.0.0.2:22",
        "    HF_TOKEN: ${HF_TOKEN}",
        "    HF_TOKEN: *token",
        "  monkey, tokenizer: x, keys, the key is not one",
        "  tokenizerMode: deepseek_v4",
        "  repository: owner/hf_transfer",
    ],
)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    assert spans(line) == []


def test_caret_stays_under_what_is_wrong() -> None:
    line = "environment: {HF_TOKEN: a-long-secret-of-many-letters, FAST: yes}"
    text, start, end = mask_line(line, spans(line), line.index("yes"), line.index("yes") + 3)
    assert text == f"environment: {{HF_TOKEN: {MASK}, FAST: yes}}"
    assert text[start:end] == "yes"


@pytest.mark.parametrize("unit", ["key:a,", "key ", "key=", "{key: ", ".", "a:", '"'])
def test_long_lines_end_soon(unit: str) -> None:
    started = time.process_time()
    spans(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 5


def test_the_sample_itself_is_shown_whole() -> None:
    assert all(spans(line) == [] for line in MINIMAL.splitlines())
