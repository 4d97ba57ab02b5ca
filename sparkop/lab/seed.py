"""Files of a new host: what is laid on its disk, and the sysfs data that makes it look like a Spark.

Facts about names, states and identities are from recorded output of real machines.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkop.lab.layout import (
    CONTROLLER_ADDRESS,
    HUB_NAME,
    MAX_HOSTS,
    NICS,
    REGISTRY_NAME,
    REGISTRY_PORT,
    Nic,
    host_addresses,
    host_index,
    host_names,
)
from sparkop.lab.processes import run

PROGRAMS = Path(__file__).with_name("inside")
ZERO_GID = ":".join(["0000"] * 8)
USER = "spark"
"""An ordinary user of every host, in group docker, as the first user of a Spark is."""

HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_transport_retries_exceeded",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_handled",
)
PCI_FOLDER = ".pci"
"""Beside the classes: where the ``device`` links lead to, which tell the PCI address."""
COUNTERS = ("link_downed", "port_rcv_data", "port_rcv_errors", "port_xmit_data", "symbol_error")

_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxSessions 64
MaxStartups 64
AllowStreamLocalForwarding yes
AllowTcpForwarding yes
PidFile none
Subsystem sftp /usr/lib/openssh/sftp-server
"""


def hosts_file(extra: str = "") -> str:
    """/etc/hosts of everything in the lab: by name, by NAME.lab, and over each fabric rail."""
    lines = ["127.0.0.1 localhost", f"{CONTROLLER_ADDRESS} {REGISTRY_NAME} {HUB_NAME} controller.lab"]
    for host in host_names(MAX_HOSTS):
        management, *rails = host_addresses(host).values()
        lines.append(f"{management} {host} {host}.lab")
        lines += [f"{address} {host}-f{number}.lab" for number, address in enumerate(rails)]
    return "\n".join(lines) + "\n" + extra


def known_hosts(public_keys: Mapping[str, str]) -> str:
    """known_hosts lines for ``public_keys`` (host -> host key)."""
    lines = []
    for host, key in public_keys.items():
        rails = [f"{host}-f{number}.lab" for number in range(len(host_addresses(host)) - 1)]
        lines.append(
            ",".join([host, f"{host}.lab", *rails, *host_addresses(host).values()]) + " " + key.strip()
        )
    return "\n".join(lines) + "\n"


