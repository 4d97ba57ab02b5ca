"""The lab on real parts: up, what is in it, and that nothing is left, whatever was killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkop.lab import hub
from sparkop.lab.down import down
from sparkop.lab.enter import command_inside, environment
from sparkop.lab.lab import Lab, LabConfig
from sparkop.lab.layout import LAB_VARIABLE, LabError, LabPaths
from sparkop.lab.processes import start_time
from sparkop.lab.up import up
from tests.labkit import busybox, engine_config, inside, run_inside, temporary_lab, until

pytestmark = pytest.mark.lab


def leftovers(name: str) -> list[str]:
    """Everything of a lab that this machine still has: processes, mounts, loop devices, groups, files."""
    paths = LabPaths.of(name)
    found = [str(path) for path in (paths.root, paths.lock) if path.exists()]
    for folder, names, _ in os.walk("/sys/fs/cgroup"):  # other labs come and go meanwhile
        if folder.endswith("/sparkop-lab") and paths.cgroup in names:
            found.append(f"{folder}/{paths.cgroup}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                mounts = (process / "mountinfo").read_text()
            except OSError:
                continue
            if f"{paths.root}/" in command or f"{paths.root}/" in mounts:
                found.append(f"{process.name}: {command}")
    for loop in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if loop.read_text().startswith(f"{paths.root}/"):
                found.append(str(loop))
        except OSError:
            continue
    return found


def as_controller(lab: Lab, *command: str) -> list[str]:
    """The command line that runs something as the lab's controller."""
    return [sys.executable, "-m", "sparkop", "lab", "run", "--name", lab.name, "--", *command]


