"use strict";
// Draws the ladder from the data in the page. Nothing is fetched, nothing is stored but the language.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
let zh = 0, talk = 0, rows = [], open = new Set(), chosen = -1, opener = null;
let problems = [], problem = -1, listed = false, side = "", kind = "", sought = "", items = [], place = new Map(), chunks = [];
const EAGER = 6000; // so many lines are simply there; of more, only those near the screen
const CHUNK = 200, UNFOLD_MAX = 100000, LIST_FIRST = innerWidth <= 820 ? 2 : 8, LIST_MAX = 500;

const pick = (pair, at = 0) => (pair ? pair[at + zh] : "");
// An English text may be [of one, of several], which {n} decides.
const number = (n) => n.toLocaleString("en-US");
const fill = (text, values) => (Array.isArray(text) ? text[values.n === 1 ? 0 : 1] : text).replace(/\{(\w+)\}/g, (_, key) => (typeof values[key] === "number" ? number(values[key]) : values[key]));
const say = (key, values = {}) => fill(pick(UI[key]), values);
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
function size(bytes) {
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (bytes >= unit) return `${(bytes / unit).toFixed(bytes % unit ? 1 : 0)}\u00a0${name}`;
  return `${bytes}\u00a0B`;
}
const span = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : us >= 1000 ? `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms` : `${us.toFixed(0)} µs`);
function make(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}
const about = () => DATA.talks[talk].about;
function role(side) { return say(about().cm ? (side ? "server" : "client") : side ? "side1" : "side0"); }
function endName(end) { return end.qpn === undefined ? end.addr : `${end.addr} QP 0x${end.qpn.toString(16).padStart(6, "0")}`; }
const whole = (text) => text.replace(/(\d) (?=[KMG]?i?B\b)/g, "$1\u00a0"); // a number stays with its unit
const detail = (row) => whole(zh ? DETAILS.reduce((text, [from, to]) => text.replace(from, to), row.x) : row.x);
const operation = (row) => row.l.replace(/^(RC|UC|UD|CM) /, "");
const words = (row) => (row.k === "cm" ? CMS : OPS)[operation(row)];
const isBad = (row) => (row.m || []).some((m) => ["lost", "gap", "nak", "bad_icrc", "malformed"].includes(m));

// ---- the summary ----

function leadText() {
  const a = about(), ends = a.ends, same = ends[0].addr === ends[1].addr, name = (end) => escape(same ? endName(end) : end.addr);
  const values = { a: name(ends[0]), b: name(ends[1]), port: String(a.port), kind: escape(a.kind) };
  const met = !["rejected", "no_answer"].includes(a.outcome);
  const key = a.kind === "SIDR" ? "lookup" : !a.cm ? "plain" : !a.port ? "connected_noport" : met ? "connected" : "tried";
  const parts = [fill(pick(LEAD[key]), values)], messages = ends[0].messages + ends[1].messages;
  if (messages) parts.push(fill(pick(LEAD.amount), { m: say("n_messages", { n: messages }), bytes: size(ends[0].bytes + ends[1].bytes), t: span(a.t_end - a.t) }));
  parts.push(fill(pick(OUTCOMES[a.outcome]), { side: role(a.outcome_side), n: a.outcome_number, text: escape(a.outcome_text) }));
  return parts.join(zh ? "；" : "; ") + (zh ? "。" : ".");
}

function card(side) {
  const end = about().ends[side], box = make("div", "card"), list = make("dl");
  const title = make("h2", "", endName(end) + " ");
  title.append(make("span", "role", role(side)));
  for (const [key, hot] of [["packets"], ["messages"], ["bytes"], ["resent", 1], ["lost", 1], ["naks", 1], ["rnrs", 1]]) {
    if (hot && !end[key]) continue;
    list.append(make("dt", "", say(key)), make("dd", hot ? "hot" : "", key === "bytes" ? size(end[key]) : number(end[key])));
  }
  box.append(title, list);
  return box;
}

