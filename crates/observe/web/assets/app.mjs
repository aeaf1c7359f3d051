// The state, the address that has all of it, the events of the server, and the keys.
import { render, Component } from "/vendor/preact.mjs";
import { PARTS, parts, question, first } from "/start.mjs";
import { html, amount, clock, UNITS } from "/show.mjs";
import { look } from "/table.mjs";
import { PAGES, SHOW, STACKS, span, windowOf } from "/pages.mjs";

const KEPT_POINTS = 300;
const EMPTY_SERIES = { t: [], bits: [], packets: [], lost: [], active: [], in_bits: [], out_bits: [], in_packets: [], out_packets: [] };

const state = {
  ...PARTS, data: null, problem: "", isOpen: true, theme: localStorage.getItem("theme") ?? "", sorting: null, help: false, typed: null,
  series: { ...EMPTY_SERIES, number: null, filter: null }, past: null, about: null, sources: null, opened: null, failed: "", applied: "", isRefused: false, found: null, watched: null, watchedAt: 0, isWhole: false,
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
  follow(event, link = event.currentTarget) {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    arrive();
  },
  /** The order of the tables: descending, then ascending, then that of the amount. It is in the address, so that it is there after a way back. */
  sortBy(name) {
    const { by, down } = state.sorting ?? { by: "amount", down: true };
    const sort = by !== name ? name : down ? `${name}.up` : "";
    history.replaceState(null, "", app.address({ sort: sort === "amount" ? "" : sort }));
    arrive();
  },
  /** Whether packets can be had: not known yet counts as no. */
  hasPackets: () => state.sources?.length > 0,
  packetWindow() {
    const end = state.to ? Number(state.to) : (state.heldEnd ??= Math.ceil((state.data?.second?.end_ns ?? Date.now() * 1e6) / 1e9));
    return [state.from ? Number(state.from) : end - 10, end];
  },
  packetQuery() {
    const [from, to] = app.packetWindow();
    return new URLSearchParams({ from: `${Math.floor(from)}000000000`, to: `${Math.ceil(to)}000000000`, filter: state.filter });
  },
  /** A download begins once there is something to download: a link that fails says nothing. */
  async download(event) {
    event.preventDefault();
    const address = event.currentTarget.href;
    const { answer, error } = await ask(address.replace("packets.pcapng", "packets") + "&most=1");
    state.failed = error ?? (answer.packets ? "" : "no packet of this window and filter is there");
    show();
    if (!state.failed) Object.assign(document.createElement("a"), { href: address, download: "packets.pcapng" }).click();
  },
  /** All lines of one packet, or of none. */
  async openPacket(packet) {
    state.opened = packet;
    show();
    if (!packet) return;
    // A number of the browser has a nanosecond of today in steps of 256; a list of details is short.
    const [from, to] = [-128n, 129n].map((by) => String(BigInt(packet.time) + by));
    const { answer, error } = await ask(`/api/packets?${new URLSearchParams({ from, to, filter: state.filter, details: "yes" })}`);
    if (state.opened !== packet) return;
    const lines = answer?.lines.filter(([time]) => time === packet.time).map(([, , line]) => line);
    state.opened = { ...packet, error, text: lines && (lines.join("\n\n") || "the packet is no longer kept") };
    show();
  },
  async fetchPackets() {
    if (!state.from) state.heldEnd = null;
    state.found = { isBusy: true };
    [state.opened, state.failed] = [null, ""];
    show();
    state.found = await ask(`/api/packets?${app.packetQuery()}${state.end ? "&end=yes" : ""}`);
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

/** There is a cookie, or no hope of one. */
let isReady = false;

/** Takes the state out of the address, and asks for what it shows. */
function arrive() {
  state.typed = null;
  const before = { ...state };
  Object.assign(state, parts());
  if (!Object.hasOwn(SHOW, state.page)) state.page = "overview";
  if (!Object.hasOwn(UNITS, state.unit)) state.unit = "bits";
  if (!Object.hasOwn(STACKS, state.by)) state.by = "";
  if (before.sort !== state.sort || !state.sorting) state.sorting = state.sort ? { by: state.sort.replace(/\.up$/, ""), down: !state.sort.endsWith(".up") } : null;
  if (before.filter !== state.filter) [state.isRefused, state.problem] = [false, ""];
  if (!isReady) return;
  const isOther = ["page", "filter", "window", "host", "by"].some((name) => before[name] !== state[name]);
  if (isOther || !source) listen();
  if (state.page === "history") askHistory();
  if (state.page === "events") askWatched();
  if (state.page === "packets" && (before.page !== "packets" || !state.found || ["from", "to", "filter", "end"].some((name) => before[name] !== state[name]))) app.fetchPackets();
  if (state.page === "packets") askSources();
  if (state.page === "hosts" && state.host) askAbout();
  if (before.page !== state.page) scrollTo(0, 0);
  if (state.page !== "overview") complete();
  show();
}

/** The past of a host, and what else is known of it. */
async function askAbout() {
  const { host } = state, to = Math.ceil(Date.now() / 1000), from = to - 86400;
  const about = await ask(`/api/host?${new URLSearchParams({ host, from, to })}`);
  state.about = { ...about, host, from };
  show();
}

/** Asks which captures and stores have packets, and asks again while none has. */
async function askSources() {
  const { answer } = await ask("/api/sources");
  state.sources = answer?.sources ?? state.sources;
  show();
}

async function askHistory() {
  const now = Math.ceil(Date.now() / 1000), to = Number(state.to) || now, from = Number(state.from) || to - state.length;
  const window = { from: Math.max(0, from), to };
  const { dimension, by } = state;
  const ofRules = hasNoEvents() ? state.watched : ask(`/api/watched?${new URLSearchParams({ ...window, most: EVENTS })}`);
  const own = state.data?.process?.own ?? [];
  const ofOwn = own.length ? ask(`/api/host?${new URLSearchParams({ ...window, host: own.slice(0, 32).join() })}`) : {};
  const [past, watched, host] = await Promise.all([ask(`/api/history?${new URLSearchParams({ ...window, dimension, stack: by })}`), ofRules, ofOwn]);
  state.past = { ...past, watched, from, to, dimension, hasOwn: own.length > 0, isCutOwn: own.length > 32 || state.data?.process?.own_count > own.length, directions: host.answer?.past };
  show();
}

const EVENTS = 500;
/** No events of rules are read, as the last answer said. */
const hasNoEvents = () => state.watched?.status === 404;

/** The latest events of rules, every two seconds where they are shown; for their count on the tab seldom. */
async function askWatched() {
  const now = Date.now(), isShown = ["overview", "events"].includes(state.page);
  if (now - state.watchedAt < (hasNoEvents() ? 60000 : isShown ? 1500 : 10000)) return;
  state.watchedAt = now;
  const told = await ask(`/api/watched?${new URLSearchParams({ most: EVENTS, ...(state.page !== "events" && { tables: 0 }) })}`);
  // A server that does not answer for a while takes no event away, and the same events are not drawn again.
  if (JSON.stringify(told) === JSON.stringify(state.watched) || told.error && told.status !== 404 && state.watched?.answer) return;
  state.watched = told;
  show();
}

let source = null;
/** One stream, for the page that is shown; none while nobody sees it. */
function listen() {
  source?.close();
  source = null;
  if (document.hidden) return;
  const { page } = state;
  // The page of packets accepts filters that flows reject, and its list shows the error itself.
  const query = question(state.isRefused ? { ...state, filter: state.applied } : state), filter = query.get("filter");
  const stream = new EventSource(`/api/events?${query}`);
  source = stream;
  stream.onmessage = (event) => {
    if (page !== "packets") state.applied = filter;
    take(JSON.parse(event.data), page, filter);
  };
  stream.onerror = async () => {
    const { error, status } = await ask(`/api/page?${query}`);
    if (source !== stream) return;
    // A mistake in the filter is not a server that is away: the page goes on with the filter before it.
    const isMistake = status === 400 && !state.isRefused && filter !== "";
    state.isOpen = !error || status === 400;
    state.problem = error ?? "";
    if (isMistake) {
      state.isRefused = true;
      if (state.applied === filter) state.applied = "";
      listen();
    }
    show();
  };
}

/** Pages that have nothing of this second but their head. */
const PAST = ["history", "packets", "events"];
const headOf = ({ is_alive: isAlive, process, others, rights, window }) => JSON.stringify([isAlive, process, others, rights, window.lost_ring + window.lost_daemon]);

function take(data, page, filter) {
  const isFrozen = state.freeze === "yes" && state.data && state.shown === page;
  const before = state.isOpen && !state.problem && state.shown === page && headOf(state.data);
  if (!state.isRefused) state.problem = "";
  state.isOpen = true;
  if (isReady && data.second && (data.number !== state.series.number || filter !== state.series.filter)) add(data, filter);
  if (isFrozen) return;
  state.data = data;
  // The addresses of this host come with the first numbers.
  if (state.page === "history" && data.process?.own?.length && state.past?.hasOwn === false) askHistory();
  if (PAST.includes(page) && before === headOf(data)) return;
  state.shown = page;
  show();
  if (isReady) complete();
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

/** Adds the totals of one second, and fetches the seconds that were missed. */
function add(data, filter) {
  const { series } = state, second = data.second, seconds = Math.max(0.001, second.len_ns / 1e9), part = data.fitting?.second;
  if (series.filter !== filter || data.number !== series.number + 1) return void refill(data.number, filter);
  const [all, into, out] = part ? [part.amount, part.received, part.sent] : [second.offered, second.received, second.sent];
  const point = {
    t: second.end_ns / 1e9, bits: all[1] * 8 / seconds, packets: all[0] / seconds, lost: (second.lost_ring + second.lost_daemon) / seconds, active: part ? part.flows : second.active,
    in_bits: into[1] * 8 / seconds, out_bits: out[1] * 8 / seconds, in_packets: into[0] / seconds, out_packets: out[0] / seconds,
  };
  const next = { number: data.number, filter };
  for (const [name, value] of Object.entries(point)) next[name] = series[name]?.length ? [...series[name], value].slice(-KEPT_POINTS) : [];
  state.series = next;
}

async function refill(number, filter) {
  state.series = { ...EMPTY_SERIES, number, filter };
  const { answer } = await ask(`/api/seconds?${new URLSearchParams({ last: KEPT_POINTS, filter })}`);
  if (answer && state.series.filter === filter) state.series = { ...answer, filter };
  show();
}

function Status() {
  const { data, freeze } = state;
  const lost = data ? data.window.lost_ring + data.window.lost_daemon : 0;
  if (!state.isOpen) return html`<span class="mark gone" role="status">the server does not answer</span>`;
  if (freeze === "yes") return html`<span class="mark frozen" role="status">frozen</span>`;
  if (data && !data.is_alive) {
    const beside = data.others?.length ? `, ${data.others.length} ${data.others.length > 1 ? "others run" : "other runs"}` : "";
    return html`<span class="mark ended" role="status" title=${(data.others ?? []).join("\n")}>${data.process ? `stopped${beside}` : "no meter runs"}</span>`;
  }
  if (lost) return html`<a class="mark lost" href=${app.address({ page: "losses" })} onClick=${app.follow}>losing packets</a>`;
  return html`<span class="mark" role="status">${data?.process?.is_live === false ? "from a file" : "live"}</span>`;
}

const Waiting = () => html`<div class="card message"><strong>No meter runs that this page may read</strong>
    Start one with its page: <code>sudo tapline view -i eth0</code>. If one runs as another user: <code>tapline view -Z USER</code></div>`;

/** The meter has ended: nothing on the page goes on. */
function Stopped({ data }) {
  if (!data?.process || data.is_alive || !data.second) return null;
  const live = data.process.is_live;
  return html`<div class="banner" role="status" id="stopped"><strong>${live ? "The meter has stopped" : "The file has been read"}</strong> at ${clock(data.second.end_ns / 1e9)}. The numbers are those of its last seconds${live ? ", and the page goes on when it runs again" : ""}: <code>${data.process.title}</code>
    ${data.others?.length > 0 && html` Others run: ${data.others.join(", ")}; <code>tapline view --meter NAME</code> follows one.`}</div>`;
}

/** The time of all numbers of the page, and what the filter leaves out. */
function Scope({ data }) {
  const [from, end] = windowOf(data), { fitting } = data, { unit } = state;
  return html`<p class="scope" id="scope"><span>All numbers: <strong>${clock(from)} to ${clock(end)}</strong> (${data.seconds} s)</span>
    ${fitting && html`<span>Filter <code>${fitting.read_as ?? state.applied}</code>: tiles, charts and tables have the flows that fit it, of the 256 largest of each second${fitting.window.unseen[0] ? `; smaller ones, up to ${amount(fitting.window.unseen, unit, span(data))}, may fit as well` : ""}. Losses are of the whole interface.</span>`}</p>`;
}

/** Drawn above everything, whatever the page. */
class Help extends Component {
  constructor() {
    super();
    this.attach = (element) => { this.element = element; };
  }
  componentDidMount() { this.element.showModal(); }
  render() {
    const close = () => { state.help = false; show(); };
    return html`<dialog ref=${this.attach} aria-label="Keys" onClose=${close}><h2>Keys</h2><dl>${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
      <h2>Filter</h2><dl>${FILTERS.map(([text, what]) => html`<dt><code>${text}</code></dt><dd>${what}</dd>`)}</dl>
      <button class="tool" type="button" onClick=${close}>close</button></dialog>`;
  }
}

const KEYS = [["1 – 9, 0", "pages"], ["/", "filter"], ["Space", "freeze, go on"], ["b", "bits, bytes, packets"], ["[ ]", "shorter, longer window"], ["j k", "row below, above"], ["Enter", "open a row"], ["Esc", "back"], ["t", "light, dark"], ["?", "this help"]];
const FILTERS = [["10.0.0.7", "a host, or a network: 10.0.0.0/8"], ["443", "a port; 10.0.0.7:443"], ["tls", "an application, or a part of a name: example.org"], ["tcp port 443 and not net 10.0.0.0/8", "the filter language of tcpdump"]];

/** The pages as links; drawn with a change of the address or of the count only. */
class Tabs extends Component {
  shouldComponentUpdate({ search, count, isBad }) { return search !== this.props.search || count !== this.props.count || isBad !== this.props.isBad; }
  render({ count, isBad }) {
    return html`<nav aria-label="Pages">${PAGES.map(([name, label], at) => html`<a href=${app.address({ page: name, host: "", from: "", to: "" })} onClick=${app.follow}
      aria-current=${name === state.page ? "page" : undefined}>${label}${name === "events" && count > 0 && html`<span class=${isBad ? "count bad" : "count"} title="events of the last hour">${count}</span>`}<kbd aria-hidden="true">${(at + 1) % 10}</kbd></a>`)}</nav>`;
  }
}

function Page() {
  const { data, page, filter, unit } = state;
  const needsMeter = !PAST.includes(page);
  const isOf = state.shown === page;
  return html`<a class="skip" href="#main">to the numbers</a>
    <header><div class="bar"><a class="brand" href="/" onClick=${app.follow}><img src="/favicon.svg" alt=""/>Tapline</a>
      <${Status}/><span class="meter" title=${data?.process?.title}>${data?.process?.title ?? ""}</span><span class="space"></span>
      <form class="filter" role="search" onSubmit=${(event) => { event.preventDefault(); app.go({ filter: document.getElementById("filter").value.trim() }); document.getElementById("filter").blur(); }}>
        <input id="filter" type="search" value=${state.typed ?? filter} onInput=${(event) => { state.typed = event.target.value; }} placeholder="filter: 10.0.0.7, 443, tls, example.org   ( / )" aria-label="Filter: an address, a port, an application, a name, or pcap-filter text"
          aria-invalid=${state.problem && filter ? "true" : "false"} autocomplete="off" spellcheck="false"/></form>
      <button class="tool" type="button" id="unit" onClick=${nextUnit} title="b">${unit}</button>
      <label><span class="visually-hidden">Window</span><select id="window" value=${state.window} onChange=${(event) => app.go({ window: Number(event.target.value) })}>
        ${[1, 10, 30, 60].map((value) => html`<option value=${value} selected=${value === state.window}>${value} s</option>`)}</select></label>
      <button class="tool" type="button" id="freeze" aria-pressed=${state.freeze === "yes"} onClick=${freeze} title="Space">freeze</button>
      <button class="tool" type="button" id="help" onClick=${() => { state.help = true; show(); }} title="?" aria-label="Help">?</button></div>
      <${Tabs} search=${location.search} count=${recent().length} isBad=${recent().some((event) => event.kind === "raised")}/></header>
    <main id="main" tabindex="-1"><h1 class="visually-hidden">${PAGES.find(([name]) => name === page)[1]}</h1>
      ${state.problem && html`<div class="warning" role="alert">${state.problem}${state.isRefused ? `\n\nThe page goes on ${state.applied ? `with the filter before: ${state.applied}` : "without a filter"}.` : ""}</div>`}
      ${needsMeter && html`<${Stopped} data=${data}/>`}
      ${needsMeter && !data ? html`<div class="card message">Loading …</div>`
        : needsMeter && !data.process ? html`<${Waiting}/>`
        : needsMeter && !isOf ? html`<div class="card message">Loading …</div>`
        : html`${needsMeter && data.second && page !== "costs" && html`<${Scope} data=${data}/>`}${SHOW[page](app, data)}`}</main>
    ${state.help && html`<${Help}/>`}`;
}

/** Events of the last hour. */
const recent = () => (state.watched?.answer?.events ?? []).filter((event) => event.time_ns / 1e6 > Date.now() - 3600000);

const show = () => {
  const count = recent().length, title = `${count ? `(${count}) ` : ""}${PAGES.find(([name]) => name === state.page)[1]} – Tapline`;
  if (document.title !== title) document.title = title;
  look();
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
    // The dialog closes itself.
    if (state.help) return;
    return history.back();
  }
  if (isTyping || state.help) return;
  const isButton = /^(BUTTON|A)$/.test(event.target.tagName);
  const page = /^[0-9]$/.test(event.key) ? PAGES[(Number(event.key) + 9) % 10] : undefined;
  const act = page ? () => app.go({ page: page[0], host: "", from: "", to: "" }) : {
    "/": () => document.getElementById("filter").focus(), b: nextUnit, " ": isButton ? null : freeze, j: () => step(1), k: () => step(-1),
    "[": () => otherWindow(-1), "]": () => otherWindow(1), "?": () => { state.help = true; show(); },
    t: () => setTheme((state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark" ? "light" : "dark"),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("popstate", arrive);
document.addEventListener("visibilitychange", () => { if (document.hidden) { source?.close(); source = null; } else listen(); });
setInterval(() => { if (state.page === "history" && !document.hidden && !state.from) askHistory(); }, 60000);
setInterval(() => { if (!document.hidden && state.sources?.length === 0) askSources(); }, 15000);
// Events come without a meter, too.
setInterval(() => { if (!document.hidden && state.freeze !== "yes" && state.isWhole) askWatched(); }, 2000);

/** Milliseconds after which the page is shown without its first numbers. */
const PATIENCE = 100;

/** The first numbers come before everything else that the page asks for, and with the page: a frame without them would only take their time. */
async function begin() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  arrive();
  const { page, filter } = state, waiting = setTimeout(show, PATIENCE), data = await first;
  clearTimeout(waiting);
  if (data && state.page === page) take(data, page, filter); else show();
  requestAnimationFrame(() => setTimeout(() => {
    isReady = true;
    arrive();
    askSources();
  }));
}
begin();
