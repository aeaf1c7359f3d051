//! A strip: a chart of one line, and losses marked under it.

use super::numbers::rate;
use super::{Line, Look};

const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of the words to the right of a strip.
pub(super) const BESIDE: usize = 30;

/// Two lines: values with their maximum, and losses. The last value is at the right.
pub(super) fn strips(values: &[f64], lost: &[f64], unit: &str, columns: usize, is_ascii: bool) -> Vec<Line> {
    let tail = |all: &[f64]| all[all.len().saturating_sub(columns)..].to_vec();
    let (values, lost) = (tail(values), tail(lost));
    let most = values.iter().copied().fold(0.0, f64::max);
    let chart: String = values.iter().map(|value| level(*value, most, is_ascii)).collect();
    let marks: String = lost.iter().map(|lost| if *lost > 0.0 { '!' } else { '.' }).collect();
    let has_lost = lost.iter().any(|lost| *lost > 0.0);
    vec![
        Line::plain(format!("{:<10}{chart:>columns$}  max {}", unit, rate(most, unit))),
        Line::new(if has_lost { Look::Bad } else { Look::Faint }, format!("{:<10}{marks:>columns$}", "lost")),
    ]
}

/// The letter of a value. Whatever is not zero can be seen.
fn level(value: f64, most: f64, is_ascii: bool) -> char {
    let letters = if is_ascii { ASCII } else { BLOCKS };
    if value <= 0.0 || most <= 0.0 {
        return letters[0];
    }
    letters[((value / most * 8.0).ceil() as usize).clamp(1, 8)]
}

/// Points put into columns by their time: sums of rates are means, losses are added. Columns without a point are empty.
pub(super) fn columns(
    t: &[u64],
    values: &[f64],
    lost: &[i64],
    (from, to): (u64, u64),
    columns: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut counts, mut losses) = (vec![0.0; columns], vec![0.0; columns], vec![0.0; columns]);
    for ((at, value), lost) in t.iter().zip(values).zip(lost) {
        let place = at.saturating_sub(from) * columns as u64 / (to - from).max(1);
        if let Some(place) = usize::try_from(place).ok().filter(|place| *place < columns) {
            sums[place] += value;
            counts[place] += 1.0;
            losses[place] += *lost as f64;
        }
    }
    let means = sums.iter().zip(&counts).map(|(sum, count)| if *count > 0.0 { sum / count } else { 0.0 });
    (means.collect(), losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_marks_where_packets_were_lost() {
        let lines = strips(&[0.0, 1.0, 4.0, 8.0], &[0.0, 0.0, 2.0, 0.0], "bit/s", 6, true);
        assert_eq!(lines[0].text, "bit/s        .=@  max 8 bit/s");
        assert_eq!(lines[1].text, "lost        ..!.");
        assert_eq!(lines[1].look, Look::Bad);
    }

    #[test]
    fn points_stand_at_their_time() {
        let (means, losses) =
            columns(&[100, 150, 190, 500], &[2.0, 4.0, 6.0, 9.0], &[0, 1, 1, 1], (100, 200), 2);
        assert_eq!((means, losses), (vec![2.0, 5.0], vec![0.0, 2.0]));
    }
}
