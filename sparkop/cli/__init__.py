"""The command line. Here is how its process starts: nothing is imported that is not there already, until an
interrupt is told in words whatever is imported just then."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # as typing has it: to import that takes longer than all else that comes before `main`
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = "sparkop: interrupted; run the same command again to carry on."


def after_the_echo() -> str:
    """What ends a terminal's line on which ^C stands."""
    return "\n" if sys.stderr.isatty() else ""


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point of the console script. Never returns: it exits with a code of ``ExitCode``."""
    try:
        gc.set_threshold(200_000, 20, 20)  # modules make no garbage: looking for it was a tenth of a diff
        from sparkop.cli.root import main as begin

        begin(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:  # closed, under some that start programs
            sys.stderr.write(f"{after_the_echo()}{INTERRUPTED}\n")
        sys.exit(130)


def run(argv: list[str]) -> int:
    """Run one command line within this process; its exit code. Failures are words on stderr."""
    from sparkop.cli.root import run as begin

    return begin(argv)
