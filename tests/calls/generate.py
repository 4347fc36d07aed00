"""Rows for every.c: one call of each exported function of libibverbs and librdmacm with arguments that a program could give, one with NULL and 0 for all, and one for each pointer that is NULL alone.

What is exported comes from the libraries' symbols, the types of the arguments from the headers. For functions that no header declares (those of drivers), drivers.txt has the types.
Fails where a function has no types, or a type no argument, so that none can be forgotten.
"""
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = ["infiniband/verbs.h", "infiniband/sa.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h"]
LIBRARIES = ["libibverbs.so.1", "librdmacm.so.1"]
# Objects of the newest headers, and the function that makes them.
MADE_BY = {"ibv_alloc_dmah", "ibv_alloc_buf", "ibv_reg_mr_ex", "ibv_create_comp_cntr", "repoll_create"}

# The first row whose patterns match 'function', 'type' and 'name' is the argument.
ARGUMENTS = [
    # what one function needs
    (r"rdma_(destroy_qp|destroy_ep|disconnect|establish|notify|init_qp_attr|get_remote_ece)", r"struct rdma_cm_id \*", r".*", "an_id_with_qp()"),
    (r"rdma_destroy_srq", r"struct rdma_cm_id \*", r".*", "an_id_with_srq()"),
    (r"rdma_(listen|get_request|get_src_port)", r"struct rdma_cm_id \*", r".*", "a_bound_id()"),
    (r"rdma_(bind_addr|resolve_addr|resolve_addrinfo)", r"struct rdma_cm_id \*", r".*", "a_new_id()"),
    (r"rdma_resolve_addr", r"struct sockaddr \*", r"src_addr", "a_source()"),
    (r"rdma_(join|leave)_multicast", r"struct sockaddr \*", r".*", "a_group_address()"),
    (r"rdma_create_qp", r"struct ibv_qp_init_attr \*", r".*", "a_cm_qp_attr()"),
    (r"rdma_create_qp_ex", r"struct ibv_qp_init_attr_ex \*", r".*", "a_cm_qp_attr_ex()"),
    (r"rdma_create_(qp|srq|ep)", r"struct ibv_pd \*", r".*", "NULL"),
    (r"rdma_create_srq_ex", r"struct ibv_srq_init_attr_ex \*", r".*", "an_srq_attr_ex()"),
    (r"rdma_get_cm_event", r"struct rdma_event_channel \*", r".*", "a_ready_channel()"),
    (r"rdma_destroy_event_channel", r"struct rdma_event_channel \*", r".*", "made(rdma_create_event_channel())"),
    (r"rdma_set_option", r"int", r"level|optname", "0"),
    (r"rdma_set_option", r"size_t", r".*", "1"),
    (r"rdma_free_devices", r"struct ibv_context \*\*", r".*", "a_cm_list()"),
    (r"rdma_freeaddrinfo", r"struct rdma_addrinfo \*", r".*", "an_addrinfo()"),
    (r"rdma_create_ep", r"struct rdma_addrinfo \*", r".*", "an_addrinfo()"),
    (r"rdma_.*addrinfo", r"struct rdma_addrinfo \*", r"hints", "blank()"),
    (r"rdma_write_cm_event", r"enum rdma_cm_event_type", r".*", "RDMA_CM_EVENT_USER"),
    (r"ibv_(attach|detach)_mcast", r"struct ibv_qp \*", r".*", "a_ud_qp()"),
    (r"ibv_(attach|detach)_mcast", r"union ibv_gid \*", r".*", "a_group()"),
    (r"ibv_modify_qp", r"int", r"attr_mask", "MODIFY_MASK"),
    (r"ibv_modify_srq", r"int", r".*", "IBV_SRQ_LIMIT"),
    (r"ibv_destroy_comp_channel|ibv_get_cq_event", r"struct ibv_comp_channel \*", r".*", "a_comp_channel()"),
    (r"ibv_create_cq", r"struct ibv_comp_channel \*", r".*", "a_comp_channel()"),
    (r"ibv_rereg_mr", r"int", r"flags", "IBV_REREG_MR_CHANGE_ACCESS"),
    (r"ibv_import_device", r"int", r".*", "a_context()->cmd_fd"),
    (r"ibv_import_mr", r"uint32_t", r".*", "an_mr()->handle"),
    (r"ibv_import_pd", r"uint32_t", r".*", "a_pd()->handle"),
    (r"ibv_read_sysfs_file", r"char \*", r"dir", '"/sys/class"'),
    (r"ibv_read_sysfs_file", r"char \*", r"file", '"net"'),
    (r"ibv_do(nt)?fork_range", r"void \*", r".*", "memory()"),
    (r"ibv_reg_buf_mr", r"void \*", r"addr", "made(ibv_alloc_buf(a_pd(), LEN, blank()))"),
    (r"rbind", r"int", r"socket", "a_socket()"),
    (r"rlisten", r"int", r"socket", "a_bound_socket()"),
    (r"raccept", r"int", r"socket", "a_listener()"),
    (r"rsendto|rrecvfrom", r"int", r"socket", "a_datagram_socket()"),
    (r"rsocket", r"int", r"domain", "AF_INET"),
    (r"rsocket", r"int", r"type", "SOCK_STREAM"),
    (r"r[gs]etsockopt", r"int", r"level", "SOL_SOCKET"),
    (r"r[gs]etsockopt", r"int", r"optname", "SO_RCVBUF"),
    (r"rsetsockopt", r"socklen_t", r".*", "sizeof(int)"),
    (r"r[gs]etsockopt", r"void \*", r".*", "an_int()"),
    (r"rfcntl", r"int", r"cmd", "F_GETFL"),
    (r"rselect", r"int", r"nfds", "1"),
    (r"repoll_ctl", r"int", r"op", "EPOLL_CTL_ADD"),
    (r"repoll_ctl", r"int", r"fd", "a_socket()"),
    (r"_verbs_init_and_alloc_context", r"size_t", r".*", "LEN"),
    (r"_verbs_init_and_alloc_context", r"void \*", r"context_offset", "NULL"),
    # objects
    (r".*", r"struct ibv_context \*", r".*", "a_context()"),
    (r".*", r"struct ibv_device \*\*", r".*", "a_list()"),
    (r".*", r"struct ibv_device \*", r".*", "a_device()"),
    (r".*", r"struct ibv_pd \*", r".*", "a_pd()"),
    (r".*", r"struct ibv_mr \*", r".*", "an_mr()"),
    (r".*", r"struct ibv_cq \*", r".*", "a_cq()"),
    (r".*", r"struct ibv_comp_channel \*", r".*", "a_comp_channel()"),
    (r".*", r"struct ibv_srq \*", r".*", "an_srq()"),
    (r".*", r"struct ibv_qp \*", r".*", "a_qp()"),
    (r".*", r"struct ibv_ah \*", r".*", "an_ah()"),
    (r".*", r"struct ibv_dm \*", r".*", "a_dm()"),
    (r".*", r"struct ibv_mw \*", r".*", "an_mw()"),
    (r".*", r"struct ibv_dmah \*", r".*", "a_dmah()"),
    (r".*", r"struct ibv_buf \*", r".*", "a_buf()"),
    (r".*", r"struct ibv_comp_cntr \*", r".*", "a_comp_cntr()"),
    (r".*", r"struct rdma_event_channel \*", r".*", "a_channel()"),
    (r".*", r"struct rdma_cm_id \*", r".*", "an_id()"),
    (r".*", r"struct rdma_cm_event \*", r".*", "a_cm_event()"),
    # what describes them
    (r"ibv_ack_async_event", r"struct ibv_async_event \*", r".*", "an_event()"),
    (r"ibv_modify_qp", r"struct ibv_qp_attr \*", r".*", "a_qp_change()"),
    (r"ibv_(create_ah|resolve_eth_l2_from_gid)", r"struct ibv_ah_attr \*", r".*", "an_ah_attr()"),
    (r".*create_qp", r"struct ibv_qp_init_attr \*", r".*", "a_qp_attr()"),
    (r"rdma_create_ep", r"struct ibv_qp_init_attr \*", r".*", "a_cm_qp_attr()"),
    (r".*", r"struct ibv_srq_init_attr \*", r".*", "an_srq_attr()"),
    (r".*", r"struct ibv_wc \*", r".*", "a_wc()"),
    (r".*", r"struct ibv_grh \*", r".*", "a_grh()"),
    (r".*", r"struct ibv_mr_init_attr \*", r".*", "an_mr_attr()"),
    (r".*", r"struct ibv_qp_attach_comp_cntr_attr \*", r".*", "an_attach()"),
    (r".*", r"struct rdma_conn_param \*", r".*", "a_conn_param()"),
    (r".*", r"struct rdma_cm_join_mc_attr_ex \*", r".*", "a_join()"),
    (r".*", r"struct pollfd \*", r".*", "a_pollfd()"),
    (r".*", r"struct iovec \*", r".*", "an_iovec()"),
    (r".*", r"struct msghdr \*", r".*", "a_message()"),
    (r".*", r"struct epoll_event \*", r".*", "an_epoll_event()"),
    (r".*", r"socklen_t \*", r".*", "an_address_len()"),
    (r"raccept|rgetpeername|rgetsockname|rrecvfrom", r"struct sockaddr \*", r".*", "blank()"),
    (r".*", r"struct sockaddr \*", r".*", "an_address()"),
    (r".*", r"char \*", r"node", "address"),
    (r".*", r"char \*", r"service", '"7491"'),
    # memory: zeros, for what is written there
    (r"ibv_(reg|rereg)_.*|ibv_alloc_buf", r"void \*", r"addr", "memory()"),
    (r".*", r"(void|char|uint8_t|uint16_t|uint32_t|uint64_t|int|__be16|fd_set|struct timeval|union ibv_gid|enum ibv_gid_type_sysfs) \*(\*)*", r".*", "blank()"),
    (r".*", r"struct \w+_(attr(_ex)?|caps|gid_entry|ece|path_rec|async_event) \*|struct \w+ \*\*", r".*", "blank()"),
    # numbers
    (r".*", r"int", r"socket", "a_socket()"),
    (r".*", r"int", r"epfd", "an_epoll()"),
    (r".*", r"int", r"fd", "a_memfd()"),
    (r".*", r"socklen_t", r".*", "sizeof(struct sockaddr_in)"),
    (r".*", r"enum rdma_port_space", r".*", "RDMA_PS_TCP"),
    (r".*", r"enum .*", r".*", "1"),
    (r".*", r"(u?int(8|32|16)_t|int)", r"port_num", "1"),
    (r".*", r"size_t", r"entry_size", "sizeof(struct ibv_gid_entry)"),
    (r".*", r"size_t", r"caps_size", "64"),
    (r".*", r"size_t", r"max_entries", "16"),
    (r".*", r"size_t|int", r"len|length|size|count", "64"),
    (r".*", r"int", r"cqe|backlog|iovcnt|maxevents", "4"),
    (r".*", r"nfds_t", r".*", "1"),
    (r".*", r"int", r"timeout(_ms)?", "100"),
    (r".*", r"(unsigned )?int|off_t|__be16|size_t|u?int(8|16|32|64)_t", r".*", "0"),
]


