"""Images built on the nodes: what is planned, what the nodes get, when it is done again."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkop.errors import BlockedError
from sparkop.hosts.simulated_docker import SimulatedContainers
from sparkop.hosts.simulated_node import SimulatedImage
from sparkop.resources.events import Phase
from sparkop.resources.image import build as image_build
from sparkop.resources.image.build import BASE
from sparkop.resources.image.context import BuildContext, beside, read_context
from sparkop.resources.labels import BUILD
from sparkop.resources.operations import Action
from sparkop.spec.models import ClusterSpec
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import Cluster, spec_of

TAG = "made/here:local"
PINNED = "registry.example/base@sha256:" + "ab" * 32
TAGGED = "registry.example/base:latest"


def spec(base: str = PINNED, context: str = "sglang-sm121") -> ClusterSpec:
    build = {"context": context, "base": base, "tag": TAG}
    return spec_of(image={"reference": None, "build": build})


def cluster(base: str = PINNED, context: str = "sglang-sm121") -> Cluster:
    made = Cluster.make(spec(base, context))
    made.world.registry = {PINNED: SimulatedImage("sha256:ba5e", (PINNED,))}
    made.world.registry[TAGGED] = made.world.registry[PINNED]
    return made


def builds(made: Cluster) -> list[str]:
    """Nodes on which something was built, in order."""
    return [write.node for write in made.world.writes if write.action == "image.build"]


def images(made: Cluster) -> list[SimulatedImage]:
    return [node.images[TAG] for node in made.world.nodes.values()]


def planned(made: Cluster) -> list[tuple[str, str, str]]:
    """What a plan does to images: action, node, field."""
    return [(o.action, o.node, o.cause.field) for o in made.plan().operations if o.resource == "image"]


def test_every_node_builds_the_same_and_only_once() -> None:
    made = cluster()
    assert planned(made) == [(Action.BUILD, "spark-1", "image"), (Action.BUILD, "spark-2", "image")]
    made.apply()
    assert sorted(builds(made)) == ["spark-1", "spark-2"]
    assert made.rank(0)[1].spec.image == made.rank(1)[1].spec.image == TAG
    stamps = {image.labels[BUILD] for image in images(made)}
    assert stamps == {read_context("sglang-sm121").stamp(PINNED)}
    assert not made.plan().operations


def test_the_same_files_are_the_same_image_whatever_its_id() -> None:
    """Other versions of Docker, or a build without its cache: known by the label, nobody is stopped."""
    made = cluster()
    made.apply()
    ran = [made.rank(number)[1].id for number in (0, 1)]
    node = made.node("spark-2")
    node.images[TAG] = replace(node.images[TAG], id="sha256:built-without-a-cache")
    assert not made.plan().operations
    made.apply()
    assert [made.rank(number)[1].id for number in (0, 1)] == ran


def test_a_base_without_a_digest_that_differs_is_told() -> None:
    """Built under one name on each node: the label can't tell them apart."""
    made = cluster("made/base:1")
    for name, identity in (("spark-1", "sha256:one"), ("spark-2", "sha256:two")):
        made.node(name).images["made/base:1"] = SimulatedImage(identity)
    assert "spark-2: made/base:1 is another image than on spark-1" in "\n".join(made.plan().warnings)
    made.node("spark-2").images["made/base:1"] = SimulatedImage("sha256:one")
    assert not made.plan().warnings


def test_the_registry_is_asked_for_the_base_once() -> None:
    """The second node gets the base over the fabric and builds: so does one that no registry answers."""
    made = cluster()
    needs = {o.node: o.needs for o in made.plan().operations if o.resource == "image"}
    assert "build:image@spark-1" in needs["spark-2"]
    made.apply()
    assert [write.node for write in made.world.writes if write.action == "image.pull"] == ["spark-1"]
    assert builds(made) == ["spark-1", "spark-2"]
    assert [image.labels[BASE] for image in images(made)] == [PINNED, PINNED]


def test_a_node_that_can_not_build_gets_the_image_that_another_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by its label; and without one that has it, the build's own failure is told."""
    real = image_build._follow

    def refuse(stream: Any, context: Any, node: str, tag: str) -> None:
        if node == "spark-2":
            raise BlockedError("building failed", node=node, cause="no way to the packages")
        real(stream, context, node, tag)

    monkeypatch.setattr(image_build, "_follow", refuse)
    made = cluster()
    made.apply()
    first, second = images(made)
    assert first.id == second.id
    assert not made.plan().operations
    alone = cluster()
    alone.node("spark-2").images[TAG] = SimulatedImage("sha256:old", labels={BUILD: "v1:of another"})
    monkeypatch.setattr(image_build.image_travel, "giver_of", lambda *_: None)
    with pytest.raises(BlockedError, match="building failed"):
        alone.apply()


