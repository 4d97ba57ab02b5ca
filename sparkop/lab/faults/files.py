"""Faults of a host's disk and memory."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.faults.containers import containers
from sparkop.lab.layout import LabError
from sparkop.lab.processes import wait_for
from sparkop.node.transfer.files import size_text

KEEP = "/var/lib/lab-faults"
"""On the host: what a fault took away, until it is mended."""

FULL_LEAVES_BYTES = 8 << 20
PRESSURE_LEAVES_BYTES = 96 << 20
CORRUPTED_BYTES = 64


def weights_folder(target: Target) -> str:
    """Folder of the weights on the host: --path, else the newest rank's mount that holds weights; before
    there are ranks, where the last transfer has put them.

    Raises LabError when none is found.
    """
    if target.path:
        return target.path
    try:
        container = containers(target, "rank", running=False)[0]
    except LabError as error:
        if (folder := _fetched(target)) is not None:
            return folder
        raise LabError(
            f"{error.message}, and no weights were fetched",
            remedy="sparkop download SPEC fetches them; or name a folder: --path DIR",
        ) from None
    for mount in sorted(container["Mounts"], key=lambda mount: mount["Destination"] != "/model"):
        if _largest(target, mount["Source"]):
            return str(mount["Source"])
    raise LabError(
        f"{target.host.name}: no mount of {container['Name']} holds weights", remedy="name it: --path DIR"
    )


def _fetched(target: Target) -> str | None:
    """Folder of the newest transfer of weights that sparkop has made on the host."""
    script = "cat $(ls -t /root/.sparkop/*/transfer/job.json 2>/dev/null | head -n 1) </dev/null"
    try:
        folder = json.loads(target.host.exec(["sh", "-c", script]).stdout).get("directory")
    except ValueError:  # no job, or one that a power cut has torn
        return None
    if not isinstance(folder, str):
        return None
    folder = f"/root/{folder[2:]}" if folder.startswith("~/") else folder  # the lab's user is root
    return folder if _largest(target, folder) else None


def _largest(target: Target, folder: str) -> str | None:
    """The largest weight file below a folder of the host."""
    script = (
        f"find -L {shlex.quote(folder)} -xdev -type f "
        "\\( -name '*.safetensors' -o -name '*.bin' -o -name '*.gguf' \\) "
        "-printf '%s %p\\n' 2>/dev/null | sort -rn | head -n 1 | cut -d' ' -f2-"
    )
    return target.host.exec(["sh", "-c", script]).stdout.strip() or None


def _victim(target: Target) -> str:
    folder = weights_folder(target)
    if (file := _largest(target, folder)) is None:
        raise LabError(f"{target.host.name}: no weight file in {folder}")
    return target.host.exec(["realpath", file]).stdout.strip()


def _take_away(target: Target) -> str:
    file = _victim(target)
    _shell(
        target,
        f"mkdir -p {KEEP}/missing && mv {{0}} {KEEP}/missing/ && echo {{0}} >{KEEP}/missing.path",
        file,
    )
    return f"removed {file}"


def _give_back(target: Target) -> str:
    return _restore(target, "missing")


def _corrupt(target: Target) -> str:
    file = _victim(target)
    _shell(
        target,
        f"mkdir -p {KEEP}/corrupt && cp -p {{0}} {KEEP}/corrupt/ && echo {{0}} >{KEEP}/corrupt.path && "
        f"dd if=/dev/urandom of={{0}} bs=1 count={CORRUPTED_BYTES} "
        "seek=$(($(stat -c %s {0}) / 2)) conv=notrunc",
        file,
    )
    return f"changed {CORRUPTED_BYTES} bytes in the middle of {file}"


def _repair(target: Target) -> str:
    return _restore(target, "corrupt")


def _restore(target: Target, kind: str) -> str:
    script = (
        f"[ -e {KEEP}/{kind}.path ] || exit 0; path=$(cat {KEEP}/{kind}.path); "
        'mkdir -p "$(dirname "$path")"; '
        f'mv -f {KEEP}/{kind}/* "$path"; rm -r {KEEP}/{kind} {KEEP}/{kind}.path; echo "$path"'
    )
    path = target.host.exec(["sh", "-c", script]).stdout.strip()
    return f"put back {path}" if path else "nothing was taken"


def _shell(target: Target, script: str, *files: str) -> None:
    target.host.exec(["sh", "-ec", script.format(*map(shlex.quote, files))])


def _fill(target: Target) -> str:
    leaves = target.size(FULL_LEAVES_BYTES, target.host.disk()[1], "disk")
    # The list of the file's own blocks may take the last free one: fallocate then fails on a full disk.
    script = (
        "free() { df --output=avail -B1 / | tail -n 1; }; "
        f"mkdir -p {KEEP}; rm -f {KEEP}/fill; more=$(($(free) - {leaves})); "
        f"[ $more -le 0 ] || fallocate -l $more {KEEP}/fill || [ $(free) -le {leaves} ]; free"
    )
    left = int(target.host.exec(["sh", "-ec", script]).stdout)
    return f"{size_text(left)} are free on the disk"


def _empty(target: Target) -> str:
    target.host.exec(["rm", "-f", f"{KEEP}/fill"])
    return "removed what filled the disk"


HOG = "/run/services/hog.py"
_HOG = """
import os, sys, time
def available():
    figures = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(figures["MemAvailable"].split()[0]) << 10
