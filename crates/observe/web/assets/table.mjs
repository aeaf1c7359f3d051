// Tables whose rows add up to the interface. An update touches the texts that differ, in rows that are in sight.
//
//   Sums, by preact    title, note, heads                       when one of them differs
//   above              rows before those in sight, as text      now and then: a search of the browser finds them
//   lines              rows and groups in sight                 with each update
//   below              rows after them, as text
//   rest               everything up to the interface           with each update
//
// A line is a row of the DOM at its place: rows of traffic change places all the time, and moving one costs the browser
// more than writing its texts. A cell is a text, or a list of texts and {text, href, kind, title}.
import { Component } from "/vendor/preact.mjs";
import { html, amount, percent, text, whole, UNITS } from "/show.mjs";

/** Rows out of sight are written once in so many updates. */
const TURNS = 10;
/** Rows above and below the screen that are lines. */
const MARGIN = 2;
/** Rows of a table that has not been laid out. */
const FIRST = 24;
/** Narrower screens, in pixels, have rows of different heights: all of them are lines. */
const NARROW = 740;
/** Pixels of a whole share: its bar in app.css. */
const BAR = 48;

/** The tables of the page. */
const tables = new Set();

/** Finds out what is in sight, for all tables before the first of them is written: a size that is read after a change makes the browser lay out. */
export const look = () => tables.forEach((table) => table.look());

let isWaiting = false;
/** Lines that come into sight have the present numbers before they are painted. */
function bringUp() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    look();
    tables.forEach((table) => table.hasMoved && table.draw(table.props));
  });
}
addEventListener("scroll", bringUp, { passive: true });
addEventListener("resize", bringUp);
// On paper all lines are of one second.
addEventListener("beforeprint", () => tables.forEach((table) => {
  table.range = [0, Infinity]; // until the next look
  table.draw(table.props, true);
}));

/** An element for a cell or a piece, and what it has. */
const made = (tag, kind) => {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  return { element, tag, kind, parts: [] };
};

/** Gives a line the cells of a form: {kind, span}. Its row stays, with the keyboard's focus. */
function shape(line, form, cells, tag = "td") {
  line.cells = cells.map(({ kind, span }) => {
    const cell = made(tag, kind);
    if (span > 1) cell.element.colSpan = span;
    return cell;
  });
  line.element.replaceChildren(...line.cells.map((cell) => cell.element));
  Object.assign(line, { form, wide: null });
}

/** Writes a cell: nodes stay, and what is alike is not touched. */
function write(cell, pieces) {
  let count = 0;
  for (const piece of Array.isArray(pieces) ? pieces : [pieces]) {
    if (!piece) continue;
    const isText = typeof piece === "string", tag = isText ? "" : piece.href ? "a" : "span";
    let part = cell.parts[count];
    if (part?.tag !== tag) {
      const letters = document.createTextNode("");
      const next = isText ? { element: letters, tag } : made(tag);
      if (!isText) next.element.append(letters);
      if (part) part.element.replaceWith(next.element); else cell.element.append(next.element);
      part = cell.parts[count] = Object.assign(next, { letters });
    }
    const shown = isText ? piece : piece.text;
    if (part.text !== shown) part.letters.data = part.text = shown;
    if (!isText) {
      if (part.href !== piece.href) part.element.href = part.href = piece.href;
      if (part.kind !== piece.kind) part.element.className = (part.kind = piece.kind) ?? "";
      if (part.title !== piece.title) part.element.title = (part.title = piece.title) ?? "";
    }
    count++;
  }
  while (cell.parts.length > count) cell.parts.pop().element.remove();
}

const plain = (pieces) => (Array.isArray(pieces) ? pieces.map((piece) => piece && (piece.text ?? piece)).filter(Boolean).join("") : pieces.text ?? pieces);

/** How sure a row is: nothing where it is exact. */
function sure(row, unit, seconds) {
  const most = UNITS[unit].of(row.error, seconds);
  return most > 0 && { kind: "error", text: `+ ≤ ${text(most, "")}`, title: "the row may have had as much more: it had no place in the table all the time, or packets were not ranked: see Losses" };
}