def test_the_ranks_start_after_the_build() -> None:
    made = cluster()
    made.apply()
    done = [(write.action, write.target) for write in made.world.writes]
    ranks = [done.index(("container.run", made.rank(number)[1].spec.name)) for number in (0, 1)]
    assert min(ranks) > max(i for i, (action, _) in enumerate(done) if action == "image.build")


def test_an_image_that_is_gone_is_built_again_and_nobody_is_stopped() -> None:
    """The same files give the same image, so the ranks that run are right."""
    made = cluster()
    made.apply()
    ran = [made.rank(number)[1].id for number in (0, 1)]
    del made.node("spark-2").images[TAG]
    assert planned(made) == [(Action.BUILD, "spark-2", "image")]
    assert not any(o.cost.stops_serving for o in made.plan().operations)
    made.apply()
    assert builds(made)[2:] == ["spark-2"]
    assert [made.rank(number)[1].id for number in (0, 1)] == ran
    assert not made.plan().operations


@pytest.mark.parametrize("labels", [{}, {BUILD: "v1:of another context"}])
def test_a_foreign_image_under_the_tag_stops_nobody(labels: dict[str, str]) -> None:
    """It is built over, and what comes out is what the ranks run: the plan says no more than that."""
    made = cluster()
    made.apply()
    ran = [made.rank(number)[1].id for number in (0, 1)]
    made.node("spark-2").images[TAG] = SimulatedImage("sha256:f0re19", labels=labels)
    plan = made.plan()
    assert [(o.action, o.node) for o in plan.operations] == [(Action.BUILD, "spark-2")]
    assert not plan.stops_serving
    made.apply(approve=lambda _: False)
    assert [made.rank(number)[1].id for number in (0, 1)] == ran
    assert not made.plan().operations


