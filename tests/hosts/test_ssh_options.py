"""What is taken from ``ssh -G``, and the ways through other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.connect import Target
from sparkop.hosts.ssh_options import jump_target, parse_options, read_options


def test_ssh_itself_reads_the_configuration(tmp_path: Path) -> None:
    """Include, Match and patterns work because ssh does them."""
    config, more = tmp_path / "config", tmp_path / "more"
    config.write_text(f"Include {more}\nMatch host 10.1.2.3\n  Port 2200\nHost *\n  User somebody\n")
    more.write_text("Host spark*\n  HostName 10.1.2.3\n  ProxyCommand relay %h %p %r %n\n")
    options = read_options(Target("a", "spark-a", config_file=str(config)))
    assert (options.hostname, options.port, options.user) == ("10.1.2.3", 2200, "somebody")
    assert options.proxy_command == "relay 10.1.2.3 2200 somebody spark-a"
    assert options.host_key_name == "[10.1.2.3]:2200"


def test_what_the_spec_says_comes_first(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\nUser somebody\nPort 2200\nIdentityFile /keys/general\n")
    mine = tmp_path / "mine"
    mine.touch()
    there = Target("a", "spark", "me", 22, str(mine), config_file=str(config))
    options = read_options(there)
    assert (options.user, options.port) == ("me", 22)
    assert options.identity_files[:2] == (mine, Path("/keys/general"))


def test_a_configuration_that_ssh_refuses_is_told(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Prot 22\n")
    with pytest.raises(UnreachableError) as caught:
        read_options(Target("a", "spark", config_file=str(config)))
    assert "prot" in (caught.value.detail or "").lower()


def test_defaults_and_none() -> None:
    options = parse_options("spark", "identityagent none\nproxycommand none\nproxyjump none\nport 22\n")
    assert options.agent is None
    assert options.proxy_command is None
    assert options.proxy_jump is None
    assert not options.accept_new_keys
    assert options.connect_timeout == 10


@pytest.mark.parametrize("word", ["SSH_AUTH_SOCK", "$OTHER"])
def test_the_agent_by_variable(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(word.removeprefix("$"), "/run/agent")
    assert parse_options("spark", f"identityagent {word}\n").agent == Path("/run/agent")


@pytest.mark.parametrize(
    ("jump", "host", "user", "port", "before"),
    [
        ("bastion", "bastion", None, None, None),
        ("me@bastion:2222", "bastion", "me", 2222, None),
        ("ssh://me@bastion:2222", "bastion", "me", 2222, None),
        ("first,me@[fd00::1]:22", "fd00::1", "me", 22, "first"),
        ("a,b,c", "c", None, None, "a,b"),
    ],
)
def test_jumps(jump: str, host: str, user: str | None, port: int | None, before: str | None) -> None:
    hop, rest = jump_target(Target("a", "spark", config_file="f"), jump)
    assert (hop.host, hop.user, hop.port, rest) == (host, user, port, before)
    assert hop.config_file == "f"
    assert (hop.name, hop.jump) == ("a", True)
