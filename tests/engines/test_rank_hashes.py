"""The stamped hashes of the recipes' and the lab's ranks on recorded facts: another one restarts every group.

A failure here is a decision, not a number to update: see docs/decisions/0002-what-is-hashed.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkop.engines.render import engine_of
from sparkop.hosts.document import Document, parse_document
from sparkop.resources.desired import desire
from sparkop.resources.stamped import changed_field, hash_of, same
from tests.engines.specs import RECIPE_A, RECIPE_B, spec

TWO_SPARKS = Path(__file__).parents[1] / "data" / "facts" / "two-sparks.json"

HASHES = {
    RECIPE_A: (
        "v1:16ea38fc9af0d7080d8ae0a91cef0f359e0a843ab0df2641998766fc99633985",
        "v1:d64d3db2a32471894e55125769ff552daa9d8f0e620f1c05a7121d1a4b8fd57e",
    ),
    RECIPE_B: (
        "v1:34137e74809117fac32f6b30ae29e67125e35d3a7bdd0d6051d8e5d59cc652b9",
        "v1:119bd9efeff603b191a89a8b8f4743175c551544fed5dd1e1a6ed6be82931e7b",
    ),
    "lab-standin": (
        "v1:b1b27ce9f606fc83e85af6eb0c40233e1a37ed5c43afca5c879e17bc1829a727",
        "v1:84d187268573b64e0c04982fac5046bd122e7b889355efbd586e9f7f82fd1f07",
    ),
    "lab": (
        "v1:d196c9c597f6256f85dd6df672ef4365bac981881182eaf3c6a283a21cea57dd",
        "v1:b017d728d29efc03ea0f5c90537bce3919fc4381a7924c4c1882efd6195a2b6a",
    ),
}


def recorded() -> dict[str, Document]:
    raw = json.loads(TWO_SPARKS.read_text(encoding="utf-8"))
    return {name: parse_document(each, node=name) for name, each in raw.items()}


@pytest.mark.parametrize("name", HASHES)
def test_an_upgrade_restarts_no_group(name: str) -> None:
    """What an older sparkop started must still be what this one wants (principle 3)."""
    cluster = spec(name)
    ranks = desire(cluster, engine_of(cluster), recorded()).ranks
    assert tuple(hash_of(rank.container) for rank in ranks) == HASHES[name]


def test_other_weights_are_another_rank() -> None:
    """Another revision in the same folder: the ranks that run have loaded the old one."""
    documents = recorded()
    before = desire(spec("lab"), engine_of(spec("lab")), documents).ranks
    changed = spec("lab", {"weights.revision": "0" * 40})
    after = desire(changed, engine_of(changed), documents).ranks
    assert not same(after[0].container, hash_of(before[0].container))
    assert changed_field(before[0].text, after[0].text) == (
        "weights", "sparkop/tiny-chat@main", "sparkop/tiny-chat@" + "0" * 40
    )  # fmt: skip
