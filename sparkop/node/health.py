"""What only `doctor` asks of a node: settings, services and processes that made others' groups fail.

Stdlib-only, Python 3.8 or newer. By /proc and small files, no subprocess. A part that can't be read is an
error ``health:<part>`` and is missing: unknown, never empty. File contents stay on the node, except for the
names of variables and the firewall's rules.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable

from . import network
from .wire import describe, listed, maybe, number, read_text, regular

LARGE = 1 << 30
"""Bytes of resident memory from which a process is told of."""
ENGINES = ("VLLM::", "vllm", "sglang", "ray::")
"""How processes of engines call themselves."""
KILLERS = ("earlyoom",)
NCCL_FILES = ("/etc/nccl.conf", "~/.nccl.conf")
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
PACKAGES = ("nvidia-container-toolkit",)
NETWORK_FILES = (
    "/etc/netplan",
    "/etc/systemd/network",
    "/run/systemd/network",
    "/etc/NetworkManager/system-connections",
    "/run/NetworkManager/system-connections",
)
AUTOMATIC = re.compile(
    r"(?mi)^\s*(dhcp4:\s*(true|yes)|link-local:.*ipv4|DHCP=(yes|ipv4|true)|LinkLocalAddressing=(yes|ipv4)"
    r"|method=(auto|link-local))"
)
"""An address that the machine finds by itself at boot: by DHCP, or link-local as in the vendor's guide."""
LOGIND = ("/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d", "/usr/lib/systemd/logind.conf.d")
NCCL_VERSION = re.compile(rb"NCCL version (\d[\w.+]*)(?=[^\w.+])")
TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""


def read(errors: dict[str, str]) -> dict[str, Any]:
    """The document's ``health``."""
    parts: dict[str, Callable[[], Any]] = {
        "min_free_bytes": min_free,
        "synchronised": synchronised,
        "cdi": cdi,
        "infiniband": lambda: listed("/dev/infiniband"),
        "nccl_files": nccl_files,
        "remove_ipc": remove_ipc,
        "linger": linger,
        "firewall": firewall,
        "configured": configured,
        "packages": packages,
        "processes": processes,
    }
    found = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:
            errors["health:" + name] = describe(error)
    return found


def min_free() -> int:
    """Bytes of vm.min_free_kbytes."""
    return int(read_text("/proc/sys/vm/min_free_kbytes")) * 1024


def synchronised() -> bool:
    """Whether the kernel holds the clock for synchronised. Raises OSError."""
    import ctypes  # slow to load, and only this needs it

    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # modes 0: reads only
    if state < 0:
        raise OSError("adjtimex failed")
    return bool(state != TIME_ERROR)


def cdi() -> list[str]:
    """Device descriptions of the Container Device Interface."""
    return [folder + "/" + name for folder in CDI_FOLDERS for name in listed(folder)]


def nccl_files() -> dict[str, list[str]]:
    """NCCL's own configuration files, and the variables that each sets."""
    found = {}
    for path in NCCL_FILES:
        place = os.path.expanduser(path)
        if os.path.exists(place):
            lines = (line.strip() for line in read_text(place).splitlines())
            names = {line.split("=", 1)[0].strip() for line in lines if "=" in line and line[0] != "#"}
            found[path] = sorted(names)
    return found


def remove_ipc() -> bool:
    """RemoveIPC of logind; ``yes`` is its own default. Drop-ins win over the file."""
    answer = True
    main, *folders = LOGIND
    drop_ins = sorted(
        (name, folder + "/" + name) for folder in folders for name in listed(folder) if name.endswith(".conf")
    )
    for path in [main, *(path for _, path in drop_ins)]:
        for line in (maybe(path) or "").splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == "RemoveIPC":
                answer = value.strip().lower() in ("yes", "true", "on", "1")
    return answer


def linger() -> bool:
    """Whether logind keeps the user's processes when nobody is logged in."""
    import pwd

    return os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.getuid()).pw_name)


