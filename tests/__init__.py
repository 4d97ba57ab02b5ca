"""Tests, benchmarks, and the long runs on a lab: ``python -m tests.crash``, ``.drift`` and ``.soak``."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pytest") is None:
    raise SystemExit(
        "tests need more than sparkop itself; do: sh sparkop/lab/install.sh dev  # then the same again"
    )