function drawSummary() {
  const box = $("summary"), cards = make("div", "cards"), lead = make("p", "lead");
  lead.innerHTML = leadText();
  cards.append(card(0), card(1));
  box.replaceChildren(lead, cards);
  const list = make("ul", "diag");
  for (const key of about().diag) list.append(make("li", "", pick(DIAGNOSES[key])));
  if (list.children.length) box.append(list);
  const files = DATA.head.files.filter((f) => f.cut);
  for (const f of files) box.append(make("p", "note", say("damaged", { f: f.name })));
  for (const f of DATA.head.files) if (f.shift) box.append(make("p", "note", say("shifted", { f: f.name, s: (f.shift / 1e9).toFixed(6) })));
  if (DATA.head.moved) box.append(make("p", "note", say("moved_all", { n: DATA.head.moved })));
}

function drawTalks() {
  const nav = $("talks");
  nav.replaceChildren();
  if (DATA.talks.length < 2) return;
  const name = (t, i) => `${i + 1}. ${t.about.kind} ${endName(t.about.ends[0])} ⇄ ${endName(t.about.ends[1])}`;
  if (DATA.talks.length > 12) {
    const list = make("select");
    list.id = "talk";
    list.setAttribute("aria-label", say("talk"));
    DATA.talks.forEach((t, i) => list.append(new Option(`${name(t, i)}${t.about.diag.length ? " ●" : ""}`, i, i === talk, i === talk)));
    nav.append(list);
    return;
  }
  DATA.talks.forEach((t, i) => {
    const b = make("button", t.about.diag.length ? "hot" : "", name(t, i));
    b.type = "button";
    b.dataset.talk = i;
    if (i === talk) b.setAttribute("aria-current", "true");
    nav.append(b);
  });
}

// ---- the ladder ----

function bars(state, side) {
  const cm = { 0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 5, 7: 5, 8: 7, 9: 4 }[state[side * 2]], qp = [0, 1, 2, 3, 4][state[side * 2 + 1]];
  const list = [make("span", `bar s${cm}`), make("span", `bar s${qp}`)];
  return side ? list.reverse() : list;
}
function frame(e, state, mid) {
  e.append(...bars(state, 0), mid, ...bars(state, 1), make("span"));
  return e;
}

function chip(kind, name, level) {
  const b = make("button", "chip");
  b.type = "button";
  b.dataset.state = name;
  b.append(make("i", `bar s${level}`), document.createTextNode(`${kind} ${name}`));
  b.querySelector("i").style.minHeight = "9px";
  return b;
}

// A row of chips where a state has changed.
function stateRow(before, now) {
  const sides = [make("span", "chips"), make("span", "chips right")];
  for (const side of [0, 1]) {
    const [cm, qp] = [now[side * 2], now[side * 2 + 1]];
    if (cm && cm !== before[side * 2]) sides[side].append(chip("CM", DATA.head.cm_states[cm], { 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 5, 7: 5, 8: 7, 9: 4 }[cm]));
    if (qp && qp !== before[side * 2 + 1]) sides[side].append(chip("QP", DATA.head.qp_states[qp], qp));
  }
  if (!sides[0].children.length && !sides[1].children.length) return null;
  const e = make("div", "states"), mid = make("span", "mid");
  mid.append(...sides);
  e.append(make("span"));
  return frame(e, now, mid);
}

function level(row) {
  const marks = row.m || [];
  if (isBad(row)) return " bad";
  return marks.includes("out_of_order") || marks.includes("refused") ? " dropped" : marks.length ? " marked" : "";
}
function packetRow(row, i) {
  const marks = row.m || [], gap = marks.includes("gap");
  const e = make("button", `row ${row.d ? "rx" : "tx"} ${row.k || "gap"}${level(row)}${marks.includes("lost") || gap ? " lost" : ""}${gap ? " gap" : ""}`);
  e.type = "button";
  e.dataset.row = i;
  e.setAttribute("aria-pressed", String(i === chosen));
  const mid = make("span", "arrow"), lab = make("span", "lab"), name = gap ? say("not_captured") : row.l;
  lab.append(make("b", "", name), make("span", "x", row.x ? ` ${detail(row)}` : ""));
  for (const m of marks) if (!["nak", "rnr", "gap"].includes(m)) lab.append(make("span", "tag", pick(MARKS[m])));
  mid.append(lab, make("span", "line"));
  const a = about().ends;
  const time = make("span", "time", (row.v ? "~" : "") + (row.t / 1000).toFixed(row.t < 1e6 ? 3 : 1));
  time.append(make("span", "spoken", ` ms, ${a[row.d].addr} → ${a[1 - row.d].addr}, `));
  e.append(time);
  return frame(e, row.s, mid);
}

