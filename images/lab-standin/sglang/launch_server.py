"""``python3 -m sglang.launch_server``, as recipes call it."""

from __future__ import annotations

import sys

from standin.main import run

if __name__ == "__main__":
    sys.exit(run("sglang", sys.argv[1:]))
