//! Colours, fonts and numbers of all charts.

use plotters::prelude::*;

/// Colours that the colour-blind can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];

/// Height of letters, in pixels.
pub(crate) const FONT_HEIGHT: i32 = 13;

pub(crate) fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// A number on an axis: `1.25k`, `3M`.
pub(crate) fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_short() {
        assert_eq!(
            ["0", "0.5", "40", "1.25k", "3M"],
            [0.0, 0.5, 40.0, 1250.0, 3e6].map(short).each_ref().map(String::as_str)
        );
    }
}
