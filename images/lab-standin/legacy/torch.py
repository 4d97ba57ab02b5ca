"""As much of torch as the fallback kernel's module needs to be imported."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    if name.startswith("__"):
        raise AttributeError(name)
    return name
