"""Network facts of a node: RDMA devices, interfaces, routes, listeners. By sysfs, /proc and netlink.

Stdlib-only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from .wire import listed, maybe, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

    Listener = Tuple[int, str, int, int]
    """Port, address, uid, inode of the socket."""

VIRTUAL_INTERFACES = ("lo", "veth", "docker", "br-", "virbr")
COUNTERS = ("packet_seq_err", "out_of_sequence", "req_transport_retries_exceeded")
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def fabric(peers: list[str]) -> dict[str, Any]:
    """RDMA devices, interfaces, and the routes to ``peers``. Raises OSError."""
    with Netlink() as netlink:
        addresses = netlink.addresses()
        routes = {peer: netlink.route(peer) for peer in peers}
    return {
        "devices": [device(name) for name in listed("/sys/class/infiniband")],
        "interfaces": [
            interface(name, addresses.get(name, []))
            for name in listed("/sys/class/net")
            if not name.startswith(VIRTUAL_INTERFACES) and os.path.exists("/sys/class/net/%s/mtu" % name)
        ],
        "routes": routes,
    }


def device(name: str) -> dict[str, Any]:
    """An RDMA device, its port 1 and the GIDs in use. Names of devices are not stable, sysfs is."""
    folder = "/sys/class/infiniband/" + name
    port = folder + "/ports/1/"
    state = (maybe(port + "state") or "").partition(":")[2].strip()
    gids = []
    for index in sorted(int(i) for i in listed(port + "gids") if i.isdigit()):
        gid = maybe("%sgids/%d" % (port, index))
        if gid and gid != NO_GID:
            kind = maybe("%sgid_attrs/types/%d" % (port, index))
            netdev = maybe("%sgid_attrs/ndevs/%d" % (port, index))
            gids.append({"index": index, "gid": gid, "type": kind, "netdev": netdev})
    counters = {}
    for counter in COUNTERS:
        value = number(maybe(port + "hw_counters/" + counter))
        if value is not None:
            counters[counter] = value
    pci = os.path.basename(os.path.realpath(folder + "/device"))
    return {
        "name": name,
        "state": state or "UNKNOWN",
        "physical_state": (maybe(port + "phys_state") or "").partition(":")[2].strip() or None,
        "rate": maybe(port + "rate"),
        "pci": pci if pci.count(":") == 2 else None,
        "firmware": maybe(folder + "/fw_ver"),
        "netdevs": listed(folder + "/device/net"),
        "gids": gids,
        "counters": counters,
    }


def interface(name: str, addresses: list[str]) -> dict[str, Any]:
    """A network interface, by sysfs."""
    folder = "/sys/class/net/%s/" % name
    carrier = maybe(folder + "carrier")
    speed = number(maybe(folder + "speed"))
    return {
        "name": name,
        "operstate": maybe(folder + "operstate") or "unknown",
        "carrier": None if carrier is None else carrier == "1",
        "mtu": number(maybe(folder + "mtu")) or 0,
        "speed_mbps": speed if speed and speed > 0 else None,
        "mac": maybe(folder + "address"),
        "addresses": addresses,
    }


class Netlink:
    """Questions to the kernel: rtnetlink(7) and sock_diag(7). The standard library has no getifaddrs."""

    ROUTE, SOCK_DIAG = 0, 4
    NEWADDR, GETADDR, NEWROUTE, GETROUTE, BY_FAMILY = 20, 22, 24, 26, 20
    REQUEST, DUMP = 0x1, 0x300
    ERROR, DONE = 2, 3

    def __init__(self, protocol: int = ROUTE) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self.socket.settimeout(5)

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, kind: int, body: bytes, dump: bool = False) -> Iterator[tuple[int, bytes]]:
        """Kind and body of each message of the answer. Raises OSError when the kernel refuses."""
        flags = self.REQUEST | (self.DUMP if dump else 0)
        self.socket.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        while True:
            data = self.socket.recv(1 << 18)
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if kind == self.DONE:
                    return
                if kind == self.ERROR:
                    number = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(number, os.strerror(number))
                yield kind, data[16:length]
                data = data[(length + 3) & ~3 :]
            if not dump:
                return

    def addresses(self) -> dict[str, list[str]]:
        """By interface, with prefix length, in the kernel's order."""
        names = dict(socket.if_nameindex())
        found: dict[str, list[str]] = {}
        for kind, body in self.ask(self.GETADDR, struct.pack("=BBBBi", 0, 0, 0, 0, 0), dump=True):
            if kind == self.NEWADDR:
                family, prefix, _, _, index = struct.unpack_from("=BBBBi", body)
                values = attributes(body[8:])
                raw = values.get(2) or values.get(1)  # IFA_LOCAL, IFA_ADDRESS
                if raw and index in names and family in (socket.AF_INET, socket.AF_INET6):
                    text = "%s/%d" % (socket.inet_ntop(family, raw), prefix)
                    found.setdefault(names[index], []).append(text)
        return found

    def route(self, peer: str) -> dict[str, Any] | None:
        """The kernel's choice for packets to ``peer``; None when there is no way."""
        family = socket.AF_INET6 if ":" in peer else socket.AF_INET
        raw = socket.inet_pton(family, peer)
        head = struct.pack("=BBBBBBBBI", family, len(raw) * 8, 0, 0, 0, 0, 0, 0, 0)
        try:
            answers = list(self.ask(self.GETROUTE, head + struct.pack("=HH", 4 + len(raw), 1) + raw))
        except OSError as error:
            if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL):
                return None
            raise
        for kind, body in answers:
            values = attributes(body[12:])
            if kind == self.NEWROUTE and 4 in values:  # RTA_OIF
                source, gateway = values.get(7), values.get(5)  # RTA_PREFSRC, RTA_GATEWAY
                return {
                    "interface": socket.if_indextoname(struct.unpack("=i", values[4])[0]),
                    "source": socket.inet_ntop(family, source) if source else None,
                    "gateway": socket.inet_ntop(family, gateway) if gateway else None,
                }
        return None


