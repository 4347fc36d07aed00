#!/usr/bin/python3
"""QEMU's live migration over rdma of a guest that writes all the time, with its memory registered whole and in pieces. The guest compares its memory with a hash that it took before."""
import gzip
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import place

sys.path.insert(0, str(place.ROOT / "tests" / "interop"))
import guest  # noqa: E402

MEMORY_MB = 192
# Each round writes 4 MiB anew, from what never changes, and hashes both.
INIT = """#!/bin/sh
/bin/busybox mkdir -p /proc /t /dev
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /t
exec >/dev/console 2>&1
dd if=/dev/urandom of=/t/base bs=1M count=24 2>/dev/null
base=$(sha256sum </t/base); part=$(head -c 4194304 /t/base | sha256sum)
i=0
while :; do
	i=$((i + 1))
	head -c 4194304 /t/base >/t/part.$((i % 4))
	now=$(sha256sum </t/part.$((i % 4)))
	if [ "$now" = "$part" ]; then echo "round $i right"; else echo "round $i WRONG"; fi
	if [ $((i % 10)) = 0 ]; then
		now=$(sha256sum </t/base)
		if [ "$now" = "$base" ]; then echo "base at $i right"; else echo "base at $i WRONG"; fi
	fi
done
"""


def initramfs(into):
    busybox = shutil.which("busybox")
    tree = pathlib.Path(into) / "tree"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(busybox, tree / "bin" / "busybox")
    (tree / "bin" / "sh").symlink_to("busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(p.relative_to(tree)) for p in sorted(tree.rglob("*")))
    made = subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], cwd=tree, input=names.encode(), capture_output=True, check=True).stdout
    path = pathlib.Path(into) / "initramfs.gz"
    path.write_bytes(gzip.compress(made, 1))
    return path


class Qemu:
    """A QEMU on one host, spoken to by QMP."""

    def __init__(self, host, number, kernel, initrd, incoming=None):
        self.console = pathlib.Path(f"{host.folder}/console{number}")
        monitor = f"{host.folder}/qmp{number}"
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2", "-m", str(MEMORY_MB), "-smp", "1", "-nodefaults", "-display", "none", "-no-reboot",
                 "-serial", f"file:{self.console}", "-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable rdinit=/init",
                 "-qmp", f"unix:{monitor},server=on,wait=off", *(["-incoming", incoming] if incoming else [])]
        self.process = host.start(words)
        end = time.monotonic() + 30
        self.socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.socket.connect(monitor)
                break
            except OSError:
                place.check(time.monotonic() < end and not self.process.ended(), f"QEMU did not start\n{self.process.tail()}")
                time.sleep(0.05)
        self.file = self.socket.makefile("rw")
        self.file.readline()
        self.tell("qmp_capabilities")

    def tell(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            line = self.file.readline()
            place.check(line, f"QEMU ended\n{self.process.tail()}")
            answer = json.loads(line)
            place.check("error" not in answer, f"{command}: {answer.get('error')}")
            if "return" in answer:
                return answer["return"]

    def text(self):
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def rounds(self):
        return [int(number) for number in re.findall(r"round (\d+) right", self.text())]

    def wait_round(self, number, limit_s):
        end = time.monotonic() + limit_s
        while not any(n >= number for n in self.rounds()):
            place.check(time.monotonic() < end and not self.process.ended(), f"the guest did not get to round {number} in {limit_s} s:\n{self.text()[-800:]}\n{self.process.tail()}")
            time.sleep(0.2)


def migrate(source, target, uri, pin_all):
    for side in (source, target):
        side.tell("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": pin_all}])
    target.tell("migrate-incoming", uri=uri)
    source.tell("migrate-set-parameters", **{"downtime-limit": 2000, "max-bandwidth": 10 << 30})
    source.tell("migrate", uri=uri)
    end = time.monotonic() + 150
    while True:
        state = source.tell("query-migrate")
        if state.get("status") == "completed":
            return state
        place.check(state.get("status") != "failed" and time.monotonic() < end, f"migration {state}\nsource\n{source.process.tail()}\ntarget\n{target.process.tail()}")
        time.sleep(0.1)


def body(a, b):
    place.needs("qemu-system-x86_64", "busybox", "cpio")
    try:
        kernel = guest.prepare() / "vmlinuz"
    except guest.Unavailable as e:
        print(f"SKIPPED: no kernel for a guest: {e}")
        sys.exit(77)
    initrd = initramfs(a.folder)
    running = Qemu(a, 0, kernel, initrd)
    running.wait_round(3, 240)
    for number, pin_all in enumerate((False, True), 1):
        here, there = ((a, b), (b, a))[number - 1]
        target = Qemu(there, number, kernel, initrd, "defer")
        state = migrate(running, target, f"rdma:{there.ip}:{4440 + number}", pin_all)
        last = max(running.rounds(), default=0) if number == 1 else running.rounds()[-1]
        target.wait_round(last + 12, 240)  # ten rounds: the base was hashed, too
        for side in (running, target):
            place.check("WRONG" not in side.text(), f"the guest's memory has changed:\n{side.text()[-800:]}")
        rounds = target.rounds()
        place.check(rounds[0] in (last, last + 1), f"round {last} was the last at the source, {rounds[0]} the first at the target")
        place.check("base at" in target.text(), "the guest has not hashed its base since")
        running.process.kill()
        running = target
        place.compared(f"{'pinned whole' if pin_all else 'registered in pieces'}: {state['ram']['transferred'] >> 20} MiB in {state.get('total-time')} ms, down {state.get('downtime')} ms; "
                       f"the guest goes on at round {rounds[0]}, every hash right")


place.main(body)
