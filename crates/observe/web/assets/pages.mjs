// The pages: each is a function of the state and what the server said.
import { Chart } from "/charts.mjs";
import { html, amount, text, whole, short, clock, moment, UNITS } from "/show.mjs";
import { Sums } from "/table.mjs";

export const PAGES = [
  ["overview", "Overview"], ["hosts", "Hosts"], ["pairs", "Pairs"], ["flows", "Flows"], ["protocols", "Protocols"],
  ["losses", "Losses"], ["costs", "Costs"], ["history", "History"], ["packets", "Packets"], ["events", "Events"],
];

/** Ports by the names under which people know them. */
const PORTS = { 20: "ftp-data", 21: "ftp", 22: "ssh", 23: "telnet", 25: "smtp", 53: "dns", 67: "dhcp", 68: "dhcp", 69: "tftp", 80: "http", 88: "kerberos", 110: "pop3", 111: "rpcbind", 123: "ntp", 137: "netbios", 138: "netbios", 139: "netbios", 143: "imap", 161: "snmp", 162: "snmp-trap", 179: "bgp", 389: "ldap", 443: "https", 445: "smb", 465: "smtps", 500: "ike", 502: "modbus", 514: "syslog", 515: "printer", 546: "dhcpv6", 547: "dhcpv6", 554: "rtsp", 587: "submission", 631: "ipp", 636: "ldaps", 853: "dns-tls", 873: "rsync", 993: "imaps", 995: "pop3s", 1194: "openvpn", 1433: "mssql", 1521: "oracle", 1883: "mqtt", 1900: "ssdp", 2049: "nfs", 2055: "netflow", 3128: "proxy", 3306: "mysql", 3389: "rdp", 3478: "stun", 4500: "ipsec-nat", 4739: "ipfix", 4789: "vxlan", 5060: "sip", 5061: "sips", 5201: "iperf3", 5353: "mdns", 5355: "llmnr", 5432: "postgresql", 5672: "amqp", 5900: "vnc", 6343: "sflow", 6379: "redis", 6443: "kubernetes", 8080: "http-alt", 8443: "https-alt", 8883: "mqtts", 9090: "prometheus", 9092: "kafka", 9100: "node-exporter", 9200: "elasticsearch", 11211: "memcached", 27017: "mongodb", 51820: "wireguard" };
const QUIC_PORT = 443;

const serviceKey = (row) => (row.has_port ? `${row.protocol} ${row.port}` : row.protocol);
const portName = (row) => (row.protocol === "udp" && row.port === QUIC_PORT ? "quic" : PORTS[row.port]);
/** A service as the pieces of a cell; `href`: where its name leads. A link next to other text is underlined. */
const service = (row, href, title) => (row.has_port && portName(row) ? [{ text: portName(row), href, title, kind: href && "named" }, " ", { kind: "note", text: serviceKey(row) }] : href ? { text: serviceKey(row), href, title } : serviceKey(row));
const named = (row) => (row.key === "" ? "no name" : row.key);
const ownOf = (data) => new Set(data?.process?.own ?? []);
/** The name under which clients asked for a host last. */
const nameOf = (app, host) => app.state.data?.names?.[host] ?? app.state.past?.answer?.names?.[host];
let hostsAddress = {};
/** The address of a host's page. A table has many: the parts that are alike are put together once. */
const hostAddress = (app, host) => {
  if (hostsAddress.search !== location.search) hostsAddress = { search: location.search, text: app.address({ page: "hosts", host: "", from: "", to: "" }) };
  return `${hostsAddress.text}&host=${encodeURIComponent(host)}`;
};
const hostLink = (app, host, kind) => ({ kind, href: hostAddress(app, host), title: nameOf(app, host), text: host });
/** A host with its name; a link next to other text is underlined. */
const hostCell = (app, host, kind) => {
  const name = nameOf(app, host);
  return name ? [hostLink(app, host, "named"), " ", { kind: "name", text: name }] : [hostLink(app, host, kind)];
};
const pairCell = (app, row) => [...hostCell(app, row.a, "named"), " ⇄ ", ...hostCell(app, row.b, "named")];
const filterAddress = (app, word) => app.address({ filter: join(app.state.filter, word) });
// A filter line with one term more; pcap-filter text is joined with `and`.
const isText = (word) => !word.startsWith("host:") && !word.startsWith("app:");
const join = (filter, term) => {
  if (` ${filter} `.includes(` ${term} `)) return filter;
  const areText = isText(term) && filter.split(/\s+/).some((word) => word && isText(word));
  return `${filter}${areText ? " and " : " "}${term}`.trim();
};
const keys = {
  host: (row) => row.host, pair: (row) => `${row.a} ${row.b}`, service: serviceKey, name: named, key: (row) => row.key,
  flow: (row) => `${row.protocol} ${row.a} ${row.a_port} ${row.b} ${row.b_port}`,
};

function sides(app, data) {
  const { unit } = app.state, seconds = span(data);
  const back = (row) => [row.amount[0] - row.first[0], row.amount[1] - row.first[1]];
  return [
    { name: "→", n: true, less: true, cell: (row) => amount(row.first, unit, seconds), value: (row) => UNITS[unit].of(row.first, seconds) },
    { name: "←", n: true, less: true, cell: (row) => amount(back(row), unit, seconds), value: (row) => UNITS[unit].of(back(row), seconds) },
  ];
}

