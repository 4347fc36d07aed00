#!/usr/bin/python3
"""Mutants of the device and of the library's transports, which the random models must find.

Usage: mutants.py [--limit SECONDS] [--only WORD] [--keep FOLDER] [--jobs N]

Each mutant is a small change to a source file: a text that must be there exactly once, and what takes its place. The tree is copied and built once; then for each mutant what it touches is built anew,
and the model runs seeds from 1 on until it fails; if it does not, once more on a busy machine. Prints how long that took, and the seed. One that is not found within the limit (90 s of the model's time), or that cannot be applied or built, fails
the run. The unchanged copy must be found good first.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name, file, text, in its place
MUTANTS = [
    ("a WRITE lands 8 bytes behind its second packet's place", "src/rc/responder.c",
     "\tqp->write_va += p->payload_len;\n", "\tqp->write_va += p->payload_len + (last ? 0 : 8);\n"),
    ("a key's bounds are off by one", "src/device/mr.c",
     "addr - k->iova > k->length - len))\n\t\treturn NULL;\n\treturn (uint8_t *)", "addr - k->iova > k->length + 8 - len))\n\t\treturn NULL;\n\treturn (uint8_t *)"),
    ("the rights of a key are not looked at", "src/device/mr.c", "(k->access & access) != access))", "(k->access & access) == 0x1000))"),
    ("an invalidated window stays bound", "src/device/mw.c", "\t\treturn -EACCES;\n\tunbind(k);\n\treturn 0;\n", "\t\treturn -EACCES;\n\treturn 0;\n"),
    ("a FETCH_ADD answers with the new value", "src/device/mr.c",
     "j->orig = __atomic_fetch_add(j->at, j->swap_add, __ATOMIC_SEQ_CST);", "j->orig = __atomic_add_fetch(j->at, j->swap_add, __ATOMIC_SEQ_CST);"),
    ("a CMP_SWP swaps always", "src/device/mr.c", "\t\tuint64_t expect = j->compare;\n", "\t\tuint64_t expect = __atomic_load_n(j->at, __ATOMIC_SEQ_CST);\n"),
    ("an ATOMIC WRITE loses its last byte", "src/device/mr.c", "memcpy(&j.value, value, sizeof(j.value));", "memcpy(&j.value, value, sizeof(j.value) - 1);"),
    ("a fence waits for nothing", "src/rc/requester.c", "if ((w->flags & IBV_SEND_FENCE) && qp->rd_head != qp->rd_tail)", "if ((w->flags & IBV_SEND_FENCE) && !qp->sq_tail && qp->rd_head != qp->rd_tail)"),
    ("an unsignaled request completes", "src/rc/finish.c", "if (!qp->sig_all && !(w->flags & IBV_SEND_SIGNALED))", "if (!qp->sig_all && !(w->flags & IBV_SEND_SIGNALED) && w->len != 33)"),
    ("the last flush of a send queue is forgotten", "src/rc/finish.c", "\t\trpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_WR_FLUSH_ERR);\n\tqp->sq_cur = qp->sq_head;",
     "\t\tif (qp->sq_head + 1 != qp->sq_tail)\n\t\t\trpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_WR_FLUSH_ERR);\n\tqp->sq_cur = qp->sq_head;"),
    ("receives are flushed one short", "src/rc/finish.c", "\t\twhile (rpwi_rq_count(rq))\n", "\t\twhile (rpwi_rq_count(rq) > 1)\n"),
    ("a receive that was begun is not flushed", "src/rc/finish.c", "\t\tflush_recv(qp, qp->rcv.wr_id);\n\t}\n\tif (!rq->shared) {", "\t\tif (rq->shared)\n\t\t\tflush_recv(qp, qp->rcv.wr_id);\n\t}\n\tif (!rq->shared) {"),
    ("byte_len of a WRITE with immediate is that of its last packet", "src/rc/responder.c", "\t\trpwi_rcv_done(qp, p, qp->write_len);\n", "\t\trpwi_rcv_done(qp, p, p->payload_len);\n"),
    ("a SEND with invalidate says nothing of the key", "src/rc/rcv.c", "\t\twc.invalidated_rkey = p->inv_rkey;\n", "\t\twc.invalidated_rkey = 0;\n"),
    ("the immediate of a message of 8 bytes is odd", "src/rc/rcv.c", "\t\twc.imm_data = p->imm_be;\n", "\t\twc.imm_data = p->imm_be | (byte_len == 8);\n"),
    ("the second piece of a receive begins one byte late", "src/rc/rcv.c", "\t\tif (r->sge_off == s->length) {\n\t\t\tr->sge_i++;\n\t\t\tr->sge_off = 0;\n", "\t\tif (r->sge_off == s->length) {\n\t\t\tr->sge_i++;\n\t\t\tr->sge_off = len && len == r->sge[r->sge_i].length + 0u ? 0 : len > 600;\n"),
    ("a look ahead forgets where a receive's pieces end", "src/rc/rcv.c", "\tif (p->payload_len > at->left || !at->nsge || p->payload_len > at->sge->length - at->off)\n", "\tif (p->payload_len > at->left || !at->nsge)\n"),
    ("a look ahead outlives its QP (X1)", "src/device/receive.c", "\tif (first)\n\t\tplaces.qp = NULL;\n", "", "\tif (places.qp == &q->t)\n\t\tplaces.qp = NULL;\n", ""),
    ("a CQ gives a completion twice", "src/device/poll.c", "\tatomic_store_explicit(&cq->head, head + (uint32_t)got, memory_order_release);\n\tcq_unlock(cq);\n\treturn got;", "\tatomic_store_explicit(&cq->head, head + (uint32_t)got - (got == 7), memory_order_release);\n\tcq_unlock(cq);\n\treturn got;"),
    ("a CQ forgets others' completions with a QP's", "src/device/cq.c", "\t\tif (wc->qp_num == qpn)\n\t\t\tcontinue;\n\t\tif (cq->stamps)", "\t\tif (wc->qp_num == qpn || i + 1 == tail)\n\t\t\tcontinue;\n\t\tif (cq->stamps)"),
    ("the end of a lane's bulk area is not seen", "src/io/lane_ring.c", "\tif (at + (uint64_t)len > LANE_BULK_BYTES) {\n", "\tif (at + (uint64_t)len > LANE_BULK_BYTES + 64) {\n"),
    ("a lane takes a piece of 5 bytes from the first one's place", "src/io/lane_ring.c", "\t\t\trpwi_copy_small(to, parts[i].base, parts[i].len);\n\t\telse\n\t\t\trpwi_copy(to, parts[i].base, parts[i].len);\n", "\t\t\trpwi_copy_small(to, parts[i].len == 5 ? parts[0].base : parts[i].base, parts[i].len);\n\t\telse\n\t\t\trpwi_copy(to, parts[i].base, parts[i].len);\n"),
    ("a reference to a QP that ends is not revoked", "src/io/lane_ring.c", "\t\t\tatomic_store_explicit(said, LANE_REVOKED, memory_order_relaxed);\n", "\t\t\tatomic_store_explicit(said, len ? LANE_REVOKED : LANE_STANDS, memory_order_relaxed);\n"),
    ("a duplicate is taken once more", "src/rc/responder.c", "\tint32_t ahead = rpwi_psn_diff(p->psn, qp->epsn);\n", "\tint32_t ahead = rpwi_psn_diff(p->psn, qp->epsn);\n\tif (ahead == -1 && rpwi_op_has(rpwi_pkt_op(p), RPWI_F_ATOMIC))\n\t\tqp->epsn--, ahead = 0;\n"),
    ("a gap in the PSNs is passed over", "src/rc/responder.c", "\t} else if (ahead < 0) {\n\t\trx_duplicate(", "\t} else if (ahead == 1 && rpwi_pkt_op(p) == RPWI_OP_WRITE_ONLY) {\n\t\tqp->epsn++;\n\t\trx_expected(qp, p, now_ns);\n\t} else if (ahead < 0) {\n\t\trx_duplicate("),
    ("an answer to a READ of 1024 bytes begins 8 bytes early", "src/rc/responder.c", "\tr->va = r->next_va = p->va;\n\tr->len = r->left = p->dma_len;\n", "\tr->va = r->next_va = p->va - (p->dma_len == 1024 ? 8 : 0);\n\tr->len = r->left = p->dma_len;\n"),
    ("byte_len of a long UC SEND is one less", "src/rc/datagram.c", "\tqp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_SEND;\n\tif (last)\n\t\trpwi_rcv_done(qp, p, qp->rcv.done);\n", "\tqp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_SEND;\n\tif (last)\n\t\trpwi_rcv_done(qp, p, qp->rcv.done - (qp->rcv.done > 5000));\n"),
    ("a datagram's sender is not told", "src/rc/datagram.c", "\t\t.src_qp = p->sqpn,\n", "\t\t.src_qp = p->dqpn,\n"),
    ("the third piece of a receive is that of the second", "src/rc/rq.c", "\t\tw->sge[i] = wr->sg_list[i];\n", "\t\tw->sge[i] = wr->sg_list[i == 2 && wr->sg_list[2].length <= wr->sg_list[1].length ? 1 : i];\n"),
    ("a receive takes one byte more than it has", "src/rc/rq.c", "\tw->len = (uint32_t)RPWI_MIN(len, UINT32_MAX);", "\tw->len = (uint32_t)RPWI_MIN(len + (len > 200), UINT32_MAX);"),
    ("emulate: a second part lands a byte late", "src/tran/emulate_ask.c",
     "\t\t.offset = op->m.offset + op->m.done,\n", "\t\t.offset = op->m.offset + op->m.done + (op->m.done != 0),\n"),
    ("shm: an addition gives the new value as the old one", "src/tran/shm/rma.c",
     "\t\t\t*m->before = before;\n", "\t\t\t*m->before = before + (m->kind == EMULATED_ADD ? m->operand : 0);\n"),
    ("emulate: a flush waits for nothing", "src/tran/emulate_ask.c", "\tif (!e || rpwi_list_empty(&e->ordered)) {\n", "\tif (!ep->closed) {\n"),
    ("shm: a get by copy gives one byte less", "src/tran/shm/rma.c",
     "\t\tcopy_long(local, at, n, l->t->base.polled);\n", "\t\tcopy_long(local, at, n - (n > 3000), l->t->base.polled);\n"),
    ("emulate: a short put loses its last byte", "src/tran/emulate_serve.c",
     "emulate_place(t, at, body, a->len)", "emulate_place(t, at, body, a->len - (a->len > 900))"),
    ("tcp: bytes of a body are put 8 bytes late", "src/tran/tcp/tcp_recv.c", "\t\tmemcpy(s->body, from, n);\n", "\t\tmemcpy(s->body + (n > 16 && n < s->body_left ? 8 : 0), from, n);\n"),
    ("verbs: a short get gives one byte less", "src/tran/verbs/verbs_op.c", "rpwi_copy_up(op->local, op->slot->buf, op->len);", "rpwi_copy_up(op->local, op->slot->buf, op->len - (op->len > 200));"),
    ("verbs: an offset counts from the wrong end", "src/tran/verbs/verbs_rma.c", "\t*addr = get_le64(d + 8) + offset;\n", "\t*addr = get_le64(d + 8) + (len == 8 ? offset : size - len > offset ? offset : offset - 1);\n"),
    ("emulate: a short get gives one byte less", "src/tran/emulate_ask.c",
     "emulate_place(ep->tran, c->local, body, len))", "emulate_place(ep->tran, c->local, body, len - (len > 700)))"),
    ("tcp: bulk data that is not checked begins a byte late", "src/tran/tcp/tcp_bulk.c",
     "\ts->body = b ? b->buf : NULL;\n", "\ts->body = b ? b->buf + !b->checked : NULL;\n"),
    ("verbs: a frame of several pieces loses a byte of the second", "src/tran/verbs/verbs_frame.c",
     "\t\tmemcpy(out, iov[i].iov_base, iov[i].iov_len);\n", "\t\tmemcpy(out, iov[i].iov_base, iov[i].iov_len - (i == 1 && iov[i].iov_len > 90));\n"),
    ("shm: a second piece is copied over the first", "src/tran/shm/ep.c", "\t\t\t\trpwi_copy(body_at, iov[i].iov_base, n);\n", "\t\t\t\trpwi_copy(body_at, iov[i ? i - (n > 80) : 0].iov_base, n);\n"),
]


def apply(folder, mutant):
    """The file as it was, or None after a word of what is wrong."""
    path = folder / mutant[1]
    was = text = path.read_text()
    for what, instead in zip(mutant[2::2], mutant[3::2]):
        if text.count(what) != 1:
            print(f"FAILED: {mutant[0]}: its text is {text.count(what)} times in {mutant[1]}")
            return None
        text = text.replace(what, instead)
    path.write_text(text)
    return was


def build(folder, jobs):
    return subprocess.run(["ninja", f"-j{jobs}", "-C", folder / "build", "tests/model/model", "tests/model/model_library"], capture_output=True, text=True)


def run(folder, seconds, library=False):
    """Seconds until the first failure (None: there was none), and its line. The library's transports have a model of their own."""
    began = time.monotonic()
    words = ["model_library"] if library else ["model", "--deadline", "6", "--no-shrink"]
    try:
        done = subprocess.run([folder / "build/tests/model" / words[0], "--seeds", "1000000", "--from", "1", "--ops", "3000", "--seconds", str(seconds), *words[1:]],
                              capture_output=True, text=True, cwd=folder, timeout=seconds + 100)
    except subprocess.TimeoutExpired:
        return None, "it did not end"
    took = time.monotonic() - began
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return (took, failed[0]) if failed else (None, done.stdout[-300:] + done.stderr[-300:])


