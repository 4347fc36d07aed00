#!/usr/bin/python3
"""Each rule of the checker broken by hand, and the planted case that notices: a change that no case notices is no test, and a rule without a mutant fails.

Usage: mutants.py [--part N/M] [WORD...]     those whose file, text or case has one of these words, of these every M-th; all without

A mutant is a scratch copy of the sources with one text replaced, built, and run with one case of the planted programs. The case must fail: that it passes unchanged is planted_test.py's. The last line is "N passed, N failed".
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What the test of a case needs; first those that a mutant may change.
PRELOAD, HOOKS = "libropeway-verbs.so.0", "libropeway-check.so.0"
TESTS = {
    "planted": (["planted_test.py"], [PRELOAD, HOOKS, "tests/check/planted"]),
    "plugin": (["planted_test.py", "--plugin"], ["libnccl-net-ropeway-trace.so", "tests/check/libplugin_fake.so", "tests/check/planted_plugin"]),
    "rpw": (["planted_test.py", "--rpw"], ["libropeway.so.0", "tests/check/planted_rpw"]),
    "first": (["first_cause_test.py"], ["ropeway", PRELOAD, "tests/check/planted", "rdma-send-recv-server", "rdma-send-recv-client"]),
}

# file, the text that is there once, what it becomes, the case that must notice
MUTANTS = (
    ("src/check/queue.c", "if (!q->failed || q->posts_since++ != 1)", "if (true)", "error-ignored"),
    ("src/check/queue.c", "if (w->phase != CHECK_DONE || w->status == IBV_WC_SUCCESS ||", "if (true || w->status == IBV_WC_SUCCESS ||", "error-unread"),
    ("src/check/queue.c", "bool never = first == at(&q->sq, q->sq.head);", "bool never = false;", "never-signaled"),
    ("src/check/queue.c", "if (!rc && q->sq.tail - q->sq.head > q->sq.max) {", "if (false) {", "sq-overflow"),
    ("src/check/queue.c", "if (q && of->tail - of->head > of->max) {", "if (false) {", "rq-overflow"),
    ("src/check/queue.c", "if (!cq || ++cq->outstanding <= cq->cqe)", "if (!cq || ++cq->outstanding)", "cq-small"),
    ("src/check/queue.c", "else if (w->len > q->asked.max_inline_data)", "else if (false)", "inline-luck"),
    ("src/check/queue.c", "if (nsge > (int)RPWI_MAX(asked, 1u))", "if (false)", "sge-luck"),
    ("src/check/queue.c", "if (of->ids_told || *id_count(of, w->wr_id) < 2)", "if (true)", "wr-id-twice"),
    ("src/check/queue.c", "\t\tlook_for_change(q, w, RPWI_RULE_BUFFER_CHANGED,\n\t\t\t\"when the peer had acknowledged all of them\");", "\t\t;", "buffer-changed"),
    ("src/check/queue.c", "look_for_change(q, w, RPWI_RULE_BUFFER_CHANGED_LATE, \"when their completion was polled\");", "", "buffer-changed-late"),
    ("src/check/cause.c", "if (!is(&l->e[cause], LEFT))", "if (true)", "first-cause"),
    ("src/check/cause.c", "return !has(l, x, BIT(RECEIVED), i);", "return true;", "first-cause"),
    ("src/check/race.c", "return (ended && b->was.clock[a->was.proc] >= ended) || knows_taken(b, a->of);", "return true;", "race-writes"),
    ("src/check/race.c", "(ended && b->was.clock[a->was.proc] >= ended) ||", "ended ||", "race-processes"),
    ("src/check/race.c", "race.clock[i] = RPWI_MAX(race.clock[i], e->clock[i]);", ";", "race-processes"),
    ("src/ncclnet/trace/state.c", "if (o && o->v != c->v)", "if (false)", "plugin-version"),
    ("src/ncclnet/trace/state.c", "else if (before->hash != now)", "else if (false)", "plugin-handle"),
    ("src/ncclnet/trace/state.c", "if (o->comm != comm && !(d && d->is_global))", "if (false)", "plugin-mhandle"),
    ("src/ncclnet/trace/state.c", "del(REQUEST, request);", "", "plugin-request"),
    ("src/ncclnet/trace/state.c", "if (o->m.at && (at < o->m.at", "if (false && (at < o->m.at", "plugin-memory"),
    ("src/ncclnet/trace/state.c", "else if ((size_t)sizes[i] > o->r.room[i])", "else if (false)", "plugin-size"),
    ("src/ncclnet/trace/state.c", "if (comm->c.thread && comm->c.thread != me)", "if (false)", "plugin-thread"),
    ("src/ncclnet/trace/state.c", "(o->c.requests || o->c.regs))", "false)", "plugin-close"),
    ("src/ncclnet/trace/state.c", "if (sizes[i] < 0)", "if (false)", "plugin-result"),
    ("src/ncclnet/trace/state.c", "++comm->c.requests == most + 1)", "!++comm->c.requests)", "plugin-requests"),
    ("src/msg/checked.c", "sum(r, &now) && now != h->sum) {", "sum(r, &now) && false) {", "rpw-buffer"),
    ("src/msg/checked.c", "if (h->c == c && h->r->held) {", "if (false) {", "rpw-leak"),
    ("src/msg/checked.c", "if (check_sum(crc, 0, data, s->len) != s->sum)", "if (false)", "rpw-loan"),
    ("src/msg/loan.c", "if (RPWI_UNLIKELY(rpwi_check_on) && own.n)", "if (false)", "rpw-loan-left"),
    ("src/msg/owner.c", "\tchecked_thread(c, before, self);", "\t;", "rpw-thread"),
    ("src/check/late.c", "if (rpwi_rq_count(q->t->rq) || !of->ring)", "if (true)", "recv-late-apart"),
    ("src/check/late.c", "q->order.looking = looks = true;", "looks = false;", "recv-late-by-little"),
    ("src/check/late.c", "\tif (q->order.late_ns)\n\t\tlate_in_vain(q, \"\");", "", "recv-late-never"),
    ("src/check/late.c", "q->srq ? &q->srq->q : &q->rq;\n\t/* a fault", "&q->rq;\n\t/* a fault", "recv-late-shared"),
    ("src/check/late.c", "first ? RPWI_RULE_RECV_LATE : RPWI_RULE_RECV_RAN_OUT", "RPWI_RULE_RECV_LATE", "recv-ran-out"),
    ("src/check/late.c", "now_ns - o->rnr_ns < VAIN_NS", "true", "rnr-forever"),
    ("src/check/late.c", "if (cq && !cq->overran)", "if (false)", "cq-overrun"),
    ("src/check/late.c", "if (p->dqpn == RPWI_MCAST_QPN)\n\t\treturn;", ";", "recv-late-group"),
    ("src/check/late.c", "if (p->dqpn == RPWI_MCAST_QPN) /* what", "if (false) /* what", "recv-short-group"),
    ("src/check/late.c", "if (cq && solicited)", "if (cq)", "solicited-never"),
    ("src/check/late.c", " || cq->polls >= CHECK_POLLS)", ")", "solicited-polled"),
    ("src/device/mw.c", "\t\tcheck_window_gone(mw->k.key, &rpwi_check_site);", "\t\t;", "key-stale-window"),
    ("src/check/order.c", "sends->order.sq_psn == receives->order.rq_psn", "true", "psn-mismatch"),
    ("src/check/order.c", "q->t->mtu == p->t->mtu", "true", "mtu-mismatch"),
    ("src/check/order.c", "!check_qpn_was(t->attr.dest_qp_num)", "false", "qpn-mismatch"),
    ("src/check/order.c", "p && p->order.rtr && p->t->attr.dest_qp_num != t->qpn;", "false;", "qpn-mismatch-other"),
    ("src/check/order.c", "!a->timeout && !by_cm", "false", "timeout-0"),
    ("src/check/order.c", "!a->retry_cnt && (!by_cm || active)", "false", "retry-0"),
    ("src/check/order.c", "!(a->min_rnr_timer & 0x1f) && !by_cm", "false", "min-rnr-0"),
    ("src/check/order.c", "q->t->attr.max_rd_atomic <= p->t->attr.max_dest_rd_atomic", "true", "rd-atomic"),
    ("src/check/order.c", "n <= max || !check_tells(q, RPWI_RULE_READS_BEYOND)", "true", "reads-beyond"),
    ("src/check/order.c", "max ? RPWI_RULE_READS_BEYOND : RPWI_RULE_READS_NONE", "RPWI_RULE_READS_BEYOND", "reads-none"),
    ("src/check/order.c", "qkey_told(q, p, from);", "break;", "qkey"),
    ("src/check/order.c", "if (!nothing_accepted(q) || probe ||", "if (true || probe ||", "psn-mismatch-apart"),
    ("src/check/order.c", "\t\tcheck_flags_refuse(q, p);\n", "", "qp-access"),
    ("src/check/order.c", "\t\tcheck_sends_missed(q);\n", "", "reset-drops-send"),
    ("src/check/life.c", "if (!destroyed)\n\t\tcheck_drops(q);", "", "reset-drops"),
    ("src/check/queue.c", "\tq->dropped.recvs = 0;\n", "", "reset-drops"),
    ("src/check/late.c", "\t\tno_room(q, p);", "\t\t;", "recv-short"),
    ("src/check/queue.c", "w->len >= RPWI_GRH_LEN ||", "true ||", "recv-short-post"),
    ("src/check/queue.c", " || q->t->state == IBV_QPS_ERR)", ")", "recv-short-post"),
    ("src/check/order.c", "\t\tpsn_ahead(q, p);\n", "", "psn-ahead-apart"),
    ("src/check/order.c", "(last ? each <= q->t->mtu : !is_mtu)", "true", "mtu-mismatch-apart"),
    ("src/check/order.c", "\t\trefuses_read(q);\n", "", "rd-atomic-apart"),
    ("src/check/owned.c", "if (!f->bad && v->addr != addr && v->read == f->read)", "if (false)", "buffer-reposted"),
    ("src/check/owned.c", "from -= from > 0;", "", "reads-overlap"),
    ("src/check/overlap.c", "if (RPWI_UNLIKELY(f.first))\n", "if (false)\n", "buffer-shared"),
    ("src/check/overlap.c", "if (!writes && of->shares_told)", "if (!writes)", "send-from-receive"),
    ("src/check/queue.c", "if (answer && (!early || rule == RPWI_RULE_BUFFER_CHANGED_LATE))", "if (false)", "answer-in-place"),
    ("src/check/queue.c", "if (answer && (!early || rule", "if (answer && (rule", "answer-unacked"),
    ("src/check/access.c", "check_qps_each(lose_sends, &(struct lost){key});", "", "mr-in-use"),
    ("src/check/access.c", "bool after = !a->remote && k->gone_ns > a->since_ns;", "bool after = false;", "mr-in-use-recv"),
    ("src/check/access.c", "bool after = !a->remote && k->gone_ns > a->since_ns;", "bool after = true;", "key-stale"),
    ("src/check/access.c", "if (a->pd && r->pd && a->pd != r->pd)", "if (false)", "key-pd"),
    ("src/check/access.c", "const char *right = right_name(a->access & ~r->access);", "const char *right = NULL;", "key-access"),
    ("src/check/access.c", "f->rule = RPWI_RULE_KEY_BOUNDS;", "", "key-bounds"),
    ("src/device/board.c", "if (key == rkey)\n\t\treturn BOARD_TELLS_REGION;", "", "key-bounds-asks"),
    ("src/device/board.c", "return key ? BOARD_TELLS_NOTHING : BOARD_TELLS_NONE;", "return BOARD_TELLS_NOTHING;", "key-unknown-asks"),
    ("src/check/keys.c", "keys.gone[keys.gones++ % CHECK_GONE] =", "keys.gone[keys.gones % CHECK_GONE] =", "key-stale-answers"),
    ("src/device/checked_mem.c", "if (rc)\n\t\trefuses(t, g->rkey", "if (false)\n\t\trefuses(t, g->rkey", "key-unknown-peer"),
    ("src/check/freed.c", "check_qps_each(lose_sends, &b);", "", "memory-freed"),
    ("src/check/freed.c", "check_owners_each(v->addr, v->len, lose, v);", ";", "memory-freed-recv"),
    ("src/check/freed.c", "check_keys_each(v->addr, v->len, mark, &n);", "", "memory-unmapped"),
    ("src/check/freed.c", "check_keys_each(v->addr, v->len, mark, &n);", "", "memory-unmapped-peer"),
    ("src/device/checked_mem.c", "if (rc && left)", "if (false)", "mw-left"),
    ("src/device/mr.c", "check_window_left(0, mr->k.key, false);", ";", "mw-left-region"),
    ("src/check/forked.c", "if (ready || !old_kernel)", "if (true)", "fork-registered"),
    ("src/check/forked.c", "check_objects_inherit();", "", "child-uses"),
    ("src/device/ah.c", 'check_gid_refused(gi, "is empty, and the call fails");', ";", "gid-type"),
    ("src/device/cq.c", "\tif (left)\n", "\tif (left > 1)\n", "events-unacked"),
    ("src/device/cq.c", "while (!rc && ibv->comp_events_completed != got)", "while (false)", "events-unacked"),
    ("src/check/events.c", "cq->polled_empty && cq->outstanding && !a->pending", "false", "armed-late"),
    ("src/check/events.c", "cq->polled_empty = empty;\n\t\tcq->risky = false;", "cq->polled_empty = empty;", "armed-late"),
    ("src/check/events.c", "cq->unheard = a->pending ? 0 : a->left;", "", "polled-in-part"),
    ("src/check/events.c", "cq->unheard -= empty ? cq->unheard : RPWI_MIN(cq->unheard, n);", "", "polled-in-part"),
    ("src/check/late.c", "\tcheck_unheard_tick(cq, *(uint64_t *)awake_ns);\n", "", "polled-in-part-poll"),
    ("src/check/events.c", "late(cq, \"the event was waited for, and taken here\");", "", "armed-late-poll"),
    ("src/check/events.c", "if (cq && a->already)", "if (cq && a->already && a->pending)", "armed-twice"),
    ("src/device/checked.c", "(solicited && cq->notify == NOTIFY_SOLICITED)", "cq->notify == NOTIFY_SOLICITED", "armed-twice"),
    ("src/check/race.c", "\tcheck_qps_each(own_look,", "\tif (false)\n\t\tcheck_qps_each(own_look,", "race-send"),
    ("src/check/race.c", "!is_over(q, w, r->b))", "true)", "race-send"),
    ("src/check/queue.c", "\t\trace_came(q, ended, wc);\n", "\t\t;\n", "race-receive"),
    ("src/device/pd.c", "live_tell_busy(LIVE_PD, ibv);", ";", "destroy-order"),
    ("src/device/live.c", "(qp->scq == object || qp->rcq == object)", "false", "destroy-order-cq"),
    ("src/device/live.c", "((const struct ibv_cq *)o)->channel == object", "false", "destroy-order-channel"),
    ("src/check/made.c", "return p->alive && !is", "return !p->alive && !is", "leak"),
    ("src/device/live.c", "\t\tcheck_unmade(l->place);", "\t\t;", "leak"),
    ("src/check/cm.c", "bool own = e->tid == syscall(SYS_gettid)", "bool own = true", "cm-unacked"),
    ("src/check/cm.c", "WAIT_MS = 200", "WAIT_MS = 0", "cm-unacked"),
    ("src/check/cm.c", "bool own = e->tid == syscall(SYS_gettid)", "bool own = false", "cm-destroyed"),
    ("src/check/cm.c", "if (events[i].event == event)", "if (false)", "cm-destroyed"),
    ("src/check/happened.c", "q->t->state == IBV_QPS_RTS) {", "q->t->state == IBV_QPS_SQD) {", "cm-undrained"),
    ("src/device/fact.c", "check_undrained(qpn, q->t.sq_tail - q->t.sq_head);", "check_undrained(qpn, 1);", "cm-undrained"),
)


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def test_of(case):
    if case == "first-cause":
        return "first"
    return next((kind for kind in ("plugin", "rpw") if case.startswith(kind + "-")), "planted")


def compile_for(build, kinds):
    """What the tests of these kinds run."""
    files = {file for kind in kinds for file in TESTS[kind][1]}
    built = run("ninja", "-C", build, *sorted(str((build / file).resolve().relative_to(build)) for file in files))
    if built.returncode:
        sys.exit(f"the mutant does not build:\n{built.stdout}{built.stderr}")


def scratch(folder):
    """The sources that git knows, and a build folder that has compiled them unchanged."""
    copy, build = folder / "source", folder / "build"
    names = run("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", check=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    run("meson", "setup", build, copy, "-Dbuildtype=debug", check=True)
    return copy, build


def notices(build, case):
    kind = test_of(case)
    ran = run(HERE / TESTS[kind][0][0], *TESTS[kind][0][1:], build, *([case] if kind != "first" else []))
    return ran.returncode == 1 and "not ok" in ran.stdout


def rules_without(build):
    """Rules that no mutant is of."""
    rules = set(re.findall(r'\{\d+, "([a-z0-9-]+)"', (ROOT / "src/check/rules.c").read_text()))
    rule_of = {"first-cause": "first-cause"}
    for kind in ("planted", "plugin", "rpw"):
        program = build / "tests" / "check" / ("planted" if kind == "planted" else f"planted_{kind}")
        rule_of.update(line.split() for line in run(program, check=True).stdout.splitlines())
    cases = {case for *_, case in MUTANTS}
    wrong = [f"no planted program has the case {case}" for case in sorted(cases - set(rule_of))]
    return wrong + [f"rule {rule} has no mutant" for rule in sorted(rules - {rule_of.get(case) for case in cases})]


def tried(copy, build, mutant):
    """"" if the case notices, else what is wrong."""
    name, old, new, case = mutant
    path = copy / name
    text = path.read_text()
    if text.count(old) != 1:
        return f"the text is there {text.count(old)} times"
    path.write_text(text.replace(old, new))
    compile_for(build, [test_of(case)])
    good = notices(build, case)
    path.write_text(text)
    return "" if good else "the case passes with the mutant"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", default="1/1")
    options.add_argument("words", nargs="*")
    asked = options.parse_args()
    number, of = map(int, asked.part.split("/"))
    chosen = [m for m in MUTANTS if not asked.words or any(word in " ".join(m) for word in asked.words)][number - 1::of]
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        copy, build = scratch(pathlib.Path(tmp).resolve())
        compile_for(build, sorted({test_of(case) for *_, case in chosen} if asked.words else TESTS))
        wrong = rules_without(build) if not asked.words else []
        for line in wrong:
            print(f"not ok - {line}")
        for mutant in chosen:
            name, old, new, case = mutant
            why = tried(copy, build, mutant)
            failed += bool(why)
            print(f"{'not ok' if why else 'ok'} - {name}: {old.strip()[:60]!r} -> {new[:30]!r}: {case}{': ' if why else ''}{why}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed + len(wrong)} failed")
    sys.exit(1 if failed or wrong or not chosen else 0)


main()