export const span = (data) => Math.max(0.001, (data?.window?.len_ns ?? 1e9) / 1e9);
/** The time of the numbers, in seconds since 1970. */
export const windowOf = (data) => { const end = (data?.second?.end_ns ?? 0) / 1e9; return [end - span(data), end]; };

function Table(app, data, kind, id, title, columns, extra = {}) {
  const empty = data.fitting ? "No flow of this window fits the filter." : data.window.offered[0] ? "Nothing in this window." : "No packets in this window.";
  return html`<${Sums} key=${`${app.state.page} ${id}`} follow=${app.follow} id=${id} title=${title} table=${data.page?.[id] ?? extra.table} columns=${columns} keyOf=${keys[kind]} empty=${empty}
    unit=${app.state.unit} seconds=${span(data)} sort=${app.state.sorting} onSort=${app.sortBy} own=${kind === "host" ? ownOf(data) : undefined} ...${extra}/>`;
}

const flows = { name: "flows", n: true, less: true, cell: (row) => whole(row.flows), value: (row) => row.flows };
const packets = { name: "packets", n: true, less: true, cell: (row) => whole(row.amount[0]), value: (row) => row.amount[0] };

/** The columns of received, sent and all traffic, in the unit of the page; `own`: whether directions are known. */
function lines(columns, unit, name) {
  const isPackets = unit === "packets", of = isPackets ? "/s" : "bit/s", kind = isPackets ? "packets" : "bits";
  const [into, out] = [columns[`in_${kind}`], columns[`out_${kind}`]];
  const all = { name, unit: of, values: columns[kind] };
  if (!into?.length || ![...into, ...out].some((value) => value > 0)) return [{ ...all, color: "--accent", fill: "--accent-soft" }];
  const both = [{ name: "received", unit: of, values: into, color: "--in", fill: "--in-soft" }, { name: "sent", unit: of, values: out, color: "--out", fill: "--out-soft" }];
  return columns[kind] ? [...both, { ...all, color: "--soft", thin: true }] : both;
}

/** Where the packets of a window can be had, dragging leads to them. */
const toPackets = (app, change = {}) => (app.hasPackets() ? (from, to) => app.go({ page: "packets", host: "", from: Math.floor(from) - 1, to: Math.ceil(to) + 1, ...change }) : undefined);

/** The keys by which traffic is stacked over time; by default received and sent traffic are lines. */
export const STACKS = { "": "direction, lines", direction: "direction", service: "service", host_out: "sender", host_in: "receiver" };
const LAYERS = ["--l1", "--l2", "--l3", "--l4", "--l5", "--l6"];

/** The order of layers stays while their keys do: a chart with another order is another chart. */
let kept = { by: "", keys: [] };
function inOrder({ by, rows }) {
  const key = (row) => row.name ?? row.host ?? serviceKey(row), keys = rows.map(key);
  if (kept.by !== by || kept.keys.length !== keys.length || !keys.every((one) => kept.keys.includes(one))) kept = { by, keys };
  return [...rows].sort((one, other) => kept.keys.indexOf(key(one)) - kept.keys.indexOf(key(other)));
}

/** Layers as lines on top of each other: each is drawn up to its sum with those below it, the highest first. */
export function layers(stack, kind, name) {
  const all = [...inOrder(stack).map((row, at) => ({ name: name(row), own: row[kind], color: row.color ?? LAYERS[at] })), { name: "all others", own: stack.others[kind], color: "--soft" }];
  const sums = stack.t.map(() => 0);
  return all.map((one) => ({ ...one, unit: kind === "packets" ? "/s" : "bit/s", values: one.own.map((value, at) => (value == null ? null : sums[at] += value)), fill: one.color })).reverse();
}

/** What this host received and sent as layers; the rest has other hosts, and what is not of flows. */
function directionStack(columns) {
  if (!columns.in_bits?.some((value, at) => value > 0 || columns.out_bits[at] > 0)) return null;
  const rest = (kind) => columns[kind].map((all, at) => {
    const [into, out] = [columns[`in_${kind}`][at], columns[`out_${kind}`][at]];
    return all == null || into == null || out == null ? null : Math.max(0, all - into - out);
  });
  const rows = [["received", "in"], ["sent", "out"]].map(([name, of]) => ({ name, color: `--${of}`, bits: columns[`${of}_bits`], packets: columns[`${of}_packets`] }));
  return { by: "direction", t: columns.t, rows, others: { bits: rest("bits"), packets: rest("packets") } };
}

const layerName = (app, row) => row.name ?? (row.host ? nameOf(app, row.host) ?? row.host : row.has_port && portName(row) ? `${portName(row)} (${serviceKey(row)})` : serviceKey(row));

const stacked = (app, stack) => layers(stack, app.state.unit === "packets" ? "packets" : "bits", (row) => layerName(app, row));

const layerChoice = (app) => html`<label class="note">by <select id="by" value=${app.state.by} onChange=${(event) => app.go({ by: event.target.value })}>${Object.entries(STACKS).map(([name, label]) => html`<option value=${name} selected=${name === app.state.by}>${label}</option>`)}</select></label>`;

