"""The stand-in in vLLM's manner: as the engine was measured, or tests on it prove nothing."""

from __future__ import annotations

import base64
import json
import signal
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.images.conftest import Stage, eventually, free_port

WEATHER_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"location": {}}}},
}


def halves(left: tuple[int, int, int], right: tuple[int, int, int], size: int = 128) -> str:
    """A PNG, left half one colour, right half another, as a data URL."""
    row = b"\0" + bytes(left) * (size // 2) + bytes(right) * (size // 2)

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", head)
        + part(b"IDAT", zlib.compress(row * size))
        + part(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def metric(text: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + "{"))


def test_it_serves_at_once(stage: Stage) -> None:
    """Fast tests start many of them."""
    begun = time.monotonic()
    stage.vllm().ready()
    assert time.monotonic() - begun < 10  # 0.2 s on an idle machine


def test_the_smoke_questions_are_answered(stage: Stage) -> None:
    rank = stage.vllm("--served-model-name", "tiny").ready()
    answer = rank.chat("What is 17 * 23? Answer with the number only.", temperature=0).json
    assert "391" in answer["choices"][0]["message"]["content"]
    assert answer["model"] == "tiny"
    assert "Hello" in rank.chat("Say hello in one short sentence.").json["choices"][0]["message"]["content"]
    assert "391" not in rank.chat("What is 17 * 24?").json["choices"][0]["message"]["content"]


def test_a_tool_call_names_tool_and_city_in_the_tools_own_parameter(stage: Stage) -> None:
    rank = stage.vllm("--enable-auto-tool-choice", "--tool-call-parser", "hermes").ready()
    choice = rank.chat("What is the weather in New York?", tools=[WEATHER_TOOL]).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    function = choice["message"]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"location": "New York"})
    streamed = rank.chat("What is the weather in Paris?", tools=[WEATHER_TOOL], stream=True).events
    deltas = [event["choices"][0]["delta"] for event in streamed]
    parts = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
    assert json.loads("".join(part["arguments"] for part in parts)) == {"location": "Paris"}
    assert [part["name"] for part in parts if "name" in part] == ["get_weather"]


def test_tools_need_the_parser_flags(stage: Stage) -> None:
    """As vLLM does: a spec that forgets the parser must fail its smoke test in the lab too."""
    reply = stage.vllm().ready().chat("What is the weather in Paris?", tools=[WEATHER_TOOL])
    assert reply.status == 400
    assert "--enable-auto-tool-choice" in reply.json["error"]["message"]


def test_it_looks_at_the_picture(stage: Stage) -> None:
    rank = stage.vllm("--limit-mm-per-prompt", '{"image":1}').ready()

    def seen(*urls: str) -> Any:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        content = [{"type": "text", "text": "Which colours?"}, *parts]
        return rank.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})

    def text(reply: Any) -> str:
        return str(reply.json["choices"][0]["message"]["content"])

    red, blue = (255, 0, 0), (0, 0, 255)
    assert text(seen(halves(red, blue))).index("red") < text(seen(halves(red, blue))).index("blue")
    assert text(seen(halves(blue, red))).index("blue") < text(seen(halves(blue, red))).index("red")
    assert seen(halves(red, blue), halves(red, blue)).status == 400
    assert seen("data:image/png;base64,AAAA").status == 400


def test_a_stream_adds_up_to_the_answer_and_ends_with_usage(stage: Stage) -> None:
    rank = stage.vllm().ready()
    events = rank.chat("hello", stream=True, stream_options={"include_usage": True}).events
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    whole = rank.chat("hello").json
    assert text == whole["choices"][0]["message"]["content"]
    assert events[-1]["usage"] == whole["usage"]
    assert events[-1]["usage"]["completion_tokens"] > 5


