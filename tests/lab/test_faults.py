"""Each fault does what it says on a real host, and mending undoes it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkop.lab.faults import FAULTS, Target
from sparkop.lab.faults.files import guards_asked, tripped
from sparkop.lab.host import Host, docker_answers
from sparkop.lab.lab import Lab, parse_size
from sparkop.lab.layout import LabError
from sparkop.lab.report import report, table
from tests.labkit import busybox, inside, run_inside, until

ISSUE_2 = [
    "kill-rank",
    "cable",
    "mgmt-cut",
    "dockerd-kill",
    "power-cut",
    "freeze",
    "kill-guard",
    "missing-weight",
]
ISSUE_4 = [
    "admin-down",
    "mtu",
    "dockerd-stop",
    "dockerd-freeze",
    "sshd-stop",
    "disk-full",
    "corrupt-weight",
    "image-drift",
    "memory-pressure",
    "kill-launcher",
    "exit-zero",
    "wedge",
    "degenerate",
    "slow-start",
]
ISSUE_5 = ["hang", "gpu-lost", "long-prefill", "not-ready", "server-error"]
ISSUE_15 = ["clock-skew"]
CARRIER = "/sys/class/net/{}/carrier"


def test_registry_has_every_fault_of_the_issues_and_help_shows_them() -> None:
    assert set(FAULTS) == {*ISSUE_2, *ISSUE_4, *ISSUE_5, *ISSUE_15}
    command = [sys.executable, "-m", "sparkop", "lab", "break", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in FAULTS:
        assert f"\n  {name} " in shown


@pytest.fixture
def host(lab: Lab) -> Iterator[Host]:
    """spark-1 without containers."""
    found = lab.host("spark-1")
    yield found
    if ids := found.docker("ps", "-aq").split():
        found.docker("rm", "-f", "-v", *ids)


def do(lab: Lab, fault: str, host: str = "spark-1", **aim: object) -> str:
    return FAULTS[fault].breaks(Target(lab, lab.host(host), **aim))  # type: ignore[arg-type]


def mend(lab: Lab, fault: str, host: str = "spark-1", **aim: object) -> str:
    return FAULTS[fault].mends(Target(lab, lab.host(host), **aim))  # type: ignore[arg-type]


def start(
    lab: Lab, name: str, *options: str, command: str = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
) -> str:
    """Start a container of busybox on spark-1; returns its id."""
    image = busybox(lab, "spark-1")
    return (
        lab.host("spark-1").docker("run", "-d", "--name", name, *options, image, "sh", "-c", command).strip()
    )


def state(host: Host, container: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(host.docker("inspect", container))[0]["State"]
    return found


RANK = ("--label", "sparkop.role=rank", "--label", "sparkop.rank=0")
GUARD = ("--label", "sparkop.role=memguard", "--restart", "unless-stopped")


@pytest.mark.lab
class TestContainers:
    def test_kill_rank_takes_the_rank_and_nothing_else(self, lab: Lab, host: Host) -> None:
        start(lab, "rank0", *RANK)
        start(lab, "rank1", "--label", "sparkop.role=rank", "--label", "sparkop.rank=1")
        start(lab, "guard", *GUARD)
        do(lab, "kill-rank", rank=1)
        assert (state(host, "rank1")["Status"], state(host, "rank1")["ExitCode"]) == ("exited", 137)
        assert state(host, "rank0")["Running"]
        do(lab, "kill-rank")
        assert not state(host, "rank0")["Running"]
        assert state(host, "guard")["Running"]
        with pytest.raises(LabError, match="no running container of a rank"):
            do(lab, "kill-rank")

    def test_a_killed_guard_stays_dead_whatever_its_restart_policy(self, lab: Lab, host: Host) -> None:
        start(lab, "guard", *GUARD)
        start(lab, "rank0", *RANK)
        do(lab, "kill-guard")
        until(lambda: state(host, "guard")["Status"] != "running")
        found = state(host, "guard")  # one that Docker starts again is "restarting", and never "exited"
        assert (found["Status"], found["ExitCode"]) == ("exited", 137)
        assert state(host, "rank0")["Running"]

    @pytest.mark.parametrize("options", [(), ("--init",)])
    def test_kill_launcher_aims_at_the_engine_and_not_at_dockers_init(
        self, lab: Lab, host: Host, options: tuple[str, ...]
    ) -> None:
        start(lab, "rank0", *options, *RANK)
        assert "killed sh in rank0" in do(lab, "kill-launcher")
        assert state(host, "rank0")["ExitCode"] == 137

    def test_image_drift_loses_the_digest_and_mending_pulls_it(self, lab: Lab, host: Host) -> None:
        """Also under the name that sparkop keeps it by, which no registry knows."""
        image = busybox(lab, "spark-1")
        host.docker("push", image)
        digest = json.loads(host.docker("inspect", image))[0]["RepoDigests"][0]
        kept = digest.replace("@sha256:", ":sparkop-")
        host.docker("tag", image, kept)
        start(lab, "rank0", *RANK)
        do(lab, "image-drift")
        with pytest.raises(LabError, match="No such"):
            host.docker("inspect", digest)
        assert state(host, "rank0")["Running"]
        mend(lab, "image-drift")
        assert json.loads(host.docker("inspect", digest))
        assert json.loads(host.docker("inspect", kept))
        host.docker("rmi", kept)


@pytest.mark.lab
class TestLinks:
    def test_cable_takes_both_rails_and_management_stays(self, lab: Lab, host: Host) -> None:
        do(lab, "cable")
        try:
            for card in ("enp1s0f0np0", "enP2p1s0f0np0"):
                assert host.exec(["cat", CARRIER.format(card)]).stdout == "0\n"
            until(lambda: "rocep1s0f0/1 state DOWN" in host.exec(["rdma", "link"]).stdout)
            until(lambda: host.exec(["cat", "/sys/class/net/enp1s0f0np0/speed"]).stdout.strip() == "-1")
            run_inside(lab, ["ssh", "spark-1", "true"])
            assert host.exec(["ping", "-c", "1", "-W", "1", "10.78.0.12"], check=False).returncode != 0
        finally:
            mend(lab, "cable")
        until(lambda: "rocep1s0f0/1 state ACTIVE" in host.exec(["rdma", "link"]).stdout)
        until(lambda: host.exec(["ping", "-c", "1", "-W", "1", "10.78.0.12"], check=False).returncode == 0)

    def test_one_rail_leaves_the_other(self, lab: Lab, host: Host) -> None:
        do(lab, "cable", rail=1)
        try:
            assert host.exec(["cat", CARRIER.format("enp1s0f0np0")]).stdout == "1\n"
            assert host.exec(["cat", CARRIER.format("enP2p1s0f0np0")]).stdout == "0\n"
        finally:
            mend(lab, "cable")

    def test_a_pulled_cable_stays_out_over_a_power_cut(self, lab: Lab, host: Host) -> None:
        do(lab, "cable", rail=0)
        do(lab, "power-cut")
        mend(lab, "power-cut")
        try:
            assert host.exec(["cat", CARRIER.format("enp1s0f0np0")]).stdout == "0\n"
        finally:
            mend(lab, "cable")
        assert host.exec(["cat", CARRIER.format("enp1s0f0np0")]).stdout == "1\n"

    def test_management_cut_is_silence_and_heals_on_the_same_connection(self, lab: Lab, host: Host) -> None:
        with inside(lab), socket.create_connection(("10.77.0.11", 22), timeout=5) as connection:
            assert connection.recv(64).startswith(b"SSH")
            do(lab, "mgmt-cut")
            try:
                connection.sendall(b"SSH-2.0-test\r\n")
                connection.settimeout(1)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                assert host.exec(["ping", "-c", "1", "-W", "2", "10.78.0.12"]).returncode == 0
            finally:
                mend(lab, "mgmt-cut")
            connection.settimeout(20)
            assert connection.recv(1)

    def test_admin_down_and_mtu_are_the_hosts_own_settings(self, lab: Lab, host: Host) -> None:
        def link(card: str) -> dict[str, object]:
            found: dict[str, object] = json.loads(host.exec(["ip", "-j", "link", "show", card]).stdout)[0]
            return found

        do(lab, "admin-down", rail=0)
        assert "UP" not in link("enp1s0f0np0")["flags"]  # type: ignore[operator]
        assert "UP" in link("enP2p1s0f0np0")["flags"]  # type: ignore[operator]
        mend(lab, "admin-down")
        assert "UP" in link("enp1s0f0np0")["flags"]  # type: ignore[operator]
        do(lab, "mtu", rail=1)
        assert (link("enp1s0f0np0")["mtu"], link("enP2p1s0f0np0")["mtu"]) == (9000, 1500)
        mend(lab, "mtu")
        assert link("enP2p1s0f0np0")["mtu"] == 9000


@pytest.mark.lab
class TestPower:
    def test_frozen_host_accepts_and_says_nothing(self, lab: Lab, host: Host) -> None:
        do(lab, "freeze")
        try:
            with inside(lab), socket.create_connection(("10.77.0.11", 22), timeout=5) as connection:
                connection.settimeout(1)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            with pytest.raises(LabError, match="frozen"):  # a process in a frozen group could not be ended
                host.exec(["true"])
            with pytest.raises(LabError, match="frozen"):
                do(lab, "kill-rank")
        finally:
            mend(lab, "freeze")
        run_inside(lab, ["ssh", "spark-1", "true"])

    def test_power_cut_ends_the_containers_as_docker_sees_it_after_boot(self, lab: Lab, host: Host) -> None:
        start(lab, "rank0", *RANK)
        start(lab, "guard", *GUARD)
        do(lab, "power-cut")
        assert host.pid is None
        with pytest.raises(LabError, match="off"):
            do(lab, "power-cut")
        mend(lab, "power-cut")
        assert state(host, "rank0")["Status"] == "exited"
        until(lambda: bool(state(host, "guard")["Running"]))


@pytest.mark.lab
class TestServices:
    def test_killed_docker_comes_back_by_itself(self, lab: Lab, host: Host) -> None:
        do(lab, "dockerd-kill")
        assert not docker_answers(host.running())
        until(lambda: docker_answers(host.running()), 30)
        assert mend(lab, "dockerd-kill") == "dockerd answers"

    def test_stopped_docker_stays_down_until_mended(self, lab: Lab, host: Host) -> None:
        do(lab, "dockerd-stop")
        folder = f"/proc/{host.running()}/root/run"
        until(lambda: not any(Path(folder).rglob("dockerd.pid")))
        assert any(Path(folder).rglob("hold-dockerd")), "the supervisor would start it again"
        assert not docker_answers(host.running())
        mend(lab, "dockerd-stop")
        assert docker_answers(host.running())

    def test_frozen_docker_takes_connections_and_answers_nothing(self, lab: Lab, host: Host) -> None:
        do(lab, "dockerd-freeze")
        try:
            assert not docker_answers(host.running())
            path = f"/proc/{host.running()}/root/run/docker.sock"
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
        finally:
            mend(lab, "dockerd-freeze")

    @pytest.mark.parametrize("amount", [None, "-7.5"])
    def test_a_skewed_clock_is_what_programs_see(self, lab: Lab, host: Host, amount: str | None) -> None:
        """As doctor and lease ask for it: by SSH, and by Python's own clock."""
        look = ["ssh", "spark-1", "python3 -I -S -c 'import time; print(time.time())'"]
        do(lab, "clock-skew", amount=amount)
        try:
            ahead = float(run_inside(lab, look).stdout) - time.time()
        finally:
            mend(lab, "clock-skew")
        assert abs(ahead - float(amount or 12)) < 5
        assert float(run_inside(lab, look).stdout) <= time.time()

    def test_stopped_sshd_refuses(self, lab: Lab, host: Host) -> None:
        do(lab, "sshd-stop")
        try:
            done = run_inside(lab, ["ssh", "-o", "ConnectTimeout=5", "spark-1", "true"], check=False)
            assert "Connection refused" in done.stderr
        finally:
            mend(lab, "sshd-stop")
        run_inside(lab, ["ssh", "spark-1", "true"])


