"""Real Pi against a recording server, on Node 20 and on Node 22: what it sends after ``connect pi``."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib

from tests.clients.conftest import KEY, Machine
from tests.clients.recorder import Recorder

MODEL = "our-sparks/the-model"
LIMITS = {"max_tokens", "max_completion_tokens"}


def _other(url: str) -> str:
    return f"""\
{{
  // my own
  "providers": {{
    "mine": {{
      "baseUrl": "{url}", // the same server
      "api": "openai-completions",
      "apiKey": "literal-key-of-mine",
      "unknownKey": {{"kept": true}},
      "models": [{{"id": "my-model", "maxTokens": 4096}}],
    }},
  }},
}}
"""


def test_text_goes_out_without_limit_and_with_the_key_in_the_header_only(
    connected: Machine, shared_server: Recorder
) -> None:
    """The recipe's promise: no limit on the answer; the key comes from the environment at request time. And
    medium, Pi's level, becomes what the spec says that the server knows."""
    answer = connected.pi("--model", MODEL, "--thinking", "medium", "hello").stdout
    assert answer.strip() == "hello from the recorder"
    sent = shared_server.last()
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(sent.body)
    assert not LIMITS & sent.body.keys()
    assert sent.body["model"] == "the-model"
    assert sent.body["reasoning_effort"] == "high"
    assert sent.body["messages"][0]["role"] == "system"  # not developer
    assert "store" not in sent.body
    assert sent.body["stream_options"] == {"include_usage": True}
    for name, content in connected.tree().items():
        assert KEY.encode() not in content, name


def test_a_tool_call_goes_round_and_an_image_goes_out(connected: Machine, shared_server: Recorder) -> None:
    """Pi runs the tool that the model asks for and sends the result. It drops images for a model that the
    configuration does not say takes them."""
    (connected.home / "note.txt").write_text("the secret word is marmalade")
    (connected.home / "square.png").write_bytes(_png())
    shared_server.tool = ("read", {"path": "note.txt"})
    first = len(shared_server.requests)
    answer = connected.pi("--model", MODEL, "@square.png", "what is in note.txt?").stdout
    assert answer.strip() == "hello from the recorder"
    sent = shared_server.last()
    result = sent.body["messages"][-1]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_1")
    assert "marmalade" in json.dumps(result["content"])
    assert not any(LIMITS & request.body.keys() for request in shared_server.requests[first:])
    parts = [p for m in sent.body["messages"] if isinstance(m["content"], list) for p in m["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert len(urls) == 1
    assert base64.b64decode(urls[0].partition("base64,")[2]).startswith(b"\x89PNG")


def test_other_providers_send_what_they_sent_before(machine: Machine, server: Recorder) -> None:
    """Same server, other provider and model: its limit and its key stay."""
    machine.agent.mkdir(parents=True)
    (machine.agent / "models.json").write_text(_other(server.url))
    machine.pi("--model", "mine/my-model", "hello")
    before = server.last()
    machine.connect()
    machine.pi("--model", "mine/my-model", "hello")
    after = server.last()
    assert LIMITS & before.body.keys()
    assert {n: after.body[n] for n in LIMITS & after.body.keys()} == {
        n: before.body[n] for n in LIMITS & before.body.keys()
    }
    assert after.headers["authorization"] == "Bearer literal-key-of-mine"


def test_the_default_starts_and_without_a_key_nothing_is_sent_to_anyone(
    machine: Machine, server: Recorder
) -> None:
    """With the recipe's "$NAME" reference, the current Pi sends the prompt to another provider when the key
    is not set. A list of enabled models that lacks ours makes it ignore the default."""
    machine.agent.mkdir(parents=True)
    (machine.agent / "models.json").write_text(_other(server.url))
    (machine.agent / "settings.json").write_text('{"enabledModels": ["mine/my-model"]}')
    machine.connect("--set-default")
    settings = json.loads((machine.agent / "settings.json").read_text())
    assert settings["enabledModels"] == ["mine/my-model", MODEL]
    failed = machine.pi("hello", key=None, check=None)
    assert failed.returncode != 0
    assert "OUR_KEY" in failed.stderr + failed.stdout
    assert server.requests == []
    machine.pi("hello")
    assert server.last().body["model"] == "the-model"


def test_summaries_go_out_without_limit(machine: Machine, server: Recorder) -> None:
    """Pi asks no extension about compaction; the recipe's extension leaves its limit in."""
    machine.agent.mkdir(parents=True)
    machine.agent.joinpath("settings.json").write_text(
        '{"compaction": {"enabled": true, "keepRecentTokens": 1, "reserveTokens": 1000}}'
    )
    machine.connect()
    argv = ["pi", "--mode", "rpc", "--model", MODEL]
    process = subprocess.Popen(
        argv,
        env=machine.variables | {"OUR_KEY": KEY},
        cwd=machine.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for word in ("one", "two"):
                print(json.dumps({"type": "prompt", "message": word * 200}), file=process.stdin, flush=True)
                _await(process.stdout, "agent_end")
            sent = len(server.requests)
            print(json.dumps({"type": "compact"}), file=process.stdin, flush=True)
            answer = _await(process.stdout, "response", command="compact")
        finally:
            process.kill()
    assert answer["success"], answer
    summaries = server.requests[sent:]
    assert summaries
    assert not any(LIMITS & request.body.keys() for request in summaries)


def _await(stream: object, kind: str, **more: object) -> dict[str, object]:
    for line in stream:  # type: ignore[attr-defined]
        event: dict[str, object] = json.loads(line)
        if event.get("type") == kind and all(event.get(k) == v for k, v in more.items()):
            return event
    raise AssertionError(f"Pi ended before {kind}")


def _png() -> bytes:
    """A red square of 32 by 32."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    size = (32).to_bytes(4, "big") * 2
    rows = (b"\0" + b"\xff\0\0" * 32) * 32
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size + b"\x08\x02\0\0\0")
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