def test_completions_count_token_ids_exactly_and_stop_at_max_tokens(stage: Stage) -> None:
    """The benchmark's prefill measure sends random token ids and counts on the server's usage."""
    rank = stage.vllm().ready()
    answer = rank.ask(
        "/v1/completions", {"prompt": list(range(2000)), "max_tokens": 7, "ignore_eos": True}
    ).json
    assert answer["usage"] == {"prompt_tokens": 2000, "completion_tokens": 7, "total_tokens": 2007}
    assert answer["choices"][0]["finish_reason"] == "length"


def test_an_over_long_prompt_is_refused(stage: Stage) -> None:
    rank = stage.vllm("--max-model-len", "512").ready()
    reply = rank.ask("/v1/completions", {"prompt": list(range(600))})
    assert reply.status == 400
    assert "maximum context length is 512 tokens" in reply.json["error"]["message"]
    assert rank.ask("/v1/completions", {"prompt": list(range(500)), "max_tokens": 13}).status == 400
    assert rank.ask("/v1/models").json["data"][0]["max_model_len"] == 512


def test_an_unknown_model_name_is_not_found(stage: Stage) -> None:
    assert stage.vllm("--served-model-name", "tiny").ready().chat("hello", model="other").status == 404


@pytest.mark.parametrize("way", ["flag", "file"])
def test_the_key_guards_v1_and_nothing_else(stage: Stage, way: str) -> None:
    """The key must reach the engine through a mounted file, and a probe without it must be refused."""
    file = stage.folder / "engine.yaml"
    file.write_text("# of sparkop\napi-key: 's3cret'\n")
    flags = ["--api-key", "s3cret"] if way == "flag" else ["--config", str(file)]
    rank = stage.vllm(*flags, key="s3cret").ready()
    assert rank.ask("/v1/models", key="wrong").status == 401
    assert rank.ask("/v1/chat/completions", {"messages": []}, key="wrong").json == {"error": "Unauthorized"}
    rank.key = None
    assert [rank.ask(path).status for path in ("/health", "/metrics", "/v1/models")] == [200, 200, 401]


def test_the_command_line_wins_over_the_configuration_file(stage: Stage) -> None:
    file = stage.folder / "engine.yaml"
    file.write_text("served-model-name: from-file\nmax-model-len: 1024\nenable-prefix-caching: true\n")
    rank = stage.vllm("--config", str(file), "--served-model-name", "from-line").ready()
    assert [rank.ask("/v1/models").json["data"][0][name] for name in ("id", "max_model_len")] == [
        "from-line",
        1024,
    ]


RECIPE_A = [
    "--dtype",
    "bfloat16",
    "--kv-cache-dtype",
    "fp8",
    "--block-size",
    "256",
    "--swa-block-size",
    "128",
    "--kv-cache-memory-bytes",
    "2700000000",
    "--gpu-memory-utilization",
    "0.88",
    "--max-model-len",
    "262144",
    "--max-num-seqs",
    "2",
    "--max-num-batched-tokens",
    "2048",
    "--max-cudagraph-capture-size",
    "16",
    "--enable-chunked-prefill",
    "--async-scheduling",
    "--enable-prefix-caching",
    "--safetensors-load-strategy",
    "lazy",
    "--attention-backend",
    "B12X",
    "--linear-backend",
    "b12x",
    "--moe-backend",
    "b12x",
    "--generation-config",
    "vllm",
    "--tokenizer-mode",
    "deepseek_v41",
    "--reasoning-parser",
    "deepseek_v41",
    "--tool-call-parser",
    "deepseek_v41",
    "--enable-auto-tool-choice",
    "--enable-prompt-tokens-details",
    "--enable-force-include-usage",
]
RECIPE_A_JSON = [
    "--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY","custom_ops":["all"]}',
    "--engram-config", '{"cpu_offload":false,"table_memory":"disk"}',
    "--speculative-config", '{"method":"dspark","num_speculative_tokens":7}',
    "--limit-mm-per-prompt", '{"image":1}',
]  # fmt: skip


