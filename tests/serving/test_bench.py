"""Bench: figures by their definitions, nothing lost when it is broken off, nothing mixed."""

from __future__ import annotations

import json
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparkop.errors import BlockedError, UsageError
from sparkop.hosts.local import LocalHost
from sparkop.serving.api import Answer, Api
from sparkop.serving.bench import Bench, Document, Plan, Step, missing, steps
from sparkop.serving.bench_file import carry_on, held, new_document, read_document, save
from sparkop.serving.figures import (
    Gauge,
    MetricNames,
    percentile,
    percentiles,
    request_record,
    stream_rate,
    together_rate,
)
from sparkop.serving.prompts import GATES, random_tokens, recall
from tests.images.conftest import Stage, eventually
from tests.serving.conftest import DONE, Body, Head, delta, event

NAMES = MetricNames("run", "wait", "kv", "accepted_total", "drafted_total")
VLLM = MetricNames("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
SMALL = Plan(prefill=(64, 300), kinds=("code",), concurrencies=(1, 2), contexts=(2000,), repeats=2)


def document() -> Document:
    return new_document("c", "tiny", "v1:x", "", "2026-11-30T12:00:00+0000")


class Time:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(times: list[float], tokens: int | None = None) -> Answer:
    answer = Answer(began=10.0, status=200, arrivals=times, finish="stop")
    answer.usage = {} if tokens is None else {"completion_tokens": tokens, "prompt_tokens": 5}
    return answer


def test_rates_are_those_of_the_recipe() -> None:
    """Per stream (n - 1) / (last - first); together all tokens / (latest last - earliest first)."""
    one = request_record(timed([11.0, 11.5, 12.0], tokens=21))
    two = request_record(timed([10.5, 13.0], tokens=11))
    assert one["ttft"] == 1.0
    assert one["gaps_ms"] == [500.0, 500.0]
    assert stream_rate(one) == pytest.approx(20.0)
    assert stream_rate(two) == pytest.approx(4.0)
    assert together_rate([one, two]) == pytest.approx(32 / 2.5)


def test_without_usage_chunks_are_counted_and_that_is_said() -> None:
    record = request_record(timed([11.0, 12.0, 13.0]))
    assert (record["completion_tokens"], record["counted_by"]) == (3, "chunks")


@pytest.mark.parametrize("times", [[], [11.0]])
def test_one_token_has_no_rate(times: list[float]) -> None:
    record = request_record(timed(times, tokens=len(times)))
    assert stream_rate(record) is None
    assert together_rate([record]) is None


def test_percentiles() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentiles(list(range(101))) == {"p50": 50, "p90": 90, "p99": 99}
    assert percentiles([7.0]) == {"p50": 7.0, "p90": 7.0, "p99": 7.0}
    assert percentiles([]) is None


def test_prompts_are_cut_to_the_context_and_not_run_twice() -> None:
    """Recipe A's 8k and 32k on a lab of 32768 tokens, and of 4096."""
    sizes = {s.size for s in steps(Plan(contexts=(175000,)), 32768) if s.what == "prefill"}
    assert sizes == {8192, 32752}
    small = steps(Plan(contexts=(175000,), repeats=1), 4096)
    assert [s.size for s in small if s.what == "prefill"] == [4080]
    assert [s.size for s in small if s.what == "context"] == [3072]
    assert {s.size for s in steps(Plan(), None) if s.what == "prefill"} == {8192, 32768}


def test_random_prompts_are_new_each_time_and_hold_no_control_tokens() -> None:
    source = random.SystemRandom()
    one, two = (random_tokens(1000, 129280, source) for _ in range(2))
    assert one != two
    assert min(one) >= 1000
    assert max(one) < 128000
    assert {len(set(random_tokens(500, v, source))) > 50 for v in (1024, None)} == {True}


def test_a_long_text_holds_each_number_once_far_apart() -> None:
    asked = recall(50_000, random.Random(1))
    places = [asked.text.index(f" {number}.") for number in asked.numbers]
    assert places == sorted(places)
    assert min(b - a for a, b in pairwise(places)) > 7000
    assert asked.found(f"amber {asked.numbers[0]}, ivory {asked.numbers[2]}") == 2
    assert asked.found("1" + asked.numbers[0]) == 0
    assert recall(900_000, random.Random(1)).text[:200] != recall(900_000, random.Random(2)).text[:200]


class Engine:
    """An engine whose time passes by its own answers."""

    def __init__(self) -> None:
        self.clock = Time()
        self.head = Head(self.reply)
        self.counters = {"accepted_total": 0.0, "drafted_total": 0.0}
        self.running = 0

    def bench(self) -> Bench:
        api = Api(self.head, 8000, "tiny", monotonic=self.clock)  # type: ignore[arg-type]
        return Bench(api, NAMES, 1024, 60.0, source=random.Random(1), sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.clock.now += seconds

    def reply(self, path: str, body: Any) -> Body:
        if path == "/metrics":
            figures = {"run": self.running, "wait": 0, "kv": 0.25, **self.counters}
            return Body(200, *(f"{name} {value}".encode() for name, value in figures.items()))
        if path == "/v1/completions":
            return Stream(self, 0.5, [event({"choices": [{"index": 0, "text": ""}]})] * 3)
        self.counters["drafted_total"] += 100
        self.counters["accepted_total"] += 60
        usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 41}}
        return Stream(
            self, 0.5, [*[delta(content=f"w{i}") for i in range(21)], delta("stop"), event(usage), DONE]
        )