def firewall() -> dict[str, Any]:
    """ufw; its rules are null when only root may read them. One that lets everything in counts as off."""
    settings, defaults = maybe("/etc/ufw/ufw.conf") or "", maybe("/etc/default/ufw") or ""
    enabled = bool(re.search(r"(?m)^\s*ENABLED\s*=\s*[\"']?yes", settings))
    if re.search(r"(?m)^\s*DEFAULT_INPUT_POLICY\s*=\s*[\"']?ACCEPT", defaults):
        enabled = False
    rules = None
    if enabled:
        try:
            lines = read_text("/etc/ufw/user.rules").splitlines()
            rules = [line[len("### tuple ### ") :] for line in lines if line.startswith("### tuple ### ")]
        except OSError:
            pass
    return {"enabled": enabled, "rules": rules}


def configured() -> dict[str, Any]:
    """By RDMA network device: whether its address and MTU stand in a file that is read at boot.

    ``files`` counts the files that could be read, ``unreadable`` those that could not.
    """
    texts, unreadable = [], 0
    for folder in NETWORK_FILES:
        try:
            names = listed(folder)
        except OSError:
            unreadable += 1
            continue
        for name in names:
            try:
                texts.append(read_text(folder + "/" + name))
            except OSError:
                unreadable += 1
    with network.Netlink() as netlink:
        addresses = netlink.addresses()
    found = {}
    for device in listed("/sys/class/infiniband"):
        for name in listed("/sys/class/infiniband/%s/device/net" % device):
            mac = maybe("/sys/class/net/%s/address" % name) or name
            own = [text for text in texts if name in text or mac.lower() in text.lower()]
            held = [a for a in addresses.get(name, []) if ":" not in a]
            given = any(AUTOMATIC.search(text) for text in own)
            mtu = number(maybe("/sys/class/net/%s/mtu" % name))
            found[name] = {
                "addresses": [a for a in held if given or any(mentions(t, a.split("/")[0]) for t in own)],
                "mtu": mtu if any(mentions(text, str(mtu)) for text in own) else None,
            }
    return {"files": len(texts), "unreadable": unreadable, "interfaces": found}


def mentions(text: str, word: str) -> bool:
    return re.search(r"(?<![\d.])" + re.escape(word) + r"(?![\d.])", text) is not None


def packages() -> dict[str, str]:
    """Versions of Debian packages that are installed."""
    found = {}
    with open("/var/lib/dpkg/status", encoding="utf-8", errors="replace") as stream:
        name = None
        for line in stream:
            if line.startswith("Package: "):
                name = line[9:].strip()
            elif name in PACKAGES and line.startswith("Version: "):
                found[str(name)] = line[9:].strip()
    return found


def processes() -> list[dict[str, Any]]:
    """Large ones, engines and killers for memory, the largest first. Arguments may be secret: never told."""
    page = os.sysconf("SC_PAGE_SIZE")
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        folder = "/proc/" + pid
        name, sizes = maybe(folder + "/comm"), (maybe(folder + "/statm") or "").split()
        if name is None or len(sizes) < 2:
            continue  # it has ended
        rss = int(sizes[1]) * page
        if rss >= LARGE or name.startswith(ENGINES) or name in KILLERS:
            container = re.search(r"[0-9a-f]{64}", maybe(folder + "/cgroup") or "")
            found.append(
                {
                    "pid": int(pid),
                    "name": name,
                    "rss_bytes": rss,
                    "uid": os.stat(folder).st_uid,
                    "container": container.group() if container else None,
                }
            )
    return sorted(found, key=lambda process: -int(process["rss_bytes"]))


def library(path: str) -> dict[str, Any] | None:
    """Size, SHA-256 and NCCL version of a library; None when it does not exist."""
    import hashlib

    whole, version, before = hashlib.sha256(), None, b""
    try:
        with regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            for block in iter(lambda: stream.read(1 << 20), b""):
                whole.update(block)
                match = None if version else NCCL_VERSION.search(before + block)
                version = match.group(1).decode() if match else version
                before = block[-64:]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return {"size": size, "sha256": whole.hexdigest(), "version": version}
