"""The memory budget on stdout: bars, a table for each kind of rank, pool, quotes, what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sparkop.engines.budget.lines import Budget, Line, Part, RankBudget, Where
from sparkop.engines.fit import Fit
from sparkop.engines.rules import Finding
from sparkop.records import dataclass
from sparkop.resources.compare import human_bytes
from sparkop.spec.tree import show_path
from sparkop.views.console import out, print_json, talk
from sparkop.views.documents import document

WIDTH = 60
"""Cells of a bar."""
COLOURS: dict[Part, str] = {
    Part.SYSTEM: "bright_black",
    Part.EXPERTS: "blue",
    Part.DENSE: "cyan",
    Part.VISION: "bright_cyan",
    Part.DRAFT: "bright_blue",
    Part.TABLE: "magenta",
    Part.CACHE: "green",
    Part.STATE: "bright_green",
    Part.GRAPHS: "yellow",
    Part.OTHER: "bright_yellow",
    Part.WORKSPACE: "red",
}
LETTERS: dict[Part, str] = {
    Part.SYSTEM: "s",
    Part.EXPERTS: "E",
    Part.DENSE: "D",
    Part.VISION: "V",
    Part.DRAFT: "M",
    Part.TABLE: "T",
    Part.CACHE: "K",
    Part.STATE: "S",
    Part.GRAPHS: "G",
    Part.OTHER: "o",
    Part.WORKSPACE: "w",
}
"""A cell of each part: readable without colours too."""


@dataclass(frozen=True)
class Checked:
    """A budget and what the rules say of its spec."""

    budget: Budget
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return any(finding.refuses for finding in self.findings)


def show_budget(budget: Budget, findings: Sequence[Finding], output: str = "text") -> None:
    """Print it; on stderr what rules refuse or set aside."""
    if output == "json":
        print_json(budget_json(budget, findings))
        return
    out().print(_report(budget))
    _tell(findings)


def show_fit(fit: Fit, output: str = "text") -> None:
    """The value as --set takes it, and why no larger one."""
    if output == "json":
        print_json(
            {
                "version": 1,
                "fit": fit.what,
                "setting": fit.setting,
                "value": fit.value,
                "now": fit.now,
                "limit": fit.stop,
                "budget": budget_json(fit.budget, ()),
            }
        )
        return
    console = out()
    console.print(Text.assemble(("--set ", "dim"), (fit.setting, "bold green"), f"   (now {fit.now})"))
    console.print(Text(f"larger: {fit.stop}", style="dim"))
    console.print(_bars(fit.budget))
    console.print(_pool(fit.budget))


def show_comparison(first: Checked, second: Checked, output: str = "text") -> None:
    """Two settings side by side, with the difference."""
    if output == "json":
        print_json(
            {
                "version": 1,
                "first": budget_json(first.budget, first.findings),
                "second": budget_json(second.budget, second.findings),
            }
        )
        return
    console = out()
    for before, after in zip(first.budget.ranks, second.budget.ranks, strict=False):
        if before.rank and _alike(before, first.budget.ranks[0]) and _alike(after, second.budget.ranks[0]):
            continue
        console.print(_compared(before, after))
    console.print(Text("\nfirst", style="bold"), _pool(first.budget))
    console.print(Text("second", style="bold"), _pool(second.budget))
    _tell(second.findings)


def budget_json(budget: Budget, findings: Sequence[Finding]) -> dict[str, Any]:
    """The budget as a JSON object; sizes in bytes."""
    made: dict[str, Any] = document(budget)
    for rank, row in zip(budget.ranks, made["ranks"], strict=True):
        row |= {"used": rank.used, "steady": rank.steady, "left": rank.left, "safe": rank.safe}
    if budget.pool is not None:
        made["pool"]["contexts"] = round(budget.pool.contexts, 3)
    if budget.slots is not None:
        made["slots"]["size"] = budget.slots.size
    return {
        "version": 1,
        "safe": budget.safe and not any(finding.refuses for finding in findings),
        **made,
        "findings": [
            {
                "rule": finding.rule.id,
                "path": show_path(finding.path),
                "message": finding.message,
                "refuses": finding.refuses,
                "override": finding.override,
            }
            for finding in findings
        ],
    }


def _report(budget: Budget) -> Group:
    parts: list[Any] = [
        Text.assemble((budget.model, "bold"), f" on {budget.engine}  ", (budget.source, "dim")),
        _bars(budget),
    ]
    for ranks in _kinds(budget.ranks):
        parts.append(_table(ranks))
    parts += [Text(), _pool(budget)]
    if budget.quotes:
        parts += [Text("\npublished", style="bold"), *map(_quote_text, budget.quotes)]
    if budget.unknown:
        parts += [Text("\nnot known", style="bold"), *(Text(f"  {each}") for each in budget.unknown)]
    return Group(*parts)


def _quote_text(quote: Any) -> Text:
    line = Text.assemble("  ", quote.text, (f"  quoted from {quote.source}", "dim"))
    if quote.against:
        line.append(f"\n    but {quote.against}", style="yellow")
    return line


def _kinds(ranks: Sequence[RankBudget]) -> list[list[RankBudget]]:
    """Ranks whose lines are the same are shown once."""
    kinds: list[list[RankBudget]] = []
    for rank in ranks:
        for kind in kinds:
            if _alike(kind[0], rank):
                kind.append(rank)
                break
        else:
            kinds.append([rank])
    return kinds


def _alike(one: RankBudget, other: RankBudget) -> bool:
    return one.lines == other.lines and one.total == other.total


def _bars(budget: Budget) -> Group:
    rows: list[Text] = []
    for rank in budget.ranks:
        row = Text(f"{rank.node:12} ", style="bold")
        row.append(_bar(rank))
        style = "green" if rank.safe else "bold red"
        row.append(f" {_left(rank)}", style=style)
        rows.append(row)
    used = [part for part in LETTERS if _shown(part, budget.ranks)]
    legend = Text(" " * 13)
    for part in used:
        legend.append(f"{LETTERS[part]} ", style=COLOURS[part])
        legend.append(f"{part}  ", style="dim")
    legend.append(". left", style="dim")
    return Group(*rows, legend)


def _shown(part: Part, ranks: Sequence[RankBudget]) -> bool:
    return any(line.part is part and line.counts for rank in ranks for line in rank.lines)


def _left(rank: RankBudget) -> str:
    if rank.left < 0:
        return f"{human_bytes(-rank.left)} too much for {human_bytes(rank.total.size)}"
    return f"{human_bytes(rank.left)} of {human_bytes(rank.total.size)} left"


def _bar(rank: RankBudget) -> Text:
    """Cells by bytes; a part that is too small for a cell has none. What is too much goes past the end."""
    bar, done = Text(), 0
    scale = WIDTH / rank.total.size if rank.total.size else 0.0
    reached = 0.0
    for line in rank.lines:
        if not line.counts:
            continue
        reached += line.size * scale
        cells = min(round(reached), 2 * WIDTH) - done
        bar.append(LETTERS[line.part] * max(0, cells), style=COLOURS[line.part])
        done += max(0, cells)
    bar.append("." * max(0, WIDTH - done), style="dim")
    return bar


def _table(ranks: Sequence[RankBudget]) -> Table:
    first = ranks[0]
    title = ", ".join(f"{rank.node} (rank {rank.rank})" for rank in ranks)
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for name in ("part", "what", "size", "where", "basis", "source"):
        table.add_column(name, justify="right" if name == "size" else "left", overflow="fold")
    for line in first.lines:
        style = "" if line.counts else "dim"
        table.add_row(
            Text(str(line.part), style=COLOURS.get(line.part, "dim")),
            Text(line.name, style=style),
            Text(human_bytes(line.size), style=style),
            Text(str(line.where), style=style),
            str(line.basis),
            Text(line.source, style="dim"),
        )
    for name, size, note in _sums(first):
        table.add_row("", Text(name, style="bold"), Text(human_bytes(size), style="bold"), "", "", note)
    return table


def _sums(rank: RankBudget) -> list[tuple[str, int, str]]:
    sums = [("used", rank.used, "disk and page cache do not count")]
    if rank.steady != rank.used:
        sums[0] = ("used at the worst moment", rank.used, "in a long prefill")
        sums.append(("used between prefills", rank.steady, ""))
    return [
        *sums,
        ("left", rank.left, f"{human_bytes(rank.floor)} must stay: the guard acts below"),
        (rank.total.name, rank.total.size, f"{rank.total.basis}: {rank.total.source}"),
    ]


def _pool(budget: Budget) -> Group:
    rows: list[Text] = []
    pool, slots = budget.pool, budget.slots
    if pool is not None:
        line = Text.assemble(("KV pool  ", "bold"), (f"{pool.tokens:,} tokens", "bold green"))
        if pool.context:
            line.append(f", {pool.contexts:.2f} contexts of {pool.context:,}")
        line.append(f"  {pool.basis}: {pool.source}", style="dim")
        rows.append(line)
        for cost in pool.costs:
            rows.append(
                Text.assemble(
                    f"  {cost.size:>9,.0f} B a token  {cost.name}  ", (f"{cost.basis}: {cost.source}", "dim")
                )
            )
        rows.append(Text(f"  {pool.token_size:>9,.0f} B a token and rank"))
    if slots is not None:
        rows.append(
            Text.assemble(
                ("state    ", "bold"),
                f"{slots.count} slots of {slots.slot_size:,} B and {slots.copies} copies of "
                f"{slots.copy_size:,} B: at most {slots.requests} requests run  ",
                (f"{slots.basis}: {slots.source}", "dim"),
            )
        )
    return Group(*rows)


def _compared(before: RankBudget, after: RankBudget) -> Table:
    table = Table(
        title=f"{before.node} (rank {before.rank})", title_justify="left", box=None, header_style="dim"
    )
    for name in ("part", "first", "second", "difference"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for part in Part:
        one, two = _size(before.lines, part), _size(after.lines, part)
        if one or two:
            table.add_row(str(part), human_bytes(one), human_bytes(two), _signed(two - one))
    more = _signed(after.used - before.used)
    table.add_row("used", human_bytes(before.used), human_bytes(after.used), more)
    style = "bold green" if after.safe else "bold red"
    difference = _signed(after.left - before.left)
    table.add_row("left", human_bytes(before.left), Text(human_bytes(after.left), style=style), difference)
    return table


def _size(lines: Iterable[Line], part: Part) -> int:
    return sum(line.size for line in lines if line.part is part and line.where is not Where.DISK)


def _signed(size: int) -> str:
    return ("+" if size > 0 else "") + human_bytes(size) if size else "="


def _tell(findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.override:
            word, style = f"set aside ({finding.override})", "yellow"
        elif finding.refuses:
            word, style = "refused", "bold red"
        else:
            continue
        where = f"{show_path(finding.path)}: "
        talk().print(Text.assemble((f"{word}: ", style), where, f"{finding.message} [{finding.rule.id}]"))
