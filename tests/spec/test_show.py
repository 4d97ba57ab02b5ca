"""render --spec: the text is a spec that means the same, and names the place of each value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sparkop.spec.load import load, load_text
from sparkop.spec.show import show_spec, yaml_scalar
from tests.spec.samples import SHIPPED, loaded


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_it_reads_back_as_the_same_spec(path: Path) -> None:
    spec = load([path])
    assert load_text(show_spec(spec)).spec == spec.spec


def test_every_value_has_its_place(tmp_path: Path) -> None:
    text = show_spec(loaded(tmp_path, "memory: {kvCache: 1 GiB}\n", sets=("engine.environment.A=1",)))
    lines = {
        line.split("  #")[0].strip(): line.split("# ")[-1] for line in text.splitlines() if "  #" in line
    }
    assert lines["kvCache: 1 GiB"].endswith("overlay-1.yaml:1")
    assert lines['A: "1"'] == "--set:1"
    assert lines["name: sparks"].endswith("spec.yaml:2")
    assert text.splitlines()[2] == "# + --set engine.environment.A=1"


@given(st.text(max_size=20) | st.text("0123456789.:_-+eExoab", max_size=8), st.booleans())
@example("04:4.", True)
@example("0o1_", True)
def test_scalars_read_back_in_both_yaml_versions(text: str, block: bool) -> None:
    """What sparkop writes must mean the same to it and to a YAML 1.1 reader."""
    line = f"key: {yaml_scalar(text, block=block)}\n" if block else f"key: [{yaml_scalar(text)}]\n"
    for version in ((1, 1), (1, 2)):
        yaml = YAML(typ="safe", pure=True)
        yaml.version = version
        value = yaml.load(line)["key"]
        assert (value if block else value[0]) == text


@pytest.mark.parametrize(
    "text",
    ["yes", "No", "on", "1", "0x1f", "1e9", "012", "1_0", "1:30", "1:30.5", "", "null", "~", "2026-08-01"],
)
def test_scalars_that_need_quotes(text: str) -> None:
    assert yaml_scalar(text).startswith('"')


@pytest.mark.parametrize("text", ["model", "~/models/x", "you@10.0.0.2:22", "a b", "lmsysorg/sglang:tag"])
def test_scalars_that_need_none(text: str) -> None:
    assert yaml_scalar(text) == text


def test_what_may_be_a_secret_is_masked(tmp_path: Path) -> None:
    """The text is pasted into bug reports, and no rule has refused the spec yet."""
    overlay = """engine:
  extraArgs:
  - --hub-token
  - SENTINEL-1
  environment: {MY_SECRET: SENTINEL-2, PROXY: "http://me:SENTINEL-3@proxy/"}
"""
    text = show_spec(loaded(tmp_path, overlay, sets=("engine.environment.X_TOKEN=SENTINEL-4",)))
    assert "SENTINEL" not in text
    assert "MY_SECRET" in text
    assert "--hub-token" in text
