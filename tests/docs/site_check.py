#!/usr/bin/python3
"""The site as its readers get it: every page from disk in a headless Chromium.

  site_check.py SITE TOOLS [--only TEXT] [--pictures DIR]     SITE: build/site; TOOLS: where npm has put axe-core

Of every page:
  - it loads by file://, no script of it throws, and it asks nothing of a network
  - each link leads to a file of the site, and to something there that has this name
  - at 360 pixels nothing makes it wider than the screen; on paper no program, output or table is cut off
  - dark mode is dark; axe-core finds no violation of WCAG 2.2 A and AA: all rules in light, those about colors in dark too, those about sizes on the phone too
And from disk, the search finds calls, options and Chinese words, and the buttons beside commands copy them, by key and by touch. The last line is 'N passed, N failed'.
"""
import argparse
import json
import pathlib
import re
import sys
import threading
import time
import urllib.parse
from html.parser import HTMLParser

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))

import browser  # noqa: E402

BROWSERS = 2
PHONE = 360, 740
PAPER = 718, 1000  # A4 without its margins
DESK = 1280, 900
ALL_RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
IN_THE_DARK = {"type": "rule", "values": ["color-contrast"]}  # what depends on colors
ON_A_PHONE = {"type": "rule", "values": ["target-size", "scrollable-region-focusable"]}  # what depends on the width
PICTURES = {"index.html", "README.html", "reference/c.html", "reference/python.html", "docs/bench/RESULTS.html", "docs/learn/03-wire.html", "docs/learn/README.zh.html",
            "docs/learn/ladders/03-wire-write.html", "man/ropeway-1.html", "docs/programs.html", "docs/check-gallery.html"}


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names |= {values[k] for k in ("id", "name") if values.get(k)}
        for key in ("href", "src"):
            if values.get(key):
                self.links.append(values[key])
        self.links += [part.split()[0] for part in (values.get("srcset") or "").split(",") if part.strip()]


class Site:
    def __init__(self, place):
        self.place = place
        self.pages = {path: Links(path.read_text(encoding="utf-8")) for path in sorted(place.rglob("*.html"))}

    def broken(self, path):
        for link in self.pages[path].links:
            if re.match(r"(https?|mailto):", link):
                if not re.fullmatch(r"https?://[\w.-]+(:\d+)?(/\S*)?|mailto:\S+@\S+", link):
                    yield f"{link} is no address"
                continue
            if link.startswith("data:"):
                continue
            file, _, anchor = link.partition("#")
            file = urllib.parse.unquote(file.partition("?")[0])
            there = (path.parent / file).resolve() if file else path
            if file.startswith("/") or (self.place != there and self.place not in there.parents):
                yield f"{link} leads out of the site"
            elif not there.exists() or there.is_dir():
                yield f"{link} leads nowhere"
            elif anchor and there in self.pages and urllib.parse.unquote(anchor) not in self.pages[there].names and "ladders/" not in file:
                yield f"{link}: nothing there has that name"


AXE = """axe.run(document, {runOnly: %s, resultTypes: ['violations']}).then((r) => { window.axeFound =
    r.violations.map((v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ' ' + (n.any.concat(n.all, n.none)[0] || {message: ''}).message).join(' | ') + (v.nodes.length > 3 ? ' and ' + (v.nodes.length - 3) + ' more' : '')); })"""


class Reader:
    """Looks at pages with one browser."""

    def __init__(self, site, axe, pictures):
        self.site, self.axe, self.pictures = site, axe, pictures

    def violations(self, page, where, rules):
        page.js("window.axeFound = null")
        page.js(AXE % json.dumps(rules) + "; 0")
        while (found := page.js("window.axeFound")) is None:
            time.sleep(0.02)
        return [f"{where}: {text}" for text in found]

    def picture(self, page, path, kind):
        name = str(path.relative_to(self.site.place))
        if self.pictures and name in PICTURES:
            self.pictures.mkdir(parents=True, exist_ok=True)
            page.picture(self.pictures / f"{name.removesuffix('.html').replace('/', '-')}-{kind}.png")

    def look(self, page, path):
        """What is wrong with a page."""
        wrong = [f"link {text}" for text in self.site.broken(path)]
        page.screen(*DESK)
        page.open(path.as_uri())
        wrong += [text for text in page.complaints() if not text.startswith("data:")]
        light = page.js("getComputedStyle(document.body).backgroundColor")
        page.js("document.head.append(Object.assign(document.createElement('style'), {textContent: '* { transition: none !important; }'}))")  # colors on their way are none
        page.js(self.axe + "; 0")
        wrong += self.violations(page, "light", ALL_RULES)
        self.picture(page, path, "desk")
        page.screen(*DESK, dark=True)
        dark = page.js("getComputedStyle(document.body).backgroundColor")
        if brightness(dark) > 80 or brightness(light) < 180:
            wrong.append(f"its background is {light} in light and {dark} in dark")
        wrong += self.violations(page, "dark", IN_THE_DARK)
        self.picture(page, path, "dark")
        page.screen(*PHONE, phone=True)
        width = page.js("document.documentElement.scrollWidth")
        if width > PHONE[0]:
            widest = page.js("[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest('pre, .table-wrapper, .sidebar-drawer, .toc-drawer, .man-page')).slice(0, 3)"
                             ".map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 40))")
            wrong.append(f"it is {width} pixels wide on a phone of {PHONE[0]}: {widest}")
        wrong += self.violations(page, "phone", ON_A_PHONE)
        self.picture(page, path, "phone")
        return wrong + self.cut_on_paper(page)

    @staticmethod
    def cut_on_paper(page):
        page.screen(*PAPER)
        page.call("Emulation.setEmulatedMedia", media="print")
        cut = page.js(f"[...document.querySelectorAll('article pre, article table')].filter((e) => e.checkVisibility() && (e.scrollWidth > e.clientWidth + 2 || e.getBoundingClientRect().right > {PAPER[0]}))"
                      ".map((e) => e.tagName + ' ' + e.textContent.trim().slice(0, 60))")
        page.call("Emulation.setEmulatedMedia", media="")
        return [f"cut off on paper: {text!r}" for text in cut[:5]]


