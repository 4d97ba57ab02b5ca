"""Heads that are divided over the shards: a number of shards that does not divide them starts no engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.records import dataclass

_DIVIDED = (
    ("num_attention_heads", "attention heads"),
    ("n_heads", "attention heads"),
    ("linear_num_key_heads", "key heads of its linear attention"),
    ("linear_num_value_heads", "value heads of its linear attention"),
)
_REPEATED = ("num_key_value_heads", "key/value heads")
"""Fewer of them than shards are kept by several shards each."""


@dataclass(frozen=True)
class Heads:
    """One kind of heads of a model. ``repeated``: a head may be kept by several shards."""

    what: str
    count: int
    repeated: bool = False

    def fit(self, shards: int) -> bool:
        """Whether every shard gets the same number of them."""
        return self.count % shards == 0 or (self.repeated and shards % self.count == 0)


def heads_of(config: Mapping[str, Any]) -> tuple[Heads, ...]:
    """What the configuration of a text model says of its heads."""
    found = [
        Heads(what, int(config[name]))
        for name, what in _DIVIDED
        if isinstance(config.get(name), int) and config[name] > 0
    ]
    name, what = _REPEATED
    latent = "kv_lora_rank" in config  # one entry for all heads: nothing is divided
    if not latent and isinstance(config.get(name), int) and config[name] > 0:
        found.append(Heads(what, int(config[name]), repeated=True))
    return tuple(found)
