"""What the weights take on one rank, by kind, and how the engine shards or offloads them."""

from __future__ import annotations

from sparkop.engines.budget.asked import Asked
from sparkop.engines.budget.checkpoint import Checkpoint
from sparkop.engines.budget.lines import Basis, Line, Part, Where
from sparkop.engines.budget.shape import Weights

_NAMES = {
    Part.EXPERTS: "routed experts",
    Part.DENSE: "dense layers",
    Part.VISION: "vision",
    Part.DRAFT: "draft layers",
    Part.TABLE: "tables",
}


def weight_lines(checkpoint: Checkpoint, asked: Asked, shards: int) -> list[Line]:
    """Lines of the weights on one of ``shards`` ranks; empty when nothing is known of them."""
    if checkpoint.tensors:
        return _from_headers(checkpoint, asked, shards)
    return [
        *_experts(checkpoint, asked, shards),
        *_rest(checkpoint, shards),
        *_estimated(checkpoint, asked, shards),
        *_tables(checkpoint, asked, shards),
    ]


def _from_headers(checkpoint: Checkpoint, asked: Asked, shards: int) -> list[Line]:
    lines = []
    for part, name in _NAMES.items():
        share, whole = checkpoint.weights(part, shards)
        if not whole:
            continue
        source = f"{checkpoint.source}: {whole:,} B in all, sharded over {shards}, small tensors whole"
        where = Where.GPU
        if part is Part.TABLE:
            where = Where.DISK if asked.tables_on_disk else Where.PINNED
        if part is Part.EXPERTS and asked.exl3:
            where, name = Where.DISK, "routed experts, all EXL3 banks"
        size = whole if where is Where.DISK else share
        lines.append(Line(part, name, size, Basis.READ, source, where))
    return lines


def _experts(checkpoint: Checkpoint, asked: Asked, shards: int) -> list[Line]:
    experts = checkpoint.shape.experts
    if experts is None:
        return []
    if asked.exl3:
        source = f"{experts.reading}: the native experts, which EXL3 banks stand in for"
        return [
            Line(
                Part.EXPERTS,
                "routed experts, native (not loaded)",
                experts.size,
                Basis.COMPUTED,
                source,
                Where.DISK,
            )
        ]
    source = f"{experts.reading} = {experts.size:,} B, over {shards}"
    return [Line(Part.EXPERTS, _NAMES[Part.EXPERTS], round(experts.size / shards), Basis.COMPUTED, source)]


def _tables(checkpoint: Checkpoint, asked: Asked, shards: int) -> list[Line]:
    lines = []
    for table in checkpoint.shape.tables:
        where = Where.DISK if asked.tables_on_disk else Where.PINNED
        size = table.size if where is Where.DISK else round(table.size / shards)
        over = "read from the checkpoint" if where is Where.DISK else f"over {shards}"
        source = f"{table.reading} = {table.size:,} B, {over}"
        lines.append(Line(Part.TABLE, table.name, size, Basis.COMPUTED, source, where))
    return lines


def _rest(checkpoint: Checkpoint, shards: int) -> list[Line]:
    """Everything but experts and tables, from a recorded run: one part of it is sharded, one is whole."""
    recorded = checkpoint.recorded.get("rest")
    if not recorded:
        return []
    shape = checkpoint.shape
    sharded_parts = (shape.experts.size if shape.experts else 0) + sum(t.size for t in shape.tables)
    then = int(recorded["shards"])
    share = recorded["rank_size"] - sharded_parts / then
    sharded = (recorded["size"] - share) / (1 - 1 / then)
    size = round(recorded["size"] - sharded + sharded / shards)
    size -= sum(_share(each, shards) for each in shape.weights)
    return [Line(Part.DENSE, "dense layers and vision", max(0, size), Basis.FITTED, recorded["source"])]


def _share(weights: Weights, shards: int) -> int:
    return round(weights.size / shards) if weights.sharded else weights.size


def _estimated(checkpoint: Checkpoint, asked: Asked, shards: int) -> list[Line]:
    """By the configuration; the draft only with speculation."""
    lines = []
    for each in checkpoint.shape.weights:
        if each.part is Part.DRAFT and asked.draft == 1:
            continue
        over = f"over {shards}" if each.sharded else "kept whole"
        source = f"{each.reading} = {each.size:,} B, {over}"
        lines.append(Line(each.part, each.name, _share(each, shards), Basis.COMPUTED, source))
    return lines
