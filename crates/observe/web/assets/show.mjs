// How numbers, tables and charts are shown. Text from the wire becomes text nodes only: preact escapes what it renders.
import { h, Component } from "/vendor/preact.mjs";
import htm from "/vendor/htm.mjs";

export const html = htm.bind(h);

const STEPS = ["", "k", "M", "G", "T", "P"];

/** A number in at most four digits, in thousands: 12.3 M. */
export function short(number) {
  let value = Math.abs(number), step = 0;
  while (value >= 999.5 && step < STEPS.length - 1) { value /= 1000; step++; }
  const digits = step === 0 ? (Number.isInteger(value) || value >= 100 ? 0 : 1) : value < 10 ? 2 : value < 100 ? 1 : 0;
  return [(number < 0 ? "−" : "") + value.toFixed(digits), STEPS[step]];
}

/** A number with its thousands apart. */
export const whole = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, " ");

/** The units that `b` goes through: how an amount [packets, bytes] is read. */
export const UNITS = {
  bits: { name: "bit/s", of: ([, bytes], seconds) => bytes * 8 / seconds },
  bytes: { name: "B", of: ([, bytes]) => bytes },
  packets: { name: "packets", of: ([packets]) => packets },
};

export function text(number, unit) {
  const [digits, step] = short(number);
  return `${digits} ${step}${unit}`.trimEnd();
}

