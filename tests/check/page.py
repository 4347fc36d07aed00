#!/usr/bin/python3
"""docs/check.md: what each rule says is made of src/check/rules.c; the examples stand in the page, and are compiled.

  page.py --check    is the page what the rules say, has each rule an example with what is wrong and what is right, and do the examples compile?
  page.py --write    writes what is made of the rules; a new rule gets a section at the end of its group, for whoever writes its example
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, RULES = ROOT / "docs" / "check.md", ROOT / "src" / "check" / "rules.c"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->\n"
GROUPS = {1: "Posts and completions", 2: "Order and lifetime", 3: "The first cause", 4: "One-sided races", 5: "Network plugins of NCCL", 6: "The messaging library"}
# What the examples are part of.
PRELUDE = """
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ncclnet/abi/net.h"
#include "ncclnet/abi/tables.h"
#include "ropeway.h"

struct remote { uint32_t qpn, psn, qkey, rkey, max_dest_rd_atomic; enum ibv_mtu mtu; };
void die(const char *fmt, ...);
void handle_wc(struct ibv_wc *wc);
struct ibv_send_wr *next_request(void);
void poll_until_done(struct ibv_cq *cq);
unsigned poll_some(struct ibv_cq *cq);
void wait_for_answer(void);
void lock(void), unlock(void);
#define handle handle_wc
extern struct ibv_context *context; extern struct ibv_device *device;
extern struct ibv_pd *pd, *other_pd; extern struct ibv_cq *cq; extern struct ibv_qp *qp; extern struct ibv_mr *mr; extern struct ibv_mw *mw;
extern struct ibv_comp_channel *channel; extern void *context_of_cq;
extern struct ibv_sge sge; extern struct ibv_send_wr wr, *bad; extern struct ibv_recv_wr rwr, *rbad; extern struct ibv_wc wc;
extern struct ibv_qp_attr attr; extern struct ibv_qp_init_attr init; extern struct ibv_port_attr port;
extern struct rdma_cm_id *id; extern struct rdma_event_channel *events; extern struct rdma_cm_event *event; extern struct rdma_conn_param param;
extern struct remote remote;
extern char *buf; extern size_t len; extern pid_t pid; extern unsigned posted, outstanding;
"""
PLUGIN = """
#undef handle
extern const struct nccl_net_v8 *net_v8; extern const struct nccl_net_v9 *net_v9;
extern struct nccl_net_device_handle *device_handle;
extern char handle[128], message[128]; extern void *listen_comm, *send_comm, *recv_comm, *mhandle, *request, *data, *requests[64], **request_out; extern int done, size, tag;
"""
MESSAGES = """
extern rpw_context *rpw; extern rpw_endpoint *endpoint; extern rpw_request *req; extern rpw_loaned loan;
"""


def rules():
    """[(number, name, severity, off, what, nic, remedy, source)], as the table has them."""
    text = RULES.read_text(encoding="ascii")
    string = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    row = re.compile(rf'\{{(\d+),\s*"([a-z0-9-]+)",\s*(NOTE|WARNING|ERROR),\s*(true|false),\s*{string},\s*{string},\s*{string},\s*{string}\}}')
    found = [(int(m[1]), m[2], m[3].lower(), m[4] == "true", *("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', m[k])) for k in range(5, 9))) for m in row.finditer(text)]
    if len(found) != len(re.findall(r"\[RPWI_RULE_\w+\] = \{", text)):
        sys.exit(f"{RULES}: there are rules that this does not understand")
    return found


def sentence(text):
    return text[0].upper() + text[1:] + "."


def prose(text):
    """`code` where it is code."""
    return re.sub(r"\b((?:ibv|rdma|rpw)_\w+|IBV_\w+|RDMA_\w+|rnr_retry|retry_cnt|timeout|min_rnr_timer|max_\w+|sq_psn|rq_psn|path_mtu|active_mtu|wr_id|wc\.status|cap\.\w+|mr->\w+|ncclNetPlugin_v<N>|isend|irecv|iflush)\b(?!\()", r"`\1`", text)


def made(rule):
    number, _, severity, off, what, nic, remedy, source = rule
    return (f"**{severity.capitalize()}{', off by default' if off else ''}.** {prose(sentence(what))}\n\n- {'On a NIC' if number < 500 else 'Effect'}: {prose(nic)}.\n- Fix: {prose(remedy)}.\n- Source: {source}.\n")


def index(table):
    rows = [f"| {number} | [`{name}`](#{number}-{name}) | {severity}{', off' if off else ''} | {prose(what)} |" for number, name, severity, off, what, *_ in table]
    return "\n".join(["| | rule | | what the program did |", "|---|---|---|---|", *rows]) + "\n"


def marks(number):
    return f"<!-- rule {number} -->\n", f"<!-- end of rule {number} -->\n"


def put(text, begin, end, inside):
    before, found, rest = text.partition(begin)
    old, ended, after = rest.partition(end)
    if not found or not ended:
        return None
    return before + begin + inside + end + after


def written(text, table):
    """The page as the rules have it."""
    text = put(text, BEGIN, END, index(table)) or sys.exit(f"{PAGE}: no place for the table of rules")
    for rule in table:
        number, name = rule[:2]
        heading = f"### {number} {name}\n"
        replaced = put(text, *marks(number), made(rule))
        if replaced is None:
            group = re.search(rf"(?ms)^## {re.escape(GROUPS[number // 100])} .*?(?=^## |\Z)", text) or sys.exit(f"{PAGE}: no section '## {GROUPS[number // 100]} (...)'")
            section = heading + "\n" + marks(number)[0] + made(rule) + marks(number)[1] + "\n"
            replaced = text[:group.end()] + section + text[group.end():]
        text = replaced
    return text


def examples(text):
    """{rule number: (first line in the page, C)}"""
    found = {}
    for m in re.finditer(r"(?ms)<!-- end of rule (\d+) -->\n(.*?)(?=^##|\Z)", text):
        code = re.search(r"(?ms)^```c example\n(.*?)^```$", m[2])
        if code:
            found[int(m[1])] = (text.count("\n", 0, m.start(2) + code.start(1)) + 1, code[1])
    return found


def compiled(found):
    """What the compiler says."""
    parts = [PRELUDE]
    for number, (line, code) in sorted(found.items()):
        parts.append({5: PLUGIN, 6: MESSAGES}.get(number // 100, ""))
        kind = "int" if "return NCCL" in code else "void"
        parts.append(f"{kind} example_{number}(void);\n{kind} example_{number}(void)\n{{\n#line {line} \"{PAGE}\"\n{code}\n{'return 0;' if kind == 'int' else ''}}}\n")
        if number // 100 in (5, 6):  # once
            parts[-2] = parts[-2] if sum(n // 100 == number // 100 and n <= number for n in found) == 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "examples.c")
        path.write_text("".join(parts), encoding="utf-8")
        return subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wno-unused-result", "-Wno-unused-variable", "-Werror", f"-I{ROOT}/src", f"-I{ROOT}/include", path],
                              capture_output=True, text=True, check=False).stderr


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit(__doc__)
    table, text = rules(), PAGE.read_text(encoding="utf-8")
    if sys.argv[1] == "--write":
        PAGE.write_text(written(text, table), encoding="utf-8")
        return
    wrong = []
    if written(text, table) != text:
        wrong.append(f"{PAGE} is not what {RULES} says; run tests/check/page.py --write")
    headings = re.findall(r"(?m)^### (\d+) ([a-z0-9-]+)$", text)
    if headings != [(str(number), name) for number, name, *_ in table]:
        wrong.append(f"{PAGE}: the sections are not those of the rules, in their order")
    found = examples(text)
    wrong += [f"{PAGE}: rule {number} ({name}) has no example that says what is /* wrong and what is /* right" for number, name, *_ in table
              if not {"wrong", "right"} <= set(re.findall(r"/\* (wrong|right)\b", found.get(number, (0, ""))[1]))]
    said = compiled(found)
    if said:
        wrong.append(said)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(table)} rules, {len(found)} examples")


if __name__ == "__main__":
    main()
