"""Where the tests of this folder run: namespaces of their own, with lo, one end of a veth, d0, and a /sys that shows these."""
import os
import subprocess
import sys

SETUP = "mount -t sysfs sys /sys && ip link set lo up && ip link add d0 type veth peer name p0 && ip addr add 10.9.9.1/24 dev d0 && ip link set p0 addrgenmode none && ip link set d0 up && ip link set p0 up && exec \"$@\""


def enter(before=lambda: None, *needed):
    """Starts this program again in there (as root of its own user namespace where need be), once `before` is called. `needed` before a command must work in there; else all is skipped."""
    if os.environ.get("TREE_TEST_INSIDE"):
        return
    user = [] if os.geteuid() == 0 else ["-r"]
    inside = ["unshare", *user, "-mn", "sh", "-c", SETUP, "sh"]
    tried = subprocess.run([*inside, *needed, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        print(f"SKIPPED: no namespaces here: {tried.stderr.strip()}")
        sys.exit(77)
    before()
    os.execvpe("unshare", [*inside, sys.executable, "-B", *sys.argv], {**os.environ, "TREE_TEST_INSIDE": "1"})
