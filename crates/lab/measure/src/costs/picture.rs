//! Breakdowns as a chart: a stacked bar for each run, and a table of its components as the legend.
//!
//! ```text
//!   cycles a packet                                 bar 1   bar 2
//!    6000 ┤   5680                  □ unexplained      35     105
//!         │  ┌────┐                 ■ copy            799     559
//!    4000 ┤  │    │   3164          ■ timestamp      1800     270
//!         │  │▒▒▒▒│  ┌────┐         ■ tap             830     560
//!    2000 ┤  │▒▒▒▒│  │▥▥▥▥│         ■ driver         1497    1497
//!         │  │▤▤▤▤│  │▥▥▥▥│           total          5680    3164
//!       0 ┼──┴────┴──┴────┴──
//!            before   after
//! ```

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tapline_meters::{Breakdown, component_names};

use crate::chart::{FONT_HEIGHT, colour, short};

/// Height of the chart, in pixels.
const HEIGHT: u32 = 440;
/// Width of a letter, in pixels: fonts of one width have 0.55 to 0.61 of their height.
const LETTER: f64 = FONT_HEIGHT as f64 * 0.62;
/// Width of a run's column, in pixels, at least.
const COLUMN_WIDTH: f64 = 130.0;
/// Part of its column that a bar fills.
const FILLED: f64 = 0.7;
/// Width of the axis with its numbers, in pixels.
const AXIS_WIDTH: u32 = 78;
const MARGIN: i32 = 10;
const LINE_HEIGHT: i32 = 22;
const SWATCH: i32 = 26;
/// Segments lower than this have their number in the legend only, in pixels.
const LABEL_HEIGHT: f64 = FONT_HEIGHT as f64 + 5.0;
/// Longer texts are cut, in letters.
const LETTERS_MAX: usize = 60;
/// Most components with a segment of their own; the smaller ones of more are drawn as one.
const COMPONENTS_MAX: usize = 8;

/// A segment of each bar.
struct Layer {
    name: String,
    /// `None` is white: the part that no component explains.
    colour: Option<RGBColor>,
    /// Cycles a packet of each run.
    cycles: Vec<Option<f64>>,
}

/// Runs side by side as an SVG picture. A component has the same colour in each bar; the smallest of more than eight
/// are drawn as `others`.
///
/// # Errors
/// If the picture cannot be drawn.
pub fn picture(runs: &[Breakdown]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, runs).map_err(|error| anyhow!("drawing: {error}"))?;
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(svg: &mut String, runs: &[Breakdown]) -> Drawn {
    let layers = layers(runs);
    let titles = runs.iter().map(|run| text_width(&shown(&run.title)) + 2.0 * LETTER);
    let column_width = titles.fold(COLUMN_WIDTH, f64::max);
    let plot_width = f64::from(AXIS_WIDTH) + column_width * runs.len().max(1) as f64 + f64::from(2 * MARGIN);
    let names = layers.iter().map(|layer| text_width(&layer.name)).fold(0.0, f64::max);
    let value_width = text_width("00000000");
    let legend_width = f64::from(SWATCH + 2 * MARGIN) + names + value_width * runs.len() as f64;
    let legend_height = LINE_HEIGHT * (layers.len() as i32 + 3);
    let size = ((plot_width + legend_width) as u32 + MARGIN as u32, HEIGHT.max(legend_height as u32));
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (plot, beside) = area.split_horizontally(plot_width as i32);
    bars(&plot, &layers, runs)?;
    let value_ends = |run: usize| f64::from(SWATCH + MARGIN) + names + value_width * (run + 1) as f64;
    legend(&beside, &layers, runs, &|run| value_ends(run) as i32)?;
    area.present()?;
    Ok(())
}

