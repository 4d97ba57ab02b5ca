"""Every variable of both recipes has a field or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkop.spec.fields import fields_at
from sparkop.spec.load import load
from sparkop.spec.recipe_variables import VARIABLES, Recipe, Variable, reference_page
from sparkop.spec.recipes import directory

NAMES = {
    Recipe.A: """
        WORKER MODEL_DIR WORKER_MODEL_DIR STATE_DIR HEAD_IP WORKER_IP HEAD_IFNAME WORKER_IFNAME HEAD_HCAS
        WORKER_HCAS PORT MPORT IMG PLAN_NAME API_KEY_FILE MEMGUARD_GIB KV_BYTES MAX_LEN MAX_SEQS NSPEC BATCH
        GPU_UTIL GRAPH_MODE CAPS SSH_OPTS EXTRA WAIT REVISION KEEP_PARTS HF_TOKEN KEY_ENV SET_DEFAULT
        DSV41_API_KEY PI_CODING_AGENT_DIR
    """,
    Recipe.B: """
        HEAD_CX7_IP WORKER_CX7_IP HEAD_CX7_IF WORKER_CX7_IF HEAD_CX7_IB WORKER_CX7_IB WORKER_HOST WORKER_USER
        WORKER_SSH PORT HOST_BIND DIST_PORT API_KEY MEM_FRACTION_STATIC CONTEXT_LENGTH CHUNKED_PREFILL_SIZE
        MAX_RUNNING_REQUESTS SPEC_STEPS SPEC_TOPK SPEC_DRAFT MAMBA_FULL_MEMORY_RATIO
        MAMBA_RADIX_CACHE_STRATEGY MAMBA_TRACK_INTERVAL PLE_OFFLOAD ENABLE_DECODE_GRAPHS CUDA_GRAPH_BS
        ATTENTION_BACKEND KERNEL_PATCH BASE_IMAGE PATCHED_IMAGE IMAGE DOWNLOAD_MODE HF_HOME WORKER_HF_HOME
        HF_REVISION HF_TOKEN USE_HOST_NCCL NCCL_HOST_DIR NCCL_DEBUG NCCL_CROSS_NIC CPUSET REASONING_PARSER
        TOOL_CALL_PARSER SERVED_MODEL_NAME WAIT_TIMEOUT_MIN EXTRA_ARGS ALLOW_AUTO_TRUNCATE
    """,
}
EVERY = [(recipe, variable) for recipe, variables in VARIABLES.items() for variable in variables]


@pytest.mark.parametrize("recipe", list(Recipe))
def test_every_variable_of_the_recipe_is_known(recipe: Recipe) -> None:
    """One that is forgotten would be dropped in silence by an import."""
    assert {variable.name for variable in VARIABLES[recipe]} == set(NAMES[recipe].split())


@pytest.mark.parametrize(("recipe", "variable"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_variable_has_a_field_that_exists_or_a_reason(recipe: Recipe, variable: Variable) -> None:
    """A field that was renamed in the models would make every import invalid."""
    if variable.field is None:
        assert variable.reason
        return
    tree = load([directory() / f"{recipe.value}.yaml"]).tree
    path = [int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", variable.field) if step]
    (field,) = fields_at(path, tree)
    told = field.about("recipe") or ""
    letter = "A" if recipe is Recipe.A else "B"
    mentioned = dict(part.strip().split(": ") for part in told.split(";") if part)
    assert variable.name in re.split(r"[,\s]+", mentioned.get(letter, "")), f"{variable.field} says {told!r}"


def test_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "recipe-variables.md"
    assert page.read_text(encoding="utf-8") == reference_page(), "sparkop import --list writes it"
