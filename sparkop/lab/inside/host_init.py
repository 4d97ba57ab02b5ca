"""Process 1 of a lab host: makes the host's file tree, then becomes tini with the host's services.

Usage: host_init.py CONFIG SOCKET. Runs in new mount, network, pid, uts, ipc and cgroup namespaces.
Talks to the controller over the inherited SOCKET: sends "here" (its credentials tell the pid), waits until
control group and network are ready ("network"), and sends "up" as the last thing before the services start.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

SYSTEM = frozenset(
    {
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "lost+found",
        "proc",
        "run",
        "sbin",
        "sys",
        "usr",
        "var",
    }
)
"""Folders of the machine that are the host's system too; every other one is the host's own, and empty."""

HIDDEN = (
    "var/log",
    "var/tmp",
    "var/cache",
    "var/lib/docker",
    "var/lib/containerd",
    "var/lib/sparkop-lab",
    "var/spool",
    "etc/docker",
    "etc/ssh",
)
"""Folders below SYSTEM that a host must not share with the machine."""

DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "fuse": (10, 229),
}
STAND_INS = (
    "infiniband/uverbs0",
    "infiniband/uverbs1",
    "infiniband/rdma_cm",
    "infiniband/umad0",
    "nvidia0",
    "nvidiactl",
    "nvidia-uvm",
)
"""Device nodes that a probe looks for; they are /dev/null in the lab."""

REAL_CLASSES = ("net", "mem", "misc", "tty", "block", "bdi", "thermal", "hwmon")

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: Path, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    target_bytes = str(target).encode()
    kind_bytes = kind.encode() if kind else None
    result = _libc.mount(source.encode(), target_bytes, kind_bytes, ctypes.c_ulong(flags), data.encode())
    _checked(result, f"mount {source} on {target}")


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), target, flags=MS_BIND)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def tmpfs(target: Path, mode: str, size: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    mount("tmpfs", target, "tmpfs", data=f"mode={mode},size={size}")


def main() -> None:
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    controller = socket.socket(fileno=int(sys.argv[2]))
    controller.sendall(b"here")
    if controller.recv(16) != b"network":
        raise SystemExit("the controller went away before the network was there")
    root = make_tree(config)
    pivot(root)
    controller.sendall(b"up")
    controller.close()
    os.execv(
        "/usr/bin/tini",
        [
            "tini",
            "-g",
            "--",
            "/usr/bin/python3",
            "-IS",
            "/run/lab/programs/supervise.py",
            "/run/lab/services.json",
        ],
    )


def make_tree(config: dict[str, Any]) -> Path:
    """Mount everything below the new root and return its path."""
    socket.sethostname(config["hostname"])
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)
    root = mount_disk(config)
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    mount("sysfs", root / "sys", "sysfs", MS_NOSUID | MS_NODEV)
    tmpfs(root / "run", "755", "64m")
    tmpfs(root / "tmp", "1777", "512m")
    for name in ("sshd", "lock", "lab"):
        (root / "run" / name).mkdir()
    bind(Path(config["knobs"]), root / "run/lab")
    for share in config["shares"]:
        bind(Path(share), root / share.lstrip("/"), read_only=True)
    make_devices(root / "dev")
    mount_cgroups(root / "sys/fs/cgroup", config["cgroup_hierarchies"])
    bind_figures(root, config["memory_bytes"])
    make_classes(root, Path(config["classes"]))
    bind_speeds(root, config["speeds"])
    return root


def mount_disk(config: dict[str, Any]) -> Path:
    """The machine's files below, the host's own disk above."""
    disk, root = Path(config["mounts"]) / "disk", Path(config["mounts"]) / "root"
    for path in (disk, root):
        path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-o", "loop,noatime", config["disk"], disk], check=True)
    upper, work, docker = disk / "upper", disk / "work", disk / "docker"
    if not (disk / "seeded").exists():
        for path in (upper, work, docker):
            path.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", f"{config['seed']}/.", upper], check=True)
        foreign = [path.name for path in Path("/").iterdir() if path.is_dir() and path.name not in SYSTEM]
        for name in (*HIDDEN, *foreign):
            (upper / name).mkdir(parents=True, exist_ok=True)
            os.setxattr(upper / name, "trusted.overlay.opaque", b"y")
        for name in ("tmp", "var/tmp"):
            (upper / name).chmod(0o1777)
        (disk / "seeded").touch()
    os.chdir(disk)  # names without commas or colons, which the options of an overlay cannot hold
    mount("overlay", root, "overlay", data="lowerdir=/,upperdir=upper,workdir=work")
    os.chdir("/")
    bind(docker, root / "var/lib/docker")  # overlay2 does not work on an overlay
    return root


def make_devices(dev: Path) -> None:
    tmpfs(dev, "755", "1m")
    for name in ("pts", "shm", "mqueue", "infiniband", "net"):
        (dev / name).mkdir()
    for name, (major, minor) in DEVICES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name in STAND_INS:
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    mount("devpts", dev / "pts", "devpts", data="newinstance,ptmxmode=0666,mode=620,gid=5")
    tmpfs(dev / "shm", "1777", "2g")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        (dev / name).symlink_to(target)


def mount_cgroups(top: Path, hierarchies: list[str]) -> None:
    """The cgroup namespace makes the host's group the root of what is mounted. No hierarchies: cgroup v2."""
    if not hierarchies:
        mount("cgroup2", top, "cgroup2", MS_NOSUID | MS_NODEV)
        return
    tmpfs(top, "755", "1m")
    for name in hierarchies:
        (top / name).mkdir()
        mount("cgroup", top / name, "cgroup", data="none,name=systemd" if name == "systemd" else name)


def bind_figures(root: Path, memory_bytes: int) -> None:
    """A boot id of this boot, and memory figures that figures.py keeps fresh from its start on."""
    figures = root / "run/figures"
    figures.mkdir()
    (figures / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (figures / "meminfo").write_text(f"{'MemTotal:':<16}{memory_bytes // 1024:>11} kB\n")
    bind(figures / "boot_id", root / "proc/sys/kernel/random/boot_id", read_only=True)
    bind(figures / "meminfo", root / "proc/meminfo")


def make_classes(root: Path, classes: Path) -> None:
    """/sys/class with InfiniBand devices and the DMI data of a Spark; sysfs itself takes no new folders."""
    fake = root / "run/lab-class"
    tmpfs(fake, "755", "4m")
    for name in REAL_CLASSES:
        if (root / "sys/class" / name).is_dir():
            bind(root / "sys/class" / name, fake / name)
    shutil.copytree(classes, fake, symlinks=True, dirs_exist_ok=True)
    mount(str(fake), root / "sys/class", flags=MS_BIND | MS_REC)


def bind_speeds(root: Path, speeds: dict[str, int]) -> None:
    """A veth says 10000 Mbit/s; the file that figures.py writes says what a Spark's card would."""
    (root / "run/figures/speed").mkdir()
    for name, speed in speeds.items():
        file = root / "run/figures/speed" / name
        file.write_text(f"{speed}\n")
        bind(file, root / "sys/class/net" / name / "speed")


def pivot(root: Path) -> None:
    old = root / "run/old-root"
    old.mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "run/old-root"], check=True)
    os.chdir("/")
    _checked(_libc.umount2(b"/run/old-root", MNT_DETACH), "umount the machine's root")
    Path("/run/old-root").rmdir()
    os.environ.clear()
    os.environ.update(HOME="/root", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


if __name__ == "__main__":
    main()
