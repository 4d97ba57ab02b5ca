"""Recipe B from its very spec on two lab hosts: both build the image, the stand-in serves as SGLang does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.lab import hub
from sparkop.lab.images import MODEL_FILES, MODEL_REPOSITORY, model_folder
from sparkop.lab.overlay import image_reference
from tests.scenarios.conftest import User

pytestmark = pytest.mark.lab

SPEC = ("specs/qwen3.8-flash-next.yaml", "--overlay", "tests/data/overlays/lab-recipe-b.yaml")
HOSTS = ("spark-1", "spark-2")
TAG = "qwen38-flashnext-dspark:local"
NAMES = ("qwen38-flash-next-head", "qwen38-flash-next-worker")
CACHE, PLAIN = "/root/.cache/huggingface", "/root/models/tiny-chat"
"""Where the files of recipe B lie, and where those of the lab's other specs do."""
FILES = {name: model_folder() / name for name in MODEL_FILES}
BACKEND = "/sgl-workspace/sglang/python/sglang/srt/layers/attention/qwen_sparse_attn_backend.py"


@pytest.fixture
def recipe(user: User) -> Iterator[User]:
    """A user whose hosts have nothing of the recipe before and after."""
    everything = ("destroy", *SPEC, "--yes", "--weights", "qwen38-flash-next")
    user.sparkop(*everything, check=0)
    yield user
    user.sparkop(*everything, check=0)


def inspect(user: User, host: str, what: str) -> Any:
    """``docker inspect`` of one thing on a host."""
    return json.loads(user.lab.host(host).docker("inspect", what))[0]


def ids(user: User) -> list[str]:
    return [inspect(user, host, name)["Id"] for host, name in zip(HOSTS, NAMES, strict=True)]


def planned(user: User, *more: str) -> list[tuple[str, str, str]]:
    told = user.sparkop("diff", *SPEC, *more, "-o", "json", check=2).json
    return [(o["action"], o["resource"], o["node"]) for o in told["operations"]]


def test_from_nothing_to_tokens_by_an_image_that_both_hosts_built(recipe: User) -> None:
    """Rendered arguments and no others, the patched backend, and drift mended in place."""
    recipe.sparkop("apply", *SPEC, "--yes", check=0)
    assert "nothing to do" in recipe.sparkop("apply", *SPEC, check=0).err

    stamps = [inspect(recipe, host, TAG)["Config"]["Labels"]["sparkop.build"] for host in HOSTS]
    assert stamps[0] == stamps[1]
    rendered = recipe.sparkop("render", *SPEC, "-o", "json", check=0).json
    for rank, host in enumerate(HOSTS):
        made = inspect(recipe, host, NAMES[rank])
        assert made["Config"]["Cmd"] == rendered["ranks"][rank]["arguments"]
        assert made["Config"]["Image"] == TAG
        check = ("exec", NAMES[rank], "python3", "/opt/sparkop/patch_backend.py", BACKEND, "--check")
        assert "patched, nothing to do" in recipe.lab.host(host).docker(*check)

    smoke = recipe.sparkop("smoke", *SPEC, "-o", "json", check=0).json
    assert {check["verdict"] for check in smoke["checks"]} == {"PASS", "not offered"}

    ran = ids(recipe)
    recipe.sparkop("lab", "break", "image-drift", "spark-2", check=0)
    assert planned(recipe) == [("build", "image", "spark-2")]
    recipe.sparkop("apply", *SPEC, check=0)
    assert ids(recipe) == ran, "the same files give the same image: nobody is stopped"
    recipe.sparkop("diff", *SPEC, check=0)

    logs_outlive_their_containers(recipe)


def logs_outlive_their_containers(user: User) -> None:
    """Owner-only on their nodes, mended without a restart, readable after a stop, and no
    follower is left. TileLang's warning is told as what it is."""
    state = "/root/.sparkop/qwen38-flash-next"
    for rank, host in enumerate(HOSTS):
        log = f"{state}/logs/rank-{rank}.log"
        assert user.lab.host(host).exec(["stat", "-c", "%a", log]).stdout.split() == ["600"]
    status = user.sparkop("status", *SPEC, check=0).out
    assert "harmless: TileLang" in status
    assert "likely cause" not in status

    ran = ids(user)
    record = json.loads(user.lab.host("spark-2").exec(["cat", f"{state}/logs.json"]).stdout)
    user.lab.host("spark-2").exec(["kill", "-KILL", str(record["pid"])])
    assert planned(user) == [("start", "logs", "spark-2")]
    user.sparkop("apply", *SPEC, check=0)
    assert ids(user) == ran

    user.sparkop("stop", *SPEC, "--yes", check=0)
    told = user.sparkop("logs", *SPEC, "-n", "50", check=0)
    assert "ready to roll" in told.out
    assert "r1 | " in told.out
    assert "launcher | " in told.out
    for host in HOSTS:
        assert "sparkop-logs" not in user.lab.host(host).exec(["ps", "-A", "-o", "comm"]).stdout


