#!/usr/bin/python3
"""Every exported call of the installed libibverbs that takes an object must be answered by the drop-in: an unanswered one would dereference our objects and crash.

Usage: exports_test.py DROPIN.so. Lists what is wrong, one line each; exit status 0 when nothing is.
"""
import ctypes
import pathlib
import re
import subprocess
import sys

# Calls that no program makes: a driver makes them for a device of its own, found by verbs_register_driver.
DRIVER = re.compile(r"ibv_cmd_\w+|verbs_(?!open_device)\w+|_verbs_init_and_alloc_context|__verbs_log|execute_ioctl|__ioctl_final_num_attrs|ibv_register_driver"
                    r"|ibv_read_ibdev_sysfs_file|fake_\w+")
# Calls that take no object: conversions of plain structs for librdmacm, address ranges for drivers.
NO_OBJECT = re.compile(r"ibv_copy_\w+_kern|ibv_do(nt)?fork_range")
# What else the drop-in may export: the calls of the C library that it stands in front of, and those of librdmacm that the checker has to see.
HOOKS = re.compile(r"rdma_(get|ack)_cm_event|rdma_destroy_id|rdma_disconnect|dlv?sym|sigaction|signal|bsd_signal|ssignal|(__)?sysv_signal|sigset|sigignore|pthread_sigmask|sigprocmask|sig(hold|relse|block|setmask)|write|close"
                   r"|(__)?open(at)?(64)?(_2)?|creat(64)?|f?(re)?open(64)?|f?l?stat(at)?(64)?|__[lf]?xstat(at)?(64)?|statx|access|e(uid)?access|faccessat|f?statv?fs(64)?"
                   r"|l?(get|list)xattr|(fd)?opendir|readdir(64)?(_r)?|closedir|dirfd|(rewind|tell|seek)dir|getdents64|scandir(at)?(64)?|glob(64)?"
                   r"|(__)?readlink(at)?(_chk)?|(__)?realpath(_chk)?|canonicalize_file_name|f?chdir|(__)?getcwd(_chk)?|getwd|get_current_dir_name|dup[23]?|fcntl(64)?|read|__read_chk|copy_file_range"
                   r"|socket|bind|connect|get(sock|peer)name|[gs]etsockopt|send(to|m?msg)?|writev|recv(from|m?msg)|__recvfrom_chk")
HEADERS = ["verbs.h", "verbs_api.h", "sa.h"]


def real_library():
    ctypes.CDLL("libibverbs.so.1")
    for line in open("/proc/self/maps"):
        if "/libibverbs.so" in line:
            return line.split()[-1]
    sys.exit("exports_test: libibverbs.so.1 is not mapped")


def exports(path):
    """name -> set of versions of the functions that a library defines."""
    found = {}
    for line in subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout.splitlines():
        fields = line.split()
        if fields[-2] in "TWi":
            name, _, version = fields[-1].partition("@")
            found.setdefault(name, set()).add(version.lstrip("@"))
    return found


def declared(header):
    """Functions that a public header declares, not those that it defines inline."""
    text = pathlib.Path("/usr/include/infiniband", header).read_text()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return set(re.findall(r"^(?!static)[\w\s\*]*?\b(\w+)\s*\([^(){};]*(?:\([^()]*\)[^(){};]*)*\)\s*;", text, flags=re.M))


def main():
    dropin = sys.argv[1]
    real, ours = exports(real_library()), exports(dropin)
    public = set().union(*(declared(h) for h in HEADERS if pathlib.Path("/usr/include/infiniband", h).exists()))
    wrong = []
    for name in sorted(real):
        exempt = DRIVER.fullmatch(name) or NO_OBJECT.fullmatch(name)
        if name not in ours and not exempt:
            wrong.append(f"{name} is exported by libibverbs and not answered by the drop-in")
        if exempt and DRIVER.fullmatch(name) and name in public:
            wrong.append(f"{name} is taken for a driver's call, but a public header declares it")
    for name in sorted(public & set(real)):
        if name not in ours and not NO_OBJECT.fullmatch(name):
            wrong.append(f"{name} is declared in a public header and not answered")
    for name, versions in sorted(ours.items()):
        if versions != {""}:
            wrong.append(f"{name} carries the version {versions}; unversioned symbols alone answer every version")
        if not re.match(r"_?ibv_|verbs_open_device$|mult_to_ibv_rate$|mbps_to_ibv_rate$|ropeway_(path_word|refused)$", name) and not HOOKS.fullmatch(name):
            wrong.append(f"{name} is exported by accident")
    if len(real) < 100 or len(public & set(real)) < 50:
        wrong.append(f"only {len(real)} exports and {len(public & set(real))} public ones were found: this test looked in the wrong place")
    for line in wrong:
        print(line)
    answered = sum(name in ours for name in real)
    print(f"exports: libibverbs has {len(real)}, {answered} answered, {len(public & set(real))} of them public")
    return bool(wrong)


sys.exit(main())
