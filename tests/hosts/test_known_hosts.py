"""Which lines of known_hosts mean a host, as sshd(8) says."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from sparkop.hosts.known_hosts import add_key, known_keys

KEY = b64encode(b"key").decode()
OTHER = b64encode(b"other").decode()


@pytest.mark.parametrize(
    ("line", "name", "known"),
    [
        (f"spark ssh-ed25519 {KEY} comment", "spark", True),
        (f"spark,10.0.0.2 ssh-ed25519 {KEY}", "10.0.0.2", True),
        (f"Spark ssh-ed25519 {KEY}", "spark", True),
        (f"spark ssh-ed25519 {KEY}", "[spark]:2222", False),
        (f"[spark]:2222 ssh-ed25519 {KEY}", "[spark]:2222", True),
        (f"[spark]:2222 ssh-ed25519 {KEY}", "spark", False),
        (f"10.0.0.* ssh-ed25519 {KEY}", "10.0.0.7", True),
        (f"10.0.0.*,!10.0.0.7 ssh-ed25519 {KEY}", "10.0.0.7", False),
        (f"spark? ssh-ed25519 {KEY}", "spark1", True),
        (f"[ab]spark ssh-ed25519 {KEY}", "aspark", False),
        (f"# spark ssh-ed25519 {KEY}", "spark", False),
        (f"@cert-authority spark ssh-ed25519 {KEY}", "spark", False),
        ("spark ssh-ed25519 not-base64!", "spark", False),
        ("spark", "spark", False),
        (f"|1|broken ssh-ed25519 {KEY}", "spark", False),
    ],
)
def test_lines(line: str, name: str, known: bool, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line + "\n")
    assert known_keys([file], name).keys == ((("ssh-ed25519", b"key"),) if known else ())


def test_files_are_joined_and_missing_ones_skipped(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"spark ssh-ed25519 {KEY}\n")
    second.write_text(f"spark ssh-rsa {OTHER}\n@revoked spark ssh-ed25519 {KEY}\n")
    found = known_keys([first, tmp_path / "missing", second], "spark")
    assert [kind for kind, _ in found.keys] == ["ssh-ed25519", "ssh-rsa"]
    assert found.revoked == {b"key"}


def test_an_added_key_is_found(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "known_hosts"
    add_key(file, "[spark]:2222", "ssh-ed25519", b"key")
    assert known_keys([file], "[spark]:2222").keys == (("ssh-ed25519", b"key"),)
