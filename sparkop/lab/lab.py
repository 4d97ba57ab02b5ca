"""A lab: ``up`` makes it, ``Lab.load`` finds it, ``down`` removes it without a trace.

What is up is read from the processes and control groups themselves. The files tell where to look, and are
written before what they tell of is made; so ``down`` works after a crash at any point.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, field
from functools import partial
from pathlib import Path

from sparkop.inside import INSIDE_VARIABLE, mark
from sparkop.lab import cgroups, hub, network, overlay, packages, registry, seed
from sparkop.lab.cgroups import SERVICES, Cgroups
from sparkop.lab.host import GONE_SECONDS, Host, listening
from sparkop.lab.layout import (
    HUB_PORT,
    MAX_HOSTS,
    REGISTRY_PORT,
    LabError,
    LabNameError,
    LabPaths,
    host_names,
    not_up,
)
from sparkop.lab.lock import locked
from sparkop.lab.processes import (
    in_network,
    kill,
    network_of,
    recall,
    remember,
    start_time,
    wait_for,
    with_environment,
)
from sparkop.lab.start import start_init
from sparkop.records import dataclass

GIB = 1 << 30
DEFAULT_MEMORY_BYTES = 4 * GIB
DEFAULT_DISK_BYTES = 24 * GIB
LEAST_BYTES = GIB // 2
"""Of a host's memory: with less its budget refuses the stand-in's spec. Of its disk: images and model fit."""
OPTIONS = ("hosts", "memory", "disk", "share")
"""Options of ``lab up`` that say what a lab is."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user, or a system that goes down, ends this program."""

ASKED_SECONDS = 3.0
"""Patience with programs inside after each of two SIGTERMs."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabConfig:
    """What ``up`` was asked for, and where to find what it makes. Kept in lab.json."""

    hosts: int = 2
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    disk_bytes: int = DEFAULT_DISK_BYTES
    """Size of each host's disk; the file is sparse."""
    shares: tuple[str, ...] = ()
    """Folders of this machine that hosts see read-only at the same path."""
    token: str = ""
    cgroups: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Lab:
    """A lab that was brought up; its hosts may be on or off."""

    paths: LabPaths
    config: LabConfig
    groups: Cgroups

    @classmethod
    def find(cls, name: str | None = None) -> Lab:
        """The lab of that name (SPARKOP_LAB, else "default"), crashed or not. Raises LabNameError."""
        if os.geteuid() != 0:
            raise LabError("the lab needs root", remedy="use sudo")
        paths = LabPaths.of(name)
        lab = _read(paths)
        if lab is None:
            raise not_up(paths.name)
        return lab

    @classmethod
    def load(cls, name: str | None = None) -> Lab:
        """The lab of that name, running. Raises LabNameError when it is not up."""
        lab = cls.find(name)
        lab.running()
        return lab

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def pid(self) -> int | None:
        """Process 1 of the lab; None when it is not up."""
        return recall(self.paths.pids / "lab")

    def running(self) -> int:
        """Process 1 of the lab. Raises LabNameError when it is not up."""
        if (pid := self.pid) is None:
            raise not_up(self.name)
        return pid

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(self.host(name) for name in host_names(self.config.hosts))

    def host(self, name: str) -> Host:
        """The host called ``name`` (or NAME.lab). Raises LabNameError when the lab has none of that name."""
        plain, names = name.removesuffix(".lab"), host_names(self.config.hosts)
        if plain not in names:
            raise LabNameError(
                f"lab {self.name!r} has no host {name!r}", remedy=f"name one of {', '.join(names)}"
            )
        return Host(
            plain, self.paths.host(plain), self.paths.pids / plain, self.groups, self.config.memory_bytes
        )

    def boot(self, name: str) -> None:
        """Power a host on and wait until it is ready."""
        with locked(self.paths):
            self._boot(self.host(name))

    def _boot(self, host: Host) -> None:
        """Under the lab's lock."""
        try:
            host.boot(self.running(), self.config.shares)
            host.wait_ready()
        except LabError as error:
            # Here the logs stay; an ``up`` that fails removes them.
            error.remedy = error.remedy or f"sparkop lab logs {host.name}"
            raise

    def power_cut(self, name: str) -> None:
        """End a host without notice; its disk stays."""
        self.host(name).power_cut(self.running())

    @property
    def inside(self) -> str:
        """Value of SPARKOP_LAB_INSIDE for processes that enter the lab's network namespace."""
        return mark(self.name, self.config.token)


