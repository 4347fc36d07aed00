#!/usr/bin/python3
"""The page that `ropeway explain -o` writes, in a browser: each packet has its arrow, keys and languages work, nothing in a capture becomes script.

Usage: explain_page_test.py BUILD_DIR Page.
"""
import json
import re
import shutil
import struct
import subprocess
import sys

import browser
import explain
from explain import STORIES, Case, blocks, page_data, story, tshark


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


# Names of fields, by the groups and keys of the page.
TSHARK = {
    "BTH": {"opcode": "bth.opcode", "pkey": "bth.p_key", "dqpn": "bth.destqp", "ackreq": "bth.a", "psn": "bth.psn", "solicited": "bth.se", "migreq": "bth.m", "pad": "bth.padcnt"},
    "DETH": {"qkey": "deth.q_key", "sqpn": "deth.srcqp"}, "RETH": {"va": "reth.va", "rkey": "reth.r_key", "dma_len": "reth.dmalen"}, "AETH": {"syndrome": "aeth.syndrome", "msn": "aeth.msn"},
    "AtomicETH": {"va": "atomiceth.va", "rkey": "atomiceth.r_key", "swap_add": "atomiceth.swapdt", "compare": "atomiceth.cmpdt"},
    "MAD": {"mad_class": "mad.mgmtclass", "mad_tid": "mad.transactionid", "mad_attr": "mad.attributeid"},
    "REQ": {"comm_id": "cm.req", "service_id": "cm.req.serviceid", "ca_guid": "cm.req.localcaguid", "cm_qpn": "cm.req.localqpn", "resp_res": "cm.req.responderres", "init_depth": "cm.req.initdepth",
            "cm_timeout": "cm.req.remoteresptout", "transport": "cm.req.transpsvctype", "start_psn": "cm.req.startpsn", "retry": "cm.req.retrcount", "cm_pkey": "cm.req.pkey",
            "path_mtu": "cm.req.pppmtu", "rnr_retry": "cm.req.rnrretrcount", "cm_retries": "cm.req.maxcmretr", "ack_timeout": "cm.req.prim_localacktout"},
    "REP": {"comm_id": "cm.rep", "peer_comm_id": "cm.rep.remotecommid", "cm_qpn": "cm.rep.localqpn", "start_psn": "cm.rep.startpsn", "resp_res": "cm.rep.respres", "init_depth": "cm.rep.initdepth",
            "rnr_retry": "cm.rep.rnrretrcount", "ca_guid": "cm.rep.localcaguid"},
    "CMA": {"cma_port": "cm.req.ip_cm.sport"},
}


def tshark_name(group, key):
    return TSHARK.get(group, {}).get(key)