function foldRow(g) {
  const [from, to] = DATA.talks[talk].folds[g], unfolded = open.has(g), ways = [0, 0];
  let bytes = 0;
  for (let i = from; i <= to; i++) {
    if (!passes(rows[i])) continue;
    ways[rows[i].d]++;
    bytes += rows[i].b || 0;
  }
  const e = make("button", "foldrow"), values = { n: ways[0] + ways[1], a: ways[0], b: ways[1], bytes: size(bytes) };
  e.type = "button";
  e.dataset.fold = g;
  e.setAttribute("aria-expanded", String(unfolded));
  e.append(make("span", "time"));
  return frame(e, rows[to].s, make("span", "mid", (unfolded ? "▾ " : "▸ ") + say(unfolded ? "fold_again" : "more", values)));
}

function plainRow(className, text, state) {
  const e = make("div", className);
  e.append(make("span"));
  return frame(e, state, make("span", "mid", text));
}

function heading() {
  const e = make("div", "ends"), names = make("span", "names");
  for (const side of [0, 1]) {
    const n = make("span", "", about().ends[side].addr), end = about().ends[side];
    n.append(make("small", "", `${role(side)} · ${end.qpn === undefined ? say("qp_unknown") : "QP 0x" + end.qpn.toString(16).padStart(6, "0")}`));
    names.append(n);
  }
  e.append(make("span", "", say("time")), names);
  return e;
}

const WAIT_US = 5000; // a silence that is worth a line, when it is also far longer than what is usual
const kinds = new Map(); // by label
function kindOf(row) {
  if (row.k === "cm") return "cm";
  if (!row.k) return "gap";
  let found = kinds.get(row.l);
  if (!found) {
    const name = operation(row);
    found = (["nak", "send", "write", "read", "atomic", "ack"].find((k) => KIND_NAMES[k].test(name))) || "other";
    kinds.set(row.l, found);
  }
  return found;
}
const KIND_NAMES = { nak: /NAK/, send: /^SEND/, write: /^WRITE/, read: /^READ/, atomic: /CMP_SWAP|FETCH_ADD|ATOMIC/, ack: /^ACK/ };
// What the search looks through: as shown, and the number in its file.
const textOf = (row) => [row.l, row.x, detail(row), row.c || "", row.n === undefined ? "" : `#${row.n}`, ...(row.m || []).map((m) => pick(MARKS[m]))].join(" ").toLowerCase();
const isFound = (row) => sought.split(/\s+/).every((word) => textOf(row).includes(word));
const isFiltered = () => side !== "" || kind !== "" || sought !== "";
const passes = (row) => (sought === "" || isFound(row)) && (side === "" || row.d === Number(side)) && (kind === "" || (kind === "problem" ? row.m !== undefined : kindOf(row) === kind));