def up(
    name: str | None = None,
    config: LabConfig | None = None,
    say: Say = lambda _line: None,
    given: Collection[str] = OPTIONS,
) -> Lab:
    """Bring a lab up, or find that it is: hosts that are off are booted.

    Raises LabError when it runs and is not as asked in one of ``given``, or when something fails; then
    nothing stays.
    """
    asked = config or LabConfig()
    if not 1 <= asked.hosts <= MAX_HOSTS:
        raise LabError(f"{asked.hosts} hosts: a lab has 1 to {MAX_HOSTS}")
    packages.check()
    paths = LabPaths.of(name)
    with locked(paths):
        lab = _read(paths)
        if lab is not None and lab.pid is not None and overlay.overlay_path(name).exists():
            return _again(lab, asked, given, say)
        _clear(paths, say)
        try:
            return _build(paths, asked, say)
        except OSError as error:
            _clear(paths, say)
            raise LabError(f"the lab could not be made: {error}") from error
        except BaseException:
            _clear(paths, say)
            raise


def down(name: str | None = None, say: Say = lambda _line: None) -> bool:
    """Remove a lab and all that is left of it, whatever crashed. Returns whether there was anything."""
    paths = LabPaths.of(name)
    with locked(paths):
        return _clear(paths, say)


def _build(paths: LabPaths, asked: LabConfig, say: Say) -> Lab:
    began = time.monotonic()
    groups = cgroups.detect(paths.cgroup)
    config = LabConfig(**{
        **asdict(asked), "token": secrets.token_hex(8), "cgroups": cgroups.to_json(groups),
    })  # fmt: skip
    lab = Lab(paths, config, groups)
    paths.root.mkdir(mode=0o700, parents=True)  # private keys are below
    paths.config.write_text(json.dumps(asdict(config)))
    groups.create(SERVICES, None)
    known = _make_keys(lab)
    pid = _start_services(lab)
    say(f"network, registry and hub ({time.monotonic() - began:.1f} s)")

    def start(host: Host) -> None:
        _prepare(lab, host, known)
        host.boot(pid, config.shares)
        host.wait_ready()
        say(f"{host.name} ({time.monotonic() - began:.1f} s)")

    with ThreadPoolExecutor(config.hosts) as pool:
        with _uninterrupted():
            starts = [pool.submit(start, host) for host in lab.hosts]
        for each in starts:
            each.result()
    for port in (REGISTRY_PORT, HUB_PORT):
        wait_for(partial(listening, pid, port), 20, f"port {port} of the lab")
    overlay.write(lab.paths, {}, models={})  # last: an ``up`` that was killed before this is begun anew
    return lab


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end this program wait until the pool knows its threads: one that is just being started is
    joined by nobody, and would go on making files of a lab that is being removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda got, _frame: came.append(got)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for each in came:
        signal.raise_signal(each)  # now to the one whom it was for


def _again(lab: Lab, asked: LabConfig, given: Collection[str], say: Say) -> Lab:
    has, wanted = _in_words(lab.config), _in_words(asked)
    if differ := [option for option in OPTIONS if option in given and has[option] != wanted[option]]:
        raise LabError(
            f"lab {lab.name!r} is up with {', '.join(has[option] for option in differ)}, "
            f"not {', '.join(wanted[option] for option in differ)}",
            remedy="sparkop lab down, then up; or another name: --name",
        )
    for host in lab.hosts:
        if host.pid is None:
            lab._boot(host)
            say(f"{host.name} booted")
    say("already up")
    return lab


def _in_words(config: LabConfig) -> dict[str, str]:
    """What each of OPTIONS asks for, exactly."""
    from sparkop.spec.quantities import ByteSize  # slow to load, as in parse_size

    return {
        "hosts": f"{config.hosts} hosts",
        "memory": f"memory of {ByteSize(config.memory_bytes)}",
        "disk": f"disks of {ByteSize(config.disk_bytes)}",
        "share": f"shared folders {', '.join(sorted({*config.shares})) or 'none'}",
    }


def _make_keys(lab: Lab) -> str:
    """Keys of controller and hosts; returns known_hosts of all hosts."""
    controller = lab.paths.controller
    seed.make_key(controller / "ssh/id_ed25519", "lab controller")
    seed.make_key(lab.paths.root / "node-key", "lab node")
    keys = {
        host.name: seed.make_key(host.paths.seed / "etc/ssh/ssh_host_ed25519_key", host.name)
        for host in lab.hosts
    }
    known = seed.known_hosts(keys)
    (controller / "ssh/known_hosts").write_text(known)
    (controller / "ssh/config").write_text(
        "Host spark-* *.lab 10.77.0.* 10.78.0.* 10.79.0.*\n  User root\n  IdentityFile ~/.ssh/id_ed25519\n"
    )
    (controller / "ssh").chmod(0o700)
    (controller / "hosts").write_text(seed.hosts_file())
    return known


def _prepare(lab: Lab, host: Host, known: str) -> None:
    node_key, controller_key = lab.paths.root / "node-key", lab.paths.controller / "ssh/id_ed25519"
    authorized = [key.with_name(key.name + ".pub").read_text() for key in (controller_key, node_key)]
    seed.seed_files(host.paths.seed, host.name, authorized=authorized, node_key=node_key, known=known)
    host.make_disk(lab.config.disk_bytes)


