//! Breakdowns as one picture: a stacked bar for each run, with an axis and a legend, in one file that refers to nothing else.
//!
//! ```text
//!   cycles a packet
//!    6000 ┤   5680                      □ unexplained      2996    1343
//!         │  ┌────┐                     ▒ timestamp        1800     270
//!    4000 ┤  │    │   3164              ▤ tap               830       -
//!         │  │▒▒▒▒│  ┌────┐             ▥ driver              -    1497
//!    2000 ┤  │▒▒▒▒│  │▥▥▥▥│             ▦ interrupt          54      54
//!         │  │▤▤▤▤│  │▥▥▥▥│
//!       0 ┼──┴────┴──┴────┴──
//!            before   after
//! ```
//!
//! Black, white and hatches, so that it survives any printer. All text is in a font of one width, so its length is known without
//! knowing the font, and the picture is made wide enough for it.

use std::fmt::Write;

use super::{Breakdown, names_of};

/// Pixels of a letter's height, and at most of its width: fonts of one width have 0.55 to 0.61.
const FONT: f64 = 13.0;
const LETTER: f64 = FONT * 0.62;
const MARGIN: f64 = 20.0;
const PLOT_HEIGHT: f64 = 360.0;
const LINE_HEIGHT: f64 = 22.0;
const BAR_WIDTH: f64 = 90.0;
const BAR_GAP: f64 = 36.0;
const SWATCH: f64 = 26.0;
/// Segments lower than this have their number in the legend only.
const LABEL_HEIGHT: f64 = FONT + 5.0;
/// Longer texts are cut.
const LETTERS_MAX: usize = 60;

/// Hatches, drawn on white in a square of so many pixels. One cannot be taken for another.
const HATCHES: [(u32, &str); 14] = [
    (8, "<path d='M-2 2L2 -2M0 8L8 0M6 10L10 6' stroke='#000'/>"),
    (8, "<rect width='8' height='8' fill='#ccc'/>"),
    (6, "<path d='M0 3H6' stroke='#000'/>"),
    (8, "<circle cx='4' cy='4' r='1.5'/>"),
    (8, "<path d='M-2 6L2 10M0 0L8 8M6 -2L10 2' stroke='#000' stroke-width='2.5'/>"),
    (8, "<rect width='8' height='8' fill='#666'/>"),
    (6, "<path d='M3 0V6' stroke='#000'/>"),
    (10, "<path d='M0 0L10 10M10 0L0 10' stroke='#000'/>"),
    (8, "<rect width='8' height='8'/>"),
    (10, "<path d='M0 5H10M5 0V10' stroke='#000'/>"),
    (8, "<rect width='8' height='8'/><circle cx='4' cy='4' r='2' fill='#fff'/>"),
    (12, "<path d='M0 9L3 3L9 9L12 3' fill='none' stroke='#000' stroke-width='1.5'/>"),
    (8, "<path d='M0 4H8' stroke='#000' stroke-width='4'/>"),
    (12, "<circle cx='6' cy='6' r='3.5' fill='none' stroke='#000'/>"),
];

/// What is drawn: a name, its hatch, and a value for each run.
struct Layer {
    name: String,
    /// `None` is white with a broken line: what is unexplained.
    hatch: Option<usize>,
    cycles: Vec<Option<f64>>,
}

/// Runs side by side as an SVG picture, legible in black and white. Components of the same name have the same hatch. Beyond 14 names, the
/// smallest are drawn together as `others`.
pub fn to_svg(runs: &[Breakdown]) -> String {
    let layers = layers(runs);
    let drawn = |index: usize| {
        layers.iter().filter_map(|layer| layer.cycles[index]).map(|cycles| cycles.max(0.0)).sum::<f64>()
    };
    let top = (0..runs.len()).map(drawn).filter(|top| top.is_finite()).fold(0.0, f64::max);
    let step = step(top);
    let axis_end = (top / step).ceil().max(1.0) * step;
    let frame = Frame::new(runs, &layers, step, axis_end);

    let mut svg = String::new();
    head(&mut svg, &frame, layers.len());
    axis(&mut svg, &frame, step, axis_end);
    for (index, run) in runs.iter().enumerate() {
        bar(&mut svg, &frame, &layers, index, run);
    }
    legend(&mut svg, &frame, &layers, runs);
    svg += "</svg>\n";
    svg
}