export function rates(app, data, title, height) {
  const { series, unit } = app.state, has = app.hasPackets(), minutes = series.t.length > 1 ? Math.max(1, Math.round((series.t.at(-1) - series.t[0]) / 60)) : 1;
  const note = `last ${minutes} min; shaded: the window of the numbers${has ? "; drag for its packets" : ""}`;
  const lost = series.lost?.some((count) => count > 0), { by } = app.state, ofKeys = data.stack?.by === by;
  const stack = ofKeys ? data.stack : by === "direction" ? directionStack(series) : null;
  return html`<${Chart} title=${title} note=${ofKeys ? "last minute, IP packets as flows count them" : note} t=${stack ? stack.t : series.t} series=${stack ? stacked(app, stack) : lines(series, unit, series.filter ? "all that fits" : "interface")} height=${height} band=${windowOf(data)}
    marks=${marks(app, app.state.watched)} follow=${app.follow} onWindow=${toPackets(app)}>${layerChoice(app)}</>
    ${lost && html`<${Chart} title="Dropped before capture" note="packets a second, in the kernel's ring or at the daemon" t=${series.t} height=${96} onWindow=${toPackets(app)}
      series=${[{ name: "dropped", unit: "/s", values: series.lost, color: "--bad", bars: true }]}/>`}`;
}

/** The greatest value of a column within the window. */
function peak(app, data, column) {
  const { series } = app.state, [from, end] = windowOf(data);
  const inside = (series[column] ?? []).filter((_, at) => series.t[at] > from + 0.01 && series.t[at] <= end + 0.01);
  return inside.length ? Math.max(...inside) : undefined;
}

/** The numbers of the window: average as the unit has it, peak and total under it. */
function Numbers(app, data) {
  if (!data.second) return html`<div class="card message">No second has been read yet.</div>`;
  const { unit } = app.state, { window, fitting } = data, seconds = span(data), isPackets = unit === "packets";
  const number = (name, shown, sub, kind = "") => html`<div class=${`number ${kind}`}><dt>${name}</dt><dd>${shown}</dd><dd class="sub">${sub}</dd></div>`;
  const big = (value, of) => { const [digits, step] = short(value); return html`${digits}<small>${step}${of}</small>`; };
  const rate = (name, pair, column, kind, more = "") => {
    const most = peak(app, data, `${column}${isPackets ? "packets" : "bits"}`), of = isPackets ? "/s" : "bit/s";
    const average = isPackets ? pair[0] / seconds : pair[1] * 8 / seconds, total = isPackets ? whole(pair[0]) : text(pair[1], "B");
    const shown = unit === "bytes" ? big(pair[1], "B") : big(average, of);
    return number(name, shown, `${unit === "bytes" ? `average ${text(average, of)}` : "average"}${most === undefined ? "" : `, peak ${text(most, of)}`}${unit === "bytes" ? "" : `, total ${total}`}${more}`, kind);
  };
  const lost = window.lost_ring + window.lost_daemon, all = fitting?.window.amount ?? window.offered;
  const known = data.process?.own?.length > 0;
  const least = window.unranked || data.process?.own_count > data.process?.own.length ? "; at least" : "";
  return html`<dl class="numbers" id="numbers">
    ${known && rate("received", fitting?.window.received ?? window.received, "in_", "in", least)}
    ${known && rate("sent", fitting?.window.sent ?? window.sent, "out_", "out", least)}
    ${rate(fitting ? "all that fits" : "interface", all, "", "")}
    ${number("packets", big(all[0] / seconds, "/s"), all[0] ? `${whole(all[1] / Math.max(1, all[0] - (fitting ? 0 : lost)))} bytes each${window.not_ip[0] && !fitting ? `, ${whole(window.not_ip[0])} not IP` : ""}` : "none")}
    ${fitting ? number("flows", big(fitting.window.flows, ""), "that fit, in the window") : number("flows", big(data.second.active, ""), `now; ${whole(window.made)} began, ${whole(window.ended.reduce((a, b) => a + b, 0))} ended`)}
    ${number("dropped before capture", big(lost, ""), lost ? html`<a href=${app.address({ page: "losses" })} onClick=${app.follow}>where, and what helps</a>` : "none in the window", lost > 0 ? "bad" : "")}
  </dl>`;
}

export function overview(app, data) {
  if (!app.state.isWhole) return Numbers(app, data);
  const out = () => [{ name: "host", wide: true, cell: (row) => hostCell(app, row.host) }, flows];
  const events = app.state.watched?.answer?.events ?? [];
  return html`${Numbers(app, data)}${rates(app, data, "Traffic", 200)}
    <div class="grid">
      ${Table(app, data, "host", "host_out", "Top senders", out())}
      ${Table(app, data, "host", "host_in", "Top receivers", out())}
      ${Table(app, data, "service", "service", "Services", [{ name: "service", cell: (row) => (row.has_port ? service(row, filterAddress(app, `port ${row.port}`), `filter: port ${row.port}`) : service(row)) }, flows])}
      ${Table(app, data, "name", "name", "Names and applications", [{ name: "name", wide: true, cell: (row) => (row.key ? { href: filterAddress(app, `app:${row.key}`), title: `filter: app:${row.key}`, text: row.key } : "no name") }, flows])}
    </div>
    ${events.length > 0 && Events(app, "latest", "Events", "the latest five; key 0 for all", events.slice(0, 5))}
    ${Table(app, data, "pair", "pair", "Pairs of hosts", pairColumns(app, data))}`;
}