class Forgotten(Exception):
    """Exported functions without a row, and what to do."""


def exports(root, library):
    """Names that programs can be linked with, in their default version: {name: version}."""
    path = next(p for p in (root / f"usr/lib/{triplet()}" / library, root / "lib" / library) if p.exists())
    found = {}
    for line in subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout.splitlines():
        fields = line.split()
        name, _, version = fields[-1].partition("@@")
        if fields[-2] in "TWi" and version:
            found[name] = version
    return found


def triplet():
    return subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()


def headers(root):
    """Their text, preprocessed."""
    system = [f"-isystem{root}/usr/include", f"-isystem{root}/usr/include/{triplet()}"] if root != pathlib.Path("/") else []
    source = "".join(f"#include <{h}>\n" for h in HEADERS)
    return subprocess.run(["gcc", "-E", "-P", *system, "-"], input=source, capture_output=True, text=True, check=True).stdout


def parameters(text):
    """[(type, name)] of a parameter list; '...' is left out."""
    found = []
    for at, one in enumerate(text.replace("const ", " ").split(",")):
        one = " ".join(one.split())
        if one in ("void", "...", ""):
            continue
        match = re.fullmatch(r"((?:(?:struct|union|enum|unsigned) )?\w+) ?(\**) ?(\w*)((?:\[\w*\])?)", one)
        if not match:
            raise Forgotten(f"'{one}' is no parameter that generate.py understands")
        stars = match[2] + ("*" if match[4] else "")
        found.append((match[1] + (" " + stars if stars else ""), match[3] or f"p{at}"))
    return found