/// Places of everything, in pixels.
struct Frame {
    width: f64,
    height: f64,
    /// The corner at the bottom left of the plot.
    left: f64,
    bottom: f64,
    /// From the left of one bar to that of the next.
    pitch: f64,
    plot_width: f64,
    legend: f64,
    name_width: f64,
    value_width: f64,
    pixels_per_cycle: f64,
}

impl Frame {
    fn new(runs: &[Breakdown], layers: &[Layer], step: f64, axis_end: f64) -> Frame {
        let widest =
            |texts: &mut dyn Iterator<Item = String>| texts.map(|text| text_width(&text)).fold(0.0, f64::max);
        let titles = widest(&mut runs.iter().map(|run| cut(&run.title)));
        let left = MARGIN + widest(&mut [number(axis_end), number(step)].into_iter()) + 12.0;
        let pitch = titles.max(BAR_WIDTH) + BAR_GAP;
        let plot_width = pitch * runs.len().max(1) as f64;
        let name_width =
            widest(&mut layers.iter().map(|layer| layer.name.clone()).chain(["total".to_owned()]));
        let values = layers.iter().flat_map(|layer| layer.cycles.iter().map(|cycles| value(*cycles)));
        let columns = (0..runs.len()).map(|index| column(runs, index));
        let totals = runs.iter().map(|run| value(Some(run.total_cycles)));
        let value_width = widest(&mut values.chain(columns).chain(totals)) + 2.0 * LETTER;
        let legend = left + plot_width + 30.0;
        let legend_width = SWATCH + 8.0 + name_width + value_width * runs.len() as f64;
        let top = MARGIN + 2.0 * LINE_HEIGHT;
        let bottom = top + PLOT_HEIGHT;
        let legend_height = LINE_HEIGHT * (layers.len() + 2) as f64;
        Frame {
            width: (legend + legend_width + MARGIN).max(left + text_width(AXIS) + MARGIN).ceil(),
            height: (bottom + LINE_HEIGHT).max(top + legend_height) + MARGIN,
            left,
            bottom,
            pitch,
            plot_width,
            legend,
            name_width,
            value_width,
            pixels_per_cycle: PLOT_HEIGHT / axis_end,
        }
    }

    fn y(&self, cycles: f64) -> f64 {
        self.bottom - cycles * self.pixels_per_cycle
    }

    fn legend_line(&self, line: usize) -> f64 {
        self.bottom - PLOT_HEIGHT + LINE_HEIGHT * line as f64
    }
}

/// Marks of the axis, see [`step`].
const STEPS_MAX: usize = 11;
const AXIS: &str = "cycles a packet";

fn layers(runs: &[Breakdown]) -> Vec<Layer> {
    let all: Vec<&Breakdown> = runs.iter().collect();
    let names = names_of(&all);
    // What was divided by zero cannot be drawn.
    let cycles = |name: &str| -> Vec<Option<f64>> {
        runs.iter().map(|run| run.cycles_of(name).filter(|cycles| cycles.is_finite())).collect()
    };
    let most = |name: &str| cycles(name).into_iter().flatten().fold(0.0, f64::max);
    let mut by_size = names.clone();
    by_size.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let kept = if names.len() > HATCHES.len() { HATCHES.len() - 1 } else { names.len() };
    let small = &by_size[kept..];

    let mut layers: Vec<Layer> = names
        .iter()
        .filter(|name| !small.contains(name))
        .enumerate()
        .map(|(hatch, name)| Layer { name: cut(name), hatch: Some(hatch), cycles: cycles(name) })
        .collect();
    if !small.is_empty() {
        let of_run = |run: usize| Some(small.iter().filter_map(|name| cycles(name)[run]).sum());
        let name = format!("{} others", small.len());
        layers.push(Layer { name, hatch: Some(kept), cycles: (0..runs.len()).map(of_run).collect() });
    }
    let unexplained =
        runs.iter().map(|run| Some(run.unexplained_cycles()).filter(|cycles| cycles.is_finite())).collect();
    layers.push(Layer { name: "unexplained".into(), hatch: None, cycles: unexplained });
    layers
}