const pairColumns = (app, data) => [
  { name: "hosts", cell: (row) => pairCell(app, row) }, ...sides(app, data), packets, flows,
];

export function hosts(app, data) {
  if (app.state.host) return host(app, data);
  const columns = [{ name: "host", wide: true, cell: (row) => hostCell(app, row.host) }, packets, flows];
  const open = (row) => app.go({ page: "hosts", host: row.host });
  return html`<div class="grid">${Table(app, data, "host", "host_out", "Top senders", columns, { open })}
    ${Table(app, data, "host", "host_in", "Top receivers", columns, { open })}</div>`;
}

/** Names, times, country and MAC address of a host. */
function About({ app, page, about }) {
  const past = about?.answer?.past, station = about?.answer?.station, day = about?.from ? `since ${moment(about.from)}` : "";
  const facts = [
    ["names", page.names.length ? page.names.join(", ") : app.state.data.rights === "look" ? "this address has no right to names" : "none seen: no client asked for it by name in TLS, QUIC or HTTP, and no DNS answer named it, since this page's server started"],
    past && ["seen", past.seen ? `${moment(past.seen[0])} to ${moment(past.seen[1])}, in the history ${day}` : `not among the top hosts of the history ${day}`],
    about?.answer?.place && ["place", about.answer.place],
    station && ["MAC address", `${station[0]}${about.answer.vendor ? `, ${about.answer.vendor}` : ""}, a neighbour at ${station[1]}`],
  ].filter(Boolean);
  return html`<section class="card"><dl class="facts" id="about">${facts.map(([name, value]) => html`<dt>${name}</dt><dd class="name">${value}</dd>`)}</dl></section>`;
}

function host(app, data) {
  const page = data.page, name = app.state.host, { unit } = app.state, seconds = span(data), about = app.state.about?.host === name ? app.state.about : null;
  if (!page?.in) return html`<div class="card message">Loading …</div>`;
  const side = (row) => (row.amount ? amount(row.amount, unit, seconds) : `at most ${amount(row.error, unit, seconds)}`);
  const part = (kind, id, title, columns) => html`<${Sums} key=${`host ${id}`} follow=${app.follow} id=${id} title=${title} note="of the flows that have a row" table=${{ ...page[id], unfitting: [0, 0], not_ip: [0, 0], unread: [0, 0], sum: [0, 0], lost: 0 }}
    columns=${columns} keyOf=${keys[kind]} unit=${unit} seconds=${seconds} sort=${app.state.sorting} onSort=${app.sortBy} rest=${false}/>`;
  const other = (row) => (row.a === name ? row.b : row.a);
  const past = about?.answer?.past, toItsPackets = toPackets(app, { filter: `host:${name}` });
  return html`<div class="controls"><a class="tool" href=${app.address({ page: "hosts", host: "" })} onClick=${app.follow}>← all hosts</a>
      <h1>${name}</h1>${page.is_own && html`<span class="chip">this host</span>`}${page.names[0] && html`<span class="name">${page.names[0]}</span>`}<span class="space"></span>
      <a class="tool" href=${app.address({ filter: join(app.state.filter, `host:${name}`) })} onClick=${app.follow}>filter by it</a>
      ${app.hasPackets() && html`<a class="tool" id="host-packets" href=${app.address({ page: "packets", host: "", filter: `host:${name}`, from: "", to: "" })} onClick=${app.follow}>its packets</a>`}</div>
    <dl class="numbers"><div class="number in"><dt>it receives</dt><dd>${side(page.in)}</dd><dd class="sub">${page.in.amount ? `${whole(page.in.amount[0])} packets` : "no row in this window"}</dd></div>
      <div class="number out"><dt>it sends</dt><dd>${side(page.out)}</dd><dd class="sub">${page.out.amount ? `${whole(page.out.amount[0])} packets` : "no row in this window"}</dd></div>
      ${page.unseen[0] > 0 && html`<div class="number"><dt>flows without a row</dt><dd>${amount(page.unseen, unit, seconds)}</dd><dd class="sub">may belong to this host, too</dd></div>`}</dl>
    <${Chart} title="The last minute" note="of this host; all of its flows, whatever the filter" t=${page.chart.t} series=${lines(page.chart, unit, "")} height=${150} band=${windowOf(data)} onWindow=${toItsPackets}/>
    ${past?.t.length > 1 && html`<${Chart} title="The last day" note=${`by the ${past.tier}, from the history`} t=${past.t} series=${lines(past, unit, "")} height=${150} onWindow=${toItsPackets}/>`}
    <${About} app=${app} page=${page} about=${about}/>
    <div class="grid">${part("pair", "pair", "Peers", [{ name: "peer", wide: true, cell: (row) => hostCell(app, other(row)) }, flows])}
      ${part("service", "service", "Services", [{ name: "service", cell: (row) => service(row) }, flows])}
      ${part("name", "name_", "Names and applications", [{ name: "name", wide: true, cell: named }, flows])}</div>
    ${part("flow", "flow", "Flows", flowColumns(app, data))}`;
}

/** Hosts of our own are at the left of their ribbons. */
const ownFirst = (own, row) => (own.has(row.b) && !own.has(row.a) ? { ...row, a: row.b, b: row.a } : row);

