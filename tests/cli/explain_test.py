#!/usr/bin/python3
"""`ropeway run --explain` and `ropeway explain`: what is told of real programs, held against tshark and what they printed; captures that somebody has tampered with.

Usage: explain_test.py BUILD_DIR TEST_CLASS. TEST_SEED and TEST_ROUNDS choose what Hostile does.
"""
import gzip
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import unicodedata
import zlib

import explain
from explain import BUILD, NAMESPACE, SOURCE, TIMEOUT_S, Case, at_a_terminal, blocks, page_data, ropeway, story


def cells(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


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
                             "DISCONNECTED", "summary")
        # The server's may come before this program has polled what came.
        self.assert_in_order(self.text("pair", "client"), r"<- RC ACK PSN 0x[0-9a-f]{6}", r"CM DisconnectRequest \(DREQ\)", "DISCONNECTED", "summary")
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
        subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; LC_ALL=zh_CN.UTF-8 '{BUILD}/ropeway' run --explain={folder}/a.txt ibv_devinfo -d rpw_lo"],
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
        self.assertIn("no program listens on that port", " ".join(self.text("refused", "client").split()))

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
        self.assert_in_order(text, r"only\s+for us: lkey 0x", r"peer may write: rkey 0x", "lets a peer access this memory", "ibv_post_send RDMA_WRITE", "the peer gave us access")
        self.assertEqual(text.count("only for us: rkey"), 0)
        self.assertEqual(text.count("lets a peer access this memory"), 1)

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
        for source in [*(SOURCE / "src").rglob("*.[ch]"), SOURCE / "src/cli/explain/words.json"]:
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
        got = subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; '{BUILD}/ropeway' run --explain -- ibv_devinfo -d rpw_lo"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
        self.assertIn("ibv_open_device rpw_lo", got.stderr)
        self.assertNotIn("ibv_open_device", got.stdout)
        got = ropeway("run", "--explain=/no/such/folder/x", "true")
        self.assertEqual(got.returncode, 1)
        self.assertIn("/no/such/folder", got.stderr)

    def test_a_server_that_is_ended_by_a_signal_still_sums_up(self):
        subprocess.run([*NAMESPACE, "bash", "-c", f"ip link set lo up; timeout -s TERM 3 '{BUILD}/ropeway' run --explain={self.dir}/x.txt rdma_server"],
                       stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        self.assertIn("summary", (self.dir / "x.txt").read_text(encoding="utf-8"))


class Ladder(Case):
    def test_wrong_use_is_said(self):
        for args, says in (((), "no capture"), (("--color", "blue", "x"), "blue"), (("-o", "", "x"), "--output"), (("x",) * 9, "at most 8")):
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

    def test_a_compressed_capture_and_one_from_a_pipe(self):
        plain = (story("pair") / "client.pcapng").read_bytes()
        file = self.dir / "x.pcapng"
        file.write_bytes(plain)
        want = ropeway("explain", file).stdout.replace("x.pcapng", "NAME")
        self.assertIn("SEND_ONLY", want)

        def shown(name, data, *args):
            got = subprocess.run([BUILD / "ropeway", "explain", *args], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
            self.assertEqual((got.returncode, got.stderr), (0, b""), (name, got))
            return got.stdout.decode().replace(name, "NAME")
        packed = self.dir / "x.pcapng.gz"
        packed.write_bytes(gzip.compress(plain))
        self.assertEqual(shown("x.pcapng.gz", b"", packed), want)
        self.assertEqual(shown("standard input", plain, "-"), want)
        self.assertEqual(shown("standard input", gzip.compress(plain), "-"), want)
        # One that was cut off, as of a process that was killed: what is whole is shown.
        cut = self.dir / "cut.gz"
        cut.write_bytes(gzip.compress(plain)[:-len(gzip.compress(plain)) // 3])
        got = ropeway("explain", cut)
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("is damaged after packet", got.stderr)

    def test_what_others_compress_has_a_command(self):
        plain = (story("pair") / "client.pcapng").read_bytes()
        for tool, cat in (("zstd", "zstdcat"), ("xz", "xzcat"), ("bzip2", "bzcat"), ("lz4", "lz4cat")):
            if not shutil.which(tool):
                continue
            file = self.dir / f"x.{tool}"
            file.write_bytes(subprocess.run([tool, "-c"], input=plain, stdout=subprocess.PIPE, check=True).stdout)
            got = ropeway("explain", file)
            self.assertEqual((got.returncode, got.stdout), (1, ""), got)
            self.assertIn(f"it is compressed by {tool}: `{cat} {file} | ropeway explain -`", got.stderr)
            piped = subprocess.run(["sh", "-c", f"{cat} {file} | '{BUILD}/ropeway' explain -"], stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True, text=True)
            self.assertIn("SEND_ONLY", piped.stdout)

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
                alone = [i for i, r in enumerate(rows) if "t2" not in r]
                self.assertTrue(all(i >= len(rows) - 3 for i in alone), f"but for last packets that nobody takes any more, each is in both: {alone} of {len(rows)}")
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


    def test_what_only_nics_send(self):
        """A FLUSH takes a PSN between two WRITEs; a congestion notification has none; a reserved syndrome is no NAK and no wait."""
        reth = struct.pack(">QII", 0x1000, 0x77, 64)
        there, back = ("192.0.2.1", "192.0.2.2", 0x12), ("192.0.2.2", "192.0.2.1", 0x34)
        packets = [roce(*there, 0x0A, 1, reth + bytes(64), 0x80), roce(*there, 0x1C, 2, struct.pack(">I", 0x12) + reth, 0x80), roce(*back, 0x11, 1, bytes([0x1F, 0, 0, 1])),
                   roce(*back, 0x10, 2, bytes([0x1F, 0, 0, 2])), roce(*there, 0x0A, 3, reth + bytes(64), 0x80), roce(*there, 0x81, 0, bytes(16), ecn=0x40), roce(*back, 0x11, 3, bytes([0x45, 0, 0, 3]))]
        capture = self.dir / "nics.pcap"
        capture.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101)
                            + b"".join(struct.pack("<IIII", 1764316800, 1000 * i, len(p), len(p)) + p for i, p in enumerate(packets)))
        got = ropeway("explain", str(capture))
        self.assertEqual(got.returncode, 0, got)
        shown = re.findall(r"[-<] ?((?:RC|CNP|opcode)[^|]*?) ?-*>?\|", got.stdout)
        for text in ("RC WRITE_ONLY PSN 0x000001, 64 B", "RC FLUSH PSN 0x000002, 64 B", "RC READ_RESP_ONLY PSN 0x000002", "RC WRITE_ONLY PSN 0x000003", "CNP", "RC ACK PSN 0x000003, reserved syndrome 0x45"):
            self.assertIn(text, got.stdout, shown)
        for text in ("not readable", "wrong ICRC", "not in the capture", "wait", "NAK "):
            self.assertNotIn(text, got.stdout)
        talk, = self.data(capture)["talks"]
        self.assertEqual([e["messages"] for e in talk["about"]["ends"]], [3, 1])  # the answer to the FLUSH is one, as that to a READ
        fields = {key: value for row in talk["rows"] for _, key, value, *_ in row["h"] if key.startswith("feth")}
        self.assertEqual(fields, {"feth_type": "persistence", "feth_what": "the memory region"})


def roce(src, dst, qpn, opcode, psn, body, ack=0, ecn=0):
    """A RoCEv2 packet over IPv4, its ICRC computed here (IB A17.3.3)."""
    bth = struct.pack(">BBHBBHBBH", opcode, 0x40, 0xFFFF, ecn, 0, qpn, ack, psn >> 16, psn & 0xFFFF)
    length = 28 + len(bth) + len(body) + 4
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 2, length, 0, 0x4000, 64, 17, 0, *(bytes(map(int, a.split("."))) for a in (src, dst)))
    udp = struct.pack(">HHHH", 50000, 4791, length - 20, 0)
    masked = bytearray(b"\xff" * 8 + ip + udp + bth + body)
    for at in (9, 16, 18, 19, 34, 35, 40):
        masked[at] = 0xFF
    return ip + udp + bth + body + struct.pack("<I", zlib.crc32(masked))


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


def outbound(block):
    """As the options of the packet's block say it (epb_flags, 2: outbound)."""
    at = 28 + (struct.unpack_from("<I", block, 20)[0] + 3 & ~3)
    while at < len(block) - 4:
        code, length = struct.unpack_from("<HH", block, at)
        if code == 2:
            return struct.unpack_from("<I", block, at + 4)[0] & 3 == 2
        at += 4 + (length + 3 & ~3)
    return False


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
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
        count = int(os.environ.get("TEST_ROUNDS", 400))
        print(f"TEST_SEED={seed}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(explain.main(globals()))