fn head(svg: &mut String, frame: &Frame, layers: usize) {
    let (width, height) = (frame.width, frame.height);
    *svg += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans Mono, Liberation Mono, Consolas, monospace\" \
         font-size=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<defs>\n"
    );
    for (index, (size, marks)) in HATCHES.iter().enumerate().take(layers) {
        let marks = marks.replace('\'', "\"");
        *svg += &format!(
            "<pattern id=\"h{index}\" width=\"{size}\" height=\"{size}\" patternUnits=\"userSpaceOnUse\">\
             <rect width=\"{size}\" height=\"{size}\" fill=\"#fff\"/>{marks}</pattern>\n"
        );
    }
    *svg += "</defs>\n";
}

fn axis(svg: &mut String, frame: &Frame, step: f64, axis_end: f64) {
    let (left, right, bottom) = (frame.left, frame.left + frame.plot_width, frame.bottom);
    text(svg, left, bottom - PLOT_HEIGHT - LINE_HEIGHT, "start", AXIS);
    let steps = ((axis_end / step).round() as usize).min(STEPS_MAX);
    for index in 0..=steps {
        let cycles = index as f64 * step;
        let y = frame.y(cycles);
        *svg += &format!("<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#bbb\" stroke-width=\"0.5\"/>\n");
        *svg += &format!("<path d=\"M{:.1} {y:.1}H{left:.1}\" stroke=\"#000\"/>\n", left - 5.0);
        text(svg, left - 9.0, y + FONT * 0.35, "end", &number(cycles));
    }
    let top = bottom - PLOT_HEIGHT;
    *svg +=
        &format!("<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#000\"/>\n");
}

fn bar(svg: &mut String, frame: &Frame, layers: &[Layer], index: usize, run: &Breakdown) {
    let left = frame.left + frame.pitch * index as f64 + (frame.pitch - BAR_WIDTH) / 2.0;
    let middle = left + BAR_WIDTH / 2.0;
    let mut below = 0.0;
    for layer in layers {
        let cycles = layer.cycles[index].unwrap_or(0.0).max(0.0);
        let (y, height) = (frame.y(below + cycles), cycles * frame.pixels_per_cycle);
        below += cycles;
        if height < 0.05 {
            continue;
        }
        *svg += &format!(
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{BAR_WIDTH}\" height=\"{height:.1}\" {}/>\n",
            fill(layer)
        );
        if height >= LABEL_HEIGHT {
            label(svg, middle, y + height / 2.0, &value(Some(cycles)));
        }
    }
    text(svg, middle, frame.y(below) - 6.0, "middle", &value(Some(run.total_cycles)));
    text(svg, middle, frame.bottom + LINE_HEIGHT - 4.0, "middle", &cut(&run.title));
}

fn legend(svg: &mut String, frame: &Frame, layers: &[Layer], runs: &[Breakdown]) {
    let names = frame.legend + SWATCH + 8.0;
    let value_end = |index: usize| names + frame.name_width + frame.value_width * (index + 1) as f64;
    for index in 0..runs.len() {
        text(svg, value_end(index), frame.legend_line(0), "end", &column(runs, index));
    }
    // From the top of the bars down.
    for (line, layer) in layers.iter().rev().enumerate() {
        let y = frame.legend_line(line + 1);
        *svg += &format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{SWATCH}\" height=\"15\" {}/>\n",
            frame.legend,
            y - 12.0,
            fill(layer)
        );
        text(svg, names, y, "start", &layer.name);
        for (index, cycles) in layer.cycles.iter().enumerate() {
            text(svg, value_end(index), y, "end", &value(*cycles));
        }
    }
    let y = frame.legend_line(layers.len() + 1);
    let line = y - FONT - 2.0;
    *svg += &format!(
        "<path d=\"M{names:.1} {line:.1}H{:.1}\" stroke=\"#000\"/>\n",
        value_end(runs.len().max(1) - 1)
    );
    text(svg, names, y, "start", "total");
    for (index, run) in runs.iter().enumerate() {
        text(svg, value_end(index), y, "end", &value(Some(run.total_cycles)));
    }
}