@pytest.mark.lab
class TestFiles:
    FOLDER = "/root/models/test"

    @pytest.fixture
    def weights(self, lab: Lab, host: Host) -> Iterator[Path]:
        script = (
            f"mkdir -p {self.FOLDER}; cd {self.FOLDER}; head -c 500000 /dev/urandom >big.safetensors; "
            "echo small >small.safetensors; echo '{}' >config.json"
        )
        host.exec(["sh", "-ec", script])
        start(lab, "rank0", *RANK, "-v", f"{self.FOLDER}:/model:ro", "-v", "/etc:/other:ro")
        yield Path(self.FOLDER)
        host.exec(["rm", "-r", self.FOLDER])

    def _sums(self, host: Host) -> dict[str, str]:
        lines = host.exec(["sh", "-c", f"cd {self.FOLDER} && sha256sum *"]).stdout.splitlines()
        return {name: digest for digest, name in (line.split() for line in lines)}

    def test_missing_weight_is_found_from_the_ranks_mount_and_put_back(
        self, lab: Lab, host: Host, weights: Path
    ) -> None:
        before = self._sums(host)
        assert str(weights / "big.safetensors") in do(lab, "missing-weight")
        assert set(self._sums(host)) == {"small.safetensors", "config.json"}
        mend(lab, "missing-weight")
        assert self._sums(host) == before
        assert mend(lab, "missing-weight") == "nothing was taken"

    def test_corrupt_weight_keeps_the_size(self, lab: Lab, host: Host, weights: Path) -> None:
        before = self._sums(host)
        do(lab, "corrupt-weight", path=str(weights))
        after = self._sums(host)
        assert {name for name in before if before[name] != after[name]} == {"big.safetensors"}
        assert host.exec(["stat", "-c", "%s", str(weights / "big.safetensors")]).stdout == "500000\n"
        mend(lab, "corrupt-weight")
        assert self._sums(host) == before

    def test_without_a_rank_it_is_what_was_fetched_or_must_be_named(self, lab: Lab, host: Host) -> None:
        """After ``sparkop download`` alone there are no ranks, but there are weights to break."""
        with pytest.raises(LabError, match=r"no container of a rank.*no weights were fetched"):
            do(lab, "missing-weight")
        job = json.dumps({"directory": self.FOLDER.replace("/root", "~")})
        folder = "/root/.sparkop/x/transfer"
        host.exec(["sh", "-ec", f"mkdir -p {folder}; echo '{job}' >{folder}/job.json"])
        host.exec(["sh", "-ec", f"mkdir -p {self.FOLDER}; echo 1 >{self.FOLDER}/a.bin"])
        assert f"{self.FOLDER}/a.bin" in do(lab, "missing-weight")
        mend(lab, "missing-weight")
        host.exec(["rm", "-r", "/root/.sparkop/x", self.FOLDER])

    def test_full_disk_refuses_writes(self, lab: Lab, host: Host) -> None:
        assert do(lab, "disk-full") == "8.0 MiB are free on the disk"
        try:
            size = f"{host.disk()[1] / (1 << 30):.1f}"
            assert f"{size}/{size} GiB" in table(report(lab)).splitlines()[1], "ps shows that it is full"
            done = host.exec(["dd", "if=/dev/zero", "of=/root/x", "bs=1M", "count=64"], check=False)
            assert "No space left" in done.stderr
        finally:
            mend(lab, "disk-full")
        host.exec(["sh", "-ec", "dd if=/dev/zero of=/root/x bs=1M count=64; rm /root/x"])

    @pytest.mark.parametrize("amount", ["0", "256KiB"])
    def test_a_disk_can_be_filled_to_its_last_byte(self, lab: Lab, amount: str) -> None:
        try:
            do(lab, "disk-full", amount=amount)
            used, whole = lab.host("spark-1").disk()
            assert whole - used <= parse_size(amount)
        finally:
            mend(lab, "disk-full")

    def test_memory_pressure_leaves_what_is_asked_and_gives_back(self, lab: Lab, host: Host) -> None:
        def available() -> int:
            text = host.exec(["cat", "/proc/meminfo"]).stdout
            return next(int(line.split()[1]) << 10 for line in text.splitlines() if "MemAvailable" in line)

        do(lab, "memory-pressure", amount="1g")
        assert available() < 1100 << 20
        mend(lab, "memory-pressure")
        until(lambda: available() > 3 << 30)


