// The state, the address that has all of it, the events of the server, and the keys.
import { render } from "/vendor/preact.mjs";
import { first, session } from "/start.mjs";
import { html, release, UNITS } from "/show.mjs";
import { PAGES, SHOW } from "/pages.mjs";

// What stands in the address, with what it is without.
const PARTS = { page: "overview", filter: "", window: 10, host: "", unit: "bits", dimension: "host_out", length: 86400, from: "", to: "", freeze: "" };
const KEPT_POINTS = 300;

const state = {
  ...PARTS, data: null, problem: "", isOpen: true, theme: localStorage.getItem("theme") ?? "", sort: null, help: false, typed: null,
  series: { number: null, t: [], bits: [], packets: [], lost: [], active: [] }, past: null, found: null, watched: null, watchedAt: 0, isWhole: false,
};

const app = {
  state,
  /** An address with some parts changed. */
  address(change) {
    const next = { ...Object.fromEntries(Object.keys(PARTS).map((name) => [name, state[name]])), ...change };
    const query = Object.entries(next).filter(([name, value]) => String(value) !== String(PARTS[name]));
    return query.length ? `/?${new URLSearchParams(query)}` : "/";
  },
  go(change) {
    history.pushState(null, "", app.address(change));
    arrive();
  },
  follow(event) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.pushState(null, "", event.currentTarget.href);
    arrive();
  },
  sortBy(name) {
    const isSame = state.sort?.by === name;
    state.sort = isSame && !state.sort.down ? null : { by: name, down: !isSame };
    show();
  },
  packetWindow() {
    const end = state.to ? Number(state.to) : (state.heldEnd ??= Math.ceil((state.data?.second?.end_ns ?? Date.now() * 1e6) / 1e9));
    return [state.from ? Number(state.from) : end - 10, end];
  },
  packetQuery() {
    const [from, to] = app.packetWindow();
    return new URLSearchParams({ from: `${Math.floor(from)}000000000`, to: `${Math.ceil(to)}000000000`, filter: state.filter });
  },
  async fetchPackets() {
    if (!state.from) state.heldEnd = null;
    state.found = { isBusy: true };
    show();
    state.found = await ask(`/api/packets?${app.packetQuery()}`);
    show();
  },
};

async function ask(address) {
  try {
    const response = await fetch(address);
    const answer = await response.json();
    return response.ok ? { answer } : { error: answer.error, status: response.status };
  } catch {
    return { error: "the server does not answer" };
  }
}

/** Takes the state out of the address, and asks for what it shows. */
function arrive() {
  state.typed = null;
  const before = { ...state }, query = new URLSearchParams(location.search);
  for (const [name, usual] of Object.entries(PARTS)) {
    const value = query.get(name) ?? usual;
    state[name] = typeof usual === "number" ? Number(value) || usual : value;
  }
  if (!Object.hasOwn(SHOW, state.page)) state.page = "overview";
  if (!Object.hasOwn(UNITS, state.unit)) state.unit = "bits";
  const isOther = ["page", "filter", "window", "host"].some((name) => before[name] !== state[name]);
  if (isOther || !source) listen();
  if (state.page === "history") askHistory();
  if (state.page === "events") askWatched();
  if (state.page === "packets" && (before.page !== "packets" || ["from", "to", "filter"].some((name) => before[name] !== state[name]))) app.fetchPackets();
  if (before.page !== state.page) {
    release();
    scrollTo(0, 0);
  }
  if (state.page !== "overview") complete();
  show();
}

async function askHistory() {
  const now = Math.ceil(Date.now() / 1000), to = Number(state.to) || now, from = Number(state.from) || to - state.length;
  const window = { from: Math.max(0, from), to };
  const { dimension } = state;
  const ofRules = hasNoEvents() ? state.watched : ask(`/api/watched?${new URLSearchParams({ ...window, most: EVENTS })}`);
  const [past, watched] = await Promise.all([ask(`/api/history?${new URLSearchParams({ ...window, dimension })}`), ofRules]);
  state.past = { ...past, watched, from, to, dimension };
  show();
}

const EVENTS = 500;
/** No events of rules are read, as the last answer said. */
const hasNoEvents = () => state.watched?.status === 404;