/** Ribbons between the top pairs, as wide as their part. */
function Ribbons(app, data) {
  const { unit } = app.state, seconds = span(data), own = ownOf(data), rows = (data.page?.pair?.rows ?? []).slice(0, 20).map((row) => ownFirst(own, row));
  if (!rows.length) return null;
  // A small screen has a narrow picture, so that its letters stay readable.
  const isNarrow = innerWidth < 740, wide = isNarrow ? 400 : 1000, edge = isNarrow ? 118 : 277, most = isNarrow ? 16 : 40;
  const cut = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  const label = (host) => (isNarrow || !data.names?.[host] ? host : `${host} ${data.names[host]}`);
  const value = (row) => Math.max(1e-9, UNITS[unit].of(row.amount, seconds));
  const all = rows.reduce((sum, row) => sum + value(row), 0), room = 24 + rows.length * 18;
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
    <a href=${app.address({ page: "hosts", host: name })} onClick=${app.follow}><text x=${anchor === "end" ? x - 7 : x + 14} y=${at + high / 2 + 4} text-anchor=${anchor}>${cut(label(name))}<title>${label(name)}</title></text></a>`);
  const links = rows.map((row) => {
    const [a, b] = [left.get(row.a), right.get(row.b)], high = Math.max(1.2, value(row) / all * room);
    const [y, z] = [a.at + a.used + high / 2, b.at + b.used + high / 2];
    a.used += high; b.used += high;
    return html`<path class="link" stroke-width=${high} d=${`M${edge} ${y}C${wide * 0.48} ${y} ${wide * 0.52} ${z} ${wide - edge} ${z}`}><title>${row.a} ⇄ ${row.b}: ${amount(row.amount, unit, seconds)}</title></path>`;
  });
  return html`<section class="card"><div class="head"><h2>Top pairs</h2><span class="note">as wide as both directions together; a host opens its page${own.size ? "; this host is at the left" : ""}</span></div>
    <div class="pairs"><svg viewBox=${`0 -4 ${wide} ${total}`} role="group" aria-label="pairs as ribbons">${links}${node(left, edge - 7, "end")}${node(right, wide - edge, "start")}</svg></div></section>`;
}

export const pairs = (app, data) => html`${Ribbons(app, data)}${Table(app, data, "pair", "pair", "Pairs of hosts", pairColumns(app, data))}`;

const flowColumns = (app, data) => [
  { name: "flow", cell: (row) => [hostLink(app, row.a), `${row.has_port ? `:${row.a_port}` : ""} → `, hostLink(app, row.b), row.has_port && `:${row.b_port}`, { kind: "under name", text: `${row.protocol} ${row.name ?? ""}` }] },
  { name: "protocol", cell: (row) => { const name = row.has_port && portName({ ...row, port: row.b_port }); return [row.protocol, name && " ", name && { kind: "note", text: name }]; }, less: true, value: (row) => row.protocol },
  { name: "application, name", wide: true, less: true, cell: (row) => row.name || "–", value: (row) => row.name },
  ...sides(app, data), packets,
  { name: "state", less: true, cell: (row) => row.state, value: (row) => row.state },
  { name: "age", n: true, less: true, cell: (row) => `${Math.max(0, Math.round((data.second.end_ns - row.began_ns) / 1e9))} s`, value: (row) => -row.began_ns },
];

export const flowsPage = (app, data) => Table(app, data, "flow", "flow", "Flows", flowColumns(app, data), app.hasPackets() ? { open: (row) => app.go({ page: "packets", filter: flowFilter(row), from: "", to: "" }) } : {});

const flowFilter = (row) => `host:${row.a} host:${row.b}` + (row.has_port ? ` port ${row.a_port} and port ${row.b_port}` : "");

export function protocols(app, data) {
  return html`<div class="grid">
    ${Table(app, data, "service", "service", "Services", [{ name: "service", cell: (row) => service(row) }, packets, flows])}
    ${Table(app, data, "name", "name", "Names and applications", [{ name: "name", wide: true, cell: named }, packets, flows])}
    ${Table(app, data, "key", "segment", "VLANs and tunnels", [{ name: "segment", cell: (row) => row.key }, packets, flows])}
    ${Table(app, data, "key", "interface", "Interfaces", [{ name: "interface", cell: (row) => row.name || row.key }, packets, flows])}</div>`;
}

export function losses(app, data) {
  const window = data.window, seconds = span(data);
  if (!data.second) return html`<div class="card message">No second has been read yet.</div>`;
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
  return html`<section class="card"><div class="head"><h2>Where the packets of ${data.seconds} seconds are</h2><span class="note">packets; ${text(window.offered[0] / seconds, "/s")} offered</span>
      <span class="space"></span><span class=${`mark ${balanced ? "" : "lost"}`} id="balance">${balanced ? "balanced" : "DOES NOT BALANCE"}</span></div>
    <div class="equation">${parts.map(([name, value, why, kind], at) => term(at ? "+" : "", name, value, why, kind))}
      ${term("=", "offered by the interface", window.offered[0], "every packet is in exactly one row above", "total")}</div></section>
    <section class="card"><div class="head"><h2>Other counters</h2><span class="note">not part of the sum</span></div>
    <div class="equation">${term("", "lost in card and driver", window.lost_before, "by their own counters; the kernel never showed these packets", window.lost_before ? "bad" : "")}
      ${term("", "received from the sources", window.delivered, "before filters in front of the meter")}
      ${term("", "late", window.late, "older than a packet before them; counted all the same")}
      ${term("", "not ranked", window.unranked, window.unranked ? "metered, and among the others of each table: the view's thread was behind" : "each table has every metered packet", window.unranked ? "bad" : "")}
      ${term("", "flows ended because the table was full", window.ended[4], `it has room for ${whole(window.room)} flows, ${whole(window.active)} are in it`, window.ended[4] ? "bad" : "")}
      ${term("", "workers", window.workers, "threads whose parts are added")}</div></section>
    ${app.state.series.lost?.some((count) => count > 0) && html`<${Chart} title="Dropped before capture" note="packets a second" t=${app.state.series.t} height=${130} onWindow=${toPackets(app)} series=${[{ name: "dropped", unit: "/s", values: app.state.series.lost, color: "--bad", bars: true }]}/>`}`;
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
    ${!stages.length && html`<tr><td colspan="8">The costs of this process cannot be read.</td></tr>`}</tbody></table></div>
    <div class="controls"><span class="note">The view works once a second, so that its median is small and its mean is not. A stage's cycles are its own, without those of the stages that it called. Browsers cost the meter nothing: they read a file that it writes once a second.</span></div></section>`;
}

