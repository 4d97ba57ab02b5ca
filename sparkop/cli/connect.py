"""``sparkop connect``: clients of the API on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import F, load_spec, spec_options

if TYPE_CHECKING:
    from sparkop.clients.profile import Profile
    from sparkop.spec.models import ClusterSpec


def client_options(command: F) -> F:
    """``[SPEC] --base-url URL --key-env NAME``, and what every command on a spec takes."""
    command = click.option(
        "--key-env",
        metavar="NAME",
        help="Environment variable of the key, and no other source. Default: clients.keyEnvironment, else "
        "the head's key file.",
    )(command)
    command = click.option(
        "--base-url", metavar="URL", help="Where this machine reaches the API. Default: the head, api.port."
    )(command)
    return spec_options(command)


@click.group("connect")
def command() -> None:
    """Set up clients of the API on this machine. The key is never written: clients fetch it."""


@command.command("pi")
@client_options
@click.option("--set-default", is_flag=True, help="Let Pi start with this model. Also: clients.makeDefault.")
@click.option("--dry-run", is_flag=True, help="Say what would change, change nothing.")
@click.option("--undo", "undoing", is_flag=True, help="Put Pi's files back as they were.")
def pi(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    base_url: str | None,
    key_env: str | None,
    set_default: bool,
    dry_run: bool,
    undoing: bool,
) -> None:
    """Connect Pi (pi.dev's coding agent): installed when absent, only this provider's settings changed.

    Exit codes: 0, 6 a file of Pi's is broken or Node.js is missing, 64, 65.
    """
    from sparkop.clients.pi import agent_folder, connect, plan_connect, plan_undo, undo
    from sparkop.errors import BlockedError
    from sparkop.views.connect import say, show_changes, show_connected, show_undone

    cluster = load_spec(spec, overlays, sets).spec
    folder = agent_folder()
    if undoing:
        provider = cluster.clients.provider or cluster.name
        back = plan_undo(folder, provider)
        if not dry_run and back is not None:
            undo(back)
        show_undone(back, folder, provider, dry_run=dry_run)
        return
    profile = _profile(cluster, base_url, key_env, set_default)
    plan = plan_connect(profile, folder)  # a broken file is told before anything is installed
    from sparkop.clients.pi_files import MODELS
    from sparkop.clients.pi_program import find_pi, install, plan_installation, refuses

    program = find_pi()
    if program is None:
        installation = plan_installation()
        say(f"Pi is not installed: {installation.words}")
        program = None if dry_run else install(installation, say)
    models = plan.changes[MODELS].after
    if program is not None and models is not None:
        problem = refuses(program, models, f"{profile.provider}/{profile.model}")
        if problem is not None:
            raise BlockedError(
                f"Pi {program.version} would not take {folder / MODELS}, so nothing was changed: {problem}",
                remedy="mend that file by hand, then run the same command again",
            )
    show_changes(plan, profile, dry_run=dry_run)
    if not dry_run:
        show_connected(profile, folder, connect(plan), "sparkop lab run -- " if _in_lab(cluster) else "")


@command.command("env")
@client_options
def env(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    base_url: str | None,
    key_env: str | None,
) -> None:
    """Print shell exports: eval "$(sparkop connect env)"."""
    from sparkop.clients.others import shell_exports

    click.echo(shell_exports(_profile(load_spec(spec, overlays, sets).spec, base_url, key_env)), nl=False)


@command.command("openai")
@client_options
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True,
    help="What stdout gets.",
)  # fmt: skip
def openai(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    base_url: str | None,
    key_env: str | None,
    output: str,
) -> None:
    """Print base URL, model and limits, for any client of an OpenAI-compatible API."""
    from sparkop.clients.others import as_json, as_yaml, openai_settings

    settings = openai_settings(_profile(load_spec(spec, overlays, sets).spec, base_url, key_env))
    click.echo(as_json(settings) if output == "json" else as_yaml(settings), nl=False)


@command.command("opencode")
@client_options
@click.option("--set-default", is_flag=True, help="Let opencode start with this model.")
def opencode(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    base_url: str | None,
    key_env: str | None,
    set_default: bool,
) -> None:
    """Print a provider for opencode.json."""
    from sparkop.clients.others import as_json, opencode_settings

    profile = _profile(load_spec(spec, overlays, sets).spec, base_url, key_env, set_default)
    click.echo(as_json(opencode_settings(profile)), nl=False)
    _key_note(profile)


@command.command("continue")
@client_options
def continue_(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    base_url: str | None,
    key_env: str | None,
) -> None:
    """Print a config.yaml for Continue."""
    from sparkop.clients.others import as_yaml, continue_settings

    profile = _profile(load_spec(spec, overlays, sets).spec, base_url, key_env)
    click.echo(as_yaml(continue_settings(profile)), nl=False)
    _key_note(profile)


def _profile(
    cluster: ClusterSpec, base_url: str | None, key_env: str | None, set_default: bool = False
) -> Profile:
    import re

    from sparkop.clients.profile import profile_of
    from sparkop.engines.paths import key_path
    from sparkop.errors import UsageError

    if key_env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_env):
        raise UsageError("--key-env is no name of a variable", remedy="--key-env NAME, never the key itself")
    return profile_of(
        cluster, key_path(cluster), base_url=base_url, key_variable=key_env, make_default=set_default
    )


def _in_lab(cluster: ClusterSpec) -> bool:
    """Whether the API is in a lab, where only programs of `sparkop lab run` reach it."""
    from sparkop.errors import UnreachableError
    from sparkop.inside import inside
    from sparkop.lab.enter import lab_of

    try:
        hosts = {node.remote.host for node in cluster.nodes if node.remote}
        return inside() is None and lab_of({node.name for node in cluster.nodes}, hosts) is not None
    except UnreachableError:
        return True


def _key_note(profile: Profile) -> None:
    key = profile.key
    if key is not None and key.otherwise and not os.environ.get(key.variable):
        click.echo(f'the key: export {key.variable}="$({key.otherwise})"', err=True)
