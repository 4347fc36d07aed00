# SPDX-License-Identifier: BSD-3-Clause
"""Plots of tables that have a column Ratio: how many times as fast as its reference each row is, as SVG between texts of the page.

The tables are the record: `script/bench --results` writes those of docs/bench/RESULTS.md, so a plot cannot differ from its table. A scale is logarithmic, and a mark further to
the right is always better: where less is better (times, bytes), it is the reference divided by ours. Rows of one subject and one reference share a line. Text stands outside of the
SVG, and positions in it are percentages, so it fits each width; its colors are variables of site.css, one set for light and one for dark."""
import html
import math
import re

LESS_IS_BETTER = re.compile(r"[\d.,]+ (ns|µs|ms|s|B|bytes|KiB)$")
HALF_PX = 5  # of a mark
MAX_TICKS = 7


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(text):
    found = re.search(r"\d+(?:[.,]\d+)*", text)
    return float(found[0].replace(",", "")) if found else None


def points(head, rows):
    """{(what, reference): [(times as fast, goal or None, is it short, is it unsteady)]}"""
    at = {name: head.index(name) for name in ("ratio", "goal", "reference") if name in head}
    found = {}
    for row in rows:
        ratio = number(row[at["ratio"]])
        goal = number(row[at["goal"]]) if "goal" in at else None
        result = row[at["goal"] + 1] if "goal" in at else ""
        if not ratio:
            continue
        if LESS_IS_BETTER.search(row[1]):
            ratio, goal = 1 / ratio, 1 / goal if goal else None
        reference = re.sub(r" [\d.,]+ \S+/s$| [\d.,]+ µs$", "", row[at["reference"]])
        found.setdefault((re.sub(r"[`*]", "", row[0]), reference), []).append((ratio, goal, "short" in result, "unsteady" in result))
    return found


class Scale:
    """Powers of two that hold all values, as percentages of a width."""

    def __init__(self, values):
        self.low, self.high = math.floor(math.log2(min([*values, 0.8]))), math.ceil(math.log2(max([*values, 1.25])))
        self.step = -(-(self.high - self.low) // MAX_TICKS)

    def at(self, value):
        return f"{3 + 94 * (math.log2(value) - self.low) / (self.high - self.low):.1f}%"

    def ticks(self):
        return [2.0 ** n for n in range(self.low, self.high + 1) if n % self.step == 0]


def mark(kind, x="50%"):
    """A diamond is short of its goal, a circle is not; a hollow one is unsteady."""
    name = "mark" + " short" * kind[0] + " unsteady" * kind[1]
    if kind[0]:
        return f'<svg x="{x}" y="50%" overflow="visible"><path class="{name}" d="M0-6 6 0 0 6-6 0z"/></svg>'
    return f'<circle class="{name}" cx="{x}" cy="50%" r="{HALF_PX}"/>'


def track(scale, dots):
    lines = "".join(f'<line class="{"one" if tick == 1 else "tick"}" x1="{scale.at(tick)}" x2="{scale.at(tick)}" y1="0" y2="100%"/>' for tick in scale.ticks())
    goal = next((dot[1] for dot in dots if dot[1]), None)
    if goal:
        lines += f'<line class="goal" x1="{scale.at(goal)}" x2="{scale.at(goal)}" y1="10%" y2="90%"/>'
    return f'<svg class="track" width="100%" height="22" aria-hidden="true">{lines}{"".join(mark(dot[2:], scale.at(dot[0])) for dot in dots)}</svg>'


def axis(scale):
    words = "".join(f'<text x="{scale.at(tick)}" y="12" text-anchor="middle">{f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}"}×</text>' for tick in scale.ticks())
    return f'<div class="row axis"><span></span><svg class="track" width="100%" height="16" aria-hidden="true">{words}</svg><span></span></div>'


def value(dots):
    texts = [f"{times:.{2 if times < 2 else 1 if times < 10 else 0}f}" for times in (min(dot[0] for dot in dots), max(dot[0] for dot in dots))]
    return "–".join(dict.fromkeys(texts)) + "×"


def legend(found):
    """What the marks say, those that are there."""
    dots = [dot for group in found.values() for dot in group]
    sample = '<svg width="14" height="14" aria-hidden="true">{}</svg>'
    words = [(sample.format('<line class="goal" x1="50%" x2="50%" y1="0" y2="100%"/>'), "its goal", any(dot[1] for dot in dots)),
             (sample.format(mark((True, False))), "short of the goal", any(dot[2] for dot in dots)),
             (sample.format(mark((False, True))), "hollow: unsteady", any(dot[3] for dot in dots))]
    return "How many times as fast, or as small, as the reference; right is better. " + " ".join(f'<span class="key">{picture} {text}</span>' for picture, text, is_there in words if is_there)


def plot(head, rows):
    """HTML of the plot of one table; nothing where it has no two ratios."""
    found = points(head, rows)
    if len(found) < 2:
        return ""
    scale = Scale([value for dots in found.values() for dot in dots for value in dot[:2] if value])
    out = ['<figure class="plot">', f"<figcaption>{legend(found)}</figcaption>", axis(scale)]
    for (what, reference), dots in found.items():
        out.append(f'<div class="row"><span class="what">{html.escape(what)} <small>{html.escape(reference)}</small></span>{track(scale, dots)}<span class="value">{value(dots)}</span></div>')
    return "\n".join([*out, axis(scale), "</figure>"])


def tables(lines):
    """(first line, line behind it, names of columns, rows) of each table with a column Ratio."""
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        head = [cell.lower() for cell in cells(lines[at])]
        if end - at > 2 and re.match(r"\|[\s:|-]+\|$", lines[at + 1]) and "ratio" in head:
            rows = [cells(line) for line in lines[at + 2:end]]
            yield at, end, head, [row + [""] * (len(head) - len(row)) for row in rows]
        at = max(end, at + 1)


def with_plots(text):
    """The document, with a plot in place of each table that has a column Ratio, and the table folded below it."""
    lines = text.splitlines()
    for at, end, head, rows in reversed(list(tables(lines))):
        drawn = plot(head, rows)
        if drawn:
            lines[at:end] = ["", drawn, "", f'<details class="figures"><summary>The figures: {len(rows)} rows</summary>', "", *lines[at:end], "", "</details>", ""]
    return "\n".join(lines) + "\n"


def first_plot(text):
    """The plot of a document's first table that has one."""
    return next(filter(None, (plot(head, rows) for _, _, head, rows in tables(text.splitlines()))))
