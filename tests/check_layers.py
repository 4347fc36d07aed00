#!/usr/bin/python3
"""Reads every #include "..." below src/ and learn/ and fails on an arrow that points up.

Usage: check_layers.py [ROOT]. Prints one line for each wrong arrow, file:line first. Exit status 0 when there is none.
"""
import pathlib
import re
import sys

# layer -> what it may include beside itself. An entry with a slash is one header, one without is a whole layer. A layer with a slash is a room with rules of its own.
MAY = {
    "base": set(),
    # What two processes of one host share: who the other is, names, connections, memory.
    "near": {"base"},
    "wire": {"base"},
    "rc": {"base", "wire"},
    # Packets, states and calls in words, as the layers above see them pass.
    "explain": {"base", "wire", "rc"},
    # Fault scripts: words of the specification and of verbs, counted and answered; who asks does the harm.
    "fault": {"base", "wire", "explain"},
    "cm": {"base", "wire"},
    "io": {"base", "near", "wire", "explain", "fault"},
    "device": {"base", "near", "wire", "rc", "explain", "fault", "cm", "io"},
    # The rdma_cm device: addresses and events of connections; packets and sockets are the device's.
    "helper": {"base", "near", "wire", "rc", "explain", "fault", "cm", "io", "device"},
    "ucma": {"base", "wire", "explain", "fault", "cm", "io", "device"},
    # The files that the kernel would have for our devices: they show the interfaces as they are, also while no device is open.
    "tree": {"base", "io"},
    # What the kernel would answer on a NETLINK_RDMA socket: requests in, datagrams out. Of the device it knows what an object is.
    "netlink": {"base", "io", "device/resource.h"},
    "preload": {"base", "explain", "io", "device", "ucma", "tree", "netlink"},
    # The versioned libibverbs.so.1: the drop-in's objects under other names.
    "library": {"base", "preload"},
    # NCCL's plugin API, and calling plugins; the plugin itself (nccl) takes only the tables of it.
    "ncclnet": {"base"},
    # TLS with a pre-shared key, by GnuTLS: for the control path and for the streams of tcp.
    "tls": {"base"},
    # Above, ropeway.h: statuses and limits. A transport sees of msg/ only the up-calls of tran.h.
    "tran": {"base", "near", "ncclnet", "tls", "include"},
    "boot": {"base", "tls", "tran/tran.h", "include"},
    "msg": {"base", "tran/tran.h", "boot/boot.h", "include", "msg/link"},
    # Counts, keeps and pays for frames: knows no request, no endpoint, no control path.
    "msg/link": {"base", "tran/tran.h", "msg/wire.h"},
    "nccl": {"base", "include"} | {f"ncclnet/abi/net{v}.h" for v in ("", *(f"_v{n}" for n in range(5, 13)))},
    # wire: `explain` reads captures; it decodes, and speaks to nobody.
    # tree: `run --namespace` writes down what the drop-in would answer.
    "cli": {"base", "near", "wire", "fault/fault.h", "io/io.h", "io/helper.h", "ncclnet", "include", "tree/tree.h"},
    # test_connection: a program of its own, which tells two processes of each other by boot, and drives other people's plugins. Of the command it has what reads options.
    "cli/connection": {"base", "boot", "ncclnet", "cli/cli.h", "cli/options.h", "include"},
    # The educational programs are pure verbs: the same source must build against rdma-core alone.
    "learn": set(),
}

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


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    sources = sorted(p for top in ("src", "learn") for p in (root / top).rglob("*.[ch]"))
    wrong = [(s, n, why) for s in sources for n, why in wrong_arrows(root, s)]
    for source, number, why in wrong:
        print(f"{source.relative_to(root)}:{number}: {why}")
    print(f"layers: {len(sources)} files, {len(wrong)} wrong arrows")
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
