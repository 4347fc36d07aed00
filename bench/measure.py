"""The order of the runs, and what is made of them.

A machine's speed moves with time (other tenants, where the host places the cores), so ours is always between two references: R O R O R.
Each figure of ours is divided by the mean of the references on either side of it; the ratio of a row is the median of these over the rounds,
and the two figures shown are medians of their own. Nothing is discarded.
"""
from statistics import median

from processes import RunFailed

FAILURES_MAX = 2  # then a case is left out of the rounds that remain: each may cost a deadline


def measure(groups, rounds, tell):
    seen = {(id(g), name): [] for g in groups for name in g.references}
    for number in range(1, rounds + 1):
        for group in groups:
            tell(f"round {number} of {rounds}: {group.name}")
            measure_group(group, seen, tell)
    return [row(group, case, goal) for group in groups for case in group.cases for goal in case.goals]


def measure_group(group, seen, tell):
    cases = [case for case in group.cases if len(case.failures) < FAILURES_MAX]
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
        if ours is not None:
            keep(case, ours, before, after)
            tell(f"  {case.name}: {ours:.2f} {case.unit}; " + ", ".join(f"{name} {value:.2f}" for name, value in after.items() if name in wanted([case])))
        before = after


def wanted(cases):
    return {goal.reference for case in cases for goal in case.goals}


def reference_figures(group, cases):
    return {name: run() for name, run in group.references.items() if name in wanted(cases)}


def keep(case, ours, before, after):
    for goal in case.goals:
        case.rows.setdefault(goal.reference, []).append((ours, (before[goal.reference] + after[goal.reference]) / 2))


def row(group, case, goal):
    pairs = case.rows.get(goal.reference, [])
    result = {"group": group.name, "name": case.name, "unit": case.unit, "reference_name": goal.reference, "goal": goal.text(), "samples": pairs}
    if not pairs:
        return dict(result, ours=None, reference=None, ratio=None, verdict="failed", why=case.failures[-1] if case.failures else "not run")
    ratio = median(ours / reference for ours, reference in pairs)
    result |= {"ours": median(ours for ours, _ in pairs), "reference": median(reference for _, reference in pairs), "ratio": ratio,
               "verdict": "pass" if goal.met(ratio) else "short"}
    if case.failures:
        result["why"] = f"{len(case.failures)} run(s) failed: {case.failures[-1]}"
    return result
