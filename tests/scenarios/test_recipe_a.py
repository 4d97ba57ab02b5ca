"""Recipe A from its very spec on two lab hosts: a small checkpoint of the same shape, the stand-in engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest

from sparkop.lab import hub, miniature
from tests.scenarios.conftest import User

pytestmark = pytest.mark.lab

SPEC = ("specs/deepseek-v4.1-flash.yaml", "--overlay", "tests/data/overlays/lab-recipe-a.yaml")
HOSTS = ("spark-1", "spark-2")
STATE = "/root/.dsv41-two-sparks"
MODEL = "/root/models/DeepSeek-V4.1-Flash-Spark"
PLAN = f"{STATE}/plans/{miniature.PLAN}"
BANK = f"{MODEL}/exl3/q31/L04.part.safetensors"
FILES = miniature.miniature()


@pytest.fixture
def recipe(user: User) -> Iterator[User]:
    """A user whose hosts have nothing of the recipe before and after."""
    everything = ("destroy", *SPEC, "--yes", "--weights", "deepseek-v41-flash")
    user.sparkop(*everything, check=0)
    yield user
    user.sparkop(*everything, check=0)


def on(user: User, host: str, script: str) -> str:
    """What a shell on a host prints."""
    return user.lab.host(host).exec(["sh", "-ec", script]).stdout


def files_of(user: User, host: str) -> dict[str, str]:
    """SHA-256 by path of what lies in the checkpoint's folder."""
    lines = on(user, host, f"cd {MODEL}; find . -type f | xargs sha256sum").splitlines()
    return {line[66:].removeprefix("./"): line[:64] for line in lines}


def times_of(user: User, host: str) -> str:
    return on(user, host, f"find {MODEL} -type f -printf '%P %T@ %i\\n' | sort")


def published() -> dict[str, str]:
    """The checkpoint as it must be on a node: parts put together, SHA-256 by path."""
    whole: dict[str, bytes] = {}
    for path, data in sorted(FILES.items()):
        name, part, number = path.rpartition(".part")
        name = name if part and number.isdigit() else path
        whole[name] = whole.get(name, b"") + data
    return {path: hashlib.sha256(data).hexdigest() for path, data in whole.items()}


def containers(user: User) -> list[str]:
    return [
        on(user, host, f"docker inspect -f '{{{{.Id}}}}' dsv41-r{rank}") for rank, host in enumerate(HOSTS)
    ]


def test_from_nothing_to_tokens_with_the_recipes_own_settings(recipe: User) -> None:
    """Download, rebuild, verify, copy, plan, key, guard, ranks, ready, smoke."""
    first = recipe.sparkop("apply", *SPEC, check=0)
    assert "http://spark-1.lab:8000/v1" in first.out
    assert "nothing to do" in recipe.sparkop("apply", *SPEC, check=0).err

    for host in HOSTS:
        assert files_of(recipe, host) == published(), (
            "two shards put together, no part left, all as published"
        )
        plan = json.loads(on(recipe, host, f"cat {PLAN}"))
        assert plan["qdir"] == "/model/exl3/qn:/model/exl3/q31:/model/exl3/q31s"
        assert plan["layers"] == json.loads(FILES[f"exl3/plan/{miniature.PLAN}"])["layers"]
        assert on(recipe, host, "docker ps --format '{{.Names}}'").count("memguard") >= 1
    assert on(recipe, "spark-1", f"stat -c %a {STATE}/api_key").strip() == "600"

    rendered = recipe.sparkop("render", *SPEC, "-o", "json", check=0).json
    for rank, host in enumerate(HOSTS):
        made = json.loads(on(recipe, host, f"docker inspect dsv41-r{rank}"))[0]
        assert made["Args"][1:] == rendered["ranks"][rank]["arguments"], "after `vllm serve`: every flag"
        assert f"ST_EXL3_PLAN=/plans/{miniature.PLAN}" in made["Config"]["Env"]
        assert made["HostConfig"]["ShmSize"] == 32 << 30

    smoke = recipe.sparkop("smoke", *SPEC, "-o", "json", check=0).json
    assert {check["name"]: check["verdict"] for check in smoke["checks"]} == dict.fromkeys(
        ("text", "streaming", "tool call", "reasoning", "vision", "thinking with tools"), "PASS"
    )


def test_each_file_leaves_the_hub_once_and_reaches_the_worker_over_the_fabric(recipe: User) -> None:
    before = len(hub.requests(lab=recipe.lab.name))
    recipe.sparkop("apply", *SPEC, check=0)
    asked = [r for r in hub.requests(lab=recipe.lab.name)[before:] if r.method == "GET"]
    for path, data in FILES.items():
        sent = sum(r.bytes for r in asked if miniature.REPOSITORY in r.path and r.path.endswith(f"/{path}"))
        looks = 2 if path == "sha256-manifest.txt" else 1  # the controller reads the manifest, too
        assert len(data) <= sent <= looks * len(data), path


def test_a_damaged_plan_is_named_and_written_again_and_nothing_else_is_touched(recipe: User) -> None:
    recipe.sparkop("apply", *SPEC, check=0)
    ran, times = containers(recipe), [times_of(recipe, host) for host in HOSTS]
    good = on(recipe, "spark-2", f"cat {PLAN}")
    on(recipe, "spark-2", f"echo '{{}}' > {PLAN}")

    told = recipe.sparkop("diff", *SPEC, "-o", "json", check=2).json
    assert [(o["action"], o["resource"], o["node"]) for o in told["operations"]] == [
        ("update", "exl3-plan", "spark-2")
    ]
    assert not told["operations"][0]["cost"]["stopsServing"]
    recipe.sparkop("apply", *SPEC, check=0)
    assert on(recipe, "spark-2", f"cat {PLAN}") == good
    assert (containers(recipe), [times_of(recipe, host) for host in HOSTS]) == (ran, times)


def test_a_bank_of_the_right_size_with_a_wrong_byte_is_fetched_again(recipe: User) -> None:
    """The recipe counts the files of exl3/; here each is known by its hash."""
    recipe.sparkop("apply", *SPEC, check=0)
    on(recipe, "spark-2", f"printf X | dd of={BANK} bs=1 seek=999 conv=notrunc 2>&1")
    (told,) = recipe.sparkop("diff", *SPEC, "-o", "json", check=2).json["operations"]
    assert (told["resource"], told["node"]) == ("weights", "spark-2")
    assert "exl3/q31/L04.part.safetensors" in told["cause"]["observed"]
    recipe.sparkop("apply", *SPEC, check=0)
    assert files_of(recipe, "spark-2") == published()
