"""What bench leaves on the head: status shows it, watch measures serving by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkop.cli.bench import bench, spread
from sparkop.errors import UsageError
from sparkop.reconcile.served import offer_of
from sparkop.reconcile.speeds import FILE, Speeds, configuration, slow, speeds_in, speeds_of, store
from sparkop.reconcile.status import status_of
from sparkop.views import bench_picture
from tests.engines.specs import RECIPE_A, RECIPE_B, spec
from tests.reconcile.simulation import Cluster, spec_of
from tests.serving.test_summary import measured

SEVERAL: dict[str, list[str]] = {"--conc": [], "--kinds": ["code", "prose"]}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("a.yaml --conc 1 2 --out x", "a.yaml --conc 1 --conc 2 --out x"),
        ("--conc 1 2 4 a.yaml 8", "--conc 1 --conc 2 --conc 4 a.yaml 8"),
        ("--conc=1 2 --reps 3", "--conc=1 --conc 2 --reps 3"),
        ("--kinds code prose --label 5 6", "--kinds code --kinds prose --label 5 6"),
    ],
)
def test_several_numbers_after_an_option(words: str, meant: str) -> None:
    """`--conc 1 2`, as the recipe's script and the issue write it."""
    assert spread(words.split(), SEVERAL) == meant.split()


def test_the_medians_are_kept_and_know_their_configuration() -> None:
    cluster = spec(RECIPE_A)
    document = {**measured(40.0), "finished": "2026-11-30T12:00:00+0000", "ts": "x",
                "configuration": configuration(cluster)}  # fmt: skip
    found = speeds_of(document)
    assert found.decode == {"code/2": 60.0}
    assert configuration(spec(RECIPE_A, {"engine.maxSequences": 3})) != found.configuration
    assert configuration(spec(RECIPE_A, {"api.port": 8001})) == found.configuration


def test_status_finds_what_was_stored_and_apply_has_nothing_to_do() -> None:
    """In the head's state folder, under the lease; no drift."""
    cluster = Cluster.make()
    cluster.apply()
    kept = Speeds("2026-11-30T12:00:00+0000", configuration(cluster.spec), {"8192": 2050.0}, {"code/1": 40.5})
    store(cluster.spec, cluster.hosts(), kept)
    reading = cluster.observe()
    status = status_of(reading, cluster.plan())
    assert status.speeds == kept
    assert status.speeds.current
    assert cluster.plan().operations == ()
    worker = reading.observed.documents["spark-2"]
    assert FILE not in (worker.state or {})
    other = speeds_in(spec_of(engine={"maxSequences": 9}), reading.observed.documents["spark-1"])
    assert other is not None
    assert not other.current


@pytest.mark.parametrize(
    "content", [None, [], {}, {"at": "x", "configuration": "y", "prefill": 3, "decode": {}}]
)
def test_a_damaged_file_is_no_figure(content: object) -> None:
    cluster = Cluster.make()
    document = cluster.observe().observed.documents["spark-1"]
    assert speeds_in(cluster.spec, replace(document, state={FILE: content})) is None
    assert speeds_in(cluster.spec, None) is None


def test_slow_serving_is_warned_of_only_when_it_is_comparable() -> None:
    """A false alarm is worse than a late one."""
    kept = Speeds("2026-11-30T12:00:00+0000", "v1:x", {}, {"code/2": 60.0, "prose/2": 40.0, "code/1": 40.0})
    assert slow(kept, 2, 21.0) is None, "prose is slower than code: the slowest kind is the bar"
    assert "19.0 tok/s" in str(slow(kept, 2, 19.0))
    assert slow(kept, 3, 0.1) is None
    assert slow(None, 1, 0.1) is None
    assert slow(Speeds("x", "y", {}, {"code/1": 40.0}, current=False), 1, 0.1) is None


def test_what_is_offered_follows_from_parsers_wherever_they_are_given() -> None:
    lab = spec("lab")
    assert offer_of(lab, {"model_type": "llama"}) == offer_of(lab, {"vocab_size": 7})
    assert (offer_of(lab, {"x": 1}).tools, offer_of(lab, {"x": 1}).reasoning) == (True, False)
    assert offer_of(lab, {"x": 1}).vision is False
    assert offer_of(lab, {}).vision is None, "an unreadable configuration proves nothing"
    assert offer_of(lab, {"vision_config": {}}).vision is True
    extra = spec("lab", {"engine.extraArgs": ["--reasoning-parser", "deepseek_r1"]})
    assert offer_of(extra, {}).reasoning is True
    assert offer_of(spec(RECIPE_A), {"x": 1}).vision is True, "prompt limits of the spec promise pictures"
    assert offer_of(spec(RECIPE_B), {"vision_config": {}}).tools is True


def test_a_picture_without_matplotlib_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError) as caught:
        bench_picture.check_drawable(Path("x.png"))
    assert "sparkop[bench]" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["nowhere/x.png", "x.doc"])
def test_a_picture_that_can_t_be_written_is_told_before_hours_are_measured(tmp_path: Path, name: str) -> None:
    """With no cluster at all: the command must end before it looks for one."""
    done = CliRunner().invoke(bench, ["no-such-spec.yaml", "--plot", str(tmp_path / name)])
    assert isinstance(done.exception, UsageError)
    assert name.rpartition(".")[2] in str(done.exception)


def test_nothing_to_measure_is_no_measurement(tmp_path: Path) -> None:
    """An empty file would be written, and --fresh would lose a full one."""
    words = ["specs/lab.yaml", "--conc", "0", "--prefill", "0", "--ctx", "0", "--fresh", "--out"]
    done = CliRunner().invoke(bench, [*words, str(tmp_path / "b.json")])
    assert "nothing to measure" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_the_picture_is_a_png_also_of_few_figures(tmp_path: Path) -> None:
    for number, few in enumerate((measured(40.0), {"prefill": {}, "decode": [], "ctx": []})):
        path = tmp_path / f"{number}.png"
        bench_picture.draw({**few, "model": "m", "ts": "now"}, path)
        assert path.read_bytes().startswith(b"\x89PNG")