/**
 * A table whose rows, others and rest add up to the interface.
 * columns: {name, cell(row), n: is a number, less: goes on narrow screens, value(row): to sort by}
 */
export class Sums extends Component {
  constructor() {
    super();
    Object.assign(this, { lines: [], rest: [], from: 0, range: [0, FIRST], turn: 0, held: null, isHeld: false });
    const attach = (name, empty) => (element) => Object.assign(this, { [name]: element }, !element && empty?.());
    this.attach = { age: attach("age"), body: attach("body", () => ({ lines: [], above: undefined, below: undefined, from: 0 })), foot: attach("foot", () => ({ rest: [] })), lost: attach("lost") };
    this.hold = () => { this.isHeld = true; };
    this.leave = () => { this.isHeld = false; };
    this.follow = (event) => {
      const link = event.target.closest("a");
      if (link) this.props.follow(event, link);
    };
    this.enter = (event) => {
      const line = this.lines.find(({ element }) => element === event.target);
      if (event.key === "Enter" && line?.row) this.props.open?.(line.row);
    };
  }
  componentDidMount() {
    tables.add(this);
    this.draw(this.props, true);
    requestAnimationFrame(() => setTimeout(bringUp));
  }
  componentWillUnmount() { tables.delete(this); }
  shouldComponentUpdate(next) {
    if (this.shell !== this.shellOf(next)) return true;
    this.draw(next);
    return false;
  }
  componentDidUpdate() { this.draw(this.props, true); }
  /** What the parts by preact are made of. */
  shellOf({ table, title, note, unit, sort, empty }) { return [Boolean(table), title, note, unit, sort?.by, sort?.down, !table && empty].join("\n"); }
  /** The rows in sight: those of a wide screen are all as high. */
  look() {
    const { top, height } = this.body?.getBoundingClientRect() ?? {}, each = height / Math.max(1, this.count);
    if (!height) return;
    const place = (y, of) => Math.min(this.count, Math.max(0, of((y - top) / each)));
    let range = innerWidth < NARROW ? [0, Infinity] : [place(-MARGIN * each, Math.floor), place(innerHeight + MARGIN * each, Math.ceil)];
    if (this.body.contains(document.activeElement)) {
      const focused = this.from + this.lines.findIndex(({ element }) => element.contains(document.activeElement));
      range = [Math.min(range[0], focused), Math.max(range[1], focused + 1)];
    }
    this.hasMoved = range.join() !== this.range.join();
    this.range = range;
  }
  /** Rows stay where they are while a pointer or the keyboard is in their table. */
  inOrder(rows, keyOf) {
    const now = rows.map(keyOf);
    if (!this.isHeld || !this.held) {
      this.held = { order: now, since: Date.now() };
      return rows;
    }
    const place = new Map(this.held.order.map((key, at) => [key, at]));
    return rows.map((row, at) => [place.get(now[at]) ?? 1e6 + at, row]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
  }
  /** The rows in their order, and how many of them are a group of their own. */
  arranged({ table, columns, keyOf, unit, seconds, sort, own }) {
    const by = [{ name: "amount", value: (row) => UNITS[unit].of(row.amount, seconds) }, ...columns].find((column) => column.name === sort?.by && column.value);
    let { rows } = table;
    if (by) rows = [...rows].sort((a, b) => (by.value(b) > by.value(a) ? 1 : by.value(b) < by.value(a) ? -1 : 0) * (sort.down ? 1 : -1));
    // Hosts of our own are a group before the others.
    const isOwn = (row) => own?.has(row.host), grouped = (all) => [...all.filter(isOwn), ...all.filter((row) => !isOwn(row))];
    const ours = own ? rows.filter(isOwn).length : 0, isGrouped = ours > 0 && ours < rows.length;
    rows = this.inOrder(isGrouped ? grouped(rows) : rows, keyOf);
    return isGrouped ? [grouped(rows), ours] : [rows, 0];
  }
  draw(props, isWhole = false) {
    const { table, columns, keyOf, unit, seconds, rest = true, empty } = props;
    if (!table || !this.body) return;
    const [rows, ours] = this.arranged(props), age = this.isHeld ? Math.round((Date.now() - this.held.since) / 1000) : 0;
    this.age.textContent = age > 1 ? `order is ${age} s old` : "";
    const sum = rest ? table.sum : table.rows.reduce((all, { amount: [packets, bytes] }) => [all[0] + packets, all[1] + bytes], table.others);
    const value = (pair) => UNITS[unit].of(pair, seconds), part = (pair) => value(pair) / Math.max(1e-9, value(sum));
    const items = rows.map((row) => ({ form: "row", key: keyOf(row), row }));
    if (ours) items.splice(ours, 0, { form: "group", key: "others" });
    if (ours) items.unshift({ form: "group", key: "this host" });
    if (!rows.length) items.push({ form: "nothing", key: empty ?? "Nothing in this window." });
    const [first, ...others] = columns;
    const texts = (row) => [first.cell(row), [amount(row.amount, unit, seconds), " ", sure(row, unit, seconds)], ...others.map((column) => column.cell(row)), percent(part(row.amount))];
    this.fit(items);
    this.lines.forEach((line, place) => {
      const { form, key, row } = items[this.from + place];
      Object.assign(line, { key, row });
      this.form(line, form, columns);
      if (form !== "row") return write(line.cells[0], key);
      texts(row).forEach((pieces, cell) => write(line.cells[cell], pieces));
      const wide = `${Math.round(Math.min(1, Math.max(0, part(row.amount))) * BAR)}px`;
      if (line.wide !== wide) line.cells.at(-1).element.style.setProperty("--part", line.wide = wide);
    });
    const to = this.from + this.lines.length, place = [this.from, to, items.length, location.search].join();
    if (table !== this.table) this.turn = (this.turn + 1) % TURNS;
    if (isWhole || place !== this.place || this.at !== props.at || this.turn === 0) {
      const text = ({ key, row }) => (row ? texts(row).map(plain).join(" ") : key);
      this.above = this.brief(this.above, items.slice(0, this.from).map(text), columns, "prepend");
      this.below = this.brief(this.below, items.slice(to).map(text), columns, "append");
    }
    [this.table, this.place, this.at, this.count] = [table, place, props.at, items.length];
    if (rest) this.drawRest(table, unit, seconds, part, columns.length);
  }
  /** Has a line for each item in sight. Lines of places that stay in sight stay; while rows are held, those of keys do. */
  fit(items) {
    const [from, to] = this.range.map((at) => Math.min(at, items.length));
    if (this.isHeld) {
      const places = new Map(items.map(({ key }, at) => [key, at]));
      this.lines = this.lines.filter((line) => places.has(line.key) || line.element.remove());
      this.from = places.get(this.lines[0]?.key) ?? this.from;
    }
    const { lines } = this, next = (before) => {
      const line = made("tr");
      this.body.insertBefore(line.element, before ?? null);
      return line;
    };
    if (!lines.length || from >= this.from + lines.length || to <= this.from) {
      lines.splice(0).forEach((line) => line.element.remove());
      this.from = from;
    }
    for (; this.from < from; this.from++) lines.shift().element.remove();
    for (; this.from > from; this.from--) lines.unshift(next(lines[0].element));
    while (lines.length > to - from) lines.pop().element.remove();
    while (lines.length < to - from) lines.push(next(this.below?.element));
  }
  form(line, form, columns) {
    if (line.form === form) return;
    const [first, ...others] = columns;
    const kinds = ({ n, less, wide }) => [n && "n", less && "less", wide && "wide"].filter(Boolean).join(" ");
    const cells = form === "row" ? [{ kind: first.wide ? "key wide" : "key" }, { kind: "n" }, ...others.map((column) => ({ kind: kinds(column) })), { kind: "less share" }] : [{ kind: form, span: columns.length + 2 }];
    shape(line, form, cells, form === "group" ? "th" : "td");
    if (form === "group") line.cells[0].element.scope = "rowgroup";
    line.element.className = form === "group" ? "group" : "";
    line.element.toggleAttribute("data-row", form === "row");
    if (form === "row") line.element.tabIndex = -1;
  }
  /** Rows out of sight: a line of text each, as high as a row, in one cell. */
  brief(line, texts, columns, end) {
    if (!texts.length) return void line?.element.remove();
    if (!line) {
      line = made("tr");
      this.form(line, "brief", columns);
      this.body[end](line.element);
    }
    write(line.cells[0], texts.join("\n"));
    return line;
  }
  /** Below the rows: everything up to the interface. */
  drawRest(table, unit, seconds, part, span) {
    const isPackets = unit === "packets";
    const rest = [
      ["all others", table.others, "", "all keys without a row"],
      ["does not fit the filter", table.unfitting, "", "rows of flows that the filter refuses"],
      ["not IP", table.not_ip, ""],
      ["not examined", table.unread, "", "headers cut short, and sampled out"],
      !isPackets && ["link headers", [0, table.framing], "", "bytes of frames that flows do not count"],
      isPackets && ["dropped before capture", [table.lost, 0], "loss", "in the kernel's ring or at the daemon; their bytes are not known"],
      ["interface", table.sum, "sum"],
    ].filter((one) => one && (one[1][0] || one[1][1] || one[2] === "sum"));
    while (this.rest.length > rest.length) this.rest.pop().element.remove();
    rest.forEach(([name, pair, kind, title], at) => {
      const line = this.rest[at] ??= made("tr");
      if (!line.form) {
        shape(line, "rest", [{}, { kind: "n" }, ...(span > 1 ? [{ kind: "less", span: span - 1 }] : []), { kind: "less share none" }]);
        this.foot.append(line.element);
      }
      if (line.kind !== kind) line.element.className = line.kind = kind;
      write(line.cells[0], title ? { text: name, title } : name);
      write(line.cells[1], amount(pair, unit, seconds));
      write(line.cells.at(-1), percent(part(pair)));
    });
    this.lost.textContent = !isPackets && table.lost > 0 ? `${whole(table.lost)} packets were dropped before capture: their bytes are unknown` : "";
  }
  render(props) {
    const { id, title, note, table, columns, unit, sort, onSort, empty, rest = true } = props;
    this.shell = this.shellOf(props);
    if (!table) return html`<section class="card"><div class="message">${empty ?? "No second has been read yet."}</div></section>`;
    const by = ["amount", ...columns.filter((column) => column.value).map((column) => column.name)].includes(sort?.by) ? sort : null;
    const head = (name, label, kind) => {
      const isBy = name === (by?.by ?? "amount"), isDown = by?.down ?? true;
      return html`<th scope="col" class=${kind} aria-sort=${isBy ? (isDown ? "descending" : "ascending") : undefined}><button type="button" class=${isBy ? "by" : ""}
        onClick=${() => { this.held = null; onSort(name); }}>${label}<span aria-hidden="true">${isBy ? (isDown ? " ▾" : " ▴") : " ▿"}</span></button></th>`;
    };
    return html`<section class="card">
    <div class="head"><h2 id=${`${id}-title`}>${title}</h2><span class="note">${note ?? ""}</span><span class="note" ref=${this.attach.age}></span></div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby=${`${id}-title`} onClick=${this.follow} onKeyDown=${this.enter}
      onPointerEnter=${this.hold} onPointerLeave=${this.leave} onFocusIn=${this.hold} onFocusOut=${this.leave}>
    <table id=${id}><caption class="visually-hidden">${title}: a row is exact where no ≤ is in it</caption><thead><tr><th scope="col">${columns[0].name}</th>${head("amount", unit === "bits" ? "bit/s" : unit, "n")}
      ${columns.slice(1).map((column) => { const kind = `${column.n ? "n" : ""} ${column.less ? "less" : ""}`; return column.value ? head(column.name, column.name, kind) : html`<th scope="col" class=${kind}>${column.name}</th>`; })}
      <th scope="col" class="less share" title=${rest ? "part of all bytes or packets of the interface" : "part of the sum of this table"}>share</th></tr></thead>
    <tbody ref=${this.attach.body}></tbody>${rest && html`<tfoot ref=${this.attach.foot}></tfoot>`}</table></div>
    ${rest && html`<div class="error lost" ref=${this.attach.lost}></div>`}</section>`;
  }
}
