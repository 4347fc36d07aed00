"""What tests/debian has of each Debian package that needs libibverbs1 or librdmacm1 (Debian 12), and of some that stand on those: the script, what it compares, and what came of it."""
import dataclasses
import subprocess

WORKS, TRIED, NOT_RUN = "works", "tried", "not run"
# Packages that have another name in Debian 13.
NAMES = {"trixie": {"libopenmpi3": "libopenmpi40", "libgnutls30": "libgnutls30t64", "librdmacm1": "librdmacm1t64", "librte-net-mlx5-23": "librte-net-mlx5-25"}}


def renamed(packages, suite):
    return [NAMES.get(suite, {}).get(package, package) for package in packages]


@dataclasses.dataclass(frozen=True)
class Row:
    name: str                # the packages whose row it is, as in docs/programs.md
    packages: tuple = ()     # what is installed for it; the first ones are those whose version is shown
    script: str = ""         # and its words; without one it is not run, and `why` says why
    compared: str = ""
    status: str = WORKS
    why: str = ""            # the cause, where it does not work
    covers: tuple = ()       # packages of `apt-cache rdepends` that this row answers for
    quick: bool = False      # takes less than 20 s, and its packages are among those of script/setup --test
    limit_s: int = 300
    show: int = 1

    def of(self, suite):
        """Its packages by the names that they have in that release of Debian."""
        return renamed(self.packages, suite)


def row(name, packages, script="", compared="", covers="", **kw):
    return Row(name, tuple(packages.split()), script, compared, covers=tuple((covers or name.replace(",", "")).split()), **kw)


