"""How near the two cores stand, and which rounds may be compared: the bare cache line before and after each round.

A host moves virtual cores: the same pair of CPU numbers was 20, 60, 110 and 250 ns apart within minutes. So a round in which the line moved is dropped, the rest
are put into bins by it, and each bin makes a row of its own.
"""
import math
import pathlib
from statistics import median, quantiles

MOVED = 0.2       # of the shorter one: a round in which the line moved further is dropped
ROUNDS_LEAST = 3  # fewer in a bin say little
SPREAD = 0.25     # of the median: a wider middle half of the ratios is unsteady
FAR_NS, NEAR_NS = 128, 32  # from, below


def moved(before, after):
    """Did the line move within a round? True also where only one of the two could be measured."""
    if before is None or after is None:
        return before is not after
    return max(before, after) > min(before, after) * (1 + MOVED)


def bin_of(ns):
    """The power of two at or below; None: the line was not measured."""
    return None if ns is None else math.floor(math.log2(max(ns, 1)))


def bin_name(number):
    if number is None:
        return "-"
    low = 2 ** number
    return f"{'near' if low < NEAR_NS else 'far' if low >= FAR_NS else 'middle'}, {low}–{low * 2 - 1} ns"


def kept(rounds):
    """Of (ours, reference, line before, line after): those in which the line held, and how many were dropped."""
    good = [r for r in rounds if not moved(r[2], r[3])]
    return good, len(rounds) - len(good)


def by_bin(rounds):
    """{bin: rounds}, the fullest first. A round belongs where the mean of its two lines is."""
    bins = {}
    for r in rounds:
        bins.setdefault(bin_of(None if r[2] is None else (r[2] + r[3]) / 2), []).append(r)
    return dict(sorted(bins.items(), key=lambda item: -len(item[1])))


def spread(ratios):
    """The middle half, as a part of the median."""
    if len(ratios) < 2:
        return 0.0
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return (high - low) / median(ratios)


def unsteady(ratios):
    return len(ratios) < ROUNDS_LEAST or spread(ratios) > SPREAD


def members(text):
    """The numbers of a list as sysfs has it: 0-3,8."""
    found = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            found |= set(range(int(low), int(high or low) + 1))
    return found


def sharing(a, b, root="/sys/devices/system/cpu"):
    """What the kernel says that two CPUs share. In a virtual machine that is what the host made up."""
    cpu = pathlib.Path(root) / f"cpu{a}"

    def text(path):
        try:
            return path.read_text()
        except OSError:
            return ""

    siblings = text(cpu / "topology" / "thread_siblings_list")
    if not siblings.strip():
        return "unknown"
    if b in members(siblings):
        return "SMT siblings"
    if any(text(cache / "level").strip() == "3" and b in members(text(cache / "shared_cpu_list")) for cache in sorted((cpu / "cache").glob("index*"))):
        return "same L3"
    return "other"


class Meter:
    """Asks bench/line between two cores; keeps what it met. `figure` gives nanoseconds, or raises `failed`."""

    def __init__(self, cores, figure, failed=()):
        self.cores, self.figure, self.failed, self.met = cores, figure, failed, []

    def __call__(self):
        try:
            ns = self.figure()
        except self.failed:
            return None
        self.met.append(ns)
        return ns

    def placements(self):
        """A dict for each bin that was met, near before far."""
        bins = {}
        for ns in self.met:
            bins.setdefault(bin_of(ns), []).append(ns)
        a, b = self.cores
        return [{"cpus": [a, b], "sharing": sharing(a, b), "bin": bin_name(number), "line_ns": median(all_ns), "least_ns": min(all_ns), "most_ns": max(all_ns), "looks": len(all_ns)}
                for number, all_ns in sorted(bins.items())]


def never():
    """Stands in for a meter where no line can be measured, as in a guest."""
    return None


def placements_text(found):
    if not found:
        return "The bare cache line was not measured."
    a, b = found[0]["cpus"]
    met = "; ".join(f"{p['line_ns']:.0f} ns ({p['bin']}; {p['least_ns']:.0f} to {p['most_ns']:.0f}) in {p['looks']}" for p in found)
    return f"CPUs {a} and {b}, {found[0]['sharing']} by sysfs. Bare cache line, half a round trip, by looks: {met}."