open("/proc/self/oom_score_adj", "w").write("1000")  # it dies before anything of the host does
open("/run/services/hog.pid", "w").write(str(os.getpid()))
leaves, held = int(sys.argv[1]), []
while (more := available() - leaves) > 1 << 20:
    held.append(bytearray(b"x") * max(more // 2, 1 << 20))
    time.sleep(0.1)  # the figure is refreshed each 0.04 s
open("/run/services/hog.done", "w").write("")
time.sleep(3600)
"""


PRESSED_WITHIN = 300.0
"""Seconds; on a busy machine it takes minutes to write to so much memory."""
ANSWERED_WITHIN = 60.0
"""Seconds that a memory guard gets which has just shown life."""
LIVELY = 30.0
"""Seconds of age of its heartbeat; it writes one each ten."""


def _press(target: Target) -> str:
    """Use the memory; where a guard has to answer, come back when it has."""
    leaves = target.size(PRESSURE_LEAVES_BYTES, target.host.memory_bytes, "memory")
    _relieve(target)
    root = Path(f"/proc/{target.host.running()}/root")
    asked = guards_asked(root / "root/.sparkop", leaves, time.time())
    program = root / HOG[1:]
    program.write_text(_HOG)
    target.host.exec(["sh", "-c", f"setsid python3 -IS {HOG} {leaves} </dev/null >/dev/null 2>&1 &"])
    done = program.with_name("hog.done")
    # When all guards have answered, what there was to see is there; the rest is taken meanwhile.
    wait_for(
        lambda: done.exists() or (bool(asked) and all(map(tripped, asked.items()))),
        PRESSED_WITHIN,
        f"{target.host.name}: memory pressure",
    )
    told = f"{size_text(leaves)} of memory are left" if done.exists() else "memory ran short"
    return told + "".join(f"; {_answer(guard)}" for guard in asked.items())


def _answer(guard: tuple[Path, int]) -> str:
    name = guard[0].name
    try:
        wait_for(lambda: tripped(guard), ANSWERED_WITHIN, name)
    except LabError:
        return f"the memory guard of {name} has not answered"
    return f"the memory guard of {name} has answered"


def guards_asked(folder: Path, leaves: int, now: float) -> dict[Path, int]:
    """State folders whose guard lives, holds ranks and has its floor above ``leaves``; and which record of a
    trip each has (0: none)."""
    found = {}
    for beat in folder.glob("*/memguard.json"):
        try:
            told = json.loads(beat.read_text())
            lives = now - beat.stat().st_mtime <= LIVELY
            if lives and told["ranks"] and int(told["floors"]["action"]) > leaves:
                found[beat.parent] = _trip(beat.parent)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def tripped(guard: tuple[Path, int]) -> bool:
    """Whether a guard of `guards_asked` has written a record since."""
    return _trip(guard[0]) not in (0, guard[1])


def _trip(state: Path) -> int:
    try:
        return (state / "trip.json").stat().st_mtime_ns
    except OSError:
        return 0


def _relieve(target: Target) -> str:
    target.host.exec(
        [
            "sh",
            "-c",
            (
                "cd /run/services; [ -e hog.pid ] && kill -9 $(cat hog.pid) 2>/dev/null; "
                "while kill -0 $(cat hog.pid) 2>/dev/null; do sleep 0.05; done; rm -f hog.pid hog.done"
            ),
        ]
    )
    return "released the memory"


FAULTS = (
    Fault(
        "missing-weight",
        "Remove the largest weight file of the host (or of --path DIR).",
        _take_away,
        _give_back,
    ),
    Fault(
        "corrupt-weight",
        "Change bytes in the largest weight file of the host (or of --path DIR).",
        _corrupt,
        _repair,
    ),
    Fault("disk-full", f"Fill the disk up to {FULL_LEAVES_BYTES >> 20} MiB (--amount SIZE).", _fill, _empty),
    Fault(
        "memory-pressure",
        f"Use memory until {PRESSURE_LEAVES_BYTES >> 20} MiB are left (--amount SIZE).",
        _press,
        _relieve,
    ),
)
