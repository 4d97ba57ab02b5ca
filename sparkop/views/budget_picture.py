"""The memory budget as a picture: one bar a rank, in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from sparkop.engines.budget.lines import Budget, Part, RankBudget
from sparkop.resources.compare import human_bytes

WIDTH, BAR, LEFT, TOP = 960, 44, 130, 64
"""Pixels: of the picture, of a bar's height, of the names, of the title."""
ROOM = 700
"""Pixels of all of a node's memory."""
STEP = 100
"""Pixels from a bar to the next."""
COLOURS: dict[Part, str] = {
    Part.SYSTEM: "#8a8f98",
    Part.EXPERTS: "#2f5d9b",
    Part.DENSE: "#4c9aa8",
    Part.VISION: "#8fc7d0",
    Part.DRAFT: "#7f9fd6",
    Part.TABLE: "#8e5ea2",
    Part.CACHE: "#3a8f4d",
    Part.STATE: "#8bc34a",
    Part.GRAPHS: "#d9a520",
    Part.OTHER: "#c9c27a",
    Part.WORKSPACE: "#c0392b",
}


def svg(budgets: Sequence[tuple[str, Budget]]) -> str:
    """One group of bars a budget, under its caption. Bars of too much memory run past the frame."""
    bars = [(caption, rank) for caption, budget in budgets for rank in budget.ranks]
    lines = [line for _, rank in bars for line in rank.lines if line.counts]
    used = [part for part in COLOURS if any(line.part is part for line in lines)]
    height = TOP + STEP * len(bars) + 30 * (1 + (len(used) + 3) // 4)
    model = budgets[0][1].model if budgets else ""
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="14">',
        f"<title>Memory budget of {escape(model)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="20" y="34" font-size="20">Memory budget of {escape(model)}</text>',
    ]
    for index, (caption, rank) in enumerate(bars):
        body += _bar(rank, caption, TOP + STEP * index)
    body += _legend(used, TOP + STEP * len(bars) + 20)
    return "\n".join([*body, "</svg>", ""])


def _bar(rank: RankBudget, caption: str, y: int) -> list[str]:
    scale = ROOM / rank.total.size if rank.total.size else 0.0
    title = escape(f"{rank.node}  {caption}".rstrip())
    parts = [f'<text x="20" y="{y + BAR // 2 + 5}" font-weight="bold">{escape(rank.node)}</text>']
    if caption:
        parts.append(f'<text x="{LEFT}" y="{y - 6}" fill="#555">{escape(caption)}</text>')
    x = float(LEFT)
    for line in rank.lines:
        if not line.counts or not line.size:
            continue
        width = line.size * scale
        dash = ' stroke="black" stroke-dasharray="3 3"' if line.transient else ""
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[line.part]}"{dash}>'
            f"<title>{escape(f'{line.name}: {human_bytes(line.size)}, {line.basis}')}</title></rect>"
        )
        x += width
    colour = "#2e7d32" if rank.safe else "#b71c1c"
    left = (
        f"{human_bytes(-rank.left)} too much" if rank.left < 0 else f"{human_bytes(rank.left)} left"
    ) + f" of {human_bytes(rank.total.size)}"
    return [
        f'<g aria-label="{title}">',
        *parts,
        f'<rect x="{LEFT}" y="{y}" width="{ROOM}" height="{BAR}" fill="none" stroke="black"/>',
        f'<text x="{LEFT}" y="{y + BAR + 18}" fill="{colour}">{escape(left)}</text>',
        "</g>",
    ]


def _legend(parts: Sequence[Part], y: int) -> list[str]:
    found = []
    for index, part in enumerate(parts):
        x, row = 20 + 230 * (index % 4), y + 30 * (index // 4)
        found.append(f'<rect x="{x}" y="{row}" width="16" height="16" fill="{COLOURS[part]}"/>')
        found.append(f'<text x="{x + 24}" y="{row + 13}">{escape(str(part))}</text>')
    return found