const WINDOWS = [["1 h", 3600], ["24 h", 86400], ["7 d", 604800], ["30 d", 2592000], ["1 y", 31536000]];
const DIMENSIONS = [["host_out", "senders", "host"], ["host_in", "receivers", "host"], ["pair", "pairs", "pair"], ["service", "services", "service"], ["name", "names", "name"], ["segment", "VLANs and tunnels", "key"], ["interface", "interfaces", "key"]];

/** Times of points, and their numbers; null in a gap, wherever no bucket was kept. */
const withGaps = (t, step) => t.flatMap((at, index) => (index && at - t[index - 1] > step * 1.5 ? [[t[index - 1] + step, null], [at, index]] : [[at, index]]));
/** Columns with these gaps. */
const gapped = (t, step, columns) => {
  const places = withGaps(t, step), values = Object.entries(columns).map(([name, column]) => [name, places.map(([, index]) => (index === null ? null : column[index]))]);
  return { t: places.map(([at]) => at), ...Object.fromEntries(values) };
};
const gappedStack = ({ by, t, step_seconds: step, rows, others }) => {
  const layer = (one) => ({ ...one, ...gapped(t, step, { bits: one.bits, packets: one.packets }) });
  return { by, t: withGaps(t, step).map(([at]) => at), rows: rows.map(layer), others: layer(others) };
};

/** Points with what this host received and sent, as far as the answer for it has the same points. */
function directed(points, directions) {
  const at = new Map((directions?.t ?? []).map((time, index) => [time, index]));
  const column = (name) => points.t.map((time) => (at.has(time) ? directions[name]?.[at.get(time)] ?? null : null));
  const names = ["in_bits", "out_bits", "in_packets", "out_packets"];
  return { ...points, ...(at.size && Object.fromEntries(names.map((name) => [name, column(name)]))) };
}

/** The chart of a window of the past, as lines or as layers. */
function pastTraffic(app, { answer, directions, isCutOwn }, points) {
  const { by, unit } = app.state, drag = "drag to look closer";
  if (answer.stack?.by === by) {
    const stack = gappedStack(answer.stack), step = answer.stack.step_seconds;
    return { t: stack.t, series: stacked(app, stack), note: `by the ${step < 3600 ? "minute" : step < 86400 ? "hour" : "day"}, IP packets as flows count them; ${drag}` };
  }
  const ofHost = directions?.t.length ? `; received and sent are ${directions.is_least || isCutOwn ? "at least " : ""}those of this host's addresses, with traffic among them` : "";
  const stack = by === "direction" && directionStack(points);
  return { t: points.t, series: stack ? stacked(app, stack) : lines(points, unit, "interface"), note: `by the ${answer.tier}; ${drag}${ofHost}` };
}