export function amount(pair, unit, seconds) {
  if (!pair) return "–";
  return text(UNITS[unit].of(pair, seconds), UNITS[unit].name === "packets" ? "" : UNITS[unit].name);
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
export const moment = (seconds) =>
  new Date(seconds * 1000).toLocaleString([], { hour12: false, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

/** A part of the greatest row as a bar: an SVG, because the policy of the page has no inline style. */
export const Share = ({ part }) => html`<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
  <rect class="all" width="100" height="10" rx="2"/><rect class="part" width=${Math.max(0, Math.min(100, part * 100)).toFixed(1)} height="10" rx="2"/></svg>`;

/** How sure a row is: nothing where it is exact. */
export function Sure({ row, unit, seconds }) {
  const most = UNITS[unit].of(row.error, seconds);
  if (!most) return html`<span class="visually-hidden">exact</span>`;
  return html`<span class="error" title="the row may have had as much more: it had no place in the table all the time, or packets were not ranked: see Losses">+ ≤ ${text(most, "")}</span>`;
}

/** Milliseconds after which what is out of sight is drawn again. */
const OUT_OF_SIGHT = 5000;

/** A table of {of: its function, ...its properties}: drawn with each update while it is in sight, else seldom. A change of the address or of `at` is drawn at once. */
class InSight extends Component {
  constructor() {
    super();
    this.isSeen = true;
    this.attach = (element) => { this.element = element; };
  }
  componentDidMount() {
    this.observer = new IntersectionObserver((entries) => {
      const wasSeen = this.isSeen;
      this.isSeen = entries.at(-1).isIntersecting;
      if (this.isSeen && !wasSeen) this.forceUpdate();
    }, { rootMargin: "120px" });
    this.observer.observe(this.element);
  }
  componentWillUnmount() { this.observer.disconnect(); }
  shouldComponentUpdate({ sort, at }) {
    const isOther = this.search !== location.search || this.props.sort !== sort || this.props.at !== at;
    return this.isSeen || isOther || Date.now() - this.drawnAt >= OUT_OF_SIGHT;
  }
  render({ of, ...properties }) {
    this.search = location.search;
    this.drawnAt = Date.now();
    return html`<section class="card" ref=${this.attach}>${of(properties)}</section>`;
  }
}

/** By table: the number of the DOM row of each key. */
const domRows = new Map();
/** A DOM row goes with its key; that of a key that is gone serves a new one, unless the pointer or the keyboard is in the table. */
function numbered(id, keys) {
  const before = domRows.get(id) ?? new Map(), now = new Map(), present = new Set(keys);
  const free = holding === id ? [] : [...before].filter(([key]) => !present.has(key)).map(([, number]) => number);
  let next = Math.max(-1, ...before.values()) + 1;
  const numbers = keys.map((key) => {
    const number = now.has(key) ? next++ : before.get(key) ?? free.shift() ?? next++;
    if (!now.has(key)) now.set(key, number);
    return number;
  });
  domRows.set(id, now);
  return numbers;
}

const held = new Map();
let holding = null;
/** Rows are free to move: of the table with this id, or of all. */
export function release(id) {
  if (id === undefined) holding = null;
  else held.delete(id);
}
/** Rows stay where they are while a pointer or the keyboard is in their table. */
function ordered(id, rows, keyOf) {
  const now = rows.map(keyOf);
  const kept = held.get(id);
  if (holding !== id || !kept) {
    held.set(id, { order: now, since: Date.now() });
    return [rows, 0];
  }
  const place = new Map(kept.order.map((key, at) => [key, at]));
  const sorted = rows.map((row, at) => [place.get(now[at]) ?? 1e6 + at, row]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
  return [sorted, Math.round((Date.now() - kept.since) / 1000)];
}

/**
 * A table whose rows, others and rest add up to the interface.
 * columns: {name, cell(row), n: is a number, less: goes on narrow screens, value(row): to sort by}
 */
export const Sums = (properties) => html`<${InSight} of=${sums} ...${properties}/>`;

function sums({ id, title, note, table, columns, keyOf, unit, seconds, open, sort, onSort, rest = true }) {
  if (!table) return html`<div class="message">no second has been read yet</div>`;
  const by = columns.find((column) => column.name === sort?.by && column.value);
  let rows = table.rows;
  if (by) rows = [...rows].sort((a, b) => (by.value(b) > by.value(a) ? 1 : by.value(b) < by.value(a) ? -1 : 0) * (sort.down ? 1 : -1));
  const [shown, age] = ordered(id, rows, keyOf);
  const numbers = numbered(id, shown.map(keyOf));
  const greatest = Math.max(1e-9, ...rows.map((row) => UNITS[unit].of(row.amount ?? [0, 0], seconds)));
  const span = columns.length;
  const foot = (name, pair, kind, title) => (pair[0] || pair[1] || kind === "sum") && html`<tr class=${kind}>
    <td title=${title}>${name}</td><td class="n">${amount(pair, unit, seconds)}</td><td class="less" colspan=${span}></td></tr>`;
  return html`
    <div class="head"><h2 id=${`${id}-title`}>${title}</h2><span class="note">${note ?? ""}</span>
      ${age > 1 && html`<span class="note">order is ${age} s old</span>`}</div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby=${`${id}-title`}
      onPointerEnter=${() => { holding = id; }} onPointerLeave=${() => { holding = null; }}
      onFocusIn=${() => { holding = id; }} onFocusOut=${() => { holding = null; }}>
    <table id=${id}><thead><tr><th scope="col">${columns[0].name}</th><th scope="col" class="n">${unit === "bits" ? "bit/s" : unit}</th>
      ${columns.slice(1).map((column) => html`<th scope="col" class=${`${column.n ? "n" : ""} ${column.less ? "less" : ""}`}
        aria-sort=${sort?.by === column.name ? (sort.down ? "descending" : "ascending") : undefined}>
        ${column.value && onSort ? html`<button type="button" onClick=${() => { release(id); onSort(column.name); }}>${column.name}</button>` : column.name}</th>`)}
      <th scope="col" class="less">share</th></tr></thead>
    <tbody>${shown.map((row, at) => html`<tr key=${numbers[at]} data-row tabindex="-1" onKeyDown=${(event) => { if (event.key === "Enter" && open) open(row); }}>
      <td class=${`key ${columns[0].wide ? "wide" : ""}`}>${columns[0].cell(row)}</td>
      <td class="n">${amount(row.amount, unit, seconds)} <${Sure} row=${row} unit=${unit} seconds=${seconds}/></td>
      ${columns.slice(1).map((column) => html`<td class=${`${column.n ? "n" : ""} ${column.less ? "less" : ""} ${column.wide ? "wide" : ""}`}>${column.cell(row)}</td>`)}
      <td class="less"><${Share} part=${UNITS[unit].of(row.amount ?? [0, 0], seconds) / greatest}/></td></tr>`)}
    ${shown.length === 0 && html`<tr><td colspan=${span + 2}>nothing in this window</td></tr>`}</tbody>
    ${rest && html`<tfoot>
      ${foot(`others`, table.others, "", "all keys without a row")}
      ${foot("not fitting the filter", table.unfitting, "", "rows of flows that the filter refuses")}
      ${foot("not IP", table.not_ip, "")}
      ${foot("not looked at", table.unread, "", "headers cut short, and sampled out")}
      ${unit !== "packets" && table.framing ? foot("link headers", [0, table.framing], "", "bytes of frames that flows do not count") : null}
      ${unit === "packets" && foot("lost before us", [table.lost, 0], "loss", "in the kernel's ring or at the daemon; their bytes are not known")}
      ${foot("interface", table.sum, "sum")}
    </tfoot>`}</table></div>
    ${unit !== "packets" && table.lost > 0 && html`<div class="controls"><span class="error">${whole(table.lost)} packets were lost before us: their bytes are unknown</span></div>`}`;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart over time; dragging chooses a window. Behind it stands a table, one button away. */
export class Chart extends Component {
  constructor() {
    super();
    this.state = { table: false };
    this.attach = (element) => { this.element = element; };
  }
  componentDidMount() {
    // The frame of the numbers comes before that of the chart.
    this.isWaiting = true;
    requestAnimationFrame(() => setTimeout(() => { this.isWaiting = false; this.draw(); }));
    this.observer = new ResizeObserver(() => {
      if (this.plot && this.element) this.plot.setSize({ width: this.element.clientWidth - 12, height: this.props.height ?? 190 });
    });
    this.observer.observe(this.element);
  }
  componentWillUnmount() {
    this.observer.disconnect();
    this.plot?.destroy();
  }
  componentDidUpdate() {
    if (this.isWaiting) return;
    if (this.plot && this.drawn === this.signature()) this.plot.setData(this.data());
    else this.draw();
  }
  signature() { return this.props.series.map((one) => one.name).join() + (this.props.span ?? "") + (document.documentElement.dataset.theme ?? ""); }
  data() { return [this.props.t, ...this.props.series.map((one) => one.values)]; }
  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.element || !window.uPlot) return;
    this.drawn = this.signature();
    const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const { onWindow, series, height } = this.props;
    this.plot = new uPlot({
      width: Math.max(200, this.element.clientWidth - 12), height: height ?? 190,
      cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width > 4 && onWindow) onWindow(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
        }],
        draw: [(plot) => this.mark(plot)],
      },
      scales: { x: { time: true, ...(this.props.span && { range: () => this.props.span }) }, y: { range: (_, least, most) => [0, Math.max(1, most * 1.08)] } },
      axes: [{ ...axis, size: 30, values: [[86400, "{D} {MMM}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 70 },
        { ...axis, size: 62, values: (_, values) => values.map((value) => text(value, "")) }],
      series: [{ value: (_, value) => (value == null ? "–" : moment(value) + ":" + clock(value).slice(-2)) },
        ...series.map((one) => ({
          label: one.name, stroke: color(one.color), width: one.bars ? 0 : 1.6, fill: one.bars ? color(one.color) : one.fill ? color(one.fill) : undefined,
          paths: one.bars ? uPlot.paths.bars({ size: [0.7, 14] }) : undefined, // Few points make no line that can be seen.
          points: { show: (_, at, from, to) => !one.bars && to - from < 90, size: 4 },
          value: (_, value) => (value == null ? "–" : text(value, one.unit)),
        }))],
    }, this.data(), this.element);
  }
  /** Events as lines from the bottom to the top; the page of events has them as rows. */
  mark(plot) {
    if (!this.props.marks?.length) return;
    const { left, top, width, height } = plot.bbox, context = plot.ctx;
    const [bad, other] = [color("--bad"), color("--soft")];
    context.save();
    for (const { t, isBad } of this.props.marks) {
      const at = Math.round(plot.valToPos(t, "x", true));
      if (at < left || at > left + width) continue;
      context.fillStyle = isBad ? bad : other;
      context.fillRect(at - 1, top, 2, height);
    }
    context.restore();
  }
  render({ title, note, t, series, children }, { table }) {
    const last = t.length - 1;
    const said = last >= 0 ? series.map((one) => `${one.name} ${text(one.values[last] ?? 0, one.unit)}`).join(", ") : "no data";
    return html`<section class="card"><div class="head"><h2>${title}</h2><span class="note">${note ?? ""}</span><span class="space"></span>
      ${children}<button class="tool" type="button" aria-pressed=${table} onClick=${() => this.setState({ table: !table })}>table</button></div>
      <div class="chart" hidden=${table} ref=${this.attach} role="img" aria-label=${`${title}: now ${said}`}></div>
      ${table && html`<div class="scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th scope="col">time</th>
        ${series.map((one) => html`<th class="n" scope="col">${one.name}</th>`)}</tr></thead><tbody>
        ${t.map((at, index) => html`<tr><td>${moment(at)}:${clock(at).slice(-2)}</td>${series.map((one) => html`<td class="n">${text(one.values[index] ?? 0, one.unit)}</td>`)}</tr>`).reverse().slice(0, 120)}
        </tbody></table></div>`}</section>`;
  }
}