/** The latest events of rules, every two seconds; each minute where none are read. */
async function askWatched() {
  const now = Date.now();
  if (!["overview", "events"].includes(state.page) || now - state.watchedAt < (hasNoEvents() ? 60000 : 1500)) return;
  state.watchedAt = now;
  const told = await ask(`/api/watched?${new URLSearchParams({ most: EVENTS, ...(state.page === "overview" && { tables: 0 }) })}`);
  // A server that does not answer for a while takes no event away.
  if (!told.error || told.status === 404 || !state.watched?.answer) state.watched = told;
  show();
}

let source = null;
/** One stream, for the page that is shown; none while nobody sees it. */
function listen() {
  source?.close();
  source = null;
  if (document.hidden) return;
  const { page, filter, window: seconds, host } = state;
  source = new EventSource(`/api/events?${new URLSearchParams({ page, filter, window: seconds, host })}`);
  source.onmessage = (event) => take(JSON.parse(event.data), page);
  source.onerror = async () => {
    const asked = await ask(`/api/page?${new URLSearchParams({ page, filter, window: seconds, host })}`);
    state.problem = asked.error ?? "";
    state.isOpen = !asked.error;
    show();
  };
}

function take(data, page) {
  const isFrozen = state.freeze === "yes" && state.data && state.shown === page;
  state.problem = "";
  state.isOpen = true;
  if (data.second && data.number !== state.series.number) add(data);
  if (isFrozen) return;
  state.data = data;
  state.shown = page;
  show();
  if (!state.isWhole) requestAnimationFrame(() => setTimeout(complete));
}

/** Numbers have a frame of their own, before tables and charts. */
function complete() {
  if (state.isWhole) return;
  state.isWhole = true;
  show();
  const add = (name, parts, next) => document.head.append(Object.assign(document.createElement(name), parts, {
    onload: next, onerror: () => { state.problem = "the charts could not be loaded: load the page again"; show(); },
  }));
  add("link", { rel: "stylesheet", href: "/vendor/uPlot.css" }, () => add("script", { src: "/vendor/uPlot.js" }, show));
  askWatched();
}

/** The totals of one more second; those that were missed are asked for. */
function add(data) {
  const { series } = state, second = data.second, seconds = Math.max(0.001, second.len_ns / 1e9);
  if (series.number === null || data.number !== series.number + 1) return void refill(data.number);
  const point = { t: second.end_ns / 1e9, bits: second.offered[1] * 8 / seconds, packets: second.offered[0] / seconds, lost: (second.lost_ring + second.lost_daemon) / seconds, active: second.active };
  const next = { number: data.number };
  for (const [name, value] of Object.entries(point)) next[name] = [...series[name], value].slice(-KEPT_POINTS);
  state.series = next;
}

async function refill(number) {
  state.series.number = number;
  const { answer } = await ask(`/api/seconds?last=${KEPT_POINTS}`);
  if (answer) state.series = answer;
  show();
}

function Status() {
  const { data, freeze } = state;
  const lost = data ? data.window.lost_ring + data.window.lost_daemon : 0;
  if (!state.isOpen) return html`<span class="mark ended" role="status">no answer</span>`;
  if (freeze === "yes") return html`<span class="mark frozen" role="status">frozen</span>`;
  if (data && !data.is_alive) {
    const beside = data.others?.length ? `, ${data.others.length} ${data.others.length > 1 ? "others run" : "other runs"}` : "";
    return html`<span class="mark ended" role="status" title=${(data.others ?? []).join("\n")}>${data.process ? `the meter has ended${beside}` : "no meter runs"}</span>`;
  }
  if (lost) return html`<a class="mark lost" href=${app.address({ page: "losses" })} onClick=${app.follow}>losing packets</a>`;
  return html`<span class="mark" role="status">${data?.process?.is_live === false ? "from a file" : "live"}</span>`;
}

function Waiting() {
  return html`<div class="card message"><strong>No meter runs that this page may read</strong>
    Start one: <code>tapline probe -i eth0 --view</code></div>`;
}

const KEYS = [["1 – 9, 0", "pages"], ["/", "filter"], ["Space", "freeze, go on"], ["b", "bits, bytes, packets"], ["[ ]", "shorter, longer window"], ["j k", "row below, above"], ["Enter", "open a row"], ["Esc", "back"], ["t", "light, dark"], ["?", "these keys"]];

