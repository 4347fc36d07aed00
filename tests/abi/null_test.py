#!/usr/bin/python3
"""Every exported call of libibverbs, with NULL for whatever it takes: it fails as its man page has it (EINVAL; or -1 or NULL with errno), and nothing crashes. Stock qperf's server, for one, calls
ibv_destroy_qp(NULL).

Usage: null_test.py DROPIN.so CALLS.h (src/preload/calls.h: which calls there are, and how each tells errors). One line for each that does not; exit status 0 when all do.
"""
import ctypes
import errno
import os
import re
import struct
import sys

ARGUMENTS = 8
# They take no object, or answer without one; a crash is all that they can do wrong here.
ANSWERS = re.compile(r"ibv_get_device_list|ibv_import_device|ibv_fork_init|ibv_is_fork_initialized|ibv_get_sysfs_path|ibv_read_sysfs_file|ibv_\w+_str|ibv_rate_to_\w+|\w+_to_ibv_rate"
                     r"|ibv_query_qp_data_in_order")  # no promise, of no queue pair either
VOID = re.compile(r"ibv_free_device_list|ibv_ack_\w+|ibv_unimport_\w+")
EXPECTED = {"ERRNO": (errno.EINVAL, None), "MINUS": (-1, errno.EINVAL), "NONE": (0, errno.EINVAL)}


def call(library, name, kind):
    """In a child: (result, errno), or how the child ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        function = getattr(library, name)
        function.restype = ctypes.c_void_p if kind == "NONE" else ctypes.c_int
        function.argtypes = [ctypes.c_void_p] * ARGUMENTS
        ctypes.set_errno(0)
        result = function(*[None] * ARGUMENTS)
        os.write(writer, struct.pack("qi", (result or 0) if kind != "NONE" else int(bool(result)), ctypes.get_errno()))
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 64)
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    return struct.unpack("qi", answer) if answer and not status else f"ends with status 0x{status:x}"


def main():
    library = ctypes.CDLL(sys.argv[1], use_errno=True)
    calls = re.findall(r"X\((\w+), (\w+)\)", open(sys.argv[2]).read())
    wrong = []
    for name, kind in calls:
        got = call(library, name, kind)
        if isinstance(got, str):
            wrong.append(f"{name}(NULL) {got}")
        elif not ANSWERS.fullmatch(name) and not VOID.fullmatch(name):
            result, error = EXPECTED[kind]
            if got[0] != result or error not in (None, got[1]):
                wrong.append(f"{name}(NULL) is {got[0]}, errno {got[1]}; it ought to be {result}" + (f", errno {error}" if error else ""))
    if len(calls) < 60:
        wrong.append(f"only {len(calls)} calls were found in {sys.argv[2]}")
    for line in wrong:
        print(line)
    print(f"null: {len(calls)} calls, {len(wrong)} wrong")
    return bool(wrong)


sys.exit(main())
