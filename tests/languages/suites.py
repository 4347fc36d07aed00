"""What tests/languages has of each package: how it is fetched and run, how many of its tests pass, and which do not, with the cause."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str             # the package, as in docs/programs.md
    version: str
    kind: str             # the language's tool: a function of run.py
    words: tuple          # after `ropeway run -- cargo test` and the like
    what: str             # what its tests do, and whether they compare payload
    passed: int
    skipped: int = 0
    failed: tuple = ()    # names of tests that do not pass
    why: str = ""         # and the cause
    options: tuple = ()   # of `ropeway run`
    source: str = ""      # where the tests come from, if not from the package


OURS = "ours"
SUITES = [
    Suite("sideway", "0.4.3", "cargo", ("--lib", "--test", "test_atomic", "--test", "test_cq", "--test", "test_mr_and_cq", "--test", "test_post_send", "--test", "test_qp"),
          "verbs and rdma_cm: objects, QP states, both ways to post and to poll; atomics compare values", 68),
    Suite("ruapc-rdma", "0.2.0-alpha.7", "cargo", (), "verbs below an RPC library: work requests that own their buffers, completions, GIDs; payload compared", 132,
          failed=("verbs::context::gid::backend::tests::ioctl_gid_entry_does_not_need_sysfs", "verbs::context::gid::tests::gid_table_matches_per_index_queries"),
          why="The two that fail want the kernel's ioctl for GIDs on the context's `cmd_fd` by a direct call. A NIC has a kernel driver behind it; here it is no character device, and the library itself falls "
              "back to `ibv_query_gid`"),
    Suite("ruapc-rdma, by rdma-core's GID calls", "0.2.0-alpha.7", "cargo", ("--features", "ibv-query-gid-ex"), "the same, by `ibv_query_gid_ex` and `ibv_query_gid_table`", 128),
    Suite("ruapc", "0.2.0-alpha.7", "cargo", ("--features", "rdma"), "RPC over RDMA, TCP, WebSocket: remote reads and writes, large payloads, lost connections; checksums. Doc tests included: those that are skipped are marked so in the package", 485, skipped=8,
          failed=("rdma::poller::tests::shard_admission_tries_other_queues_and_reclaims_failed_setup",),
          why="The one that fails asks for a CQ of 63 entries and wants 63. A device may give more: here, and on Broadcom's NICs (`bnxt_re`), it is 64"),
    Suite("ibverbs", "2026.10.22", "pytest", ("-m", "not gpu", "tests"), "PyPI's bindings of rdma4py: RC, UD, SRQ, rdma_cm, events, WRITE between two devices; payload compared", 88, skipped=2,
          why="The skipped ones want torch and mlx5", options=("--devices", "all")),
    Suite("dlslime", "0.1.23", "pytest", ("test_dlslime.py",), "PyPI's transfer engine: WRITE, READ and SEND of 4 MiB by endpoints of two QPs, each byte", 3, source=OURS),
    Suite("peercache", "0.8.4", "pytest", ("test_peercache.py",), "PyPI's cache for SGLang: 8 MiB of READs, each byte; a READ with a wrong key", 2, source=OURS,
          why="With `gid_index=1`: its default is 3, which is mlx5's first GID for RoCE v2 over IPv4, and is empty here"),
    Suite("starway", "0.6.0", "pytest", ("test_starway.py",), "UCX from Python's asyncio, by rc_v: up to 8 MiB, each byte", 3, source=OURS),
    Suite("procfs, rdmamap, netlink", "0.23.0, 1.1.0, 1.3.1", "go", (), "a static Go program: each finds the device and its interface; node_exporter's procfs counts 8,192,000 bytes of a pingpong, exactly",
          5, skipped=1, why="The skipped one: netlink lists the kernel's devices alone: its socket is a direct system call", options=("--namespace",), source=OURS),
    Suite("jucx", "1.18.0", "mvn", ("-Dtls=rc_v",), "UCX from Java by rc_v: tagged messages, streams, put and get up to 4 MiB, each byte", 4, source=OURS),
    Suite("jucx, UD", "1.18.0", "mvn", ("-Dtls=ud_v",), "the same by ud_v", 4, source=OURS),
]