class Stream(Body):
    """Each line takes half a second."""

    def __init__(self, engine: Engine, seconds: float, lines: list[bytes]) -> None:
        super().__init__(200, *lines)
        self.engine, self.seconds, self.read_lines = engine, seconds, 0

    def lines(self) -> Any:
        for line in super().lines():
            self.engine.clock.now += self.seconds
            self.read_lines += 1
            yield line


def test_a_prefill_is_the_prompt_over_the_first_token_and_is_closed_after_it() -> None:
    """The first token may have an empty text; nothing after it may be waited for."""
    engine, made = Engine(), document()
    engine.bench().run(Step("prefill", 300), made)
    run = made["prefill"]["300"]["runs"][0]
    assert run["tok_s"] == pytest.approx(600)
    assert run["chunks"] == 1
    body = next(b for p, _, b in engine.head.asked if p == "/v1/completions")
    assert len(body["prompt"]) == 300
    assert "max_tokens" not in body


def test_a_decode_counts_by_usage_and_reads_the_drafts_of_its_own_run() -> None:
    """41 tokens in 21 chunks: with drafts a chunk holds several tokens."""
    engine, made = Engine(), document()
    engine.counters = {"accepted_total": 1000.0, "drafted_total": 1000.0}
    told = engine.bench().run(Step("decode", 1, "code"), made)
    run = made["decode"][0]
    assert run["per_stream"] == [pytest.approx(40 / 10)]
    assert run["acceptance"] == 0.6
    assert run["others"] is False
    assert "4.0 tok/s" in told
    bodies = [b for p, _, b in engine.head.asked if p == "/v1/chat/completions"]
    assert all("max_tokens" not in b and "temperature" not in b for b in bodies)


def test_acceptance_that_is_a_gauge_is_averaged_over_the_run() -> None:
    """SGLang has no counters of drafts."""
    engine = Engine()
    engine.counters = {"rate": 0.75}
    names = MetricNames("run", "wait", "kv", acceptance="rate")
    gauge = Gauge(engine.bench().api, names, 1)
    with gauge.watching():
        eventually(lambda: len([p for p, _, _ in engine.head.asked if p == "/metrics"]) > 1, what="a look")
    assert gauge.record() == {"acceptance": 0.75, "pool_peak": 0.25, "others": False}


def test_others_that_do_not_end_are_said_in_the_figures() -> None:
    engine, made = Engine(), document()
    engine.running = 3
    told = engine.bench().run(Step("prefill", 300), made)
    assert made["prefill"]["300"]["runs"][0]["others"] is True
    assert "others" in told
    assert engine.clock.now < 200, "it does not wait for ever"


def test_a_refused_prompt_ends_with_the_engines_words_and_what_was_measured_stays() -> None:
    engine, made = Engine(), document()
    engine.bench().run(Step("prefill", 300), made)
    engine.head.reply = lambda path, body: (
        Body(400, b'{"error": {"message": "maximum context length is 512"}}')
        if body
        else engine.reply(path, body)
    )
    with pytest.raises(BlockedError) as caught:
        engine.bench().run(Step("prefill", 400), made)
    assert "maximum context length is 512" in str(caught.value.cause)
    assert list(made["prefill"]) == ["300"]


def served(stage: Stage, *arguments: str, **environment: str) -> tuple[Api, Any]:
    process = stage.vllm(
        "--enable-force-include-usage", "--max-num-seqs", "4", *arguments, **environment
    ).ready()
    return Api(LocalHost("here"), process.port, str(stage.model)), process