// The lines of the ladder, not yet as elements: packets (with the states before them), folds, silences.
function list() {
  const filtered = isFiltered();
  let state = [0, 0, 0, 0], last = null;
  items = [];
  place = new Map();
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    if (row.g !== undefined && (i === 0 || rows[i - 1].g !== row.g)) {
      const to = DATA.talks[talk].folds[row.g][1];
      if (!filtered || rows.slice(i, to + 1).some(passes)) items.push({ fold: row.g });
      if (!open.has(row.g)) {
        state = rows[to].s;
        last = rows[to].t;
        i = to;
        continue;
      }
    }
    if (!passes(row)) continue;
    if (!filtered && last !== null && row.t - last > WAIT_US) items.push({ wait: row.t - last, state });
    place.set(i, items.length);
    items.push({ row: i, state });
    state = row.s;
    last = row.t;
  }
}
function drawItem(item, out) {
  if (item.fold !== undefined) {
    out.append(foldRow(item.fold));
  } else if (item.wait !== undefined) {
    out.append(plainRow("wait", say("wait", { t: span(item.wait) }), item.state));
  } else {
    out.append(packetRow(rows[item.row], item.row));
    const change = stateRow(item.state, rows[item.row].s);
    if (change) out.append(change);
  }
}
function drawChunk(c) {
  const e = chunks[c];
  if (!e || e.firstChild) return;
  const out = document.createDocumentFragment();
  for (const item of items.slice(c * CHUNK, (c + 1) * CHUNK)) drawItem(item, out);
  e.append(out);
  e.classList.remove("empty");
  e.style.height = "";
}
const near = new IntersectionObserver((seen) => {
  for (const s of seen) {
    if (!s.target.isConnected || items.length <= EAGER) continue;
    if (s.isIntersecting) {
      drawChunk(Number(s.target.dataset.chunk));
    } else if (s.target.firstChild && !s.target.contains(document.activeElement)) {
      s.target.style.height = `${s.target.offsetHeight}px`;
      s.target.classList.add("empty");
      s.target.replaceChildren();
    }
  }
}, { rootMargin: "2000px 0px" });
function drawLadder() {
  list();
  near.disconnect();
  chunks = [];
  for (let c = 0; c * CHUNK < items.length; c++) {
    const e = make("div", "chunk empty");
    e.dataset.chunk = c;
    e.style.height = `${Math.min(CHUNK, items.length - c * CHUNK) * 37}px`;
    chunks.push(e);
  }
  $("ladder").replaceChildren(heading(), ...chunks);
  if (!items.length) $("ladder").append(plainRow("wait", say("nothing"), [0, 0, 0, 0]));
  if (items.length <= EAGER) chunks.forEach((_, c) => drawChunk(c));
  else for (const e of chunks) near.observe(e);
  if (chosen >= 0) mark(chosen);
}
// The element of a packet, drawn and unfolded if it has to be.
function reveal(i) {
  if (!passes(rows[i])) {
    side = kind = sought = "";
    draw();
  }
  if (rows[i].g !== undefined && !open.has(rows[i].g)) {
    open.add(rows[i].g);
    draw();
  }
  drawChunk(Math.floor(place.get(i) / CHUNK));
  return document.querySelector(`.row[data-row="${i}"]`);
}

// ---- problems ----

// Marked packets, those near each other together.
function findProblems() {
  const NEAR = 12, found = [];
  let last = -NEAR;
  rows.forEach((row, i) => {
    if (!row.m) return;
    if (i - last >= NEAR) found.push({ i, end: i, marks: {} });
    const p = found[found.length - 1];
    for (const m of row.m) p.marks[m] = (p.marks[m] || 0) + 1;
    p.end = last = i;
  });
  return found;
}
function drawProblems() {
  const box = $("problems"), shown = listed ? LIST_MAX : LIST_FIRST;
  box.hidden = !problems.length;
  const all = make("details"), head = make("summary");
  all.open = listed || innerWidth > 820;
  head.append(make("h2", "", say("problems", { n: problems.length })));
  all.append(head);
  box.replaceChildren(all);
  const out = make("ol");
  problems.slice(0, shown).forEach((p, n) => {
    const li = make("li"), b = make("button", "", `${(rows[p.i].t / 1000).toFixed(3)} ms`);
    b.type = "button";
    b.dataset.problem = n;
    li.append(b, document.createTextNode(" " + Object.entries(p.marks).map(([m, count]) => `${pick(MARKS[m])} ${number(count)}`).join(" · ")));
    out.append(li);
  });
  all.append(out);
  if (problems.length > LIST_FIRST && !listed) {
    const b = make("button", "all", say("list_all", { n: Math.min(problems.length, LIST_MAX) }));
    b.type = "button";
    b.id = "list";
    all.append(b);
  }
  if (listed && problems.length > LIST_MAX) all.append(make("p", "note", say("list_rest", { n: problems.length - LIST_MAX })));
}
function goProblem(n) {
  if (!problems.length) return;
  problem = (n + problems.length) % problems.length;
  const i = problems[problem].i, e = reveal(i);
  opener = e;
  showRow(i);
  const now = reveal(i);
  now.scrollIntoView({ block: innerWidth <= 820 ? "start" : "center" });
  now.focus({ preventScroll: true });
  opener = now;
  drawCount();
}
function nextProblem(by) {
  if (chosen < 0) return goProblem(problem < 0 && by < 0 ? -1 : problem + by);
  // From the packet that is open.
  const behind = problems.filter((p) => p.i <= chosen).length;
  return goProblem(by > 0 ? behind : problems.filter((p) => p.i < chosen).length - 1);
}
function drawCount() { $("count").textContent = problems.length ? `${problem < 0 ? "–" : number(problem + 1)} / ${number(problems.length)}` : ""; }

