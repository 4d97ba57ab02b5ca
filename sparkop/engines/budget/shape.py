"""A checkpoint's configuration as the few numbers that memory follows from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sparkop.engines.budget.formats import BF16, FP4_16, FP4_32, FP8, FP8_32, Format, named
from sparkop.engines.budget.heads import Heads, heads_of
from sparkop.engines.budget.lines import Part
from sparkop.records import dataclass

LARGEST = 1 << 60
"""Bytes or numbers; no model has more of anything."""


@dataclass(frozen=True)
class CacheGroup:
    """Layers that keep an entry of every token, or of every few tokens.

    ``entries`` per token over all the layers; ``values`` numbers of one entry of one head; ``heads`` can be
    divided over shards, one head is kept by every shard.
    """

    name: str
    entries: Fraction
    values: int
    heads: int
    format: Format | None = None
    """Its own; None: what the engine is asked for."""
    draft: bool = False
    """Kept only with speculation."""
    reading: str = ""

    def size(self, shards: int, asked: Format) -> float:
        """Bytes of one token on one rank."""
        heads = max(1, -(-self.heads // shards))
        return float(self.entries) * heads * (self.format or asked).size(self.values)


@dataclass(frozen=True)
class Windows:
    """Sliding-window layers: a request keeps so many tokens of each, whatever its length.

    ``groups`` None: counted by layers; else groups of blocks of the one pool (a fit).
    """

    layers: int
    tokens: int
    values: int
    heads: int
    groups: int | None = None


@dataclass(frozen=True)
class State:
    """Linear-attention layers: a state of fixed size a request. Numbers of one layer, all heads."""

    layers: int
    ssm: int
    conv: int
    dtype: str
    """Type of the SSM state unless the engine is asked for another. The convolution's is bf16."""


@dataclass(frozen=True)
class Table:
    """Look-up tables that are no part of the layers (PLE, Engram). Bytes of the whole, scales included."""

    name: str
    size: int
    reading: str


@dataclass(frozen=True)
class Experts:
    """Routed experts: ``values`` weights in all layers."""

    values: int
    format: Format
    reading: str

    @property
    def size(self) -> int:
        return round(self.format.size(self.values))


@dataclass(frozen=True)
class Weights:
    """Weights beside experts and tables, by the large matrices alone. ``size``: bytes in all shards."""

    part: Part
    name: str
    size: int
    reading: str
    sharded: bool = True


@dataclass(frozen=True)
class Shape:
    """What memory follows from. ``context``: tokens that the model bears by itself."""

    family: str
    caches: tuple[CacheGroup, ...]
    context: int | None = None
    windows: Windows | None = None
    state: State | None = None
    tables: tuple[Table, ...] = ()
    experts: Experts | None = None
    weights: tuple[Weights, ...] = ()
    indexer: bool = False
    """Prefill computes fp32 logits of every token of the piece against the whole history (QSA)."""
    heads: tuple[Heads, ...] = ()


def shape_of(config: Mapping[str, Any], expert_format: str | None = None) -> Shape:
    """The shape of a config.json (or of DeepSeek's own inference configuration).

    Raises ValueError that names what is missing, for a configuration that it can't read.
    """
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, Mapping) else config
    try:
        shape = replace(_reader(inner)(inner, expert_format), heads=heads_of(inner))
        _check(shape)
    except KeyError as missing:
        raise ValueError(f"the configuration has no {missing.args[0]}") from None
    except (TypeError, ValueError, ArithmeticError, IndexError, AttributeError) as error:
        raise ValueError(f"the configuration can't be read: {error}") from None
    return shape


def _check(shape: Shape) -> None:
    """Raise ValueError or OverflowError for what would only give nonsense later."""
    sizes = [group.size(1, FP8) for group in shape.caches]
    sizes += [table.size for table in shape.tables] + [weights.size for weights in shape.weights]
    sizes += [shape.experts.size] if shape.experts else []
    if shape.state is not None:
        sizes += [shape.state.layers, shape.state.ssm, shape.state.conv]
    if shape.windows is not None:
        sizes += [shape.windows.layers, shape.windows.tokens, shape.windows.values * shape.windows.heads]
    if not (shape.caches or shape.windows) or min(sizes) <= 0 or max(sizes) > LARGEST:
        raise ValueError("a size that no model has")


def _reader(config: Mapping[str, Any]) -> Callable[[Mapping[str, Any], str | None], Shape]:
    if "kv_source_layers" in config:
        return _deepseek_v41
    if "linear_num_value_heads" in config:
        return _gated_delta
    return _latent if "kv_lora_rank" in config else _plain


