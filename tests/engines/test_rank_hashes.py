"""The stamped hashes of the recipes' and the lab's ranks on recorded facts: another one restarts every group.

A failure here is a decision, not a number to update: see docs/decisions/0002-what-is-hashed.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkop.engines.render import engine_of
from sparkop.hosts.document import parse_document
from sparkop.resources.desired import desire
from sparkop.resources.stamped import hash_of
from tests.engines.specs import RECIPE_A, RECIPE_B, spec

TWO_SPARKS = Path(__file__).parents[1] / "data" / "facts" / "two-sparks.json"

HASHES = {
    RECIPE_A: (
        "v1:00e185ecf12567fafa7efaf631a57f76950d80e4def3acb50ce28cc2c7aa6491",
        "v1:274097868f07bd067604e705c2a1935456d918d22469f82a4abf7a58c6e61a72",
    ),
    RECIPE_B: (
        "v1:d8f0c436a14a873ce2caeed8c5737e9cba5baf6acfad05e2e672fb799bbcf38a",
        "v1:6802da22aa2416dce3038e3f8f1af478755d036fca13b9e4533807a0a6aa7744",
    ),
    "lab-standin": (
        "v1:185f2770fc554a7b6945cdd12e0d76ca315a56a9c3f2877f25aa8db055062216",
        "v1:a42f612deaa3bdffcb83e86b0eb432784bf055a9c306a6519f35c37a535e913c",
    ),
    "lab": (
        "v1:9c0222b0b0e900a3290aeb6c79319c5bdcc2ae46a257ab0a868f72e9a4e66499",
        "v1:a90d8ae39e636b1814fe952f31b3936bee9a1aeffb56a8fcd2bdd1818e0ee665",
    ),
}


@pytest.mark.parametrize("name", HASHES)
def test_an_upgrade_restarts_no_group(name: str) -> None:
    """What an older sparkop started must still be what this one wants (decision 3)."""
    cluster = spec(name)
    recorded = json.loads(TWO_SPARKS.read_text(encoding="utf-8"))
    documents = {name: parse_document(raw, node=name) for name, raw in recorded.items()}
    ranks = desire(cluster, engine_of(cluster), documents).ranks
    assert tuple(hash_of(rank.container) for rank in ranks) == HASHES[name]
