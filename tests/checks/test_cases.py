"""Each check on recorded documents, good and bad."""

from __future__ import annotations

import re

import pytest

from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Check, State
from tests.checks.cases import FOLDER, Case, cases

CASES = list(cases())
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


def test_every_folder_is_a_case() -> None:
    folders = {path for path in FOLDER.glob("*/*") if path.is_dir()}
    assert folders == {case.path for case in CASES}
    assert all((path / "out.yaml").exists() for path in folders)