export function history(app) {
  const { past, dimension, unit, length } = app.state;
  const of = DIMENSIONS.find(([name]) => name === dimension) ?? DIMENSIONS[0];
  const cell = { host: (row) => hostCell(app, row.host), pair: (row) => pairCell(app, row), service, name: named, key: (row) => row.name || row.key }[of[2]];
  const answer = past?.answer, isOf = past?.dimension === of[0];
  const seconds = Math.max(1, answer?.seconds ?? 1), asked = past && [past.from, past.to];
  const points = answer && directed(gapped(answer.t, answer.step_seconds, { bits: answer.bits, packets: answer.packets, lost: answer.lost }), past.directions);
  const traffic = answer?.buckets > 0 && pastTraffic(app, past, points);
  return html`<section class="card"><div class="controls">${WINDOWS.map(([name, value]) => html`<button class="tool" type="button" aria-pressed=${length === value && !app.state.from}
      onClick=${() => app.go({ length: value, from: "", to: "" })}>${name}</button>`)}
      ${app.state.from && html`<button class="tool" type="button" aria-pressed="true" onClick=${() => app.go({ from: "", to: "" })}>${moment(app.state.from)} to ${moment(app.state.to)} ×</button>
        ${app.hasPackets() && html`<a class="tool" id="past-packets" href=${app.address({ page: "packets" })} onClick=${app.follow}>its packets</a>`}`}
      <label>table of <select id="dimension" value=${of[0]} onChange=${(event) => app.go({ dimension: event.target.value })}>${DIMENSIONS.map(([name, label]) => html`<option value=${name} selected=${name === of[0]}>${label}</option>`)}</select></label>
      <span class="space"></span><span class="note">${answer?.span ? `kept since ${moment(answer.span[0])}, by the ${answer.tier}` : ""}</span></div></section>
    ${past?.error && html`<div class="warning" role="alert">${past.error}</div>`}
    ${answer && !answer.buckets && html`<div class="card message">Nothing is kept of this window yet. A minute is written once it is over.</div>`}
    ${traffic && html`<${Chart} title="Traffic" note=${traffic.note} t=${traffic.t} series=${traffic.series} span=${asked} height=${210} marks=${marks(app, past.watched)} follow=${app.follow}
        onWindow=${(from, to) => app.go({ from: Math.floor(from), to: Math.ceil(to) })}>${layerChoice(app)}</>
      ${points.lost.some((count) => count > 0) && html`<${Chart} title="Dropped before capture" note="packets" t=${points.t} span=${asked} height=${96} series=${[{ name: "dropped", unit: "packets", values: points.lost, color: "--bad", bars: true }]}/>`}
      ${isOf && html`<${Sums} key=${of[0]} follow=${app.follow} id="past" at=${past} title=${`Top ${of[1]}`} note=${`${answer.buckets} ${answer.tier}s`} table=${answer.table} keyOf=${keys[of[2]]} unit=${unit} seconds=${seconds} own=${of[2] === "host" ? ownOf(app.state.data) : undefined} sort=${app.state.sorting} onSort=${app.sortBy}
        columns=${[{ name: of[2] === "key" ? of[1] : of[2], wide: of[2] === "name", cell }, packets, flows]}/>`}`}
    ${past?.watched?.answer?.events.length > 0 && Events(app, "past-events", "Events", extent(past.watched.answer, ", of this window"), past.watched.answer.events)}
    ${past?.watched?.answer?.tables.length > 0 && html`<div class="grid">${past.watched.answer.tables.map(Recorded)}</div>`}`;
}

/** The kind of a packet, by its line: for its colour. */
function kindOf(line) {
  const flags = line.match(/Flags \[([^\]]*)\]/)?.[1];
  if (flags !== undefined) return flags.includes("R") ? "reset" : /[SF]/.test(flags) ? "begin" : "tcp";
  return /^ARP|Request who-has/.test(line) ? "arp" : /ICMP/.test(line) ? "icmp" : /\bUDP\b|\.(domain|mdns|ntp|443) |\d+[+*]? .*\?/.test(line) ? "udp" : "other";
}

/** What has to be started for packets. */
const NoPackets = () => html`<div class="card message" id="no-packets"><strong>No packets are available</strong>The meter keeps none. Start one that does: <code>sudo tapline view -i eth0</code>, or${" "}
  <code>tapline serve -i eth0 --history '' --view</code>; or name a recording: <code>tapline view --packets store:DIRECTORY</code></div>`;

function PacketRow({ app, time, len, line, at }) {
  const opened = app.state.opened, isOpen = opened?.key === `${time} ${at}`;
  const toggle = () => app.openPacket(isOpen ? null : { key: `${time} ${at}`, time });
  return html`<tr key=${`${time} ${at}`} data-row tabindex="-1" class=${`packet ${kindOf(line)} ${isOpen ? "opened" : ""}`} onClick=${toggle} onKeyDown=${(event) => { if (event.key === "Enter" && event.target.tagName === "TR") toggle(); }}>
      <td><button type="button" aria-expanded=${isOpen}>${clock(time / 1e9)}.${String(Math.floor(time / 1000 % 1e6)).padStart(6, "0")}</button></td><td class="n less">${len}</td><td class="line">${line}</td></tr>
    ${isOpen && html`<tr key=${`${time} ${at} details`} class="details"><td colspan="3">${opened.error ? html`<span class="error">${opened.error}</span>` : opened.text ? html`<pre>${opened.text}</pre>` : "Loading …"}</td></tr>`}`;
}