def _start_services(lab: Lab) -> int:
    """Start the lab's process 1, its bridges, registry and hub."""
    paths = lab.paths
    services = {"registry": registry.prepare(paths), "hub": hub.prepare(paths)}
    file = paths.root / "services.json"
    file.write_text(
        json.dumps({"run": str(paths.root / "run"), "logs": str(paths.logs), "services": services})
    )
    init = start_init(
        lab.groups.placed(SERVICES, [
            "unshare", "-m", "-n", "-p", "--fork", "--propagation", "private", "--mount-proc",
            sys.executable, "-IS", str(seed.PROGRAMS / "lab_init.py"), str(file),
        ]),
        paths.logs / "console.log",
    )  # fmt: skip
    remember(paths.pids / "lab", init.pid)
    network.lay_bridges(init.pid)
    init.network_is_there()
    return init.pid


def _clear(paths: LabPaths, say: Say) -> bool:
    lab = _read(paths)
    groups = lab.groups if lab else cgroups.find(paths.cgroup)
    found = paths.root.exists() or groups is not None
    if lab:
        _ask_programs(lab)
    if groups:
        _end_processes(groups, lab)
        _wait_loops(paths)
        groups.remove()
    if paths.root.exists():
        shutil.rmtree(paths.root)
    if found:
        say("everything of the lab is gone")
    return found


def _ask_programs(lab: Lab) -> None:
    """Programs that run inside get SIGTERM while there still are hosts, so that a sparkop says its words and
    gives its lease back; at the second one it leaves at once."""
    for _ in range(2):
        end = time.monotonic() + ASKED_SECONDS
        kill(_programs(lab), signal.SIGTERM)
        while _programs(lab) and time.monotonic() < end:
            time.sleep(0.02)


def _programs(lab: Lab) -> list[int]:
    """What runs inside as the controller: no part of the lab, and not this program or its parents."""
    found = with_environment(f"{INSIDE_VARIABLE}={lab.inside}")
    if pid := lab.pid:
        with contextlib.suppress(OSError):  # it may be ending by itself
            found += in_network(network_of(pid))  # those that went in by themselves
    return sorted({*found}.difference(lab.groups.processes()))


def _end_processes(groups: Cgroups, lab: Lab | None) -> None:
    end = time.monotonic() + GONE_SECONDS
    seen: dict[int, str | None] = {}
    network = None
    if lab and (pid := lab.pid):
        with contextlib.suppress(OSError):  # it may be ending by itself
            network = network_of(pid)
        kill([pid])  # the root of all pid namespaces: the kernel ends the rest
    while True:
        left = groups.processes()
        if lab:
            left += with_environment(f"{INSIDE_VARIABLE}={lab.inside}")
        if network:
            left += in_network(network)  # those that went in by themselves
        seen |= {pid: start_time(pid) for pid in left if pid not in seen}
        # A process leaves its group before it is gone: process 1 of a namespace waits for all others first.
        dying = [pid for pid, start in seen.items() if start and start_time(pid) == start]
        if not left and not dying:
            return
        if time.monotonic() > end:
            raise LabError(
                f"processes of the lab do not end: {left or dying}", remedy="sparkop lab down again"
            )
        kill(left)
        for host in host_names(MAX_HOSTS):
            if groups.frozen(host):  # a frozen process takes its SIGKILL when it thaws
                with contextlib.suppress(LabError):
                    groups.freeze(host, False)
        time.sleep(0.02)


def _wait_loops(paths: LabPaths) -> None:
    """The kernel frees a loop device a moment after the last process of its mount namespace."""

    def mine() -> list[str]:
        found = []
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if file.read_text().startswith(f"{paths.root}/"):
                    found.append(file.parts[3])
        return found

    wait_for(lambda: not mine(), GONE_SECONDS, "the end of the hosts' loop devices")


def _read(paths: LabPaths) -> Lab | None:
    try:
        data = json.loads(paths.config.read_text())
        config = LabConfig(**{**data, "shares": tuple(data["shares"])})
        return Lab(paths, config, cgroups.from_json(config.cgroups))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def parse_size(text: str) -> int:
    """Bytes of a size as specs write it ("256 KiB"), of Docker's short form of one ("4g", "512m"), or of a
    plain number. Raises ValueError."""
    from sparkop.spec.quantities import ByteSize  # with pydantic: a tenth of a second for each other command

    number, unit = text[:-1], text[-1:].upper()
    if unit in ("K", "M", "G"):
        return int(ByteSize.parse(f"{number} {unit}iB"))
    return int(ByteSize.parse(f"{text} B" if text.isdecimal() else text))


def engine_shares(paths: Sequence[str]) -> tuple[str, ...]:
    """Absolute, existing folders to show to the hosts. Raises LabNameError for one that is not there."""
    for path in paths:
        if not Path(path).is_dir():
            raise LabNameError(f"{path}: no such folder to share with the hosts")
    return tuple(str(Path(path).absolute()) for path in paths)
