"""What the probe reads for doctor: settings, processes, libraries, pings."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkop.hosts.document import parse_document
from sparkop.node import facts, health, ping, probe

NCCL = b"\0" * 37 + b"NCCL version 2.30.7+cuda13.0\0compiled\0"


def document(**request: Any) -> dict[str, Any]:
    return probe.Probe({"nonce": "n", **request}).document()


def test_nothing_of_it_is_read_unless_it_is_asked_for() -> None:
    """Every observation pays for the probe; doctor alone pays for these."""
    assert not {"health", "libraries", "pings"} & set(document(state="/nowhere"))


def test_health_is_readable_on_this_machine_and_typed() -> None:
    found = parse_document(document(sections=["health"]))
    assert found.health is not None
    assert found.health.min_free_bytes
    assert found.health.processes is not None


def test_a_part_that_fails_is_unknown_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise PermissionError(13, "Permission denied", "/etc/x")

    monkeypatch.setattr(health, "linger", refuse)
    found = parse_document(document(sections=["health"]))
    assert found.health is not None
    assert found.health.linger is None
    assert found.health.min_free_bytes
    assert found.error("health", "linger") == "PermissionError: Permission denied: /etc/x"


class TestLibraries:
    """A staged NCCL is larger than what is hashed in every observation."""

    def test_version_and_hash(self, tmp_path: Path) -> None:
        path = tmp_path / "libnccl.so.2.30.7"
        path.write_bytes(NCCL)
        found = document(sections=["libraries"], libraries=[str(path)])["libraries"][str(path)]
        said = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout
        assert found == {"size": len(NCCL), "sha256": said.split()[0], "version": "2.30.7+cuda13.0"}

    @pytest.mark.parametrize("cut", [1, 9, 20, 27])
    def test_a_version_on_the_border_of_two_blocks(self, cut: int, tmp_path: Path) -> None:
        """The text is wherever the linker put it."""
        path = tmp_path / "lib"
        path.write_bytes(b"\0" * ((1 << 20) - 37 - cut) + NCCL + b"\0" * 100)
        assert health.library(str(path))["version"] == "2.30.7+cuda13.0"  # type: ignore[index]

    def test_absent(self, tmp_path: Path) -> None:
        path = str(tmp_path / "lib")
        assert document(sections=["libraries"], libraries=[path])["libraries"] == {path: None}

    def test_a_large_file_is_present_without_a_hash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was an error before, so that no staged library was ever used."""
        monkeypatch.setattr(facts, "LARGEST_FILE", 8)
        path = tmp_path / "lib"
        path.write_bytes(NCCL)
        found = document(sections=["files"], files=[str(path)])
        assert found["errors"] == {}
        assert found["files"][str(path)]["sha256"] is None
        assert found["files"][str(path)]["size"] == len(NCCL)