def test_ranks_of_other_files_are_told_though_their_image_is_gone(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    made = cluster(context=str(tmp_path))
    made.apply()
    for node in made.world.nodes.values():
        del node.images[TAG]
    assert not made.plan().stops_serving
    (tmp_path / "kernel.py").write_text("fixed = True\n")
    assert made.plan().stops_serving


@pytest.mark.parametrize("labels", [{}, {BUILD: "v1:of another context"}])
def test_an_image_of_other_files_is_replaced(labels: dict[str, str]) -> None:
    made = cluster()
    for node in made.world.nodes.values():
        node.images[TAG] = SimulatedImage("sha256:old", labels=labels)
    assert [field for _, _, field in planned(made)] == ["image.build", "image.build"]
    made.apply()
    assert {image.labels[BUILD] for image in images(made)} == {read_context("sglang-sm121").stamp(PINNED)}


def test_ranks_of_the_image_before_are_replaced(tmp_path: Path) -> None:
    """A changed context gives a new image under the same tag: what runs is the old one."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    made = cluster(context=str(tmp_path))
    made.apply()
    ran = [made.rank(number)[1].id for number in (0, 1)]
    (tmp_path / "kernel.py").write_text("fixed = True\n")
    plan = made.plan()
    assert [o.node for o in plan.operations if o.action is Action.BUILD] == ["spark-1", "spark-2"]
    assert plan.stops_serving, "what the build leads to is told before it"
    with pytest.raises(BlockedError, match="you said no"):
        made.apply(approve=lambda _: False)
    assert len(builds(made)) == 2
    made.apply()
    assert sorted(builds(made)[2:]) == ["spark-1", "spark-2"]
    assert not set(ran) & {made.rank(number)[1].id for number in (0, 1)}
    assert [made.rank(n)[1].image_id for n in (0, 1)] == [image.id for image in images(made)]
    assert not made.plan().operations


@pytest.mark.parametrize(
    ("files", "changed", "told"),
    [
        (True, {}, "the files of the build context were changed"),
        (True, {"ready": {"deadline": "9 min"}}, "the files of the build context were changed"),
        (False, {"base": "other"}, "the spec was changed"),
        (True, {"engine": {"kind": "vllm", "context": 4096}}, "the spec was changed"),
    ],
)
def test_why_ranks_of_another_image_go_is_told(
    tmp_path: Path, files: bool, changed: dict[str, Any], told: str
) -> None:
    """Files that were changed were called drift, or a change of the spec, whatever else that had."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    made = cluster(context=str(tmp_path))
    made.apply()
    if files:
        (tmp_path / "kernel.py").write_text("fixed = True\n")
    base = PINNED.replace("ab", "cd") if changed.pop("base", None) else PINNED
    build = {"context": str(tmp_path), "base": base, "tag": TAG}
    made.spec = spec_of(image={"reference": None, "build": build}, **changed)
    (line,) = [line for line in plan_lines(made.plan()) if line.startswith("record ")]
    assert line.endswith(f"[{told}]")


def test_a_base_by_tag_is_what_the_head_has_under_it() -> None:
    """The tag may have moved since a node pulled it: all nodes build from the head's digest."""
    made = cluster(TAGGED)
    other = "registry.example/base@sha256:" + "cd" * 32
    made.node("spark-2").images[TAGGED] = SimulatedImage("sha256:0ther", (other,))
    made.apply()
    assert [image.labels[BASE] for image in images(made)] == [PINNED, PINNED]
    assert builds(made) == ["spark-1", "spark-2"], "the head first"
    assert not made.plan().operations


def test_a_base_by_tag_that_was_pruned_is_no_drift() -> None:
    made = cluster(TAGGED)
    made.apply()
    del made.node("spark-1").images[TAGGED]
    assert not made.plan().operations


def test_a_base_by_tag_that_moved_on_the_head_is_built_from() -> None:
    made = cluster(TAGGED)
    made.apply()
    new = "registry.example/base@sha256:" + "cd" * 32
    made.world.registry[new] = SimulatedImage("sha256:0ther", (new,))
    made.node("spark-1").images[TAGGED] = made.world.registry[new]
    made.apply()
    assert [image.labels[BASE] for image in images(made)] == [new, new]


def test_a_context_that_is_not_there_blocks_what_needs_it(tmp_path: Path) -> None:
    made = cluster(context=str(tmp_path / "none"))
    blockers = [b for b in made.plan().blockers if b.resource == "image"]
    assert [b.node for b in blockers] == ["spark-1", "spark-2"]
    assert "none is no folder with a Dockerfile" in blockers[0].cause.desired


def test_without_its_context_an_image_that_is_there_is_kept(tmp_path: Path) -> None:
    """On another controller the folder may be missing: that is no reason to stop serving."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    made = cluster(context=str(tmp_path))
    made.apply()
    (tmp_path / "Dockerfile").unlink()
    plan = made.plan()
    assert not plan.operations
    assert any("images are not compared" in warning for warning in plan.warnings)


def test_a_context_that_changes_all_the_time_ends_the_apply(tmp_path: Path) -> None:
    """A log in it, for example: it was built again and again for ever."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    made = cluster(context=str(tmp_path))

    def grow(event: object) -> None:
        with (tmp_path / "some.log").open("a") as log:
            log.write(f"{event}\n")

    with pytest.raises(BlockedError, match="times and does not hold") as caught:
        made.apply(emit=grow)
    assert "build context" in (caught.value.remedy or "")
    assert 4 <= len(builds(made)) <= 12
    assert not made.started


def test_a_failed_step_is_told_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "\n".join(f"    line {number} of an unknown function" for number in range(60))
    told: list[Any] = [
        {"stream": f"Step 3/4 : RUN {'patch ' * 50}\n"},
        {"stream": " ---> Running in 29a15e43f2c6\n"},
        {"stream": f"{words}\n\nHF_TOKEN=secret\n"},
        {"stream": "\x1b[91mbackend.py: widened, refused\n\x1b[0m"},
        None,
        {"errorDetail": {"code": 3}, "error": "The command 'patch' returned a non-zero code: 3"},
    ]
    monkeypatch.setattr(SimulatedContainers, "build", lambda *_, **__: iter(told))
    made = cluster()
    with pytest.raises(BlockedError) as caught:
        made.apply()
    kept = next(path for path in made.node("spark-1").files if path.endswith("/logs/build.log"))
    assert f"spark-1:{kept}" in (caught.value.remedy or "")
    content, mode = made.node("spark-1").files[kept]
    assert words in content.decode()
    assert b"secret" not in content
    assert mode == 0o600
    seen = [event.text for event in made.events if event.phase is Phase.PROGRESS]
    assert (caught.value.cause or "").startswith("Step 3/4 : RUN patch")
    assert (caught.value.cause or "").endswith("ended with exit code 3")
    assert "image.build.base" in (caught.value.remedy or "")
    detail = (caught.value.detail or "").splitlines()
    assert detail[-1] == "backend.py: widened, refused"
    assert len(detail) == image_build.TAIL
    assert seen[0].startswith("Step 3/4 : RUN patch")
    assert len(seen[0]) == 100


def names(context: BuildContext) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(context.archive)) as archive:
        return archive.getnames()


