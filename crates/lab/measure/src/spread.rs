//! A value with its interval: the median of repeated measurements, and how far it may be from the truth.

use serde::{Deserialize, Serialize};

use crate::runs::median;

/// Below this number of values the interval is from the least to the most.
const FEW: usize = 6;

/// The median of repeated measurements and an interval that holds the true median in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Spread {
    /// The median of `values` with its interval, which is between two of the values: no distribution is assumed.
    /// `None` without values, or if one of them is not a number.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        if !first.is_finite() || !last.is_finite() {
            return None;
        }
        let count = sorted.len();
        // Ranks of the interval: the number of values below the median is binomial.
        let off = (0.98 * (count as f64).sqrt()).ceil() as usize;
        let below = (count / 2).saturating_sub(off);
        let (low, high) = match count {
            0..FEW => (first, last),
            _ => (sorted[below], sorted[(count - 1).saturating_sub(below)]),
        };
        Some(Spread { value: median(sorted.iter().copied()), low, high })
    }

    /// The difference. Its interval has the errors of both.
    #[must_use]
    pub fn minus(self, other: Spread) -> Spread {
        Spread { value: self.value - other.value, low: self.low - other.high, high: self.high - other.low }
    }

    /// `factor`, 0 or more, times all three.
    #[must_use]
    pub fn times(self, factor: f64) -> Spread {
        Spread { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Half of the interval's length.
    pub fn error(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// A difference in words: its value, or an upper bound where the error is greater than the value.
    ///
    /// ```
    /// use tapline_measure::spread::Spread;
    /// assert_eq!(Spread { value: 40.0, low: 31.0, high: 52.0 }.difference("ns"), "40.0 ns [31.0, 52.0]");
    /// assert_eq!(Spread { value: -1.0, low: -5.0, high: 3.0 }.difference("ns"), "at most 3.00 ns");
    /// assert_eq!(Spread { value: -4.0, low: -5.0, high: -3.0 }.difference("ns"), "not measurable");
    /// ```
    pub fn difference(self, unit: &str) -> String {
        match (self.low, self.high) {
            (low, high) if low > 0.0 => {
                format!("{} {unit} [{}, {}]", number(self.value), number(low), number(high))
            }
            (_, high) if high > 0.0 => format!("at most {} {unit}", number(high)),
            _ => "not measurable".to_owned(),
        }
    }
}

/// Three digits or more: `0.0123`, `4.56`, `78.9`, `1,234`.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", tapline_graph::grouped(size.round() as u64))
        }
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_median_and_narrow() {
        let width = |count: u32| {
            let values: Vec<f64> =
                (0..count).map(|at| f64::from(at * 7919 % count) / f64::from(count)).collect();
            let spread = Spread::of(&values).expect("values");
            assert!(spread.low <= spread.value && spread.value <= spread.high, "{spread:?}");
            spread.error()
        };
        assert!(width(10_000) < width(100) / 5.0 && width(100) < width(11));
        assert_eq!(Spread::of(&[3.0, 1.0]), Some(Spread { value: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!((Spread::of(&[]), Spread::of(&[1.0, f64::NAN])), (None, None));
    }

    #[test]
    fn one_wild_value_moves_nothing() {
        let mut values = vec![10.0; 101];
        values[50] = 1e9;
        assert_eq!(Spread::of(&values), Some(Spread { value: 10.0, low: 10.0, high: 10.0 }));
    }

    #[test]
    fn errors_of_a_difference_add_up() {
        let (one, other) =
            (Spread { value: 9.0, low: 8.0, high: 10.0 }, Spread { value: 4.0, low: 3.0, high: 6.0 });
        assert_eq!(one.minus(other), Spread { value: 5.0, low: 2.0, high: 7.0 });
        assert_eq!(one.minus(other).times(2.0).error(), 5.0);
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 0.0123, 4.561, 78.94, -1234.4, 1e6].map(number);
        assert_eq!(texts, ["0.00", "0.0123", "4.56", "78.9", "-1,234", "1,000,000"]);
    }
}
