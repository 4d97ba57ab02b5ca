"""``python -m sparkop.lab`` is ``sparkop lab``."""

from __future__ import annotations

import sys

from sparkop.cli import main

if __name__ == "__main__":
    main(["lab", *sys.argv[1:]])
