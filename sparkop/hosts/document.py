"""The probe's document in typed form: what one node looked like at one moment.

Unknown keys are ignored (a newer probe may say more), types are strict. A section that is ``None`` could
not be read and is unknown; ``errors`` says why. Inside a section, a requested thing that is ``None`` is
absent, and one that is missing from its mapping could not be read.

Annotations here are no text (no ``from __future__ import annotations``): ``decode`` reads them, and would
compile each one.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sparkop.errors import unreadable
from sparkop.hosts.addresses import ip_interface, ipv6_address
from sparkop.hosts.base import VERSION
from sparkop.hosts.typed import NotOfTypeError, decode
from sparkop.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Who answered."""

    hostname: str
    machine_id: str
    """/etc/machine-id; two targets with the same one are one machine."""
    boot_id: str
    """Changes at every boot."""
    arch: str
    kernel: str
    home: str
    user: str
    uid: int
    uptime_s: float
    time_s: float
    """Wall clock of the node, seconds since 1970."""
    cpu_count: int
    groups: tuple[str, ...] = ()
    """Groups of this login."""
    pending_groups: tuple[str, ...] = ()
    """Groups that /etc/group gives the user, but this login does not have yet."""
    product: str | None = None
    os: str | None = None
    cmdline: str | None = None
    reboot_required: bool = False


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Figures of /proc/meminfo, in bytes."""

    total: int
    available: int
    free: int
    buffers: int = 0
    cached: int = 0
    swap_total: int = 0
    swap_free: int = 0
    cma_total: int | None = None
    cma_free: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gid:
    """One entry of an RDMA device's GID table."""

    index: int
    gid: str
    type: str | None = None
    """``RoCE v2`` or ``IB/RoCE v1``; None where the kernel does not say."""
    netdev: str | None = None

    def __post_init__(self) -> None:
        ipv6_address(self.gid)  # raises ValueError


@dataclass(frozen=True, kw_only=True)
class Device:
    """An RDMA device (port 1), by sysfs."""

    name: str
    state: str
    """``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``."""
    rate: str | None = None
    physical_state: str | None = None
    pci: str | None = None
    firmware: str | None = None
    netdevs: tuple[str, ...] = ()
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface."""

    name: str
    operstate: str
    carrier: bool | None = None
    """None while the interface is administratively down."""
    mtu: int
    speed_mbps: int | None = None
    mac: str | None = None
    addresses: tuple[str, ...] = ()
    """With prefix length: ``192.168.100.10/24``. IPv4 and IPv6."""

    def __post_init__(self) -> None:
        for address in self.addresses:
            ip_interface(address)  # raises ValueError


@dataclass(frozen=True, kw_only=True)
class Route:
    """The way that packets to a peer take."""

    interface: str
    source: str | None = None
    gateway: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """RDMA devices, network interfaces, routes to the peers asked for (None: no route)."""

    devices: tuple[Device, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    routes: Mapping[str, Route | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The file system that holds a path, or would hold it."""

    path: str
    """The nearest folder that exists."""
    total: int
    free: int
    """Bytes that the user may still write."""
    inodes_free: int
    device: int
    """st_dev: equal numbers are one file system."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A regular file."""

    size: int
    mode: int
    """Permission bits."""
    uid: int
    sha256: str | None = None
    """None when it is larger than 64 MiB: ``libraries`` has the hashes of those that are asked for."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A large file, hashed on demand."""

    size: int
    sha256: str
    version: str | None = None
    """``2.30.7+cuda13.0``: what NCCL says of itself in its file."""


@dataclass(frozen=True, kw_only=True)
class Firewall:
    """ufw."""

    enabled: bool
    rules: tuple[str, ...] | None = None
    """Its rules as it keeps them; None when only root may read them, or it is off."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What of a network device's settings stands in a file that is read at boot."""

    addresses: tuple[str, ...] = ()
    mtu: int | None = None


