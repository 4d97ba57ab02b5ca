"""docs/reference/checks.md, made of the checks themselves."""

from __future__ import annotations

from sparkop.resources.checks import CHECKS

_HEAD = """\
# Checks of `sparkop doctor`
Written by `python -m sparkop.views.checks_page` from `sparkop/resources/checks`; a test holds it to that.

A check answers ok, warn, fail or unknown on each node, with what was seen and what to do. What could not be
read is unknown, never missing. A check that does not apply (no GPU asked for, a single node) is not shown.
`apply` refuses to go on for those with a mark in the last column. Owners' reports: about ninety
public reports of people who run two or more DGX Sparks.

| check | reads | bad when | known from | holds apply |
| --- | --- | --- | --- | --- |"""


def checks_page() -> str:
    """The page, in Markdown."""
    rows = [
        (f"`{check.id}`", check.reads, check.bad, check.source, f"as {check.kind}" if check.kind else "")
        for check in CHECKS
    ]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([_HEAD, *lines, ""])


if __name__ == "__main__":
    import sys

    sys.stdout.write(checks_page())