class TestUp:
    """What a lab is made of."""

    def test_ssh_goes_to_each_host_without_asking(self, lab: Lab) -> None:
        for host in ("spark-1", "spark-2.lab", "10.77.0.12", "spark@spark-1.lab"):
            done = run_inside(lab, ["ssh", "-o", "BatchMode=yes", host, "hostname; id -un"])
            name, user = done.stdout.split()
            assert name == ("spark-2" if host != "spark-1" and "1." not in host else "spark-1")
            assert user == ("spark" if "@" in host else "root")

    def test_an_unknown_host_key_is_not_accepted(self, lab: Lab) -> None:
        options = ["-o", "BatchMode=yes", "-o", "UserKnownHostsFile=/dev/null"]
        done = run_inside(lab, ["ssh", *options, "spark-1", "true"], check=False)
        assert done.returncode != 0
        assert "Host key verification failed" in done.stderr

    def test_hosts_reach_each_other_over_the_fabric_with_jumbo_frames(self, lab: Lab) -> None:
        for address in ("10.78.0.12", "10.79.0.12"):
            lab.host("spark-1").exec(["ssh", "-o", "BatchMode=yes", address, "true"])
            lab.host("spark-1").exec(["ping", "-c", "1", "-W", "5", "-M", "do", "-s", "8972", address])

    def test_each_host_is_a_machine_of_its_own(self, lab: Lab) -> None:
        files = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/etc/ssh/ssh_host_ed25519_key.pub")
        for file in files:
            seen = {host.exec(["cat", file]).stdout for host in lab.hosts}
            assert len(seen) == len(lab.hosts), file
        lab.host("spark-1").exec(["touch", "/root/only-here", "/usr/local/only-here"])
        assert lab.host("spark-2").exec(["ls", "/root/only-here"], check=False).returncode != 0
        assert not Path("/usr/local/only-here").exists()
        names = {host.exec(["hostname"]).stdout.strip() for host in lab.hosts}
        assert names == {"spark-1", "spark-2"}
        assert socket.gethostname() not in names

    def test_a_host_does_not_show_the_machine_that_it_runs_on(self, lab: Lab) -> None:
        host = lab.host("spark-1")
        assert host.exec(["ls", "-A", "/home"]).stdout.split() == ["spark"]
        assert host.exec(["sh", "-c", "ls -A /var/lib/sparkop-lab"]).stdout == ""
        processes = host.exec(["ps", "-eo", "comm="]).stdout.split()
        assert "dockerd" in processes
        assert len(processes) < 20

    def test_sysfs_and_tools_are_those_of_a_spark(self, lab: Lab) -> None:
        host = lab.host("spark-2")

        def read(path: str) -> str:
            return host.exec(["cat", path]).stdout.strip()

        until(lambda: "ACTIVE" in read("/sys/class/infiniband/rocep1s0f0/ports/1/state"))
        assert read("/sys/class/infiniband/rocep1s0f1/ports/1/state") == "1: DOWN"
        assert read("/sys/class/infiniband/roceP2p1s0f0/ports/1/gids/3").endswith(":ffff:0a4f:000c")
        for card, operstate, carrier, speed in (
            ("enp1s0f0np0", "up", "1", "200000"),
            ("enP2p1s0f1np1", "down", "0", "-1"),
            ("enP7s7", "up", "1", "10000"),
        ):
            folder = f"/sys/class/net/{card}"
            assert (read(f"{folder}/operstate"), read(f"{folder}/carrier")) == (operstate, carrier), card
            assert read(f"{folder}/speed") == speed, card
        assert read("/sys/class/net/enp1s0f0np0/mtu") == "9000"
        assert host.exec(["ibdev2netdev"]).stdout.splitlines()[2] == "rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)"
        assert "rocep1s0f0/1 state ACTIVE physical_state LINK_UP" in host.exec(["rdma", "link"]).stdout
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        assert host.exec(query).stdout == "NVIDIA GB10\n"

    def test_docker_is_the_hosts_own(self, lab: Lab) -> None:
        info = json.loads(lab.host("spark-1").docker("info", "--format", "{{json .}}"))
        assert info["Name"] == "spark-1"
        assert info["Driver"] == "overlay2"
        assert info["MemTotal"] == lab.config.memory_bytes

    def test_registry_takes_an_image_on_one_host_and_gives_it_to_the_other(self, lab: Lab) -> None:
        first, second = lab.host("spark-1"), lab.host("spark-2")
        image = busybox(lab, "spark-1")
        first.docker("push", image)
        digest = json.loads(first.docker("inspect", image))[0]["RepoDigests"][0]
        second.docker("pull", digest)
        assert second.docker("run", "--rm", digest, "echo", "hello").strip() == "hello"

    def test_privileges_that_recipes_ask_for_do_not_fail(self, lab: Lab) -> None:
        image = busybox(lab, "spark-1")
        options = [
            "--privileged",
            "--ulimit",
            "memlock=-1",
            "--ulimit",
            "nofile=1048576",
            "--oom-score-adj=-900",
            "--network=host",
            "--ipc=host",
            "--shm-size=1g",
        ]
        assert lab.host("spark-1").docker("run", "--rm", *options, image, "hostname").strip() == "spark-1"

    def test_nothing_leads_out(self, lab: Lab) -> None:
        """No packet of a lab may leave: no default route, and only the lab's own devices."""
        assert "default" not in run_inside(lab, ["ip", "route"]).stdout
        for host in lab.hosts:
            assert "default" not in host.exec(["ip", "route"]).stdout
            done = host.exec(["ping", "-c", "1", "-W", "1", "192.0.2.1"], check=False)
            assert "unreachable" in (done.stdout + done.stderr).lower()
        devices = {link["ifname"] for link in json.loads(run_inside(lab, ["ip", "-j", "link"]).stdout)}
        assert devices == {"lo", "brm", "brf0", "brf1"} | {
            f"{cable}{number}" for cable in ("m", "fa", "fb", "fc", "fd") for number in (1, 2)
        }
        with inside(lab):
            forwards = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
        assert forwards == "0"

    def test_controller_keeps_its_folder_environment_and_processes(self, lab: Lab, tmp_path: Path) -> None:
        script = 'echo "$PWD $MINE $$"; cat /etc/hosts; ls -a ~/.ssh'
        process = subprocess.Popen(
            as_controller(lab, "sh", "-c", script),
            cwd=tmp_path,
            env={**os.environ, "MINE": "kept", "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            text=True,
        )
        output, _ = process.communicate(timeout=30)
        assert output.startswith(f"{tmp_path} kept {process.pid}\n")
        assert "spark-1.lab" in output
        assert "known_hosts" in output
        assert "spark-1.lab" not in Path("/etc/hosts").read_text()

    def test_exit_code_of_a_command_passes_through(self, lab: Lab) -> None:
        command = as_controller(lab, "sh", "-c", "exit 7")
        assert subprocess.run(command, check=False).returncode == 7

    def test_real_client_downloads_inside_the_lab(self, lab: Lab, tmp_path: Path) -> None:
        content = os.urandom(2 << 20)
        hub.add_repository({"model.safetensors": content}, "sparkop/inside", lab=lab.name)
        program = "from huggingface_hub import snapshot_download as s; print(s('sparkop/inside'))"
        environment = [
            "env",
            "HF_ENDPOINT=http://hub.lab:8100",
            f"HF_HOME={tmp_path}",
            "HF_HUB_DISABLE_XET=1",
        ]
        folder = run_inside(lab, [*environment, sys.executable, "-c", program]).stdout.strip()
        assert Path(folder, "model.safetensors").read_bytes() == content
        sent = [request for request in hub.requests(lab=lab.name) if "inside" in request.path]
        assert sum(request.bytes for request in sent) >= len(content)


class TestMemory:
    """The figure that programs read is the host's own, and alive."""

    def _available(self, lab: Lab, host: str) -> int:
        text = Path(f"/proc/{lab.host(host).running()}/root/proc/meminfo").read_text()
        return next(
            int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemAvailable")
        )

    def test_figure_follows_what_the_host_uses_and_only_that(self, lab: Lab) -> None:
        before = {host.name: self._available(lab, host.name) for host in lab.hosts}
        host = lab.host("spark-1")
        held = host.command(["python3", "-c", "x = bytearray(b'x') * (512 << 20); input()"])
        with subprocess.Popen(held, stdin=subprocess.PIPE) as process:
            until(lambda: self._available(lab, "spark-1") < before["spark-1"] - (500 << 20))
            assert abs(self._available(lab, "spark-2") - before["spark-2"]) < 100 << 20
            process.kill()
        until(lambda: self._available(lab, "spark-1") > before["spark-1"] - (100 << 20))

    def test_page_cache_does_not_count_as_used(self, lab: Lab) -> None:
        host = lab.host("spark-2")
        before = self._available(lab, "spark-2")
        host.exec(["sh", "-c", "head -c 300000000 /dev/zero >/root/file; cat /root/file >/dev/null; sync"])

        def cached() -> int:
            text = host.exec(["cat", "/proc/meminfo"]).stdout
            return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Cached"))

        until(lambda: cached() > 250_000_000)
        assert self._available(lab, "spark-2") > before - (100 << 20)
        host.exec(["rm", "/root/file"])

    def test_containers_see_it_bound_or_not(self, lab: Lab) -> None:
        image = busybox(lab, "spark-1")
        mount = "/proc/meminfo:/host/meminfo:ro"
        text = lab.host("spark-1").docker(
            "run", "--rm", "-v", mount, image, "cat", "/proc/meminfo", "/host/meminfo"
        )
        totals = [int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemTotal")]
        assert totals == [lab.config.memory_bytes] * 2

    def test_figure_is_refreshed_twenty_times_a_second(self, lab: Lab) -> None:
        file = Path(f"/proc/{lab.host('spark-1').running()}/root/run/figures/meminfo")
        stamps = set()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            stamps.add(file.stat().st_mtime_ns)
            time.sleep(0.005)
        assert len(stamps) >= 40 * 0.8  # 2 s; a busy machine may lose a few

    def test_a_host_cannot_use_more_than_its_memory(self, lab: Lab) -> None:
        host = lab.host("spark-2")
        pieces = lab.config.memory_bytes * 2 >> 26
        eater = f"l = []\nfor _ in range({pieces}): l.append(bytearray(b'x') * (64 << 20))"
        done = host.exec(["python3", "-c", eater], check=False, timeout=120)
        assert done.returncode in (-9, 137)
        assert host.exec(["true"]).returncode == 0


class TestPower:
    """A host goes and comes like a machine."""

    def test_power_cut_is_silent_and_boot_brings_the_disk_back(self, lab: Lab) -> None:
        host = lab.host("spark-2")
        identity = host.exec(["sh", "-c", "echo kept >/root/kept; cat /etc/machine-id"]).stdout
        boot = host.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
        with inside(lab), socket.create_connection(("10.77.0.12", 22), timeout=5) as connection:
            assert connection.recv(64).startswith(b"SSH-2.0")
            lab.power_cut("spark-2")
            connection.settimeout(1)
            with pytest.raises(TimeoutError):  # no FIN, no RST
                connection.recv(64)
        with pytest.raises(LabError, match="off"):
            host.exec(["true"])
        lab.boot("spark-2")
        assert host.exec(["cat", "/root/kept"]).stdout == "kept\n"
        assert host.exec(["cat", "/etc/machine-id"]).stdout == identity
        assert host.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout != boot
        run_inside(lab, ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "spark-2", "true"])


class TestDown:
    """Nothing is left, whatever happened before."""

    def test_up_is_quick_and_down_leaves_nothing_and_twice_is_fine(self) -> None:
        began = time.monotonic()
        with temporary_lab() as lab:
            assert time.monotonic() - began < 30
            busybox(lab, "spark-1")
            lab.host("spark-1").docker("run", "-d", busybox(lab, "spark-1"), "sleep", "1000")
            assert down(lab.name)
            assert leftovers(lab.name) == []
            assert not down(lab.name)

    def test_up_twice_is_one_lab_and_boots_what_is_off(self) -> None:
        with temporary_lab(LabConfig(hosts=1)) as lab:
            pid = lab.host("spark-1").pid
            assert up(lab.name, LabConfig(hosts=1)).host("spark-1").pid == pid
            lab.power_cut("spark-1")
            assert up(lab.name, LabConfig(hosts=1)).host("spark-1").pid is not None
            with pytest.raises(LabError, match="1 hosts, not 2"):
                up(lab.name, LabConfig(hosts=2))

    def test_two_ups_at_once_are_one_lab_with_its_engines(self) -> None:
        """The second one comes while the first puts engines and models in."""
        name = f"both-{os.getpid()}"
        command = [sys.executable, "-m", "sparkop", "lab", "up", "--name", name, "--engines", "standin"]
        try:
            both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            said = [each.communicate(timeout=120)[1] for each in both]
            assert [each.returncode for each in both] == [0, 0], said
        finally:
            down(name)

    def test_two_labs_do_not_meet(self, lab: Lab) -> None:
        with temporary_lab(LabConfig(hosts=1)) as other:
            first = lab.host("spark-1").exec(["cat", "/etc/machine-id"]).stdout
            seen = run_inside(other, ["ssh", "spark-1", "cat", "/etc/machine-id"]).stdout
            assert seen != first
            hub.add_repository({"a": b"a"}, "only/here", lab=other.name)
            ask = "import urllib.request as r; r.urlopen('http://hub.lab:8100/api/models/only/here')"
            assert run_inside(other, [sys.executable, "-c", ask]).returncode == 0
            assert "401" in run_inside(lab, [sys.executable, "-c", ask], check=False).stderr
        assert leftovers(other.name) == []
        assert lab.host("spark-1").exec(["true"]).returncode == 0

    @pytest.mark.parametrize("victim", ["lab", "spark-1", "frozen", "nsenter"])
    def test_after_sigkill_of_any_part(self, victim: str) -> None:
        with temporary_lab(LabConfig(hosts=1)) as lab:
            host = lab.host("spark-1")
            if victim == "lab":
                os.kill(lab.running(), signal.SIGKILL)
            elif victim == "spark-1":
                os.kill(host.running(), signal.SIGKILL)
            elif victim == "frozen":
                host.groups.freeze("spark-1", True)
            else:
                for pid in host.groups.processes():
                    if Path(f"/proc/{pid}/comm").read_text().strip() in ("nsenter", "unshare"):
                        os.kill(pid, signal.SIGKILL)
            down(lab.name)
            assert leftovers(lab.name) == []

    def test_programs_that_still_run_inside_end_with_the_lab(self) -> None:
        with temporary_lab(LabConfig(hosts=1)) as lab:
            with subprocess.Popen(as_controller(lab, "sleep", "1000")) as process:
                until(lambda: Path(f"/proc/{process.pid}/comm").read_text().strip() == "sleep")
                down(lab.name)
                assert process.wait(5) == -signal.SIGTERM
            assert leftovers(lab.name) == []

    @pytest.mark.parametrize(("patience", "code"), [(1, 143), (2, 143), (3, -signal.SIGKILL)])
    def test_programs_inside_are_asked_twice_while_hosts_are_there(self, patience: int, code: int) -> None:
        """An apply was killed without a word; one that leaves needs the hosts to give its lease back."""
        program = (
            "import signal, socket, sys\nasked = []\n"
            "def ask(*_):\n    asked.append(1)\n    socket.create_connection(('10.77.0.11', 22), 5)\n"
            f"    print('there', flush=True)\n    if len(asked) == {patience}: sys.exit(143)\n"
            "signal.signal(signal.SIGTERM, ask)\nprint('ready', flush=True)\nwhile True: signal.pause()"
        )
        with temporary_lab(LabConfig(hosts=1)) as lab:
            command = command_inside(lab.name, [sys.executable, "-c", program])
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment(lab.name)
            ) as asked:
                assert asked.stdout is not None
                assert asked.stdout.readline() == "ready\n"
                down(lab.name)
                assert asked.wait(5) == code
                assert asked.stdout.read().split() == ["there"] * min(patience, 2)
            assert leftovers(lab.name) == []

    def test_files_gone_but_processes_there(self) -> None:
        """Someone removed the state folder by hand."""
        import shutil

        with temporary_lab(LabConfig(hosts=1)) as lab:
            pid = lab.running()
            shutil.rmtree(lab.paths.root)
            assert down(lab.name)
            assert start_time(pid) is None
            assert leftovers(lab.name) == []

    @pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.35, 0.5, 0.7])
    def test_up_killed_half_way(self, delay: float) -> None:
        name = f"half-{os.getpid()}"
        command = [sys.executable, "-c", f"from sparkop.lab.up import up; print(flush=True); up({name!r})"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
        try:
            down(name)
            assert leftovers(name) == []
            assert up(name, LabConfig(hosts=1)).host("spark-1").pid is not None
        finally:
            down(name)

    def test_up_after_an_up_that_was_killed_begins_anew(self) -> None:
        """Its lab ran, but with disks half made: the hosts could not be booted."""
        name = f"anew-{os.getpid()}"
        command = [sys.executable, "-m", "sparkop", "lab", "up", "--name", name, "--engines", "none"]
        try:
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                assert process.stderr is not None
                process.stderr.readline()  # network, registry and hub
                process.kill()
            assert up(name).host("spark-2").exec(["docker", "ps", "-q"]).stdout == ""
        finally:
            down(name)
        assert leftovers(name) == []

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_up_interrupted_cleans_up_itself(self, number: signal.Signals, code: int) -> None:
        name = f"interrupted-{os.getpid()}"
        command = [sys.executable, "-m", "sparkop", "lab", "up", "--name", name, "--engines", "none"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            process.stderr.readline()  # network, registry and hub
            process.send_signal(number)
            process.communicate(timeout=30)
        left = leftovers(name)
        down(name)  # what this finds at fault stays no longer than the test
        assert process.returncode == code
        assert left == []

    def test_a_test_process_that_is_killed_leaves_no_lab(self) -> None:
        """As the first one of a run does on Ctrl-C, when the others are too slow to take their labs down."""
        options = ["-n", "1", "--max-worker-restart", "0", "-m", "lab", "tests/lab/test_faults.py"]
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *options], stdout=subprocess.DEVNULL
        ) as process:
            until(lambda: bool(lab_of_a_child(process.pid)), 120)
            name = lab_of_a_child(process.pid)
            os.kill(int(name.split("-")[1]), signal.SIGKILL)
            process.wait(60)
        left = leftovers(name)
        down(name)  # what this finds at fault stays no longer than the test
        assert left == []


