"""The lab's engine images: built once, laid into each lab's registry, pulled by digest."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from sparkop.lab import base_image, images
from sparkop.lab.lab import Lab
from tests.images.conftest import eventually

MODEL = {"config.json": '{"max_position_embeddings": 32768}', "model.safetensors": "weights"}


def test_the_key_changes_with_a_context_and_not_with_what_running_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale image would hide a change of the stand-in; a needless build costs each lab seconds."""
    for recipe in images.RECIPES:
        (tmp_path / recipe.context).mkdir(exist_ok=True)
        (tmp_path / recipe.context / "program.py").write_text("1")
    monkeypatch.setattr(images, "images_folder", lambda: tmp_path)
    before = images.content_key()
    (tmp_path / "lab-standin/__pycache__").mkdir()
    (tmp_path / "lab-standin/__pycache__/program.pyc").write_bytes(b"1")
    assert images.content_key() == before
    (tmp_path / "lab-standin/program.py").write_text("2")
    changed = images.content_key()
    assert changed != before
    (tmp_path / "lab-standin/program.py").chmod(0o755)
    assert images.content_key() != changed


def test_the_base_has_python_a_shell_and_no_tests_of_python(tmp_path: Path) -> None:
    base_image.write_base(tmp_path / "base.tar")
    with tarfile.open(tmp_path / "base.tar") as tar:
        members = {member.name: member for member in tar.getmembers()}
    python = members["usr/bin/python3"].linkname
    assert members[f"usr/bin/{python}"].size > 1_000_000
    assert members["usr/bin/sh"].linkname.endswith("busybox")
    assert members["usr/bin/lscpu"].isreg()  # vLLM needs the real one
    assert any(name.startswith(f"usr/lib/{python}/json/") for name in members)
    assert not any(name.startswith(f"usr/lib/{python}/test/") for name in members)
    assert members["tmp"].mode == 0o1777


def test_only_the_last_builds_are_kept(tmp_path: Path) -> None:
    for number in range(images.KEPT + 2):
        file = tmp_path / f"build{number}" / "references.json"
        file.parent.mkdir()
        file.touch()
        os.utime(file, (number, number))
    images.forget_old(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"build{number}" for number in range(2, images.KEPT + 2)
    }


@pytest.mark.lab
def test_the_second_time_nothing_is_built(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = images.ensure_images(lab)

    def build(*_args: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(images, "_build", build)
    assert images.ensure_images(lab) == first
    assert all("@sha256:" in reference for reference in first.values())


@pytest.mark.lab
def test_two_ranks_of_the_stand_in_serve_from_containers_on_two_hosts(lab: Lab) -> None:
    """Pulled by digest, host network, meeting over the first rail, with a fault by `docker exec`."""
    reference = images.ensure_images(lab)["standin"]
    head, worker = lab.host("spark-1"), lab.host("spark-2")
    both = [
        "/model", "--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "10.78.0.11",
        "--port", "8111",
    ]  # fmt: skip
    try:
        for rank, host in ((1, worker), (0, head)):
            write = "; ".join(f"echo '{text}' > /srv/m/{name}" for name, text in MODEL.items())
            host.exec(["sh", "-c", f"mkdir -p /srv/m; {write}"])
            own = ["--headless"] if rank else []
            host.docker(
                "run", "-d", "--name", "standin-test", "--network", "host", "-v", "/srv/m:/model:ro",
                reference, *both, "--node-rank", str(rank), *own,
            )  # fmt: skip

        def ask(path: str, *more: str) -> str:
            curl = ["curl", "-s", "-m", "5", f"http://127.0.0.1:8111{path}", *more]
            return head.exec(curl, check=False).stdout

        eventually(lambda: "max_model_len" in ask("/v1/models"), 20, "the API")
        body = json.dumps({"messages": [{"role": "user", "content": "What is 17 * 23?"}]})
        assert "391" in ask("/v1/chat/completions", "-d", body)
        worker.docker("exec", "standin-test", "touch", "/control/die")
        state = ["inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", "standin-test"]
        eventually(lambda: worker.docker(*state).strip() == "exited 0", 10, "the worker's end")
        assert head.docker(*state).strip() == "running 0"
    finally:
        for host in (head, worker):
            host.exec(["docker", "rm", "-f", "standin-test"], check=False)