def test_recipe_a_starts_on_two_ranks_and_shows_its_settings(stage: Stage) -> None:
    head, worker = stage.vllm_pair(*RECIPE_A, *RECIPE_A_JSON)
    answer = head.chat("hello", chat_template_kwargs={"thinking": True}).json
    assert answer["choices"][0]["message"]["reasoning"]
    assert "prompt_tokens_details" in answer["usage"]
    assert "GPU KV cache size:" in head.output
    assert head.chat("hello", stream=True).events[-1]["usage"]["completion_tokens"] > 0  # forced
    assert worker.popen.poll() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-modle-len", "100"], "unrecognized arguments"),
        (["--max-model-len", "many"], "--max-model-len"),
        (["--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (["--speculative-config", "{"], "JSON"),
        (["--enable-auto-tool-choice"], "--tool-call-parser"),
        (["--tensor-parallel-size", "3", "--nnodes", "2"], "divisible"),
        (["--tensor-parallel-size", "2", "--nnodes", "2", "--node-rank", "2"], "node_rank"),
        (["--config", "/no/such.yaml"], "such.yaml"),
    ],
)
def test_a_wrong_command_line_ends_with_2(stage: Stage, arguments: list[str], words: str) -> None:
    rank = stage.vllm(*arguments)
    assert rank.wait() == 2
    assert "error:" in rank.output
    assert words in rank.output


def test_a_missing_shard_ends_with_1_and_is_named(stage: Stage) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (stage.model / "model.safetensors.index.json").write_text(json.dumps(index))
    (stage.model / "model-00001-of-00002.safetensors").write_bytes(b"weights")
    rank = stage.vllm()
    assert rank.wait() == 1
    assert "model-00002-of-00002.safetensors" in rank.output


def test_no_configuration_ends_with_1(stage: Stage) -> None:
    (stage.model / "config.json").unlink()
    rank = stage.vllm()
    assert rank.wait() == 1
    assert "config.json" in rank.output


def test_a_plan_with_a_missing_bank_ends_with_1(stage: Stage, tmp_path: Path) -> None:
    """Bank paths that were not rewritten to the container's must show."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"qdir": f"{tmp_path}:/model/exl3/qn"}))
    rank = stage.vllm(ST_EXL3_PLAN=str(plan))
    assert rank.wait() == 1
    assert "/model/exl3/qn" in rank.output


def test_rank_0_alone_waits_without_answering_and_ignores_term(stage: Stage) -> None:
    """Measured: torch's rendezvous does not end on SIGTERM; `docker stop` burns its whole time."""
    both = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-port", str(free_port())]
    rank = stage.vllm(*both)
    eventually(lambda: "rendezvous at" in rank.output)
    assert rank.ask("/health").status == 0
    rank.popen.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert rank.popen.poll() is None


def test_ranks_with_other_arguments_do_not_come_together(stage: Stage) -> None:
    """Ranks of two generations must never make one group."""
    master = str(free_port())
    both = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-port", master]
    stage.vllm(*both, "--node-rank", "1", "--headless", "--max-model-len", "1024")
    head = stage.vllm(*both)
    assert head.wait() == 1
    assert "other arguments" in head.output


def test_a_dead_rank_is_noticed_by_the_next_request_only_and_ends_with_0(stage: Stage) -> None:
    """Measured: health stays 200; the next request gets 500, then the server is gone, exit code 0."""
    head, worker = stage.vllm_pair()
    worker.popen.kill()
    worker.wait()
    time.sleep(0.3)
    assert [head.ask(path).status for path in ("/health", "/v1/models")] == [200, 200]
    assert head.chat("hello").status == 500
    assert head.wait(3) == 0


def test_a_stream_that_loses_its_rank_ends_without_an_answer(stage: Stage) -> None:
    head, worker = stage.vllm_pair(LAB_STANDIN_TOKEN_SECONDS="0.05")
    worker.fault("slow")  # has no meaning on rank 1
    import threading

    threading.Timer(0.5, worker.popen.kill).start()
    events = head.chat("write a story", stream=True).events
    assert "error" in events[-1]
    assert len(events) > 2
    assert head.wait(3) == 0


def test_a_follower_does_not_notice_that_rank_0_is_gone(stage: Stage) -> None:
    """Measured: alive at 200 s. The reconciler has to remove it."""
    head, worker = stage.vllm_pair()
    head.popen.kill()
    head.wait()
    time.sleep(0.5)
    assert worker.popen.poll() is None
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait(5) == 0


def test_term_ends_rank_0_at_once_with_0(stage: Stage) -> None:
    head, worker = stage.vllm_pair()
    head.popen.send_signal(signal.SIGTERM)
    assert head.wait(3) == 0
    assert worker.popen.poll() is None


def test_die_ends_with_0_or_the_code_that_is_asked(stage: Stage) -> None:
    first, second = stage.vllm().ready(), stage.vllm().ready()
    first.fault("die")
    second.fault("die", "137")
    assert (first.wait(3), second.wait(3)) == (0, 137)


@pytest.mark.parametrize("on", ["head", "worker"])
def test_a_wedge_is_green_runs_and_yields_nothing_until_it_is_mended(stage: Stage, on: str) -> None:
    """Recipe B's users met it on either rank; a canary that trusts health alone misses it (principle 5)."""
    import threading

    head, worker = stage.vllm_pair()
    wedged = head if on == "head" else worker
    wedged.fault("wedge")
    before = metric(head.ask("/metrics").text, "vllm:generation_tokens_total")
    replies: list[Any] = []
    threading.Thread(target=lambda: replies.append(head.chat("hello")), daemon=True).start()
    eventually(lambda: metric(head.ask("/metrics").text, "vllm:num_requests_running") == 1)
    time.sleep(0.4)
    assert [head.ask(path).status for path in ("/health", "/v1/models")] == [200, 200]
    assert metric(head.ask("/metrics").text, "vllm:generation_tokens_total") == before
    assert not replies
    wedged.mend("wedge")
    assert eventually(lambda: replies)[0].status == 200


def test_a_wedge_that_lasts_longer_than_a_step_may_kills_the_engine(stage: Stage) -> None:
    head, worker = stage.vllm_pair(VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS="1")
    worker.fault("wedge")
    assert head.chat("hello").status == 500
    assert head.wait(3) == 0


def test_degenerate_answers_are_token_zero_to_the_limit(stage: Stage) -> None:
    rank = stage.vllm().ready()
    rank.fault("degenerate")
    choice = rank.chat("hello", max_tokens=30).json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("!" * 30, "length")


def test_slow_is_slow_a_token(stage: Stage) -> None:
    rank = stage.vllm().ready()
    rank.fault("slow", "0.1")
    begun = time.monotonic()
    assert rank.chat("hello", max_tokens=5).json["usage"]["completion_tokens"] == 5
    assert time.monotonic() - begun >= 0.5


def test_start_slowly_shows_progress_and_ends_when_mended(stage: Stage) -> None:
    rank = stage.vllm(LAB_STANDIN_FAULTS="start-slowly=1")
    eventually(lambda: "Loading safetensors checkpoint shards" in rank.output)
    assert rank.ask("/health").status == 0
    rank.ready()
    assert rank.chat("hello").status == 200


def test_a_failed_start_ends_with_1(stage: Stage) -> None:
    rank = stage.vllm(LAB_STANDIN_FAULTS="fail-start")
    assert rank.wait() == 1
    assert "Engine core initialization failed" in rank.output


def test_more_requests_than_slots_wait(stage: Stage) -> None:
    import threading

    rank = stage.vllm("--max-num-seqs", "1").ready()
    rank.fault("wedge")
    for _ in range(3):
        threading.Thread(target=lambda: rank.chat("hello"), daemon=True).start()
    eventually(lambda: metric(rank.ask("/metrics").text, "vllm:num_requests_waiting") == 2)
    assert metric(rank.ask("/metrics").text, "vllm:num_requests_running") == 1
    rank.mend("wedge")
    eventually(lambda: metric(rank.ask("/metrics").text, "vllm:num_requests_running") == 0)
