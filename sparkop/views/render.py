"""Rank containers on stdout: docker command lines for people, JSON for programs."""

from __future__ import annotations

from rich.text import Text

from sparkop.engines.render import Rendering, as_json, docker_command
from sparkop.resources.masking import mask
from sparkop.views.console import out, print_json, talk


def show_rendering(rendering: Rendering, output: str = "text") -> None:
    """Print it; warnings go to stderr."""
    for warning in rendering.warnings:
        talk().print(Text.assemble(("warning: ", "yellow"), warning))
    if output == "json":
        print_json(as_json(rendering))
        return
    for rank in rendering.ranks:
        out().print(Text(f"# rank {rank.rank} on {rank.node}", style="dim"))
        out().print(Text(mask(docker_command(rank)) + "\n"))
