"""Settings for other clients, each read by the client itself: opencode, Continue's schema, shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests import npm
from tests.clients.conftest import KEY, ROOT, SPEC
from tests.clients.recorder import Recorder

OPENCODE, CONTINUE = "opencode-ai@1.18.33", "@continuedev/config-yaml@1.42.0"


def connect(folder: Path, *words: str) -> str:
    """stdout of ``sparkop connect``."""
    (folder / "spec.yaml").write_text(SPEC)
    argv = [sys.executable, "-m", "sparkop", "connect", *words]
    own = {"PYTHONPATH": str(ROOT), "OUR_KEY": KEY}
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    return done.stdout


def test_opencode_asks_our_server(server: Recorder, tmp_path: Path) -> None:
    """No reasoning_effort, which opencode puts unasked into its request for a title."""
    without = ("--set", "clients.reasoningEffort={}")
    text = connect(tmp_path, "opencode", "spec.yaml", "--base-url", server.url, *without)
    (tmp_path / "opencode.json").write_text(text)
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    own = {"OUR_KEY": KEY, "HOME": str(tmp_path), "PWD": str(tmp_path), "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    done = subprocess.run(
        [npm.package(OPENCODE) / ".bin/opencode", "run", "-m", "our-sparks/the-model", "hello"],
        cwd=tmp_path,
        env={**os.environ, **folders, **own, "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "hello from the recorder" in done.stdout
    assert any(request.body.get("tools") for request in server.requests)
    for request in server.requests:
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.body["model"] == "the-model"
        assert "reasoning_effort" not in request.body
        assert "max_completion_tokens" not in request.body
        assert request.body["messages"][0]["role"] == "system"


def test_continue_takes_the_file(tmp_path: Path) -> None:
    """Its schema, and its own check, which complains of limits that leave no room for a prompt."""
    (tmp_path / "config.yaml").write_text(connect(tmp_path, "continue", "spec.yaml"))
    folder = npm.package(CONTINUE).parent
    script = """
import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { configYamlSchema, validateConfigYaml } from "@continuedev/config-yaml";
const value = parse(readFileSync(process.argv[2], "utf8"));
const read = configYamlSchema.safeParse(value);
console.log(JSON.stringify({ok: read.success, data: read.data, issues: read.error?.issues, complaints: validateConfigYaml(value)}));
"""  # noqa: E501
    (folder / "check.mjs").write_text(script)
    done = subprocess.run(
        ["node", str(folder / "check.mjs"), str(tmp_path / "config.yaml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["ok"], found["issues"]
    assert found["complaints"] == []
    model = found["data"]["models"][0]
    assert model["apiBase"] == "http://one.invalid:8000/v1"
    assert model["apiKey"] == "${{ secrets.OUR_KEY }}"
    assert model["capabilities"] == ["tool_use", "image_input"]


@pytest.mark.parametrize("shell", ["sh", "zsh"])
@pytest.mark.parametrize("key", [KEY, None])
def test_a_shell_gets_the_key_and_never_another_one(tmp_path: Path, shell: str, key: str | None) -> None:
    """Without our key, a key of another service that the shell has is not sent to our server."""
    assert shutil.which(shell), f"apt-get install {shell}"
    text = connect(tmp_path, "env", "spec.yaml", "--key-env", "OUR_KEY")
    script = f'{text}printf "%s\\n" "$OPENAI_BASE_URL" "$OPENAI_MODEL" "$OPENAI_API_KEY"'
    own = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "another"} | ({"OUR_KEY": key} if key else {})
    done = subprocess.run([shell, "-c", script], env=own, capture_output=True, text=True, timeout=20)
    assert done.stdout.split("\n")[:3] == ["http://one.invalid:8000/v1", "the-model", key or ""]


def test_the_key_comes_from_the_head_when_the_variable_is_not_set(tmp_path: Path) -> None:
    """Here the head is this machine: the key is the content of its file, fetched when the shell asks."""
    (tmp_path / ".sparkop" / "sparks").mkdir(parents=True)
    (tmp_path / ".sparkop" / "sparks" / "api_key").write_text(KEY + "\n")
    text = connect(tmp_path, "env", "spec.yaml", "--set", "nodes=[{name: one, ssh: local}]")
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", text + 'echo "$OPENAI_API_KEY $OPENAI_BASE_URL"'],
        env=own,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{KEY} http://127.0.0.1:8000/v1\n"


def test_recipe_b_s_client_settings(tmp_path: Path) -> None:
    """As JSON and as YAML."""
    spec = str(ROOT / "specs" / "qwen3.8-flash-next.yaml")
    settings = json.loads(connect(tmp_path, "openai", spec))
    assert settings["model"] == "Qwen3.8-Flash-Next-NVFP4"
    assert (settings["contextWindow"], settings["maxOutputTokens"]) == (900000, 32768)
    assert settings["maxTokensField"] == "max_tokens"
    assert settings["developerRole"] is False
    assert settings["reasoningEffort"] is None
    assert settings["apiKeyEnvironment"] is None
    assert settings["baseURL"].endswith(":8888/v1")
    assert YAML(typ="safe").load(connect(tmp_path, "openai", spec, "-o", "yaml")) == settings
