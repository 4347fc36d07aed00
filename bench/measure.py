"""The order of the runs, and what is made of them.

A machine's speed moves with time (other tenants, where the host places the cores), so ours is always between two references: R O R O R.
Each figure of ours is divided by the mean of the references on either side of it. The bare cache line is measured before the first and after the second: a
round in which it moved is dropped, the others are told apart by it (placement.py). The ratio of a row is the median over the rounds of one bin, and the two
figures shown are medians of their own.
"""
from statistics import median

import placement
from processes import RunFailed

FAILURES_MAX = 2  # then a case is left out of the rounds that remain: each may cost a deadline


def chosen(groups, only):
    """The cases whose names have `only` in them."""
    for group in groups:
        group.cases = [case for case in group.cases if only in case.name]
    return [group for group in groups if group.cases]


def measure(groups, rounds, tell, line=placement.never):
    for number in range(1, rounds + 1):
        for group in groups:
            tell(f"round {number} of {rounds}: {group.name}")
            measure_group(group, tell, line)
    return [row for group in groups for case in group.cases for goal in case.goals for row in rows(group, case, goal)]


def measure_group(group, tell, line=placement.never):
    cases = [case for case in group.cases if len(case.failures) < FAILURES_MAX]
    line_before = line()
    before = reference_figures(group, cases[:1])
    for at, case in enumerate(cases):
        try:
            ours = case.run()
        except RunFailed as e:
            case.failures.append(str(e))
            tell(f"  {case.name}: {e}")
            ours = None
        # The one after it serves the next case too, so it also measures what that one is to be compared with.
        after = reference_figures(group, cases[at:at + 2])
        line_after = line()
        if ours is not None:
            keep(case, ours, before, after, (line_before, line_after))
            tell(f"  {case.name}: {ours:.2f} {case.unit}; " + ", ".join(f"{name} {value:.2f}" for name, value in after.items() if name in wanted([case]))
                 + line_text(line_before, line_after))
        before, line_before = after, line_after


def line_text(before, after):
    if before is None or after is None:
        return ""
    return f"; line {before:.0f}, {after:.0f} ns" + (": moved, dropped" if placement.moved(before, after) else "")


def wanted(cases):
    return {goal.reference for case in cases for goal in case.goals}


def reference_figures(group, cases):
    return {name: run() for name, run in group.references.items() if name in wanted(cases)}


def keep(case, ours, before, after, lines):
    for goal in case.goals:
        case.rows.setdefault(goal.reference, []).append((ours, (before[goal.reference] + after[goal.reference]) / 2, *lines))


def rows(group, case, goal):
    """One for each bin that was met."""
    head = {"group": group.name, "name": case.name, "unit": case.unit, "reference_name": goal.reference, "goal": goal.text()}
    return binned(head, case.rows.get(goal.reference, []), goal.met, case.failures)


def binned(head, rounds, met, failures=()):
    """Rows of (ours, reference, line before, line after): `met` says of a ratio whether it reaches the goal; None: there is none."""
    head = dict(head, samples=rounds)
    good, dropped = placement.kept(rounds)
    said = [f"{dropped} of {len(rounds)} rounds dropped: the bare line moved by more than {placement.MOVED:.0%}"] if dropped else []
    said += [f"{len(failures)} run(s) failed: {failures[-1]}"] if failures and rounds else []
    head |= {"dropped": dropped, "rounds": 0, "bin": "-", "unsteady": True}
    if said:
        head["why"] = "; ".join(said)
    if not good:
        verdict = "unsteady" if rounds else "failed"
        why = head.get("why") or (failures[-1] if failures else "not run")
        return [dict(head, ours=None, reference=None, ratio=None, verdict=verdict, why=why)]
    return [bin_row(head, number, some, len(good) + dropped, met) for number, some in placement.by_bin(good).items()]


def bin_row(head, number, rounds, of, met):
    ratios = [r[0] / r[1] for r in rounds]
    ratio = median(ratios)
    lines = [(r[2] + r[3]) / 2 for r in rounds if r[2] is not None]
    return dict(head, ours=median(r[0] for r in rounds), reference=median(r[1] for r in rounds), ratio=ratio, bin=placement.bin_name(number), rounds=len(rounds), rounds_of=of,
                line_ns=median(lines) if lines else None, spread=placement.spread(ratios), unsteady=placement.unsteady(ratios),
                verdict="" if met is None else "pass" if met(ratio) else "short")
