"""Options that many commands share, and which spec a command is about."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparkop.errors import UsageError
from sparkop.records import dataclass

if TYPE_CHECKING:
    from sparkop.spec.load import LoadedSpec
    from sparkop.spec.models import ClusterSpec

F = TypeVar("F", bound=Callable[..., object])


class Seconds(click.FloatRange):
    """A number of seconds; ``nan`` is none, though no bound refuses it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return found


@dataclass(frozen=True)
class Choice:
    """The spec that a command is about: file, overlays and ``--set``, and how it was found."""

    path: Path
    overlays: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    how: str | None = None
    """Said on stderr when SPEC was left out; None when the user named it."""

    @property
    def words(self) -> str:
        """The file with its overlays and ``--set``, as the user is told."""
        extras = [*(f"+ {path}" for path in self.overlays), *(f"--set {each}" for each in self.sets)]
        return " ".join([str(self.path), *extras])

    @property
    def arguments(self) -> str:
        """The same as the user types it behind a command."""
        overlays = (word for path in self.overlays for word in ("--overlay", str(path)))
        return join([str(self.path), *overlays, *(word for each in self.sets for word in ("--set", each))])

    def absolute(self) -> Choice:
        """The same from any folder."""
        overlays = tuple(path.absolute() for path in self.overlays)
        return replace(self, path=self.path.absolute(), overlays=overlays)


def spec_options(command: F) -> F:
    """``[SPEC] --overlay FILE --set path=value``."""
    command = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="PATH=VALUE",
        help="Override one value, for example memory.gpuFraction=0.8. Repeatable.",
    )(command)
    command = click.option(
        "--overlay",
        "overlays",
        multiple=True,
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="YAML merged over the spec. Repeatable, later ones win.",
    )(command)
    return click.argument("spec", required=False)(command)


def picture_option(what: str) -> Callable[[F], F]:
    """``--picture FILE.svg``."""
    return click.option(
        "--picture",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.svg",
        callback=_svg_file,
        help=f"Also write the {what} as an SVG picture.",
    )


def _svg_file(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The file of a picture. Raises UsageError for the name of another kind: no viewer would open it."""
    if path is not None and path.suffix.lower() != ".svg":
        fitting = path.with_suffix(".svg")
        raise UsageError(
            f"{path} does not end in .svg: the picture is SVG", remedy=f"--picture {quote(str(fitting))}"
        )
    return path


def output_option(command: F) -> F:
    """``-o text|json``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        callback=_note_output,
        help="What stdout gets.",
    )(command)


def _note_output(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Whoever runs the command has to know it too: a failure is told in the same form."""
    if isinstance(ctx.obj, Asked):
        ctx.obj.json = value == "json"
    return value


@dataclass
class Asked:
    """What is known of a command line when its command fails."""

    json: bool = False


yes_option = click.option("--yes", is_flag=True, help="Do not ask before serving stops or data is deleted.")


def choose(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...]) -> Choice:
    """The named spec, else SPARKOP_SPEC, else ./spec.yaml, else the cluster applied last."""
    if spec is not None:
        if not spec.endswith((".yaml", ".yml")) and "/" not in spec:
            raise UsageError(
                f"{spec!r} is no spec: a spec ends in .yaml or .yml, or holds a slash",
                remedy=f"did you mean ./{spec}?" if _is_file(spec) else "sparkop --help",
            )
        return Choice(Path(spec), overlays, sets)
    if named := os.environ.get("SPARKOP_SPEC"):
        return Choice(Path(named), overlays, sets, how="from SPARKOP_SPEC")
    if Path("spec.yaml").is_file():
        return Choice(Path("spec.yaml"), overlays, sets, how="in this folder")
    from sparkop.reconcile.remembered import last_applied

    if last := last_applied():
        return Choice(
            Path(last.spec),
            tuple(Path(path) for path in last.overlays) + overlays,
            (*last.sets, *sets),
            how="applied last from this machine",
        )
    raise UsageError(
        "no spec named, and none found",
        cause="SPARKOP_SPEC is not set, no spec.yaml is here, and nothing was applied from this machine",
        remedy="name one (sparkop diff my-cluster.yaml), or write one: sparkop init",
    )


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # a name too long for the file system
        return False


def load_spec(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...]) -> LoadedSpec:
    """Choose, load and validate a spec for a command that reaches no node."""
    return _load(choose(spec, overlays, sets))


def reach_spec(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...]
) -> tuple[LoadedSpec, Choice]:
    """As ``load_spec``, for a command that talks to the nodes.

    When the nodes are those of a lab on this machine, its overlay is put under the user's, and the process
    goes on inside the lab's network namespace.
    """
    choice = choose(spec, overlays, sets)
    loaded = _load(choice)
    lab = _lab_of(loaded.spec)
    if lab is None:
        return loaded, choice
    from sparkop.inside import inside
    from sparkop.lab.enter import join
    from sparkop.lab.overlay import image_reference, model_overlay, overlay_path

    if inside() != lab:
        join(lab)
    image = loaded.spec.image
    field, named = ("build.base", image.build.base) if image.build else ("reference", image.reference)
    pin = model_overlay(lab, loaded.spec.weights.repository)
    own = (overlay_path(lab, named), *((pin,) if pin else ()))
    under = replace(choice, overlays=(*own, *choice.overlays), how=None)
    resolved = image_reference(lab, named)
    if resolved is not None:  # above all: it may be an overlay of the user's that names the lab's image
        under = replace(under, sets=(*choice.sets, f"image.{field}={resolved}"))
    return _load(under), choice


def refuse_unsafe(loaded: LoadedSpec) -> None:
    """Raise the error of what rules refuse before any node is asked, with its place in the spec."""
    from sparkop.engines.rules import check, refusals

    findings = check(loaded.spec)
    refused = refusals(findings)
    if refused:
        raise loaded.refuse(refused, final={f.rule.id for f in findings if not f.rule.overridable})


def _load(choice: Choice) -> LoadedSpec:
    from sparkop.resources.image.context import beside
    from sparkop.spec.load import load

    if choice.how:
        click.echo(f"spec: {choice.words} ({choice.how})", err=True)
    loaded = load([choice.path, *choice.overlays], choice.sets)
    return replace(loaded, spec=beside(loaded.spec, choice.path.parent))


def _lab_of(spec: ClusterSpec) -> str | None:
    from sparkop.lab.enter import lab_of

    return lab_of(
        {node.name for node in spec.nodes}, {node.remote.host for node in spec.nodes if node.remote}
    )
