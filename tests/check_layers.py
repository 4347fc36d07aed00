#!/usr/bin/python3
"""Reads every #include "..." below src/ and learn/ and fails on an arrow that points up.

Usage: check_layers.py [ROOT]. Prints one line for each wrong arrow, file:line first. Exit status 0 when there is none, and ARCHITECTURE.md has the table as it is here.
       check_layers.py --table     prints that table;  --write     puts it into ARCHITECTURE.md
"""
import pathlib
import re
import sys

# layer -> what it may include beside itself. An entry with a slash is one header, one without is a whole layer. A layer with a slash is a room with rules of its own.
MAY = {
    "base": set(),
    "near": {"base"},
    "wire": {"base"},
    "rc": {"base", "wire"},
    "explain": {"base", "near", "wire", "rc"},
    "fault": {"base", "wire", "explain"},
    "like": {"base", "wire", "rc"},
    "cm": {"base", "wire"},
    "io": {"base", "near", "wire", "explain", "fault", "like"},
    "check": {"base", "wire", "rc"},
    "device": {"base", "near", "wire", "rc", "check", "explain", "fault", "like", "cm", "io"},
    "helper": {"base", "near", "wire", "rc", "explain", "fault", "cm", "io", "device"},
    "ucma": {"base", "check/order.h", "wire", "explain", "fault", "cm", "io", "device"},
    "tree": {"base", "io", "like"},
    "netlink": {"base", "io", "device/resource.h"},
    "preload": {"base", "check/check.h", "check/cm.h", "check/forked.h", "check/freed.h", "explain", "io", "device", "ucma", "tree", "netlink"},
    "hooks": {"base/base.h", "check/hooks.h"},
    "library": {"base", "preload"},
    "ncclnet": {"base", "check/check.h"},
    "tls": {"base"},
    "tran": {"base", "near", "ncclnet", "tls", "include"},
    "boot": {"base", "tls", "tran/tran.h", "include"},
    "msg": {"base", "check/check.h", "check/sum.h", "tran/tran.h", "boot/boot.h", "include", "msg/link"},
    "msg/link": {"base", "tran/tran.h", "msg/wire.h"},
    "nccl": {"base", "include", "ncclnet/abi/net.h", "ncclnet/abi/rma.h", "ncclnet/abi/tables.h"},
    "cli": {"base", "check/cause.h", "check/options.h", "check/rules.h", "check/finding.h", "near", "wire", "explain/log.h", "explain/packet.h", "fault/fault.h", "like/like.h", "io/io.h", "io/helper.h", "io/counters.h", "ncclnet", "include", "preload/refused.h", "tree/tree.h"},
    "cli/connection": {"base", "boot", "ncclnet", "cli/cli.h", "cli/options.h", "include"},
    "learn": set(),
}

# What each is, for the reader of ARCHITECTURE.md, which has this table (--write).
WHAT = {
    "base": "log, errors, time, locks, lists, guarded copies",
    "near": "what two processes of one host share: who the other is, names, descriptors, memory",
    "wire": "packet formats, opcodes, PSN arithmetic, ICRC, management datagrams",
    "rc": "the transport: RC, UC, UD",
    "explain": "packets, states and calls as events, which `ropeway` prints in words",
    "fault": "fault scripts, counted and answered; the layer that asks injects the fault",
    "like": "profiles: which limits and capabilities programs see",
    "cm": "the communication manager",
    "io": "interfaces, GIDs, UDP port 4791, lanes, claims, captures",
    "check": "`ropeway run --check`: rules, findings, and what is in flight",
    "device": "the software HCA: objects, progress, QP 1",
    "helper": "`ropeway-helper`: says goodbye for processes that were killed",
    "ucma": "the rdma_cm device: channels, ids, listeners, events",
    "tree": "the files that a kernel would have for our devices",
    "netlink": "what the kernel would answer on a NETLINK_RDMA socket",
    "preload": "the drop-in: exports `ibv_*`, forwards to real devices, hooks files and sockets",
    "hooks": "libropeway-check: hooks of free, munmap and fork for `--check`",
    "library": "the versioned libibverbs.so.1: the drop-in's objects under other names",
    "ncclnet": "NCCL's plugin API, and calling plugins",
    "tls": "TLS 1.3 with a pre-shared key, by GnuTLS",
    "tran": "transports: shm, tcp, verbs, ncclnet; of msg they see the up-calls of `tran.h`",
    "boot": "the control path over TCP: hello, opaque handles, liveness",
    "msg": "the messaging library behind `ropeway.h`",
    "msg/link": "frames, counted, kept and paid for; knows no request and no endpoint",
    "nccl": "the network plugin for NCCL",
    "cli": "the command; it reads captures (wire) and writes what the drop-in would answer (tree)",
    "cli/connection": "`test_connection`, which drives other people's plugins",
    "learn": "the educational programs: pure verbs, so they build against rdma-core alone",
}
BEGIN, END = "<!-- layers -->\n", "<!-- end of layers -->\n"

