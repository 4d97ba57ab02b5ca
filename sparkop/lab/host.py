"""One host of a lab: its disk, boot, power cut, and what runs in it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sparkop.lab import network, seed
from sparkop.lab.cgroups import Cgroups, CgroupV1
from sparkop.lab.layout import NICS, HostPaths, LabError
from sparkop.lab.processes import finish, kill, recall, remember, run, wait_for
from sparkop.lab.start import start_init
from sparkop.records import dataclass

READY_SECONDS = 60.0
GONE_SECONDS = 20.0
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
}
SERVICES = {
    "sshd": ["/usr/sbin/sshd", "-D", "-e"],
    "dockerd": ["dockerd"],  # in /usr/sbin or /usr/bin, as it was packaged
}


@dataclass(frozen=True)
class Host:
    """A host of a running lab. ``memory_bytes`` is what its processes can use together."""

    name: str
    paths: HostPaths
    pid_file: Path
    groups: Cgroups
    memory_bytes: int

    @property
    def pid(self) -> int | None:
        """Process 1 of the host as the controller sees it; None when it is off."""
        return recall(self.pid_file)

    def running(self) -> int:
        """Process 1. Raises LabError when the host is off."""
        if (pid := self.pid) is None:
            raise LabError(f"{self.name} is off", remedy=f"sparkop lab boot {self.name}")
        return pid

    def _awake(self) -> int:
        """Process 1. Raises LabError when the host is off, or frozen: a command would hang, unkillable."""
        pid = self.running()
        if self.groups.frozen(self.name):
            raise LabError(f"{self.name} is frozen", remedy=f"sparkop lab mend freeze {self.name}")
        return pid

    def make_disk(self, disk_bytes: int) -> None:
        """Make a sparse disk image with a file system; what is in ``seed`` goes on it at the first boot."""
        self.paths.root.mkdir(parents=True, exist_ok=True)
        with self.paths.disk.open("wb") as image:
            image.truncate(disk_bytes)
        run(
            [
                "mkfs.ext4",
                "-q",
                "-F",
                "-m",
                "0",
                "-O",
                "^has_journal",
                "-E",
                "lazy_itable_init=1,nodiscard,root_owner=0:0",
                str(self.paths.disk),
            ]
        )

    def boot(self, lab_pid: int, shares: Sequence[str]) -> None:
        """Power on; returns when process 1 starts sshd and Docker. ``shares``: folders shown read-only."""
        if self.pid is not None:
            raise LabError(f"{self.name} is on", remedy=f"sparkop lab break power-cut {self.name}")
        self.pid_file.unlink(missing_ok=True)
        network.detach(lab_pid, self.name)
        self.groups.create(self.name, self.memory_bytes)
        config = self._write_boot_files(shares)
        program = str(seed.PROGRAMS / "host_init.py")
        init = start_init(
            self.groups.placed(
                self.name,
                [
                    "env",
                    "-i",
                    f"PATH={ENVIRONMENT['PATH']}",
                    "nsenter",
                    "-t",
                    str(lab_pid),
                    "-m",
                    "-n",
                    "-p",
                    "--",
                    "unshare",
                    "-m",
                    "-n",
                    "-p",
                    "-u",
                    "-i",
                    "-C",
                    "--fork",
                    "--propagation",
                    "private",
                    sys.executable,
                    "-IS",
                    program,
                    str(config),
                ],
            ),
            self.paths.logs / "console.log",
        )
        remember(self.pid_file, init.pid)
        self.groups.settle(self.name, init.outer, init.pid)
        network.attach(lab_pid, self.name, init.pid, self.paths.unplugged)
        init.network_is_there()

    def _write_boot_files(self, shares: Sequence[str]) -> Path:
        knobs, classes = self.paths.knobs, self.paths.root / "classes"
        programs = knobs / "programs"
        for folder in (programs, knobs / "standin", self.paths.logs, self.paths.mounts):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("supervise.py", "figures.py"):
            shutil.copy(seed.PROGRAMS / name, programs / name)
        shutil.rmtree(classes, ignore_errors=True)
        seed.seed_classes(classes, self.name)
        speeds = {nic.name: nic.speed_mbit for nic in NICS}
        figures = ["/usr/bin/python3", "-IS", "/run/lab/programs/figures.py", str(self.memory_bytes)]
        (knobs / "speeds.json").write_text(json.dumps(speeds))
        (knobs / "services.json").write_text(
            json.dumps(
                {"run": "/run/services", "logs": "/run/lab/log", "services": {"figures": figures, **SERVICES}}
            )
        )
        hierarchies = list(self.groups.hierarchies) if isinstance(self.groups, CgroupV1) else []
        config = self.paths.root / "boot.json"
        config.write_text(
            json.dumps(
                {
                    "hostname": self.name,
                    "disk": str(self.paths.disk),
                    "mounts": str(self.paths.mounts),
                    "seed": str(self.paths.seed),
                    "knobs": str(knobs),
                    "classes": str(classes),
                    "shares": list(shares),
                    "speeds": speeds,
                    "memory_bytes": self.memory_bytes,
                    "cgroup_hierarchies": hierarchies,
                }
            )
        )
        return config

    def wait_ready(self) -> None:
        """Wait until sshd listens and Docker answers. Raises LabError when the host dies or is too slow."""
        pid = self.running()
        wait_for(
            lambda: self.pid != pid or (listening(pid, 22) and docker_answers(pid)),
            READY_SECONDS,
            f"{self.name}: sshd and Docker",
        )
        if self.pid != pid:
            console = self.paths.logs / "console.log"
            raise LabError(
                f"{self.name} died while it started", detail=console.read_text(errors="replace")[-2000:]
            )

    def disk(self) -> tuple[int, int]:
        """Bytes of the disk that no program can have any more, and of all. Raises LabError when it is off."""
        found = os.statvfs(f"/proc/{self.running()}/root")
        return (found.f_blocks - found.f_bavail) * found.f_frsize, found.f_blocks * found.f_frsize

    def power_cut(self, lab_pid: int) -> None:
        """End the host without notice. Links go first: no FIN of a dying process may reach a peer."""
        network.detach(lab_pid, self.name)
        if (pid := self.pid) is not None:
            kill([pid])
        if self.groups.frozen(self.name):
            self.groups.freeze(self.name, False)
        kill(self.groups.processes(self.name))
        wait_for(
            lambda: not self.groups.processes(self.name),
            GONE_SECONDS,
            f"{self.name}: the end of its processes",
        )
        self.groups.remove(self.name)
        self.pid_file.unlink(missing_ok=True)

    def command(self, argv: Sequence[str]) -> list[str]:
        """``argv`` wrapped to run inside the host, as root, in its control group."""
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return self.groups.placed(
            self.name, ["nsenter", "-t", str(self._awake()), "-a", "--", "env", "-i", *environment, *argv]
        )

    def exec(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the host and return what it printed.

        Raises LabError when it fails (unless ``check`` is false) or takes over ``timeout`` seconds.
        """
        try:
            done = finish(self.command(argv), stdin, timeout)
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.name}: {' '.join(argv)}: no end after {timeout:g} s") from None
        if check and done.returncode != 0:
            raise LabError(
                f"{self.name}: {' '.join(argv)}: exit {done.returncode}", detail=done.stderr[-2000:]
            )
        return done

    def docker_command(self, *arguments: str) -> list[str]:
        """The docker program of this machine, pointed at the host's Docker; no namespace is entered."""
        return [
            "env",
            "DOCKER_BUILDKIT=0",
            "docker",
            "-H",
            f"unix://{docker_socket(self._awake())}",
            *arguments,
        ]

    def docker(self, *arguments: str, timeout: float = 600) -> str:
        """Run ``docker ARGUMENTS`` against the host and return what it printed. Raises LabError."""
        return run(self.docker_command(*arguments), timeout=timeout)


def docker_socket(pid: int) -> str:
    return f"/proc/{pid}/root/run/docker.sock"


def docker_answers(pid: int) -> bool:
    """Whether the Docker of the host with process 1 ``pid`` answers a ping."""
    try:
        with socket.socket(socket.AF_UNIX) as talk:
            talk.settimeout(1)
            talk.connect(docker_socket(pid))
            talk.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in talk.recv(64)
    except OSError:
        return False


def listening(pid: int, port: int) -> bool:
    """Whether something listens on a TCP port in the network namespace of process ``pid``."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state = line.split()[:4]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def shell(host: Host, argv: Sequence[str]) -> None:
    """Become an interactive command in the host, in root's home as after a login. Does not return."""
    command = host.command(
        ["env", "-C", ENVIRONMENT["HOME"], f"TERM={os.environ.get('TERM', 'dumb')}", *argv]
    )
    os.execvp(command[0], command)
