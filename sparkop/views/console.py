"""The two channels: stdout is data, stderr is talk. NO_COLOR and non-terminals are honoured by rich."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

from rich.console import Console


@cache
def out() -> Console:
    """Data, on stdout."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


@cache
def talk() -> Console:
    """Talk, on stderr."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