def test_memory_pressure_waits_for_guards_that_have_to_answer(tmp_path: Path) -> None:
    """By their heartbeats and records alone: Docker may be frozen."""
    now = time.time()

    def guard(name: str, floor: int, ranks: list[str], age: float = 1.0) -> Path:
        (tmp_path / name).mkdir()
        beat = tmp_path / name / "memguard.json"
        beat.write_text(json.dumps({"ranks": ranks, "floors": {"action": floor}}))
        os.utime(beat, (now - age, now - age))
        return tmp_path / name

    asked = guard("asked", 256, ["r0"])
    guard("lower", 64, ["r0"])
    guard("empty", 256, [])
    guard("dead", 256, ["r0"], age=100)
    (guard("damaged", 256, ["r0"]) / "memguard.json").write_text("{")
    assert guards_asked(tmp_path, 96, now) == {asked: 0}
    assert not tripped((asked, 0))
    (asked / "trip.json").write_text("{}")
    assert tripped((asked, 0))
    before = guards_asked(tmp_path, 96, now)
    assert not tripped((asked, before[asked])), "an older record is no answer"
    os.utime(asked / "trip.json", (now + 5, now + 5))
    assert tripped((asked, before[asked]))


@pytest.mark.lab
class TestEngine:
    """With a container that plays the stand-in: it does what /control says."""

    PLAY = "trap 'exit 1' TERM; while :; do [ -e /control/die ] && exit $(cat /control/die); sleep 0.1; done"

    def test_exit_zero_ends_the_rank_with_zero(self, lab: Lab, host: Host) -> None:
        start(lab, "rank0", *RANK, command=self.PLAY)
        do(lab, "exit-zero")
        assert (state(host, "rank0")["Status"], state(host, "rank0")["ExitCode"]) == ("exited", 0)

    @pytest.mark.parametrize(
        ("fault", "word"),
        [
            ("wedge", "wedge"),
            ("degenerate", "degenerate"),
            ("long-prefill", "prefill"),
            ("not-ready", "loading"),
            ("server-error", "broken"),
        ],
    )
    def test_word_goes_into_the_container_and_with_it(
        self, lab: Lab, host: Host, fault: str, word: str
    ) -> None:
        start(lab, "rank0", *RANK, command=self.PLAY)
        do(lab, fault)
        host.docker("exec", "rank0", "cat", f"/control/{word}")
        mend(lab, fault)
        with pytest.raises(LabError):
            host.docker("exec", "rank0", "cat", f"/control/{word}")

    def test_a_hung_rank_does_nothing_until_it_goes_on(self, lab: Lab, host: Host) -> None:
        start(lab, "rank0", *RANK, command=self.PLAY)
        pid = state(host, "rank0")["Pid"]
        do(lab, "hang")
        assert "T" in host.exec(["ps", "-o", "stat=", "-p", str(pid)]).stdout
        assert state(host, "rank0")["Status"] == "running"
        mend(lab, "hang")
        assert "T" not in host.exec(["ps", "-o", "stat=", "-p", str(pid)]).stdout

    def test_a_lost_gpu_shows_in_the_log_and_to_nvidia_smi(self, lab: Lab, host: Host) -> None:
        start(lab, "rank0", *RANK, command=self.PLAY)
        do(lab, "gpu-lost")
        assert "NVML Unknown Error" in host.exec(["sh", "-c", "docker logs rank0 2>&1"]).stdout
        asked = ["docker", "exec", "rank0", "/usr/local/bin/nvidia-smi"]
        done = host.exec(asked, check=False)
        assert (done.returncode, "Unknown Error" in done.stdout) == (255, True)

    def test_slow_start_waits_for_the_next_container(self, lab: Lab, host: Host) -> None:
        do(lab, "slow-start", amount="7")
        assert host.exec(["cat", "/run/lab/standin/start-slowly"]).stdout == "7"
        mend(lab, "slow-start")
        assert host.exec(["ls", "/run/lab/standin"]).stdout == ""
