"""paramiko, imported without invoke: every module of hosts takes it from here.

paramiko imports invoke where it is installed, for ``Match exec`` in its own reader of ssh configurations.
That reader is not used here (``ssh -G`` reads them), and invoke brings asyncio, unittest and two libraries
for YAML: an eighth of the processor time of a cold ``sparkop diff``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paramiko"]


@contextmanager
def _not_installed(name: str) -> Iterator[None]:
    """Imports of a module fail as where it is not installed; one that was imported before stays."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how the import system spells it
    try:
        yield
    finally:
        del sys.modules[name]


with _not_installed("invoke"):
    import paramiko
