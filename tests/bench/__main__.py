"""`python -m tests.bench NAME [options]`: runs tests/bench/NAME.py, and imports no other benchmark."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Exit code of the named benchmark; 64 when there is none of that name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    if not arguments or arguments[0] not in names:
        print(f"usage: python -m tests.bench {{{','.join(names)}}} [options]", file=sys.stderr)
        return 64
    benchmark = importlib.import_module(f"tests.bench.{arguments[0]}")
    return int(benchmark.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
