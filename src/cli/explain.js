"use strict";
// Draws the ladder from the data in the page. Nothing is fetched, nothing is stored but the language.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
let zh = 0, talk = 0, rows = [], open = new Set(), chosen = -1, opener = null;

const pick = (pair, at = 0) => (pair ? pair[at + zh] : "");
// An English text may be [of one, of several], which {n} decides.
const number = (n) => n.toLocaleString("en-US");
const fill = (text, values) => (Array.isArray(text) ? text[values.n === 1 ? 0 : 1] : text).replace(/\{(\w+)\}/g, (_, key) => (typeof values[key] === "number" ? number(values[key]) : values[key]));
const say = (key, values = {}) => fill(pick(UI[key]), values);
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
function size(bytes) {
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (bytes >= unit) return `${(bytes / unit).toFixed(bytes % unit ? 1 : 0)} ${name}`;
  return `${bytes} B`;
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
const detail = (row) => (zh ? DETAILS.reduce((text, [from, to]) => text.replace(from, to), row.x) : row.x);
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
  if (messages) parts.push(fill(pick(LEAD.amount), { m: number(messages), bytes: size(ends[0].bytes + ends[1].bytes), t: span(a.t_end - a.t) }));
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

function packetRow(row, i) {
  const marks = row.m || [], gap = marks.includes("gap");
  const e = make("button", `row ${row.d ? "rx" : "tx"} ${row.k || "gap"}${isBad(row) ? " bad" : marks.length ? " marked" : ""}${marks.includes("lost") || gap ? " lost" : ""}${gap ? " gap" : ""}`);
  e.type = "button";
  e.dataset.row = i;
  e.setAttribute("aria-pressed", "false");
  const mid = make("span", "arrow"), lab = make("span", "lab"), name = gap ? say("not_captured") : row.l;
  lab.append(make("b", "", name), make("span", "x", row.x ? ` ${detail(row)}` : ""));
  for (const m of marks) if (!["nak", "rnr", "gap"].includes(m)) lab.append(make("span", "tag", pick(MARKS[m])));
  mid.append(lab, make("span", "line"));
  const a = about().ends;
  e.setAttribute("aria-label", `${(row.t / 1000).toFixed(3)} ms, ${a[row.d].addr} → ${a[1 - row.d].addr}, ${name} ${detail(row)} ${marks.map((m) => pick(MARKS[m])).join(" ")}`);
  e.append(make("span", "time", (row.v ? "~" : "") + (row.t / 1000).toFixed(row.t < 1e6 ? 3 : 1)));
  return frame(e, row.s, mid);
}

function foldRow(from, to, unfolded) {
  const list = rows.slice(from, to + 1).filter((r) => !r.skip), ways = [0, 1].map((d) => list.filter((r) => r.d === d).length);
  const e = make("button", "foldrow"), values = { n: number(list.length), a: number(ways[0]), b: number(ways[1]), bytes: size(list.reduce((sum, r) => sum + (r.b || 0), 0)) };
  e.type = "button";
  e.dataset.fold = rows[from].g;
  e.setAttribute("aria-expanded", String(unfolded));
  e.append(make("span", "time"));
  return frame(e, list.length ? list[list.length - 1].s : [0, 0, 0, 0], make("span", "mid", (unfolded ? "▾ " : "▸ ") + say(unfolded ? "fold_again" : "more", values)));
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
function drawLadder() {
  const out = document.createDocumentFragment();
  let state = [0, 0, 0, 0], last = null;
  out.append(heading());
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    if (row.skip) {
      out.append(plainRow("wait", say("skipped", { n: number(row.skip), marked: number(row.marked) }), state));
      last = null;
      continue;
    }
    if (row.g !== undefined && (i === 0 || rows[i - 1].g !== row.g)) {
      let to = i;
      while (to + 1 < rows.length && (rows[to + 1].g === row.g || rows[to + 1].skip)) to++;
      out.append(foldRow(i, to, open.has(row.g)));
      if (!open.has(row.g)) {
        const inside = rows.slice(i, to + 1), skip = inside.find((r) => r.skip), end = inside.filter((r) => !r.skip).pop();
        if (skip) out.append(plainRow("wait", say("skipped", { n: number(skip.skip), marked: number(skip.marked) }), state));
        state = end.s;
        last = end.t;
        i = to;
        continue;
      }
    }
    if (last !== null && row.t - last > WAIT_US) out.append(plainRow("wait", say("wait", { t: span(row.t - last) }), state));
    out.append(packetRow(row, i));
    const change = stateRow(state, row.s);
    if (change) out.append(change);
    state = row.s;
    last = row.t;
  }
  $("ladder").replaceChildren(out);
  if (chosen >= 0) mark(chosen);
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
  for (const [g, key, value] of fields) {
    if (g !== group) {
      table = make("table");
      table.append(make("caption", "", g));
      tables.push(table);
      group = g;
    }
    const tr = make("tr"), name = make("td"), cell = make("td");
    name.append(make("code", "", key.replace(/^(ip|udp|cm|mad|cma)_/, "")), make("small", "", pick(FIELDS[key])));
    cell.append(make("code", "", value));
    tr.append(name, cell);
    table.append(tr);
  }
  return tables;
}

function showRow(i) {
  const row = rows[i], marks = row.m || [], w = words(row), content = [];
  chosen = i;
  for (const m of marks) content.push(paragraph("mk", `${pick(MARKS[m])}: ${pick(MARKS[m], 2)}`));
  if (w) content.push(paragraph("", pick(w[0])));
  if (row.w || w) content.push(paragraph("", `${marks.includes("gap") ? "" : say("why") + (zh ? "：" : ": ")}${pick(row.w ? WHYS[row.w] : w[1])}`));
  if (w) content.push(paragraph("ib", w[2]));
  if (row.c) content.push(paragraph("sub", row.c));
  if (row.t2 !== undefined) content.push(paragraph("sub", say("seen", { us: (row.t2 - row.t).toFixed(0) })));
  if (row.v) content.push(paragraph("sub", say("moved", { us: row.v.toFixed(0) })));
  content.push(...fieldTables(row.h));
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
  const all = [...document.querySelectorAll(".row")], at = all.findIndex((e) => Number(e.dataset.row) === chosen), e = all[Math.max(0, Math.min(all.length - 1, at + by))];
  if (!e) return;
  showRow(Number(e.dataset.row));
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
  $("fold").hidden = !rows.some((r) => r.g !== undefined);
  for (const b of document.querySelectorAll(".lang button")) b.setAttribute("aria-pressed", String((b.dataset.lang === "zh") === !!zh));
  drawTalks();
  drawSummary();
  drawLadder();
  drawFoot();
}
function drawFoot() {
  const legend = make("div", "legend");
  for (const [key, colour] of [["l_req", "--req"], ["l_resp", "--resp"], ["l_cm", "--cm"], ["l_warn", "--warn"], ["l_bad", "--bad"]]) {
    const s = make("span"), i = make("i");
    i.style.background = `var(${colour})`;
    s.append(i, document.createTextNode(say(key)));
    legend.append(s);
  }
  legend.append(make("span", "", say("l_bars")));
  $("foot").replaceChildren(legend, make("p", "", say("foot", { p: number(DATA.head.packets), c: number(DATA.head.talks), v: DATA.head.version })));
  if (DATA.head.beyond) $("foot").append(make("p", "note", say("beyond", { n: number(DATA.head.beyond), p: number(DATA.head.packets) })));
  if (DATA.head.talks > DATA.talks.length) $("foot").append(make("p", "note", say("more_talks", { n: number(DATA.head.talks - DATA.talks.length) })));
}
function setTalk(i) {
  talk = i;
  rows = DATA.talks[i].rows;
  open = new Set();
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
function toggleFold(g) {
  if (!open.delete(g)) open.add(g);
  draw();
  const e = document.querySelector(`[data-fold="${g}"]`);
  if (e) e.focus();
}

document.addEventListener("click", (event) => {
  const e = event.target.closest("button");
  if (!e) return;
  if (e.id === "close") closePanel();
  else if (e.id === "fold") { open = open.size ? new Set() : new Set(rows.map((r) => r.g).filter((g) => g !== undefined)); draw(); }
  else if (e.dataset.lang) setLanguage(e.dataset.lang);
  else if (e.dataset.talk) setTalk(Number(e.dataset.talk));
  else if (e.dataset.fold) toggleFold(Number(e.dataset.fold));
  else if (e.dataset.step) step(Number(e.dataset.step));
  else if (e.dataset.state) { opener = e; showState(e.dataset.state); }
  else if (e.dataset.row) { opener = e; showRow(Number(e.dataset.row)); }
});
document.addEventListener("change", (event) => {
  if (event.target.id !== "talk") return;
  setTalk(Number(event.target.value));
  $("talk").focus();
});
document.addEventListener("keydown", (event) => {
  const here = document.activeElement;
  if (event.key === "Escape" && !$("panel").hidden) closePanel();
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && here && here.closest("#ladder")) {
    const all = [...document.querySelectorAll("#ladder button")], next = all[all.indexOf(here) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { next.focus(); event.preventDefault(); if (!$("panel").hidden && next.dataset.row) { opener = next; showRow(Number(next.dataset.row)); } }
  }
});

let stored = null;
try { stored = localStorage.getItem("ropeway-lang"); } catch (e) { /* as above */ }
const asked = /[#&]lang=(en|zh)/.exec(location.hash);
zh = (asked ? asked[1] : stored || (navigator.language || "en").slice(0, 2)) === "zh" ? 1 : 0;
// The longest conversation first: what is short beside it is a probe as a rule.
setTalk(DATA.talks.reduce((best, t, i) => (t.rows.length > DATA.talks[best].rows.length ? i : best), 0));
