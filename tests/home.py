#!/usr/bin/python3
"""The suite where people run it: in a checkout whose path has a space, below a home of mode 0700, with loopback alone and without IPv6; as root, then as an ordinary user.

Usage: home.py [--quick]       --quick: the whole of script/test --quick, each time; else script/test --check, and the tests of what finds files by their path

The tree is a copy of this one, in /tmp. It is built once, as root. Ends with 'N passed, N failed, N skipped', of both. Exit status 77 where there is no root.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
USER = 65534
# A network namespace as a container with --network none has it.
ALONE = ["unshare", "--net", "--mount", "sh", "-ec", """
mount -t tmpfs tmpfs /dev/shm
for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >"$each"; done
ip link set lo up
exec "$@" """, "sh"]
BECOME = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
# The command, the drop-in and its files, the device's peers: what starts programs and finds libraries.
FOUND = """meson test -C build --no-rebuild --print-errorlogs --logbase testlog-home \
	cli-run cli-usage launch-link smoke library calls tree namespace like completion one-core learn_write_read learn_send_recv learn_messages
status=$?
python3 -B tests/skipped.py build/meson-logs/testlog-home.json
exit $status"""


def copy(tree):
    """With the history, which tests read, and with what is not committed yet."""
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", ROOT, tree], check=True)
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    there = b"".join(name + b"\0" for name in listed.split(b"\0") if name and os.path.lexists(os.path.join(os.fsencode(ROOT), name)))
    packed = subprocess.run(["tar", "cf", "-", "--null", "-T", "-"], cwd=ROOT, input=there, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "xf", "-", "--no-same-owner"], cwd=tree, input=packed, check=True)


def run(tree, become, script):
    """Shown as it comes: what it passed, failed and skipped, by the last such line, or by meson's summary."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tree.parent), "LANG": "C.UTF-8", "CMOCKA_MESSAGE_OUTPUT": "TAP"}
    process = subprocess.Popen([*ALONE, *become, "sh", "-c", script], cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    counts, of_meson = None, [0, 0, 0]
    for line in process.stdout:
        print(line, end="", flush=True)
        found = re.match(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", line)
        if found:
            counts = [int(n or 0) for n in found.groups()]
        found = re.match(r"(?:(Ok|Expected Fail)|(Fail|Unexpected Pass|Timeout)|(Skipped)): +(\d+) *$", line)
        if found:
            of_meson[next(i for i in range(3) if found[i + 1])] += int(found[4])
    counts = counts or of_meson
    if process.wait() and not counts[1]:
        counts[1] = 1
    return counts


def main():
    if os.geteuid() or subprocess.run([*ALONE, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("SKIPPED: only root can make a home for another user, and a network namespace for it (unshare --net --mount)")
        return 77
    scripts = ["script/test --quick"] if "--quick" in sys.argv[1:] else ["script/test --check", FOUND]
    whole = [0, 0, 0]
    with tempfile.TemporaryDirectory(prefix="ropeway-home-") as folder:
        os.chmod(folder, 0o755)
        tree = pathlib.Path(folder, "my home", "my tree")
        tree.parent.mkdir(mode=0o700)
        copy(tree)
        for who, become in ("root", []), ("an ordinary user", BECOME):
            print(f"as {who}, in {tree}", flush=True)
            if become:
                subprocess.run(["chown", "-R", f"{USER}:{USER}", tree.parent], check=True)
            for script in scripts:
                whole = [a + b for a, b in zip(whole, run(tree, become, script))]
        for link in pathlib.Path("/tmp").glob("ropeway-*"):  # of ropeway run: one for each user and folder, which stay
            if link.is_symlink() and os.readlink(link).startswith(folder):
                link.unlink()
    print("%d passed, %d failed, %d skipped" % tuple(whole))
    return 1 if whole[1] or not whole[0] else 0


if __name__ == "__main__":
    sys.exit(main())