def brightness(color):
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3


def results(page):
    """Where the search page leads to, once it has listed all that it has found."""
    for _ in range(200):
        if re.search(r"Search finished|did not match", page.js("document.querySelector('.search-summary')?.textContent || ''")):
            break
        time.sleep(0.05)
    return page.js("[...document.querySelectorAll('#search-results li a')].map((e) => e.getAttribute('href'))")


SOUGHT = {  # a page that each of these has to lead to
    "rpw_endpoint_flush": "reference/c.html",
    "ROPEWAY_PCAP_LIMIT": "man/ropeway-1.html",
    "max_qp_rd_atom": "docs/like.html",
    "bth": "docs/learn/03-wire.html",
    "ibv_rc_pingpong": "README.html",
    "队列对": "docs/learn/02-rc-by-hand.zh.html",
    "丢包": "docs/learn/07-loss.zh.html",
}


def search_finds(site):
    """What is wrong with the search, by file://, from the field of the first page."""
    wrong = []
    with browser.Browser() as page:
        page.screen(*PHONE, phone=True)
        for word, wanted in SOUGHT.items():
            page.open((site.place / "index.html").as_uri())
            page.js("document.querySelector('#search-all').focus()")
            page.call("Input.insertText", text=word)
            page.key("Enter")
            found = results(page)
            if not any(link.partition("?")[0].partition("#")[0].endswith(wanted) for link in found):
                wrong.append(f"the search for {word} finds {found[:8]}, not {wanted}")
    return wrong


BUTTONS = "document.querySelectorAll('button.copybtn')"


def pasted(page):
    page.js("document.body.append(Object.assign(document.createElement('textarea'), {id: 'pasted'})); document.querySelector('#pasted').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", commands=["paste"])
    return page.js("(() => { const e = document.querySelector('#pasted'), text = e.value; e.remove(); return text; })()")


def copying_works(site):
    """What is wrong with the buttons that copy: each block of commands has one, which keys and a finger reach."""
    wrong = []
    with browser.Browser() as page:
        page.screen(*PHONE, phone=True)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.open((site.place / "index.html").as_uri())
        for _ in range(100):
            if count := page.js(BUTTONS + ".length"):
                break
            time.sleep(0.05)
        blocks = page.js("[...document.querySelectorAll('.highlight-sh pre, .highlight-python pre')].map((e) => e.textContent)")
        if count != len(blocks) or count < 10:
            return [f"{len(blocks)} blocks have {count} buttons that copy"]
        for n, text in enumerate(blocks):
            where = page.js(f"(() => {{ const e = {BUTTONS}[{n}]; e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = e.getBoundingClientRect();"
                            " return [r.x + r.width / 2, r.y + r.height / 2, Math.min(r.width, r.height), Number(getComputedStyle(e).opacity)]; })()")
            if where[2] < 24 or where[3] < 1:
                wrong.append(f"the button of block {n} is {where[2]} pixels wide, and its opacity {where[3]}")
            if n % 2:
                page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": where[0], "y": where[1]}])
                page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
                time.sleep(0.3)  # a tap becomes a click
            else:
                page.js(f"{BUTTONS}[{n}].focus()")
                page.key("Enter")
            if (got := pasted(page).rstrip("\n")) != text.rstrip("\n"):
                wrong.append(f"the button of block {n} copies {got!r}, not {text!r}")
        page.open((site.place / "README.html").as_uri())
        for _ in range(100):
            if shown := page.js("document.querySelector('.highlight-console button.copybtn') && document.querySelector('.highlight-console pre').textContent"):
                break
            time.sleep(0.05)
        page.js("document.querySelector('.highlight-console button.copybtn').focus()")
        page.key("Enter")
        commands = "\n".join(line[2:] for line in shown.splitlines() if line.startswith("$ "))
        if (got := pasted(page)) != commands or not commands:
            wrong.append(f"of commands with their output the button copies {got!r}, not {commands!r}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    if not browser.find():
        print("SKIPPED: no chromium here")
        return 77
    axe_file = args.tools / "node_modules/axe-core/axe.min.js"
    if not axe_file.exists():
        print("SKIPPED: no axe-core here, which npm installs")
        return 77
    site = Site(args.site.resolve())
    axe = axe_file.read_text(encoding="utf-8")
    waiting = [path for path in site.pages if args.only in str(path)]
    seen = {}

    def work():
        reader = Reader(site, axe, args.pictures)
        with browser.Browser() as page:
            while waiting:
                path = waiting.pop()
                try:
                    seen[path] = reader.look(page, path)
                except (RuntimeError, LookupError, TimeoutError) as error:  # one page's trouble is that page's
                    seen[path] = [f"{type(error).__name__}: {error}"]

    wanted = len(waiting)
    threads = [threading.Thread(target=work) for _ in range(BROWSERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not args.only:
        seen[site.place / "search.html?q="] = search_finds(site)
        seen[site.place / "index.html, copying"] = copying_works(site)
        wanted += 2
    failed = 0
    for path, wrong in sorted(seen.items()):
        if wrong:
            failed += 1
            print(f"FAIL {path.relative_to(site.place)}")
            for text in wrong:
                print(f"    {text}")
    failed += wanted - len(seen)
    print(f"{wanted - failed} passed, {failed} failed")
    return 1 if failed or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
