"""Text of others does not steer the terminal of who reads it; every view goes through one place."""

from __future__ import annotations

import json

import pytest

from sparkop.errors import UnreachableError
from sparkop.plain import json_plain, one_line, plain
from sparkop.reconcile.events import Happened
from sparkop.reconcile.logs import LogLine
from sparkop.reconcile.plan import Plan
from sparkop.views import errors, events, logs
from sparkop.views.console import out, print_json, talk
from sparkop.views.plan import show_plan
from sparkop.views.watch import watch_events

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202eevil\ud800"


@pytest.fixture(autouse=True)
def _fresh_consoles() -> None:
    out.cache_clear()
    talk.cache_clear()


def test_colours_go_and_the_rest_is_seen() -> None:
    assert plain("\x1b[1;31mred\x1b[0m line\n\tnext") == "red line\n\tnext"
    assert plain("clear\x1b[2J") == "clear�[2J"
    assert plain("a\rb\x00\x9b\u202e\ud800") == "a�b����"
    assert plain("Größe 5 µs → 東京 👩‍👧") == "Größe 5 µs → 東京 👩‍👧"


def test_a_name_is_one_line() -> None:
    assert one_line("rank\nconverged: nothing to do\x1b[A") == "rank converged: nothing to do�[A"
    assert one_line("enp1s0f0np0") == "enp1s0f0np0"


def test_json_says_the_same() -> None:
    told = json_plain(json.dumps({"name": HOSTILE}, ensure_ascii=False))
    assert told.isprintable()
    assert json.loads(told) == {"name": HOSTILE}


def test_no_view_lets_it_through(capsys: pytest.CaptureFixture[str]) -> None:
    """Log lines, events, failures, plans, watch, and anything that is printed as JSON."""
    logs.show_logs(iter([LogLine(0, "spark-1", HOSTILE)]))
    events.show_events([Happened(at=0.0, event="fault", text=HOSTILE)])
    errors.show_error(
        UnreachableError(HOSTILE, node="spark-1", cause=HOSTILE, detail=HOSTILE, remedy=HOSTILE)
    )
    print_json({"name": HOSTILE})
    show_plan(Plan(warnings=(HOSTILE,)))
    for output in ("text", "json"):
        watch_events(output)("fault", detail=HOSTILE)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "evil" in text
        assert all(each.isprintable() or each == "\n" for each in text)


def test_text_that_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    out().print("[/] [bold]name[/bold] :smile:")
    assert capsys.readouterr().out == "[/] [bold]name[/bold] :smile:\n"
