#!/usr/bin/python3
"""An installed copy: a program is built with what pkg-config says of ropeway-verbs, in C and C++, and runs without a wrapper.

Usage: install_test.py BUILD_DIR
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <infiniband/verbs.h>
#include <stdio.h>

int main()
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || !n)
		return 1;
	struct ibv_context *c = ibv_open_device(list[n - 1]);
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	static char buf[64];
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_port_attr attr;
	if (!mr || ibv_query_port(c, 1, &attr) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd))
		return 2;
	printf("%s %s %s\n", ibv_get_device_name(list[n - 1]), ibv_port_state_str(attr.state), ibv_wc_status_str(IBV_WC_SUCCESS));
	ibv_free_device_list(list);
	return ibv_close_device(c);
}
"""


def run(*command, **env):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    if r.returncode:
        sys.exit(f"install_test: {command} gave {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


def main():
    with tempfile.TemporaryDirectory() as temp:
        run("meson", "install", "-C", sys.argv[1], "--no-rebuild", "--destdir", temp)
        pc, = pathlib.Path(temp).rglob("ropeway-verbs.pc")
        libdir = pc.parent.parent
        for name in ["libropeway-verbs.so", "libropeway-verbs.so.0"]:
            if not (libdir / name).exists():
                sys.exit(f"install_test: {name} is not installed in {libdir}")
        # The versioned library is where neither the loader nor a link editor looks.
        versioned = libdir / "ropeway" / "libibverbs.so.1"
        if not versioned.exists() or list(libdir.glob("libibverbs*")):
            sys.exit(f"install_test: libibverbs.so.1 is not in {versioned.parent} alone")
        command, = pathlib.Path(temp).rglob("bin/ropeway")
        printed = run(command, "run", "--print-library", LD_LIBRARY_PATH=str(libdir))
        if printed != f"{versioned.parent}\n":
            sys.exit(f"install_test: ropeway run --print-library: {printed!r}")
        flags = run("pkg-config", "--cflags", "--libs", "ropeway-verbs", PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=temp).split()
        for compiler, source in ("cc", "program.c"), ("c++", "program.cc"):
            path, binary = pathlib.Path(temp, source), pathlib.Path(temp, "program")
            path.write_text(PROGRAM)
            run(compiler, "-Wall", "-Werror", path, "-o", binary, *flags)
            needed = run("readelf", "-d", binary)
            if "libropeway-verbs.so.0" not in needed or "libibverbs" in needed:
                sys.exit(f"install_test: linked with the wrong libraries\n{needed}")
            out = run(binary, LD_LIBRARY_PATH=str(libdir), ROPEWAY_DEVICES="lo")
            if out != "rpw_lo active success\n":
                sys.exit(f"install_test: {compiler}: {out!r}")
            print(f"{compiler}: {out}", end="")


main()