def make_key(file: Path, comment: str) -> str:
    """Make an ed25519 key once and return its public half."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)])
    return file.with_name(file.name + ".pub").read_text()


def seed_files(seed: Path, host: str, *, authorized: Sequence[str], node_key: Path, known: str) -> None:
    """Write the files of ``host`` below ``seed``; its host key is there already.

    authorized: public keys that may log in; node_key: private key the hosts use among themselves;
    known: known_hosts text.
    """
    _write(seed / "etc/hostname", host + "\n")
    _write(seed / "etc/hosts", hosts_file(f"127.0.1.1 {host}\n"))
    _write(seed / "etc/resolv.conf", "")
    _write(seed / "etc/machine-id", secrets.token_hex(16) + "\n")
    _write(seed / "etc/ssh/sshd_config", _SSHD)
    _write(seed / "etc/dgx-release", 'DGX_NAME="DGX Spark"\nDGX_PRETTY_NAME="NVIDIA DGX Spark (lab)"\n')
    _write(seed / "etc/docker/daemon.json", json.dumps(docker_configuration(), indent=1))
    for number, home in enumerate((seed / "root", seed / "home" / USER)):
        _write(home / ".ssh/authorized_keys", "".join(authorized), 0o600)
        _write(home / ".ssh/known_hosts", known, 0o600)
        for suffix in ("", ".pub"):
            shutil.copy(node_key.with_name(node_key.name + suffix), home / ".ssh" / f"id_ed25519{suffix}")
        for folder in (home, home / ".ssh"):
            folder.chmod(0o700)
        if number:
            for path in (home, *home.rglob("*")):
                shutil.chown(path, 1000, 1000)
    _seed_user(seed)
    for program in (PROGRAMS / "bin").iterdir():
        if program.is_file():
            target = seed / "usr/local/bin" / program.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, target)
            target.chmod(0o755)


def docker_configuration() -> dict[str, object]:
    """daemon.json of a host."""
    return {
        "insecure-registries": [f"{REGISTRY_NAME}:{REGISTRY_PORT}", f"{CONTROLLER_ADDRESS}:{REGISTRY_PORT}"],
        "storage-driver": "overlay2",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "bip": "172.30.0.1/24",
        "log-opts": {"max-size": "20m", "max-file": "2"},
        "shutdown-timeout": 5,
        "runtimes": {"lab": {"path": "/usr/local/bin/runc-lab"}},
        "default-runtime": "lab",
    }


def _seed_user(seed: Path) -> None:
    machine = {name: Path("/etc", name).read_text() for name in ("passwd", "group", "shadow")}
    own = {
        "passwd": f"{USER}:x:1000:1000::/home/{USER}:/bin/bash\n",
        "group": f"{USER}:x:1000:\n",
        "shadow": f"{USER}:*:20000::::::\n",
    }
    for name, text in machine.items():
        lines = [line for line in text.splitlines() if not _taken(name, line)]
        if name == "group":
            lines = [
                f"docker:x:{line.split(':')[2]}:{USER}" if line.startswith("docker:") else line
                for line in lines
            ]
        _write(seed / "etc" / name, "\n".join(lines) + "\n" + own[name], 0o640 if name == "shadow" else 0o644)


def _taken(file: str, line: str) -> bool:
    fields = line.split(":")
    return fields[0] == USER or (file != "shadow" and len(fields) > 2 and fields[2] == "1000")


def seed_classes(classes: Path, host: str) -> None:
    """/sys/class/infiniband and /sys/class/dmi of a Spark; figures.py keeps states and GIDs right."""
    for nic in NICS:
        if nic.rdma:
            _seed_device(classes / "infiniband" / nic.rdma, nic, host)
    identity = {
        "product_name": "NVIDIA_DGX_Spark",
        "product_version": "A.7",
        "sys_vendor": "NVIDIA",
        "board_name": "P4242",
        "bios_vendor": "NVIDIA",
        "bios_version": "5.36_0ACUM018",
        "chassis_type": "3",
        "product_serial": f"lab-{host_index(host)}",
    }
    for name, text in identity.items():
        _write(classes / "dmi/id" / name, text + "\n")


def _seed_device(device: Path, nic: Nic, host: str) -> None:
    mac = bytes.fromhex(nic.mac(host_index(host)).replace(":", ""))
    guid = bytes([mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:]])
    words = ":".join(guid[at : at + 2].hex() for at in range(0, 8, 2))
    general = {
        "fw_ver": "28.45.4028",
        "hca_type": "MT4129",
        "board_id": "NVD0000000087",
        "node_type": "1: CA",
        "node_guid": words,
        "sys_image_guid": words,
        "node_desc": f"{host} {nic.rdma}",
    }
    port = {
        "state": "1: DOWN",
        "phys_state": "3: Disabled",
        "rate": "200 Gb/sec (4X HDR)",
        "link_layer": "Ethernet",
        "lid": "0x0",
        "sm_lid": "0x0",
        "cap_mask": "0x00010000",
    }
    pci = {
        "vendor": "0x15b3",
        "device": "0x1021",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "4",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "4",
    }
    slot = device.parents[1] / PCI_FOLDER / str(nic.pci)
    for folder, files in ((device, general), (device / "ports/1", port), (slot, pci)):
        for name, text in files.items():
            _write(folder / name, text + "\n")
    (device / "device").symlink_to(Path("../..", PCI_FOLDER, slot.name))
    (device / "device/net" / nic.name).mkdir(parents=True)
    (device / "device/infiniband" / str(nic.rdma)).mkdir(parents=True)
    gids = [f"fe80:0000:0000:0000:{words}"] * 2 + [ZERO_GID] * 6
    for index, gid in enumerate(gids):
        _write(device / "ports/1/gids" / str(index), gid + "\n")
    for index in range(4):
        kind = "RoCE v2" if index % 2 else "IB/RoCE v1"
        _write(device / "ports/1/gid_attrs/types" / str(index), kind + "\n")
        _write(device / "ports/1/gid_attrs/ndevs" / str(index), nic.name + "\n")
    for folder_name, names in (("hw_counters", HW_COUNTERS), ("counters", COUNTERS)):
        for name in names:
            _write(device / "ports/1" / folder_name / name, "0\n")


def _write(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