/// What stands above a column of the legend: the run's number where there are several, else the unit.
fn column(runs: &[Breakdown], index: usize) -> String {
    if runs.len() == 1 { "cycles".into() } else { format!("bar {}", index + 1) }
}

fn fill(layer: &Layer) -> String {
    match layer.hatch {
        Some(hatch) => format!("fill=\"url(#h{hatch})\" stroke=\"#000\""),
        None => "fill=\"#fff\" stroke=\"#000\" stroke-dasharray=\"4 3\"".into(),
    }
}

/// A number on a white ground, so that no hatch runs through it.
fn label(svg: &mut String, x: f64, y: f64, what: &str) {
    let width = text_width(what) + 6.0;
    *svg += &format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#fff\"/>\n",
        x - width / 2.0,
        y - FONT / 2.0 - 1.0,
        FONT + 2.0
    );
    text(svg, x, y + FONT * 0.35, "middle", what);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(what));
}

/// Characters that XML means something by, and those that it cannot hold at all.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut safe, character| {
        match character {
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            '"' => safe += "&quot;",
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                safe.push('\u{fffd}')
            }
            other => safe.push(other),
        }
        safe
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Letters of East Asia are twice as wide, also in fonts of one width.
fn text_width(text: &str) -> f64 {
    text.chars().map(|letter| if letter < '\u{1100}' { LETTER } else { 2.0 * LETTER }).sum()
}

/// A cost: three digits at least.
fn value(cycles: Option<f64>) -> String {
    match cycles {
        None => "-".into(),
        Some(cycles) if cycles.abs() < 9.995 => format!("{cycles:.2}"),
        Some(cycles) if cycles.abs() < 99.95 => format!("{cycles:.1}"),
        Some(cycles) => format!("{cycles:.0}"),
    }
}