MLX = "drives a Mellanox NIC's registers (its own provider and PCI device), which no software device has"
OPA = "asks for an Omni-Path adapter (hfi1), which this is not"
ROWS = [
    row("fio", "fio", "fio.py", "the buffers of both sides as files, block by block, after WRITE, READ, SEND; sizes", quick=True),
    row("prometheus-node-exporter", "prometheus-node-exporter prometheus python3-prometheus-client ibverbs-utils", "exporter.py",
        "what 1,000 messages moved, exactly, in its collectors infiniband (under --namespace) and textfile, and in the page of `ropeway top` (promtool, Prometheus's Python client)", covers=" "),
    row("qperf", "qperf", "qperf.py", "12 tests with -cm 1: figures, and a server that lives; those with atomics compare values", quick=True),
    row("qemu-system-x86", "qemu-system-x86 busybox-static cpio kmod", "qemu.py", "live migration over rdma, there and back, pinned and not, of a guest that writes: it hashes its memory before and after",
        limit_s=700, covers="qemu-system-x86 qemu-system-arm qemu-system-mips qemu-system-misc qemu-system-ppc qemu-system-sparc"),
    row("tgt, libiscsi7", "tgt libiscsi7 libiscsi-bin libiscsi-dev", "tgt_iser.py", "CRC-32 of the whole LUN read over iser://; 50 logins, one after another", show=2, quick=True),
    row("librpma0", "librpma0 librpma-dev libibverbs-dev", "rpma.py", "4 MiB read, written, flushed, sent, five times, each byte on both sides (a program of ours)", quick=True),
    row("libdapl2", "libdapl2 dapl2-utils", "dapl.py", "dtest small and 64 KiB (it compares), 1,000 connections at once (dtestcm), by the providers cma and scm"),
    row("libfabric1", "libfabric1 libfabric-bin", "fabtests.py msg rxm rxd",
        "fabtests of the same version (in no package), by verbs, verbs;ofi_rxm, verbs;ofi_rxd, with -v where they have it", limit_s=1500),
    row("libucx0", "libucx0 ucx-utils", "ucx.py", "ucx_perftest, 42 runs by rc and ud, atomics by the device; io_demo, which compares what it reads and writes"),
    row("libucx0, two interfaces", "libucx0 ucx-utils", "plain.py ucx", "no variable set: five tests of ucx_perftest, which end with a figure; io_demo, which compares what it reads and writes", quick=True, covers=" "),
    row("libfabric-bin, two interfaces", "libfabric-bin libfabric1", "plain.py libfabric", "no variable set: fi_pingpong -c by its own choice, by verbs, by verbs;ofi_rxm: up to 1 MiB, compared by it", quick=True, covers=" "),
    row("mpich, two interfaces", "mpich libmpich-dev libucx0", "plain.py mpich", "no variable set: 82 messages, collectives, puts and gets, each byte", covers=" "),
    row("openmpi-bin, two interfaces", "openmpi-bin libopenmpi3 libopenmpi-dev", "plain.py openmpi",
        "no variable set: 79 messages and collectives, each byte, by Open MPI's own choice, by UCX (in Debian 12 puts and gets, too), by libfabric", quick=True, covers=" "),
    row("mpich", "mpich libmpich-dev libucx0", "mpi.py mpich ucx-rc ucx-ud", "82 messages, collectives, puts and gets, each byte, on one host and between two", covers=" "),
    row("libopenmpi3", "libopenmpi3 openmpi-bin libopenmpi-dev", "mpi.py openmpi ucx-rc ucx-ud ofi", "82 messages, collectives, puts and gets, each byte, by UCX and by libfabric, on one host and between two"),
    row("libgloo0", "libgloo0 libgloo-dev g++ libibverbs-dev", "gloo.py", "allreduce (ring, halving-doubling) and broadcast by its ibverbs transport, two and four ranks, each value"),
    row("ceph-osd, librados2", "ceph-osd librados2 ceph-mon ceph-common ceph-base", "ceph.py",
        "ms_type async+rdma, a monitor and three OSDs on two hosts: 8 objects put by one and got by the other, each byte; RDMA bytes by the OSD's counters", show=2),
    row("ibverbs-utils", "ibverbs-utils", "stock.py ibverbs-utils", "rc, uc and srq pingpong with -c, which compares", quick=True),
    row("rdmacm-utils", "rdmacm-utils", "stock.py rdmacm-utils", "rping -V, ucmatose with 100 connections, riostream and rstream -T v: what they compare", quick=True),
    row("perftest", "perftest", "stock.py perftest", "9 programs, also with --odp and with a multicast group (-g), end with figures on both sides (it compares no data; stage `perftest` has every option)", quick=True),
    row("infiniband-diags", "infiniband-diags", "diags.py", "ibstat and ibstatus: each device, its GUID, state and firmware beside ibv_devinfo's; that ibaddr, which like the others speaks MADs, says it finds no port for them", quick=True, covers=" "),
    row("srptools", "srptools", "tried.py ibsrpdm", "the message", status=TRIED, why="It wants an InfiniBand link and a subnet manager's records; RoCE has neither, rxe likewise"),
    row("ibacm", "ibacm infiniband-diags", "tried.py ib_acme", "the message", status=TRIED, why="Its daemon caches an InfiniBand subnet's path records by umad; RoCE has no subnet manager"),
    row("opa-basic-tools, libopamgt0", "opa-basic-tools libopamgt0", "tried.py opasaquery", "the message", status=TRIED, why=f"It {OPA}"),
    row("opa-fastfabric", "opa-fastfabric opa-basic-tools", "tried.py opainfo", "the message", status=TRIED, why=f"It {OPA}"),
    row("opa-address-resolution, libopasadb1", "opa-address-resolution libopasadb1", "tried.py opa_osd_dump", "the message", status=TRIED, why="It reads a table that Omni-Path's fabric manager fills"),
    row("dpdk-dev", "dpdk-dev librte-net-mlx5-23", "tried.py dpdk", "the message", status=TRIED, why=f"Its drivers mlx4 and mlx5 each {MLX}".replace("drives", "drive"),
        covers="dpdk-dev librte-net-mlx5-23 librte-net-mlx4-23 librte-common-mlx5-23 librte-crypto-mlx5-23 librte-compress-mlx5-23 librte-regex-mlx5-23 librte-vdpa-mlx5-23"),
    row("python3-torch", "python3-torch", "tried.py torch", "that no verbs device is opened", status=TRIED,
        why="It works, but its backend gloo makes TCP devices only, and Debian builds it without NCCL: it uses no RDMA (libgloo0's own row does). Debian 13 builds it with MPI, not tried", covers=" "),
    row("opa-fm", "opa-fm", why=f"a fabric manager: it {OPA}"),
    row("gfio", "gfio", why="fio with windows: the same engine as fio's row"),
    row("python3-pyverbs", "python3-pyverbs", why="stage `pyverbs` of script/test runs rdma-core's whole suite with it"),
    row("libibverbs-dev, librdmacm-dev, librdmacm1, ibverbs-providers", "libibverbs-dev", why="headers and libraries: every row here stands on them; providers of real NICs stay as they are"),
    row("NCCL 2.22.3, its own IB transport", "", "nccl.py", "no variable set: host memory between two hosts with two interfaces each, over every device, 76 MB on each, each byte; not one WARN", covers=" "),
    row("pcp", "pcp", why="its agent pcp-pmda-infiniband counts by umad and sysfs, as infiniband-diags; the other agents do not ask", covers=" "),
    row("iperf3 by librspreload (librdmacm1)", "", why="iperf3 3.12 through it sends 128 KiB, one buffer of a rsocket, of which nothing is received; then both sides wait in select. On kernel rxe (Linux 6.1) it is the same, so the device is not the cause", covers=" "),
    row("GASNet", "", why="in no Debian package, and not fetched here: not tried", covers=" "),
]


def not_covered():
    """What `apt-cache rdepends` has and no row answers for; nothing where apt knows no package."""
    covered = {package for entry in ROWS for package in entry.covers}
    bad = []
    for library in ("libibverbs1", "librdmacm1"):
        out = subprocess.run(["apt-cache", "rdepends", library], capture_output=True, text=True).stdout if has_apt() else ""
        for line in out.splitlines()[2:]:
            package = line.strip(" |")
            if package not in covered and f"{library}: {package}" not in bad:
                bad.append(f"{library}: {package}")
    return [f"no row for a reverse dependency of {entry}" for entry in bad]


def has_apt():
    try:
        return "bookworm" in open("/etc/os-release").read() and not subprocess.run(["apt-cache", "--version"], capture_output=True).returncode
    except OSError:
        return False