def declared(text, name):
    """(its parameters, whether it returns something), or None."""
    found = re.search(r"([\w)]+[\s\*]+)%s\s*\(([^;{}()]*)\)[\w\s()]*;" % re.escape(name), text)
    return (parameters(found[2]), found[1].strip() != "void") if found else None


def unlisted():
    """Of drivers.txt: {name: [(type, name)]}."""
    lines = [line.split("#")[0].strip() for line in (HERE / "drivers.txt").read_text().splitlines()]
    return {line.split("(")[0].strip(): parameters(line.split("(", 1)[1].rstrip(")")) for line in lines if line}


def argument(function, kind, name):
    for functions, types, names, value in ARGUMENTS:
        if re.fullmatch(functions, function) and re.fullmatch(types, kind) and re.fullmatch(names, name):
            return value
    raise Forgotten(f"{function}: no argument of type '{kind}' (its '{name}'): add a row to ARGUMENTS of tests/calls/generate.py")


def rows_of(function, params):
    values = [argument(function, kind, name) for kind, name in params]
    yield "plausible", values
    yield "NULL", ["0" for _ in values]
    pointers = [i for i, (kind, _) in enumerate(params) if kind.endswith("*")]
    if len(values) > 1:
        for i in pointers:
            if values[i] != "NULL":
                yield f"{params[i][1]} NULL", [("0" if j == i else value) for j, value in enumerate(values)]