def lab_of_a_child(pid: int) -> str:
    """The lab of a test process that ``pid`` has started, once it has a host; else empty."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    names = [f"test-{child}-1" for child in children.split()]
    return next((name for name in names if (LabPaths.of(name).root / "spark-1").exists()), "")


class TestWords:
    """What the user reads."""

    def test_ps_tells_hosts_and_states(self, lab: Lab) -> None:
        command = [sys.executable, "-m", "sparkop", "lab", "ps", "--name", lab.name, "-o", "json"]
        rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert [(row["host"], row["state"], row["address"]) for row in rows] == [
            ("spark-1", "up", "10.77.0.11"),
            ("spark-2", "up", "10.77.0.12"),
        ]
        assert all(0 < row["memory_used"] < row["memory_limit"] for row in rows)
        assert all(0 < row["disk_used"] < row["disk_limit"] for row in rows)

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["up", "--hosts", "5"], 64, "1<=x<=4"),
            (["up", "--name", "../x"], 64, "lab name"),
            (["shell", "--name", "nowhere", "spark-1"], 64, "sparkop lab up"),
            (["break", "cabel", "spark-1"], 64, "did you mean cable?"),
            (["break", "cable", "spark-9"], 64, "name one of spark-1, spark-2"),
            (["break", "cable", "spark-3.lab"], 64, "name one of spark-1, spark-2"),
            (["break", "disk-full", "spark-1", "--amount", "much"], 64, "use 512m"),
            (["break", "disk-full", "spark-1", "--amount", "900g"], 64, "do: give what is to stay free"),
            (
                ["break", "memory-pressure", "spark-1", "--amount", "5g"],
                64,
                "the memory of spark-1 has 4.0 GiB",
            ),
            (["break", "clock-skew", "spark-1", "--amount", "1h"], 64, "no number of seconds"),
            (["break", "kill-rank", "spark-1"], 6, "no running container of a rank"),
            (["boot", "spark-1"], 6, "is on"),
            (["up", "--hosts", "3"], 6, "2 hosts, not 3"),
            (["up", "--memory", "2g"], 6, "memory of 4 GiB, not memory of 2 GiB"),
            (["up", "--disk", "1g"], 6, "disks of 24 GiB, not disks of 1 GiB"),
            (["up", "--share", "/usr"], 6, "not shared folders /usr"),
            (["up", "--memory", "4 GiB", "--engines", "none"], 0, "already up"),
            (["logs", "spark-3"], 64, "name one of spark-1, spark-2"),
            (["shell", "spark-2", "--", "sh", "-c", "echo $(uname -n) $PWD >&2; exit 7"], 7, "spark-2 /root"),
            (["logs", "spark-1", "nothing"], 64, "name one of"),
        ],
    )
    def test_mistakes_have_codes_and_a_way_on(self, lab: Lab, words: list[str], code: int, said: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "sparkop", "lab", *words],
            capture_output=True,
            text=True,
            env={**os.environ, LAB_VARIABLE: lab.name},
            check=False,
        )
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr

    def test_logs_of_services_are_kept(self, lab: Lab) -> None:
        command = [
            sys.executable,
            "-m",
            "sparkop",
            "lab",
            "logs",
            "-n",
            "99999",
            "--name",
            lab.name,
            "spark-1",
            "dockerd",
        ]
        assert "API listen" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_default_lab_shares_what_engines_need(lab: Lab) -> None:
    """vLLM's packages are mounted into containers from a folder of this machine."""
    for share in engine_config().shares:
        assert lab.host("spark-1").exec(["test", "-d", share]).returncode == 0
        assert lab.host("spark-1").exec(["touch", f"{share}/x"], check=False).returncode != 0