def load_offline(user: User, host: str, revision: str) -> Path:
    """What the hub's own library finds in a host's cache without a network, as the engine does."""
    there = Path(f"/proc/{user.lab.host(host).running()}/root/root/.cache/huggingface")
    home = Path(tempfile.mkdtemp(dir=user.home)) / "huggingface"  # the library resolves /proc/N/root to /
    shutil.copytree(there, home, symlinks=True)
    program = (
        f"from huggingface_hub import snapshot_download as d; print(d({MODEL_REPOSITORY!r}, "
        f"revision={revision!r}, local_files_only=True))"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def sent(user: User) -> int:
    """Bytes of the model's large file that the hub has sent."""
    asked = hub.requests(lab=user.lab.name)
    return sum(each.bytes for each in asked if each.method == "GET" and "safetensors" in each.path)


def loads_the_model(user: User, host: str) -> Path:
    """The snapshot that the hub's library finds on a host, all of whose bytes are the model's."""
    commit = hub.add_repository(FILES, MODEL_REPOSITORY, lab=user.lab.name)
    found = load_offline(user, host, commit)
    for name, source in FILES.items():
        assert (found / name).read_bytes() == source.read_bytes()
    assert str((found / "config.json").readlink()).startswith("../../blobs/")
    return found


def forget_weights(user: User, host: str) -> None:
    """Remove the checkpoint wherever it lies on a host: other scenarios leave it in a plain folder."""
    user.lab.host(host).exec(["rm", "-rf", CACHE, PLAIN])


def test_a_copy_elsewhere_on_a_host_is_used_when_its_bytes_are_right(recipe: User) -> None:
    """Another recipe's folder has the files: those that hash right are used. Size is no proof."""
    recipe.sparkop("download", *SPEC, check=0)
    moved = (
        f"rm -rf {PLAIN}; mkdir -p {PLAIN}; cp -rL {CACHE}/hub/models--*/snapshots/*/. {PLAIN}; rm -r {CACHE}"
    )
    for host in HOSTS:
        recipe.lab.host(host).exec(["sh", "-ec", moved])
    spoil = f"printf X | dd of={PLAIN}/model.safetensors conv=notrunc"
    recipe.lab.host("spark-2").exec(["sh", "-ec", spoil])
    before = sent(recipe)
    recipe.sparkop("download", *SPEC, "--set", "weights.distribution=direct", check=0)
    size = (model_folder() / "model.safetensors").stat().st_size
    assert sent(recipe) - before == size, "for the host whose copy has the size, and another first byte"
    for host in HOSTS:
        loads_the_model(recipe, host)
        forget_weights(recipe, host)


def test_each_host_downloads_by_itself_or_gets_a_copy_into_the_hubs_own_cache(recipe: User) -> None:
    """Both modes, several revisions side by side, and the real library loads them offline."""
    lab = recipe.lab
    size = (model_folder() / "model.safetensors").stat().st_size
    for host in HOSTS:
        forget_weights(recipe, host)
    direct = ("--set", "weights.distribution=direct")
    weights = [each for each in planned(recipe, *direct) if each[1] == "weights"]
    assert weights == [("download", "weights", host) for host in HOSTS]
    before = sent(recipe)
    recipe.sparkop("download", *SPEC, *direct, check=0)
    assert sent(recipe) - before == 2 * size, "every host gets it from the hub"

    commit = {loads_the_model(recipe, host).name for host in HOSTS}.pop()

    snapshot = f"/root/.cache/huggingface/hub/models--sparkop--tiny-chat/snapshots/{commit}"
    lab.host("spark-2").exec(["sh", "-c", f"rm $(realpath {snapshot}/model.safetensors)"])
    assert [each for each in planned(recipe) if each[1] == "weights"] == [("copy", "weights", "spark-2")]
    before = sent(recipe)
    recipe.sparkop("download", *SPEC, check=0)
    assert sent(recipe) == before, "the worker gets its copy from the head"
    assert load_offline(recipe, "spark-2", commit).name == commit

    changed = {**FILES, "generation_config.json": b"{}"}
    other = hub.add_repository(changed, MODEL_REPOSITORY, revision="next", lab=lab.name)
    before = sent(recipe)
    recipe.sparkop("download", *SPEC, "--set", "weights.revision=next", check=0)
    assert sent(recipe) == before, "files that did not change are there already"
    for host in HOSTS:
        assert load_offline(recipe, host, "next").name == other
        assert load_offline(recipe, host, commit).name == commit
    the_pinned_revision_goes_and_no_other(recipe, other, commit)


def the_pinned_revision_goes_and_no_other(user: User, other: str, commit: str) -> None:
    """destroy --weights, in a cache with two revisions and another repository: each goes when it is named."""
    lab, folder = user.lab, f"{CACHE}/hub/models--sparkop--tiny-chat"
    beside = f"{CACHE}/hub/models--somebody--else/blobs"
    everything = ("destroy", *SPEC, "--yes", "--weights", "qwen38-flash-next")
    for host in HOSTS:
        lab.host(host).exec(["sh", "-ec", f"mkdir -p {beside}; echo theirs > {beside}/f"])
    told = user.sparkop(*everything, "--set", "weights.revision=next", check=0)
    for host in HOSTS:
        assert f"{host}: " in told.err
        assert f"{folder}/snapshots/{other}" in told.err
        assert load_offline(user, host, commit).name == commit
        found = lab.host(host).exec(["find", folder, "-printf", "%P\n"]).stdout
        assert other not in found
        assert "refs/next" not in found
    user.sparkop(*everything, check=0)
    for host in HOSTS:
        assert lab.host(host).exec(["ls", f"{CACHE}/hub"]).stdout.split() == ["models--somebody--else"]
        assert lab.host(host).exec(["cat", f"{beside}/f"]).stdout == "theirs\n"
        lab.host(host).exec(["rm", "-r", f"{CACHE}/hub/models--somebody--else"])


def test_a_changed_context_is_built_and_served(recipe: User, tmp_path: Path) -> None:
    """The image's tag stays; what runs is its content."""
    (tmp_path / "context").mkdir()  # sparkop's own log lies beside it
    dockerfile = tmp_path / "context" / "Dockerfile"
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\nRUN echo 1 > /version\n")
    own = ("--set", f"image.build.context={dockerfile.parent}")
    recipe.sparkop("apply", *SPEC, *own, "--yes", check=0)
    ran = ids(recipe)
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\nRUN echo 2 > /version\n")
    assert [each for each in planned(recipe, *own) if each[0] == "build"] == [
        ("build", "image", "spark-1"),
        ("build", "image", "spark-2"),
    ]
    recipe.sparkop("apply", *SPEC, *own, "--yes", check=0)
    assert not set(ids(recipe)) & set(ran)
    for host, name in zip(HOSTS, NAMES, strict=True):
        assert recipe.lab.host(host).docker("exec", name, "cat", "/version").strip() == "2"
        assert len(built_images(recipe, host)) == 2, "the replaced one is still there, without a name"
    recipe.sparkop("destroy", *SPEC, *own, "--yes", check=0)
    assert [built_images(recipe, host) for host in HOSTS] == [[], []]


def built_images(user: User, host: str) -> list[str]:
    mark = "label=sparkop.built-for=qwen38-flash-next"
    return user.lab.host(host).docker("images", "-q", "--filter", mark).split()


def test_a_backend_that_would_emit_token_0_builds_no_image(recipe: User, tmp_path: Path) -> None:
    """The patcher's refusal ends the build, and apply tells its words."""
    base = image_reference(recipe.lab.name, "lab/standin-sglang-legacy")
    widen = f"sed -i 's/import is_sm100/import is_sm120_supported as is_sm100/' {BACKEND}"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN {widen}\n")
    for host in HOSTS:
        recipe.lab.host(host).docker("build", "-q", "-t", "test/widened:1", str(tmp_path))
    own = ("--set", "image.build.base=test/widened:1", "--set", "weights.revision=main")
    failed = recipe.sparkop("apply", *SPEC, *own, "--yes", check=6)
    assert "widened, refused" in failed.err
    assert "token 0" in failed.err
    for host in HOSTS:
        assert not recipe.lab.host(host).docker("images", "-q", TAG).strip()
        assert not recipe.lab.host(host).docker("ps", "-aq", "--filter", "label=sparkop.role=rank").strip()


def test_a_backend_of_an_unknown_shape_is_told_in_full(recipe: User, tmp_path: Path) -> None:
    """Why and which file in apply's error, the functions' text in the file that it names."""
    base = image_reference(recipe.lab.name, "lab/standin-sglang-legacy")
    change = f"sed -i 's/if not is_sm100_supported()/if not is_new()/' {BACKEND}"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN {change}\n")
    recipe.lab.host("spark-1").docker("build", "-q", "-t", "test/unknown:1", str(tmp_path))
    source = recipe.lab.host("spark-1").docker("run", "--rm", "test/unknown:1", "sha256sum", BACKEND)
    own = ("--set", "image.build.base=test/unknown:1", "--set", "weights.revision=main")
    failed = recipe.sparkop("apply", *SPEC, *own, "--yes", check=6)
    assert "unknown shape, not patched: on SM121 _resolve_trtllm_sparse_decode gives" in failed.err
    assert f"sha256 {source.split()[0]}" in failed.err.replace("\n", " ")
    log = "/root/.sparkop/qwen38-flash-next/logs/build.log"
    assert f"spark-1:{log}" in failed.err.replace("\n", "")
    kept = recipe.lab.host("spark-1").exec(["cat", log]).stdout
    assert "def _resolve_trtllm_sparse_decode() -> Any:\n    from sglang" in kept
    assert recipe.lab.host("spark-1").exec(["stat", "-c", "%a", log]).stdout.strip() == "600"