/// The axis and the bars, each with its title below and its total above.
fn bars(area: &DrawingArea<SVGBackend<'_>, Shift>, layers: &[Layer], runs: &[Breakdown]) -> Drawn {
    let height = |run: usize| layers.iter().map(|layer| layer.drawn(run)).sum::<f64>();
    let top = (0..runs.len()).map(height).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.08 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(28)
        .y_label_area_size(AXIS_WIDTH)
        .build_cartesian_2d(0.0..runs.len().max(1) as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc("cycles a packet")
        .y_labels(8)
        .max_light_lines(0)
        .y_label_formatter(&|value| short(*value))
        .label_style(("monospace", FONT_HEIGHT))
        .axis_desc_style(("monospace", FONT_HEIGHT))
        .draw()?;
    for (at, run) in runs.iter().enumerate() {
        let (left, right) = (at as f64 + (1.0 - FILLED) / 2.0, at as f64 + (1.0 + FILLED) / 2.0);
        let middle = at as f64 + 0.5;
        let mut below = 0.0;
        for layer in layers {
            let cycles = layer.drawn(at);
            let corners = [(left, below), (right, below + cycles)];
            let fill = layer.colour.unwrap_or(WHITE).filled();
            chart.draw_series([
                Rectangle::new(corners, fill),
                Rectangle::new(corners, BLACK.stroke_width(1)),
            ])?;
            let (x, y) = chart.backend_coord(&(middle, below + cycles / 2.0));
            let (_, end) = chart.backend_coord(&(middle, below + cycles));
            below += cycles;
            if f64::from(2 * (y - end)) >= LABEL_HEIGHT {
                label(area, &value(Some(cycles)), (x, y))?;
            }
        }
        let (x, y) = chart.backend_coord(&(middle, below));
        area.draw(&Text::new(value(Some(run.total_cycles)), (x, y - 4), style(HPos::Center, VPos::Bottom)))?;
        let (x, y) = chart.backend_coord(&(middle, 0.0));
        area.draw(&Text::new(shown(&run.title), (x, y + 8), style(HPos::Center, VPos::Top)))?;
    }
    Ok(())
}

/// A number on white ground.
fn label(area: &DrawingArea<SVGBackend<'_>, Shift>, text: &str, (x, y): (i32, i32)) -> Drawn {
    let (half_width, half_height) = ((text_width(text) / 2.0) as i32 + 3, FONT_HEIGHT / 2 + 1);
    let corners = [(x - half_width, y - half_height), (x + half_width, y + half_height)];
    area.draw(&Rectangle::new(corners, WHITE.filled()))?;
    area.draw(&Text::new(text.to_owned(), (x, y), style(HPos::Center, VPos::Center)))?;
    Ok(())
}

/// Components from the top of the bars down, with the cycles of each run. `value_end` gives where the column of a run
/// ends.
fn legend(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    layers: &[Layer],
    runs: &[Breakdown],
    value_end: &dyn Fn(usize) -> i32,
) -> Drawn {
    let row = |line: usize| MARGIN + LINE_HEIGHT * line as i32 + LINE_HEIGHT / 2;
    let write = |text: String, x: i32, line: usize, align: HPos| {
        area.draw(&Text::new(text, (x, row(line)), style(align, VPos::Center)))
    };
    for run in 0..runs.len() {
        let title = if runs.len() == 1 { "cycles".to_owned() } else { format!("bar {}", run + 1) };
        write(title, value_end(run), 0, HPos::Right)?;
    }
    for (line, layer) in layers.iter().rev().enumerate().map(|(at, layer)| (at + 1, layer)) {
        let corners = [(0, row(line) - 7), (SWATCH, row(line) + 7)];
        area.draw(&Rectangle::new(corners, layer.colour.unwrap_or(WHITE).filled()))?;
        area.draw(&Rectangle::new(corners, BLACK.stroke_width(1)))?;
        write(layer.name.clone(), SWATCH + MARGIN, line, HPos::Left)?;
        for (run, cycles) in layer.cycles.iter().enumerate() {
            write(value(*cycles), value_end(run), line, HPos::Right)?;
        }
    }
    write("total".to_owned(), SWATCH + MARGIN, layers.len() + 1, HPos::Left)?;
    for (run, breakdown) in runs.iter().enumerate() {
        write(value(Some(breakdown.total_cycles)), value_end(run), layers.len() + 1, HPos::Right)?;
    }
    Ok(())
}

impl Layer {
    /// Cycles as drawn: a negative part has no height.
    fn drawn(&self, run: usize) -> f64 {
        self.cycles[run].unwrap_or(0.0).max(0.0)
    }
}

fn layers(runs: &[Breakdown]) -> Vec<Layer> {
    let all: Vec<&Breakdown> = runs.iter().collect();
    let names = component_names(&all);
    // A division by zero cannot be drawn.
    let cycles = |name: &str| -> Vec<Option<f64>> {
        runs.iter().map(|run| run.cycles_of(name).filter(|cycles| cycles.is_finite())).collect()
    };
    let most = |name: &str| cycles(name).into_iter().flatten().fold(0.0, f64::max);
    let mut by_size = names.clone();
    by_size.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let kept = if names.len() > COMPONENTS_MAX { COMPONENTS_MAX - 1 } else { names.len() };
    let small = &by_size[kept..];

    let mut layers: Vec<Layer> = names
        .iter()
        .filter(|name| !small.contains(name))
        .enumerate()
        .map(|(at, name)| Layer { name: shown(name), colour: Some(colour(at)), cycles: cycles(name) })
        .collect();
    if !small.is_empty() {
        let of_run = |run: usize| Some(small.iter().filter_map(|name| cycles(name)[run]).sum());
        let name = format!("{} others", small.len());
        layers.push(Layer {
            name,
            colour: Some(colour(kept)),
            cycles: (0..runs.len()).map(of_run).collect(),
        });
    }
    let unexplained =
        runs.iter().map(|run| Some(run.unexplained_cycles()).filter(|cycles| cycles.is_finite())).collect();
    layers.push(Layer { name: "unexplained".into(), colour: None, cycles: unexplained });
    layers
}

fn style(align: HPos, stand: VPos) -> TextStyle<'static> {
    TextStyle::from(("monospace", FONT_HEIGHT).into_font()).pos(Pos::new(align, stand))
}

