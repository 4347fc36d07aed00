"""Two hosts, and what may lie between them: network namespaces that vanish with the processes that hold them.

    a (192.168.7.2) -- r1 (192.168.7.1 | 10.77.1.1) -- r2 (10.77.1.2 | 10.77.5.1) -- b (10.77.5.2)
"""
import os
import pathlib
import shutil
import subprocess
import time

A, B = "192.168.7.2", "10.77.5.2"
R1, OUTSIDE = "192.168.7.1", "10.77.1.1"
A6, B6 = "fd07::2", "fd05::2"
ROCE = 4791


class NotHere(Exception):
    """This cannot be made on this machine; the text says why."""


class Network:
    def __init__(self):
        if os.geteuid():
            raise NotHere("network namespaces need root")
        self.holder = {}
        for name in "a", "r1", "r2", "b":
            p = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && echo && exec sleep 900"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.holder[name] = p
            if not p.stdout.readline():
                self.close()
                raise NotHere("no network namespace can be made here")
        self.join("a", "a0", A, "r1", "in", R1, 24)
        self.join("r1", "out", OUTSIDE, "r2", "in", "10.77.1.2", 30)
        self.join("r2", "out", "10.77.5.1", "b", "b0", B, 24)
        for router in "r1", "r2":
            self.sh(router, "echo 1 > /proc/sys/net/ipv4/ip_forward")
            # a message of ICMP for each packet, as where few come: the kernel would count them for each host
            self.sh(router, "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit")
        self.sh("a", f"ip route add default via {R1}")
        self.sh("r1", "ip route add default via 10.77.1.2")
        self.sh("r2", f"ip route add default via {OUTSIDE}")
        self.sh("b", "ip route add default via 10.77.5.1")
        self.mtu(hosts=9000, middle=9000)
        end = time.monotonic() + 10
        while subprocess.run([*self.inside("a"), "ping", "-c1", "-W1", B], capture_output=True, check=False).returncode if shutil.which("ping") else not self.carrier():
            if time.monotonic() > end:
                break
            time.sleep(0.05)

    def carrier(self):
        return all("state UP" in self.sh(n, f"ip link show {d}") for n, d in (("a", "a0"), ("b", "b0"), ("r1", "out"), ("r2", "out"), ("r1", "in"), ("r2", "in")))

    def join(self, x, dx, ax, y, dy, ay, prefix):
        self.sh(x, f"ip link add {dx} type veth peer name {dy} netns {self.holder[y].pid}")
        for n, d, a in (x, dx, ax), (y, dy, ay):
            self.sh(n, f"ip address add {a}/{prefix} dev {d} && ip link set {d} up")

    def inside(self, name):
        return ["nsenter", "-t", str(self.holder[name].pid), "-n"]

    def sh(self, name, line):
        return subprocess.run([*self.inside(name), "sh", "-c", line], check=True, timeout=30, stdout=subprocess.PIPE, text=True).stdout

    def mtu(self, hosts, middle):
        """Of the links of the two hosts, and of the one between the two routers."""
        for n, d, m in (("a", "a0", hosts), ("r1", "in", hosts), ("r1", "out", middle), ("r2", "in", middle), ("r2", "out", hosts), ("b", "b0", hosts)):
            self.sh(n, f"ip link set {d} mtu {m}")
        for n in "a", "b":
            self.sh(n, "ip route flush cache")

    def rules(self, name, text):
        """nft's, in place of those that were there."""
        if not shutil.which("nft"):
            raise NotHere("there is no nft")
        subprocess.run([*self.inside(name), "nft", "-f", "-"], input="flush ruleset\n" + text.replace("; ", "\n").replace("{ ", "{\n").replace(" }", "\n}"), text=True, check=True, timeout=30)

    def plain(self):
        for n in self.holder:
            if shutil.which("nft"):
                self.rules(n, "")
        self.mtu(hosts=9000, middle=9000)

    def six(self):
        """IPv6 beside it, by the same routers."""
        for name, device, address in (("a", "a0", A6), ("r1", "in", "fd07::1"), ("r1", "out", "fd01::1"), ("r2", "in", "fd01::2"), ("r2", "out", "fd05::1"), ("b", "b0", B6)):
            self.sh(name, f"ip -6 address add {address}/64 dev {device} nodad")
        for router in "r1", "r2":
            self.sh(router, "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit")
        for name, via in (("a", "fd07::1"), ("r1", "fd01::2"), ("r2", "fd01::1"), ("b", "fd05::1")):
            self.sh(name, f"ip -6 route add default via {via}")

    # ---- what may be wrong ----

    def black_hole(self):
        """The routers lose what is too long, and do not say so."""
        for n in "r1", "r2":
            self.rules(n, "table ip t { chain o { type filter hook output priority 0; icmp type destination-unreachable drop; } }")

    def masquerade(self, ports=""):
        """All that leaves r1 towards b has r1's address; with ports, also another source port."""
        to = f"udp dport {ROCE} masquerade to {ports}" if ports else "masquerade"
        self.rules("r1", f"table ip t {{ chain p {{ type nat hook postrouting priority srcnat; oifname \"out\" {to}; oifname \"out\" masquerade; }} }}")

    def change_ports(self):
        """Addresses stay, the source port of RoCE's packets does not."""
        self.rules("r1", f"table ip t {{ chain p {{ type nat hook postrouting priority srcnat; oifname \"out\" udp dport {ROCE} snat to {A}:2000-2999; }} }}")

    def short_of_hops(self, field):
        """What a sends to the port of RoCE gets as far as the first router."""
        self.rules("a", f"table inet t {{ chain c {{ type filter hook output priority 0; udp dport {ROCE} {field} set 1; }} }}")

    def firewall(self, verdict, protocol="udp", port=ROCE):
        """r1 drops (or rejects) what goes to that port of b."""
        self.rules("r1", f"table ip t {{ chain f {{ type filter hook forward priority 0; {protocol} dport {port} {verdict}; }} }}")

    def close(self):
        for p in self.holder.values():
            p.kill()
            p.wait()
            p.stdout.close()


class Side:
    """A process in a namespace, whose output is kept."""

    def __init__(self, net, name, *command, env=None):
        self.began = time.monotonic()
        self.p = subprocess.Popen([*net.inside(name), *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | (env or {}))

    def hear(self, word):
        """Its output up to the line that has the word."""
        text = ""
        for line in self.p.stdout:
            text += line
            if word in line:
                break
        return text

    def end(self, seconds):
        """(exit status or None where it had to be killed, output, seconds that it ran)"""
        try:
            out, _ = self.p.communicate(timeout=seconds)
            status = self.p.returncode
        except subprocess.TimeoutExpired:
            self.p.kill()
            out, _ = self.p.communicate()
            status = None
        return status, out, time.monotonic() - self.began


def pattern(path, size):
    """A file whose bytes do not repeat."""
    import hashlib
    block = b"".join(hashlib.sha256(i.to_bytes(8, "little")).digest() for i in range((size + 31) // 32))[:size]
    pathlib.Path(path).write_bytes(block)
    return block
