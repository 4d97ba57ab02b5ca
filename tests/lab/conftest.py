"""One lab for this folder's tests."""

from __future__ import annotations

from tests.labkit import lab as lab
