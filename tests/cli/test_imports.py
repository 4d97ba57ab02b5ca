"""What a cold command must not pay for: the causes of the speeds of tests/bench/tick.py, without a clock."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass

import pytest

from sparkop.hosts import document
from sparkop.spec.base import SpecModel
from sparkop.spec.models import ClusterSpec
from tests.fresh import ROOT, python

UNUSED = (
    "docker", "requests", "huggingface_hub", "httpx", "http.client", "rich", "sparkop.clients", "sparkop.lab",
    "sparkop.views.doctor",
)  # fmt: skip
"""Modules that a diff with nothing to do needs none of."""

ALL_OF_DIFF = f"""
import sys
import sparkop.cli.diff, sparkop.spec.load, sparkop.reconcile.nodes, sparkop.hosts.ssh
import sparkop.reconcile.observe, sparkop.reconcile.reconcile, sparkop.reconcile.refuse, sparkop.views.plan
from sparkop.engines import rules_budget, rules_common, rules_sglang, rules_vllm
print(sorted(n for n in sys.modules if any(f"{{n}}.".startswith(f"{{u}}.") for u in {UNUSED!r})))
"""

ALL_OF_APPLY = """
import sys
import sparkop.cli.apply, sparkop.reconcile.converge
import sparkop.views.plan, sparkop.views.progress, sparkop.views.outcomes
late = ("rich", "sparkop.reconcile.status", "sparkop.reconcile.stop", "sparkop.reconcile.destroy")
print([name for name in late if name in sys.modules])
"""

WHEN_NODES_CONNECT = """
import sys
import sparkop.reconcile.nodes as nodes

def connecting(spec):
    late = ("sparkop.reconcile.observe", "sparkop.resources.registry", "sparkop.views.plan", "rich")
    print("already imported:", [name for name in late if name in sys.modules])
    sys.exit(0)

nodes.readable_nodes = nodes.writable_nodes = connecting
from sparkop import cli
cli.run(sys.argv[1:])
"""


def last_line(program: str, *arguments: str) -> str:
    """What a new process printed last."""
    return python(program, *arguments)[-1]


def test_diff_imports_nothing_that_it_does_not_need() -> None:
    assert last_line(ALL_OF_DIFF) == "[]"


def test_an_interrupt_can_be_told_before_anything_is_imported() -> None:
    """An import of typing was most of the time in which Ctrl-C ended in a traceback."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = {{*sys.modules}}; import sparkop.cli;"
    program += "print(sorted({*sys.modules} - before - {'__future__', *sys.builtin_module_names}))"
    command = [sys.executable, "-ISc", program]  # no site: it may have imported much already
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['sparkop', 'sparkop.cli']"


def test_an_apply_with_nothing_to_do_imports_no_colours_and_no_report() -> None:
    assert last_line(ALL_OF_APPLY) == "[]"


def test_going_inside_a_lab_imports_nothing_that_makes_labs() -> None:
    """Eleven modules, at every command on a lab."""
    inside = "import sys, sparkop.lab.enter, sparkop.lab.overlay, sparkop.lab.present;"
    assert (
        last_line(inside + "print([n for n in sys.modules if n in ('sparkop.lab.lab', 'sparkop.lab.host')])")
        == "[]"
    )


@pytest.mark.parametrize("command", ["diff", "apply"])
def test_nodes_connect_before_the_rest_is_imported(command: str) -> None:
    """A connection takes as long as these imports: one after the other, a cold diff takes a third longer."""
    told = last_line(WHEN_NODES_CONNECT, command, "specs/qwen3.8-flash-next.yaml")
    assert told == "already imported: []"


def test_building_the_models_compiles_no_large_pattern() -> None:
    r"""``\w{0,62}`` alone is 20 ms of every start: a bounded repetition copies all letters of Unicode."""
    bounded = [
        path.name for path in (ROOT / "sparkop/spec").glob("*.py") if r"\w" in _repeated(path.read_text())
    ]
    assert bounded == []


def test_annotations_that_are_read_at_run_time_are_no_text() -> None:
    """Else each one is compiled at every start: a twentieth of a cold diff."""
    read = [*_models(SpecModel), *(each for each in vars(document).values() if is_dataclass(each))]
    assert {ClusterSpec, document.Document} <= set(read)
    texts = [each.__name__ for each in read if any(isinstance(a, str) for a in each.__annotations__.values())]
    assert texts == []


def _models(model: type) -> Iterator[type]:
    for each in model.__subclasses__():
        yield from (each, *_models(each))


def _repeated(text: str) -> str:
    """The character classes of pydantic patterns that are repeated a bounded number of times."""
    patterns = re.findall(r'pattern=r"(.*?)"', text)
    return " ".join(part for pattern in patterns for part in re.findall(r"(\[[^\]]*\])\{", pattern))
