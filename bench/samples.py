"""The figures in what README shows of a program's output: how they are written, which tests/docs/docs_test.py compares, and their order of magnitude, which script/bench compares."""
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURE = re.compile(r"\b(\d+)(\.\d+)?(?= (seconds|usec/iter|Mbit/sec)\b)")
NEAR = 10  # times more or less


def form(output):
    """Each figure as its digits behind the point: with the unit that is how it is written."""
    return FIGURE.sub(lambda m: "#" + re.sub(r"\d", "#", m[2] or ""), output)


def figures(output):
    return [(m[3], float(m[0])) for m in FIGURE.finditer(output)]


def far(shown, measured):
    """What to say of each figure that is not of the other's order. Printed as 0.00 it has none."""
    pairs = list(zip(figures(shown), figures(measured)))
    if len(pairs) != len(figures(shown)):
        return [f"shown are {len(figures(shown))} figures, printed were {len(figures(measured))}"]
    return [f"shown are {was:g} {unit}, measured {now:g}" for (unit, was), (_, now) in pairs if was and now and not 1 / NEAR < was / now < NEAR]


def shown():
    """[(where, command, its output)] of README's blocks, and of the recording of which its picture is drawn."""
    found = []
    for where in "README.md", "docs/pictures/explain.txt":
        for line in (ROOT / where).read_text(encoding="utf-8").splitlines():
            if line.startswith("$ "):
                found.append([where, line[2:], ""])
            elif line.startswith("```"):
                found.append(["", "", ""])
            elif found:
                found[-1][2] += line + "\n"
    return [tuple(one) for one in found if figures(one[2])]


def measure(runner, tell):
    """What to say of README's figures on this machine: nothing, where all are of its order."""
    bad = []
    for where, command, output in shown():
        port = str(runner.next_port())
        *words, address = shlex.split(command)
        words = [f"{runner.build}/ropeway", *words[1:], "-p", port]
        here = runner.pair([word for word in words if word != "--explain"], [*words, address], int(port), preload=False)
        tell(f"{where}: {command}: " + ", ".join(f"{value:g} {unit}" for unit, value in figures(here)))
        bad += [f"{where}: {command}: {what}" for what in far(output, here)]
    return bad
