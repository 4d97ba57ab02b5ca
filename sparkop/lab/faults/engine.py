"""Faults that the stand-in engine plays on demand.

It reads files of two folders: /control inside the container, which goes with the container (a new one is
healthy), and /run/lab/standin of the host, which stays until it is mended.
"""

from __future__ import annotations

from sparkop.lab.engines import CONTROL_FOLDER
from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.faults.containers import containers
from sparkop.lab.layout import LabError
from sparkop.lab.processes import wait_for

SECONDS = 15.0
SLOW_START_SECONDS = 60


def _tell(target: Target, word: str, value: str = "") -> list[str]:
    """Write a control file into the host's rank containers; returns their ids."""
    ids = [str(container["Id"]) for container in containers(target, "rank")]
    for container in ids:
        target.host.docker(
            "exec", container, "sh", "-c", f"mkdir -p /control && echo '{value}' >/control/{word}"
        )
    return ids


def _unsay(target: Target, word: str) -> str:
    for container in containers(target, "rank"):
        target.host.docker("exec", container["Id"], "rm", "-f", f"/control/{word}")
    return f"no {word} any more"


def _exit_zero(target: Target) -> str:
    ids = set(_tell(target, "die", "0"))
    try:
        wait_for(
            lambda: not ids & set(target.host.docker("ps", "-q", "--no-trunc").split()), SECONDS, "the end"
        )
    except LabError:
        _unsay(target, "die")
        raise LabError(
            f"{target.host.name}: the rank did not end",
            cause="only the stand-in engine does so on demand",
            remedy="use kill-rank",
        ) from None
    return "the engine ended with exit code 0"


def _wedge(target: Target) -> str:
    _tell(target, "wedge")
    return "health stays green and no token comes"


def _tell_head(target: Target, word: str) -> None:
    """Only rank 0 has the API: elsewhere nothing would happen. Raises LabError there."""
    ranks = {container["Config"]["Labels"].get("sparkop.rank") for container in containers(target, "rank")}
    if "0" not in ranks:
        raise LabError(f"{target.host.name} does not run rank 0, which makes the tokens")
    _tell(target, word)


def _of_head(name: str, what: str, word: str, told: str) -> Fault:
    """A fault of the API's rank that goes on while a control file is there."""

    def play(target: Target) -> str:
        _tell_head(target, word)
        return told

    return Fault(name, what, play, lambda target: _unsay(target, word))


def _slow(target: Target) -> str:
    seconds = f"{target.seconds(SLOW_START_SECONDS):g}"
    folder = target.host.paths.knobs / "standin"
    folder.mkdir(exist_ok=True)
    (folder / "start-slowly").write_text(seconds)
    return f"until mended, each start of the engine loads for {seconds} s ({CONTROL_FOLDER}/start-slowly)"


def _fast(target: Target) -> str:
    (target.host.paths.knobs / "standin/start-slowly").unlink(missing_ok=True)
    return "the engine starts quickly again"


FAULTS = (
    Fault(
        "exit-zero",
        "End the rank with exit code 0 (stand-in engine).",
        _exit_zero,
        lambda _target: "nothing to mend by hand: sparkop apply starts it again",
    ),
    Fault(
        "wedge",
        "Let health stay green and no token come (stand-in engine).",
        _wedge,
        lambda target: _unsay(target, "wedge"),
    ),
    _of_head(
        "degenerate",
        "Let every answer be token 0; on the host of rank 0 (stand-in engine).",
        "degenerate",
        "every answer is token 0",
    ),
    _of_head(
        "long-prefill",
        "Let no token come while the counter of prompt tokens moves; on the host of rank 0 (stand-in).",
        "prefill",
        "no token comes, but the counter of prompt tokens moves",
    ),
    _of_head(
        "not-ready",
        "Let requests be answered with 503; on the host of rank 0 (stand-in engine).",
        "loading",
        "requests are answered with 503",
    ),
    _of_head(
        "server-error",
        "Let requests be answered with 500; on the host of rank 0 (stand-in engine).",
        "broken",
        "requests are answered with 500",
    ),
    Fault(
        "slow-start",
        f"Let every start load for {SLOW_START_SECONDS} s until it is mended (--amount SECONDS; stand-in).",
        _slow,
        _fast,
    ),
)