function Page() {
  const { data, page, filter, unit } = state;
  const needsMeter = !["history", "packets", "events"].includes(page);
  const isOf = state.shown === page;
  return html`<a class="skip" href="#main">to the numbers</a>
    <header><div class="bar"><a class="brand" href="/" onClick=${app.follow}><img src="/favicon.svg" alt=""/>Tapline</a>
      <${Status}/><span class="meter" title=${data?.process?.title}>${data?.process?.title ?? ""}</span><span class="space"></span>
      <form class="filter" role="search" onSubmit=${(event) => { event.preventDefault(); app.go({ filter: document.getElementById("filter").value.trim() }); document.getElementById("filter").blur(); }}>
        <input id="filter" type="search" value=${state.typed ?? filter} onInput=${(event) => { state.typed = event.target.value; }} placeholder="filter: host:10.0.0.7 app:tls port 443   ( / )" aria-label="Filter: host:, app:, and pcap-filter text"
          aria-invalid=${state.problem && filter ? "true" : "false"} autocomplete="off" spellcheck="false"/></form>
      <button class="tool" type="button" id="unit" onClick=${nextUnit} title="b">${unit}</button>
      <label><span class="visually-hidden">Window</span><select id="window" value=${state.window} onChange=${(event) => app.go({ window: Number(event.target.value) })}>
        ${[1, 10, 30, 60].map((value) => html`<option value=${value} selected=${value === state.window}>${value} s</option>`)}</select></label>
      <button class="tool" type="button" id="freeze" aria-pressed=${state.freeze === "yes"} onClick=${freeze} title="Space">freeze</button></div>
      <nav aria-label="Pages">${PAGES.map(([name, label], at) => html`<a href=${app.address({ page: name, host: "", from: "", to: "" })} onClick=${app.follow}
        aria-current=${name === page ? "page" : undefined}>${label}<kbd aria-hidden="true">${(at + 1) % 10}</kbd></a>`)}</nav></header>
    <main id="main" tabindex="-1"><h1 class="visually-hidden">${PAGES.find(([name]) => name === page)[1]}</h1>
      ${state.problem && html`<div class="warning" role="alert">${state.problem}</div>`}
      ${needsMeter && !data ? html`<div class="card message">reading</div>`
        : needsMeter && !data.process ? html`<${Waiting}/>`
        : needsMeter && !isOf ? html`<div class="card message">reading</div>`
        : SHOW[page](app, data)}</main>
    ${state.help && html`<dialog open aria-label="Keys"><h2>Keys</h2><dl>${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
      <button class="tool" type="button" onClick=${() => { state.help = false; show(); }}>close</button></dialog>`}`;
}

const show = () => {
  document.title = `${PAGES.find(([name]) => name === state.page)[1]} – Tapline`;
  render(html`<${Page}/>`, document.getElementById("app"));
};
const nextUnit = () => { const names = Object.keys(UNITS); app.go({ unit: names[(names.indexOf(state.unit) + 1) % names.length] }); };
const freeze = () => app.go({ freeze: state.freeze === "yes" ? "" : "yes" });

function setTheme(theme) {
  state.theme = theme;
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  localStorage.setItem("theme", theme);
  show();
}

function step(by) {
  const rows = [...document.querySelectorAll("tr[data-row]")];
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

function otherWindow(by) {
  const all = [1, 10, 30, 60], at = all.indexOf(state.window);
  app.go({ window: all[Math.max(0, Math.min(all.length - 1, at + by))] });
}

addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (isTyping) return event.target.blur();
    if (state.help) { state.help = false; return show(); }
    return history.back();
  }
  if (isTyping) return;
  const isButton = /^(BUTTON|A)$/.test(event.target.tagName);
  const page = /^[0-9]$/.test(event.key) ? PAGES[(Number(event.key) + 9) % 10] : undefined;
  const act = page ? () => app.go({ page: page[0], host: "", from: "", to: "" }) : {
    "/": () => document.getElementById("filter").focus(), b: nextUnit, " ": isButton ? null : freeze, j: () => step(1), k: () => step(-1),
    "[": () => otherWindow(-1), "]": () => otherWindow(1), "?": () => { state.help = !state.help; show(); },
    t: () => setTheme((state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark" ? "light" : "dark"),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("popstate", arrive);
document.addEventListener("visibilitychange", () => { if (document.hidden) { source?.close(); source = null; } else listen(); });
setInterval(() => { if (state.page === "history" && !document.hidden && !state.from) askHistory(); }, 60000);
// Events come without a meter, too.
setInterval(() => { if (!document.hidden && state.freeze !== "yes" && state.isWhole) askWatched(); }, 2000);

async function begin() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  await session;
  arrive();
  const { page } = state, data = await first;
  if (data && !state.data && state.page === page) take(data, page);
}
begin();