def test_the_shipped_context_holds_what_its_dockerfile_copies() -> None:
    assert names(read_context("sglang-sm121")) == ["Dockerfile", "patch_backend.py", "qsa_fa_fallback.py"]


def test_a_context_beside_the_spec_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/Dockerfile").write_text("FROM x\n")
    found = beside(spec(context="own"), tmp_path).image.build
    assert found is not None
    assert found.context == str(tmp_path / "own")
    assert names(read_context(found.context)) == ["Dockerfile"]
    assert beside(spec(), tmp_path) == spec(), "one that sparkop ships keeps its name"
    assert beside(spec_of(), tmp_path) == spec_of()


def test_what_dockerignore_names_is_not_in_the_context(tmp_path: Path) -> None:
    """Secrets and logs beside the Dockerfile would be sent to every node, and each change would build."""
    for name in ("Dockerfile", "app.py", ".env", "logs/one.log", "logs/keep.txt", "deep/er/two.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("FROM x\n")
    ignored = "# what stays here\n.env\n**/*.log\nlogs\n!logs/keep.txt\nDockerfile\n\n.dockerignore\n"
    (tmp_path / ".dockerignore").write_text(ignored)
    before = read_context(str(tmp_path))
    assert names(before) == [".dockerignore", "Dockerfile", "app.py", "logs/keep.txt"]
    (tmp_path / "logs/one.log").write_text("more")
    assert read_context(str(tmp_path)) == before
    (tmp_path / ".dockerignore").write_bytes(b"\xff")
    assert read_context(str(tmp_path)).problem


def test_times_do_not_change_a_context_and_content_name_and_mode_do(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.pyc").write_text("")
    first = read_context(str(tmp_path))
    assert names(first) == ["Dockerfile"]
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    assert read_context(str(tmp_path)) == first
    seen = {first.content}
    for change in (
        lambda: (tmp_path / "Dockerfile").write_text("FROM y\n"),
        lambda: (tmp_path / "Dockerfile").chmod(0o755),
        lambda: (tmp_path / "b").touch(),
        lambda: (tmp_path / "b").rename(tmp_path / "c"),
    ):
        change()
        seen.add(read_context(str(tmp_path)).content)
    assert len(seen) == 5
    assert first.stamp("a") != first.stamp("b") != replace(first, content="0").stamp("b")


def test_a_context_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkop.resources.image.context.LARGEST", 1000)
    (tmp_path / "Dockerfile").write_text("FROM x\n" + "#" * 1000)
    assert "more than" in read_context(str(tmp_path)).problem


@pytest.mark.parametrize(
    ("dockerfile", "labelled"),
    [
        ("FROM a\nRUN b", "FROM a\n+\nRUN b\n"),
        ("from \\\n  # which\n\n  a AS b\nFROM b\n", "from \\\n  # which\n\n  a AS b\n+\nFROM b\n+\n"),
        ("# FROM x\nRUN a \\\n FROM b\nFROM c\n", "# FROM x\nRUN a \\\n FROM b\nFROM c\n+\n"),
        ("# escape=`\nFROM a\nCOPY b c\\\nFROM d\n", "# escape=`\nFROM a\n+\nCOPY b c\\\nFROM d\n+\n"),
        ("#syntax=x\n# Escape = `\nFROM `\n a\r\nRUN c\n", "#syntax=x\n# Escape = `\nFROM `\n a\n+\nRUN c\n"),
    ],
)
def test_every_step_of_a_build_carries_whose_it_is(dockerfile: str, labelled: str, tmp_path: Path) -> None:
    """What a failed build leaves could not be told from the user's own, and stayed after destroy."""
    (tmp_path / "Dockerfile").write_bytes(dockerfile.encode())
    (tmp_path / "file").write_text("kept")
    found = read_context(str(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(found.labelled("of", "name"))) as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    assert texts == {"Dockerfile": labelled.replace("+", 'LABEL of="name"'), "file": "kept"}
