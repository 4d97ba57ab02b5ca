"""The lab's engine images: built once for a machine, then laid into each new lab's registry within a second.

They are built by Docker's classic builder in spark-1 and pushed to the lab's registry. What the registry then
holds of them is kept in the cache folder, under a hash of all that went in; a later lab gets a copy of it,
with the same digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from sparkop.lab import base_image
from sparkop.lab.engine_venv import cache_folder, locked
from sparkop.lab.host import Host
from sparkop.lab.lab import Lab
from sparkop.lab.layout import REGISTRY_NAME, REGISTRY_PORT, LabError, LabPaths
from sparkop.records import dataclass

FORMAT = 1
"""Counts changes of how the images are made that the hashed files don't show."""
VENV_TARGET = "/opt/vllm"
"""Where the vLLM image expects its environment."""
BUILD_SECONDS = 300.0
KEPT = 5
"""Builds that the cache folder keeps, 20 MB each."""
STORE = Path("docker/registry/v2")

Say = Callable[[str], None]

LEGACY = "standin-sglang-legacy"
"""The image that is no engine but the base of one: ``image.build.base`` of recipe B's spec."""


@dataclass(frozen=True)
class Recipe:
    """One image: its name, the folder of its context below images/, and the stage of its Dockerfile."""

    name: str
    context: str
    stage: str | None = None


RECIPES = (
    Recipe("standin", "lab-standin", "vllm"),
    Recipe("standin-sglang", "lab-standin", "sglang"),
    Recipe(LEGACY, "lab-standin", "sglang-legacy"),
    Recipe("vllm", "lab-vllm"),
)


def images_folder() -> Path:
    """The build contexts: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_images", package.parent / "images"):
        if (folder / "lab-standin").is_dir():
            return folder
    raise LabError(f"no image contexts beside {package}")


MODEL_REPOSITORY = "sparkop/tiny-chat"
MODEL_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip


def model_folder() -> Path:
    """The tiny model's files (MODEL_FILES), served by the lab's hub as MODEL_REPOSITORY."""
    return images_folder() / "lab-model"


def shared_paths() -> tuple[Path, ...]:
    """Folders of this machine that hosts must see for the engines' mounts: vLLM's environment is in there."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return (folder,)


def ensure_images(lab: Lab, say: Say = lambda _line: None) -> dict[str, str]:
    """Put the engine images into the lab's registry, built first when this machine has not built them yet.

    Returns a reference by digest for each recipe's name. ``standin`` and ``vllm`` have the entry point
    ``vllm serve``; ``standin-sglang`` has none, its command is ``python3 -m sglang.launch_server ...``.
    ``vllm`` needs `engine_venv.ensure_venv()` mounted read-only at VENV_TARGET.
    Raises LabError when a build or a push fails.
    """
    key = content_key()
    kept = cache_folder() / "images" / key
    with locked(kept):
        if not (kept / "references.json").exists():
            say("building the lab's engine images (a few seconds, once)")
            _build(lab, kept)
        else:
            _lay(kept / "registry", lab.paths.registry / STORE)
    digests: dict[str, str] = json.loads((kept / "references.json").read_text())
    return {
        name: f"{REGISTRY_NAME}:{REGISTRY_PORT}/{_repository(name)}@{digest}"
        for name, digest in digests.items()
    }


def content_key() -> str:
    """Hash of the contexts, of the code that makes the base and of the machine's Python."""
    parts: list[bytes] = [str(FORMAT).encode(), Path(base_image.__file__).read_bytes(), _fingerprint()]
    for recipe in RECIPES:
        parts.append(repr(recipe).encode())
        for file in context_files(images_folder() / recipe.context):
            relative = file.relative_to(images_folder()).as_posix()
            parts += [relative.encode(), bytes([file.stat().st_mode & 0o111 != 0]), file.read_bytes()]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]


def context_files(folder: Path) -> list[Path]:
    """The files of a build context; what running its code left behind is not one."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _fingerprint() -> bytes:
    """The machine's programs that the base is made of, by size and time."""
    found = []
    for path in (base_image.PYTHON, base_image.BUSYBOX, *map(Path, base_image.PROGRAMS)):
        if path.exists():
            state = path.resolve().stat()
            found.append(f"{path.resolve()} {state.st_size} {int(state.st_mtime)}")
    return "\n".join(found).encode()


def _repository(name: str) -> str:
    return f"sparkop-lab/{name}"


def _build(lab: Lab, kept: Path) -> None:
    """Build, push and keep what the registry then holds; `kept` appears at once, complete."""
    host = lab.host("spark-1")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".building-") as temporary:
        work = Path(temporary)
        base = work / "base.tar"
        base_image.write_base(base)
        host.docker("import", str(base), "sparkop-lab-base:latest", timeout=BUILD_SECONDS)
        base.unlink()
        digests = {recipe.name: _build_one(host, recipe, work) for recipe in RECIPES}
        done = work / "done"
        for recipe in RECIPES:
            _keep(lab.paths, _repository(recipe.name), done / "registry")
        (done / "references.json").write_text(json.dumps(digests, indent=2) + "\n")
        shutil.rmtree(kept, ignore_errors=True)
        done.rename(kept)
    forget_old(kept.parent)


def forget_old(folder: Path) -> None:
    """Remove what was kept of all but the last KEPT builds."""
    builds = sorted(folder.glob("*/references.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in builds[KEPT:]:
        shutil.rmtree(file.parent, ignore_errors=True)


def _build_one(host: Host, recipe: Recipe, work: Path) -> str:
    """Build and push one image; returns its digest."""
    context = work / recipe.name
    source = images_folder() / recipe.context
    for file in context_files(source):
        target = context / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    reference = f"{REGISTRY_NAME}:{REGISTRY_PORT}/{_repository(recipe.name)}:latest"
    stage = ["--target", recipe.stage] if recipe.stage else []
    host.docker(
        "build", "-q", "--build-arg", "BASE=sparkop-lab-base:latest", *stage, "-t", reference, str(context),
        timeout=BUILD_SECONDS,
    )  # fmt: skip
    pushed = host.docker("push", reference, timeout=BUILD_SECONDS)
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", pushed)
    if not found:
        raise LabError(f"docker push {reference} told no digest", detail=pushed)
    return found[1]


def _keep(paths: LabPaths, repository: str, target: Path) -> None:
    """Copy one repository of the lab's registry, with its blobs, out of the registry's folder."""
    store = paths.registry / STORE
    shutil.copytree(store / "repositories" / repository, target / "repositories" / repository)
    for digest in _digests(target / "repositories" / repository):
        place = Path("blobs/sha256") / digest[:2] / digest
        if not (target / place).exists():
            shutil.copytree(store / place, target / place)


def _digests(repository: Path) -> Iterator[str]:
    """Hex digests of all blobs that a repository of the registry's file store links to."""
    for kind in ("_layers/sha256", "_manifests/revisions/sha256"):
        for folder in sorted((repository / kind).glob("*")):
            yield folder.name


def _lay(kept: Path, store: Path) -> None:
    """Add kept files to a registry's store. The registry only adds and removes files, so links are safe."""
    for file in sorted(path for path in kept.rglob("*") if path.is_file()):
        target = store / file.relative_to(kept)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            os.link(file, temporary)
        except OSError:
            shutil.copy2(file, temporary)
        temporary.replace(target)
