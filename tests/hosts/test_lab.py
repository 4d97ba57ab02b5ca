"""Hosts against the lab: real Docker, servers that forbid forwarding, nodes without power."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkop.errors import BlockedError, LeaseHeldError, UnreachableError
from sparkop.hosts.base import ContainerSpec, Fence
from sparkop.hosts.connect import Target
from sparkop.hosts.document import parse_document
from sparkop.hosts.rails import rails
from sparkop.hosts.ssh import SshHost
from sparkop.lab.lab import Lab
from sparkop.resources.image.context import read_context
from sparkop.resources.labels import BUILT_FOR
from tests.labkit import busybox, until

pytestmark = pytest.mark.lab

SECOND_PORT = 2222
IMAGE = "registry.lab:5000/test/busybox"
SPARK_1 = Target("spark-1", "spark-1.lab")
SPARK_2 = Target("spark-2", "spark-2.lab")


@pytest.fixture
def host_of() -> Iterator[Callable[[Target], SshHost]]:
    """Makes hosts and closes them."""
    made: list[SshHost] = []

    def make(there: Target) -> SshHost:
        made.append(SshHost(there))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def lab(inside_lab: Lab) -> Lab:
    """The lab, from inside."""
    return inside_lab


@pytest.fixture
def spark(lab: Lab, host_of: Callable[[Target], SshHost]) -> SshHost:
    """spark-1, with a small image."""
    assert busybox(lab, "spark-1") == IMAGE
    return host_of(SPARK_1)


@pytest.fixture
def fence(spark: SshHost) -> Iterator[Fence]:
    """A lease on spark-1, and no container left of it."""
    fence = Fence("hosts", f"me-{time.monotonic_ns()}", time.monotonic_ns(), "~/.sparkop/hosts")
    spark.act("lease.acquire", {"force": True}, fence)
    yield fence
    again = Fence("hosts", "cleaner", time.monotonic_ns(), "~/.sparkop/hosts")
    spark.act("lease.acquire", {"force": True}, again)
    spark.containers.remove("hosts-test", again, grace=0)


def strict_server(lab: Lab, *settings: str) -> None:
    """A second sshd on spark-1 that forbids."""
    options = [word for setting in settings for word in ("-o", setting)]
    lab.host("spark-1").exec(["/usr/sbin/sshd", "-p", str(SECOND_PORT), *options])
    until(listens)  # it goes into the background before it listens


def listens() -> bool:
    """Whether the second sshd takes connections."""
    try:
        socket.create_connection(("spark-1.lab", SECOND_PORT), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def strict(
    lab: Lab, short_folder: Path, host_of: Callable[[Target], SshHost]
) -> Iterator[Callable[..., SshHost]]:
    """Reaches spark-1 through an sshd with the given settings."""
    pid_file = "/run/strict.pid"

    def make(*settings: str) -> SshHost:
        strict_server(lab, f"PidFile={pid_file}", *settings)
        config = short_folder / "config"
        config.write_text(
            f"Host strict\nHostName spark-1.lab\nPort {SECOND_PORT}\nHostKeyAlias spark-1.lab\n"
            "User root\nInclude ~/.ssh/config\nIdentityFile ~/.ssh/id_ed25519\n"
        )
        return host_of(Target("spark-1", "strict", config_file=str(config)))

    yield make
    lab.host("spark-1").exec(["sh", "-c", f"kill $(cat {pid_file}); rm -f {pid_file}"])
    until(lambda: not listens())  # else the next one finds its port taken


@pytest.mark.parametrize(
    "settings",
    [
        ("AllowStreamLocalForwarding=no",),
        ("AllowStreamLocalForwarding=no", "MaxSessions=1"),
        ("DisableForwarding=yes",),
    ],
    ids=["no sockets", "one session", "no forwarding"],
)
def test_docker_where_the_server_forbids_sockets(
    settings: tuple[str, ...], spark: SshHost, fence: Fence, strict: Callable[..., SshHost]
) -> None:
    host = strict(*settings)
    command = ("sh", "-c", "echo one; echo two; sleep 600")
    host.containers.run(ContainerSpec("hosts-test", IMAGE, {"sparkop.cluster": "hosts"}, command), fence)
    events = host.containers.events({"event": ["die"], "container": ["hosts-test"]})

    def kill() -> None:
        until(lambda: events.opened)
        host.containers.kill("hosts-test", fence)

    threading.Thread(target=kill, daemon=True).start()
    assert next(iter(events))["Action"] == "die"
    assert list(host.log_lines("hosts-test", tail=10)) == ["one", "two"]


def test_logs_are_followed_until_the_end(spark: SshHost, fence: Fence) -> None:
    command = ("sh", "-c", "echo first; sleep 1; echo last; exit 3")
    spark.containers.run(ContainerSpec("hosts-test", IMAGE, {"sparkop.cluster": "hosts"}, command), fence)
    assert list(spark.log_lines("hosts-test", tail=10, follow=True)) == ["first", "last"]
    document = parse_document(spark.probe({"containers": ["hosts-test"]}))
    found = document.container("hosts-test")
    assert found is not None
    assert (found.state, found.exit_code) == ("exited", 3)


def test_pull_by_digest(lab: Lab, spark: SshHost, fence: Fence) -> None:
    host = lab.host("spark-1")
    name = "registry.lab:5000/tests/hosts:1"
    host.docker("tag", IMAGE, name)
    host.docker("push", "-q", name)
    digest = host.docker("image", "inspect", "-f", "{{index .RepoDigests 0}}", name).strip()
    host.docker("rmi", name)
    assert all("status" in progress for progress in list(spark.containers.pull(digest, fence)))
    docker = parse_document(spark.probe({"images": [digest]})).docker
    assert docker is not None
    image = docker.images[digest]
    assert image is not None
    assert digest in image.digests
    with pytest.raises(BlockedError, match=r"can't be pulled|not found"):
        list(spark.containers.pull(digest[:-4] + "0000", fence))


def test_a_stubborn_container_is_killed_after_its_grace(spark: SshHost, fence: Fence) -> None:
    command = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    spark.containers.run(ContainerSpec("hosts-test", IMAGE, {}, command), fence)
    begin = time.monotonic()
    renewed = threading.Thread(target=_renew_often, args=(spark, fence, 1.5))
    renewed.start()  # the lease is renewed while the container takes its time
    spark.containers.remove("hosts-test", fence, grace=2)
    renewed.join()
    assert 1.5 < time.monotonic() - begin < 10
    assert parse_document(spark.probe({"containers": ["hosts-test"]})).container("hosts-test") is None


def _renew_often(host: SshHost, fence: Fence, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        host.act("lease.renew", {}, fence)
        assert time.monotonic() - begin < 1.5


def test_two_contenders_one_lease(spark: SshHost, host_of: Callable[[Target], SshHost]) -> None:
    """Whoever comes first: exactly one of many that saw the same holder gets the lease."""
    first = Fence("race", "first", time.monotonic_ns(), "~/.sparkop/race")
    seen = spark.act("lease.acquire", {"force": True}, first)["lease"]
    won: list[int] = []
    lost: list[int] = []
    hosts = [host_of(SPARK_1) for _ in range(5)]

    def contend(number: int) -> None:
        host = hosts[number]
        mine = Fence("race", f"contender {number}", first.token + 1, first.directory)
        try:
            host.act("lease.acquire", {"expected": seen}, mine)
            won.append(number)
        except LeaseHeldError:
            lost.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)


def test_fabric_facts_are_the_labs(spark: SshHost) -> None:
    document = parse_document(spark.probe({"peers": ["10.78.0.12", "10.79.0.12"]}))
    found = rails(document)
    assert [(r.device, r.interface, r.address, r.prefix, r.mtu) for r in found] == [
        ("rocep1s0f0", "enp1s0f0np0", "10.78.0.11", 24, 9000),
        ("roceP2p1s0f0", "enP2p1s0f0np0", "10.79.0.11", 24, 9000),
    ]
    assert all(r.gid_index is not None for r in found)
    assert document.fabric is not None
    routes = document.fabric.routes
    assert {p: r.interface if r else None for p, r in routes.items()} == {
        "10.78.0.12": "enp1s0f0np0",
        "10.79.0.12": "enP2p1s0f0np0",
    }
    assert document.machine is not None
    assert document.machine.product == "NVIDIA_DGX_Spark"


def test_gpu_facts(spark: SshHost) -> None:
    gpu = parse_document(spark.probe({"gpu": True})).gpu
    assert gpu is not None
    assert gpu.devices[0].name == "NVIDIA GB10"


def test_a_node_without_power_fails_within_seconds(lab: Lab, host_of: Callable[[Target], SshHost]) -> None:
    host = host_of(SPARK_2)
    before = parse_document(host.probe({"sections": ["machine"]})).machine
    lab.power_cut("spark-2")
    try:
        begin = time.monotonic()
        with pytest.raises(UnreachableError):
            host.probe({"sections": ["machine"]})
        assert time.monotonic() - begin < 10
        with pytest.raises(UnreachableError) as caught:
            host.probe({"sections": ["machine"]})
        assert "no route" in (caught.value.cause or "") or "did not answer" in (caught.value.cause or "")
    finally:
        lab.boot("spark-2")
    after = parse_document(host.probe({"sections": ["machine"]})).machine
    assert before is not None
    assert after is not None
    assert after.machine_id == before.machine_id
    assert after.boot_id != before.boot_id


def test_docker_that_is_down_is_unknown_not_empty(lab: Lab, host_of: Callable[[Target], SshHost]) -> None:
    host = host_of(SPARK_2)
    fence = Fence("down", "me", time.monotonic_ns(), "~/.sparkop/down")
    host.act("lease.acquire", {"force": True}, fence)
    machine = lab.host("spark-2")
    machine.exec(["sh", "-c", "touch /run/hold-dockerd; kill $(cat /run/docker.pid)"])
    try:
        until(lambda: parse_document(host.probe({})).docker is None, 30)
        assert parse_document(host.probe({})).error("docker")
        with pytest.raises((BlockedError, UnreachableError)):
            host.containers.kill("x", fence)
        with pytest.raises(UnreachableError, match="Docker"):
            list(host.log_lines("x", tail=1))
    finally:
        machine.exec(["rm", "-f", "/run/hold-dockerd"])
        machine.wait_ready()
    host.containers.kill("x", fence)


def test_shells_are_installed() -> None:
    """The tests of login shells need them; say it before they fail one by one."""
    missing = [shell for shell in ("zsh", "fish", "tcsh") if shutil.which(shell) is None]
    assert not missing, f"install {' '.join(missing)}"


def test_what_a_failed_build_leaves_goes_with_its_chain_and_the_base_stays(
    lab: Lab, spark: SshHost, fence: Fence, tmp_path: Path
) -> None:
    """Steps that went well stay in the engine, for the next build; destroy finds the last by its label."""
    note = str(time.monotonic_ns())
    (tmp_path / "Dockerfile").write_text(
        f"ARG BASE\nFROM $BASE\nENV NOTE={note}\nCOPY Dockerfile /one\nRUN exit 3\n"
    )
    context, cluster = read_context(str(tmp_path)), f"failing-{note}"
    built = spark.containers.build(
        context.labelled(BUILT_FOR, cluster), "failing:1", arguments={"BASE": IMAGE}, labels={}, fence=fence
    )
    assert "non-zero code: 3" in list(built)[-1]["error"]

    def left() -> list[str]:
        docker = parse_document(spark.probe({"unnamed": f"{BUILT_FOR}={cluster}", "images": [IMAGE]})).docker
        assert docker is not None
        assert docker.images[IMAGE] is not None
        return [image.id for image in docker.unnamed]

    def all_images() -> set[str]:
        return set(lab.host("spark-1").exec(["docker", "images", "-aq", "--no-trunc"]).stdout.split())

    (last,), before = left(), all_images()
    assert spark.act("image.remove", {"reference": last, "spare": True}, fence)["changed"]
    assert left() == []
    assert len(before - all_images()) == 3, "label, environment and copy"