function option(value, text) { return new Option(text, value, false, false); }
function drawBar() {
  const bar = $("bar"), counts = new Map(), sides = make("select"), what = make("select");
  for (const row of rows) counts.set(kindOf(row), (counts.get(kindOf(row)) || 0) + 1);
  sides.id = "side";
  sides.setAttribute("aria-label", say("f_side"));
  sides.append(option("", say("f_all")), ...about().ends.map((end, n) => option(n, say("f_from", { q: end.qpn === undefined ? `${role(n)}, ${end.addr}` : `QP 0x${end.qpn.toString(16).padStart(6, "0")} (${role(n)})` }))));
  sides.value = side;
  what.id = "kind";
  what.setAttribute("aria-label", say("f_kind"));
  what.append(option("", say("f_kinds")));
  const marked = rows.reduce((sum, row) => sum + (row.m ? 1 : 0), 0);
  if (marked) what.append(option("problem", `${say("k_problem")} (${number(marked)})`));
  for (const k of ["send", "write", "read", "atomic", "ack", "nak", "cm", "other", "gap"]) if (counts.get(k)) what.append(option(k, `${say("k_" + k)} (${number(counts.get(k))})`));
  what.value = kind;
  const nav = make("span", "nav");
  for (const [by, key] of [[-1, "prev_problem"], [1, "next_problem"]]) {
    const b = make("button", "", `${by < 0 ? "↑ " : "↓ "}${say(key)}`);
    b.type = "button";
    b.dataset.go = by;
    nav.append(b);
    if (by < 0) {
      const count = make("span", "count");
      count.id = "count";
      nav.append(count);
    }
  }
  nav.hidden = !problems.length;
  const search = make("input");
  search.type = "search";
  search.id = "search";
  search.placeholder = say(innerWidth <= 820 ? "search_short" : "search");
  search.setAttribute("aria-label", say("search"));
  search.value = sought;
  const found = sought === "" ? "" : say("found", { n: rows.reduce((sum, row) => sum + passes(row), 0) });
  bar.replaceChildren(sides, what, search, make("span", "found", found), nav);
  drawCount();
  const part = open.size && open.size < DATA.talks[talk].folds.length && items.length > UNFOLD_MAX / 2;
  if (part) bar.append(make("span", "part", say("unfolded_part", { n: open.size, m: number(DATA.talks[talk].folds.length), max: number(UNFOLD_MAX) })));
  document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
}
function unfoldAll() {
  if (open.size) { open = new Set(); return; }
  let lines = rows.length - DATA.talks[talk].folds.reduce((sum, [from, to]) => sum + to - from + 1, 0);
  DATA.talks[talk].folds.forEach(([from, to], g) => {
    lines += to - from + 1;
    if (lines <= UNFOLD_MAX) open.add(g);
  });
}

// ---- the panel ----

function closePanel() {
  $("panel").hidden = true;
  document.body.classList.remove("open");
  document.querySelector(".body").classList.remove("open");
  mark(-1);
  if (opener && opener.isConnected) opener.focus();
  opener = null;
}
function openPanel(title, sub, content, steps) {
  const panel = $("panel"), x = make("button", "x", "✕");
  x.type = "button";
  x.id = "close";
  x.setAttribute("aria-label", say("close"));
  panel.replaceChildren(make("h2", "", title), make("p", "sub", sub), ...content, x);
  if (steps) {
    const bar = make("div", "step");
    for (const key of ["prev", "next"]) {
      const b = make("button", "", `${key === "prev" ? "↑ " : "↓ "}${say(key)}`);
      b.type = "button";
      b.dataset.step = key === "prev" ? -1 : 1;
      bar.append(b);
    }
    panel.append(bar);
  }
  panel.hidden = false;
  panel.scrollTop = 0;
  document.body.classList.add("open");
  document.querySelector(".body").classList.add("open");
}
function paragraph(className, text) { return make("p", className, text); }

