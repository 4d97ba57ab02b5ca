"""The files that an image is built of: found on the controller, packed the same way every time."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import sparkop
from sparkop.records import dataclass
from sparkop.spec.models import ClusterSpec

DOCKERFILE = "Dockerfile"
_BACKTICK = re.compile(rb"(#[^\n]*=[^\n]*\n)*#\s*escape\s*=\s*`", re.IGNORECASE)
"""A directive before everything else."""
LARGEST = 64 << 20
"""Bytes of a context: a model or a virtual environment in it is a mistake."""


@dataclass(frozen=True)
class BuildContext:
    """A build context, or why there is none."""

    archive: bytes = b""
    """A tar file. Times and owners are left out, so that the same files are the same bytes."""
    content: str = ""
    """SHA-256 of the archive."""
    problem: str = ""

    def stamp(self, base: str) -> str:
        """What the label of an image built of it says; ``base`` as the build gets it."""
        return "v1:" + hashlib.sha256(f"{self.content} {base}".encode()).hexdigest()

    def labelled(self, label: str, value: str) -> bytes:
        """The archive with a label from the first step of every stage on, so that what a build leaves that
        fails or is broken off carries it too: the engine's own labels come with the last step."""
        import tarfile  # here: most specs build nothing

        data = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(self.archive)) as source,
            tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as archive,
        ):
            for member in source:
                file = source.extractfile(member)
                content = file.read() if file else b""
                if member.name == DOCKERFILE:
                    content = _with_label(content, f'LABEL {label}="{value}"'.encode())
                    member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return data.getvalue()


def _with_label(dockerfile: bytes, label: bytes) -> bytes:
    """A line after every FROM. In the lines of a Dockerfile: a step goes on after a backslash (or what the
    file says instead), over blank lines and comments."""
    lines: list[bytes] = []
    escape = b"`" if _BACKTICK.match(dockerfile) else b"\\"
    step = b""
    for line in dockerfile.splitlines():
        lines.append(line)
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        step = step or text.split()[0].upper()
        if not text.endswith(escape):
            lines += [label] if step == b"FROM" else []
            step = b""
    return b"\n".join(lines) + b"\n"


def beside(spec: ClusterSpec, folder: Path) -> ClusterSpec:
    """The spec with a relative build context made absolute, when it is a folder beside the spec's file."""
    build = spec.image.build
    own = (folder / build.context).resolve() if build else folder
    if build is None or not (own / DOCKERFILE).is_file():
        return spec
    image = spec.image.model_copy(update={"build": build.model_copy(update={"context": str(own)})})
    return spec.model_copy(update={"image": image})


def read_context(name: str) -> BuildContext:
    """The context called ``name``: one that sparkop ships, else a folder. Does not raise."""
    try:
        return _pack(_folder(name))
    except (OSError, ValueError) as error:
        return BuildContext(problem=str(error))


def _folder(name: str) -> Path:
    package = Path(sparkop.__file__).parent
    shipped = (package / "_images" / name, package.parent / "images" / name)
    for folder in (*shipped, Path(name).expanduser()):
        if (folder / DOCKERFILE).is_file():
            return folder
    raise ValueError(f"{name} is no folder with a Dockerfile, and no build context of sparkop's")


def _wanted(folder: Path) -> Iterator[Path]:
    """The files that Docker's own client would send: without those that ``.dockerignore`` names."""
    ignored = folder / ".dockerignore"
    kept: set[str] | None = None
    if ignored.is_file():
        from sparkop.hosts.docker_client import sent_of

        lines = (line.strip() for line in ignored.read_text().splitlines())
        kept = sent_of(folder, [line for line in lines if line and line[0] != "#"])
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        if kept is None or str(file.relative_to(folder)) in kept:
            yield file


def _pack(folder: Path) -> BuildContext:
    import tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in _wanted(folder):
            member = tarfile.TarInfo(file.relative_to(folder).as_posix())
            member.size = file.stat().st_size
            if data.tell() + member.size > LARGEST:
                raise ValueError(f"{folder} holds more than {LARGEST >> 20} MiB")
            member.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(file.read_bytes()))
    packed = data.getvalue()
    return BuildContext(packed, hashlib.sha256(packed).hexdigest())