@dataclass(frozen=True, kw_only=True)
class Configured:
    """Files of netplan, systemd-networkd and NetworkManager, and what they say of RDMA network devices."""

    files: int
    unreadable: int = 0
    interfaces: Mapping[str, Kept] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that is large, or an engine's, or kills others for memory."""

    pid: int
    name: str
    rss_bytes: int
    uid: int
    container: str | None = None
    """Id of the container that it runs in."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What only doctor asks for. None: could not be read, see ``errors`` under ``health:<field>``."""

    min_free_bytes: int | None = None
    """vm.min_free_kbytes."""
    synchronised: bool | None = None
    cdi: tuple[str, ...] | None = None
    """Device descriptions of the Container Device Interface."""
    infiniband: tuple[str, ...] | None = None
    """Names in /dev/infiniband."""
    nccl_files: Mapping[str, tuple[str, ...]] | None = None
    """NCCL's own configuration files, with the variables that each sets."""
    remove_ipc: bool | None = None
    linger: bool | None = None
    firewall: Firewall | None = None
    configured: Configured | None = None
    packages: Mapping[str, str] | None = None
    processes: tuple[Process, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Ping:
    """An unfragmented packet and whether it was answered."""

    answered: bool
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that carries our labels or was named in the request."""

    id: str
    name: str
    image: str
    """As in ``docker run``."""
    image_id: str
    state: str
    """``created``, ``running``, ``paused``, ``restarting``, ``removing``, ``exited``, ``dead``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    """None while it runs or before its first start."""
    oom_killed: bool = False
    started_at: str | None = None
    """RFC 3339, by the node's clock; None before the first start."""
    finished_at: str | None = None
    restart_policy: str = "no"
    error: str | None = None
    pid: int | None = None
    halted: bool = False
    """A signal has stopped its main process, although it is ``running``."""

    @property
    def running(self) -> bool:
        return self.state == "running"


@dataclass(frozen=True, kw_only=True)
class Unit(Container):
    """A program of ours that runs on the node without a container (node/units.py).

    ``state``: ``running``, ``paused`` (stopped by a signal) or ``exited``.
    """

    id: str = ""
    image: str = ""
    image_id: str = ""
    kept: str
    """Who starts it again when it dies: ``systemd``, ``systemd --user``, ``detached`` (only sparkop)."""
    boots: bool
    """Whether it runs again after a reboot, before anyone logs in."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """A local image."""

    id: str
    digests: tuple[str, ...] = ()
    """Repo digests: ``name@sha256:...``; empty for an image that was built or loaded."""
    labels: Mapping[str, str] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Docker:
    """The Docker engine. ``root`` to ``default_runtime`` are read only when ``engine`` asks for them."""

    version: str
    api_version: str
    root: str | None = None
    driver: str | None = None
    snapshotter: bool | None = None
    """Images are in containerd's store, where an image id can be a manifest digest."""
    cgroup_version: str | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    containers: tuple[Container, ...] = ()
    images: Mapping[str, Image | None] = field(default_factory=dict)
    unnamed: tuple[Image, ...] = ()
    """With the label that ``unnamed`` asks for, and without a name."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """Image id -> a container that is made of it; of all containers, read with ``unnamed``."""


@dataclass(frozen=True, kw_only=True)
class GpuDevice:
    """A GPU, by nvidia-smi; None where it says ``[N/A]``."""

    name: str
    driver: str | None = None
    utilization_percent: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds GPU memory."""

    pid: int
    name: str
    used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What nvidia-smi says. Asked for only by ``gpu: true``."""

    devices: tuple[GpuDevice, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LostGpu:
    """What NVML says in a container."""

    log: str | None = None
    """The line of its log that says that the GPU is lost; None without one."""
    exec: str | None = None
    """``ok``, or what nvidia-smi in it said; None when it was not asked, or the image has none."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The files of the checkpoint, by the ledger of verified files."""

    directory: str
    exists: bool
    verified: int
    """Files whose stat equals the ledger's, and whose hash there is the wanted one."""
    verified_bytes: int
    bytes: int
    """Present, verified or not; partial files count with what they have."""
    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    """Of another size, or known to have another hash."""
    unverified: tuple[str, ...] = ()
    """Of the right size, but never hashed, or changed since: they must be hashed before use."""
    flaws: Mapping[str, str] = field(default_factory=dict)
    """What is the matter with the wrong ones, and with missing ones that come in parts, in a few words."""
    dates: int = 0
    """Checksum of the present files' paths, sizes and seconds of change."""
    inodes: int = 0
    """The same with their inode numbers: one file system shows the same on all nodes, as a rule."""

    @property
    def complete(self) -> bool:
        return self.exists and not (self.missing or self.wrong or self.unverified)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What lies in the state folder and is not sparkop's."""

    foreign: tuple[str, ...] = ()
    """Names of what is not sparkop's."""
    owned: bool = False
    """It is a cluster's: what is foreign came later."""
    apart: str | None = None
    """The real path of the checkpoint's folder, where that lies within."""


@dataclass(frozen=True, kw_only=True)
class Removable:
    """What of the checkpoint goes when it is removed."""

    path: str
    """The folder that goes, or in which its files do."""
    there: bool
    bytes: int
    link: str | None = None
    """Where a folder of a hub cache is a link, or another revision may use this one by it: nothing is removed
    then."""
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Cluster -> files below the root that stay because it uses them."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """A TCP port of the node."""

    listening: bool
    addresses: tuple[str, ...] = ()
    uid: int | None = None
    pid: int | None = None
    """None when the listener belongs to another user."""
    process: str | None = None
    cgroup: str | None = None
    """Of the process, as the kernel tells it: names the container that it is in by its id."""


@dataclass(frozen=True, kw_only=True)
class Follower:
    """The process that keeps a rank's log in a file."""

    container: str | None = None
    """Id of the container that it follows; None when there never was one."""
    alive: bool = False
    unreadable: str | None = None
    """Why the engine gives no logs of this container."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One node, observed."""

    version: int
    nonce: str
    machine: Machine | None = None
    tools: Mapping[str, str | None] | None = None
    """Path of a program, or None when it is not installed; ``python`` is the version of the node's Python."""
    memory: Memory | None = None
    fabric: Fabric | None = None
    disk: Mapping[str, Disk] | None = None
    files: Mapping[str, File | None] | None = None
    state: Mapping[str, Any] | None = None
    """The JSON files of the state folder by name (``lease.json``); empty when the folder is absent."""
    ground: Ground | None = None
    follower: Follower | None = None
    docker: Docker | None = None
    units: tuple[Unit, ...] | None = None
    """Asked for only by ``units: true``."""
    gpu: Gpu | None = None
    lost_gpus: Mapping[str, LostGpu] | None = None
    """By container. Asked for only by name."""
    weights: Weights | None = None
    removable: Removable | None = None
    """Asked for only by `destroy`."""
    ports: Mapping[str, Port] | None = None
    health: Health | None = None
    libraries: Mapping[str, Library | None] | None = None
    pings: Mapping[str, Ping] | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    """Section, or ``section:item``, to what went wrong."""

    def error(self, section: str, item: str | None = None) -> str | None:
        """Why a section, or one thing in it, is unknown; None when it was read."""
        own = self.errors.get(f"{section}:{item}") if item is not None else None
        return own or self.errors.get(section)

    def container(self, name: str) -> Container | None:
        """A container by name; None when Docker was read and has none. Ask ``docker is None`` first."""
        found = [c for c in (self.docker.containers if self.docker else ()) if c.name == name]
        return found[0] if found else None


def parse_document(raw: Any, *, node: str | None = None) -> Document:
    """The typed form of a probe's answer. Raises UnreachableError (unknown) when it is none."""
    try:
        document = decode(Document, raw)
    except NotOfTypeError as error:
        raise unreadable(str(error), node=node) from error
    if document.version != VERSION:
        raise unreadable(f"it is of version {document.version}, not {VERSION}", node=node)
    return document