/// A number on the axis.
fn number(cycles: f64) -> String {
    let text = format!("{cycles:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Between two marks of the axis: 1, 2 or 5 times a power of ten, four to ten marks in all.
fn step(top: f64) -> f64 {
    if !(top.is_finite() && top > 1e-3) {
        return 1e-3;
    }
    let rough = top / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::How;

    /// Attributes of all elements of one kind, and what they enclose.
    fn elements<'a>(svg: &'a str, kind: &str) -> Vec<&'a str> {
        let open = format!("<{kind} ");
        svg.lines().filter_map(|line| line.strip_prefix(open.as_str())).collect()
    }

    fn attribute(element: &str, name: &str) -> f64 {
        let rest = element.split_once(&format!("{name}=\"")).expect("the attribute").1;
        rest.split('"').next().and_then(|value| value.parse().ok()).expect("a number")
    }

    fn enclosed(element: &str) -> &str {
        element.split_once('>').expect("its end").1.strip_suffix("</text>").expect("a text")
    }

    fn run(title: &str, parts: usize, total: f64) -> Breakdown {
        (0..parts).fold(Breakdown::new(title, 1000, total, 1e9), |run, index| {
            run.with(&format!("component {index}"), 10.0 + index as f64, How::Timed)
        })
    }

    fn nothing_is_clipped(svg: &str) {
        let (width, height) = (attribute(svg, "width"), attribute(svg, "height"));
        for element in elements(svg, "text") {
            let (x, y) = (attribute(element, "x"), attribute(element, "y"));
            let plain = enclosed(element).replace("&lt;", "<").replace("&amp;", "&");
            let long = text_width(&plain);
            let start = match element {
                _ if element.contains("\"middle\"") => x - long / 2.0,
                _ if element.contains("\"end\"") => x - long,
                _ => x,
            };
            assert!(
                start >= 0.0 && start + long <= width,
                "{plain} at {start} to {} of {width}",
                start + long
            );
            assert!(y >= FONT && y + FONT * 0.3 <= height, "{plain} at {y} of {height}");
        }
        for element in elements(svg, "rect").into_iter().filter(|element| element.contains(" y=")) {
            assert!(attribute(element, "height") >= 0.0);
            assert!(attribute(element, "y") >= 0.0, "{element}");
            assert!(attribute(element, "x") + attribute(element, " width") <= width, "{element}");
        }
    }

    #[test]
    fn everything_is_inside_the_picture() {
        let long =
            "AF_PACKET with a filter in the kernel, <64 bytes> & a title that never seems to end, on eth0";
        nothing_is_clipped(&to_svg(&[run("file", 3, 50.0)]));
        nothing_is_clipped(&to_svg(&[run(long, 14, 5680.0), run("x", 2, 3164.0)]));
        nothing_is_clipped(&to_svg(&[run("x", 40, 1e9), run(long, 3, 0.5)]));
        nothing_is_clipped(&to_svg(&[run("components come to more", 9, 20.0)]));
        nothing_is_clipped(&to_svg(&[run("nothing", 0, 0.0)]));
        nothing_is_clipped(&to_svg(&[]));
        nothing_is_clipped(&to_svg(&[
            Breakdown::new("x", 1, f64::NAN, 1.0),
            Breakdown::new("y", 1, f64::INFINITY, 1.0),
        ]));
    }

    #[test]
    fn bars_are_as_high_as_their_numbers() {
        let svg = to_svg(&[run("one", 2, 50.0), run("two", 2, 100.0)]);
        let high = |fill: &str| -> Vec<f64> {
            let bars = elements(&svg, "rect")
                .into_iter()
                .filter(|bar| bar.contains(fill) && !bar.contains("height=\"15\""));
            bars.map(|bar| attribute(bar, "height")).collect()
        };
        let (first, second, rest) = (high("#h0"), high("#h1"), high("dasharray"));
        assert_eq!((first.len(), second.len(), rest.len()), (2, 2, 2));
        assert!((second[0] / first[0] - 1.1).abs() < 0.01, "11 cycles to 10");
        assert!((rest[1] / rest[0] - 79.0 / 29.0).abs() < 0.02, "what is unexplained");
        assert!((first[0] / PLOT_HEIGHT - 0.1).abs() < 0.01, "10 cycles of an axis up to 100");
    }

    #[test]
    fn the_axis_has_round_numbers() {
        assert_eq!([5680.0, 3164.0, 100.0, 0.7, 11.0].map(step), [1000.0, 500.0, 10.0, 0.1, 2.0]);
        assert_eq!([2000.0, 0.1, 0.0].map(number), ["2000", "0.1", "0"]);
        for top in [1e-9_f64, 0.013, 42.0, 5680.0, 1e12] {
            assert!((1.0..=10.001).contains(&(top.max(1e-3) / step(top)).ceil()), "{top}");
        }
    }

    #[test]
    fn the_smallest_of_many_are_drawn_together() {
        let layers = layers(&[run("x", 40, 5000.0)]);
        assert_eq!(layers.len(), HATCHES.len() + 1);
        assert_eq!(layers[HATCHES.len() - 1].name, "27 others");
        assert_eq!(layers[0].name, "component 27");
        let all: f64 = layers.iter().filter_map(|layer| layer.cycles[0]).sum();
        assert!((all - 5000.0).abs() < 1e-6, "all is drawn");
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let svg =
            to_svg(&[Breakdown::new("</svg><script>\u{1}", 1, 5.0, 1e9).with("\"a\" & b", 2.0, How::Kernel)]);
        assert!(svg.contains("&lt;/svg&gt;&lt;script&gt;\u{fffd}") && svg.contains("&quot;a&quot; &amp; b"));
        assert_eq!(svg.matches("</svg>").count(), 1);
    }
}