# Sans-I/O layers: no system call, no clock, no allocation behind the caller's back. The headers that would bring them.
PURE = {"wire", "rc", "cm", "msg/link"}
IMPURE_HEADERS = {"unistd.h", "sys/socket.h", "sys/epoll.h", "sys/mman.h", "sys/ioctl.h", "sys/uio.h", "netinet/in.h", "netinet/udp.h",
                  "arpa/inet.h", "poll.h", "pthread.h", "signal.h", "fcntl.h", "time.h", "sys/time.h", "sys/random.h", "stdatomic.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def layer_of(root, source):
    """The folder, or the room in it, that has an entry in MAY."""
    parts = source.relative_to(root).parts
    if parts[0] != "src" or len(parts) < 3:
        return parts[0]
    room = "/".join(parts[1:3])
    return room if len(parts) > 3 and room in MAY else parts[1]


def target_of(root, source, name):
    """The path below the tree that an #include "..." names, or None if it names nothing here."""
    for base in (source.parent, root / "src", root / "include", root):
        path = (base / name).resolve()
        if path.is_file() and root in path.parents:
            return path
    return None


def wrong_arrows(root, source):
    layer = layer_of(root, source)
    if layer not in MAY:
        yield 0, f"folder '{layer}' is not in the table of layers; add it to tests/check_layers.py with what it may include"
        return
    for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        kind, name = found.groups()
        if kind == "<":
            if layer in PURE and name in IMPURE_HEADERS:
                yield number, f"{layer} is sans-I/O and must not include <{name}>"
            continue
        path = target_of(root, source, name)
        if path is None:
            yield number, f'"{name}" is not in the tree (a system header is written with <>)'
            continue
        other = layer_of(root, path)
        exact = "/".join(path.relative_to(root / "src").parts) if root / "src" in path.parents else ""
        if other != layer and other not in MAY[layer] and exact not in MAY[layer]:
            yield number, f'{layer} must not include "{name}" ({other}): it may include {", ".join(sorted(MAY[layer])) or "only itself"}'


def allowed(layer):
    """The table's third column: layers, then headers."""
    entries = sorted(MAY[layer] - {"include"}, key=lambda entry: (entry.endswith(".h"), list(MAY).index(entry) if entry in MAY else 0, entry))
    text = ", ".join(entries)
    return ", ".join(filter(None, (text, "`ropeway.h`" * ("include" in MAY[layer])))) or "nothing"


def table():
    return "| layer | what it is | may include |\n|---|---|---|\n" + "".join(f"| {layer} | {WHAT[layer]} | {allowed(layer)} |\n" for layer in MAY)


def shown(text):
    """The text before the table of a document, the table, the text behind it."""
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    return before + BEGIN, found, END + after


def main():
    if "--table" in sys.argv:
        print(table(), end="")
        return 0
    write = "--write" in sys.argv
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 and not write else pathlib.Path(__file__).parent.parent).resolve()
    document = root / "ARCHITECTURE.md"
    before, found, after = shown(document.read_text(encoding="utf-8")) if document.exists() else ("", table(), "")
    if write:
        document.write_text(before + table() + after, encoding="utf-8")
        return 0
    sources = sorted(p for top in ("src", "learn") for p in (root / top).rglob("*.[ch]"))
    wrong = [(s, n, why) for s in sources for n, why in wrong_arrows(root, s)]
    for source, number, why in wrong:
        print(f"{source.relative_to(root)}:{number}: {why}")
    print(f"layers: {len(sources)} files, {len(wrong)} wrong arrows")
    if found != table():
        print("ARCHITECTURE.md: its table of layers is not the one here; run tests/check_layers.py --write")
    return 1 if wrong or not sources or found != table() else 0


if __name__ == "__main__":
    sys.exit(main())
