#!/usr/bin/python3
"""Profiles, as programs meet them: calls.c tries each limit, at it and one beyond, under every profile and without one. What a profile says and what the device has are both read here, from the profile's file and from the
program's first lines; nothing is assumed of one from the other.

Usage: like_test.py BUILD_DIR CALLS
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD, CALLS = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
ROPEWAY = str(BUILD / "ropeway")
SANITIZED = b"__asan_init" in (BUILD / "libropeway-verbs.so.0").read_bytes()
PROFILES = pathlib.Path(__file__).resolve().parents[2] / "src" / "like" / "profiles"
NAMES = sorted(path.stem for path in PROFILES.glob("*.profile"))
# Every key small, or gone: the program that each limit is planted for is calls.c.
MINE = """about = a device of mine
max_qp = 7
max_cq = 6
max_mr = 5
max_pd = 4
max_ah = 8
max_srq = 2
max_qp_wr = 33
max_sge = 5
max_sge_rd = 2
max_inline_data = 40
max_qp_rd_atom = 3
max_qp_init_rd_atom = 2
max_res_rd_atom = 21
max_cqe = 1000
max_mr_size = 64M
max_srq_wr = 9
max_srq_sge = 3
max_mcast_grp = 1
max_mcast_qp_attach = 1
max_total_mcast_qp_attach = 1
max_mtu = 512
max_msg_sz = 64K
max_send_sz = 8928
gid_tbl_len = 8
gid_first = 2
gid_step = 3
atomic_cap = NONE
device_cap_flags = BAD_PKEY_CNTR
odp_general = NONE
optional = NONE
"""


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_")}
    return {**kept, "ROPEWAY_DEVICES": "lo", **more}


def ropeway(*words, **more):
    return subprocess.run([ROPEWAY, *map(str, words)], env=environment(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def said(text):
    """Key -> value of a profile's file."""
    pairs = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if value}


