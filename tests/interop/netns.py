"""A network namespace of the test's own, with a bridge that guests' tap devices join. It vanishes with the last process in it."""
import os
import pathlib
import shutil
import subprocess
import sys

MARK = "ROPEWAY_TEST_NETNS"
HOST_IP4, HOST_IP6 = "10.77.0.1", "fd77::1"


def enter_namespace():
    """Start this program again inside a new network namespace: as root directly, else with a user namespace in which we are root.

    Exits with a message if neither is allowed. Does nothing when already inside.
    """
    if os.environ.get(MARK) == str(os.getpid()):
        return
    flags = ["-n"] if os.geteuid() == 0 else ["-Urn"]
    if subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode:
        raise PermissionError("no network namespace can be made here: neither root nor user namespaces")
    os.environ[MARK] = str(os.getpid())  # unshare execs, so the process that comes back here has this pid
    os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])


def ip(*words):
    subprocess.run([shutil.which("ip") or "/sbin/ip", *words], check=True)


def add_bridge(mtu=1500):
    """br0 with the host's addresses, and loopback up."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "br0", "type", "bridge")
    ip("addr", "add", HOST_IP4 + "/24", "dev", "br0")
    ip("-6", "addr", "add", HOST_IP6 + "/64", "dev", "br0", "nodad")
    ip("link", "set", "br0", "mtu", str(mtu), "up")


def add_tap(number, mtu=1500):
    name = f"tap{number}"
    ip("tuntap", "add", "dev", name, "mode", "tap")
    # A port of the bridge, not an interface of ours: without an address no device is listed for it.
    pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    ip("link", "set", name, "mtu", str(mtu), "master", "br0", "up")
    return name