BUSY = "while :; do :; done"


def run_busy(folder, seconds, library):
    """The same with two busy processes beside it: some mistakes need one side to be late. The scripts that found something once come first."""
    busy = [subprocess.Popen(["sh", "-c", BUSY]) for _ in range(2)]
    try:
        took, line = run_seeds(folder, seconds) if not library else (None, "")
        return (took, line) if took is not None else run(folder, seconds, library)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_seeds(folder, seconds):
    began = time.monotonic()
    done = subprocess.run([folder / "build/tests/model/model", "--times", "60", "--no-shrink", "--folder", ROOT / "tests/model/seeds"], capture_output=True, text=True, cwd=folder, timeout=seconds + 100)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return (time.monotonic() - began, failed[0]) if failed else (None, "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=90)
    parser.add_argument("--calm", type=int, default=30, help="so long the unchanged device must be good")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="mutants."))
    folder.mkdir(parents=True, exist_ok=True)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        to = folder / name
        if (ROOT / name).is_file() and not (to.is_file() and to.read_bytes() == (ROOT / name).read_bytes()):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to)
    if not (folder / "build").is_dir():
        # not optimized as a whole: a mutant is built in seconds
        subprocess.run(["meson", "setup", folder / "build", folder, "-Dbuildtype=debugoptimized"], check=True, capture_output=True)
    made = build(folder, args.jobs)
    if made.returncode:
        print(made.stdout[-2000:])
        print("0 passed, 1 failed")
        return 1
    passed = failed = 0
    if args.calm:
        for library in False, True:
            took, line = run(folder, args.calm, library)
            if took is not None:
                print(f"FAILED: unchanged: {line}")
                failed += 1
    for mutant in MUTANTS:
        if args.only and not re.search(args.only, mutant[0]):
            continue
        was = apply(folder, mutant)
        if was is None:
            failed += 1
            continue
        made = build(folder, args.jobs)
        if made.returncode:
            print(f"FAILED: {mutant[0]}: it does not compile\n{made.stdout[-1500:]}")
            failed += 1
        else:
            library = mutant[1].startswith("src/tran/")
            took, line = run(folder, args.limit / 3, library)
            if took is None:
                took, line = run_busy(folder, args.limit / 3, library)
                took = took and took + args.limit / 3
            if took is None:
                print(f"FAILED: {mutant[0]}: not found in {args.limit} s: {line}")
                failed += 1
            else:
                seed = re.search(r"seed (\d+) wire (\w+)", line)
                print(f"{took:6.1f} s  seed {seed[1]:>4} {seed[2]:5}  {mutant[0]} ({mutant[1]})", flush=True)
                passed += 1
        (folder / mutant[1]).write_text(was)
    if not args.keep:
        shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