class Like(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.mine = pathlib.Path(cls.folder.name, "mine.profile")
        cls.mine.write_text(MINE)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def calls(self, like, *words, **more):
        """What the program printed: what it met -> what came of it."""
        option = ["--like", like] if like else []
        got = ropeway("run", *option, "--", CALLS, *words, **more)
        self.assertEqual(got.returncode, 0, (like, got.stdout, got.stderr))
        return dict(line.partition(": ")[::2] for line in got.stdout.splitlines())

    def each_limit_is_where_it_is_said_to_be(self, out):
        limits = {k: v for k, v in out.items() if re.fullmatch(r"(max_\w+|ibv_resize_cq) \d+", k)}
        for what, came in limits.items():
            if "after" in came:  # a number of objects: PDs and CQs have one of the program's own already
                key, most = what.split()
                own = key in ("max_pd", "max_cq")
                error = "EOPNOTSUPP" if most == "0" else "ENOMEM"
                self.assertEqual(came, f"{error} after {max(int(most) - own, 0)}", what)
            else:
                self.assertEqual(came, "0 EINVAL", what)
        self.assertEqual(out["cqe"], "no more than that")
        for what in ("RTR beyond max_mtu", "RTR beyond max_qp_rd_atom", "RTS beyond max_qp_init_rd_atom", "READ beyond max_sge_rd", "WRITE beyond max_msg_sz"):
            if what in out:
                self.assertEqual(out[what], "EINVAL", what)
        for what in ("RTR at both", "RTS at it", "READ at max_sge_rd"):
            if what in out:
                self.assertEqual(out[what], "0", what)
        return limits

    def test_each_limit_that_the_device_reports_holds(self):
        """Without a profile, too."""
        out = self.calls(None)
        limits = self.each_limit_is_where_it_is_said_to_be(out)
        self.assertIn("max_inline_data 1024", limits)
        self.assertIn("max_qp_wr 32768", limits)
        self.assertEqual((out["FETCH_ADD"], out["ATOMIC_WRITE"], out["SEND of 8929"]), ("0", "0", "0"))

    def test_each_limit_of_each_profile_holds(self):
        for name in NAMES:
            with self.subTest(name):
                keys, out = said((PROFILES / f"{name}.profile").read_text()), self.calls(name)
                limits = self.each_limit_is_where_it_is_said_to_be(out)
                whole = {k.split()[0]: int(k.split()[1]) for k in self.calls(None) if re.fullmatch(r"max_\w+ \d+", k)}
                for key, value in keys.items():
                    if key in whole and not (keys.get("max_srq") == "0" and key.startswith("max_srq_")):
                        self.assertIn(f"{key} {min(int(value, 0), whole[key])}", limits)

    def test_a_profile_of_ones_own_holds_in_every_call(self):
        out = self.calls(self.mine)
        limits = self.each_limit_is_where_it_is_said_to_be(out)
        for key, value in said(MINE).items():
            if re.fullmatch(r"max_(qp|cq|mr|pd|ah|srq|qp_wr|sge|inline_data|cqe|srq_wr|srq_sge)", key):
                self.assertIn(f"{key} {value}", limits)
        self.assertIn(f"max_mr_size {64 << 20}", limits)
        self.assertEqual(out["flags"], "0x2 0x0")
        self.assertEqual(out["atomic_cap"], "0")
        self.assertEqual(out["odp"], "0x0 0x0 0x0 0x0")
        self.assertEqual(out["port"], "max_mtu 2 active_mtu 2 max_msg_sz 65536 gid_tbl_len 8")
        self.assertEqual(out["rest"], "rd 3 2 21 mcast 1 1 1 stamps 0 moderation 0")
        for what in ("FETCH_ADD", "ATOMIC_WRITE", "LOCAL_INV", "SEND of 8929", "SRQ resized"):
            self.assertEqual(out[what], "EINVAL", what)
        for what in ("window of type 1", "window of type 2", "ON_DEMAND", "implicit", "ZERO_BASED", "ibv_alloc_null_mr", "ibv_rereg_mr", "ibv_alloc_td", "ibv_modify_cq", "ibv_query_rt_values_ex",
                     "CQ with time stamps", "ibv_create_qp_ex with atomics"):
            self.assertEqual(out[what], "EOPNOTSUPP", what)
        for what in ("RC", "UC", "UD", "SEND of 8928"):
            self.assertEqual(out[what], "0", what)

    def test_windows_are_counted(self):
        profile = pathlib.Path(self.folder.name, "windows.profile")
        profile.write_text("max_mw = 3\n")
        self.assertEqual(self.calls(profile)["max_mw 3"], "ENOMEM after 3")

    def test_uc_alone(self):
        out = self.calls("thunderbolt")
        self.assertEqual((out["RC"], out["UC"], out["UD"]), ("EOPNOTSUPP", "0", "EOPNOTSUPP"))
        self.assertEqual(out["max_qp 10"], "ENOMEM after 10")

    def test_gids_are_where_the_profile_has_them(self):
        first, step = 2, 3
        out = self.calls(self.mine)
        places = [int(n) for n in out["gids"].split()]
        self.assertEqual(places, list(range(first, 8, step))[:len(places)])
        self.assertTrue(places)
        self.assertEqual(out["gid files"], "from 0 below 8")
        self.assertEqual(out["address handle with the GID of the address"], "0")
        self.assertEqual(out["address handle with GID 0"], "EINVAL")
        self.assertEqual({int(n) % 2 for n in self.calls("mlx5")["gids"].split()}, {1})
        self.assertEqual(self.calls(None)["gids"].split()[:2], ["0", "1"])

    def test_the_wire_keeps_to_the_profile(self):
        """A peer with the whole device asks for more than the profile's device does."""
        profile = pathlib.Path(self.folder.name, "responder.profile")
        profile.write_text("atomic_cap = NONE\ndevice_cap_flags = NONE\nmax_msg_sz = 64K\n")
        refused = "remote invalid request error, memory as it was"
        for way in ("udp", "auto"):
            out = self.calls(None, "wire", profile, ROPEWAY_WIRE=way)
            self.assertEqual(out, {"FETCH_ADD": refused, "ATOMIC_WRITE": refused, "WRITE of 1 MiB": refused, "READ of 1 MiB": refused, "WRITE of 64 KiB": "success, memory changed",
                                   "READ of 64 KiB": "success, memory as it was"})
            whole = pathlib.Path(self.folder.name, "whole.profile")
            whole.write_text("max_sge = 31\n")
            out = self.calls(None, "wire", whole, ROPEWAY_WIRE=way)
            self.assertEqual({answer.partition(",")[0] for answer in out.values()}, {"success"}, out)

    def test_a_slot_of_a_send_queue_is_free_when_a_completion_is_polled(self):
        """As a driver has it; the software device frees it when the request is done. A queue of 8: 7 are posted, the 7th makes a completion."""
        for like, rest in ((None, ("4 of 4", "8 of 10", "1 of 1")), ("rxe", ("4 of 4", "8 of 10", "1 of 1")), ("mlx5", ("1 of 4", "7 of 10", "0 of 1"))):
            for way in ("udp", "auto"):
                out = self.calls(like, "slots", ROPEWAY_WIRE=way)
                self.assertEqual(out, dict(zip(("in parts", "not polled", "polled", "nothing signaled"), ("4 of 4, 3 of 3 with a completion",) + rest)), (like, way))

    def outstanding(self, like):
        """The most READ requests at a time that a capture has without their last response."""
        with tempfile.TemporaryDirectory() as folder:
            capture, most, now, at = pathlib.Path(folder, "x.pcapng"), 0, 0, 0
            out = self.calls(like, "reads", ROPEWAY_WIRE="udp", ROPEWAY_PCAP=str(capture))
            self.assertEqual(list(out.values()), ["bytes right"])
            data = capture.read_bytes()
        sent = set()
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            bth = data[at + 28 + 28:at + 28 + 40] if kind == 6 else b""
            if bth and data[at + 28] == 0x45:
                opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
                if opcode == 0x0C and ("q", psn) not in sent:
                    now += 1
                elif opcode in (0x0F, 0x10) and ("r", psn) not in sent:  # READ RESPONSE LAST, ONLY
                    now -= 1
                sent.add(("q" if opcode == 0x0C else "r", psn))
                most = max(most, now)
            at += length
        return most

    def test_max_rd_atomic_holds_on_the_wire(self):
        profile = pathlib.Path(self.folder.name, "rd.profile")
        profile.write_text("max_qp_init_rd_atom = 2\n")
        self.assertIn(self.outstanding(profile), (1, 2))
        self.assertGreater(self.outstanding(None), 4)

    def test_a_profile_that_cannot_be_read_is_an_error_with_its_place(self):
        bad = pathlib.Path(self.folder.name, "bad.profile")
        bad.write_text("max_sge = 2\nmax_inline = 64\n")
        want = f"{bad}:2:1: expected a key, not 'max_inline': did you mean max_inline_data?"
        got = ropeway("run", "--like", bad, "--", "true")
        self.assertEqual((got.returncode, got.stderr.splitlines()[0]), (2, f"ropeway run: invalid value '{bad}' for --like: {want}"))
        got = ropeway("run", "--", "true", ROPEWAY_LIKE=str(bad))
        self.assertEqual((got.returncode, got.stderr), (2, f"ropeway run: ROPEWAY_LIKE: {want}\n"))
        # without the command: the device cannot be opened, and says why
        got = subprocess.run([CALLS], env=environment(ROPEWAY_LIKE=str(bad)), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(got.returncode, 1)
        self.assertEqual(got.stderr, f"ropeway: error: ROPEWAY_LIKE: {want}\n")
        self.assertIn("ibv_open_device failed: Invalid argument", got.stdout)
        got = ropeway("devices", "--like", "mlx9")
        self.assertEqual(got.returncode, 2)
        self.assertIn("there is no profile 'mlx9'; there are efa-limits, mlx5, rxe, thunderbolt, and no such file", got.stderr)

    @unittest.skipIf(SANITIZED, "a shell without ASan cannot have a library with it")
    def test_a_file_is_found_wherever_the_program_goes(self):
        got = subprocess.run([ROPEWAY, "run", "--like", "mine.profile", "--", "sh", "-c", f"cd / && '{CALLS}' | grep max_inline"], cwd=self.folder.name, env=environment(), capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(got.stdout, "max_inline_data 40: 0 EINVAL\n", got.stderr)

    def test_devices_lists_what_the_real_one_has_more(self):
        for name in NAMES:
            keys = said((PROFILES / f"{name}.profile").read_text())
            like = json.loads(ropeway("devices", "--json", "--like", name).stdout)["like"]
            self.assertEqual((like["name"], like["about"]), (name, keys["about"]))
            text = ropeway("devices", "--like", name).stdout
            self.assertIn(f"\nLike {name}, {keys['about']}: programs see no more of these devices than it has.\n", text)
            for key, more in like["beyond"].items():
                self.assertRegex(text, rf"\n    {key} +{re.escape(more)}\n")
                number = re.fullmatch(r"(\d+), here (\d+)", more)
                if number:
                    self.assertEqual(int(number[1]), int(keys[key], 0), key)
                    self.assertLess(int(number[2]), int(number[1]), key)
        self.assertEqual(json.loads(ropeway("devices", "--json", "--like", "rxe").stdout)["like"]["beyond"]["device_cap_flags"], "AUTO_PATH_MIG CHANGE_PHY_PORT UD_AV_PORT_ENFORCE FLUSH_GLOBAL FLUSH_PERSISTENT")
        self.assertIsNone(json.loads(ropeway("devices", "--json").stdout)["like"])

    def test_no_program_sees_a_capability_that_the_device_lacks(self):
        whole = self.calls(None)
        for name in NAMES:
            out = self.calls(name)
            for key in ("flags", "odp"):
                for mine, all_of_it in zip(out[key].split(), whole[key].split()):
                    self.assertEqual(int(mine, 16) & ~int(all_of_it, 16), 0, (name, key))

    def test_netlink_shows_the_same_flags(self):
        got = ropeway("run", "--like", "mlx5", "--", "rdma", "-d", "dev", "show")
        if got.returncode == 127:
            self.skipTest("no rdma")
        self.assertIn("MEM_WINDOW", got.stdout)
        self.assertNotIn("SRQ_RESIZE", got.stdout)
        self.assertIn("SRQ_RESIZE", ropeway("run", "--", "rdma", "-d", "dev", "show").stdout)


class Recorded(unittest.TestCase):
    def test_each_value_has_a_source(self):
        for path in PROFILES.glob("*.profile"):
            text = path.read_text(encoding="ascii")
            known = set(re.findall(r"(?m)^# (\[\d+\])", text))
            for line in text.splitlines():
                if line.strip() and not line.startswith(("#", "about")):
                    used = re.findall(r"\[\d+\]|https://\S+", line.partition("#")[2])
                    self.assertTrue(used, f"{path.name}: {line}")
                    self.assertFalse({word for word in used if word[0] == "["} - known, f"{path.name}: {line}")

    def test_the_pages_own_profile_and_mistake_are_right(self):
        blocks = re.findall(r"(?s)```\n(.*?)```", (PROFILES.parents[2] / "docs" / "like.md").read_text())
        profile, mistake = next(b for b in blocks if b.startswith("# nic.profile")), next(b for b in blocks if b.startswith("ropeway run: invalid"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "nic.profile")
            path.write_text(profile)
            like = json.loads(ropeway("devices", "--json", "--like", path).stdout)["like"]
            self.assertEqual((like["name"], like["about"]), ("nic.profile", "our lab's NIC"))
            path.write_text("like = mlx5\n\nmax_inline = 64\n")
            got = subprocess.run([ROPEWAY, "run", "--like", "nic.profile", "--", "true"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(got.stderr.splitlines()[0], mistake.strip())

    def test_rxe_is_what_was_measured(self):
        """tests/differences asked rxe itself."""
        table = PROFILES.parents[2] / "tests" / "differences" / "answers.tsv"
        rows = [line.split("\t") for line in table.read_text().splitlines() if not line.startswith("#")]
        column = rows[0].index("rxe 6.12")
        measured = {row[0].partition(".")[2]: row[column] for row in rows[1:] if row[0].startswith(("device.", "port."))}
        checked = 0
        for key, value in said((PROFILES / "rxe.profile").read_text()).items():
            if re.fullmatch(r"\d+|0x[0-9a-f]+", measured.get(key, "")):
                want = int(measured[key], 0)
                if key == "max_mtu":
                    want = 128 << want
                self.assertEqual(int(value, 0), want, key)
                checked += 1
        self.assertGreater(checked, 18)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
