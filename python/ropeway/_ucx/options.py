# SPDX-License-Identifier: BSD-3-Clause
"""UCX's options: their names, their defaults, the form of their values, and their meaning in
ropeway. Most steer parts of UCX that ropeway does not have: they are kept and listed."""

import os
import re

# Name, default and kind of each option of UCP's context. Facts of UCX 1.18 to 1.22.
OPTIONS = """
NET_DEVICES                  all                      text
SHM_DEVICES                  all                      text
ACC_DEVICES                  all                      text
SELF_DEVICES                 all                      text
TLS                          all                      text
PROTOS                       all                      text
ALLOC_PRIO                   md:sysv,md:posix,thp,md:*,mmap,heap  text
RNDV_FRAG_SIZE               host:512K,cuda:4M        text
RNDV_FRAG_ALLOC_COUNT        host:128,cuda:128        text
SOCKADDR_TLS_PRIORITY        rdmacm,tcp,sockcm        text
WARN_INVALID_CONFIG          y                        bool
RCACHE_ENABLE                try                      try
RCACHE_MEM_PRIO              500                      number
RCACHE_OVERHEAD              auto                     text
RCACHE_MAX_REGIONS           inf                      number
RCACHE_MAX_SIZE              inf                      size
RCACHE_MAX_UNRELEASED        inf                      size
RCACHE_PURGE_ON_FORK         y                        bool
MEMTYPE_CACHE                n                        try
MEMTYPE_REG_WHOLE_ALLOC_TYPES cuda                    text
BCOPY_THRESH                 auto                     size
RNDV_THRESH                  8192                     text
RNDV_SEND_NBR_THRESH         256K                     size
RNDV_PERF_DIFF               1.000                    number
MULTI_LANE_MAX_RATIO         4.000                    number
MAX_EAGER_RAILS              1                        number
MAX_RNDV_RAILS               1                        number
MAX_RMA_RAILS                1                        number
MIN_RNDV_CHUNK_SIZE          16K                      size
MIN_RMA_CHUNK_SIZE           8K                       size
RNDV_SCHEME                  auto                     text
RKEY_PTR_SEG_SIZE            512K                     size
ZCOPY_THRESH                 auto                     size
BCOPY_BW                     auto                     text
ATOMIC_MODE                  guess                    text
ADDRESS_DEBUG_INFO           n                        bool
MAX_WORKER_ADDRESS_NAME      32                       number
USE_MT_MUTEX                 n                        bool
ADAPTIVE_PROGRESS            y                        bool
SEG_SIZE                     8K                       size
TM_THRESH                    1K                       size
TM_MAX_BB_SIZE               1K                       size
TM_FORCE_THRESH              8K                       size
TM_SW_RNDV                   n                        try
NUM_EPS                      auto                     number
NUM_PPN                      auto                     number
RNDV_FRAG_MEM_TYPES          cuda                     text
RNDV_FRAG_MEM_TYPE           cuda                     text
RNDV_PIPELINE_SEND_THRESH    inf                      size
RNDV_PIPELINE_SHM_ENABLE     y                        bool
FLUSH_WORKER_EPS             y                        bool
FENCE_MODE                   auto                     text
UNIFIED_MODE                 n                        bool
CM_USE_ALL_DEVICES           y                        bool
LISTENER_BACKLOG             auto                     number
PROTO_ENABLE                 y                        bool
KEEPALIVE_INTERVAL           20s                      time
KEEPALIVE_NUM_EPS            128                      number
RESOLVE_REMOTE_EP_ID         off                      text
PROTO_INDIRECT_ID            auto                     text
RNDV_PUT_FORCE_FLUSH         n                        bool
SA_DATA_VERSION              v2                       text
ADDRESS_VERSION              v1                       text
PROTO_INFO                   auto                     text
RNDV_ALIGN_THRESH            64K                      size
PREFER_OFFLOAD               y                        bool
WIREUP_VIA_AM_LANE           n                        bool
CONNECT_ALL_TO_ALL           n                        bool
SINGLE_NET_DEVICE            n                        bool
NODE_LOCAL_ID                auto                     number
CUDA_COPY_MAX_REG_RATIO      0.1                      number
"""

FORMS = {
    "bool": re.compile(r"y|yes|n|no|on|off|1|0|true|false", re.IGNORECASE),
    "try": re.compile(r"y|yes|n|no|on|off|1|0|true|false|try", re.IGNORECASE),
    "size": re.compile(r"(\d+(\.\d+)?\s*[kmgt]?b?|inf|auto)", re.IGNORECASE),
    "number": re.compile(r"([-+]?\d+(\.\d+)?|inf|auto)", re.IGNORECASE),
    "time": re.compile(r"(\d+(\.\d+)?\s*(m|s|ms|us|ns)?|inf|auto)", re.IGNORECASE),
}

DEFAULTS = {}
KINDS = {}
for _line in OPTIONS.split("\n"):
    if _line:
        _name, _default, _kind = _line.split()
        DEFAULTS[_name] = _default
        KINDS[_name] = _kind

# Names of UCX's transports, by what in ropeway does their work. None: nothing has to.
TRANSPORTS = {
    "tcp": ("tcp",),
    "verbs": ("ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs")
    + ("ud_mlx5", "dc", "dc_x", "dc_mlx5", "srd", "verbs"),
    "shm": ("sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"),
    None: ("self", "cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "gdrcopy", "rocm", "rocm_copy")
    + ("rocm_ipc", "ze_copy", "ze_ipc", "rdmacm", "sockcm", "ugni"),
}
OURS = {name: ours for ours, names in TRANSPORTS.items() for name in names}
# In this order of preference.
ALL = ("shm", "verbs", "tcp")


def in_form(name, value):
    """Whether an option can have this value."""
    form = FORMS.get(KINDS.get(name, "text"))
    return form is None or form.fullmatch(value.strip()) is not None


def merged(defaults, options, known_only):
    """All options as they would be now: defaults, the environment's UCX_*, `options`.

    known_only: of the environment only those that have a default.
    """
    config = dict(defaults)
    for key, value in os.environ.items():
        if key.startswith("UCX_") and (not known_only or key[4:] in defaults):
            config[key[4:]] = value
    config.update(options or {})
    return config


def named(text, unknown=lambda name: None):
    """The transports of ropeway that do the work of those in a list of UCX's.

    unknown: called with a name that is none of UCX's.
    """
    ours = set()
    for token in text.split(","):
        name = token.strip().lstrip("\\").split(":")[0]
        if name == "all":
            ours.update(ALL)
        elif name in OURS:
            ours.add(OURS[name])
        elif name:
            unknown(name)
    return ours - {None}


def in_order(chosen):
    """Those transports as ropeway's list."""
    return ",".join(name for name in ALL if name in chosen)