def _deepseek_v41(config: Mapping[str, Any], _expert_format: str | None) -> Shape:
    """Compressed KV in few source layers, index keys beside, sliding windows everywhere (reference graph:
    compressed_kv fp4 group 16 e4m3, index fp4 group 32 e8m0, window_kv fp8 group 32 e8m0)."""
    ratios = config["compress_ratios"]
    sources = config["kv_source_layers"]
    entries = sum((Fraction(1, ratios[layer]) for layer in sources), Fraction(0))
    told = " + ".join(f"1/{ratios[layer]}" for layer in sources)
    rows = config.get("engram_num_embeddings") or []
    width = int(config.get("engram_head_dim") or 0)
    layers, experts = int(config["n_layers"]), int(config.get("n_routed_experts") or 0)
    dim, inner = int(config["dim"]), int(config.get("moe_inter_dim") or 0)
    return Shape(
        family="DeepSeek V4.1",
        context=int(config["original_seq_len"]) * int(config.get("rope_factor") or 1)
        if "original_seq_len" in config
        else None,
        caches=(
            CacheGroup(
                "compressed KV",
                entries,
                int(config["head_dim"]),
                1,
                FP4_16,
                reading=f"layers {sources}: {told}",
            ),
            CacheGroup(
                "index keys", entries, int(config["index_head_dim"]), 1, FP4_32, reading="beside each"
            ),
        ),
        windows=Windows(layers, int(config["window_size"]), int(config["head_dim"]), 1),
        tables=(
            Table(
                "Engram tables",
                round(sum(rows) * FP8_32.size(width)),
                f"({' + '.join(f'{count:,}' for count in rows)}) rows x ({width} + {width // 32}) B",
            ),
        )
        if rows
        else (),
        experts=_experts(layers, experts, dim, inner, config.get("expert_dtype")),
        weights=_deepseek_weights(config),
    )


def _deepseek_weights(config: Mapping[str, Any]) -> tuple[Weights, ...]:
    """Dense layers in fp8, embeddings and vision in bf16, the draft's experts as the model's."""
    dim, inner, heads = int(config["dim"]), int(config["moe_inter_dim"]), int(config["n_heads"])
    width, low, out = int(config["head_dim"]), int(config["q_lora_rank"]), int(config["o_lora_rank"])
    attention = dim * low + low * heads * width + dim * width + heads * width * out
    attention += int(config["o_groups"]) * out * dim
    shared = int(config["n_shared_experts"]) * 3 * dim * inner
    layers, drafts = int(config["n_layers"]), int(config["n_mtp_layers"])
    embeddings = 2 * int(config["vocab_size"]) * dim
    dense = layers * (attention + shared) + round(BF16.size(embeddings))
    form = named(config.get("expert_dtype")) or FP8
    experts = int(config["dspark_n_routed_experts"]) * 3 * dim * inner
    draft = drafts * (round(form.size(experts)) + attention)
    see, seen = int(config["vision_dim"]), int(config["vision_inter_dim"])
    vision = round(BF16.size(int(config["vision_n_layers"]) * (4 * see * see + 3 * see * seen)))
    left_out = "large matrices only"
    return (
        Weights(
            Part.DENSE,
            "attention, shared experts, embeddings",
            dense,
            f"{layers} x ({attention:,} + {shared:,}) B fp8 + {embeddings:,} x 2 B bf16, {left_out}",
        ),
        Weights(
            Part.DRAFT,
            "draft layers (DSpark)",
            draft,
            f"{drafts} x ({experts:,} expert weights in {form.text} + {attention:,} B fp8), {left_out}",
        ),
        Weights(
            Part.VISION,
            "vision",
            vision,
            f"{config['vision_n_layers']} x (4 x {see} x {see} + 3 x {see} x {seen}) x 2 B bf16, {left_out}",
            sharded=False,
        ),
    )


def _gated_delta(config: Mapping[str, Any], expert_format: str | None) -> Shape:
    """Hybrid of full attention and gated delta net, as Qwen3-Next and Qwen3.8-Flash-Next."""
    layers = int(config["num_hidden_layers"])
    full = _full_layers(config, layers)
    heads, width = int(config["num_key_value_heads"]), int(config["head_dim"])
    keys, values = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])
    key_width, value_width = int(config["linear_key_head_dim"]), int(config["linear_value_head_dim"])
    drafts = int(config.get("mtp_num_hidden_layers") or 0)
    caches = [
        CacheGroup("full attention", Fraction(full), 2 * width, heads, reading=f"{full} layers, K and V")
    ]
    if drafts:
        caches.append(
            CacheGroup("draft layer (MTP)", Fraction(drafts), 2 * width, heads, draft=True, reading="K and V")
        )
    return Shape(
        family="gated delta net and full attention",
        context=_whole(config, "max_position_embeddings"),
        caches=tuple(caches),
        state=State(
            layers - full,
            values * key_width * value_width,
            (2 * keys * key_width + values * value_width) * (int(config["linear_conv_kernel_dim"]) - 1),
            str(config.get("mamba_ssm_dtype") or "float32"),
        ),
        tables=_ple(config),
        experts=_experts(
            layers,
            int(config.get("num_experts") or 0),
            int(config["hidden_size"]),
            int(config.get("moe_intermediate_size") or 0),
            expert_format,
        ),
        weights=_draft_experts(config, drafts),
        indexer="indexer_head_dim" in config,
    )