export function packetsPage(app, data) {
  const { found, filter, end: isEnd } = app.state;
  if (data && data.rights !== "packets") return html`<div class="card message"><strong>This address is for counts, not for packets</strong>Ask who runs <code>tapline view</code> for one with the right.</div>`;
  if (app.state.sources?.length === 0) return html`<${NoPackets}/>`;
  const [from, to] = app.packetWindow(), answer = found?.answer, { failed } = app.state;
  return html`<section class="card"><div class="head"><h2>Packets</h2><span class="note" id="packet-window">${clock(from)} to ${clock(to)}${filter ? `, ${filter}` : ""}</span><span class="space"></span>
      <button class="tool" type="button" id="packets-end" aria-pressed=${isEnd === "yes"} onClick=${() => app.go({ end: isEnd ? "" : "yes" })} title="Show the last 500 packets of the window, not the first">from the end</button>
      <button class="tool" type="button" onClick=${() => app.go({ from: "", to: "" })}>last 10 s</button>
      <button class="tool" type="button" onClick=${app.fetchPackets}>read again</button>
      <a class="tool primary" id="download" href=${`/api/packets.pcapng?${app.packetQuery()}`} download="packets.pcapng" onClick=${app.download}>download (pcapng)</a></div>
    ${failed && html`<div class="controls"><div class="warning" role="alert" id="download-failed">The download failed: ${failed}</div></div>`}
    ${found?.error && html`<div class="controls"><div class="warning" role="alert">${found.error}</div></div>`}
    ${found?.isBusy && html`<div class="message">Loading packets …</div>`}
    ${answer && html`<div class="controls"><span class="note" id="found">${whole(answer.packets)} packets${answer.span_ns ? `, ${clock(answer.span_ns[0] / 1e9)} to ${clock(answer.span_ns[1] / 1e9)}` : ""}${answer.is_cut ? (isEnd ? `; the last ${answer.lines.length} of these are here` : "; there are more: the file has them") : ""}</span>
        ${answer.notes.map((note) => html`<span class="error">${note}</span>`)}</div>
      ${answer.lines.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Packets"><table class="packets" id="packets"><thead><tr><th scope="col">time</th><th scope="col" class="n less">bytes</th><th scope="col">packet; a click opens it</th></tr></thead>
      <tbody>${answer.lines.map(([time, len, line], at) => PacketRow({ app, time, len, line, at }))}</tbody></table></div>`}`}</section>`;
}

/** Which events a table has. */
const extent = ({ events, is_cut: isCut }, of) => (isCut ? `the latest ${events.length}${of}; there are more` : `the latest first${of}`);

/** Events as marks of a chart. */
const marks = (app, watched) => (watched?.answer?.events ?? []).map((event) => ({
  t: event.time_ns / 1e9, isBad: event.kind === "raised", text: `${clock(event.time_ns / 1e9)} ${event.rule} ${event.kind}${event.text ? `: ${event.text}` : ""}`,
  href: app.address({ page: "events", host: "" }),
}));

const timeOf = (event) => `${moment(event.time_ns / 1e9)}:${clock(event.time_ns / 1e9).slice(-2)}`;

/** Events of rules, the latest first; each leads to the packets around it, where there are some. */
function Events(app, id, title, note, events) {
  const has = app.hasPackets(), around = (event) => ({ page: "packets", host: "", from: Math.floor(event.time_ns / 1e9) - 5, to: Math.ceil(event.time_ns / 1e9) + 5 });
  return html`<section class="card"><div class="head"><h2 id=${`${id}-title`}>${title}</h2><span class="note">${note}</span></div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby=${`${id}-title`}><table id=${id}><thead><tr><th scope="col">time</th><th scope="col">rule</th><th scope="col">event</th>
      <th scope="col">what</th><th scope="col" class="n less" title="further events of the rule, beyond its limit">suppressed</th></tr></thead>
    <tbody>${events.map((event) => html`<tr key=${`${event.time_ns} ${event.rule} ${event.kind} ${event.text}`} data-row tabindex="-1" onKeyDown=${(key) => { if (key.key === "Enter" && has) app.go(around(event)); }}>
      <td>${has ? html`<a href=${app.address(around(event))} onClick=${app.follow} title="packets around it">${timeOf(event)}</a>` : timeOf(event)}</td><td class="key">${event.rule}</td>
      <td><span class=${event.kind}>${event.kind}</span></td>
      <td class="wide told">${event.text}${event.recording ? html` <span class="note">${event.recording}</span>` : ""}</td><td class="n less">${event.swallowed ? whole(event.swallowed) : ""}</td></tr>`)}
    ${!events.length && html`<tr><td class="nothing" colspan="5">No event yet.</td></tr>`}</tbody></table></div></section>`;
}

/** What recorders of scripts held at the end of each period. */
const Recorded = (table, at) => html`<section class="card"><div class="head"><h2 id=${`recorded-${at}`}>${table.recorder}</h2>
    <span class="note">${table.kind}, ${moment(table.from_ns / 1e9)} to ${moment(table.to_ns / 1e9)}</span></div>
  <div class="scroll" tabindex="0" role="region" aria-labelledby=${`recorded-${at}`}><table class="recorded"><thead><tr>${table.columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
  <tbody>${table.rows.map((row) => html`<tr>${row.map((value) => html`<td>${value}</td>`)}</tr>`)}
  ${!table.rows.length && html`<tr><td colspan=${Math.max(1, table.columns.length)}>nothing in this period</td></tr>`}</tbody></table></div></section>`;

export function eventsPage(app) {
  const { watched } = app.state;
  if (watched?.error) return html`<div class="card message"><strong>${watched.status === 404 ? "No rules watch this traffic" : watched.error}</strong>Start with rules: <code>sudo tapline view -i eth0 --rules rules.toml</code>; or${" "}
    <code>tapline watch --rules FILE --events EVENTS --json</code> and <code>tapline view --events EVENTS</code></div>`;
  if (!watched?.answer) return html`<div class="card message">Loading …</div>`;
  const { events, tables } = watched.answer;
  return html`${Events(app, "events", "Events", extent(watched.answer, ""), events)}
    <div class="grid">${tables.map(Recorded)}</div>`;
}

export const SHOW = { overview, hosts, pairs, flows: flowsPage, protocols, losses, costs, history, packets: packetsPage, events: eventsPage };
