"""Names, addresses and paths of a lab: plain data, no effects.

The addresses are the same in every lab: each lab has a network namespace of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from sparkop.errors import ExitCode, SparkopError
from sparkop.records import dataclass

LAB_VARIABLE = "SPARKOP_LAB"
STATE_VARIABLE = "SPARKOP_LAB_STATE"

DEFAULT_STATE_ROOT = Path("/var/lib/sparkop-lab")
MAX_HOSTS = 4

CONTROLLER_ADDRESS = "10.77.0.1"
REGISTRY_NAME = "registry.lab"
REGISTRY_PORT = 5000
HUB_NAME = "hub.lab"
HUB_PORT = 8100
"""Its large files come from the next port, another origin, as on the real hub: the client reads headers only
then."""

_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


class LabError(SparkopError):
    """Something of the lab could not be done."""

    exit_code = ExitCode.FAILED


class LabNameError(LabError):
    """The command names a lab, a host or something of them that is not there."""

    exit_code = ExitCode.USAGE


def not_up(lab: str) -> LabNameError:
    """To be raised where a lab is named that does not run."""
    return LabNameError(f"lab {lab!r} is not up", remedy=f"sparkop lab up; {LAB_VARIABLE} names another lab")


@dataclass(frozen=True)
class Nic:
    """One network card of a lab host, as a Spark names it."""

    name: str
    tag: str
    """Short name of the lab's end of the cable (``m1`` is the management cable of spark-1)."""
    bridge: str | None
    """None: nothing is plugged in."""
    network: str | None
    """First three bytes of the address."""
    mtu: int
    speed_mbit: int
    rdma: str | None = None
    pci: str | None = None
    """PCI address; one function number in both domains is one cage."""

    def address(self, index: int) -> str | None:
        """Address of host ``index`` (1 is spark-1) on this card."""
        return f"{self.network}.{10 + index}" if self.network else None

    def mac(self, index: int) -> str:
        """Fixed, so that a rebooted host does not wait for stale ARP entries of its peers."""
        return f"02:5a:00:00:{NICS.index(self):02x}:{10 + index:02x}"


NICS: tuple[Nic, ...] = (
    Nic("enP7s7", "m", "brm", "10.77.0", 1500, 10_000),
    Nic("enp1s0f0np0", "fa", "brf0", "10.78.0", 9000, 200_000, "rocep1s0f0", "0000:01:00.0"),
    Nic("enP2p1s0f0np0", "fb", "brf1", "10.79.0", 9000, 200_000, "roceP2p1s0f0", "0002:01:00.0"),
    Nic("enp1s0f1np1", "fc", None, None, 1500, 200_000, "rocep1s0f1", "0000:01:00.1"),
    Nic("enP2p1s0f1np1", "fd", None, None, 1500, 200_000, "roceP2p1s0f1", "0002:01:00.1"),
)
"""Management, the two halves of the cabled port, the two halves of the empty port."""

MANAGEMENT = NICS[0]
RAILS: tuple[Nic, ...] = (NICS[1], NICS[2])


def lab_name(given: str | None = None) -> str:
    """The lab that is meant: ``given``, else SPARKOP_LAB, else "default".

    Raises LabNameError when the name is no plain lower-case word.
    """
    name = given or os.environ.get(LAB_VARIABLE) or "default"
    if not _LAB_NAME.fullmatch(name):
        raise LabNameError(f"lab name {name!r}: use up to 31 of a-z, 0-9 and '-', not '-' first")
    return name


def host_names(count: int) -> tuple[str, ...]:
    return tuple(f"spark-{index}" for index in range(1, count + 1))


def host_index(host: str) -> int:
    """1 for spark-1 (or spark-1.lab). Raises LabNameError for a name that no lab has."""
    match = re.fullmatch(r"spark-([1-9])(?:\.lab)?", host)
    if match is None or int(match[1]) > MAX_HOSTS:
        raise LabNameError(f"no lab host is called {host!r}: spark-1 to spark-{MAX_HOSTS}")
    return int(match[1])


def host_addresses(host: str) -> dict[str, str]:
    """Address of each addressed network card of ``host``, management first."""
    index = host_index(host)
    return {nic.name: address for nic in NICS if (address := nic.address(index)) is not None}


@dataclass(frozen=True)
class HostPaths:
    """Where the controller keeps what belongs to one host."""

    root: Path

    @property
    def disk(self) -> Path:
        return self.root / "disk.img"

    @property
    def seed(self) -> Path:
        """Files laid on the disk at the first boot."""
        return self.root / "seed"

    @property
    def knobs(self) -> Path:
        """Seen inside the host as /run/lab."""
        return self.root / "knobs"

    @property
    def logs(self) -> Path:
        return self.knobs / "log"

    @property
    def mounts(self) -> Path:
        """Mount points that are used inside the host's own mount namespace only."""
        return self.root / "mounts"

    @property
    def unplugged(self) -> Path:
        """One file for each network card whose cable is out; survives a boot."""
        return self.root / "unplugged"


@dataclass(frozen=True)
class LabPaths:
    """Where a lab keeps its state."""

    name: str
    state_root: Path

    @classmethod
    def of(cls, name: str | None = None) -> LabPaths:
        root = Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE_ROOT)
        return cls(lab_name(name), root.resolve())

    @property
    def root(self) -> Path:
        return self.state_root / self.name

    @property
    def cgroup(self) -> str:
        """Directory name of the lab's cgroups: two labs of one name under two state roots differ."""
        if self.state_root == DEFAULT_STATE_ROOT:
            return self.name
        return f"{self.name}@{hashlib.sha256(str(self.state_root).encode()).hexdigest()[:8]}"

    @property
    def lock(self) -> Path:
        """Beside the lab's folder, because ``down`` removes that."""
        return self.state_root / f".{self.name}.lock"

    @property
    def config(self) -> Path:
        return self.root / "lab.json"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def controller(self) -> Path:
        """ssh configuration, keys and hosts file that programs see inside the lab."""
        return self.root / "controller"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    @property
    def repositories(self) -> Path:
        return self.root / "repos"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    def host(self, host: str) -> HostPaths:
        return HostPaths(self.root / host)
