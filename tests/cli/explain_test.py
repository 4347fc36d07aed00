#!/usr/bin/python3
"""`ropeway run --explain` and `ropeway explain`: real programs are run and captured in a network namespace, and what is told of them is held against tshark and a browser.

Usage: explain_test.py BUILD_DIR TEST_CLASS. Exit status 77 where every test of the class was skipped. ROPEWAY_TEST_SEED and ROPEWAY_TEST_MUTATIONS choose what Hostile does.
"""
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
import unittest

import browser

BUILD = pathlib.Path(".")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
NAMESPACE = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--net", "--kill-child")  # root needs no user namespace, and may not get one

# Server and client of each story; the server's line is run in the background until the client has ended. $R is `ropeway run` with captures and accounts.
STORIES = {
    "pair": ("$R rdma_server", "$R rdma_client -s 127.0.0.1"),
    "silent": ("$R $BUILD/rdma-send-recv-server --silent --wait 2 --count 1 7471", "$R $BUILD/rdma-send-recv-client 127.0.0.1 7471"),
    "refused": ("sleep 0", "$R rdma_client -s 127.0.0.1 -p 7999"),
    "lossy": ("$R --fault drop=0.04,seed=7 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 40 -s 9000",
              "$R --fault drop=0.04,seed=9 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 40 -s 9000 127.0.0.1"),
    "write": ("$R $BUILD/rdma-server -n 1 write", "$R $BUILD/rdma-client write 127.0.0.1"),
    "stream": ("$R ibv_rc_pingpong -d rpw_lo -g 1 -n 20 -s 60000", "$R ibv_rc_pingpong -d rpw_lo -g 1 -n 20 -s 60000 127.0.0.1"),
    "long": ("$R --fault drop=0.0008,seed=3 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 60 -s 60000", "$R --fault drop=0.0008,seed=5 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 60 -s 60000 127.0.0.1"),
    "datagrams": ("$R ibv_ud_pingpong -d rpw_lo -g 1 -n 30", "$R ibv_ud_pingpong -d rpw_lo -g 1 -n 30 127.0.0.1"),
}
RUN = """
set -u
ip link set lo up
R="$BUILD/ropeway run --explain=$OUT/server.txt --pcap $OUT/server.pcapng"
{server} >$OUT/server.out 2>&1 &
server=$!
sleep 1
R="$BUILD/ropeway run --explain=$OUT/client.txt --pcap $OUT/client.pcapng"
timeout 60 {client} >$OUT/client.out 2>&1
echo $? >$OUT/client.status
( sleep 5; kill $server ) 2>/dev/null &
wait $server
echo $? >$OUT/server.status
"""
told = {}


def ropeway(*args, **kwargs):
    env = dict(os.environ, LC_ALL="C.UTF-8", **kwargs.pop("env", {}))
    return subprocess.run([BUILD / "ropeway", *map(str, args)], env=env, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, **kwargs)


def story(name):
    """Runs it once; the folder with its captures, accounts and output."""
    if name not in told:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"ropeway-{name}-"))
        server, client = (line.replace("$R", "timeout 60 $R", 1) for line in STORIES[name])
        subprocess.run([*NAMESPACE, "bash", "-c", RUN.format(server=server, client=client.replace("timeout 60 ", "", 1))],
                       env=dict(os.environ, BUILD=str(BUILD), OUT=str(folder), LC_ALL="C.UTF-8"), timeout=TIMEOUT_S, check=False)
        told[name] = folder
    return told[name]