def attributes(data: bytes) -> dict[int, bytes]:
    """Of a netlink message, by kind."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def ports(wanted: list[int]) -> dict[str, Any]:
    """Who listens on TCP ports."""
    found: dict[str, dict[str, Any]] = {str(port): {"listening": False} for port in wanted}
    inodes = {}
    for port, address, uid, inode in listeners() if wanted else ():
        entry = found.get(str(port))
        if entry is not None:
            entry["listening"] = True
            entry.setdefault("addresses", []).append(address)
            entry["uid"] = uid
            inodes["socket:[%d]" % inode] = entry
    if inodes:
        name_owners(inodes)
    return found


def listeners() -> list[Listener]:
    """By sock_diag(7); a kernel without it has the same in /proc/net/tcp, which is a hundred times slower."""
    try:
        return [*diag_listeners(socket.AF_INET), *diag_listeners(socket.AF_INET6)]
    except OSError:
        return [*proc_listeners("/proc/net/tcp"), *proc_listeners("/proc/net/tcp6")]


def diag_listeners(family: int) -> Iterator[Listener]:
    with Netlink(Netlink.SOCK_DIAG) as netlink:
        listening = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 0, 0, 1 << 10)
        for kind, body in netlink.ask(Netlink.BY_FAMILY, listening, dump=True):
            if kind == Netlink.BY_FAMILY:
                port = struct.unpack_from(">H", body, 4)[0]
                address = socket.inet_ntop(family, body[8 : 12 if family == socket.AF_INET else 24])
                uid, inode = struct.unpack_from("=II", body, 64)
                yield port, address, uid, inode


def proc_listeners(table: str) -> Iterator[Listener]:
    for line in (maybe(table) or "").splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":  # LISTEN
            host, _, port = fields[1].partition(":")
            yield int(port, 16), proc_address(host), int(fields[7]), int(fields[9])


def proc_address(text: str) -> str:
    """An address of /proc/net/tcp: 32-bit words, each in the machine's byte order."""
    words = [struct.pack("=I", int(text[i : i + 8], 16)) for i in range(0, len(text), 8)]
    raw = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def name_owners(inodes: dict[str, dict[str, Any]]) -> None:
    """Find the processes of sockets; those of other users can't be seen."""
    left = set(inodes)
    for pid in sorted((int(p) for p in os.listdir("/proc") if p.isdigit()), reverse=True):
        try:
            for descriptor in os.listdir("/proc/%d/fd" % pid):
                target = os.readlink("/proc/%d/fd/%s" % (pid, descriptor))
                if target in left:
                    process, cgroup = (maybe("/proc/%d/%s" % (pid, file)) for file in ("comm", "cgroup"))
                    inodes[target].update(pid=pid, process=process, cgroup=cgroup)
                    left.discard(target)
        except OSError:
            continue
        if not left:
            return