function fieldTables(fields) {
  const tables = [];
  let table = null, group = null;
  for (const [g, key, value, at, length] of fields) {
    if (g !== group) {
      table = make("table");
      table.append(make("caption", "", g));
      tables.push(table);
      group = g;
    }
    const tr = make("tr"), name = make("td"), cell = make("td");
    name.append(make("code", "", key.replace(/^(ip|udp|cm|mad|cma)_/, "")));
    cell.append(make("code", "", value));
    tr.append(name, cell, make("td", "what", pick(FIELDS[key])));
    if (length) {
      tr.dataset.at = at;
      tr.dataset.length = length;
      tr.tabIndex = 0;
    }
    table.append(tr);
  }
  return tables;
}

// The bytes of the headers; a field and its bytes show each other.
const PER_LINE = 8;
function hexDump(hex) {
  const table = make("table", "hex"), count = hex.length / 2;
  table.append(make("caption", "", say("bytes_from_bth")));
  for (let line = 0; line < count; line += PER_LINE) {
    const tr = make("tr"), cell = make("td");
    tr.append(make("th", "", line.toString(16).padStart(4, "0")), cell);
    for (let i = line; i < Math.min(count, line + PER_LINE); i++) {
      const b = make("span", "", hex.slice(2 * i, 2 * i + 2));
      b.dataset.byte = i;
      cell.append(b, " ");
    }
    table.append(tr);
  }
  return table;
}
function showField(tr) {
  for (const e of document.querySelectorAll("#panel .at")) e.classList.remove("at");
  if (!tr) return;
  const at = Number(tr.dataset.at), end = at + Number(tr.dataset.length);
  tr.classList.add("at");
  for (const b of document.querySelectorAll("#panel [data-byte]")) b.classList.toggle("at", Number(b.dataset.byte) >= at && Number(b.dataset.byte) < end);
}
const fieldOf = (byte) => [...document.querySelectorAll("#panel tr[data-at]")].find((tr) => Number(tr.dataset.at) <= byte && byte < Number(tr.dataset.at) + Number(tr.dataset.length));

function showRow(i) {
  const row = rows[i], marks = row.m || [], w = words(row), content = [];
  chosen = i;
  const named = (m) => w && ["nak", "rnr"].includes(m); // the operation's own words say it
  for (const m of marks) if (!named(m)) content.push(paragraph("mk", `${pick(MARKS[m])}${zh ? "：" : ": "}${pick(MARKS[m], 2)}`));
  if (w) content.push(paragraph(marks.some(named) ? "mk" : "", pick(w[0])));
  if (row.w || w) content.push(paragraph("", `${marks.includes("gap") ? "" : say("why") + (zh ? "：" : ": ")}${pick(row.w ? WHYS[row.w] : w[1])}`));
  if (w) content.push(paragraph("ib", w[2]));
  if (row.c) content.push(paragraph("sub", row.c));
  if (row.t2 !== undefined) content.push(paragraph("sub", say("seen", { us: (row.t2 - row.t).toFixed(0) })));
  if (row.v) content.push(paragraph("sub", say("moved", { us: row.v.toFixed(0) })));
  if (row.r) content.push(hexDump(row.r));
  if (row.h) content.push(...fieldTables(row.h));
  else content.push(paragraph("mk", say("short")));
  const ends = about().ends, file = row.n === undefined ? "" : ` · ${say("file", { n: row.n, f: DATA.head.files[row.f].name })}`;
  openPanel(`${marks.includes("gap") ? say("not_captured") + ":" : row.l} ${detail(row)}`, `${(row.t / 1000).toFixed(3)} ms · ${ends[row.d].addr} → ${ends[1 - row.d].addr}${file}`, content, true);
  const e = mark(i);
  if (e && innerWidth <= 820) e.scrollIntoView({ block: "start" }); // the panel covers the lower half
}
function showState(name) {
  const s = STATES[name];
  chosen = -1;
  mark(-1);
  openPanel(name, "", [paragraph("", pick(s)), paragraph("sub", pick(INFERRED)), paragraph("ib", s[2])], false);
}
function mark(i) {
  for (const e of document.querySelectorAll('.row[aria-pressed="true"]')) e.setAttribute("aria-pressed", "false");
  const e = i < 0 ? null : document.querySelector(`.row[data-row="${i}"]`);
  if (e) e.setAttribute("aria-pressed", "true");
  if (i < 0) chosen = -1;
  return e;
}
function step(by) {
  let at = place.get(chosen);
  do at += by; while (items[at] && items[at].row === undefined);
  if (!items[at]) return;
  const e = reveal(items[at].row);
  showRow(items[at].row);
  e.scrollIntoView({ block: "nearest" });
  opener = e;
}