def test_all_of_it_over_real_http(stage: Stage) -> None:
    """Every step, and nothing left to do after it; tokens come 2 ms apart or more, and so they are told."""
    api, process = served(stage, LAB_STANDIN_TOKEN_SECONDS="0.002")
    bench, made = Bench(api, VLLM, 1024, 30.0), document()
    wanted = steps(SMALL, 32768)
    bench.warm_up(wanted)
    assert (made["prefill"], made["decode"]) == ({}, []), "a warm-up is not recorded"
    for step in missing(wanted, made):
        bench.run(step, made)
    assert missing(wanted, made) == []
    assert {size: len(e["runs"]) for size, e in made["prefill"].items()} == {"64": 2, "300": 2}
    assert [run["prompt_tokens"] for run in made["prefill"]["300"]["runs"]] == [300, 300]
    assert [(d["C"], d["rep"]) for d in made["decode"]] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for run in made["decode"]:
        assert len(run["reqs"]) == run["C"]
        assert all(50 < rate <= 500 for rate in run["per_stream"]), run["per_stream"]
        assert run["aggregate"] <= 500 * run["C"]
        assert all(r["counted_by"] == "usage" and r["finish"] == "stop" for r in run["reqs"])
    both = made["decode"][-1]["reqs"]
    assert max(r["t0"] for r in both) < min(r["t_last"] for r in both), "the streams ran side by side"
    assert made["ctx"][0]["asked"] == len(GATES)
    running = lambda: "num_requests_running{" in process.ask("/metrics").text  # noqa: E731
    assert eventually(running)


def test_an_engine_that_dies_keeps_what_was_measured(stage: Stage, tmp_path: Path) -> None:
    api, process = served(stage, LAB_STANDIN_TOKEN_SECONDS="0.05")
    bench, made = Bench(api, VLLM, 1024, 30.0), document()
    bench.run(Step("prefill", 64), made)
    path = tmp_path / "b.json"
    save(path, made)
    killer = threading.Timer(0.5, process.popen.kill)
    killer.start()
    with pytest.raises(BlockedError) as caught:
        bench.run(Step("decode", 2, "prose"), made)
    killer.join()
    assert "carries on" in str(caught.value.remedy)
    left = missing([Step("prefill", 64), Step("decode", 2, "prose")], carry_on(path, document()))
    assert left == [Step("decode", 2, "prose")]


def test_a_file_of_something_else_is_not_carried_on(tmp_path: Path) -> None:
    """Figures of two configurations in one file would be worthless."""
    path = tmp_path / "b.json"
    assert carry_on(path, document()) == document()
    save(path, document())
    for name, other in (("model", "big"), ("configuration", "v1:y"), ("cluster", "d")):
        with pytest.raises(UsageError) as caught:
            carry_on(path, {**document(), name: other})
        assert name in str(caught.value)
        assert "--fresh" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "7",
        '{"prefill": []}',
        '{"prefill": {}, "decode": 7}',
        "\xff",
        '{"prefill": {"8": {}}}',
        '{"prefill": {"x": {"runs": [{}]}}}',
        '{"prefill": {}, "decode": [{"C": 1}]}',
        '{"prefill": {}, "ctx": [1]}',
        '{"prefill": {"8": {"median": 1.0, "runs": [{"tok_s": "1"}]}}}',
        '{"prefill": {"8": {"runs": [{"tok_s": 1.0}]}}}',
        '{"prefill": {"8": {"median": NaN, "runs": []}}}',
        '{"prefill": {}, "decode": null}',
        '{"prefill": {}, "decode": [{"C": "1", "kind": "code", "per_stream_median": 1.0, "aggregate": 1.0, '
        '"reqs": []}]}',
        '{"prefill": {}, "ctx": [{"target_tokens": 5, "prefill_tok_s": 1e400, "decode_tok_s": null}]}',
    ],
)
def test_rubbish_is_no_measurement(tmp_path: Path, content: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError):
        read_document(path)


def test_saving_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "b.json"
    save(path, document())
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save(path, {**document(), "label": object()})
    assert path.read_bytes() == before
    with pytest.raises(UsageError):
        save(Path("/proc/no/b.json"), document())


def test_recipes_own_files_are_read(tmp_path: Path) -> None:
    """The shape of recipe A's script: no version, no gaps, runs by size."""
    request = {"t0": 1.0, "ttft": 0.5, "t_first": 1.5, "t_last": 2.5, "completion_tokens": 11,
               "prompt_tokens": 9, "chunks": 11, "finish": "stop"}  # fmt: skip
    recipe = {
        "label": "", "model": "m", "ts": "2026", "ctx": [],
        "prefill": {"8192": {"median": 2050.0, "runs": [{**request, "tok_s": 2050.0}]}},
        "decode": [{"C": 1, "kind": "code", "per_stream": [10.0], "per_stream_median": 10.0,
                    "aggregate": 11.0, "reqs": [request], "rep": 0}],
    }  # fmt: skip
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    from sparkop.serving.summary import rows

    assert [(row.name, row.each) for row in rows(read_document(path))] == [
        ("prefill 8,192", (2050.0,)),
        ("decode code x1", (10.0,)),
    ]


def test_two_benches_do_not_share_a_file(tmp_path: Path) -> None:
    """They would mix their figures, and each measure the other's load."""
    path = tmp_path / "new" / "b.json"
    with held(path), pytest.raises(UsageError) as caught, held(path):
        pass
    assert "--out" in str(caught.value.remedy)
    with held(path):
        pass
    assert list(path.parent.iterdir()) == []