def cells(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def at_a_terminal(columns, locale):
    """The account of the client of "pair", as a terminal of that width gets it, without colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([*NAMESPACE, "bash", "-c", f"ip link set lo up; {BUILD}/ropeway run -- rdma_server >/dev/null & sleep 1;"
                                f"{BUILD}/ropeway run --explain -- rdma_client -s 127.0.0.1 >/dev/null; wait"],
                               env=dict(os.environ, LC_ALL=locale, NO_COLOR="1"), stdin=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    text = b""
    try:
        while select.select([leader], [], [], TIMEOUT_S)[0]:
            text += os.read(leader, 1 << 16)
    except OSError:  # nobody has the terminal open any more
        pass
    os.close(leader)
    process.wait(TIMEOUT_S)
    return "\n".join(line for line in text.decode().replace("\r\n", "\n").splitlines() if "setlocale" not in line and "locale (" not in line)


def forget():
    for folder in told.values():
        shutil.rmtree(folder, ignore_errors=True)


def page_data(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL).group(1))


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-explain-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        if not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no network namespace can be made here")

    def text(self, name, side):
        return (story(name) / f"{side}.txt").read_text(encoding="utf-8")

    def page(self, *captures, options=()):
        out = self.dir / "page.html"
        got = ropeway("explain", *options, "-o", out, *captures)
        self.assertEqual(got.returncode, 0, got)
        return out

    def data(self, *captures):
        return page_data(self.page(*captures).read_text(encoding="utf-8"))


class Account(Case):
    def assert_in_order(self, text, *parts):
        at = 0
        for part in parts:
            found = re.compile(part).search(text, at)
            self.assertTrue(found, f"{part!r} does not follow in\n{text}")
            at = found.end()

    def test_both_sides_tell_the_steps_of_a_connection_in_their_order(self):
        self.assert_in_order(self.text("pair", "client"), "rdma_resolve_addr", "ADDR_RESOLVED", "ibv_create_qp", r"-> CM ConnectRequest \(REQ\)", r"<- CM ConnectReply \(REP\)",
                             "ibv_modify_qp to RTR", r"-> CM ReadyToUse \(RTU\)", "ibv_post_send SEND", r"-> RC SEND_ONLY PSN 0x[0-9a-f]{6}", r"<- RC ACK PSN 0x[0-9a-f]{6}", "SEND done", "RECV done",
                             r"CM DisconnectRequest \(DREQ\)", "DISCONNECTED", "summary")
        self.assert_in_order(self.text("pair", "server"), "rdma_listen", r"<- CM ConnectRequest \(REQ\)", "CONNECT_REQUEST", r"-> CM ConnectReply \(REP\)",
                             r"<- CM ReadyToUse \(RTU\)", "summary", "accepted as server")

    def test_time_runs_forward_and_columns_are_aligned(self):
        for side in ("client", "server"):
            lines = self.text("pair", side).splitlines()
            times = [float(m.group(1)) for m in (re.match(r" *(\d+\.\d{3})  ", line) for line in lines) if m]
            self.assertGreater(len(times), 20)
            self.assertEqual(times, sorted(times))
            wire = {m.end() for m in (re.match(r" *\d+\.\d{3} +(?=(->|<-) (RC|CM) )", line) for line in lines) if m}
            self.assertEqual(len(wire), 1, "every packet begins in one column")

    def test_a_concept_is_explained_once_where_it_first_appears(self):
        text = self.text("pair", "client")
        for word in ("RTR, ready to receive", "REQ, connect request", "ACK: everything"):
            self.assertEqual(text.count(word), 1, word)
        self.assertLess(text.index("RTR, ready"), text.index("RTS, ready"))

    def test_sentences_in_chinese_where_the_locale_is(self):
        folder = self.dir
        subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; LC_ALL=zh_CN.UTF-8 {BUILD}/ropeway run --explain={folder}/a.txt ibv_devinfo -d rpw_lo"],
                       stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True)
        self.assertIn("执行记录", (folder / "a.txt").read_text(encoding="utf-8"))

    def test_the_flush_error_is_diagnosed_on_both_sides(self):
        client, server = self.text("silent", "client"), self.text("silent", "server")
        flat = " ".join(client.split())
        self.assertIn("flushed (status 5)", flat)
        self.assertIn("it accepted the connection, but never sent the answer that this program waits for", flat)
        self.assertIn("posted no send between ESTABLISHED and disconnect", " ".join(server.split()))
        for side in ("client", "server"):
            self.assertNotIn("never sent the answer", self.text("pair", side), "a pair that answers is not accused")
            self.assertNotIn("posted no send", self.text("pair", side))

    def test_a_refused_connection_says_that_nobody_listens(self):
        self.assertIn("nobody listens at that port", " ".join(self.text("refused", "client").split()))

    def test_repetition_is_folded_and_counted(self):
        text = self.text("stream", "client")
        self.assertLess(len(text.splitlines()), 400)
        flat = " ".join(text.split())
        self.assertRegex(flat, r"\.\.\. \d+ more -> RC SEND_MIDDLE PSN \w+\.\.0x")
        # What is shown and what is counted is all that was sent: 20 messages of 60000 bytes.
        shown = len(re.findall(r"(?<!more )-> RC SEND_FIRST PSN", flat))
        counted = sum(int(n) for n in re.findall(r"(\d+) more -> RC SEND_FIRST PSN[^.]*(?:\.\.\w+)?, \d+ B(?!, again)", flat))
        again = len(re.findall(r"-> RC SEND_FIRST PSN \w+, \d+ B, again", flat))
        self.assertEqual(shown + counted - again, 20, text)

    def test_losses_on_purpose_and_what_is_sent_again_show(self):
        flat = " ".join(self.text("lossy", "client").split())
        self.assertIn("lost on purpose", flat)
        self.assertRegex(flat, r"PSN 0x[0-9a-f]{6}, \d+ B, again")
        self.assertRegex(flat, r"\d+ packets sent again")

    def test_psns_are_written_as_the_programs_print_them(self):
        folder = story("stream")
        local = re.search(r"local address:.* PSN (0x[0-9a-f]{6})", (folder / "client.out").read_text(encoding="utf-8")).group(1)
        self.assertIn(f"-> RC SEND_FIRST PSN {local}, ", self.text("stream", "client"))
        self.assertIn(f"RC SEND_FIRST PSN {local}, ", ropeway("explain", folder / "client.pcapng").stdout)
        rows = self.data(folder / "client.pcapng")["talks"][0]["rows"]
        self.assertTrue(any(f"PSN {local}," in r["x"] for r in rows))

    def test_a_key_is_explained_where_it_is_true(self):
        text = self.text("write", "client")
        self.assert_in_order(text, r"only\s+for us: lkey 0x", r"peer may write: rkey 0x", "lets a peer reach this memory", "ibv_post_send RDMA_WRITE", "the peer gave us access")
        self.assertEqual(text.count("only for us: rkey"), 0)
        self.assertEqual(text.count("lets a peer reach this memory"), 1)

    def test_polls_in_vain_are_told_where_they_happened(self):
        for name in ("pair", "stream", "write"):
            for side in ("client", "server"):
                text = " ".join(self.text(name, side).split())
                account, _, summary = text.partition("---- summary ----")
                self.assertNotRegex(account, r"polled \d{1,2} times? in vain", "not worth a line")
                self.assertNotRegex(account, r"in vain$", "what comes after the last event is no event")
                told = sum(int(n.replace(",", "")) for n in re.findall(r"polled ([\d,]+) times in vain", account))
                total = re.search(r"polled ([\d,]+) times? in vain in all", summary)
                self.assertLessEqual(told, int(total.group(1).replace(",", "")) if total else 0)

    def test_it_fits_a_terminal_and_no_word_is_broken(self):
        known = set()
        for source in (SOURCE / "src").rglob("*.[ch]"):
            known |= set(re.findall(r"[A-Za-z]{2,}", source.read_text(encoding="utf-8")))
        for columns, locale in ((72, "C.UTF-8"), (80, "C.UTF-8"), (80, "zh_CN.UTF-8"), (100, "C.UTF-8"), (140, "C.UTF-8")):
            text = at_a_terminal(columns, locale)
            self.assertIn("ibv_post_send", text)
            for line in text.splitlines():
                self.assertLessEqual(cells(line), columns, line)
            broken = set(re.findall(r"(?<![0-9a-zA-Z])[A-Za-z]{2,}(?![0-9a-zA-Z])", text)) - known
            self.assertFalse(broken, (columns, locale))
            self.assertEqual(text.count("(best with 120 columns" if locale[0] == "C" else "最易读"), columns < 120, text[:400])
            if locale[0] == "z":
                self.assertNotRegex(text, r"(?m)^ *[，。；：、）]", "no line begins with what closes one")

    def test_a_program_without_a_device_leaves_no_account(self):
        got = ropeway("run", f"--explain={self.dir}/x.txt", "true")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""))
        self.assertFalse((self.dir / "x.txt").exists())

    def test_to_standard_error_and_not_where_it_cannot_be_written(self):
        got = subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; {BUILD}/ropeway run --explain -- ibv_devinfo -d rpw_lo"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
        self.assertIn("ibv_open_device rpw_lo", got.stderr)
        self.assertNotIn("ibv_open_device", got.stdout)
        got = ropeway("run", "--explain=/no/such/folder/x", "true")
        self.assertEqual(got.returncode, 1)
        self.assertIn("/no/such/folder", got.stderr)

    def test_a_server_that_is_ended_by_a_signal_still_sums_up(self):
        subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; timeout -s TERM 3 {BUILD}/ropeway run --explain={self.dir}/x.txt rdma_server"],
                       stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        self.assertIn("summary", (self.dir / "x.txt").read_text(encoding="utf-8"))


class Ladder(Case):
    def test_wrong_use_is_said(self):
        for args, says in (((), "no capture"), (("--color", "blue", "x"), "blue"), (("-o", "", "x"), "--output"), (("x",) * 9, "not more than 8")):
            got = ropeway("explain", *args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), got)
            self.assertIn(says, got.stderr)

    def test_files_that_are_no_captures_are_said(self):
        (self.dir / "empty").touch()
        (self.dir / "text").write_text("no capture at all, only words", encoding="ascii")
        for name, says in (("empty", "empty"), ("text", "neither a pcapng nor a pcap"), ("missing", "No such file"), (".", "directory")):
            got = ropeway("explain", self.dir / name)
            self.assertEqual((got.returncode, got.stdout), (1, ""), got)
            self.assertIn(says, got.stderr)

    def test_a_page_that_cannot_be_written_is_said(self):
        got = ropeway("explain", "-o", "/no/such/folder/x.html", story("pair") / "client.pcapng")
        self.assertEqual(got.returncode, 1)
        self.assertIn("/no/such/folder", got.stderr)

    def test_a_ladder_on_the_terminal(self):
        got = ropeway("explain", story("pair") / "client.pcapng")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        for part in ("REQ_SENT", "CM REQ", "CM REP", "CM RTU", "ESTABLISHED", "SEND_ONLY", "port 7471", "disconnected"):
            self.assertIn(part, got.stdout)
        self.assertNotIn("\033", got.stdout)
        self.assertIn("\033[3", ropeway("explain", "--color=always", story("pair") / "client.pcapng").stdout)

    def test_the_silent_server_is_found_in_the_packets_too(self):
        self.assertIn("sent no message between RTU and DREQ", ropeway("explain", story("silent") / "client.pcapng").stdout)
        self.assertNotIn("sent no message", ropeway("explain", story("pair") / "client.pcapng").stdout)

    def test_a_cut_capture_shows_what_is_whole(self):
        whole = (story("pair") / "client.pcapng").read_bytes()
        (self.dir / "cut.pcapng").write_bytes(whole[:-30])
        got = ropeway("explain", self.dir / "cut.pcapng")
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("damaged", got.stderr)
        self.assertIn("CM REQ", got.stdout)

    def test_other_formats_give_the_same_conversation(self):
        if not shutil.which("editcap"):
            self.skipTest("no editcap (wireshark-common)")
        source = story("pair") / "client.pcapng"
        want = ropeway("explain", source).stdout
        subprocess.run(["editcap", "-F", "nsecpcap", source, self.dir / "x.pcap"], check=True)
        self.assertEqual(ropeway("explain", self.dir / "x.pcap").stdout, want)
        # As tcpdump has it on Ethernet: the same packets behind 14 bytes more, and short ones padded.
        (self.dir / "ether.pcap").write_bytes(as_ethernet((self.dir / "x.pcap").read_bytes()))
        self.assertEqual(ropeway("explain", self.dir / "ether.pcap").stdout, want)

    def test_two_captures_of_one_run_are_one_conversation_with_the_true_losses(self):
        folder = story("lossy")
        both = self.data(folder / "client.pcapng", folder / "server.pcapng")
        self.assertEqual(len(both["talks"]), 1)
        rows = [r for r in both["talks"][0]["rows"] if "n" in r]
        seen = [r for r in rows if "t2" in r]
        self.assertGreater(len(seen), len(rows) * 3 // 4, "most packets are in both captures, and shown once")
        self.assertEqual(len({(r["l"], r["x"], r["t"]) for r in rows}), len(rows))

    def skewed(self, name, clock_s=0.0, late_us=0):
        """Both captures of a story, as if taken by a program that stamps what it sends up to late_us after the call, the server's with another clock."""
        rng, files = random.Random(7), []
        for side, shift in (("client", 0), ("server", round(clock_s * 1e9))):
            head, packets = blocks((story(name) / f"{side}.pcapng").read_bytes())
            out, last = [], 0
            for block in map(bytearray, packets):
                high, low = struct.unpack_from("<II", block, 12)
                last = max(last, (high << 32 | low) + shift + (rng.randrange(late_us * 1000 + 1) if outbound(block) else 0))
                struct.pack_into("<II", block, 12, last >> 32, last & 0xFFFFFFFF)
                out.append(bytes(block))
            files.append(self.dir / f"{side}.pcapng")
            files[-1].write_bytes(head + b"".join(out))
        return files

    def assert_causes_come_first(self, rows, low_us=0):
        """No row before what it acknowledges, no receipt before its packet, time never backwards."""
        sent = [set(), set()]
        for before, row in zip(rows, rows[1:]):
            self.assertLessEqual(before["t"], row["t"])
        for row in rows:
            self.assertGreaterEqual(row.get("t2", row["t"]) - row["t"], low_us, row)
            psn = re.match(r"PSN (\w+)", row["x"])
            if psn and row["k"] == "resp":
                self.assertIn(int(psn.group(1), 16), sent[1 - row["d"]], row)
            elif psn:
                sent[row["d"]].add(int(psn.group(1), 16))

    def test_two_captures_of_one_host_show_no_effect_before_its_cause(self):
        for name in ("pair", "stream"):
            for late_us in (0, 300, 2000):
                files = self.skewed(name, late_us=late_us)
                data = self.data(*files)
                self.assertEqual(len(data["talks"]), 1)
                rows = data["talks"][0]["rows"]
                self.assertGreaterEqual(len([r for r in rows if "t2" in r]), len(rows) - 1, "but for a last packet that nobody takes any more, each is in both")
                self.assert_causes_come_first(rows)
                moved = [r for r in rows if r.get("v")]
                self.assertEqual(len(moved), data["head"]["moved"])
                text = ropeway("explain", *files).stdout
                self.assertEqual("stamped too late to be true" in text, bool(moved))
            self.assertTrue(moved, "2 ms late is too late to be true")

    def test_clocks_of_two_hosts_are_brought_together_and_it_is_said(self):
        for clock_s in (-3600, -0.5, 7):
            files = self.skewed("stream", clock_s=clock_s)
            data = self.data(*files)
            rows = data["talks"][0]["rows"]
            self.assertEqual(len([r for r in rows if "t2" in r]), len(rows))
            self.assert_causes_come_first(rows)
            self.assertLess(rows[-1]["t"], 10e6)
            self.assertAlmostEqual(data["head"]["files"][1]["shift"] / 1e9, -clock_s, delta=0.1)
            self.assertIn("The clock of server.pcapng was moved by", ropeway("explain", *files).stdout)

    def test_datagrams(self):
        data = self.data(story("datagrams") / "client.pcapng")
        self.assertEqual([t["about"]["kind"] for t in data["talks"]], ["UD"])
        self.assertEqual([e["messages"] for e in data["talks"][0]["about"]["ends"]], [30, 30])


def as_ethernet(pcap):
    magic, link = pcap[:4], 1
    out = [pcap[:20] + struct.pack("<I", link)]
    assert magic == struct.pack("<I", 0xA1B23C4D)
    at = 24
    while at < len(pcap):
        sec, nsec, have, wire = struct.unpack_from("<IIII", pcap, at)
        data = b"\x02\0\0\0\0\1" + b"\x02\0\0\0\0\2" + b"\x08\x00" + pcap[at + 16:at + 16 + have]
        pad = max(0, 60 - len(data))
        out.append(struct.pack("<IIII", sec, nsec, len(data) + pad, wire + 14 + pad) + data + bytes(pad))
        at += 16 + have
    return b"".join(out)


def tshark(capture):
    out = subprocess.run(["tshark", "-r", capture, "-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-Y", "udp.dstport == 4791"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True).stdout
    return {int(n): (int(op, 0), int(psn, 0)) for n, op, psn in (line.split("\t") for line in out.splitlines())}


class Page(Case):
    def setUp(self):
        super().setUp()
        if not browser.find():
            self.skipTest("no chromium")
        if not shutil.which("tshark"):
            self.skipTest("no tshark")

    def opened(self, *captures, lang="en"):
        page = browser.Browser()
        self.addCleanup(page.__exit__)
        page.screen(1280, 1000)
        page.open(f"file://{self.page(*captures)}#lang={lang}")
        return page

    def visible(self, page):
        return page.js("!document.querySelector('#panel').hidden")

    def test_every_packet_has_its_arrow(self):
        for name in ("pair", "lossy", "stream", "datagrams"):
            capture = story(name) / "client.pcapng"
            want = tshark(capture)
            page = self.opened(capture)
            got = {}
            for i in range(page.js("DATA.talks.length")):
                page.js(f"setTalk({i}); open = new Set(rows.map((r) => r.g).filter((g) => g !== undefined)); draw()")
                for number, fields in page.js("[...document.querySelectorAll('.row .line')].map((e) => rows[e.closest('.row').dataset.row]).filter((r) => r.n).map((r) => [r.n, r.h])"):
                    self.assertNotIn(number, got, "one arrow each")
                    values = {(g, k): v for g, k, v in fields}
                    got[number] = (int(values["BTH", "opcode"].split()[0], 16), int(values["BTH", "psn"].split()[0], 16))
            self.assertEqual(got, want, name)
            self.assertEqual(page.complaints(), [])
            page.__exit__()

    def test_a_click_explains_a_packet_field_by_field(self):
        page = self.opened(story("pair") / "client.pcapng")
        self.assertFalse(self.visible(page))
        page.click(".row.cm")
        self.assertTrue(self.visible(page))
        text = page.js("document.querySelector('#panel').innerText")
        for part in ("CM REQ", "Connect request", "rdma_connect", "IB 12.6.5", "service_id", "path_mtu", "127.0.0.1", "dqpn", "ICRC"):
            self.assertIn(part, text)
        page.click("#close")
        self.assertFalse(self.visible(page))
        page.click(".row.req")
        self.assertIn("SEND_ONLY", page.js("document.querySelector('#panel h2').innerText"))

    def test_a_click_explains_a_state(self):
        page = self.opened(story("pair") / "client.pcapng")
        page.click('[data-state="ESTABLISHED"]')
        text = page.js("document.querySelector('#panel').innerText")
        self.assertIn("Both sides may send and receive", text)
        self.assertIn("Inferred", text)
        sides = page.js("[...document.querySelectorAll('.chips.right .chip')].map((e) => e.dataset.state)")
        self.assertEqual(sides[:2], ["REQ_RCVD", "REP_SENT"], sides)

    def test_keys_alone_are_enough(self):
        page = self.opened(story("pair") / "client.pcapng")
        page.js("document.querySelector('.row').focus()")
        page.key("Enter")
        self.assertTrue(self.visible(page))
        first = page.js("document.querySelector('#panel h2').innerText")
        page.js("document.querySelector('.row').focus()")
        for _ in range(5):
            page.key("ArrowDown")
        self.assertNotEqual(page.js("document.querySelector('#panel h2').innerText"), first)
        page.key("Escape")
        self.assertFalse(self.visible(page))
        self.assertTrue(page.js("document.activeElement.closest('#ladder') !== null"), "the focus is where it was")
        self.assertEqual(page.js("[...document.querySelectorAll('button')].filter((b) => b.tabIndex < 0).length"), 0)

    def test_languages(self):
        page = self.opened(story("silent") / "client.pcapng")
        page.click(".row.cm")
        english = page.js("document.body.innerText")
        self.assertNotRegex(re.sub("中文", "", english), "[\u4e00-\u9fff]")
        page.click('.lang [data-lang="zh"]')
        chinese = page.js("document.body.innerText")
        self.assertEqual(page.js("document.documentElement.lang"), "zh-CN")
        for part in ("连接请求", "服务器接受了连接", "客户端", "为什么发送", "端口 7471"):
            self.assertIn(part, chinese)
        self.assertTrue(self.visible(page), "what was open stays open")
        page.click('.lang [data-lang="en"]')
        self.assertIn("Connect request", page.js("document.body.innerText"))
        # Every text has both.
        lone = page.js("[UI, LEAD, OUTCOMES, DIAGNOSES, WHYS, FIELDS].flatMap((t) => Object.entries(t)).filter(([, v]) => !v[0] || !v[1] || v.length !== 2).map(([k]) => k)")
        self.assertEqual(lone, [])

    def test_every_key_of_the_data_has_its_words(self):
        for name in STORIES:
            if not (story(name) / "client.pcapng").exists():
                continue
            page = self.opened(story(name) / "client.pcapng")
            missing = page.js("DATA.talks.flatMap((t) => t.rows).flatMap((r) => [...(r.h || []).filter(([, k]) => !FIELDS[k]).map(([, k]) => k),"
                              " ...(r.m || []).filter((m) => !MARKS[m]), ...(r.w && !WHYS[r.w] ? [r.w] : []), ...(r.n && !words(r) ? [r.l] : [])])")
            self.assertEqual(missing, [], name)
            page.__exit__()

    def test_folds_open_and_close(self):
        page = self.opened(story("stream") / "client.pcapng")
        count = "document.querySelectorAll('.row').length"
        before = page.js(count)
        page.click(".foldrow")
        opened = page.js(count)
        self.assertGreater(opened, before)
        self.assertEqual(page.js("document.querySelector('.foldrow').getAttribute('aria-expanded')"), "true")
        page.click(".foldrow")
        self.assertEqual(page.js(count), before)
        page.click("#fold")
        self.assertEqual(page.js(count), page.js("rows.length"))
        page.click("#fold")
        self.assertEqual(page.js(count), before)

    def test_losses_and_what_came_again_are_marked(self):
        page = self.opened(story("lossy") / "client.pcapng")
        marks = page.js("rows.flatMap((r) => r.m || [])")
        for mark in ("again", "gap", "nak"):
            self.assertIn(mark, marks)
        self.assertGreater(page.js("document.querySelectorAll('.row.lost .line').length"), 0)
        self.assertGreater(page.js("document.querySelectorAll('.row .tag').length"), 0)
        page.js("document.querySelector('.row.marked').click()")
        self.assertTrue(page.js("document.querySelector('#panel .mk') !== null"))
        # What the page calls sent again was sent before, or is in a gap.
        rows = page.js("rows.filter((r) => r.n && r.k === 'req').map((r) => [r.d, Number(r.x.match(/PSN (\\w+)/)[1]), (r.m || []).includes('again')])")
        high = {}
        for side, psn, again in rows:
            if side in high:
                self.assertEqual(again, (psn - high[side] - 1) % 2**24 >= 2**23, (side, psn, high[side]))
            if side not in high or not again:
                high[side] = psn

    def test_it_fits_on_a_phone_and_in_the_dark(self):
        page = self.opened(story("pair") / "client.pcapng")
        light = page.js("getComputedStyle(document.body).backgroundColor")
        page.screen(360, 740, phone=True, dark=True)
        self.assertLessEqual(page.js("document.documentElement.scrollWidth"), 360)
        self.assertNotEqual(page.js("getComputedStyle(document.body).backgroundColor"), light)
        page.click(".row.cm")
        self.assertLessEqual(page.js("document.documentElement.scrollWidth"), 360)
        box = page.js("(() => { const r = document.querySelector('#panel').getBoundingClientRect(); return [r.left, r.right, r.bottom - innerHeight]; })()")
        self.assertGreaterEqual(box[0], 0)
        self.assertLessEqual(box[1], 360)
        self.assertLessEqual(box[2], 1)
        small = page.js("[...document.querySelectorAll('.lab, .chip, .time, #panel small')].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 9.5).length")
        self.assertEqual(small, 0)

    def test_several_conversations(self):
        page = self.opened(story("pair") / "client.pcapng", story("datagrams") / "client.pcapng")
        self.assertEqual(page.js("document.querySelectorAll('#talks button').length"), page.js("DATA.talks.length"))
        first = page.js("document.querySelector('#summary').innerText")
        page.click("#talks button:not([aria-current])")
        self.assertNotEqual(page.js("document.querySelector('#summary').innerText"), first)
        self.assertEqual(page.complaints(), [])

    def test_many_conversations_are_chosen_from_a_list(self):
        head, packets = blocks((story("datagrams") / "client.pcapng").read_bytes())
        # The same datagrams, between other QPs: the last bytes of both QPNs differ.
        many = b"".join(bytes(other_qpns(p, n)) for n in range(30) for p in packets[:2])
        (self.dir / "many.pcapng").write_bytes(head + many)
        page = self.opened(self.dir / "many.pcapng")
        self.assertEqual(page.js("document.querySelector('#talk').options.length"), 30)
        page.js("(() => { const e = document.querySelector('#talk'); e.value = 7; e.dispatchEvent(new Event('change', { bubbles: true })); })()")
        self.assertEqual(page.js("talk"), 7)
        self.assertEqual(page.js("document.activeElement.id"), "talk")
        self.assertEqual(page.complaints(), [])

    def test_nothing_in_a_capture_or_a_name_becomes_script(self):
        evil = "<img src=x onerror=window.evil=1>&amp;"
        capture = self.dir / f"{evil}.pcapng".replace("/", "_")
        data = bytearray((story("pair") / "client.pcapng").read_bytes())
        capture.write_bytes(with_comment(bytes(data), b"</script><script>window.evil=2</script>\xff<!--<script>"))
        page = self.opened(capture)
        self.assertIsNone(page.js("window.evil === undefined ? null : window.evil"))
        self.assertIn(evil, page.js("document.querySelector('#title').textContent"))
        page.js("document.querySelectorAll('.row').forEach((e) => e.click())")
        self.assertIsNone(page.js("window.evil === undefined ? null : window.evil"))
        self.assertEqual(page.complaints(), [])

    def test_a_large_capture_folds_what_is_boring_and_keeps_every_problem(self):
        capture = story("long") / "client.pcapng"
        page = self.opened(capture)
        self.assertEqual(page.complaints(), [])
        count, total = page.js("[rows.filter((r) => r.n).length, rows.length]")
        self.assertEqual(count, len(tshark(capture)), "each packet is on the page")
        self.assertGreater(total, 6000)
        problems = page.js("rows.map((r, i) => [i, r]).filter(([, r]) => r.m || r.k === 'cm').map(([i]) => i)")
        folded = set(page.js("rows.map((r, i) => [i, r]).filter(([, r]) => r.g !== undefined).map(([i]) => i)"))
        self.assertTrue(problems)
        for i in problems:
            self.assertFalse(folded & set(range(i - 3, i + 4)), f"row {i} and what is around it")
        self.assertGreater(len(folded), total // 2)
        self.assertIn("without their header fields", page.js("document.querySelector('#foot').innerText"))
        self.assertLess((self.dir / "page.html").stat().st_size, 12 << 20)
        # All of them unfolded: the page holds only what is near the screen.
        page.click("#fold")
        self.assertEqual(page.js("items.filter((i) => i.row !== undefined).length"), total)
        self.assertLess(page.js("document.querySelectorAll('.row').length"), 3000)
        page.js("reveal(rows.length - 1).scrollIntoView()")
        last = page.js(f"(() => {{ const e = document.querySelector('.row[data-row=\"{total - 1}\"]').getBoundingClientRect(); return e.top >= 0 && e.bottom <= innerHeight; }})()")
        self.assertTrue(last)
        # A fold that is closed stays where it was.
        page.js("(() => { const g = Math.floor(DATA.talks[talk].folds.length / 2); window.last = g; reveal(DATA.talks[talk].folds[g][0]).scrollIntoView({ block: 'center' }); })()")
        top = "document.querySelector(`[data-fold=\"${last}\"]`).getBoundingClientRect().top"
        before = page.js(top)
        page.js("toggleFold(last)")
        self.assertAlmostEqual(page.js(top), before, delta=3)
        page.click("#fold")
        self.assertLess(page.js("items.length"), total // 2)

    def test_problems_are_listed_and_stepped_through(self):
        page = self.opened(story("long") / "client.pcapng")
        count = page.js("problems.length")
        self.assertGreater(count, 1)
        self.assertIn(f"{count} places", page.js("document.querySelector('#problems').innerText"))
        page.click("#problems li:nth-child(2) button")
        chosen = page.js("chosen")
        self.assertEqual(chosen, page.js("problems[1].i"))
        self.assertTrue(page.js("rows[chosen].m.length > 0"))
        self.assertTrue(self.visible(page))
        seen = page.js("(() => { const r = document.querySelector('.row[aria-pressed=\"true\"]').getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight; })()")
        self.assertTrue(seen, "it is on the screen")
        page.key("p")
        self.assertEqual(page.js("chosen"), page.js("problems[0].i"))
        page.key("n")
        self.assertEqual(page.js("chosen"), chosen)
        page.click('[data-go="1"]')
        self.assertEqual(page.js("chosen"), page.js(f"problems[2 % {count}].i"))

    def test_filters_by_queue_pair_and_by_kind(self):
        page = self.opened(story("long") / "client.pcapng")
        choose = "(() => {{ const e = document.querySelector('#{}'); e.value = '{}'; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
        page.js(choose.format("kind", "nak"))
        labels = page.js("[...document.querySelectorAll('.row')].map((e) => rows[e.dataset.row].l)")
        self.assertEqual(set(labels), {"RC NAK"})
        page.js(choose.format("side", 1))
        self.assertEqual(page.js("[...document.querySelectorAll('.row')].filter((e) => rows[e.dataset.row].d !== 1).length"), 0)
        page.js(choose.format("kind", "problem"))
        self.assertEqual(page.js("[...document.querySelectorAll('.row')].filter((e) => !rows[e.dataset.row].m).length"), 0)
        # A problem that the filter hides is shown all the same.
        page.js(choose.format("kind", "ack"))
        page.key("n")
        page.click('[data-go="1"]')
        self.assertTrue(page.js("rows[chosen].m.length > 0"))
        self.assertEqual(page.complaints(), [])

    def test_the_legend_stands_above_and_names_every_colour(self):
        page = self.opened(story("lossy") / "client.pcapng")
        self.assertTrue(page.js("!!(document.querySelector('#legend').compareDocumentPosition(document.querySelector('#ladder')) & Node.DOCUMENT_POSITION_FOLLOWING)"))
        text = page.js("document.querySelector('#legend').innerText")
        for part in ("Click a packet", "sent again", "dropped", "ESTABLISHED, RTS", "REJECTED, ERR"):
            self.assertIn(part, text)
        colour = "getComputedStyle(document.querySelector('.row.{} .arrow')).color"
        self.assertNotEqual(page.js(colour.format("dropped")), page.js(colour.format("marked")))

    def test_one_is_singular(self):
        text = self.opened(story("pair") / "client.pcapng").js("document.body.innerText")
        self.assertIn("in 1 conversation;", text)
        self.assertNotRegex(text, r"\b1 (messages|conversations|packets|RoCEv2 packets|places)\b")

    def test_on_paper_colours_stay_and_buttons_go(self):
        page = self.opened(story("lossy") / "client.pcapng")
        page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(page.js("getComputedStyle(document.querySelector('.row .line')).printColorAdjust || getComputedStyle(document.querySelector('.row .line')).webkitPrintColorAdjust"), "exact")
        for tools in (".tools", "#bar"):
            self.assertEqual(page.js(f"getComputedStyle(document.querySelector('{tools}')).display"), "none")


def blocks(data):
    """The blocks of a pcapng: what comes before the packets, and each packet."""
    at, head, packets = 0, b"", []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            packets.append(data[at:at + length])
        elif not packets:
            head += data[at:at + length]
        at += length
    return head, packets


def outbound(block):
    """As the options of the packet's block say it (epb_flags, 2: outbound)."""
    at = 28 + (struct.unpack_from("<I", block, 20)[0] + 3 & ~3)
    while at < len(block) - 4:
        code, length = struct.unpack_from("<HH", block, at)
        if code == 2:
            return struct.unpack_from("<I", block, at + 4)[0] & 3 == 2
        at += 4 + (length + 3 & ~3)
    return False


def other_qpns(block, n):
    block = bytearray(block)
    bth = 28 + 20 + 8  # behind the block's header, IPv4 and UDP
    for at in (bth + 6, bth + 12 + 6):  # the middle bytes of BTH's and DETH's QPNs
        block[at] = n
    return block


def with_comment(data, comment):
    head, packets = blocks(data)
    first = packets[0]
    option = struct.pack("<HH", 1, len(comment)) + comment + bytes(-len(comment) % 4)
    body = first[8:-8] + option + bytes(4)  # before the end of options, which is put anew
    length = 8 + len(body) + 4
    packets[0] = struct.pack("<II", 6, length) + body + struct.pack("<I", length)
    return head + b"".join(packets)


class Hostile(Case):
    """Captures that somebody has tampered with: whatever they hold, the command says so or shows something, and never crashes."""

    def mutate(self, rng, data):
        data = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            at = rng.randrange(len(data))
            how = rng.randrange(6)
            if how == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif how == 2:
                data[at:at + 4] = struct.pack("<I", rng.choice((0, 1, 3, 4, 12, 0x7FFFFFFF, 0xFFFFFFFF, rng.randrange(1 << 32))))
            elif how == 3:
                del data[at:at + rng.choice((1, 4, 16, 400))]
            elif how == 4:
                data[at:at] = data[at:at + rng.choice((4, 12, 96, 400))]
            else:
                del data[max(at, 40):]
            if not data:
                return b"\0"
        return bytes(data)

    def test_no_mutation_crashes_it(self):
        seed = int(os.environ.get("ROPEWAY_TEST_SEED", random.randrange(1 << 32)))
        count = int(os.environ.get("ROPEWAY_TEST_MUTATIONS", 400))
        print(f"ROPEWAY_TEST_SEED={seed}", file=sys.stderr)
        rng = random.Random(seed)
        sources = []
        for name in ("pair", "lossy", "datagrams", "silent"):
            head, packets = blocks((story(name) / "client.pcapng").read_bytes())
            sources.append(head + b"".join(packets[:25]))
        other = self.dir / "other.pcapng"
        other.write_bytes(sources[0])
        shown = 0
        for i in range(count):
            path = self.dir / "mutated"
            path.write_bytes(self.mutate(rng, rng.choice(sources)))
            args = ("explain", path) if i % 2 else ("explain", "-o", self.dir / "x.html", path, other)
            got = ropeway(*args)
            self.assertIn(got.returncode, (0, 1), (seed, i, got.stderr[-2000:]))
            self.assertTrue(got.returncode == 0 or got.stderr.startswith("ropeway explain: "), (seed, i, got))
            shown += got.returncode == 0
            if got.returncode == 0 and not i % 2:
                page_data((self.dir / "x.html").read_text(encoding="utf-8"))
        self.assertGreater(shown, count // 4, "most mutations leave something to show")


def main():
    global BUILD
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    loader = unittest.defaultTestLoader
    loader.testNamePatterns = [f"*{p}*" for p in sys.argv[3:]] or None
    result = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromTestCase(globals()[sys.argv[2]]))
    forget()
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    return 77 if result.testsRun and len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