/// A text of a user or a file: cut, and without characters that XML cannot hold.
fn shown(text: &str) -> String {
    let is_banned = |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
    let letters = text.chars().map(|letter| if is_banned(letter) { '\u{fffd}' } else { letter });
    let mut cut: String = letters.take(LETTERS_MAX).collect();
    if text.chars().count() > LETTERS_MAX {
        cut += "...";
    }
    cut
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

#[cfg(test)]
mod tests {
    use tapline_meters::CostBasis;

    use super::*;

    fn run(title: &str, parts: usize, total: f64) -> Breakdown {
        (0..parts).fold(Breakdown::new(title, 1000, total, 1e9), |run, index| {
            run.with(&format!("component {index}"), 10.0 + index as f64, CostBasis::Timed)
        })
    }

    /// Heights of the rectangles of a colour that are as wide as a bar.
    fn heights(svg: &str, colour: RGBColor) -> Vec<f64> {
        let RGBColor(red, green, blue) = colour;
        let fill = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
        let number = |element: &str, name: &str| -> f64 {
            let (_, rest) = element.split_once(&format!(" {name}=\"")).expect("the attribute");
            rest.split('"').next().and_then(|value| value.parse().ok()).expect("a number")
        };
        let bars = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(&fill));
        let wide = bars.filter(|line| number(line, "width") > f64::from(SWATCH + 1));
        wide.map(|line| number(line, "height")).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_numbers() {
        let svg = picture(&[run("one", 2, 50.0), run("two", 2, 100.0)]).unwrap();
        let (first, second) = (heights(&svg, colour(0)), heights(&svg, colour(1)));
        assert_eq!((first.len(), second.len()), (2, 2), "{svg}");
        assert!((second[0] / first[0] - 1.1).abs() < 0.07, "11 cycles to 10: {first:?} {second:?}");
        assert!((first[0] - first[1]).abs() <= 1.0, "10 cycles in each: {first:?}");
    }

    #[test]
    fn the_smallest_of_many_are_drawn_together() {
        let layers = layers(&[run("x", 40, 5000.0)]);
        assert_eq!(layers.len(), COMPONENTS_MAX + 1);
        assert_eq!(layers[COMPONENTS_MAX - 1].name, "33 others");
        assert_eq!(layers[0].name, "component 33");
        let all: f64 = layers.iter().filter_map(|layer| layer.cycles[0]).sum();
        assert!((all - 5000.0).abs() < 1e-6, "every cycle is drawn");
    }

    #[test]
    fn odd_figures_are_drawn_too() {
        let none = Breakdown::new("x", 1, f64::NAN, 1.0);
        let endless = Breakdown::new("y", 1, f64::INFINITY, 1.0);
        let more = run("components come to more", 9, 20.0);
        for runs in [vec![], vec![none, endless], vec![more], vec![run("nothing", 0, 0.0)]] {
            assert!(picture(&runs).unwrap().ends_with("</svg>\n"));
        }
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let hostile =
            Breakdown::new("</svg><script>\u{1}", 1, 5.0, 1e9).with("\"a\" & b", 2.0, CostBasis::Kernel);
        let svg = picture(&[hostile]).unwrap();
        assert!(svg.contains("&lt;/svg&gt;&lt;script&gt;\u{fffd}"), "{svg}");
        assert!(svg.contains("&quot;a&quot; &amp; b"), "{svg}");
        assert_eq!(svg.matches("</svg>").count(), 1);
    }
}
