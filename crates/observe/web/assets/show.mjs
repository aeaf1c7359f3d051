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

/** A number with commas between its thousands, as the command line has it. */
export const whole = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ",");

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

// A format takes the browser longer to make than to use.
const TIME = new Intl.DateTimeFormat([], { hour12: false, timeStyle: "medium" });
const MOMENT = new Intl.DateTimeFormat([], { hour12: false, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
export const clock = (seconds) => TIME.format(seconds * 1000);
export const moment = (seconds) => MOMENT.format(seconds * 1000);

/** A part of the whole, as a percentage and as a bar: an SVG, because the policy of the page has no inline style. */
export const percent = (part) => (part > 0 && part < 0.0005 ? "< 0.1 %" : `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)} %`);
const Share = ({ part }) => html`<span class="percent">${percent(part)}</span><svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
  <rect class="part" width=${Math.max(0, Math.min(100, part * 100)).toFixed(1)} height="10" rx="2"/></svg>`;

/** How sure a row is: nothing where it is exact. */
export function Sure({ row, unit, seconds }) {
  const most = UNITS[unit].of(row.error, seconds);
  if (!most) return html`<span class="visually-hidden">exact</span>`;
  return html`<span class="error" title="the row may have had as much more: it had no place in the table all the time, or packets were not ranked: see Losses">+ ≤ ${text(most, "")}</span>`;
}

/** Interval in milliseconds at which hidden parts are drawn again. */
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
    // On paper all parts are of one second.
    this.whole = () => this.forceUpdate();
    addEventListener("beforeprint", this.whole);
  }
  componentWillUnmount() {
    this.observer.disconnect();
    removeEventListener("beforeprint", this.whole);
  }
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

function sums({ id, title, note, table, columns, keyOf, unit, seconds, open, sort, onSort, own, empty, rest = true }) {
  if (!table) return html`<div class="message">${empty ?? "No second has been read yet."}</div>`;
  const value = (pair) => UNITS[unit].of(pair ?? [0, 0], seconds);
  const byAmount = { name: "amount", value: (row) => value(row.amount) };
  const by = [byAmount, ...columns].find((column) => column.name === sort?.by && column.value);
  let rows = table.rows;
  if (by) rows = [...rows].sort((a, b) => (by.value(b) > by.value(a) ? 1 : by.value(b) < by.value(a) ? -1 : 0) * (sort.down ? 1 : -1));
  // Hosts of our own are a group before the others.
  const isOwn = (row) => own?.has(row.host), ours = own ? rows.filter(isOwn) : [];
  const isGrouped = ours.length > 0 && ours.length < rows.length;
  if (isGrouped) rows = [...ours, ...rows.filter((row) => !isOwn(row))];
  const [ordering, age] = ordered(id, rows, keyOf);
  const shown = isGrouped ? [...ordering.filter(isOwn), ...ordering.filter((row) => !isOwn(row))] : ordering;
  const numbers = numbered(id, shown.map(keyOf));
  const sum = rest ? table.sum : rows.reduce((all, { amount: [packets, bytes] }) => [all[0] + packets, all[1] + bytes], table.others);
  const part = (pair) => value(pair) / Math.max(1e-9, value(sum));
  const span = columns.length;
  const foot = (name, pair, kind, title) => (pair[0] || pair[1] || kind === "sum") && html`<tr class=${kind}>
    <td title=${title}>${name}</td><td class="n">${amount(pair, unit, seconds)}</td>${span > 1 && html`<td class="less" colspan=${span - 1}></td>`}<td class="less"><span class="percent">${percent(part(pair))}</span></td></tr>`;
  const head = (name, label) => {
    const isBy = sort?.by === name || (!by && name === "amount"), isDown = !by || sort.down;
    return [isBy ? (isDown ? "descending" : "ascending") : undefined, html`<button type="button" class=${isBy ? "by" : ""} onClick=${() => { release(id); onSort(name); }}>${label}<span aria-hidden="true">${isBy ? (isDown ? " ▾" : " ▴") : " ▿"}</span></button>`];
  };
  const [amountSort, amountHead] = onSort ? head("amount", unit === "bits" ? "bit/s" : unit) : [undefined, unit === "bits" ? "bit/s" : unit];
  const group = (at) => isGrouped && (at === 0 || at === ours.length) && html`<tr class="group"><th scope="rowgroup" colspan=${span + 2}>${at === 0 ? "this host" : "others"}</th></tr>`;
  return html`
    <div class="head"><h2 id=${`${id}-title`}>${title}</h2><span class="note">${note ?? ""}</span>
      ${age > 1 && html`<span class="note">order is ${age} s old</span>`}</div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby=${`${id}-title`}
      onPointerEnter=${() => { holding = id; }} onPointerLeave=${() => { holding = null; }}
      onFocusIn=${() => { holding = id; }} onFocusOut=${() => { holding = null; }}>
    <table id=${id}><thead><tr><th scope="col">${columns[0].name}</th><th scope="col" class="n" aria-sort=${amountSort}>${amountHead}</th>
      ${columns.slice(1).map((column) => {
        const [sorted, button] = column.value && onSort ? head(column.name, column.name) : [undefined, column.name];
        return html`<th scope="col" class=${`${column.n ? "n" : ""} ${column.less ? "less" : ""}`} aria-sort=${sorted}>${button}</th>`;
      })}
      <th scope="col" class="less" title=${rest ? "part of all bytes or packets of the interface" : "part of the sum of this table"}>share</th></tr></thead>
    <tbody>${shown.map((row, at) => html`${group(at)}<tr key=${numbers[at]} data-row tabindex="-1" onKeyDown=${(event) => { if (event.key === "Enter" && open) open(row); }}>
      <td class=${`key ${columns[0].wide ? "wide" : ""}`}>${columns[0].cell(row)}</td>
      <td class="n">${amount(row.amount, unit, seconds)} <${Sure} row=${row} unit=${unit} seconds=${seconds}/></td>
      ${columns.slice(1).map((column) => html`<td class=${`${column.n ? "n" : ""} ${column.less ? "less" : ""} ${column.wide ? "wide" : ""}`}>${column.cell(row)}</td>`)}
      <td class="less"><${Share} part=${part(row.amount)}/></td></tr>`)}
    ${shown.length === 0 && html`<tr><td class="nothing" colspan=${span + 2}>${empty ?? "Nothing in this window."}</td></tr>`}</tbody>
    ${rest && html`<tfoot>
      ${foot("all others", table.others, "", "all keys without a row")}
      ${foot("does not fit the filter", table.unfitting, "", "rows of flows that the filter refuses")}
      ${foot("not IP", table.not_ip, "")}
      ${foot("not examined", table.unread, "", "headers cut short, and sampled out")}
      ${unit !== "packets" && table.framing ? foot("link headers", [0, table.framing], "", "bytes of frames that flows do not count") : null}
      ${unit === "packets" && foot("dropped before capture", [table.lost, 0], "loss", "in the kernel's ring or at the daemon; their bytes are not known")}
      ${foot("interface", table.sum, "sum")}
    </tfoot>`}</table></div>
    ${rest && unit !== "packets" && table.lost > 0 && html`<div class="controls"><span class="error">${whole(table.lost)} packets were dropped before capture: their bytes are unknown</span></div>`}`;
}
