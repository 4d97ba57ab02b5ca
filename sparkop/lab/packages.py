"""What the lab needs on this machine, checked before anything is made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sparkop.lab.layout import LabError

LIST = Path(__file__).with_name("packages.txt")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def required() -> dict[str, str]:
    """Package -> the program or library that shows it is installed."""
    lines = (line.split("#")[0].split() for line in LIST.read_text().splitlines())
    return {fields[0]: fields[1] for fields in lines if fields}


def missing() -> list[str]:
    """Packages whose program or library is not on this machine."""
    return [package for package, shown_by in required().items() if not _there(shown_by)]


def _there(name: str) -> bool:
    if ".so." not in name:
        return shutil.which(name, path=_SYSTEM_PATH) is not None
    folders = ("/lib", "/usr/lib", f"/usr/lib/{os.uname().machine}-linux-gnu")
    return any(Path(folder, name).exists() for folder in folders)


def check() -> None:
    """Raise LabError, with the way to mend it, when this machine cannot hold a lab."""
    if os.uname().sysname != "Linux":
        raise LabError("the lab needs Linux", remedy="use a virtual machine with Debian or Ubuntu")
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it makes namespaces and mounts", remedy="sudo sparkop lab up")
    if packages := missing():
        raise LabError(
            f"not installed: {', '.join(packages)}",
            remedy=f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}",
        )
    if not Path("/dev/loop-control").exists():
        raise LabError(
            "no loop devices (/dev/loop-control): hosts have their disks on them",
            remedy="modprobe loop; in a container: --privileged",
        )
