"""Files that make a lab host look like a Spark."""

from __future__ import annotations

from pathlib import Path

from sparkop.lab import seed


def test_sysfs_is_that_of_two_cards_with_two_ports(tmp_path: Path) -> None:
    seed.seed_classes(tmp_path, "spark-1")
    devices = {path.name: path for path in (tmp_path / "infiniband").iterdir()}
    assert set(devices) == {"rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"}
    port = devices["roceP2p1s0f0"] / "ports/1"
    assert (port / "gid_attrs/types/3").read_text() == "RoCE v2\n"
    assert (port / "gid_attrs/types/2").read_text() == "IB/RoCE v1\n"
    assert (port / "gid_attrs/ndevs/3").read_text() == "enP2p1s0f0np0\n"
    assert (port / "rate").read_text() == "200 Gb/sec (4X HDR)\n"
    assert (port / "hw_counters/packet_seq_err").read_text() == "0\n"
    assert [path.name for path in (devices["rocep1s0f0"] / "device/net").iterdir()] == ["enp1s0f0np0"]
    slots = {name: (path / "device").resolve().name for name, path in devices.items()}
    assert slots["rocep1s0f0"] == "0000:01:00.0"  # one function number in both domains: one cage
    assert slots["roceP2p1s0f0"] == "0002:01:00.0"
    assert len(set(slots.values())) == 4
    assert (tmp_path / "dmi/id/product_name").read_text() == "NVIDIA_DGX_Spark\n"


def test_link_local_gid_follows_from_the_mac(tmp_path: Path) -> None:
    """As the kernel makes it, so that it agrees with `ip -6 address`: 02:5a:00:00:01:0b on spark-1."""
    seed.seed_classes(tmp_path, "spark-1")
    gid = (tmp_path / "infiniband/rocep1s0f0/ports/1/gids/0").read_text().strip()
    assert gid == "fe80:0000:0000:0000:005a:00ff:fe00:010b"


def test_host_keys_are_known_by_every_name_and_address() -> None:
    text = seed.known_hosts({"spark-1": "ssh-ed25519 AAAA spark-1\n"})
    names, kind, _ = text.split(" ", 2)
    assert kind == "ssh-ed25519"
    assert {"spark-1", "spark-1.lab", "10.77.0.11", "10.78.0.11", "10.79.0.11"} <= set(names.split(","))


def test_every_name_resolves_inside() -> None:
    names = {name for line in seed.hosts_file().splitlines() for name in line.split()[1:]}
    assert {"registry.lab", "hub.lab", "spark-1", "spark-4.lab", "spark-2-f1.lab"} <= names


def test_hosts_have_an_ordinary_user_in_group_docker(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("private")
    (tmp_path / "key.pub").write_text("public")
    folder = tmp_path / "seed"
    seed.seed_files(folder, "spark-1", authorized=["one\n", "two\n"], node_key=key, known="known\n")
    groups = {line.split(":")[0]: line for line in (folder / "etc/group").read_text().splitlines()}
    assert groups["docker"].endswith(f":{seed.USER}")
    users = [line.split(":") for line in (folder / "etc/passwd").read_text().splitlines()]
    assert [user[0] for user in users if user[2] == "1000"] == [seed.USER]
    authorized = folder / "home" / seed.USER / ".ssh/authorized_keys"
    assert authorized.read_text() == "one\ntwo\n"
    assert authorized.stat().st_mode & 0o777 == 0o600
    assert (folder / "usr/local/bin/runc-lab").stat().st_mode & 0o111
