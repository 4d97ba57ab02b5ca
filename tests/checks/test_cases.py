"""Each check on recorded documents, good and bad."""

from __future__ import annotations

import re
import subprocess

import pytest

from sparkop.reconcile.doctor import Report, Result
from sparkop.resources.checks import CHECKS, refused
from sparkop.resources.checks.model import Check, State
from sparkop.views.fabric_map import Port, fabric_map
from tests.checks.cases import FOLDER, Case, cases

CASES = list(cases())
RAILS = [case for case in CASES if case.check.id.startswith(("rdma.", "fabric."))]
OF_NO_PORT = {
    "fabric.gid/empty-variable",  # of the spec
    "fabric.link/by-hand-absent",
    "fabric.override/wrong",  # of names that are not there
    "fabric.override/management",
    "fabric.ipv4/twice-elsewhere",  # of interfaces that are no RDMA device's
    "rdma.active/no-driver",
}
HOSTILE = {"enp1s0f0np0": "a;$(echo ran)'b", "enP2p1s0f0np0": 'c.d&>e"`f`'}
"""Names that the kernel lets an interface have."""
RECORD = """
tell() { printf '<%s>' "$@"; printf '\\n'; }
sudo() { tell "$@"; }; ip() { tell "$@"; }; ping() { tell "$@"; }
"""
"""What runs, with its words, instead of running."""
CASES_OF = {check.id: [case for case in CASES if case.check is check] for check in CHECKS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_check_says_of_a_case_what_its_file_says(case: Case) -> None:
    """A changed answer is changed behaviour: read it, then ``python -m tests.checks.cases``."""
    assert case.answer() == case.expected, case.question.get("about")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_bad_comes_with_a_fix_and_a_figure(case: Case) -> None:
    """A failure or a warning without its next command, or without what was seen, helps nobody."""
    for made in case.found().values():
        for found in made:
            if found.state in (State.FAIL, State.WARN):
                assert found.remedy, found
                assert found.observed, found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_has_a_good_case_and_one_of_each_bad_answer_that_its_row_promises(check: Check) -> None:
    """A check without both may be blind, or always complain. Saying nothing at all is no good case."""
    own = [{found.state for made in case.found().values() for found in made} for case in CASES_OF[check.id]]
    promised = {state for state in set(State) - {State.OK} if re.search(rf"\b{state}\b", check.bad)}
    assert {State.OK} in own, "no case in which all is well"
    assert promised, "its row in docs/reference/checks.md does not say how bad it is"
    assert promised <= set().union(*own), "an answer that its row promises is in no case"


@pytest.mark.parametrize("case", RAILS, ids=lambda case: case.name)
def test_what_is_wrong_with_a_rail_marks_its_ports_and_no_other(case: Case) -> None:
    """The drawing looked for names in sentences, and missed those that stood elsewhere or before a colon.
    Which ports these are stands in ``out.yaml``."""
    for look, made in case.looks():
        bad = [found for found in made if found.state in (State.FAIL, State.WARN)]
        result = Result(look.name, case.check.id, State.OK, tuple(made))
        report = Report("c", tuple(look.documents), (result,), desired=look.desired, documents=look.documents)
        ports = fabric_map(report).ports
        told = {name for found in made for name in found.ports}
        marked = {
            (port.node, name) for port in ports if port.problem is not State.OK for name in _names(port)
        }
        assert {node for node, _ in marked} <= {look.name}
        assert {name for port in ports for name in _names(port) if {*_names(port)} & told} == {
            name for _, name in marked
        }
        assert case.name in OF_NO_PORT or all({*found.ports} <= {name for _, name in marked} for found in bad)
        assert case.name in OF_NO_PORT or all(found.ports for found in bad)
        named = {word for found in bad for word in re.findall(r"\w+", found.field)}
        assert named & {name for port in ports for name in _names(port)} <= {name for _, name in marked}


def _names(port: Port) -> tuple[str, str]:
    return port.device, port.interface


@pytest.mark.parametrize("name", ["fabric.subnet/one-lost", "fabric.ipv4/without-prefix"])
def test_a_plan_tells_of_a_rail_that_its_ranks_go_without(name: str) -> None:
    """Before they run: who never asks doctor would not learn of it. It holds nothing up."""
    (case,) = (case for case in CASES if case.name == name)
    look, _ = next(case.looks())
    told = refused("fabric", look.desired, look.documents)
    (warning,) = told.warnings
    assert warning.startswith("spark-2: enp1s0f0np0.address: ")
    assert "sudo ip addr del" in warning
    assert not told.blockers


def _shell(remedy: str, before: str = "") -> str:
    command = ["bash", "-c", f"{before}{remedy}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, ""), remedy
    return done.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_of_a_fix_can_be_typed_as_it_is(case: Case) -> None:
    """``on spark-2: sudo ...`` can't: words stand after the command, as a comment."""
    for remedy in {found.remedy for made in case.found().values() for found in made}:
        if "sudo " in remedy:
            assert re.match(r"(sudo|ping|sync|nvidia-smi)\b", remedy), remedy
            subprocess.run(["bash", "-n", "-c", remedy], check=True, timeout=30)
            command = remedy.partition("  # ")[0]
            assert not re.search(r", | then | or |\(|\bon (all|every)\b", command), remedy


@pytest.mark.parametrize("case", RAILS, ids=lambda case: case.name)
def test_a_name_of_a_node_is_one_word_of_a_command(case: Case) -> None:
    """A fix is copied into a shell, and names are what a node says."""
    for made in case.found(HOSTILE).values():
        for remedy in {found.remedy for found in made if re.match("(sudo|ip|ping) ", found.remedy)}:
            words = re.findall("<(.*?)>(?=<|$)", _shell(remedy, RECORD), re.MULTILINE)
            assert not any(re.search(r"(?<!echo )\bran\b", word) for word in words)
            used = [word for word in words if "echo" in word or "`" in word]
            for word in used:
                name = word.removeprefix("ethernets.").rpartition(".addresses=")[0] or word
                name = name.removeprefix("ethernets.").rpartition(".mtu=")[0] or name
                assert name.replace("\\.", ".") in HOSTILE.values(), (word, remedy)


def test_every_folder_is_a_case() -> None:
    folders = {path for path in FOLDER.glob("*/*") if path.is_dir()}
    assert folders == {case.path for case in CASES}
    assert all((path / "out.yaml").exists() for path in folders)
