"""What ``sparkop connect pi`` has done or would do. Never a line of the files: they may hold others' keys."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import click

from sparkop.clients.files import Change
from sparkop.clients.jsonc import BrokenTextError, Document
from sparkop.clients.pi import PiPlan
from sparkop.clients.profile import Profile


def say(line: str) -> None:
    """One line of talk."""
    click.echo(line, err=True)


def show_changes(plan: PiPlan, profile: Profile, *, dry_run: bool) -> None:
    """One line a file on stdout."""
    if not plan.needed:
        click.echo(f"{plan.folder}: {profile.provider}/{profile.model} is connected, nothing to do")
    for change in plan.needed:
        click.echo(f"{'would ' if dry_run else ''}{_verb(change)} {change.path}")


def show_connected(profile: Profile, folder: Path, backups: list[Path], prefix: str = "") -> None:
    """Backups, what to run (after ``prefix``), and what may stand in the way."""
    for backup in backups:
        say(f"as it was: {backup}")
    for line in notes(profile, folder):
        say(f"note: {line}")
    model = shlex.quote(f"{profile.provider}/{profile.model}")
    say(f"try: {prefix}pi -p --model {model} hello < /dev/null")


def show_undone(plan: PiPlan | None, folder: Path, provider: str, *, dry_run: bool) -> None:
    """One line a file; Pi itself stays."""
    if plan is None:
        click.echo(f"{folder}: {provider} was not connected by sparkop, nothing to undo")
        return
    for change in plan.needed:
        click.echo(f"{'would ' if dry_run else ''}{_verb(change)} {change.path}")
    if not dry_run:
        say("Pi itself stays installed")


def notes(profile: Profile, folder: Path) -> list[str]:
    """What is as asked and yet may surprise."""
    found = []
    if profile.key is not None and not os.environ.get(profile.key.variable):
        variable = profile.key.variable
        if profile.key.otherwise:
            found.append(
                f"{variable} is not set: Pi fetches the key for each request ({profile.key.otherwise}); "
                "set it to spare that"
            )
        else:
            found.append(f"{variable} is not set: without it Pi refuses to send anything")
    if profile.provider in _logins(folder / "auth.json"):
        found.append(f"Pi has a login for {profile.provider} (auth.json), which it uses instead of this key")
    host = urlsplit(profile.base_url).hostname or ""
    if getproxies().get("http") and not proxy_bypass(host):
        found.append(f"HTTP_PROXY is set, and Pi uses it also for {host}: add {host} to NO_PROXY")
    return found


def _verb(change: Change) -> str:
    if change.after is None:
        return "remove"
    return "write" if change.before is None else "change"


def _logins(path: Path) -> list[str]:
    try:
        value = Document(path.read_text(encoding="utf-8"), comments=False).value
    except (OSError, UnicodeDecodeError, BrokenTextError):
        return []
    return list(value) if isinstance(value, dict) else []
