"""What an operation's context refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkop.errors import BlockedError
from sparkop.resources.base import Context
from sparkop.resources.events import ignore


def test_a_node_without_a_lease_is_named_not_a_key_error() -> None:
    """A copy from a node whose disk is full: no lease is taken there; once 'KeyError: spark-2'."""
    nothing = cast("Any", SimpleNamespace())
    context = Context(desired=nothing, observed=nothing, hosts={}, fences={}, emit=ignore)
    with pytest.raises(BlockedError) as caught:
        context.fence("spark-2")
    assert caught.value.node == "spark-2"
    assert "disk" in str(caught.value.cause)
