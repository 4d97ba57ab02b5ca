"""Rules for vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkop.engines import derived
from sparkop.engines.rules import Breach, Facts, Rule, Severity
from sparkop.engines.vllm import ALIASES
from sparkop.engines.words import given_of
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec

_GROUP: Mapping[str, str] = {
    "--nnodes": "nodes",
    "--node-rank": "nodes",
    "--headless": "nodes",
    "--master-addr": "nodes",
    "--master-port": "engine.rendezvousPort",
}
"""What makes the ranks one group, and the fields that it follows from. SGLang's come after the extra ones."""


def _vllm(find: Callable[[VllmEngine], Iterator[Breach]]) -> Callable[[ClusterSpec, Facts], Iterator[Breach]]:
    def only_vllm(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
        if isinstance(spec.engine, VllmEngine):
            yield from find(spec.engine)

    return only_vllm


def _adaptive(engine: VllmEngine) -> Iterator[Breach]:
    settings = engine.speculative
    if settings and settings.adaptive_verification and settings.method != "dspark":
        yield Breach(
            ("engine", "speculative", "adaptiveVerification"), f"adaptive verification with {settings.method}"
        )


def _adaptive_graphs(engine: VllmEngine) -> Iterator[Breach]:
    settings = engine.speculative
    if not (settings and settings.adaptive_verification):
        return
    if engine.eager or (engine.graphs and not engine.graphs.mode.upper().startswith("FULL")):
        mode = "eager mode" if engine.eager else f"graph mode {engine.graphs.mode}" if engine.graphs else ""
        yield Breach(("engine", "speculative", "adaptiveVerification"), f"adaptive verification in {mode}")


def _graph_list(engine: VllmEngine) -> Iterator[Breach]:
    if engine.graphs and engine.graphs.sizes and engine.max_sequences:
        most = derived.step_tokens(engine) * engine.max_sequences
        if max(engine.graphs.sizes) < most:
            yield Breach(
                ("engine", "graphs", "sizes"),
                f"the largest graph is for {max(engine.graphs.sizes)} of {most} tokens a step",
            )


def _graph_sizes(engine: VllmEngine) -> Iterator[Breach]:
    """vLLM drops what is over a step's tokens, and then ends: the largest is not the one it was told."""
    sizes, most = (engine.graphs.sizes if engine.graphs else None), engine.max_batched_tokens
    if sizes is None:
        return
    path = ("engine", "graphs", "sizes")
    for size in sizes:
        if size < 1:
            yield Breach(path, f"a graph for {size} tokens")
        elif most is not None and size > most:
            yield Breach(path, f"a graph for {size} tokens, of {most} a step (maxBatchedTokens)")


def _graph_unused(engine: VllmEngine) -> Iterator[Breach]:
    if engine.graphs and engine.graphs.sizes and engine.max_sequences:
        most = derived.step_tokens(engine) * engine.max_sequences
        over = [size for size in engine.graphs.sizes if size > most]
        if over:
            yield Breach(
                ("engine", "graphs", "sizes"),
                f"graphs for {', '.join(map(str, over))} tokens, where all sequences have {most} a step",
            )


def _optimization(engine: VllmEngine) -> Iterator[Breach]:
    if engine.graphs is None and not engine.eager:
        return
    field = "engine.eager" if engine.eager else "engine.graphs"
    for name, words in (("extraArgs", engine.extra_args), ("headExtraArgs", engine.head_extra_args)):
        if given_of(["--optimization-level"], words, ALIASES):
            yield Breach(("engine", name), f"{name} has --optimization-level (-O) beside {field}")


def _batch(engine: VllmEngine) -> Iterator[Breach]:
    batch, sequences = engine.max_batched_tokens, engine.max_sequences
    if batch is not None and sequences is not None and batch < sequences:
        yield Breach(("engine", "maxBatchedTokens"), f"{batch} tokens a step for {sequences} sequences")


def _context(engine: VllmEngine) -> Iterator[Breach]:
    context, most = engine.context, engine.model_context
    if context is not None and most is not None and context > most:
        yield Breach(("engine", "context"), f"the context of {context:,} is over {most:,}")


def _chunks(engine: VllmEngine) -> Iterator[Breach]:
    context, batch = engine.context, engine.max_batched_tokens
    if engine.chunked_prefill is False and context is not None and batch is not None and batch < context:
        yield Breach(
            ("engine", "chunkedPrefill"), f"whole prompts of {context} tokens in steps of {batch} tokens"
        )


def _group(engine: VllmEngine) -> Iterator[Breach]:
    given = (("extraArgs", engine.extra_args), ("headExtraArgs", engine.head_extra_args))
    for field, words in given:
        for flag in given_of(_GROUP, words, ALIASES):
            yield Breach(("engine", field), f"{field} has {flag}, which follows from {_GROUP[flag]}")


RULES = (
    Rule(
        id="vllm.adaptive-method",
        applies_to="vLLM",
        reason="vLLM has it for the method dspark only",
        source="vLLM 0.33 config/speculative.py",
        remedy="leave engine.speculative.adaptiveVerification out",
        find=_vllm(_adaptive),
    ),
    Rule(
        id="vllm.adaptive-graphs",
        applies_to="vLLM",
        reason="it needs a graph mode that can capture whole steps",
        source="vLLM 0.33 adaptive_verification.py",
        remedy="engine.graphs.mode of FULL_DECODE_ONLY, FULL or FULL_AND_PIECEWISE",
        find=_vllm(_adaptive_graphs),
    ),
    Rule(
        id="vllm.context",
        applies_to="vLLM",
        reason="positions beyond what the model bears give nonsense",
        source="the checkpoint's configuration",
        remedy="a smaller engine.context",
        find=_vllm(_context),
    ),
    Rule(
        id="vllm.batch",
        applies_to="vLLM",
        reason="a step must hold a token of every sequence",
        source="vLLM 0.33 config/scheduler.py",
        remedy="a larger engine.maxBatchedTokens or fewer engine.maxSequences",
        find=_vllm(_batch),
    ),
    Rule(
        id="vllm.chunks",
        applies_to="vLLM",
        reason="without pieces a prompt must fit one step",
        source="vLLM 0.33 config/scheduler.py",
        remedy="leave engine.chunkedPrefill out",
        find=_vllm(_chunks),
    ),
    Rule(
        id="vllm.group-by-argument",
        applies_to="vLLM",
        reason="it is another for each rank, an extra argument wins on all, and the ranks would never meet",
        source="vLLM 0.33 arg_utils.py",
        remedy="take it out: it follows from nodes and engine.rendezvousPort",
        find=_vllm(_group),
        overridable=False,
    ),
    Rule(
        id="vllm.graph-sizes",
        applies_to="vLLM",
        reason="vLLM captures graphs for 1 token up to those of one step, and ends over any other list",
        source="vLLM 0.33 config/vllm.py",
        remedy="leave engine.graphs.sizes out: it follows from maxSequences and draftTokens",
        find=_vllm(_graph_sizes),
    ),
    Rule(
        id="vllm.graph-unused",
        applies_to="vLLM",
        reason="steps of decoding are never that large, and each graph takes memory and time at every start",
        source="recipe A",
        remedy="leave engine.graphs.sizes out: it follows from maxSequences and draftTokens",
        find=_vllm(_graph_unused),
        severity=Severity.WARNING,
    ),
    Rule(
        id="vllm.optimization-level",
        applies_to="vLLM",
        reason="both choose how steps are compiled and captured, and which part of each counts is not plain "
        "to see",
        source="vLLM 0.33 argparse_utils.py",
        remedy="take it out, and say it with engine.graphs or engine.eager",
        find=_vllm(_optimization),
        severity=Severity.WARNING,
    ),
    Rule(
        id="vllm.graph-list",
        applies_to="vLLM",
        reason="larger steps run without graphs, many times slower",
        source="recipe A",
        remedy="leave engine.graphs.sizes out: it follows from maxSequences and draftTokens",
        find=_vllm(_graph_list),
        severity=Severity.WARNING,
    ),
)
