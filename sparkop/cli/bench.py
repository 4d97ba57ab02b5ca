"""``sparkop bench``: how fast the model is served; ``bench show`` and ``bench compare`` for its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import Seconds, output_option, reach_spec, spec_options
from sparkop.errors import ExitCode, SparkopError, UsageError

if TYPE_CHECKING:
    from sparkop.serving.bench import Document, Plan
    from sparkop.spec.models import ClusterSpec

_FILE = click.Path(dir_okay=False, path_type=Path)
plot_option = click.option("--plot", type=_FILE, metavar="FILE.png", help="Also draw the figures.")


class Numbers(click.Command):
    """Options may be followed by several values: ``--conc 1 2`` is ``--conc 1 --conc 2``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {
            name: list(p.type.choices) if isinstance(p.type, click.Choice) else []
            for p in self.params
            if isinstance(p, click.Option) and p.multiple
            for name in p.opts
        }
        return super().parse_args(ctx, spread(args, several))


def spread(words: list[str], several: dict[str, list[str]]) -> list[str]:
    """Give every further value of an option of ``several`` the option again.

    A value is a number, or one of the words that the option takes.
    """
    found: list[str] = []
    option = ""
    awaited = False
    for word in words:
        if word.partition("=")[0] in several:
            option, awaited = word.partition("=")[0], "=" not in word
        elif awaited:
            awaited = False
        elif option and (word.isdigit() or word in several[option]):
            found.append(option)
        else:
            option = ""
        found.append(word)
    return found


class DefaultRun(click.Group):
    """``sparkop bench SPEC ...`` measures; a first word that names another command is that command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("bench", cls=DefaultRun)
def bench() -> None:
    """Measure how fast the model is served."""


@bench.command("run", cls=Numbers)
@spec_options
@click.option("--out", type=_FILE, metavar="FILE", help="Where the figures go, after every step. The same "
    "file again carries on. Default: beside sparkop's own state.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Start the file again.")
@click.option("--label", default="", help="A word that the file keeps.")
@click.option("--conc", multiple=True, type=click.IntRange(0, 256), default=(1, 2), show_default="1 2",
    metavar="N ...", help="Simultaneous chats. 0: none.")  # fmt: skip
@click.option("--kinds", multiple=True, type=click.Choice(["code", "prose"]), default=("code", "prose"),
    show_default="code prose", help="What the chats are about.")  # fmt: skip
@click.option("--prefill", multiple=True, type=click.IntRange(0), default=(8192, 32768),
    show_default="8192 32768", metavar="N ...",
    help="Tokens of prompts; cut to the context. 0: none.")  # fmt: skip
@click.option("--ctx", multiple=True, type=click.IntRange(0), default=(175000,),
    show_default="175000", metavar="N ...",
    help="A real text of about N tokens, with numbers to find again; cut. 0: none.")  # fmt: skip
@click.option("--reps", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of each step.")
@click.option("--deadline", type=Seconds(min=1), default=3600.0, show_default=True,
    metavar="SECONDS", help="For one answer. Requests have no output cap.")  # fmt: skip
@plot_option
@output_option
def run(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], out: Path | None, fresh: bool,
    label: str, conc: tuple[int, ...], kinds: tuple[str, ...], prefill: tuple[int, ...],
    ctx: tuple[int, ...], reps: int, deadline: float, plot: Path | None, output: str,
) -> int:  # fmt: skip
    """Measure how fast the model is served: prefill, decode, long context.

    Every step is saved; the same command carries on. The head keeps the medians for status.
    Beside it: `sparkop bench show FILE` and `sparkop bench compare A B`.
    Exit codes: 0 measured, 4 the head could not be reached, 6 the engine did not answer.
    """
    from sparkop.reconcile.remembered import state_directory
    from sparkop.serving.bench import Plan
    from sparkop.serving.bench_file import held
    from sparkop.views.bench import show_bench
    from sparkop.views.bench_picture import check_drawable, draw

    if plot:
        check_drawable(plot)
    plan = Plan(
        prefill=tuple(size for size in prefill if size),
        kinds=tuple("code" if kind == "code" else "prose" for kind in kinds),
        concurrencies=tuple(streams for streams in conc if streams),
        contexts=tuple(size for size in ctx if size),
        repeats=reps,
        deadline=deadline,
    )
    if not (plan.prefill or plan.concurrencies or plan.contexts):
        raise UsageError("nothing to measure: --prefill, --conc and --ctx are all 0")
    loaded, _ = reach_spec(spec, overlays, sets)
    path = out or state_directory() / "bench" / f"{loaded.spec.name}.json"
    with held(path):
        measured = _measure(loaded.spec, plan, path, label, fresh)
    show_bench(measured, output)
    if plot:
        draw(measured, plot)
    return ExitCode.OK


def _measure(spec: ClusterSpec, plan: Plan, path: Path, label: str, fresh: bool) -> Document:
    """Run what the file lacks, and tell the head."""
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.reconcile.served import reach_api
    from sparkop.reconcile.speeds import configuration, metric_names, now_text, speeds_of, store
    from sparkop.serving.bench import Bench, missing, steps
    from sparkop.serving.bench_file import carry_on, new_document, save
    from sparkop.views.bench import tell

    new = new_document(spec.name, spec.api.served_names[0], configuration(spec), label, now_text())
    document = new if fresh else carry_on(path, new)
    with writable_nodes(spec) as hosts:
        served = reach_api(spec, hosts[spec.head.name])
        wanted = steps(plan, served.context)
        left = missing(wanted, document)
        save(path, document)
        tell(f"{path}: {len(wanted) - len(left)} of {len(wanted)} runs are there already")
        if not left:
            tell("nothing is left to measure; --fresh measures again")
            return document
        work = Bench(served.api, metric_names(spec), served.vocabulary, plan.deadline)
        work.warm_up(left)
        for number, step in enumerate(left, start=1):
            told = work.run(step, document)
            save(path, document)
            tell(f"[{number}/{len(left)}] {step}: {told}")
        document["finished"] = now_text()
        save(path, document)
        try:
            store(spec, hosts, speeds_of(document))
        except SparkopError as error:
            tell(f"status will not show these figures: {error.message}")
    return document


@bench.command("show")
@click.argument("file", type=_FILE)
@plot_option
@output_option
def show(file: Path, plot: Path | None, output: str) -> int:
    """Show what a file of bench says."""
    from sparkop.serving.bench_file import read_document
    from sparkop.views.bench import show_bench
    from sparkop.views.bench_picture import draw

    measured = read_document(file)
    show_bench(measured, output)
    if plot:
        draw(measured, plot)
    return ExitCode.OK


@bench.command("compare")
@click.argument("a", type=_FILE)
@click.argument("b", type=_FILE)
@output_option
def compare_files(a: Path, b: Path, output: str) -> int:
    """Compare two files of bench: what is faster or slower in B, and what may be noise.

    The verdict is Welch's test at 99 % over the runs of each; two runs a side at least. Exit code 0.
    """
    from sparkop.serving.bench_file import read_document
    from sparkop.serving.summary import compare
    from sparkop.views.bench import show_comparison

    if a == b:
        raise UsageError("A and B are the same file")
    sides = {path: read_document(path) for path in (a, b)}
    show_comparison(sides, compare(sides[a], sides[b]), output)
    return ExitCode.OK
