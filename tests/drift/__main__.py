"""Every row of the drift table under a running watch: detection, action, time, and that serving returns.

``python -m tests.drift`` takes half an hour with the stand-in; ``--vllm`` plays the deaths, the cable and the
hanging node with a real vLLM. Needs root on Linux (the lab); makes a lab of its own and takes it down.
Prints the table that docs/measurements/drift.md holds. Exit 0, or 1 with what was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.drift.rows import CALM, ROWS, VLLM, Row, clean, play
from tests.drift.watcher import Stage, stage
from tests.labkit import temporary_lab
from tests.scenarios.conftest import STANDIN, User
from tests.scenarios.conftest import VLLM as VLLM_SPEC

SLOWER = 5.0
"""How much more time a real engine gets than the stand-in, which starts in a second."""
QUICK_CANARY = ("--set", "ready.canary.deadline=5s")
"""The lab need not wait a minute for each answer that does not come."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drift", description=__doc__)
    parser.add_argument("--vllm", action="store_true", help="with a real vLLM")
    parser.add_argument("--only", default="", help="rows whose words hold this")
    options = parser.parse_args()
    real = options.vllm
    spec, words = (VLLM_SPEC, ()) if real else (STANDIN, QUICK_CANARY)
    period, patience = (10.0, SLOWER) if real else (3.0, 1.0)
    wanted = [row for row in (*ROWS, *CALM) if options.only in f"{row.drift} {row.fault}"]
    wanted = [row for row in wanted if row.fault in VLLM] if real else wanted
    engines = "all" if real else "standin"
    wrong = 0
    with temporary_lab(engines=engines) as lab, tempfile.TemporaryDirectory() as home:
        user = User(lab, Path(home))
        with stage(user, spec, *words, period=period, seconds=300) as running:
            print(f"load {os.getloadavg()[0]:.1f}\n| drift | what watch does | seen after | over after |")
            print("| --- | --- | --- | --- |", flush=True)
            for row in wanted:
                wrong += not _played(running, row, patience)
            code = running.watcher.end()
            if code != 143:
                print(f"watch exited {code}", file=sys.stderr)
                wrong += 1
        user.sparkop("stop", spec, "--yes")
    print(f"load {os.getloadavg()[0]:.1f}; {len(wanted) - wrong} of {len(wanted)} rows as they must be")
    return 1 if wrong else 0


def _played(running: Stage, row: Row, patience: float) -> bool:
    try:
        seen, over = play(running, row, patience)
    except Exception:
        print(f"| {row.drift} | WRONG | | |", flush=True)
        traceback.print_exc()
        clean(running, row)
        time.sleep(10)
        return False
    print(f"| {row.drift} | {row.action} | {seen:.1f} s | {over:.1f} s |", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
