"""A checkpoint: configuration, tensors by kind, recorded runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib import resources
from typing import Any

from sparkop.engines.budget.lines import Basis, Part, Quote
from sparkop.engines.budget.shape import Shape, shape_of, with_window_groups
from sparkop.records import dataclass

_KINDS = (
    (re.compile(r"(^|\.)(mtp|nextn|dspark|draft|eagle)"), Part.DRAFT),
    (re.compile(r"(^|\.)(visual|vision|vit|image|mm_projector)"), Part.VISION),
    (re.compile(r"engram.*(embed|table|weight|scale)|ngram|(^|\.)ple\.?.*(embed|table)"), Part.TABLE),
    (re.compile(r"(?<!shared_)(?<!shared)experts?\.|(?<!shared_)experts$"), Part.EXPERTS),
)
_RECORDED = ("window_groups", "expert_format", "rest", "whole", "static", "graphs", "first_start")
_WHOLE = re.compile(r"norm|router|(^|\.)gate\.|bias|(^|\.)hc_|A_log|dt_|scale_2|input_scale|index")
"""Names of small tensors that every shard keeps whole."""


@dataclass(frozen=True)
class TensorGroup:
    """Tensors whose names differ in numbers only (``#``), of one type. ``size`` in bytes, of all of them."""

    name: str
    dtype: str
    count: int
    size: int

    @property
    def part(self) -> Part:
        """Experts, table, vision, draft, or dense for all others."""
        return next((part for pattern, part in _KINDS if pattern.search(self.name)), Part.DENSE)

    @property
    def sharded(self) -> bool:
        """Whether a shard holds its share only. Vision is kept whole."""
        return self.part is not Part.VISION and _WHOLE.search(self.name) is None


@dataclass(frozen=True)
class Checkpoint:
    """What a budget is made from."""

    name: str
    shape: Shape
    source: str
    basis: Basis
    """Of the configuration."""
    tensors: tuple[TensorGroup, ...] = ()
    """From safetensors headers; empty when none were read."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """Recorded runs that lines are fitted to, as in ``known/*.json``."""
    quotes: tuple[Quote, ...] = ()
    unknown: tuple[str, ...] = ()

    def weights(self, part: Part, shards: int) -> tuple[int, int]:
        """Bytes of the tensors of a kind on one rank, and of all of them."""
        groups = [group for group in self.tensors if group.part is part]
        share = sum(group.size / shards if group.sharded else group.size for group in groups)
        return round(share), sum(group.size for group in groups)


def summarise(headers: Iterable[Mapping[str, Any]]) -> tuple[TensorGroup, ...]:
    """Safetensors headers (name -> dtype, shape, data_offsets) as groups, largest first.

    Raises ValueError for what is no header. Format: safetensors README.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for header in headers:
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            try:
                begin, end = tensor["data_offsets"]
                key = (re.sub(r"\d+", "#", name), str(tensor["dtype"]))
                size = int(end) - int(begin)
            except (TypeError, KeyError, ValueError):
                raise ValueError(f"{name} has no offsets or no type") from None
            count, total = found.get(key, (0, 0))
            found[key] = (count + 1, total + size)
    groups = (TensorGroup(name, dtype, count, size) for (name, dtype), (count, size) in found.items())
    return tuple(sorted(groups, key=lambda group: (-group.size, group.name, group.dtype)))


def known(repository: str) -> Checkpoint | None:
    """The shipped numbers of a repository; None when there are none."""
    for document in _documents():
        if repository.lower() in (name.lower() for name in document["repositories"]):
            return _checkpoint(document)
    return None


def read_checkpoint(
    repository: str, config: Mapping[str, Any], tensors: Sequence[TensorGroup], source: str
) -> Checkpoint:
    """A checkpoint as it was read, with the recorded runs of its repository if some are shipped.

    Raises ValueError for a configuration that can't be read.
    """
    shipped = known(repository)
    quantisation = config.get("quantization_config") or config.get("hf_quant_config") or {}
    algorithm = ""
    if isinstance(quantisation, Mapping):
        algorithm = str(quantisation.get("quant_algo") or quantisation.get("quant_method") or "").lower()
    recorded = dict(shipped.recorded) if shipped else {}
    form = recorded.get("expert_format") or algorithm or None
    return Checkpoint(
        name=repository,
        shape=with_window_groups(shape_of(config, form), recorded.get("window_groups")),
        source=source,
        basis=Basis.READ,
        tensors=tuple(tensors),
        recorded=recorded,
        quotes=shipped.quotes if shipped else (),
        unknown=shipped.unknown if shipped else (),
    )


@cache
def _documents() -> tuple[Mapping[str, Any], ...]:
    folder = resources.files("sparkop.engines.budget") / "known"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return tuple(json.loads((folder / name).read_text(encoding="utf-8")) for name in names)


def _checkpoint(document: Mapping[str, Any]) -> Checkpoint:
    quotes = tuple(
        Quote(each["text"], each["source"], each.get("against", "")) for each in document["quotes"]
    )
    return Checkpoint(
        name=document["name"],
        shape=with_window_groups(
            shape_of(document["config"], document.get("expert_format")), document.get("window_groups")
        ),
        source=document["source"],
        basis=Basis.QUOTED,
        recorded={key: document[key] for key in _RECORDED if key in document},
        quotes=quotes,
        unknown=tuple(document["unknown"]),
    )
