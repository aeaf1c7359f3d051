// The pages: each is a function of the state and what the server said.
import { html, Sums, Chart, amount, text, whole, short, clock, moment, UNITS } from "/show.mjs";

export const PAGES = [
  ["overview", "Overview"], ["hosts", "Hosts"], ["pairs", "Pairs"], ["flows", "Flows"], ["protocols", "Protocols"],
  ["losses", "Losses"], ["costs", "Costs"], ["history", "History"], ["packets", "Packets"], ["events", "Events"],
];

const service = (row) => (row.has_port ? `${row.protocol} ${row.port}` : row.protocol);
const end = (host, port, hasPort) => (hasPort ? (host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`) : host);
const named = (row) => (row.key === "" ? "no name" : row.key);
const hostLink = (app, host) => html`<a href=${app.address({ page: "hosts", host })} onClick=${app.follow}>${host}</a>`;
const filterLink = (app, word, label) => html`<a href=${app.address({ filter: join(app.state.filter, word) })} onClick=${app.follow} title=${`filter: ${word}`}>${label}</a>`;
// A filter line with one term more; pcap-filter text is joined with `and`.
const isText = (word) => !word.startsWith("host:") && !word.startsWith("app:");
const join = (filter, term) => {
  if (` ${filter} `.includes(` ${term} `)) return filter;
  const areText = isText(term) && filter.split(/\s+/).some((word) => word && isText(word));
  return `${filter}${areText ? " and " : " "}${term}`.trim();
};
const keys = {
  host: (row) => row.host, pair: (row) => `${row.a} ${row.b}`, service, name: named, key: (row) => row.key,
  flow: (row) => `${row.protocol} ${row.a} ${row.a_port} ${row.b} ${row.b_port}`,
};

function sides(app, data) {
  const { unit } = app.state, seconds = span(data);
  return [
    { name: "forth", n: true, less: true, cell: (row) => amount(row.first, unit, seconds), value: (row) => UNITS[unit].of(row.first, seconds) },
    { name: "back", n: true, less: true, cell: (row) => amount([row.amount[0] - row.first[0], row.amount[1] - row.first[1]], unit, seconds) },
  ];
}

export const span = (data) => Math.max(0.001, (data?.window?.len_ns ?? 1e9) / 1e9);

function Table(app, data, kind, id, title, columns, extra = {}) {
  return html`<${Sums} id=${id} title=${title} table=${data.page?.[id] ?? extra.table} columns=${columns} keyOf=${keys[kind]}
    unit=${app.state.unit} seconds=${span(data)} sort=${app.state.sort} onSort=${app.sortBy} ...${extra}/>`;
}

const flows = { name: "flows", n: true, less: true, cell: (row) => whole(row.flows), value: (row) => row.flows };
const packets = { name: "packets", n: true, less: true, cell: (row) => whole(row.amount[0]), value: (row) => row.amount[0] };

export function rates(app, title, height) {
  const { series, unit } = app.state, seconds = series.t;
  const isPackets = unit === "packets";
  const live = [{ name: isPackets ? "packets/s" : "bit/s", unit: isPackets ? "/s" : "bit/s", values: isPackets ? series.packets : series.bits, color: "--accent", fill: "--accent-soft" }];
  return html`<${Chart} title=${title} note="the last minutes; drag for the packets of a window" t=${seconds} series=${live} height=${height} marks=${marks(app.state.watched)}
    onWindow=${(from, to) => app.go({ page: "packets", from: Math.floor(from) - 1, to: Math.ceil(to) + 1 })}/>
    <${Chart} title="Lost before us" note="packets a second, in the kernel's ring or at the daemon" t=${seconds} height=${96}
      series=${[{ name: "lost", unit: "/s", values: series.lost, color: "--bad", bars: true }]}/>`;
}

function Numbers(app, data) {
  const second = data.second, seconds = second ? Math.max(0.001, second.len_ns / 1e9) : 1;
  const number = (name, value, unit, sub, bad) => {
    const [digits, step] = short(value);
    return html`<div class=${`number ${bad ? "bad" : ""}`}><dt>${name}</dt><dd>${digits}<small>${step}${unit}</small></dd><dd class="sub">${sub}</dd></div>`;
  };
  if (!second) return null;
  const lost = data.window.lost_ring + data.window.lost_daemon;
  return html`<dl class="numbers" id="numbers">
    ${number("traffic", second.offered[1] * 8 / seconds, "bit/s", `${text(second.offered[1] / seconds, "B/s")}`)}
    ${number("packets", second.offered[0] / seconds, "/s", second.offered[0] ? `${whole(second.offered[1] / Math.max(1, second.offered[0] - second.lost_ring - second.lost_daemon))} bytes each` : "none")}
    ${number("flows", second.active, "", `${whole(second.made)} began, ${whole(second.ended.reduce((a, b) => a + b, 0))} ended`)}
    ${number("not IP", second.not_ip[0] / seconds, "/s", text(second.not_ip[1] * 8 / seconds, "bit/s"))}
    ${number("lost before us", lost, "", lost ? `in ${data.seconds} s: see Losses` : `nothing in ${data.seconds} s`, lost > 0)}
  </dl>`;
}

export function overview(app, data) {
  if (!app.state.isWhole) return Numbers(app, data);
  const out = (direction) => [{ name: "host", cell: (row) => hostLink(app, row.host) }, flows];
  return html`${Numbers(app, data)}${rates(app, "Traffic", 200)}
    <div class="grid">
      ${Table(app, data, "host", "host_out", "Senders", out())}
      ${Table(app, data, "host", "host_in", "Receivers", out())}
      ${Table(app, data, "service", "service", "Services", [{ name: "service", cell: (row) => (row.has_port ? filterLink(app, `port ${row.port}`, service(row)) : service(row)) }, flows])}
      ${Table(app, data, "name", "name", "Names and applications", [{ name: "name", wide: true, cell: (row) => (row.key ? filterLink(app, `app:${row.key}`, row.key) : "no name") }, flows])}
    </div>
    ${app.state.watched?.answer?.events.length > 0 && Events(app, "latest", "Events of rules", "the latest five; key 0 for more", app.state.watched.answer.events.slice(0, 5))}
    ${Table(app, data, "pair", "pair", "Pairs", pairColumns(app, data))}`;
}

const pairColumns = (app, data) => [
  { name: "hosts", cell: (row) => html`${hostLink(app, row.a)} ⇄ ${hostLink(app, row.b)}` }, ...sides(app, data), packets, flows,
];

export function hosts(app, data) {
  if (app.state.host) return host(app, data);
  const columns = [{ name: "host", cell: (row) => hostLink(app, row.host) }, packets, flows];
  const open = (row) => app.go({ page: "hosts", host: row.host });
  return html`<div class="grid">${Table(app, data, "host", "host_out", "By what hosts send", columns, { open })}
    ${Table(app, data, "host", "host_in", "By what hosts receive", columns, { open })}</div>`;
}

function host(app, data) {
  const page = data.page, name = app.state.host, { unit } = app.state, seconds = span(data);
  if (!page?.in) return html`<div class="card message">reading</div>`;
  const side = (row) => (row.amount ? amount(row.amount, unit, seconds) : `at most ${amount(row.error, unit, seconds)}`);
  const part = (kind, id, title, columns) => html`<${Sums} id=${id} title=${title} note="of the flows that have a row" table=${{ ...page[id], unfitting: [0, 0], not_ip: [0, 0], unread: [0, 0], sum: [0, 0], lost: 0 }}
    columns=${columns} keyOf=${keys[kind]} unit=${unit} seconds=${seconds} rest=${false}/>`;
  const other = (row) => (row.a === name ? row.b : row.a);
  return html`<div class="controls"><a class="tool" href=${app.address({ page: "hosts", host: "" })} onClick=${app.follow}>← all hosts</a>
      <h1>${name}</h1><span class="space"></span>
      <a class="tool" href=${app.address({ filter: join(app.state.filter, `host:${name}`) })} onClick=${app.follow}>as filter</a>
      <a class="tool" id="host-packets" href=${app.address({ page: "packets", host: "", filter: `host:${name}`, from: "", to: "" })} onClick=${app.follow}>its packets</a></div>
    <dl class="numbers"><div class="number"><dt>sends</dt><dd>${side(page.out)}</dd><dd class="sub">${page.out.amount ? `${whole(page.out.amount[0])} packets` : "no row in this window"}</dd></div>
      <div class="number"><dt>receives</dt><dd>${side(page.in)}</dd><dd class="sub">${page.in.amount ? `${whole(page.in.amount[0])} packets` : "no row in this window"}</dd></div>
      <div class="number"><dt>flows without a row</dt><dd>${amount(page.unseen, unit, seconds)}</dd><dd class="sub">may be this host's too</dd></div></dl>
    <div class="grid">${part("pair", "pair", "Peers", [{ name: "peer", cell: (row) => hostLink(app, other(row)) }, flows])}
      ${part("service", "service", "Services", [{ name: "service", cell: service }, flows])}
      ${part("name", "name_", "Names and applications", [{ name: "name", wide: true, cell: named }, flows])}</div>
    ${part("flow", "flow", "Flows", flowColumns(app, data))}`;
}

/** Ribbons between the greatest pairs: hosts left and right, as wide as their part. */
function Ribbons(app, data) {
  const { unit } = app.state, seconds = span(data), rows = (data.page?.pair?.rows ?? []).slice(0, 20);
  if (!rows.length) return null;
  const value = (row) => Math.max(1e-9, UNITS[unit].of(row.amount, seconds));
  const all = rows.reduce((sum, row) => sum + value(row), 0), high = 24 + rows.length * 24, room = high - rows.length * 6;
  const place = (of) => {
    const sums = new Map();
    rows.forEach((row) => sums.set(of(row), (sums.get(of(row)) ?? 0) + value(row)));
    let at = 0;
    return new Map([...sums].map(([name, sum]) => {
      const node = { at, high: Math.max(2, sum / all * room), used: 0 };
      at += Math.max(node.high + 8, 15);
      return [name, node];
    }));
  };
  const left = place((row) => row.a), right = place((row) => row.b);
  const total = Math.max(...[left, right].map((side) => { const last = [...side.values()].at(-1); return last.at + last.high; })) + 10;
  const node = (side, x, anchor) => [...side].map(([name, { at, high }]) => html`<rect class="node" x=${x} y=${at} width="7" height=${high} rx="1.5"/>
    <a href=${app.address({ page: "hosts", host: name })} onClick=${app.follow}><text x=${anchor === "end" ? x - 7 : x + 14} y=${at + high / 2 + 4} text-anchor=${anchor}>${name}</text></a>`);
  const links = rows.map((row) => {
    const [a, b] = [left.get(row.a), right.get(row.b)], wide = Math.max(1.2, value(row) / all * room);
    const [y, z] = [a.at + a.used + wide / 2, b.at + b.used + wide / 2];
    a.used += wide; b.used += wide;
    return html`<path class="link" stroke-width=${wide} d=${`M277 ${y}C480 ${y} 520 ${z} 723 ${z}`}><title>${row.a} ⇄ ${row.b}: ${amount(row.amount, unit, seconds)}</title></path>`;
  });
  return html`<section class="card"><div class="head"><h2>The greatest pairs</h2><span class="note">a host's name opens it; the table below has the same</span></div>
    <div class="pairs"><svg viewBox=${`0 -4 1000 ${total}`} role="group" aria-label="pairs as ribbons">${links}${node(left, 270, "end")}${node(right, 723, "start")}</svg></div></section>`;
}

export const pairs = (app, data) => html`${Ribbons(app, data)}${Table(app, data, "pair", "pair", "Pairs", pairColumns(app, data))}`;

const flowColumns = (app, data) => [
  { name: "flow", cell: (row) => html`<span class="visually-hidden">${row.protocol}</span>${hostLink(app, row.a)}${row.has_port ? `:${row.a_port}` : ""} → ${hostLink(app, row.b)}${row.has_port ? `:${row.b_port}` : ""}` },
  { name: "protocol", cell: (row) => row.protocol, less: true, value: (row) => row.protocol },
  { name: "application, name", wide: true, cell: (row) => row.name || "–", value: (row) => row.name },
  ...sides(app, data), packets,
  { name: "state", less: true, cell: (row) => row.state, value: (row) => row.state },
  { name: "age", n: true, less: true, cell: (row) => `${Math.max(0, Math.round((data.second.end_ns - row.began_ns) / 1e9))} s`, value: (row) => -row.began_ns },
];

export const flowsPage = (app, data) => Table(app, data, "flow", "flow", "Flows", flowColumns(app, data), { open: (row) => app.go({ page: "packets", filter: flowFilter(row), from: "", to: "" }) });

const flowFilter = (row) => `host:${row.a} host:${row.b}` + (row.has_port ? ` port ${row.a_port} and port ${row.b_port}` : "");

export function protocols(app, data) {
  return html`<div class="grid">
    ${Table(app, data, "service", "service", "Services", [{ name: "service", cell: service }, packets, flows])}
    ${Table(app, data, "name", "name", "Names and applications", [{ name: "name", wide: true, cell: named }, packets, flows])}
    ${Table(app, data, "key", "segment", "VLANs and tunnels", [{ name: "segment", cell: (row) => row.key }, packets, flows])}
    ${Table(app, data, "key", "interface", "Interfaces", [{ name: "interface", cell: (row) => row.name || row.key }, packets, flows])}</div>`;
}

export function losses(app, data) {
  const window = data.window, seconds = span(data);
  if (!data.second) return html`<div class="card message">no second has been read yet</div>`;
  const term = (sign, name, value, why, kind = "") => html`<div class=${`term ${kind}`}><span class="sign">${sign}</span><span>${name}</span>
    <span class="value">${whole(value)}</span><span class="why">${why}</span></div>`;
  const parts = [
    ["metered", window.metered[0], "in flows, and in every table", ""],
    ["not IP", window.not_ip[0], "no flow has them: ARP, STP, LLDP and others", ""],
    ["headers cut short", window.cut[0], "a longer snap length captures them whole", window.cut[0] ? "bad" : ""],
    ["sampled out", window.sampled_out[0], data.process?.sampling > 1 ? `one packet in ${data.process.sampling} is metered` : "no sampling", ""],
    ["lost in the kernel's ring", window.lost_ring, window.lost_ring ? "the meter was too slow: a larger ring, or more --workers" : "the ring had room for every packet", window.lost_ring ? "bad" : ""],
    ["lost at the daemon", window.lost_daemon, window.lost_daemon ? "this reader was slower than its buffer is long" : "nothing", window.lost_daemon ? "bad" : ""],
  ];
  const sum = parts.reduce((all, part) => all + part[1], 0), balanced = sum === window.offered[0];
  return html`<section class="card"><div class="head"><h2>The account of ${data.seconds} seconds</h2><span class="note">packets; ${text(window.offered[0] / seconds, "/s")} offered</span>
      <span class="space"></span><span class=${`mark ${balanced ? "" : "lost"}`} id="balance">${balanced ? "balanced" : "DOES NOT BALANCE"}</span></div>
    <div class="equation">${parts.map(([name, value, why, kind], at) => term(at ? "+" : "", name, value, why, kind))}
      ${term("=", "offered by the interface", window.offered[0], "every packet is in exactly one row above", "total")}</div></section>
    <section class="card"><div class="head"><h2>Beside the sum</h2><span class="note">counted by others, or of something else</span></div>
    <div class="equation">${term("", "lost in card and driver", window.lost_before, "by their own counters; the kernel never showed these packets", window.lost_before ? "bad" : "")}
      ${term("", "lent by the sources", window.delivered, "before filters in front of the meter")}
      ${term("", "late", window.late, "older than a packet before them; counted all the same")}
      ${term("", "not ranked", window.unranked, window.unranked ? "metered, and among the others of each table: the view's thread was behind" : "each table has every metered packet", window.unranked ? "bad" : "")}
      ${term("", "flows ended for want of room", window.ended[4], `the table has room for ${whole(window.room)} flows, ${whole(window.active)} are there`, window.ended[4] ? "bad" : "")}
      ${term("", "workers in it", window.workers, "threads whose parts are added")}</div></section>
    <${Chart} title="Lost before us" note="packets a second" t=${app.state.series.t} height=${130} series=${[{ name: "lost", unit: "/s", values: app.state.series.lost, color: "--bad", bars: true }]}/>`;
}

export function costs(app, data) {
  const stages = data.page?.stages ?? [], hz = data.page?.frequency_hz || 1, seconds = data.page?.seconds || 1;
  const busy = stages.reduce((sum, stage) => sum + stage.cycles, 0);
  const each = (cycles, count) => (count ? text(cycles / count, "") : "–");
  return html`<section class="card"><div class="head"><h2>Cycles by stage</h2><span class="note">the last second: ${text(busy / hz / seconds * 100, "%")} of a processor in all stages</span></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Cycles by stage"><table id="stages"><thead><tr><th scope="col">stage</th><th scope="col" class="less">class</th><th scope="col" class="n">packets/s</th>
      <th scope="col" class="n">cycles a packet</th><th scope="col" class="n less">median</th><th scope="col" class="n less">99 %</th><th scope="col" class="n less">since the start</th><th scope="col" class="n">share</th></tr></thead>
    <tbody>${stages.map((stage) => html`<tr key=${stage.name}><td class="key">${stage.name}${stage.workers > 1 ? ` × ${stage.workers}` : ""}</td><td class="less">${stage.class}</td><td class="n">${text(stage.packets_in / seconds, "")}</td>
      <td class="n">${each(stage.cycles, stage.packets_in)}</td><td class="n less">${stage.median == null ? "–" : text(stage.median, "")}</td><td class="n less">${stage.p99 == null ? "–" : text(stage.p99, "")}</td>
      <td class="n less">${each(stage.cycles_total, stage.packets_total)}</td><td class="n">${stage.share == null ? "–" : `${(stage.share * 100).toFixed(1)} %`}</td></tr>`)}
    ${!stages.length && html`<tr><td colspan="8">no meters of this process can be read</td></tr>`}</tbody></table></div>
    <div class="controls"><span class="note">The view works once a second, so that its median is small and its mean is not. A stage's cycles are its own, without those of the stages that it called. Browsers cost the meter nothing: they read a file that it writes once a second.</span></div></section>`;
}

const WINDOWS = [["1 h", 3600], ["24 h", 86400], ["7 d", 604800], ["30 d", 2592000], ["1 y", 31536000]];
const DIMENSIONS = [["host_out", "senders", "host"], ["host_in", "receivers", "host"], ["pair", "pairs", "pair"], ["service", "services", "service"], ["name", "names", "name"], ["segment", "VLANs and tunnels", "key"], ["interface", "interfaces", "key"]];

/** Points with a gap wherever no bucket was kept. */
function gapped(answer) {
  const columns = { t: [], bits: [], packets: [], lost: [] };
  answer.t.forEach((at, index) => {
    const before = answer.t[index - 1];
    if (before !== undefined && at - before > answer.step_seconds * 1.5) {
      columns.t.push(before + answer.step_seconds);
      for (const name of ["bits", "packets", "lost"]) columns[name].push(null);
    }
    columns.t.push(at);
    for (const name of ["bits", "packets", "lost"]) columns[name].push(answer[name][index]);
  });
  return columns;
}

export function history(app) {
  const { past, dimension, unit, length } = app.state;
  const of = DIMENSIONS.find(([name]) => name === dimension) ?? DIMENSIONS[0];
  const cell = { host: (row) => hostLink(app, row.host), pair: (row) => html`${hostLink(app, row.a)} ⇄ ${hostLink(app, row.b)}`, service, name: named, key: (row) => row.name || row.key }[of[2]];
  const answer = past?.answer, isOf = past?.dimension === of[0];
  const seconds = Math.max(1, answer?.seconds ?? 1), points = answer && gapped(answer), asked = past && [past.from, past.to];
  return html`<section class="card"><div class="controls">${WINDOWS.map(([name, value]) => html`<button class="tool" type="button" aria-pressed=${length === value && !app.state.from}
      onClick=${() => app.go({ length: value, from: "", to: "" })}>${name}</button>`)}
      ${app.state.from && html`<button class="tool" type="button" aria-pressed="true" onClick=${() => app.go({ from: "", to: "" })}>${moment(app.state.from)} to ${moment(app.state.to)} ×</button>`}
      <label>by <select id="dimension" value=${of[0]} onChange=${(event) => app.go({ dimension: event.target.value })}>${DIMENSIONS.map(([name, label]) => html`<option value=${name} selected=${name === of[0]}>${label}</option>`)}</select></label>
      <span class="space"></span><span class="note">${answer?.span ? `kept since ${moment(answer.span[0])}, by the ${answer.tier}` : ""}</span></div></section>
    ${past?.error && html`<div class="warning" role="alert">${past.error}</div>`}
    ${answer && !answer.buckets && html`<div class="card message"><strong>Nothing is kept of this window yet</strong>A minute is written once it is over.</div>`}
    ${answer?.buckets > 0 && html`<${Chart} title="Traffic" note=${`by the ${answer.tier}; drag to look closer`} t=${points.t} span=${asked} height=${210} marks=${marks(past.watched)}
        series=${[unit === "packets" ? { name: "packets/s", unit: "/s", values: points.packets, color: "--accent", fill: "--accent-soft" } : { name: "bit/s", unit: "bit/s", values: points.bits, color: "--accent", fill: "--accent-soft" }]}
        onWindow=${(from, to) => app.go({ from: Math.floor(from), to: Math.ceil(to) })}/>
      <${Chart} title="Lost before us" note="packets, where they were lost" t=${points.t} span=${asked} height=${96} series=${[{ name: "lost", unit: "", values: points.lost, color: "--bad", bars: true }]}/>
      ${isOf && html`<${Sums} id="past" at=${past} title=${`The greatest ${of[1]}`} note=${`${answer.buckets} ${answer.tier}s`} table=${answer.table} keyOf=${keys[of[2]]} unit=${unit} seconds=${seconds}
        columns=${[{ name: of[2] === "key" ? of[1] : of[2], wide: of[2] === "name", cell }, packets, flows]}/>`}`}
    ${past?.watched?.answer?.events.length > 0 && Events(app, "past-events", "Events of rules", extent(past.watched.answer, ", of this window"), past.watched.answer.events)}
    ${past?.watched?.answer?.tables.length > 0 && html`<div class="grid">${past.watched.answer.tables.map(Recorded)}</div>`}`;
}

export function packetsPage(app, data) {
  const { found, filter } = app.state;
  if (data && data.rights !== "packets") return html`<div class="card message"><strong>This address is for counts, not for packets</strong>Ask who runs <code>tapline view</code> for one with the right.</div>`;
  const [from, to] = app.packetWindow(), answer = found?.answer;
  return html`<section class="card"><div class="head"><h2>Packets</h2><span class="note" id="packet-window">${clock(from)} to ${clock(to)}${filter ? `, ${filter}` : ""}</span><span class="space"></span>
      <button class="tool" type="button" onClick=${() => app.go({ from: "", to: "" })}>last 10 s</button>
      <button class="tool" type="button" onClick=${app.fetchPackets}>read again</button>
      <a class="tool primary" id="download" href=${`/api/packets.pcapng?${app.packetQuery()}`} download="packets.pcapng">pcapng</a></div>
    ${found?.error && html`<div class="controls"><div class="warning" role="alert">${found.error}</div></div>`}
    ${found?.isBusy && html`<div class="message">reading packets</div>`}
    ${answer && html`<div class="controls"><span class="note" id="found">${whole(answer.packets)} packets${answer.span_ns ? `, ${clock(answer.span_ns[0] / 1e9)} to ${clock(answer.span_ns[1] / 1e9)}` : ""}${answer.is_cut ? "; more are there: the file has them" : ""}</span>
        ${answer.notes.map((note) => html`<span class="error">${note}</span>`)}</div>
      <div class="scroll" tabindex="0" role="region" aria-label="Packets"><table class="packets" id="packets"><thead><tr><th scope="col">time</th><th scope="col" class="n">bytes</th><th scope="col">packet</th></tr></thead>
      <tbody>${answer.lines.map(([time, len, line]) => html`<tr><td>${clock(time / 1e9)}.${String(Math.floor(time / 1000 % 1e6)).padStart(6, "0")}</td><td class="n">${len}</td><td>${line}</td></tr>`)}</tbody></table></div>`}</section>`;
}

/** Which events a table has. */
const extent = ({ events, is_cut: isCut }, of) => (isCut ? `the latest ${events.length}${of}; there are more` : `the latest first${of}`);

/** Events as marks of a chart. */
const marks = (watched) => (watched?.answer?.events ?? []).map((event) => ({ t: event.time_ns / 1e9, isBad: event.kind === "raised" }));

/** Events of rules, the latest first; each leads to the packets around it. */
function Events(app, id, title, note, events) {
  const around = (event) => ({ page: "packets", host: "", from: Math.floor(event.time_ns / 1e9) - 5, to: Math.ceil(event.time_ns / 1e9) + 5 });
  return html`<section class="card"><div class="head"><h2 id=${`${id}-title`}>${title}</h2><span class="note">${note}</span></div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby=${`${id}-title`}><table id=${id}><thead><tr><th scope="col">time</th><th scope="col">rule</th><th scope="col">event</th>
      <th scope="col">what</th><th scope="col" class="n less">not told</th></tr></thead>
    <tbody>${events.map((event) => html`<tr key=${`${event.time_ns} ${event.rule} ${event.kind} ${event.text}`} data-row tabindex="-1" onKeyDown=${(key) => { if (key.key === "Enter") app.go(around(event)); }}>
      <td><a href=${app.address(around(event))} onClick=${app.follow} title="packets around it">${moment(event.time_ns / 1e9)}:${clock(event.time_ns / 1e9).slice(-2)}</a></td><td class="key">${event.rule}</td>
      <td><span class=${event.kind === "raised" ? "error" : ""}>${event.kind}</span></td>
      <td class="wide told">${event.text}${event.recording ? html` <span class="note">${event.recording}</span>` : ""}</td><td class="n less">${event.swallowed ? whole(event.swallowed) : ""}</td></tr>`)}
    ${!events.length && html`<tr><td colspan="5">no event</td></tr>`}</tbody></table></div></section>`;
}

/** What recorders of scripts held at the end of each period. */
const Recorded = (table, at) => html`<section class="card"><div class="head"><h2 id=${`recorded-${at}`}>${table.recorder}</h2>
    <span class="note">${table.kind}, ${moment(table.from_ns / 1e9)} to ${moment(table.to_ns / 1e9)}</span></div>
  <div class="scroll" tabindex="0" role="region" aria-labelledby=${`recorded-${at}`}><table class="recorded"><thead><tr>${table.columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
  <tbody>${table.rows.map((row) => html`<tr>${row.map((value) => html`<td>${value}</td>`)}</tr>`)}
  ${!table.rows.length && html`<tr><td colspan=${Math.max(1, table.columns.length)}>nothing in this period</td></tr>`}</tbody></table></div></section>`;

export function eventsPage(app) {
  const { watched } = app.state;
  if (watched?.error) return html`<div class="card message"><strong>${watched.error}</strong>Rules tell events: <code>tapline watch --rules FILE --events EVENTS --json</code>, then <code>tapline view --events EVENTS</code></div>`;
  if (!watched?.answer) return html`<div class="card message">reading</div>`;
  const { events, tables } = watched.answer;
  return html`${Events(app, "events", "Events of rules", extent(watched.answer, ""), events)}
    <div class="grid">${tables.map(Recorded)}</div>`;
}

export const SHOW = { overview, hosts, pairs, flows: flowsPage, protocols, losses, costs, history, packets: packetsPage, events: eventsPage };