// ---- all of it ----

function draw() {
  document.documentElement.lang = zh ? "zh-CN" : "en";
  const names = DATA.head.files.map((f) => f.name).join(" + ");
  document.title = `${names} – ropeway explain`;
  $("title").textContent = `${say("title")} · ${names}`;
  $("fold").textContent = say(open.size ? "fold_all" : "unfold_all");
  $("fold").hidden = !DATA.talks[talk].folds.length;
  for (const b of document.querySelectorAll(".lang button")) b.setAttribute("aria-pressed", String((b.dataset.lang === "zh") === !!zh));
  drawTalks();
  drawSummary();
  drawProblems();
  drawLegend();
  drawLadder();
  drawBar();
  drawFoot();
}
function drawLegend() {
  const legend = make("div", "legend"), states = make("div", "legend");
  for (const [key, colour] of [["l_req", "--req"], ["l_resp", "--resp"], ["l_cm", "--cm"], ["l_warn", "--warn"], ["l_drop", "--drop"], ["l_bad", "--bad"]]) {
    const s = make("span"), i = make("i");
    i.style.background = `var(${colour})`;
    s.append(i, document.createTextNode(say(key)));
    legend.append(s);
  }
  states.append(make("span", "", say("l_bars")));
  for (const [n, names] of [[1, "REQ, INIT"], [2, "REP, RTR"], [3, "ESTABLISHED, RTS"], [5, "DREQ"], [7, "TIMEWAIT"], [4, "REJECTED, ERR"]]) {
    const s = make("span");
    s.append(make("i", `bar s${n}`), document.createTextNode(names));
    states.append(s);
  }
  $("legend").replaceChildren(make("summary", "", say("legend")), make("p", "hint", say(matchMedia("(pointer: coarse)").matches ? "hint_touch" : problems.length ? "hint_problems" : "hint")), legend, states);
}
function drawFoot() {
  const foot = $("foot"), h = DATA.head;
  foot.replaceChildren(make("p", "", say("foot", { p: say("n_packets", { n: h.packets }), c: say("n_talks", { n: h.talks }), v: h.version })));
  if (DATA.shortened) foot.append(make("p", "note", say("shortened", { n: DATA.shortened })));
  if (h.beyond) foot.append(make("p", "note", say("beyond", { n: h.beyond, p: number(h.packets) })));
  if (h.talks > DATA.talks.length) foot.append(make("p", "note", say("more_talks", { n: h.talks - DATA.talks.length })));
}
// Rows without their header fields are short arrays (html.c).
function unpack(t) {
  let ns = 0, s = [0, 0, 0, 0];
  t.rows.forEach((r, at) => {
    if (Array.isArray(r)) {
      const [since, d, text, psn, n, f, seen, b, more] = r, [l, k, x] = t.texts[text];
      ns += since;
      r = { t: ns / 1000, d, l, x: psn < 0 ? x : `PSN 0x${psn.toString(16).padStart(6, "0")}${x}`, s, ...more };
      if (n) { r.n = n; r.f = f; r.b = b; r.k = k; }
      if (seen >= 0) r.t2 = (ns + seen) / 1000;
      t.rows[at] = r;
    } else {
      ns = Math.round(r.t * 1000);
    }
    s = r.s;
  });
  t.folds.forEach(([from, to], g) => { for (let i = from; i <= to; i++) t.rows[i].g = g; });
  t.unpacked = true;
}
function setTalk(i) {
  talk = i;
  if (!DATA.talks[i].unpacked) unpack(DATA.talks[i]);
  rows = DATA.talks[i].rows;
  open = new Set();
  side = kind = sought = "";
  problems = findProblems();
  problem = -1;
  listed = false;
  chosen = -1;
  $("panel").hidden = true;
  document.querySelector(".body").classList.remove("open");
  document.body.classList.remove("open");
  draw();
}
function setLanguage(lang) {
  zh = lang === "zh" ? 1 : 0;
  try { localStorage.setItem("ropeway-lang", lang); } catch (e) { /* a file may have no storage */ }
  const was = chosen, panel = !$("panel").hidden;
  draw();
  if (panel && was >= 0) showRow(was);
  else if (panel) closePanel();
}
// The fold stays where it is on the screen, whatever becomes of the lines above.
function toggleFold(g) {
  const at = () => document.querySelector(`[data-fold="${g}"]`), top = at().getBoundingClientRect().top;
  if (!open.delete(g)) open.add(g);
  draw();
  // and what is near, whose height is a guess until then
  const c = Math.floor(items.findIndex((i) => i.fold === g) / CHUNK);
  for (const k of [c, c - 1, c + 1]) drawChunk(k);
  at().focus({ preventScroll: true });
  scrollBy(0, at().getBoundingClientRect().top - top);
}

