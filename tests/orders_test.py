#!/usr/bin/python3
"""The orders that memory shared by two processes relies on, on processors that show stores and loads late and out of order (arm64): each as a program of a few lines, of which every execution is looked at; and the same program
without one of its fences, or with a weaker access, of which one execution must go wrong, or the model would show nothing.

The machine is the usual one of views for C11 without load buffering (Kang et al., "A promising semantics for relaxed-memory concurrency", POPL 2017, without promises): memory keeps every store to a place; a thread may read
any that is not older than what it has seen of that place; release and acquire hand over what a thread has seen; sequentially consistent fences hand it to each other. Stores to one place come one after the other, which loses
nothing where each place has one writer, or is taken back by an exchange only.
"""
import unittest

RELAXED, ACQUIRE, RELEASE, SC = "relaxed", "acquire", "release", "seq_cst"


def joined(a, b):
    return {place: max(a.get(place, 0), b.get(place, 0)) for place in a.keys() | b.keys()}


class Machine:
    """One execution; `choose(n)` decides each thing that is not determined."""

    def __init__(self, choose):
        self.choose, self.memory, self.all_fences = choose, {}, {}

    def stores(self, place):
        return self.memory.setdefault(place, [(0, {})])  # value, and what its writer hands over

    def run(self, threads):
        alive = [(t, {"seen": {}, "kept": {}, "handed": {}}, None) for t in (make() for make in threads)]
        results, number = {}, {id(t): i for i, (t, _, _) in enumerate(alive)}
        while alive:
            at = self.choose(len(alive))
            thread, views, value = alive.pop(at)
            try:
                op = thread.send(value)
            except StopIteration as end:
                results[number[id(thread)]] = end.value
                continue
            alive.insert(at, (thread, views, self.step(views, *op)))
        return [results[i] for i in range(len(threads))]

    def step(self, views, what, *args):
        return getattr(self, what)(views, *args)

    def load(self, views, place, order):
        first = views["seen"].get(place, 0)
        at = first + self.choose(len(self.stores(place)) - first)
        value, handed = self.stores(place)[at]
        views["seen"] = joined(views["seen"], {place: at})
        views["kept"] = joined(views["kept"], handed)
        if order == ACQUIRE:
            views["seen"] = joined(views["seen"], handed)
        return value

    def store(self, views, place, value, order):
        at = len(self.stores(place))
        views["seen"] = joined(views["seen"], {place: at})
        self.stores(place).append((value, joined(views["seen"] if order == RELEASE else views["handed"], {place: at})))

    def exchange(self, views, place, value):
        old, handed = self.stores(place)[-1]
        views["kept"] = joined(views["kept"], handed)
        self.store(views, place, value, RELAXED)
        return old

    def fence(self, views, order):
        if order in (ACQUIRE, SC):
            views["seen"] = joined(views["seen"], views["kept"])
        if order == SC:
            views["seen"] = self.all_fences = joined(views["seen"], self.all_fences)
        if order in (RELEASE, SC):
            views["handed"] = views["seen"]


def executions(*threads):
    """What the threads return, of every execution."""
    path = []  # [decision, of how many]
    while True:
        depth = 0

        def choose(n):
            nonlocal depth
            if depth == len(path):
                path.append([0, n])
            depth += 1
            return path[depth - 1][0]

        yield tuple(Machine(choose).run(threads))
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1][0] += 1


def reaches(wrong, *threads):
    return any(wrong(*results) for results in executions(*threads))


# ---- the programs; what a mutant changes is an argument. None as a fence: there is none. ----

def fenced(order):
    if order:
        yield "fence", order


def published(store=RELEASE, load=ACQUIRE, data="slot", flag="seq"):
    """rpwi_lane_writer_publish and rpwi_lane_reader_ready; ring_tx_publish and ring_rx_next: what is in a slot is there when its seq (its word) is. rpwi_copy_up: who sees the last bytes of a line sees those before them."""
    def writer():
        yield "store", data, 1, RELAXED
        yield "store", flag, 1, store

    def reader():
        seen = yield "load", flag, load
        return seen, (yield "load", data, RELAXED)
    return (lambda w, r: r == (1, 0)), writer, reader


def run_of_references(last_first=True):
    """rpwi_lane_writer_publish and run_of: who sees the first of a run sees all."""
    def writer():
        for slot in (2, 1, 0) if last_first else (0, 1, 2):
            yield "store", f"seq{slot}", 1, RELEASE

    def reader():
        first = yield "load", "seq0", ACQUIRE
        second = yield "load", "seq1", ACQUIRE
        return first, second, (yield "load", "seq2", ACQUIRE)
    return (lambda w, r: r[0] and not all(r)), writer, reader


