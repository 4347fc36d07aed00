# SPDX-License-Identifier: BSD-3-Clause
"""Plots of the tables in docs/bench/RESULTS.md: each row's ratio to its reference, beside its goal."""
import html
import re


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(text):
    found = re.search(r"\d+(?:[.,]\d+)*", text)
    return float(found[0].replace(",", "")) if found else None


def plot(rows, what, ratio, goal, result):
    """HTML of one plot: [(what, ratio, goal, is it short)]."""
    points = [(row[what], number(row[ratio]), number(row[goal]) if goal is not None else None, result is not None and "short" in row[result]) for row in rows]
    points = [p for p in points if p[1] is not None]
    if len(points) < 2:
        return ""
    most = max([p[1] for p in points if p[1] <= 4] + [p[2] for p in points if p[2] and p[2] <= 4] + [1])
    out = ['<div class="plot" role="img" aria-label="The ratios of the table below, as bars">']
    for name, value, want, is_short in points:
        mark = f'<span class="goal" style="left: {min(want / most, 1) * 100:.1f}%"></span>' if want is not None else ""
        name = html.escape(re.sub(r"[`*]", "", name))
        out.append(f'<div class="row{" short" if is_short else ""}"><span class="what">{name}</span><span class="track"><span class="bar" style="width: {min(value / most, 1) * 100:.1f}%">'
                   f'</span>{mark}</span><span class="value">{value:g}</span></div>')
    return "\n".join(out + ["</div>"])


LEGEND = "The bars are ratios to each row's reference, those that are cut off are longer than four times; the line is the goal; orange is short of it.\n\n"


def with_plots(text):
    """The document, with a plot above each table that has a column Ratio."""
    lines, out, at, drawn = text.splitlines(), [], 0, False
    while at < len(lines):
        if lines[at].startswith("|") and at + 1 < len(lines) and re.match(r"\|[\s:|-]+\|$", lines[at + 1]):
            end = at
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            head = [cell.lower() for cell in cells(lines[at])]
            rows = [cells(line) for line in lines[at + 2:end]]
            rows = [row + [""] * (len(head) - len(row)) for row in rows]
            if "ratio" in head:
                goal = head.index("goal") if "goal" in head else None
                drawing = plot(rows, 0, head.index("ratio"), goal, goal + 1 if goal is not None and goal + 1 < len(head) else None)
                if drawing:
                    out += ["", LEGEND if not drawn else "", drawing, ""]
                    drawn = True
            out += lines[at:end]
            at = end
        else:
            out.append(lines[at])
            at += 1
    return "\n".join(out) + "\n"
