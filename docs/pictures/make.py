#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""README's pictures, each for light and dark pages.

  make.py             draws all of them from what is recorded beside this file
  make.py --record    runs the programs and records them anew: explain.txt (a terminal of 120 columns), check.txt (80 columns), write.pcapng. Then it draws
  make.py --check     nothing is written: fails where a picture is not what this draws of its recording, or what is recorded not what the programs print now,
                      but for times, numbers of QPs and the like. Without Chromium the ladder is not compared

  ../picture-dark.svg         ../picture.svg in other colors
  explain.svg, -dark.svg      `ropeway run --explain`, as recorded
  check.svg, -dark.svg        `ropeway run --check` of tests/cli/check/worker.c, as recorded
  ladder.svg, -dark.svg       the page of `ropeway explain write.pcapng -o ...`, as Chromium lays it out with this machine's fonts
"""
import argparse
import difflib
import fcntl
import html
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import samples  # noqa: E402

BUILD = ROOT / "build"
# A recording's columns, and what is said instead of its picture.
TERMINALS = {"explain": (120, "A terminal: ropeway run --explain tells each verbs call, each state of the queue pair and each packet of ibv_rc_pingpong."),
             "check": (80, "A terminal: ropeway run --check reports that a program goes on posting after a completion in error, with the lines of the post and of the poll, what a NIC would do, and the remedy.")}
LADDER_WIDTH, LADDER_ROWS = 860, 12
INSIDE = "ROPEWAY_PICTURES_NAMESPACE"

DARK = {"#f6f8fa": "#21262d", "#57606a": "#9198a1", "#ddf4ff": "#12304f", "#0969da": "#58a6ff", "#1f2328": "#f0f6fc"}  # of picture.svg
# What a terminal makes of the codes of SGR: (light, dark).
PAPER = ("#ffffff", "#0d1117")
INK = ("#1f2328", "#e6edf3")
FAINT = ("#59636e", "#9198a1")
COLORS = {31: ("#b42318", "#ff7b72"), 32: ("#116329", "#56d364"), 33: ("#7d4e00", "#e3b341"), 34: ("#0550ae", "#79c0ff"), 35: ("#7a3e9d", "#d2a8ff"), 36: ("#0b5f6b", "#56d4dd")}


# ---- recording ----

def in_terminal(argv, columns, status=0):
    """What a command prints to a terminal before it ends with this status."""
    pid, terminal = pty.fork()
    if pid == 0:
        time.sleep(0.2)  # until the window has its size
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8")
        os.execv(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    output = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not data:
            break
        output += data
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != status:
        raise SystemExit(output.decode())
    return output.decode().replace("\r\n", "\n")


def beside(server, client):
    """What client() gives while the server runs; it is called again until the server listens."""
    behind = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)  # else the first packets tell of a server that does not listen yet
        end = time.monotonic() + 20
        while True:
            try:
                return client()
            except (SystemExit, subprocess.CalledProcessError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
    finally:
        behind.terminate()
        behind.wait()


RUN = [str(BUILD / "ropeway"), "run"]


def account():
    """What explain.txt has."""
    options = ["-g", "1", "-n", "1", "-r", "1", "-s", "64"]
    printed = beside([*RUN, "--", "ibv_rc_pingpong", *options], lambda: in_terminal([*RUN, "--explain", "--", "ibv_rc_pingpong", *options, "127.0.0.1"], TERMINALS["explain"][0]))
    return f"$ ropeway run --explain -- ibv_rc_pingpong {' '.join(options)} 127.0.0.1\n{printed}"


def finding():
    """What check.txt has: of a program with debug information and frame pointers, in a folder of its own as a user has it."""
    command = "ropeway run --check=log=report.jsonl -- ./worker rpw_lo"
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            pathlib.Path("worker.c").write_bytes((ROOT / "tests/cli/check/worker.c").read_bytes())
            subprocess.run(["gcc", "-g", "-O1", "-fno-omit-frame-pointer", "worker.c", "-o", "worker", "-libverbs"], check=True)
            printed = in_terminal([str(BUILD / "ropeway"), *command.split()[1:]], TERMINALS["check"][0], status=86)
        finally:
            os.chdir(before)
    return f"$ {command}\n{printed.replace(folder + '/', '')}"


PRINTED = {"explain": account, "check": finding}


def record():
    for name, printed in PRINTED.items():
        (HERE / f"{name}.txt").write_text(printed(), encoding="utf-8")
    beside([*RUN, "--", BUILD / "rdma-server", "-n", "1", "write"],
           lambda: subprocess.run([*RUN, "--pcap", HERE / "write.pcapng", "--", BUILD / "rdma-client", "write", "127.0.0.1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def shape(text):
    """The words of an account without what each run has anew, sorted: which of two processes is first differs, and so does where a line is broken. Nor is it sure that
    an ACK has a packet of its own, or how often the program polls in vain."""
    for pattern, instead in ((r"\x1b\[[\d;]*m", ""), (r"0x[0-9a-f]+", "0x#"), (r"(pid|process) \d+", "pid #"), (r"since [\d:.]+", "since #"), (r"(?m)^ *\d+\.\d{3}(?= )", "#"), (r"(\.\.\.\s+)?ibv_poll_cq:\s+polled\s+[\d,]+\s+times?\s+in\s+vain(\s+in\s+all)?", "")):
        text = re.sub(pattern, instead, text)
    return sorted(word for line in samples.form(text).splitlines() if "ACK" not in line and "packets sent" not in line for word in line.split())


def enter_namespace():
    """Recorded is a machine with loopback alone. Only comes back inside of one."""
    if os.environ.get(INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    os.execvpe("unshare", ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


# ---- a terminal ----

def pieces(line):
    """[(column, text, codes)] of a line with codes of SGR."""
    found, codes, column = [], set(), 0
    for code, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line):
        if text:
            if text.strip():
                begin = len(text) - len(text.lstrip(" "))
                found.append((column + begin, text.strip(" "), frozenset(codes)))
            column += len(text)
        else:
            numbers = [int(n or 0) for n in code.split(";")]
            codes = set() if 0 in numbers else codes | set(numbers)
    return found


def terminal(text, dark, columns, label):
    """SVG of a terminal. Every piece has its width said, so that any monospace font keeps the columns."""
    size, wide, high, pad = 13, 7.8, 17, 16
    lines = text.rstrip("\n").split("\n")
    width, height = columns * wide + 2 * pad, len(lines) * high + 2 * pad
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="ui-monospace, SFMono-Regular, Menlo, \'DejaVu Sans Mono\', monospace" font-size="{size}" role="img"',
           f' aria-label="{label}">',
           f'<rect width="100%" height="100%" rx="8" fill="{PAPER[dark]}" stroke="{FAINT[dark]}" stroke-opacity=".4"/>']
    for number, line in enumerate(lines):
        y = pad + number * high + size
        for column, piece, codes in pieces(line):
            color = next((COLORS[c][dark] for c in sorted(codes) if c in COLORS), FAINT[dark] if 2 in codes else INK[dark])
            style = ' font-weight="700"' * (1 in codes or number == 0) + ' font-style="italic"' * (3 in codes)
            out.append(f'<text x="{pad + column * wide:g}" y="{y}" fill="{color}"{style} textLength="{len(piece) * wide:g}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(piece, quote=False)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- the page ----

# What the browser has laid out, as shapes: boxes with a color or a border, and lines of text.
SHAPES = """(() => {
  const shapes = [], seen = (c) => c && !/rgba\\(.*, 0\\)|transparent/.test(c), round = (n) => Math.round(n * 10) / 10;
  const walk = (e) => {
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    if (s.display === 'none' || s.visibility === 'hidden' || e.matches('noscript, script, style, .spoken, select, .tools, svg')) return;
    if (e.matches('.line')) {
      const back = !!e.closest('.rx');
      shapes.push({line: 1, x1: round(back ? r.right : r.left), y1: round(r.top + 1), x2: round(back ? r.left : r.right), y2: round(r.bottom - 1), color: s.backgroundColor});
      return;
    }
    if (r.width && r.height && (seen(s.backgroundColor) || (parseFloat(s.borderTopWidth) && seen(s.borderTopColor) && parseFloat(s.borderLeftWidth))))
      shapes.push({box: 1, x: round(r.x), y: round(r.y), w: round(r.width), h: round(r.height), r: parseFloat(s.borderTopLeftRadius) || 0,
        fill: seen(s.backgroundColor) ? s.backgroundColor : 'none', stroke: parseFloat(s.borderLeftWidth) && seen(s.borderLeftColor) ? s.borderLeftColor : 'none'});
    for (const n of e.childNodes) {
      if (n.nodeType === 1) walk(n);
      if (n.nodeType !== 3 || !n.data.trim()) continue;
      // A line of text at a time.
      const range = document.createRange();
      let from = 0, top = null;
      const say = (to) => {
        range.setStart(n, from); range.setEnd(n, to);
        const b = range.getBoundingClientRect(), text = n.data.slice(from, to);
        if (text.trim()) shapes.push({text: text.replace(/\\s+/g, ' '), x: round(b.x), y: round(b.y + b.height * .76), w: round(b.width), size: parseFloat(s.fontSize), weight: s.fontWeight, color: s.color});
        from = to;
      };
      for (let i = 0; i < n.data.length; i++) {
        range.setStart(n, i); range.setEnd(n, i + 1);
        const b = range.getBoundingClientRect();
        if (top !== null && b.height && Math.abs(b.top - top) > 4) say(i);
        if (b.height) top = b.top;
      }
      say(n.data.length);
    }
  };
  walk(document.body);
  const bottom = [...document.querySelectorAll('.row')].slice(0, %d).pop().getBoundingClientRect().bottom;
  return {shapes, bottom, paper: getComputedStyle(document.body).backgroundColor};
})()"""


def hexadecimal(color):
    numbers = re.findall(r"[\d.]+", color)
    return "#" + "".join(f"{int(float(n)):02x}" for n in numbers[:3]) if len(numbers) >= 3 else color


def ladder(page, path, dark):
    page.screen(LADDER_WIDTH, 2000, dark=dark)
    page.open(path.as_uri())
    page.js("document.head.append(Object.assign(document.createElement('style'), {textContent: '* { transition: none !important; } .ends { position: static !important; } #talks, #problems, #bar { display: none; }'}))")
    laid = page.js(SHAPES % LADDER_ROWS)
    height = int(laid["bottom"]) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LADDER_WIDTH} {height}" font-family="system-ui, \'Segoe UI\', Roboto, \'DejaVu Sans\', sans-serif" role="img"',
           ' aria-label="A page of ropeway explain: packets between two queue pairs as arrows, the states of both at the sides.">',
           f'<rect width="100%" height="100%" fill="{hexadecimal(laid["paper"])}"/>']
    for shape in laid["shapes"]:
        if min(shape.get("y", 0), shape.get("y1", 0)) > height or max(shape.get("y", 0), shape.get("y1", 0)) > height:
            continue
        if "box" in shape:
            high = min(shape["h"], height - shape["y"] + 20)
            out.append(f'<rect x="{shape["x"]:g}" y="{shape["y"]:g}" width="{shape["w"]:g}" height="{high:g}" rx="{min(shape["r"], shape["w"] / 2, high / 2):g}" fill="{hexadecimal(shape["fill"])}" stroke="{hexadecimal(shape["stroke"])}"/>')
        elif "line" in shape:
            way = 1 if shape["x2"] > shape["x1"] else -1
            tip = shape["x2"], shape["y2"]
            out.append(f'<path d="M{shape["x1"]:g} {shape["y1"]:g}L{tip[0] - 8 * way:g} {tip[1]:g}" stroke="{hexadecimal(shape["color"])}" stroke-width="2"/>'
                       f'<path d="M{tip[0]:g} {tip[1]:g}l{-9 * way} -5v10z" fill="{hexadecimal(shape["color"])}"/>')
        else:
            weight = f' font-weight="{shape["weight"]}"' if shape["weight"] != "400" else ""
            out.append(f'<text x="{shape["x"]:g}" y="{shape["y"]:g}" font-size="{shape["size"]:g}"{weight} fill="{hexadecimal(shape["color"])}" textLength="{shape["w"]:g}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">'
                       f'{html.escape(shape["text"], quote=False)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- all of them ----

def drawings():
    """{path: SVG}; without the ladder where there is no Chromium."""
    picture = (HERE.parent / "picture.svg").read_text(encoding="utf-8")
    made = {HERE.parent / "picture-dark.svg": re.sub("|".join(DARK), lambda m: DARK[m[0]], picture)}
    for name, (columns, label) in TERMINALS.items():
        recorded = (HERE / f"{name}.txt").read_text(encoding="utf-8")
        for dark, suffix in ((False, ""), (True, "-dark")):
            made[HERE / f"{name}{suffix}.svg"] = terminal(recorded, dark, columns, label)
    sys.path.insert(0, str(ROOT / "tests/cli"))
    import browser

    if not browser.find():
        print("SKIPPED: no chromium here: the ladder is not drawn")
        return made
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as page:
        path = pathlib.Path(folder, "ladder.html")
        subprocess.run([BUILD / "ropeway", "explain", HERE / "write.pcapng", "-o", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for dark, suffix in ((False, ""), (True, "-dark")):
            made[HERE / f"ladder{suffix}.svg"] = ladder(page, path, dark)
    return made


def same(path, drawn):
    """Is a picture what is drawn? Of the ladder only the texts and their order: the places are those of a machine's fonts."""
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.name.startswith("ladder"):
        return re.findall(r">([^<]+)</text>", there) == re.findall(r">([^<]+)</text>", drawn)
    return there == drawn


def changes():
    """What is recorded and no program prints, and the other way round."""
    wrong = []
    for name, printed in PRINTED.items():
        recorded, now = shape((HERE / f"{name}.txt").read_text(encoding="utf-8")), shape(printed())
        lines = list(difflib.unified_diff(recorded, now, "recorded", "printed now", n=0, lineterm=""))
        wrong += [f"{name}.txt is not what the program prints: run docs/pictures/make.py --record", *lines] if lines else []
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.record or args.check:
        enter_namespace()
    if args.record:
        record()
    wrong = changes() if args.check else []
    for path, drawn in drawings().items():
        if args.check and not same(path, drawn):
            wrong.append(f"{path.relative_to(ROOT)} is not what docs/pictures/make.py draws: run it")
        if not args.check:
            path.write_text(drawn, encoding="utf-8")
    print("\n".join(wrong), end="\n" * bool(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
