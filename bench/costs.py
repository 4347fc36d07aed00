"""What a message costs besides time: system calls and sleeps of both sides, counted, not timed. `perf stat` (Debian: linux-perf) counts them without stopping a
process; of two runs, one longer than the other, the difference is taken, so that beginning and end are left out. The copies stand beside, from ARCHITECTURE.md.
"""
import os
import shutil
import tempfile

import report
from processes import RunFailed

KIB = 1 << 10
BEGIN, END = "<!-- bench-costs:begin -->", "<!-- bench-costs:end -->"
SYSCALLS, SLEEPS = "raw_syscalls:sys_enter", "sched:sched_switch"
INTO_LINE, RING, FETCH, WIRE = "2: into the line and out of it", "2: into the ring and out of it", "1, by the kernel, to where it belongs", "3: into the socket and out of it, by the kernel; to where it belongs"
# a payload of up to 1 KiB
WIRE_SHORT = "4: behind its headers; into the socket and out of it, by the kernel; to where it belongs"
# name, program, bytes, ROPEWAY_WIRE, copies of the payload
ROWS = [
    ("lane: SEND 8 B, one at a time", "ib_send_lat", 8, "auto", INTO_LINE),
    ("lane: WRITE 8 B, one at a time", "ib_write_lat", 8, "auto", INTO_LINE),
    ("lane: READ 8 B, one at a time", "ib_read_lat", 8, "auto", FETCH),
    ("lane: SEND 8 B, many", "ib_send_bw", 8, "auto", INTO_LINE),
    ("lane: WRITE 8 B, many", "ib_write_bw", 8, "auto", INTO_LINE),
    ("lane, fetched: SEND 64 KiB", "ib_send_bw", 64 * KIB, "fetch", FETCH),
    ("lane, fetched: WRITE 64 KiB", "ib_write_bw", 64 * KIB, "fetch", "2: into a buffer, by the kernel; upwards to where it belongs"),
    ("lane: READ 64 KiB", "ib_read_bw", 64 * KIB, "auto", FETCH),
    ("lane, copied: SEND 64 KiB", "ib_send_bw", 64 * KIB, "copy", RING),
    ("lane, copied: WRITE 64 KiB", "ib_write_bw", 64 * KIB, "copy", RING),
    ("lane, copied: READ 64 KiB", "ib_read_bw", 64 * KIB, "copy", "3: a snapshot, into the ring, out of it"),
    ("wire: SEND 8 B, one at a time", "ib_send_lat", 8, "udp", WIRE_SHORT),
    ("wire: WRITE 8 B, one at a time", "ib_write_lat", 8, "udp", WIRE_SHORT),
    ("wire: READ 8 B, one at a time", "ib_read_lat", 8, "udp", "5: a snapshot, and these"),
    ("wire: SEND 8 B, many", "ib_send_bw", 8, "udp", WIRE_SHORT),
    ("wire: WRITE 8 B, many", "ib_write_bw", 8, "udp", WIRE_SHORT),
    ("wire: SEND 64 KiB", "ib_send_bw", 64 * KIB, "udp", WIRE),
    ("wire: WRITE 64 KiB", "ib_write_bw", 64 * KIB, "udp", WIRE),
    ("wire: READ 64 KiB", "ib_read_bw", 64 * KIB, "udp", "4: a snapshot, and these"),
]
HEAD = ("What", "Copies of the payload", "System calls: client", "server", "Sleeps: client", "server")


def counted(path):
    """The two counts of one side, from perf stat -x,"""
    found = {}
    with open(path) as f:
        for line in f:
            fields = line.split(",")
            if len(fields) > 2 and fields[2] in (SYSCALLS, SLEEPS):
                try:
                    found[fields[2]] = int(fields[0])
                except ValueError:
                    raise RunFailed(f"perf stat counts no {fields[2]} here ({fields[0]}): this takes root and the kernel's tracepoints") from None
    if len(found) != 2:
        raise RunFailed(f"perf stat said nothing of {SYSCALLS} or {SLEEPS}")
    return found[SYSCALLS], found[SLEEPS]


def one_run(runner, library, folder, program, device, size, wire, n):
    """(system calls, sleeps) of the client, then of the server."""
    port = runner.next_port()
    plain = [program, "-d", device, "-x", "1", "-m", "4096", "-s", str(size), "-n", str(n), "-p", str(port), "-F"]
    paths = [os.path.join(folder, side) for side in ("client", "server")]
    commands = [["perf", "stat", "-x,", "-o", path, "-e", SYSCALLS, "-e", SLEEPS, "--filter", "prev_state != 0", "--", "env", f"LD_PRELOAD={library}", f"ROPEWAY_WIRE={wire}"]
                + plain + to for path, to in zip(paths, (["127.0.0.1"], []))]
    runner.pair(commands[1], commands[0], port, preload=False)
    return counted(paths[0]) + counted(paths[1])


def measure(runner, library, device, quick, only, tell):
    if not shutil.which("perf"):
        raise RunFailed("there is no perf (Debian: apt install linux-perf)")
    rows = []
    with tempfile.TemporaryDirectory(prefix="rpwbench-") as folder:
        for name, program, size, wire, copies in ROWS:
            if only not in name:
                continue
            short = 1000 if size < KIB else 300
            more = (20000 if size < KIB else 4000) // (4 if quick else 1)
            few, many = (one_run(runner, library, folder, program, device, size, wire, n) for n in (short, short + more))
            each = [max(0.0, (b - a) / more) for a, b in zip(few, many)]
            tell(f"{name}: system calls {each[0]:.3f}, {each[2]:.3f}; sleeps {each[1]:.4f}, {each[3]:.4f}")
            rows.append((name, copies, number(each[0]), number(each[2]), number(each[1]), number(each[3])))
    return rows


def number(x):
    return "0" if x < 0.0005 else f"{x:.3f}" if x < 0.1 else f"{x:.2f}"


def text_table(rows):
    return report.aligned([HEAD] + rows, (2, 3, 4, 5))


def markdown_table(rows):
    return "\n".join("| " + " | ".join(line) + " |" for line in [HEAD, ("---", "---", "---:", "---:", "---:", "---:")] + rows)
