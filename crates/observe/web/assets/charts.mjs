// Charts over time: uPlot's canvas, and above it the marks of events as links.
import { Component } from "/vendor/preact.mjs";
import { html, text, clock, moment } from "/show.mjs";

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Marks closer than this, in pixels, are one. */
const NEAR = 14;
/** Events in the text of a mark. */
const SHOWN = 6;

/** Marks that are apart on the screen: {x, events}. */
function apart(marks, place, width) {
  const found = [];
  for (const mark of [...marks].sort((a, b) => a.t - b.t)) {
    const x = place(mark.t);
    if (x < 0 || x > width) continue;
    const last = found.at(-1);
    if (last && x - last.x < NEAR) last.events.push(mark); else found.push({ x, events: [mark] });
  }
  return found;
}

/** A chart over time; dragging chooses a window. Behind it is a table, one button away. */
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
      const width = this.width();
      if (!this.plot || this.plot.width === width) return;
      this.plot.setSize({ width, height: this.props.height ?? 190 });
      // A plot with another size begins its legend with no value.
      setTimeout(() => this.tell());
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
    this.tell();
  }
  width() { return Math.max(200, (this.element?.clientWidth ?? 0) - 12); }
  /** What makes another plot of it: series, window, theme, and whether it can be dragged. */
  signature() { return [this.props.series.map((one) => one.name + one.unit), this.props.span, document.documentElement.dataset.theme, Boolean(this.props.onWindow)].join(); }
  data() { return [this.props.t, ...this.props.series.map((one) => one.values)]; }
  /** The legend has the last values while no pointer is in the chart. */
  tell() {
    if (this.plot && !(this.plot.cursor.left >= 0)) this.plot.setLegend({ idx: this.props.t.length - 1 });
  }
  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.element || !window.uPlot) return;
    this.drawn = this.signature();
    this.bandColor = color("--band");
    const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const { onWindow, series, height } = this.props, { unit } = series[0];
    this.plot = new uPlot({
      width: this.width(), height: height ?? 190,
      cursor: { drag: { x: Boolean(onWindow), y: false, setScale: false }, points: { size: 6 } },
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width > 4 && onWindow) this.props.onWindow(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
        }],
        drawClear: [(plot) => this.band(plot)],
        draw: [(plot) => this.mark(plot)],
      },
      scales: { x: { time: true, ...(this.props.span && { range: () => this.props.span }) }, y: { range: (_, least, most) => [0, Math.max(1, most * 1.08)] } },
      axes: [{ ...axis, size: 30, values: [[86400, "{D} {MMM}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 70 },
        { ...axis, size: 84, space: height < 120 ? 16 : 30, values: (_, values) => values.map((value) => text(value, unit)) }],
      series: [{ label: "time", value: (_, value) => (value == null ? "–" : moment(value) + ":" + clock(value).slice(-2)) },
        ...series.map((one) => ({
          label: one.name, stroke: color(one.color), width: one.bars ? 0 : one.thin ? 1 : 1.6, dash: one.thin ? [4, 3] : undefined,
          fill: one.bars ? color(one.color) : one.fill ? color(one.fill) : undefined,
          paths: one.bars ? uPlot.paths.bars({ size: [0.7, 14] }) : undefined, // Few points make no line that can be seen.
          points: { show: (_, at, from, to) => !one.bars && !one.thin && to - from < 90, size: 4 },
          // A layer has its own value, not its height in the chart.
          value: (_, value, at, index) => { const own = this.props.series[at - 1]?.own; const shown = own ? own[index] : value; return shown == null ? "unknown" : text(shown, one.unit); },
        }))],
    }, this.data(), this.element);
    // The plot begins its legend with no value, after this.
    setTimeout(() => this.tell());
  }
  /** The time of the numbers of the page, behind the lines. */
  band(plot) {
    const { band } = this.props;
    if (!band) return;
    const { left, top, width, height } = plot.bbox;
    const [from, to] = band.map((at) => Math.min(left + width, Math.max(left, plot.valToPos(at, "x", true))));
    plot.ctx.save();
    plot.ctx.fillStyle = this.bandColor;
    plot.ctx.fillRect(from, top, to - from, height);
    plot.ctx.restore();
  }
  /** Events as links at the upper edge, each with its text; several that are close have their number. */
  mark(plot) {
    plot.over.querySelectorAll(".event").forEach((one) => one.remove());
    if (!this.props.marks?.length) return;
    const place = (t) => plot.valToPos(t, "x");
    for (const { x, events } of apart(this.props.marks, place, plot.over.clientWidth)) {
      const link = document.createElement("a"), isBad = events.some((one) => one.isBad);
      const lines = events.slice(-SHOWN).reverse().map((one) => one.text);
      if (events.length > SHOWN) lines.push(`and ${events.length - SHOWN} more`);
      link.className = `event${isBad ? " bad" : ""}`;
      link.href = events.at(-1).href;
      link.title = lines.join("\n");
      link.setAttribute("aria-label", `${events.length > 1 ? `${events.length} events: ` : ""}${lines.join("; ")}`);
      link.textContent = events.length > 1 ? String(events.length) : isBad ? "!" : "•";
      link.style.left = `${x}px`;
      link.addEventListener("mousedown", (event) => event.stopPropagation());
      link.addEventListener("click", (event) => this.props.follow(event));
      plot.over.append(link);
    }
  }
  render({ title, note, t, series, children }, { table }) {
    const last = t.length - 1;
    const shown = (one, index) => { const value = (one.own ?? one.values)[index]; return value == null ? "unknown" : text(value, one.unit); };
    const said = last >= 0 ? series.map((one) => `${one.name} ${shown(one, last)}`).join(", ") : "no data";
    return html`<section class="card"><div class="head"><h2>${title}</h2><span class="note">${note ?? ""}</span><span class="space"></span>
      ${children}<button class="tool" type="button" aria-pressed=${table} onClick=${() => this.setState({ table: !table })}>table</button></div>
      <div class="chart" hidden=${table} ref=${this.attach} role="group" aria-label=${`${title}: now ${said}`}></div>
      ${table && html`<div class="scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th scope="col">time</th>
        ${series.map((one) => html`<th class="n" scope="col">${one.name}</th>`)}</tr></thead><tbody>
        ${t.map((at, index) => html`<tr><td>${moment(at)}:${clock(at).slice(-2)}</td>${series.map((one) => html`<td class="n">${shown(one, index)}</td>`)}</tr>`).reverse().slice(0, 120)}
        </tbody></table></div>`}</section>`;
  }
}