def sleeper(ours=SC, theirs=SC):
    """rpwi_lane_reader_sleeps and rpwi_lane_writer_wakes: nobody sleeps while something is there, unless he is woken. rpwi_lane_writer_stalls and rpwi_lane_reader_tell with rpwi_lane_reader_settle are the same with the roles exchanged."""
    def reader():
        yield "store", "sleeps", 1, RELAXED
        yield from fenced(ours)
        return (yield "load", "seq", ACQUIRE) == 0  # sleeps

    def writer():
        yield "store", "seq", 1, RELEASE
        yield from fenced(theirs)
        if (yield "load", "sleeps", RELAXED):
            return bool((yield "exchange", "sleeps", 0))
        return False
    return (lambda asleep, woken: asleep and not woken), reader, writer


def revocation(ours=SC, theirs=SC):
    """rpwi_lane_writer_revoke_qp and pull_run; board_key_del and board_read: what was fetched after the program had its memory back is known to be of no use. The fetch is a system call between two accesses of the reader; as weak as a relaxed load."""
    def writer():
        yield "store", "revoked", 1, RELAXED
        yield from fenced(ours)
        yield "store", "memory", "later", RELAXED

    def reader():
        fetched = yield "load", "memory", RELAXED
        yield from fenced(theirs)
        return fetched, (yield "load", "revoked", RELAXED)
    return (lambda w, r: r == ("later", 0)), writer, reader


def key_on_board(ours=RELEASE, theirs=ACQUIRE, first=ACQUIRE, last=RELEASE):
    """key_set and region in src/device/board.c: an entry is read as it was before or after, or not at all."""
    def owner():
        yield "store", "turn", 1, RELAXED
        yield from fenced(ours)
        yield "store", "addr", 1, RELAXED
        yield "store", "length", 1, RELAXED
        yield "store", "turn", 2, last

    def reader():
        turn = yield "load", "turn", first
        addr = yield "load", "addr", RELAXED
        length = yield "load", "length", RELAXED
        yield from fenced(theirs)
        again = yield "load", "turn", RELAXED
        return turn % 2 == 0 and turn == again, turn, addr, length
    return (lambda w, r: r[0] and r[2:] != (r[1] // 2, r[1] // 2)), owner, reader


class Orders(unittest.TestCase):
    def holds(self, program, *mutants):
        self.assertFalse(reaches(*program()), "an execution goes wrong")
        for mutant in mutants:
            self.assertTrue(reaches(*program(**mutant)), f"{mutant} goes wrong in no execution: the model shows nothing")

    def test_published(self):
        self.holds(published, {"store": RELAXED}, {"load": RELAXED})

    def test_run_of_references(self):
        self.holds(run_of_references, {"last_first": False})

    def test_sleeper(self):
        self.holds(sleeper, {"ours": None}, {"theirs": None}, {"ours": ACQUIRE}, {"theirs": RELEASE})

    def test_revocation(self):
        self.holds(revocation, {"ours": None}, {"theirs": None})

    def test_key_on_board(self):
        self.holds(key_on_board, {"ours": None}, {"theirs": None}, {"first": RELAXED}, {"last": RELAXED})

    def test_polled_tail(self):
        def polled_tail(**mutant):
            return published(data="first bytes", flag="last bytes", **mutant)
        self.holds(polled_tail, {"store": RELAXED}, {"load": RELAXED})


class TheMachine(unittest.TestCase):
    """What C11 allows and forbids, of programs that everybody knows."""

    def test_stores_are_buffered(self):
        def one(mine, other, fence=None):
            def thread():
                yield "store", mine, 1, RELAXED
                yield from fenced(fence)
                return (yield "load", other, RELAXED)
            return thread
        both_zero = lambda a, b: a == b == 0  # noqa: E731
        self.assertTrue(reaches(both_zero, one("x", "y"), one("y", "x")))
        self.assertFalse(reaches(both_zero, one("x", "y", SC), one("y", "x", SC)))

    def test_a_place_does_not_go_back(self):
        def writer():
            yield "store", "x", 1, RELAXED
            yield "store", "x", 2, RELAXED

        def reader():
            first = yield "load", "x", RELAXED
            return first, (yield "load", "x", RELAXED)
        self.assertFalse(reaches(lambda w, r: r[1] < r[0], writer, reader))

    def test_what_was_handed_over_is_handed_on(self):
        def first():
            yield "store", "x", 1, RELAXED
            yield "store", "y", 1, RELEASE

        def second():
            if (yield "load", "y", ACQUIRE):
                yield "store", "z", 1, RELEASE

        def third():
            z = yield "load", "z", ACQUIRE
            return z, (yield "load", "x", RELAXED)
        self.assertFalse(reaches(lambda a, b, r: r == (1, 0), first, second, third))


if __name__ == "__main__":
    unittest.main(verbosity=2)
