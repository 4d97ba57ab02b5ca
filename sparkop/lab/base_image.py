"""The file tree that the lab's images start from: this machine's own Python and busybox, and what they need.

No registry of images can be reached from a lab, so the base is made of files that are there anyway.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from sparkop.lab.layout import LabError

PYTHON = Path("/usr/bin/python3")
BUSYBOX = Path("/bin/busybox")
PROGRAMS = ("/usr/bin/lscpu",)
"""vLLM's processor backend reads lscpu's JSON, which busybox does not print."""
LIBRARIES = (
    "libstdc++.so.6", "libgcc_s.so.1", "libnuma.so.1", "libz.so.1", "librt.so.1", "libdl.so.2",
    "libpthread.so.0", "libm.so.6",
)  # fmt: skip
"""What the wheels of vLLM and torch expect of the system, beside what Python needs itself."""
LEFT_OUT = ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "__phello__")
FOLDERS = ("etc", "proc", "sys", "dev", "run", "root", "tmp", "var/tmp", "opt", "control")
LINKED = ("bin", "sbin", "lib", "lib64")
"""Links into /usr where the machine has them so."""


def python_version() -> str:
    """Version of the distribution's Python, for example "3.11". Raises LabError when there is none."""
    if not PYTHON.exists():
        raise LabError("no /usr/bin/python3", remedy="apt-get install python3")
    return re.sub(r"^python", "", PYTHON.resolve().name)


def write_base(target: Path) -> None:
    """Write the file tree as a tar file. Raises LabError when the machine lacks a part."""
    python = PYTHON.resolve()
    library = Path(f"/usr/lib/{python.name}")
    for path in (python, BUSYBOX, library, *map(Path, PROGRAMS)):
        if not path.exists():
            raise LabError(f"{path} is missing", remedy="install what sparkop/lab/packages.txt lists")
    extensions = sorted((library / "lib-dynload").glob("*.so"))
    needed = _needed([python, *map(Path, PROGRAMS), *extensions, *_found(LIBRARIES)])
    with tarfile.open(target, "w") as tar:
        for name in FOLDERS:
            _folder(tar, name, 0o1777 if name.endswith("tmp") else 0o755)
        for name in LINKED:
            if Path("/", name).is_symlink():
                _link(tar, name, f"usr/{name}")
        tar.add(library, _inside(library), filter=_wanted)
        for path in (python, BUSYBOX, *map(Path, PROGRAMS), *needed):
            _copy(tar, path)
        _link(tar, "usr/bin/python3", python.name)
        for applet in _applets():
            if Path("/usr/bin", applet) not in map(Path, PROGRAMS):
                _link(tar, f"usr/bin/{applet}", _inside_absolute(BUSYBOX))
        for name, text in _ETC.items():
            _text(tar, f"etc/{name}", text)


_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "group": "root:x:0:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def _applets() -> list[str]:
    listed = subprocess.run([str(BUSYBOX), "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name != "busybox"]


def _found(names: Iterable[str]) -> list[Path]:
    """Paths of shared libraries as the loader would find them. Raises LabError for a missing one."""
    program = next(path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if Path(path).exists())
    listed = subprocess.run([program, "-p"], capture_output=True, text=True, check=True).stdout
    where: dict[str, Path] = {}
    for line in listed.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow:
            where.setdefault(name.split(" ")[0], Path(path))
    missing = [name for name in names if name not in where]
    if missing:
        raise LabError(
            f"libraries are missing: {', '.join(missing)}", remedy="apt-get install libnuma1 libstdc++6"
        )
    return [where[name] for name in names]


def _needed(files: list[Path]) -> list[Path]:
    """The shared libraries among ``files`` and those that any of them loads, as the loader finds them."""
    listed = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    paths = {Path(path) for path in re.findall(r"(?:=> |^\s)(/\S+) \(0x", listed, re.MULTILINE)}
    own = {path for path in files if ".so" in path.name and "lib-dynload" not in str(path)}
    return sorted(paths | own)


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = member.name.split("/")
    if any(part in LEFT_OUT or part.startswith("config-3") for part in parts[3:]):
        return None
    member.uid = member.gid = 0
    return member


def _inside(path: Path) -> str:
    """Where a file of the machine is in the tree: its folder's real path, its own name."""
    return str(path.parent.resolve() / path.name).lstrip("/")


def _inside_absolute(path: Path) -> str:
    return "/" + _inside(path)


def _copy(tar: tarfile.TarFile, path: Path) -> None:
    """A file under its own name, even where the machine has a link to another name."""
    real = path.resolve()
    member = tar.gettarinfo(str(real), _inside(path))
    member.type, member.linkname, member.uid, member.gid = tarfile.REGTYPE, "", 0, 0
    member.size = real.stat().st_size
    with real.open("rb") as data:
        tar.addfile(member, data)


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    tar.addfile(member)


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text)
    tar.addfile(member, io.BytesIO(text.encode()))
