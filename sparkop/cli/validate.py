"""``sparkop validate``: every error of one or more specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparkop.cli.options import Choice, choose, output_option
from sparkop.errors import ExitCode, SpecError
from sparkop.records import dataclass

if TYPE_CHECKING:
    from sparkop.engines.rules import Finding


@dataclass(frozen=True)
class Verdict:
    """One spec: its error, if any, and what the rules warn of."""

    path: Path
    error: SpecError | None = None
    findings: tuple[Finding, ...] = ()


@click.command("validate")
@click.argument("specs", nargs=-1)
@click.option(
    "--overlay",
    "overlays",
    multiple=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML merged over each spec. Repeatable, later ones win.",
)
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Override one value. Repeatable.")
@output_option
def command(specs: tuple[str, ...], overlays: tuple[Path, ...], sets: tuple[str, ...], output: str) -> int:
    """Check one or more specs and show every error with its place. Reaches no node.

    Exit codes: 0 all are valid, 65 one is not.
    """
    verdicts = [_verdict(choose(spec, overlays, sets)) for spec in specs or (None,)]
    invalid = sum(verdict.error is not None for verdict in verdicts)
    if output == "json":
        from sparkop.views.console import print_json

        print_json({"version": 1, "specs": [_as_json(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            _tell(verdict)
        if invalid and len(verdicts) > 1:
            click.echo(f"{invalid} of {len(verdicts)} specs are invalid", err=True)
    return ExitCode.INVALID_SPEC if invalid else ExitCode.OK


def _verdict(choice: Choice) -> Verdict:
    from sparkop.engines.rules import check, refusals
    from sparkop.spec.load import load

    try:
        loaded = load([choice.path, *choice.overlays], choice.sets)
    except SpecError as unreadable:
        return Verdict(choice.path, unreadable)
    findings = check(loaded.spec)
    refused = refusals(findings)
    final = {finding.rule.id for finding in findings if not finding.rule.overridable}
    error = loaded.refuse(refused, final=final) if refused else None
    return Verdict(choice.path, error, tuple(finding for finding in findings if not finding.refuses))


def _tell(verdict: Verdict) -> None:
    from sparkop.spec.tree import show_path

    if verdict.error is not None:
        error = verdict.error
        remedy = f"\n    {error.remedy}" if error.remedy else ""
        click.echo(f"{error.detail}\n" if error.detail else f"{error.message}{remedy}\n", err=True)
    else:
        click.echo(f"{verdict.path}: valid")
    for finding in verdict.findings:
        what = f"set aside ({finding.override})" if finding.override else "warning"
        where = show_path(finding.path)
        click.echo(f"{verdict.path}: {what}: {where}: {finding.message} [{finding.rule.id}]", err=True)


def _as_json(verdict: Verdict) -> dict[str, Any]:
    from sparkop.spec.problems import InvalidSpecError
    from sparkop.spec.tree import show_path

    error = verdict.error
    problems = error.problems if isinstance(error, InvalidSpecError) else ()
    return {
        "spec": str(verdict.path),
        "valid": error is None,
        "error": error.message if error is not None else None,
        "problems": [problem.as_json() for problem in problems],
        "warnings": [
            {
                "path": show_path(finding.path),
                "message": finding.message,
                "rule": finding.rule.id,
                "override": finding.override,
            }
            for finding in verdict.findings
        ],
    }
