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

from tests.drift.rows import CALM, ROWS, Row, clean, play
from tests.drift.watcher import stage
from tests.labkit import temporary_lab
from tests.scenarios.conftest import STANDIN, VLLM, User

QUICK_CANARY = ("--set", "ready.canary.deadline=5s")
"""The lab need not wait a minute for each answer that does not come."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drift", description=__doc__)
    parser.add_argument("--vllm", action="store_true", help="with a real vLLM")
    parser.add_argument("--only", default="", help="rows whose words hold this")
    options = parser.parse_args()
    spec, words = (VLLM, ()) if options.vllm else (STANDIN, QUICK_CANARY)
    wanted = [row for row in (*ROWS, *CALM) if options.only in f"{row.drift} {row.fault}"]
    engines = "all" if options.vllm else "standin"
    wrong = 0
    with temporary_lab(engines=engines) as lab, tempfile.TemporaryDirectory() as home:
        user = User(lab, Path(home))
        with stage(user, spec, *words, seconds=300) as running:
            print(f"load {os.getloadavg()[0]:.1f}\n| drift | what watch does | seen after | over after |")
            print("| --- | --- | --- | --- |", flush=True)
            for row in wanted:
                wrong += not _played(running, row)
            code = running.watcher.end()
            if code != 143:
                print(f"watch exited {code}", file=sys.stderr)
                wrong += 1
        user.sparkop("stop", spec, "--yes")
    print(f"load {os.getloadavg()[0]:.1f}; {len(wanted) - wrong} of {len(wanted)} rows as they must be")
    return 1 if wrong else 0


def _played(running, row: Row) -> bool:  # type: ignore[no-untyped-def]
    try:
        seen, over = play(running, row)
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
