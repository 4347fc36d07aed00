#!/usr/bin/python3
"""Does link-sim notice when a rule of the link is broken? Each mutant changes one rule in src/msg/link; the simulator built with it must fail.

Usage: link_mutants.py BUILD [NAME...]. A line for each mutant; exit status 1 if one lives, or does not apply any more.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINK = ROOT / "src/msg/link"

# name: file, what stands there, what the mutant has, options of link-sim
MUTANTS = {
    "counts what is not counted": ("link.h", "if (frame_is_counted(type))", "if (true)"),
    "a frame that the path refused is counted": ("link.c", "if (rc != RPWI_LATER)\n\t\t\tl->group->up->lost(l);\n\t\treturn RPWI_LATER;", "l->tx_count += counted;\n\t\treturn RPWI_LATER;"),
    "nothing is sent again": ("link.c", "l->resending = rpwi_list_empty(&l->log) ? NULL : l->log.next;\n\tl->head_owed", "l->resending = NULL;\n\tl->head_owed"),
    "what came is sent again": ("link.c", "link_acknowledged(l, peer_received);\n\tl->resent", "l->resent"),
    "new frames overtake those that go again": ("link.c", "if (!l->open || l->resending)", "if (!l->open)"),
    "an answer overtakes an older one": ("link.c", "if (rpwi_list_empty(&l->replies) && !link_send(l, &f))", "if (!link_send(l, &f))"),
    "a kept body is given back at once": ("link.c", "k->keep = keep;", "k->keep = keep && !keep->in && k->len & 1 ? NULL : keep;"),
    "an acknowledgement counts one too many": ("link.c", "int16_t more = (int16_t)(h->ack - (uint16_t)l->acked);", "int16_t more = (int16_t)(h->ack + 1 - (uint16_t)l->acked);"),
    "nobody acknowledges": ("link.c", "l->head_owed = true;\n\t\tl->group->up->work(l);", ";", "--seeds", "4000"),  # a seed in 400 notices
    "parts are not told from whole bodies": ("link.c", "h.flags |= l->resent ? FRAME_PARTED : 0;", ""),
    "a part is sent twice": ("link.c", "l->resent += rc ? 0 : most", "l->resent += rc ? 0 : most / 2"),
    "parts of a lost path stay": ("link.c", "l->resending = NULL;\n\tlink_parts_free(l);", "l->resending = NULL;"),
    "credit is not looked at by its receiver": ("link.h", "l->rx_used += units;", ";"),
    "a frame is not charged": ("link.c", "l->tx_used += f->units;", ";"),
    "credit is never told": ("credit.c", "link_say(l, 0);", ";"),
    "a window that closes is not given back": ("link.c", "l->group->pool_free += l->window;", ""),
    "a path that cannot break keeps the log": ("link.c", "link_acknowledged(l, l->tx_count);", ";"),
    "the log's bytes are not counted down": ("link.c", "l->log_bytes -= copied_bytes(k);", ""),
    "more is acknowledged than was sent": ("link.c", "if (count > l->tx_count) {", "if (false) {", "--lies"),
    "parts beyond what was granted": ("link.c", "if (h->tag != now || !len ||", "if (false &&", "--lies"),
}


def lives(build, name):
    """None when the simulator notices, else a sentence."""
    file, old, new, *options = MUTANTS[name]
    with tempfile.TemporaryDirectory() as tmp:
        link = pathlib.Path(tmp) / "msg/link"
        link.mkdir(parents=True)
        for path in LINK.glob("*.[ch]"):
            text = path.read_text()
            if path.name == file:
                if text.count(old) != 1:
                    return f"does not apply: {file} has it {text.count(old)} times"
                text = text.replace(old, new)
            (link / path.name).write_text(text)
        made = subprocess.run([os.environ.get("CC", "cc"), "-w", "-O1", "-D_GNU_SOURCE", "-pthread", f"-I{tmp}", f"-I{ROOT}/src", f"-I{ROOT}/include", f"-I{ROOT}/tests", f"-I{ROOT}",
                               f"{ROOT}/tests/msg/sim/link_sim.c", *map(str, link.glob("*.c")), f"{build}/src/base/libbase.a", "-o", f"{tmp}/sim"], capture_output=True, text=True)
        if made.returncode:
            return "does not compile: " + made.stderr.splitlines()[0]
        # A mutant may crash or run for ever: both are noticed.
        try:
            ran = subprocess.run([f"{tmp}/sim", "--seeds", "400", "--messages", "120", *options], capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return None
        return None if ran.returncode else "lives"


def main():
    build, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or list(MUTANTS)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda n: (n, lives(build, n)), names))
    for name, why in found:
        print(f"{'noticed' if why is None else 'FAILED '}  {name}{'' if why is None else ': ' + why}")
    bad = sum(why is not None for _, why in found)
    print(f"link mutants: {len(found)}, {len(found) - bad} noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