class TestSettings:
    """From the files as Ubuntu writes them."""

    @pytest.fixture
    def etc(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(health, "read_text", lambda path: (tmp_path / path.lstrip("/")).read_text())
        monkeypatch.setattr(health, "maybe", lambda path: self._maybe(tmp_path / path.lstrip("/")))
        monkeypatch.setattr(health, "listed", lambda path: self._listed(tmp_path / path.lstrip("/")))
        return tmp_path

    @staticmethod
    def _maybe(path: Path) -> str | None:
        return path.read_text().strip() if path.exists() else None

    @staticmethod
    def _listed(path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    @staticmethod
    def write(etc: Path, path: str, text: str) -> None:
        file = etc / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def test_logind(self, etc: Path) -> None:
        """A comment is the default, which is yes; drop-ins win."""
        self.write(etc, "etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n")
        assert health.remove_ipc() is True
        self.write(etc, "etc/systemd/logind.conf.d/10.conf", "[Login]\nRemoveIPC=no\n")
        assert health.remove_ipc() is False

    def test_ufw(self, etc: Path) -> None:
        assert health.firewall() == {"enabled": False, "rules": None}
        self.write(etc, "etc/ufw/ufw.conf", "# comment\nENABLED=yes\nLOGLEVEL=low\n")
        assert health.firewall() == {"enabled": True, "rules": None}
        rule = "allow any any 0.0.0.0/0 any 0.0.0.0/0 in_enp1s0f0np0"
        self.write(etc, "etc/ufw/user.rules", f"*filter\n### tuple ### {rule}\n-A ufw-user-input -j ACCEPT\n")
        assert health.firewall() == {"enabled": True, "rules": [rule]}

    def test_ufw_that_lets_everything_in_is_off(self, etc: Path) -> None:
        self.write(etc, "etc/ufw/ufw.conf", "ENABLED=yes\n")
        self.write(etc, "etc/default/ufw", 'IPV6=yes\nDEFAULT_INPUT_POLICY="ACCEPT"\n')
        assert health.firewall()["enabled"] is False

    @pytest.mark.parametrize(
        "text",
        [
            "      dhcp4: true",
            "      link-local: [ ipv4 ]",
            "[Network]\nDHCP=ipv4",
            "[ipv4]\nmethod=auto",
            "[ipv4]\nmethod=link-local",
        ],
    )
    def test_addresses_found_at_boot_are_persistent(self, text: str) -> None:
        """The vendor's guide uses link-local addresses: they stand in no file, and come back all the same."""
        assert health.AUTOMATIC.search(text)
        assert not health.AUTOMATIC.search("      dhcp4: no\n[ipv4]\nmethod=manual\n      link-local: []")

    def test_a_number_is_not_a_part_of_another(self) -> None:
        """10.0.22.1 does not stand where 10.0.22.11 does."""
        assert health.mentions("addresses: [10.0.22.1/24]", "10.0.22.1")
        assert not health.mentions("addresses: [10.0.22.11/24]", "10.0.22.1")
        assert not health.mentions("mtu: 19000", "9000")


class TestPing:
    """Against this machine's own loopback, whose MTU is 65536."""

    def test_small_and_large(self) -> None:
        for size in (84, 9000, 60000):
            assert ping.ping("127.0.0.1", "127.0.0.1", size)["answered"]

    def test_larger_than_the_interface(self) -> None:
        """Nothing is fragmented on the way out."""
        found = ping.ping("127.0.0.1", "127.0.0.1", 65536 + 100)
        assert not found["answered"]

    def test_an_address_that_is_not_ours(self) -> None:
        with pytest.raises(OSError, match=r"[Cc]annot assign"):
            ping.ping("127.0.0.1", "192.0.2.77", 84)

    def test_nobody_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every reply is of another request: waited for, and then told."""
        monkeypatch.setattr(ping, "SECONDS", 0.02)
        monkeypatch.setattr(ping, "REPLY", 77)
        assert ping.ping("127.0.0.1", "127.0.0.1", 84) == {"answered": False, "reason": "no answer"}

    def test_checksum(self) -> None:
        """RFC 1071: the sum over a packet with its checksum is zero."""
        message = ping.message(3, 56)
        assert ping.checksum(message) == 0
        assert len(message) == 64

    def test_many_at_once_in_a_document(self) -> None:
        asked = [
            {"name": f"127.0.0.1/{size}", "address": "127.0.0.1", "source": "127.0.0.1", "bytes": size}
            for size in (84, 1500, 9000)
        ] + [{"name": "bad", "address": "127.0.0.1", "source": "192.0.2.77", "bytes": 84}]
        found = document(sections=["pings"], pings=asked)
        assert {name for name, answer in found["pings"].items() if answer["answered"]} == {
            "127.0.0.1/84",
            "127.0.0.1/1500",
            "127.0.0.1/9000",
        }
        assert "pings:bad" in found["errors"]

    def test_a_raw_socket_where_there_is_no_ping_socket(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Root in a namespace without ping_group_range. Needs CAP_NET_RAW, as the lab does."""

        def raw() -> socket.socket:
            return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)

        monkeypatch.setattr(ping, "icmp_socket", raw)
        assert ping.ping("127.0.0.1", "127.0.0.1", 9000)["answered"]


def test_processes_tell_names_and_sizes_but_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments can hold keys."""
    monkeypatch.setattr(health, "LARGE", 1)
    found = health.processes()
    own = next(process for process in found if process["pid"] == os.getpid())
    assert set(own) == {"pid", "name", "rss_bytes", "uid", "container"}
    assert own["rss_bytes"] > 1 << 20
    assert [p["rss_bytes"] for p in found] == sorted((p["rss_bytes"] for p in found), reverse=True)
