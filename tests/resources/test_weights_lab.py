"""``sparkop download`` on two real hosts: sshd, the hub, faults in the middle."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sparkop.lab import hub
from sparkop.lab.faults import FAULTS, Target
from sparkop.lab.lab import Lab
from sparkop.node.transfer.files import BLOCK

pytestmark = pytest.mark.lab

MIB = 1 << 20
SIZE = 160 * MIB
FOLDER = "/root/models/two words"
SPEC = f"""\
apiVersion: sparkop/v1
name: weights
nodes:
  - {{name: spark-1, ssh: root@spark-1.lab}}
  - {{name: spark-2, ssh: root@spark-2.lab}}
weights: {{repository: test/weights, path: {FOLDER}}}
image: {{reference: lab/standin}}
engine: {{kind: vllm}}
api: {{servedNames: [m]}}
"""


class Command:
    """The command line, in the lab, with a home of its own for what the controller remembers."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.spec = folder / "spec.yaml"
        self.spec.write_text(SPEC)
        self._environment = {**os.environ, "SPARKOP_LAB": lab.name, "XDG_STATE_HOME": str(folder / "state")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        first, *rest = words
        return subprocess.Popen(
            [sys.executable, "-m", "sparkop", first, str(self.spec), *rest],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        output, _ = process.communicate(timeout=180)
        assert process.returncode == code, output
        return output

    def sums(self) -> Sequence[str]:
        """SHA-256 of the large file on each host, by another program."""
        command = ["sha256sum", f"{FOLDER}/model.bin"]
        return [self.lab.host(f"spark-{n}").exec(command).stdout.split()[0].lstrip("\\") for n in (1, 2)]


@pytest.fixture
def sparkop(lab: Lab, tmp_path: Path) -> Iterator[Command]:
    data = random.Random(str(tmp_path)).randbytes(SIZE)
    files: dict[str, Path | bytes] = {"config.json": b"{}", "model.bin": data, "sub/b.bin": data[: 3 * MIB]}
    hub.add_repository(files, "test/weights")
    hub.turn(hub.Knobs())
    yield Command(lab, tmp_path)
    hub.turn(hub.Knobs())
    for host in lab.hosts:
        host.exec(["rm", "-rf", FOLDER, "/root/.sparkop/weights"])


def served() -> int:
    """Bytes of files that the hub has sent."""
    return sum(request.bytes for request in hub.requests() if request.status in (200, 206))


def wait_until_written(lab: Lab, host: str, count: int) -> None:
    """Until so many bytes of the weights lie on the host: the hub's record tells a request at its end."""
    deadline = time.monotonic() + 60
    while _written(lab, host) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _written(lab: Lab, host: str) -> int:
    command = ["sh", "-c", 'du -s -B1 "$0" 2>/dev/null || echo 0', FOLDER]
    return int(lab.host(host).exec(command).stdout.split()[0])


def do(lab: Lab, fault: str, host: str, *, mend: bool = False) -> None:
    target = Target(lab, lab.host(host))
    (FAULTS[fault].mends if mend else FAULTS[fault].breaks)(target)


def test_download_twice_then_a_corrupt_file_is_named_and_mended(sparkop: Command) -> None:
    """As from the public hub: the files have Xet hashes and addresses that expire."""
    hub.turn(hub.Knobs(xet=("test/weights",), signed_seconds=1))
    assert "complete and verified on every node" in sparkop("download")
    first, second = sparkop.sums()
    assert first == second
    before = served()
    assert "nothing to do" in sparkop("download")
    assert served() == before
    do(sparkop.lab, "corrupt-weight", "spark-2")
    told = sparkop("diff", "--deep", code=2)
    (line,) = [line for line in told.splitlines() if "weights" in line and "copy" in line]
    assert "spark-2" in line
    assert "wrong model.bin" in line
    told = sparkop("download", "--deep")
    assert "1 of the files are not as published: model.bin" in told
    assert sparkop.sums() == [first, first]
    assert served() == before, "it is mended from the other node"


def test_a_power_cut_in_the_middle_costs_little(sparkop: Command) -> None:
    before = served()
    hub.turn(hub.Knobs(bytes_per_second=MIB))
    running = sparkop.start("download")
    wait_until_written(sparkop.lab, "spark-1", SIZE // 4)
    do(sparkop.lab, "power-cut", "spark-1")
    running.communicate(timeout=120)
    assert running.returncode not in (0, 1)
    sparkop.lab.boot("spark-1")
    hub.turn(hub.Knobs())
    sparkop("download")
    assert len(set(sparkop.sums())) == 1
    assert served() - before <= SIZE + 4 * MIB + 8 * BLOCK
    print(f"sent again after a power cut: {(served() - before - SIZE) / MIB:.0f} MiB")


def test_a_full_disk_stops_with_what_to_do_and_is_carried_on(sparkop: Command) -> None:
    do(sparkop.lab, "disk-full", "spark-2")
    told = sparkop("download", code=6)
    assert "spark-2" in told
    assert "room" in told or "free" in told
    do(sparkop.lab, "disk-full", "spark-2", mend=True)
    sparkop("download")
    assert len(set(sparkop.sums())) == 1


def test_a_pulled_cable_only_delays_the_copy(sparkop: Command) -> None:
    hub.turn(hub.Knobs(bytes_per_second=2 * MIB))
    running = sparkop.start("download")
    wait_until_written(sparkop.lab, "spark-2", SIZE // 16)
    do(sparkop.lab, "cable", "spark-2")
    time.sleep(3)  # the fault's own length, nothing is waited for
    do(sparkop.lab, "cable", "spark-2", mend=True)
    output, _ = running.communicate(timeout=180)
    assert running.returncode == 0, output
    assert len(set(sparkop.sums())) == 1


def test_a_copy_never_leaves_the_fabric(sparkop: Command) -> None:
    """Without the fabric's own way to the source, nothing goes over the management network."""
    sparkop("download")
    spark_2 = sparkop.lab.host("spark-2")
    spark_2.exec(["rm", "-r", FOLDER])
    address = spark_2.exec(["sh", "-c", "ip -4 -o addr show | awk '$4 ~ /^10.77/ {print $2}'"]).stdout.strip()
    assert address
    forbidden = (spark_2.exec(["cat", f"/sys/class/net/{address}/statistics/rx_bytes"])).stdout
    sparkop("download")
    after = (spark_2.exec(["cat", f"/sys/class/net/{address}/statistics/rx_bytes"])).stdout
    assert int(after) - int(forbidden) < SIZE // 4


def test_interrupt_leaves_it_running_follow_finds_it_and_cancel_ends_it(sparkop: Command) -> None:
    hub.turn(hub.Knobs(bytes_per_second=MIB // 2))
    running = sparkop.start("download")
    wait_until_written(sparkop.lab, "spark-1", 10 * MIB)
    running.send_signal(2)
    told, _ = running.communicate(timeout=60)
    assert running.returncode == 130, told
    wait_until_written(sparkop.lab, "spark-1", 20 * MIB)
    assert "ended on spark-1" in sparkop("download", "--cancel"), "and on spark-2, if its copy had begun"
    assert "no transfer runs" in sparkop("download", "--follow")
    hub.turn(hub.Knobs())
    sparkop("download")
    assert len(set(sparkop.sums())) == 1
