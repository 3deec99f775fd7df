"""The two plots of the page, as SVG that follows the reader's light or dark colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from experiments.reading import Finding

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 22, 190, 24, 34
_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#222}.axis{stroke:#888;stroke-width:1}.grid{stroke:#ddd}"
    ".bar{stroke:#1668a8;stroke-width:2}.mean{fill:#1668a8}.seed{fill:none;stroke:#777}.base{stroke:#b4540a;fill:none}"
    ".line{fill:none;stroke:#1668a8;stroke-width:1.5}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}.bar,.line{stroke:#6db3ee}.mean{fill:#6db3ee}"
    ".base{stroke:#f0a060}.seed{stroke:#aaa}}</style>"
)


def gains_plot(found: Sequence[Finding]) -> str:
    """A row a cell: the mean gain and its interval as a bar, the gain of each seed as a ring."""
    bounds = [value for each in found for value in (each.gain.low, each.gain.high, *each.gains) if value == value]
    low, high = min([0.0, *bounds]), max([0.1, *bounds])
    low, high = low - 0.02, high + 0.02

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    height = TOP + ROW * len(found) + 24
    parts = [_opening(height, "Gain in success on held-out tasks, 95% intervals, rings are seeds")]
    bottom = height - 24
    for tick in _ticks(low, high):
        kind = "axis" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick)}" y1="{TOP - 8}" x2="{x(tick)}" y2="{bottom}"/>')
        parts.append(f'<text x="{x(tick)}" y="{height - 8}" text-anchor="middle">{tick:+.1f}</text>')
    for number, each in enumerate(found):
        y = TOP + ROW * number + ROW // 2
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(each.cell.name)}</text>')
        if each.gain.low == each.gain.low:
            parts.append(f'<line class="bar" x1="{x(each.gain.low)}" y1="{y}" x2="{x(each.gain.high)}" y2="{y}"/>')
        parts.extend(f'<circle class="seed" cx="{x(gain)}" cy="{y}" r="3.5"/>' for gain in each.gains)
        parts.append(f'<rect class="mean" x="{x(each.gain.mean) - 3}" y="{y - 5}" width="6" height="10"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def curves_plot(found: Sequence[Finding]) -> str:
    """The mean reward of the rollouts of each batch, mean over seeds; a small frame a cell."""
    columns, width, height = 4, 180, 104
    rows = -(-len(found) // columns)
    title = "Mean reward of rollouts at temperature 1, batch by batch, from 0 to 1; orange: the base"
    parts = [_opening(TOP + rows * (height + 12), title)]
    base = next((each.curve for each in found if each.cell.name == "base"), [])
    for number, each in enumerate(found):
        left, top = 14 + (number % columns) * (width + 6), TOP + (number // columns) * (height + 12)
        floor = top + height - 18
        parts.append(f'<text x="{left}" y="{top + 10}">{escape(each.cell.name)}</text>')
        parts.append(f'<line class="axis" x1="{left}" y1="{floor}" x2="{left + width - 14}" y2="{floor}"/>')
        parts.append(f'<line class="grid" x1="{left}" y1="{top + 16}" x2="{left + width - 14}" y2="{top + 16}"/>')
        if each.cell.lesson == found[0].cell.lesson and each.cell.name != "base":
            parts.append(_polyline("base", base, left, top, width, floor))
        parts.append(_polyline("line", each.curve, left, top, width, floor))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _polyline(kind: str, values: Sequence[float], left: int, top: int, width: int, floor: int) -> str:
    """From 0 at the floor to 1 at the line above."""
    step = (width - 14) / max(len(values) - 1, 1)
    points = " ".join(
        f"{left + step * number:.1f},{floor - value * (floor - top - 16):.1f}" for number, value in enumerate(values)
    )
    return f'<polyline class="{kind}" points="{points}"/>'


def _ticks(low: float, high: float) -> list[float]:
    return [
        tenth / 10
        for tenth in range(-10, 11)
        if low <= tenth / 10 <= high and tenth % (2 if high - low > 0.8 else 1) == 0
    ]


def _opening(height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n{_STYLE}\n"
        f'<text x="14" y="18">{escape(title)}</text>'
    )
