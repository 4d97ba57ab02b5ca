"""Brings a lab up, or finds that it is."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from sparkop.lab import cgroups, hub, network, overlay, packages, registry, seed
from sparkop.lab.cgroups import SERVICES
from sparkop.lab.down import clear
from sparkop.lab.host import Host, listening
from sparkop.lab.lab import Lab, LabConfig, Say, lab_at
from sparkop.lab.layout import HUB_PORT, MAX_HOSTS, REGISTRY_PORT, LabError, LabPaths
from sparkop.lab.lock import locked
from sparkop.lab.processes import remember, wait_for
from sparkop.lab.start import start_init

OPTIONS = ("hosts", "memory", "disk", "share")
"""Options of ``lab up`` that say what a lab is."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user, or a system that goes down, ends this program."""


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
        lab = lab_at(paths)
        if lab is not None and lab.pid is not None and overlay.overlay_path(name).exists():
            return _again(lab, asked, given, say)
        clear(paths, say)
        try:
            return _build(paths, asked, say)
        except OSError as error:
            clear(paths, say)
            raise LabError(f"the lab could not be made: {error}") from error
        except BaseException:
            clear(paths, say)
            raise


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
            lab.boot_locked(host)
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