def raw_places(capture):
    """frame number -> {field: (offset from the BTH, length)}, as tshark dissects it."""
    frames = json.loads(subprocess.run(["tshark", "-r", capture, "-T", "json", "-x", "--no-duplicate-keys"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=explain.TIMEOUT_S, check=True).stdout)
    out = {}

    def walk(layers, places):
        for key, value in layers.items():
            if isinstance(value, dict):
                walk(value, places)
            elif key.startswith("infiniband.") and key.endswith("_raw") and isinstance(value[0], str):
                places[key[len("infiniband."):-len("_raw")]] = value[1:3]

    for frame in frames:
        places = {}
        walk(frame["_source"]["layers"], places)
        if "bth.opcode" in places:
            bth = places["bth.opcode"][0]
            number = int(frame["_source"]["layers"]["frame"]["frame.number"])
            out[number] = {name: (at - bth, length) for name, (at, length) in places.items()}
    return out


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
                    values = {(g, k): v for g, k, v, *_ in fields}
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

    def test_a_nak_is_explained_once_and_notes_have_the_width_of_the_panel(self):
        page = self.opened(story("lossy") / "client.pcapng")
        page.js("document.getElementById('fold').click()")
        page.click(page.js("'.row[data-row=\"' + rows.findIndex((r) => r.l === 'RC NAK') + '\"]'"))
        words = "[...document.querySelectorAll('#panel p')].map((e) => e.textContent).join(' ')"
        self.assertEqual(page.js(words).count("egative acknowledgement"), 1, page.js(words))
        self.assertEqual(page.js("document.querySelectorAll('#panel .mk').length"), 1)
        page.js("(() => { const row = rows[chosen]; row.l = 'RC RNR NAK'; row.m = ['rnr']; showRow(chosen); })()")
        self.assertEqual(page.js(words).count("eceiver not ready"), 1, page.js(words))
        narrow = page.js("[...document.querySelectorAll('#panel td.what')].filter((e) => e.offsetWidth < 0.95 * e.parentElement.clientWidth - 8).map((e) => e.textContent)")
        self.assertEqual(narrow, [])
        self.assertGreater(page.js("document.querySelectorAll('#panel td.what').length"), 5)

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

    def test_a_phone_shows_an_arrow_on_its_first_screen_and_words_for_touch(self):
        page = self.opened(story("lossy") / "client.pcapng")
        page.screen(390, 844, phone=True)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.js("location.reload()")
        page.open(page.js("location.href"))
        self.assertLess(page.js("document.querySelector('.row').getBoundingClientRect().bottom"), 844)
        self.assertLessEqual(page.js("document.documentElement.scrollWidth"), 390)
        self.assertIn("Tap a packet", page.js("document.querySelector('#legend .hint').textContent"))
        labels = page.js("[...document.querySelectorAll('.lab .x, .foldrow .mid')].map((e) => e.textContent)")
        self.assertTrue(any("1024\xa0B" in label for label in labels))
        self.assertEqual([label for label in labels if re.search(r"\d [KMG]?i?B\b", label)], [], "a number that can part from its unit")

    def test_a_search_leaves_what_has_its_words(self):
        page = self.opened(story("lossy") / "client.pcapng")

        def search(text):
            page.js(f"(() => {{ const e = document.getElementById('search'); e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()")
            return page.js("[...document.querySelectorAll('.row')].map((e) => rows[e.dataset.row].l)"), page.js("document.querySelector('#bar .found').textContent")

        everything = page.js("rows.map((r) => [r.l, r.x, (r.m || []).includes('again')])")
        page.js("document.getElementById('fold').click()")
        shown, count = search("nak")
        self.assertEqual(len(shown), sum("NAK" in label or "NAK" in detail for label, detail, _ in everything))
        self.assertEqual(count.split()[0], str(len(shown)))
        self.assertEqual(page.js("document.activeElement.id"), "search")
        shown, _ = search("send_last AGAIN")
        self.assertEqual(len(shown), sum("SEND_LAST" in label and again for label, _, again in everything))
        self.assertGreater(len(shown), 0)
        psn = next(detail for label, detail, _ in everything if "SEND_LAST" in label).split(",")[0].split()[1]
        self.assertIn("RC SEND_LAST", search(psn)[0])
        self.assertEqual(search("no such words"), ([], "0 packets"))
        self.assertIn(str(len(everything)), search("")[1] or str(len(everything)))
        self.assertEqual(page.complaints(), [])

    def test_a_field_and_its_bytes_show_each_other(self):
        page = self.opened(story("write") / "client.pcapng")
        page.js("document.getElementById('fold').click()")
        page.click(page.js("'.row[data-row=\"' + rows.findIndex((r) => /WRITE_(ONLY|FIRST)/.test(r.l)) + '\"]'"))
        lit = "[...document.querySelectorAll('#panel .hex .at')].map((e) => e.textContent).join('')"
        page.js("[...document.querySelectorAll('#panel tr[data-at]')].find((e) => e.textContent.startsWith('rkey')).focus()")
        self.assertEqual("0x" + page.js(lit), page.js("document.querySelector('#panel tr.at td:nth-child(2)').textContent"))
        page.click("#panel [data-byte='10']")
        self.assertEqual(page.js("document.querySelector('#panel tr.at td').textContent"), "psn")
        self.assertEqual(page.js(lit), page.js("rows[chosen].h.find((f) => f[1] === 'psn')[2].slice(2, 8)"))

    def test_fields_stand_where_tshark_has_them(self):
        found = set()
        for name in ("pair", "write", "datagrams", "silent", "refused"):
            capture = story(name) / "client.pcapng"
            shown = {row["n"]: row for talk in self.data(capture)["talks"] for row in talk["rows"] if isinstance(row, dict) and "n" in row}
            for number, places in raw_places(capture).items():
                for group, key, _, *place in shown.get(number, {}).get("h", []):
                    theirs = places.get(tshark_name(group, key))
                    if theirs:
                        self.assertEqual(tuple(place), theirs, (name, number, group, key))
                        found.add((group, key))
        self.assertLessEqual({(group, key) for group, keys in TSHARK.items() for key in keys} - {("AtomicETH", key) for key in TSHARK["AtomicETH"]} - {("SIDR_REQ", "service_id")}, found)

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
        page.settle()
        before = page.js(top)
        page.js("toggleFold(last)")
        page.settle()
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
        page.screen(390, 844, phone=True)  # where the list begins with two
        page.open(page.js("location.href"))
        self.assertEqual(page.js("document.querySelectorAll('#problems li').length"), 2)
        self.assertEqual(page.js("document.querySelector('#list').textContent"), f"List {count} places")
        page.js("document.querySelector('#list').click()")
        self.assertEqual(page.js("document.querySelectorAll('#problems li').length"), count)

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


if __name__ == "__main__":
    sys.exit(explain.main(globals()))
