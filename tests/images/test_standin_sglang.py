"""The stand-in in SGLang's manner (facts of engine-facts, section 2)."""

from __future__ import annotations

import signal
import time

import pytest

from tests.images.conftest import Stage, eventually

RECIPE_B = [
    "--served-model-name",
    "Qwen3.8-Flash-Next-NVFP4",
    "--trust-remote-code",
    "--quantization",
    "modelopt_fp4",
    "--attention-backend",
    "flashinfer",
    "--page-size",
    "64",
    "--mamba-ssm-dtype",
    "bfloat16",
    "--mamba-radix-cache-strategy",
    "extra_buffer",
    "--mamba-track-interval",
    "64",
    "--mem-fraction-static",
    "0.82",
    "--chunked-prefill-size",
    "1024",
    "--max-running-requests",
    "16",
    "--context-length",
    "900000",
    "--speculative-algorithm",
    "NEXTN",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "4",
    "--reasoning-parser",
    "auto",
    "--tool-call-parser",
    "auto",
    "--enable-metrics",
    "--enable-cache-report",
    "--disable-prefill-cuda-graph",
    "--host",
    "127.0.0.1",
    "--max-prefill-tokens",
    "2048",
    "--mamba-full-memory-ratio",
    "0.3",
    "--cuda-graph-bs-decode",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "10",
    "12",
    "14",
    "16",
]
OVERRIDE = ["--json-model-override-args", '{"text_config":{"max_position_embeddings":1048576}}']


def test_recipe_b_starts_on_two_ranks(stage: Stage) -> None:
    head, worker = stage.sglang_pair(*RECIPE_B, *OVERRIDE)
    eventually(lambda: "fired up and ready to roll!" in head.output)
    assert "max_total_num_tokens=" in head.output
    entry = head.ask("/v1/models").json["data"][0]
    assert (entry["id"], entry["max_model_len"]) == ("Qwen3.8-Flash-Next-NVFP4", 900000)
    metrics = head.ask("/metrics").text
    pool = next(line for line in metrics.splitlines() if line.startswith("sglang:max_total_num_tokens{"))
    assert float(pool.rpartition(" ")[2]) > 900000
    assert "391" in head.chat("What is 17 * 23?").json["choices"][0]["message"]["content"]
    thought = head.chat("hello", chat_template_kwargs={"enable_thinking": True}).json
    assert thought["choices"][0]["message"]["reasoning_content"]
    assert worker.ask("/health").status == 200


def test_metrics_need_their_flag(stage: Stage) -> None:
    assert stage.sglang().ready().ask("/metrics").status == 404


def test_with_a_key_everything_but_health_and_metrics_needs_it(stage: Stage) -> None:
    rank = stage.sglang("--api-key", "s3cret", "--enable-metrics", key="s3cret").ready()
    rank.key = None
    assert [rank.ask(path).status for path in ("/health", "/metrics")] == [200, 200]
    assert [rank.ask(path).status for path in ("/v1/models", "/server_info")] == [401, 401]


def test_over_long_prompts_are_refused_or_cut(stage: Stage) -> None:
    body = {"prompt": list(range(600)), "max_tokens": 4}
    assert stage.sglang("--context-length", "512").ready().ask("/v1/completions", body).status == 400
    cut = (
        stage.sglang("--context-length", "512", "--allow-auto-truncate").ready().ask("/v1/completions", body)
    )
    assert cut.json["usage"]["prompt_tokens"] < 512


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--swa-block-size", "128"], "unrecognized arguments"),
        (["--mamba-radix-cache-strategy", "some"], "invalid choice"),
        (["--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
          "--speculative-num-draft-tokens", "5"],
         "must be 4"),
        (["--nnodes", "2", "--tp-size", "2"], "--dist-init-addr"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_ends_with_2(stage: Stage, arguments: list[str], words: str) -> None:
    rank = stage.sglang(*arguments)
    assert rank.wait() == 2
    assert words in rank.output


def test_the_follower_ignores_term_and_ends_with_rank_0(stage: Stage) -> None:
    """`docker stop` of rank 1 first burns its whole time; stopping rank 0 ends both."""
    head, worker = stage.sglang_pair()
    worker.popen.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert worker.popen.poll() is None
    head.popen.send_signal(signal.SIGTERM)
    assert head.wait(3) == 0
    assert worker.wait(3) == 0


def test_a_follower_without_its_leader_stays_green(stage: Stage) -> None:
    head, worker = stage.sglang_pair()
    head.popen.kill()
    head.wait()
    time.sleep(0.3)
    assert worker.popen.poll() is None
    assert worker.ask("/health").status == 200


def test_a_lost_follower_hangs_the_request_until_the_watchdog_kills(stage: Stage) -> None:
    head, worker = stage.sglang_pair("--watchdog-timeout", "1", SGLANG_HEALTH_CHECK_TIMEOUT="0.3")
    worker.popen.kill()
    worker.wait()
    assert head.ask("/v1/models").status == 200
    assert head.ask("/health").status == 503
    assert head.chat("hello").status in (0, 500)
    assert head.wait(5) == -signal.SIGKILL


def test_a_wedge_keeps_the_model_list_green_and_fails_the_deep_health_check(stage: Stage) -> None:
    rank = stage.sglang(SGLANG_HEALTH_CHECK_TIMEOUT="0.3").ready()
    rank.fault("wedge")
    assert rank.ask("/v1/models").status == 200
    assert rank.ask("/health").status == 503
    rank.mend("wedge")
    assert rank.ask("/health").status == 200
