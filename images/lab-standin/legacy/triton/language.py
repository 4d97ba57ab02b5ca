from __future__ import annotations

from typing import Any


def constexpr(value: Any) -> Any:
    return value
