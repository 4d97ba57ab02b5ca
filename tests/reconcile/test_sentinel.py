"""What a user puts into the environment may be a secret under any name: only render shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sparkop.engines.render import as_json, docker_command
from sparkop.errors import SpecError
from sparkop.reconcile.facts import record_facts
from sparkop.reconcile.rendering import rendering_of
from sparkop.resources.labels import DESIRED, HASH
from sparkop.views.plan import plan_json
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of

FIRST, SECOND = "sentinel-5c1-first", "sentinel-5c1-second"


def with_value(value: str | None) -> dict[str, Any]:
    """The engine's section with the sentinel under a name that says nothing, or without it."""
    own = {} if value is None else {"MY_SETTING": value}
    return {"kind": "vllm", "context": 32768, "environment": own, "container": {"caches": {"/cache": "."}}}


def shown(cluster: Cluster) -> Iterator[str]:
    """Everything that is shown without being asked for, or goes into reports."""
    plan = cluster.plan()
    yield "\n".join(plan_lines(plan))
    yield json.dumps(plan_json(plan))
    yield repr(plan)
    yield repr(cluster.events)
    yield json.dumps(record_facts(cluster.spec, cluster.hosts(), resources=SIMULATED)[0])
    for node in cluster.world.nodes.values():
        yield from (content.decode("utf-8", "replace") for content, _ in node.files.values())
        yield from (repr(container.spec.labels) for container in node.containers.values())


def test_the_environment_of_the_user_is_shown_nowhere() -> None:
    """Labels, plans, events, histories, incidents, facts: before, during and after a change."""
    cluster = Cluster.make(engine=with_value(FIRST))
    seen = [*shown(cluster)]
    cluster.apply()
    seen += shown(cluster)
    before = cluster.rank(0)[1].spec.labels
    for value in (SECOND, None):
        cluster.spec = spec_of(engine=with_value(value))
        seen += shown(cluster)
        cluster.apply()
        seen += shown(cluster)
    assert before[HASH] != cluster.rank(0)[1].spec.labels[HASH], "the value is part of the hash"
    assert any("environment.MY_SETTING: sha256:" in text for text in seen), "the variable is named"
    assert not [text for text in seen if FIRST in text or SECOND in text]


def test_render_shows_what_would_run() -> None:
    """The user asks for it, to compare it with a recipe: values as they are."""
    cluster = Cluster.make(engine=with_value(FIRST))
    rendering = rendering_of(cluster.spec, cluster.observe().observed.documents, SIMULATED)
    assert as_json(rendering)["ranks"][0]["environment"]["MY_SETTING"] == FIRST
    assert f"-e MY_SETTING={FIRST}" in docker_command(rendering.ranks[0])


def test_labels_of_an_older_sparkop_are_hidden_too() -> None:
    """Those hold the values: a diff against them must not show what it compares."""
    cluster = Cluster.make(engine=with_value(FIRST))
    cluster.apply()
    for number in (0, 1):
        container = cluster.rank(number)[1]
        labels = dict(container.spec.labels)
        form = json.loads(labels[DESIRED])
        form["environment"]["MY_SETTING"] = FIRST
        container.spec = type(container.spec)(
            **{**vars(container.spec), "labels": {**labels, DESIRED: json.dumps(form)}}
        )
    assert not cluster.plan().operations
    for value in (SECOND, None):
        cluster.spec = spec_of(engine=with_value(value))
        text = "\n".join(plan_lines(cluster.plan()))
        assert "environment.MY_SETTING" in text
        assert FIRST not in text


def test_the_history_is_for_its_owner_only() -> None:
    cluster = Cluster.make()
    cluster.apply()
    node = cluster.node("spark-1")
    assert node.files[node.path("history.json", "~/.sparkop/test")][1] == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", "abc"),
        ("HF_TOKEN", "abc"),
        ("AWS_SECRET_ACCESS_KEY", "a/b+c"),
        ("DB_PASSWORD", "x"),
        ("MY_SETTING", "http://ada:lovelace@proxy:3128"),
        ("MY_SETTING", "hf_0123456789abcdefABCD"),
    ],
)
def test_what_is_known_to_be_a_secret_is_refused(name: str, value: str) -> None:
    """Docker would show it to everybody who may use Docker; the refusal does not."""
    cluster = Cluster.make(engine={**with_value(None), "environment": {name: value}})
    with pytest.raises(SpecError, match=name) as caught:
        cluster.plan()
    assert caught.value.remedy
    assert value not in str(caught.value) or len(value) < 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "a"),
        ("SOME_TOKEN_COUNT", "8"),
        ("TLS_KEY_FILE", "/run/tls/key"),
        ("PROXY", "http://proxy:3128"),
        ("IMAGE", "registry.example/a@sha256:abcd"),
    ],
)
def test_what_only_sounds_like_one_is_not(name: str, value: str) -> None:
    cluster = Cluster.make(engine={**with_value(None), "environment": {name: value}})
    assert cluster.plan().operations