def _draft_experts(config: Mapping[str, Any], drafts: int) -> tuple[Weights, ...]:
    """The MTP layer keeps its experts in bf16 (the checkpoint's NVFP4 part is exactly the other layers)."""
    experts = _experts(
        drafts,
        int(config.get("num_experts") or 0),
        int(config["hidden_size"]),
        int(config.get("moe_intermediate_size") or 0),
        "bf16",
    )
    return (
        (Weights(Part.DRAFT, "draft layer (MTP), experts", experts.size, experts.reading),) if experts else ()
    )


def _latent(config: Mapping[str, Any], expert_format: str | None) -> Shape:
    """Multi-head latent attention: one entry for all heads, kept by every shard."""
    layers = int(config["num_hidden_layers"])
    values = int(config["kv_lora_rank"]) + int(config["qk_rope_head_dim"])
    moe = layers - int(config.get("first_k_dense_replace") or 0)
    return Shape(
        family="latent attention",
        context=_whole(config, "max_position_embeddings"),
        caches=(CacheGroup("latent", Fraction(layers), values, 1, reading=f"{layers} layers"),),
        experts=_experts(
            moe,
            int(config.get("n_routed_experts") or 0),
            int(config["hidden_size"]),
            int(config.get("moe_intermediate_size") or 0),
            expert_format,
        ),
    )


def _plain(config: Mapping[str, Any], expert_format: str | None) -> Shape:
    """Grouped-query attention, some layers perhaps with a sliding window."""
    layers = int(config["num_hidden_layers"])
    full = _full_layers(config, layers)
    attention = int(config["num_attention_heads"])
    heads = int(config.get("num_key_value_heads") or attention)
    width = int(config.get("head_dim") or int(config["hidden_size"]) // attention)
    told, windows = f"{full} layers, K and V", None
    if full < layers:
        windows = Windows(layers - full, int(config["sliding_window"]), 2 * width, heads)
    return Shape(
        family="grouped-query attention",
        context=_whole(config, "max_position_embeddings"),
        caches=(CacheGroup("full attention", Fraction(full), 2 * width, heads, reading=told),)
        if full
        else (),
        windows=windows,
        experts=_experts(
            layers,
            int(config.get("num_experts") or config.get("num_local_experts") or 0),
            int(config["hidden_size"]),
            int(config.get("moe_intermediate_size") or config.get("intermediate_size") or 0),
            expert_format,
        ),
    )


def _full_layers(config: Mapping[str, Any], layers: int) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        strange = set(kinds) - {"full_attention", "sliding_attention", "linear_attention"}
        if strange:
            raise ValueError(f"layers of the type {sorted(map(str, strange))[0]} are not known")
        return sum(kind == "full_attention" for kind in kinds)
    every = _whole(config, "full_attention_interval")
    return layers // every if every else layers


def _ple(config: Mapping[str, Any]) -> tuple[Table, ...]:
    if "ngram_vocab_size_base" not in config:
        return ()
    orders, heads = int(config["ngram_size"]) - 1, int(config["heads_per_ngram"])
    rows, width = int(config["ngram_vocab_size_base"]), int(config["ple_embed_dim"]) // (orders * heads)
    size = round(orders * heads * rows * FP8.size(width))
    return (Table("PLE table", size, f"{orders} orders x {heads} heads x {rows:,} rows x {width} B (fp8)"),)


def _experts(layers: int, count: int, dim: int, inner: int, dtype: str | None) -> Experts | None:
    """Gate, up and down projections of every routed expert."""
    form = named(dtype)
    if not count or form is None:
        return None
    values = layers * count * 3 * dim * inner
    reading = f"{layers} x {count} x 3 x {dim} x {inner} x {form.size(64) / 64:g} B ({form.text})"
    return Experts(values, form, reading)


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def with_window_groups(shape: Shape, groups: int | None) -> Shape:
    """The shape with a fitted number of sliding-window groups of blocks."""
    if shape.windows is None or groups is None:
        return shape
    return replace(shape, windows=replace(shape.windows, groups=groups))