def generate(root, into, drivers=True):
    """Writes rows.inc and declared.inc for the libraries and headers below root; (exported functions, rows, flags for the compiler). drivers: also what is in the node for drivers."""
    text = headers(root)
    known, forgotten, declarations, rows = unlisted(), [], [], []
    exported = {}
    for library in LIBRARIES:
        exported.update({name: version for name, version in exports(root, library).items() if drivers or "_PRIVATE_" not in version})
    for name in sorted(exported):
        try:
            of_header = declared(text, name)
            params, returns = of_header or (None, True)
            plain = re.sub(r"_\d+$", "", name)  # verbs_register_driver_65
            if params is None:
                params = known.get(name, known.get(plain))
                if params is None:
                    raise Forgotten(f"{name} ({exported[name]}): no header declares it: add its arguments to tests/calls/drivers.txt")
                declarations.append(f"long {name}();\n")
            for what, values in rows_of(name, params):
                call = f"{name}({', '.join(values)})"
                # a function that depends on its arguments alone is called only for what it returns
                rows.append(f'ROW({len(rows)}, "{name}", "{what}", {"result = (long)" if returns else ""}{call})\n')
        except Forgotten as e:
            forgotten.append(str(e))
    if forgotten:
        raise Forgotten("\n".join(forgotten))
    into.mkdir(parents=True, exist_ok=True)
    (into / "rows.inc").write_text("".join(rows))
    (into / "declared.inc").write_text("".join(declarations))
    defines = [f"-DHAVE_{name.upper()}" for name in sorted(MADE_BY & set(exported))]
    return exported, rows, defines
