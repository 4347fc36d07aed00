"""The table, in three shapes: text for a terminal, Markdown for docs/bench/RESULTS.md, JSON for programs."""
import pathlib

import placement

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
APART = ("msg", "loans", "nccl", "rma")  # sections with markers of their own
COLUMNS = ("what", "ropeway", "reference", "", "ratio", "goal", "", "bare line", "rounds")


def number(value, unit):
    if value is None:
        return "-"
    return f"{value:,.2f}" if unit in ("µs", "M/s", "s") else f"{value:,.0f}"


def cells(row):
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return (row["name"], f"{number(row['ours'], row['unit'])} {row['unit']}", row["reference_name"], number(row["reference"], row["unit"]), ratio, row["goal"],
            verdict(row), row.get("bin", "-"), rounds(row))


def verdict(row):
    """A row of too few rounds, or of ratios too far apart, says so: it shows neither that a goal is reached nor that it is not."""
    marks = [row["verdict"]] if row["verdict"] else []
    return ", ".join(marks + ["unsteady"] * (row.get("unsteady", False) and "unsteady" not in marks and row["verdict"] != "failed"))


def rounds(row):
    """Of this bin, and of all that the case had."""
    if "rounds" not in row:
        return "-"
    of = row.get("rounds_of", row["rounds"] + row.get("dropped", 0))
    return f"{row['rounds']} of {of}" + (f", {row['dropped']} dropped" if row.get("dropped") else "")


def aligned(lines, right):
    """Rows of cells as text for a terminal; `right`: the columns that stand at their right edge."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def text_table(rows):
    return aligned([COLUMNS] + [cells(row) for row in rows], (1, 3, 4))


def markdown_table(rows):
    head = ["| What | ropeway | Reference | | Ratio | Goal | | Bare line | Rounds |", "|---|---:|---|---:|---:|---|---|---|---|"]
    return "\n".join(head + ["| " + " | ".join(cells(row)) + " |" for row in rows])


def machine_text(machine):
    return (f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, net.core.rmem_max {machine['rmem_max']}, load {machine['load']:.2f} at the start; "
            f"medians of {machine['rounds']} rounds; {machine['date']}, {machine['commit']}. {placement.placements_text(machine.get('placements'))}")


def parts(path, begin_mark, end_mark):
    """A text up to the first mark, between the two, and from the second on; None where they are not."""
    before, begin, rest = pathlib.Path(path).read_text().partition(begin_mark)
    between, end, after = rest.partition(end_mark)
    return (before + begin, between, end + after) if end else None


def write_results(path, section, rows, machine):
    """Between the markers, in the section of this run (loopback, veth, guest, cm, msg, loans, nccl or rma); all else is left as it is. False where there are no markers."""
    found = f"{markdown_table(rows)}\n\n{machine_text(machine)}"
    if section in APART:
        return write_between(path, f"<!-- bench-{section}:begin -->", f"<!-- bench-{section}:end -->", found)
    sections = dict.fromkeys(("loopback", "veth", "guest", "cm"), "")
    for part in (parts(path, BEGIN, END) or ("", "", ""))[1].split("<!-- bench:")[1:]:
        name, _, body = part.partition(" -->")
        sections[name] = body.strip()
    sections[section] = found
    return write_between(path, BEGIN, END, "\n\n".join(f"<!-- bench:{name} -->\n{body}" for name, body in sections.items() if body))


def write_between(path, begin_mark, end_mark, body):
    """A table with markers of its own. False where there are none."""
    found = parts(path, begin_mark, end_mark)
    if found:
        pathlib.Path(path).write_text(f"{found[0]}\n{body}\n{found[2]}")
    return bool(found)
