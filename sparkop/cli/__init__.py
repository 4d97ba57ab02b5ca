"""The command line: one module a command. Commands are loaded when they are used."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    raise SystemExit(64)
