//! Charts for the report: groups of bars with whiskers, as SVG inside the page.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{colour, short};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 340;
/// Share of a group's width that its bars take.
const FILLED: f64 = 0.84;
/// Where the greatest value is more than so many times the least, small bars would not be seen: the axis is logarithmic.
const LINEAR_RATIO: f64 = 200.0;

/// One bar: its height, and the least and most of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Groups of bars, one bar of each series in each group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bars {
    pub(crate) unit: String,
    pub(crate) groups: Vec<String>,
    /// Names, and a bar for each group where there is one.
    pub(crate) series: Vec<(String, Vec<Option<Bar>>)>,
    /// The axis ends here at least.
    pub(crate) top: f64,
}

impl Bars {
    /// Puts a bar of a series into a group; both are made where they are new.
    pub(crate) fn put(&mut self, group: &str, series: &str, bar: Bar) {
        let group = self.groups.iter().position(|known| known == group).unwrap_or_else(|| {
            self.groups.push(group.to_owned());
            self.groups.len() - 1
        });
        let at = self.series.iter().position(|(known, _)| known == series).unwrap_or_else(|| {
            self.series.push((series.to_owned(), Vec::new()));
            self.series.len() - 1
        });
        let bars = &mut self.series[at].1;
        bars.resize(bars.len().max(group + 1), None);
        bars[group] = Some(bar);
    }

    /// Cuts long names of groups, such as filters: they would run into each other.
    pub(crate) fn cut_names(&mut self) {
        let room = 110 / self.groups.len().max(1);
        for group in self.groups.iter_mut().filter(|group| group.chars().count() > room) {
            *group = group.chars().take(room.saturating_sub(1)).chain(['…']).collect();
        }
    }

    /// The legend: names of series, and their colours as HTML has them.
    pub(crate) fn legend(&self) -> impl Iterator<Item = (&str, String)> {
        self.series.iter().enumerate().map(|(at, (name, _))| {
            let RGBColor(red, green, blue) = colour(at);
            (name.as_str(), format!("#{red:02x}{green:02x}{blue:02x}"))
        })
    }

    /// The picture, without a legend.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(crate) fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| anyhow!("drawing: {error}"))?;
        Ok(svg)
    }

    fn axis(&self) -> Axis {
        let bars = || self.series.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let top = bars().map(|bar| bar.most.max(bar.value)).fold(self.top, f64::max);
        let least = bars().map(|bar| bar.value).fold(f64::INFINITY, f64::min);
        if least > 0.0 && top > least * LINEAR_RATIO {
            Axis::Logarithmic { least: least.log10().floor(), most: top.log10().ceil() }
        } else {
            Axis::Linear { most: if top > 0.0 { top * 1.05 } else { 1.0 } }
        }
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let axis = self.axis();
        let Range { start, end } = axis.range();
        let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(28)
            .y_label_area_size(78)
            .build_cartesian_2d(0.0..self.groups.len() as f64, start..end)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(self.unit.as_str())
            .y_labels(6)
            .max_light_lines(0)
            .y_label_formatter(&|height| short(axis.value(*height)))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 13))
            .draw()?;
        let width = FILLED / self.series.len().max(1) as f64;
        for (at, (_, bars)) in self.series.iter().enumerate() {
            let shapes = bars.iter().enumerate().filter_map(|(group, bar)| {
                let left = group as f64 + (1.0 - FILLED) / 2.0 + at as f64 * width;
                bar.map(|bar| (left, bar))
            });
            let shapes: Vec<(f64, Bar)> = shapes.collect();
            chart.draw_series(shapes.iter().map(|&(left, bar)| {
                let right = left + width * 0.92;
                Rectangle::new([(left, start), (right, axis.height(bar.value))], colour(at).filled())
            }))?;
            chart.draw_series(shapes.iter().map(|&(left, bar)| {
                let middle = left + width * 0.46;
                let ends = [bar.least, bar.most].map(|value| (middle, axis.height(value)));
                PathElement::new(ends, BLACK.stroke_width(1))
            }))?;
        }
        let style = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, start));
            area.draw(&Text::new(name.as_str(), (x, y + 8), style.clone()))?;
        }
        area.present()?;
        Ok(())
    }
}

/// The vertical axis: heights are values, or their powers of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Axis {
    Linear { most: f64 },
    Logarithmic { least: f64, most: f64 },
}

impl Axis {
    fn range(self) -> Range<f64> {
        match self {
            Axis::Linear { most } => 0.0..most,
            Axis::Logarithmic { least, most } => least..most,
        }
    }

    fn height(self, value: f64) -> f64 {
        match self {
            Axis::Linear { .. } => value,
            Axis::Logarithmic { least, .. } => value.log10().max(least),
        }
    }

    fn value(self, height: f64) -> f64 {
        match self {
            Axis::Linear { .. } => height,
            Axis::Logarithmic { .. } => 10_f64.powf(height),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_and_named() {
        let bar = |value: f64| Bar { value, least: value * 0.9, most: value * 1.1 };
        let mut bars = Bars { unit: "packets a second".to_owned(), ..Bars::default() };
        bars.put("60", "ours", bar(2e6));
        bars.put("1514", "theirs <&>", bar(1e6));
        bars.put("1514", "ours", bar(1e6));
        assert_eq!(bars.series[1].1, [None, Some(bar(1e6))]);
        let svg = bars.svg().unwrap();
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        for text in ["60", "1514", "packets a second"] {
            assert!(svg.contains(text), "{text}");
        }
        let legend: Vec<_> = bars.legend().collect();
        assert_eq!(legend[1], ("theirs <&>", "#e69f00".to_owned()));
    }

    #[test]
    fn small_bars_are_seen_next_to_large_ones() {
        let bar = |value: f64| Bar { value, least: 0.0, most: value };
        let mut bars = Bars::default();
        bars.put("a filter", "ours", bar(12.0));
        bars.put("a packet", "ours", bar(2_000.0));
        assert_eq!(bars.axis(), Axis::Linear { most: 2_100.0 });
        bars.put("a wake-up", "ours", bar(84_240.0));
        let axis = bars.axis();
        assert_eq!(axis, Axis::Logarithmic { least: 1.0, most: 5.0 });
        assert_eq!([axis.height(100.0), axis.height(0.0), axis.value(3.0)], [2.0, 1.0, 1000.0]);
        assert!(bars.svg().unwrap().contains("100k"));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(Bars::default().svg().unwrap().contains("<svg"));
    }
}
