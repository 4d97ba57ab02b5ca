"""Each check on recorded documents, good and bad."""

from __future__ import annotations

import pytest

from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Check, State
from tests.checks.cases import FOLDER, Case, cases, worst

CASES = list(cases())


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
def test_every_check_has_a_good_and_a_bad_case(check: Check) -> None:
    """A check without both may be blind, or always complain."""
    states = {worst(case) for case in CASES if case.check is check}
    if check.id == "ssh.batch":  # a node that refuses has no document: see test_doctor.py
        states.add(State.UNKNOWN)
    assert State.OK in states
    assert states - {State.OK}


def test_every_folder_is_a_case() -> None:
    folders = {path for path in FOLDER.glob("*/*") if path.is_dir()}
    assert folders == {case.path for case in CASES}
    assert all((path / "out.yaml").exists() for path in folders)
