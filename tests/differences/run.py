#!/usr/bin/python3
"""Where our device differs from kernel rxe: one probe program (probe.c) asks both, and a table keeps what they said, with the reason for each difference.

  run.py [--only NAME]... [--lib SO]     asks both and compares with answers.tsv (--only: and prints the answers). With ROPEWAY_GUEST_SUITE=trixie or sid: the kernel of that Debian release
  run.py --record                        the same, and writes what they said into answers.tsv
  run.py --page                          writes docs/differences.md from answers.tsv and reasons.tsv
  run.py --check [PROBE]                 is the page what the tables give, has each difference a reason, and are the questions those of the program? Needs no guest

rxe runs in the QEMU guest (tests/interop/guest.py), ours here, each on one end of a veth pair with the same address. A FAIL is a question whose answer is not the table's. Where the guest's
kernel is newer than the one that the table was measured with, rxe's other answers are only listed, as NEW; with another rdma-core, both sides' are. A crash, a hang and wrong bytes fail in any case.
The last line is 'N passed, N failed, N skipped'. Exit status 77 when there can be no guest here.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))
sys.path.insert(0, str(ROOT / "tests" / "newest"))
import answers as newest  # noqa: E402
from guest import SUITE, Guest, Unavailable, prepare  # noqa: E402
from netns import enter_namespace, ip  # noqa: E402

BUILD = os.environ.get("ROPEWAY_BUILD", str(ROOT / "build"))
ANSWERS, REASONS, PAGE = HERE / "answers.tsv", HERE / "reasons.tsv", ROOT / "docs" / "differences.md"
KERNELS = {"": ("rxe 6.1", "Debian 12"), "trixie": ("rxe 6.12", "Debian 13"), "sid": ("rxe 7.2", "Debian unstable")}
RXE = [column for column, _ in KERNELS.values()]
COLUMNS = ["question", "what", "ours", *RXE, "reason"]
ADDRESS, ABSENT, AT_ONCE = "10.9.0.1", "10.9.0.200", 4
BROKEN = re.compile(r"CRASH |HANG$|WRONG BYTES|SETUP ")
# Beside reasons of a row's own: ours is what one of the kernels says.
GROUPS = {"program": "A program can notice", "probe": "Only a probe notices", "kernels": "Where the kernels differ from each other", "mend": "To be mended"}


# ---- the tables ----

def read_table(path):
    """(the comments at its head, its rows)"""
    lines = path.read_text().splitlines() if path.exists() else []
    comments = [line for line in lines if line.startswith("#")]
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return comments, [dict(zip(rows[0], row)) for row in rows[1:]] if rows else []


def read_answers():
    """(release of each column's kernel, and of rdma-core; name -> row)"""
    comments, rows = read_table(ANSWERS)
    releases = dict(m.groups() for line in comments if (m := re.fullmatch(r"# (rxe \S+|rdma-core): (?:Linux )?(\S+).*", line)))
    return releases, {row["question"]: row for row in rows}


def write_answers(releases, rows):
    head = ["# What ropeway's device and kernel rxe answer to tests/differences/probe. Written by tests/differences/run.py --record; the reasons (reasons.tsv) are written by hand."]
    head += [f"# {column}: Linux {releases[column]} ({debian})" for column, debian in KERNELS.values() if column in releases]
    head.append(f"# rdma-core: {rdma_core()} on both sides")
    ANSWERS.write_text("\n".join([*head, "\t".join(COLUMNS), *("\t".join(row.get(c, "") for c in COLUMNS) for row in rows.values())]) + "\n")


def rdma_core():
    """The version of this machine's, whose libraries the guest's programs use, too."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libibverbs1"], capture_output=True, text=True, check=False).stdout.strip()
    return told.partition("-")[0] or "unknown"


def differs(row):
    return any(row[column] and row[column] != row["ours"] for column in RXE)


def wrong_reasons(rows, reasons):
    """A line for each difference without a reason, each reason without a difference, each answer that is none."""
    for row in rows.values():
        if differs(row) and row["reason"] not in reasons:
            yield f"{row['question']}: ours differs from rxe and has no reason in reasons.tsv (its reason: '{row['reason']}')"
        elif not differs(row) and row["reason"]:
            yield f"{row['question']}: a reason, and no difference"
        if BROKEN.match(row["ours"]) and differs(row):  # without a difference it is librdmacm's or libibverbs' own
            yield f"{row['question']}: ours is {row['ours']}"
    used = {row["reason"] for row in rows.values()}
    yield from (f"reasons.tsv: {name}: no question has it" for name in reasons if name not in used)
    yield from (f"reasons.tsv: {name}: no group '{r['group']}'" for name, r in reasons.items() if r["group"] not in GROUPS)


def read_reasons():
    return {row["id"]: row for row in read_table(REASONS)[1]}


# ---- asking ----

def ask(run, names=(), at_once=AT_ONCE):
    """name -> answer. run: takes the probe's command line, gives what it printed."""
    text = run(" ".join([f"{BUILD}/tests/differences/probe", "-a", ADDRESS, "-x", ABSENT, "-j", str(at_once), *names]))
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


SETUP = ["ip link add r0 type veth peer name r1", "ip addr add {}/24 dev r0", "ip link set r0 up", "sh -c 'echo 1 >/proc/sys/net/ipv6/conf/r1/disable_ipv6'", "ip link set r1 up"]


class Ours:
    def __init__(self, lib):
        self.lib = lib
        ip("link", "set", "lo", "up")
        for command in SETUP:
            subprocess.run(["/bin/sh", "-c", command.format(ADDRESS)], check=True)
        # Its link-local address is tentative for 2 s, and the device of an address has both GIDs.
        subprocess.run(["sleep", "2.5"], check=True)

    def run(self, command):
        done = subprocess.run(["/bin/sh", "-c", command], env=dict(os.environ, LD_PRELOAD=self.lib, LC_ALL="C.UTF-8"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=900, check=False)
        return done.stdout


class Rxe:
    def __init__(self, verbose):
        self.guest = Guest(verbose=verbose)
        for command in SETUP:
            self.guest.check(command.format(ADDRESS))
        self.guest.check("sleep 2.5; rdma link add rxe0 type rxe netdev r0; sleep 1")
        self.release = self.guest.check("uname -r").strip()

    def run(self, command):
        return self.guest.run(command + " 2>/dev/null", 1500)[1]


def compare(row, column, got, known):
    """'' where the answer is the table's, else what is wrong; NEW where only the kernel is another one."""
    want = row.get(column, "")
    if BROKEN.match(got) and got != want:
        return f"FAIL {row['question']}: {column} answered '{got}'"
    if got == want:
        return ""
    return f"{'FAIL' if known else 'NEW '} {row['question']}: {column} answered '{got}', the table has '{want}'"


def measure(side, names):
    """What a side answers; what is broken is asked again, alone: a machine may be busy."""
    got = ask(side.run, names)
    for name in [n for n, answer in got.items() if BROKEN.match(answer)]:
        got.update(ask(side.run, [name], 1))
    return got


def settle(sides, answers):
    """What is new in the table is asked once more, alone, and that answer counts: beside others a machine may be too busy for the time that one needs."""
    rows = read_answers()[1]
    for side, got in answers.items():
        changed = [name for name, answer in got.items() if rows.get(name, {}).get(side) != answer]
        if changed:
            got.update(ask(sides[side].run, changed, 1))


def run_guest(args):
    column, debian = KERNELS[SUITE]
    try:
        prepare()
        enter_namespace()
        rxe = Rxe(args.v)
    except (Unavailable, PermissionError) as e:
        print(f"SKIPPED: differences from kernel rxe: {e}")
        print(f"0 passed, 0 failed, {len(read_answers()[1])} skipped")
        return 77
    try:
        ours = Ours(args.lib)
        print(f"rxe: Linux {rxe.release} ({debian}); ours: {args.lib}", flush=True)
        sides = {"ours": ours, column: rxe}
        answers = {name: measure(side, args.only) for name, side in sides.items()}
        if args.record:
            settle(sides, answers)
        return record(args, column, rxe.release, answers) if args.record else report(args, column, rxe.release, sides, answers)
    finally:
        rxe.guest.close()


def listed(probe):
    return dict(line.split("\t", 1) for line in subprocess.run([probe, "--list"], capture_output=True, text=True, check=True).stdout.splitlines())


def record(args, column, release, answers):
    releases, rows = read_answers()
    if not args.only:
        releases[column] = release
    told = listed(f"{BUILD}/tests/differences/probe")
    out = {}
    for name, what in told.items():
        row = out[name] = {**dict.fromkeys(COLUMNS, ""), **rows.get(name, {}), "question": name, "what": what}
        row.update({side: got[name] for side, got in answers.items() if name in got})
        if not differs(row):
            row["reason"] = ""
    write_answers(releases, out)
    print(f"{sum(map(differs, out.values()))} of {len(out)} questions differ")
    return 0


def report(args, column, release, sides, answers):
    releases, rows = read_answers()
    rows = {name: row for name, row in rows.items() if not args.only or name.startswith(tuple(args.only))}
    lines, failed, same_libraries = [], 0, releases.get("rdma-core") == rdma_core()
    for side, got in answers.items():
        known = same_libraries and (side == "ours" or releases.get(column) == release)
        for name, row in rows.items():
            wrong = compare(row, side, got.get(name, "nothing"), known)
            if wrong:  # once more, alone: a busy machine may have taken the time that an answer needs
                wrong = compare(row, side, ask(sides[side].run, [name], 1).get(name, "nothing"), known)
            if wrong:
                lines.append(wrong)
                failed += wrong.startswith("FAIL")
    if not args.only:
        lines += [f"FAIL {wrong}" for wrong in wrong_reasons(rows, read_reasons())]
        failed = sum(line.startswith("FAIL") for line in lines)
    for line in [f"{side:9}{name}: {got[name]}" for name in rows for side, got in answers.items() if args.only and name in got] + lines:
        print(line)
    if releases.get(column) != release:
        print(f"Linux {release} is not the {releases.get(column, 'none')} of the table: what rxe answers otherwise is listed as NEW; run.py --record takes it over")
    if not same_libraries:
        print(f"rdma-core {rdma_core()} is not the {releases.get('rdma-core', 'none')} of the table: what both answer otherwise is listed as NEW")
    print(f"{2 * len(rows) - min(failed, 2 * len(rows))} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


# ---- the page ----

def varying(answers, separator):
    """Of answers that have equally many parts, those parts in which they are not all the same. A part keeps the name before its colon."""
    split = [a.split(separator) for a in answers]
    if len({len(s) for s in split}) != 1 or len(split[0]) == 1:
        return answers
    keep = [i for i in range(len(split[0])) if len({s[i] for s in split}) > 1]
    name = split[0][0].partition(": ")[0] + ": " if separator == ", " and 0 not in keep and ": " in split[0][0] else ""
    return [name + separator.join(s[i] for i in keep) for s in split]


def shortened(row):
    """What a row's cells show: of the four answers what differs, without a name that all begin with where they say nothing else."""
    answers = varying([row[c] or "not asked" for c in ("ours", *RXE)], "; ")
    counts = {a.count("; ") for a in answers}
    if len(counts) == 1:
        columns = zip(*(a.split("; ") for a in answers))
        answers = ["; ".join(cell) for cell in zip(*(varying(list(column), ", ") for column in columns))]
    names = {a.partition(": ")[0] for a in answers if ": " in a}
    if counts == {0} and len(names) == 1 and all(": " in a for a in answers):
        answers = [a.partition(": ")[2] for a in answers]
    return answers


def cells(answers):
    shown = [a.replace("|", "\\|") for a in answers]
    return [shown[0], shown[1], *("the same" if len(shown[i]) > 12 and shown[i] == shown[i - 1] else shown[i] for i in (2, 3))]


def table(rows):
    """Rows with the same answers are one."""
    merged = {}
    for row in rows:
        merged.setdefault(tuple(cells(shortened(row))), []).append(row["what"])
    yield "| what | ropeway | " + " | ".join(RXE) + " |"
    yield "|---|---|" + "---|" * len(RXE)
    for shown, whats in merged.items():
        yield "| " + " | ".join(["; ".join(whats), *shown]) + " |"


HEAD = """# Differences from kernel rxe

Linux has a software RDMA device of its own, `rdma_rxe`. Programs that run on rxe run on ropeway, and here is every answer in which the two differ.
A probe program asks {count} questions about verbs and rdma_cm, on ropeway and on the rxe of three kernels: {kernels}. {same} questions have the same answer on all four. {differ} differ.

The page is written by `tests/differences/run.py --page` from what the probe heard, so it cannot drift from the code: a difference without a reason fails the test suite.
Where the reason is a rule of the InfiniBand Architecture Specification, volume 1, its section is named, as in *IB 10.3.1*.
"""
NEWEST = """## Calls of the newest rdma-core

The probe is built with Debian 12's headers. Other calls, of rdma-core 59 to 65, are asked with the library of Debian unstable (`tests/newest`). Of those without an older sibling, these differ.

A completion counter counts SENDs, receives, READs and WRITEs of the QPs that it is attached to, or their bytes. It does not count what the peer asks for, and the capabilities say so: a long READ or WRITE may arrive as several.
"""
RUN = """## Ask again

```
script/test --stage differences                             # ropeway and rxe of Debian 12, in a QEMU guest
script/test --stage kernels                                 # rxe of Debian 13 and of Debian unstable
tests/differences/run.py --only mr. --only mw.              # some questions
ROPEWAY_GUEST_SUITE=trixie tests/differences/run.py --record   # keep what they answered
tests/differences/run.py --page                             # write this page
```

The probe needs only libibverbs and librdmacm, so it asks any device that has an IPv4 address:

```
ropeway run -- build/tests/differences/probe -a 10.0.0.1 -x 10.0.0.200       # -x: an address of the subnet that no host has
build/tests/differences/probe --list
```

The answers are in [tests/differences/answers.tsv](../tests/differences/answers.tsv), the reasons in [tests/differences/reasons.tsv](../tests/differences/reasons.tsv).
"""
ABOUT = {
    "program": "A correct program may see these: another status, another event, a call that succeeds on one device and fails on the other.",
    "probe": "A correct program does not see these. They are limits that no program reaches, attributes that no program acts on, and answers to calls that are mistakes.",
    "kernels": "Here the versions of rxe disagree, and ropeway answers as one of them does.",
    "mend": "Here ropeway is wrong.",
}


def page():
    releases, rows = read_answers()
    reasons = read_reasons()
    differing = [row for row in rows.values() if differs(row)]
    kernels = ", ".join(f"Linux {releases[c].split('-')[0].split('+')[0]} ({debian})" for c, debian in KERNELS.values() if c in releases)
    out = [HEAD.format(count=len(rows), kernels=kernels, same=len(rows) - len(differing), differ=len(differing))]
    for group, title in GROUPS.items():
        of_group = [(name, r) for name, r in reasons.items() if r["group"] == group]
        if not of_group:
            continue
        out.append(f"## {title}\n\n{ABOUT[group]}\n")
        for name, reason in of_group:
            out.append(f"### {reason['title']}\n\n{reason['text']}\n")
            out += table(row for row in differing if row["reason"] == name)
            out.append("")
    out.append(NEWEST)
    out += ["| call | ropeway | rxe |", "|---|---|---|"]
    out += [f"| `{call}` | {ours} | {newest.RXE[call]} |" for call, ours in newest.OURS.items() if ours != newest.RXE[call]]
    out.append("")
    out.append(RUN)
    return "\n".join(out)


def check(probe):
    releases, rows = read_answers()
    wrong = list(wrong_reasons(rows, read_reasons()))
    if PAGE.read_text() != page():
        wrong.append(f"{PAGE.relative_to(ROOT)} is not what the tables give: run tests/differences/run.py --page")
    if probe:
        told = listed(probe)
        wrong += [f"{name}: the program asks it, the table has no such answer, or another text: run tests/differences/run.py --record" for name, what in told.items()
                  if rows.get(name, {}).get("what") != what]
        wrong += [f"{name}: the table has it, the program does not ask it" for name in rows if name not in told]
    print("\n".join(wrong) or f"{len(rows)} questions, measured with {', '.join(f'{name} {release}' for name, release in releases.items())}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="questions whose names begin so")
    parser.add_argument("--lib", default=f"{BUILD}/libropeway-verbs.so")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", nargs="?", const="", default=None, metavar="PROBE")
    parser.add_argument("-v", action="store_true", help="show the guest's console")
    args = parser.parse_args()
    if args.page:
        PAGE.write_text(page())
        return 0
    if args.check is not None:
        return check(args.check)
    return run_guest(args)


if __name__ == "__main__":
    sys.exit(main())