document.addEventListener("click", (event) => {
  const e = event.target.closest("button");
  if (!e) return;
  if (e.id === "close") closePanel();
  else if (e.id === "fold") { unfoldAll(); draw(); }
  else if (e.id === "list") { listed = true; drawProblems(); }
  else if (e.dataset.problem) goProblem(Number(e.dataset.problem));
  else if (e.dataset.go) nextProblem(Number(e.dataset.go));
  else if (e.dataset.lang) setLanguage(e.dataset.lang);
  else if (e.dataset.talk) setTalk(Number(e.dataset.talk));
  else if (e.dataset.fold) toggleFold(Number(e.dataset.fold));
  else if (e.dataset.step) step(Number(e.dataset.step));
  else if (e.dataset.state) { opener = e; showState(e.dataset.state); }
  else if (e.dataset.row) { opener = e; showRow(Number(e.dataset.row)); }
});
for (const name of ["pointerover", "focusin", "click"]) {
  $("panel").addEventListener(name, (event) => {
    const byte = event.target.closest("[data-byte]"), tr = event.target.closest("tr[data-at]");
    if (byte) showField(fieldOf(Number(byte.dataset.byte)));
    else if (tr) showField(tr);
  });
}
document.addEventListener("input", (event) => {
  if (event.target.id !== "search") return;
  const at = event.target.selectionStart;
  sought = event.target.value.toLowerCase();
  draw();
  $("search").focus();
  $("search").setSelectionRange(at, at);
});
document.addEventListener("change", (event) => {
  const { id, value } = event.target;
  if (id === "talk") setTalk(Number(value));
  else if (id === "side") { side = value; draw(); }
  else if (id === "kind") { kind = value; draw(); }
  else return;
  $(id).focus();
});
addEventListener("beforeprint", () => {
  for (let c = 0; c * CHUNK < Math.min(items.length, EAGER); c++) drawChunk(c);
  $("printed").textContent = items.length > EAGER ? say("printed", { n: number(EAGER), of: number(items.length) }) : "";
});
document.addEventListener("keydown", (event) => {
  const here = document.activeElement;
  if (event.key === "Escape" && !$("panel").hidden) closePanel();
  else if (["n", "p"].includes(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey && !(here && here.matches("select, input"))) nextProblem(event.key === "n" ? 1 : -1);
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && here && here.closest("#ladder")) {
    const all = [...document.querySelectorAll("#ladder button")], next = all[all.indexOf(here) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { next.focus(); event.preventDefault(); if (!$("panel").hidden && next.dataset.row) { opener = next; showRow(Number(next.dataset.row)); } }
  }
});

$("legend").open = innerWidth > 820; // a phone's first screen is for arrows
let stored = null;
try { stored = localStorage.getItem("ropeway-lang"); } catch (e) { /* as above */ }
const asked = /[#&]lang=(en|zh)/.exec(location.hash);
zh = (asked ? asked[1] : stored || (navigator.language || "en").slice(0, 2)) === "zh" ? 1 : 0;
// The longest conversation first: what is short beside it is a probe as a rule.
setTalk(DATA.talks.reduce((best, t, i) => (t.rows.length > DATA.talks[best].rows.length ? i : best), 0));
