//! A table or figure of a document: the document's numbers, ours, and whether ours can be right.

use serde::{Deserialize, Serialize};

use super::rig::Rig;
use crate::spread::{Spread, number};

/// The share of the processors from which on other programs are mentioned.
const OTHERS_MIN: f64 = 0.05;

/// A table or figure of a document and how we measure it.
pub(super) struct Section {
    /// Name on the command line.
    pub(super) name: &'static str,
    /// Document, and the place in it.
    pub(super) document: &'static str,
    pub(super) place: &'static str,
    pub(super) title: &'static str,
    /// Conditions of the document's numbers.
    pub(super) conditions: &'static str,
    /// The change since then, and its reason.
    pub(super) change: &'static str,
    pub(super) measure: fn(&mut Rig<'_>) -> anyhow::Result<Findings>,
}

/// Everything that a section found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Conditions of our numbers.
    pub(super) conditions: String,
    pub(super) figures: Vec<Figure>,
    /// Parts that were not measured, with the reason.
    pub(super) left_out: Vec<String>,
    /// Accounts of our own programs that did not balance.
    pub(super) faults: Vec<String>,
}

/// Whether a value may be shown as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Measured,
    /// A difference whose error is greater than its value: the upper end of the interval.
    AtMost,
    /// A difference of nothing or less.
    NotMeasurable,
    /// Outside of the range in which such a value can be.
    NotPlausible,
    NotMeasured,
}

/// One number of the document and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    /// The row, and the group of bars in the chart: `64 bytes`.
    pub(super) row: String,
    /// The bars in each group: `first copy, cold`.
    pub(super) series: String,
    /// Unit of both numbers.
    pub(super) unit: String,
    pub(super) paper: Option<f64>,
    pub(super) ours: Option<Spread>,
    /// Ours is a difference of two measurements.
    pub(super) is_difference: bool,
    /// Least and most of what can be right.
    pub(super) plausible: [f64; 2],
    pub(super) verdict: Verdict,
}

impl Figure {
    /// A value that was measured by itself.
    pub(super) fn new(
        row: impl Into<String>,
        series: impl Into<String>,
        unit: &str,
        ours: Option<Spread>,
        plausible: [f64; 2],
    ) -> Figure {
        let mut figure = Figure {
            row: row.into(),
            series: series.into(),
            unit: unit.to_owned(),
            paper: None,
            ours,
            is_difference: false,
            plausible,
            verdict: Verdict::NotMeasured,
        };
        figure.verdict = figure.judge();
        figure
    }

    /// With the document's number, if it has one.
    #[must_use]
    pub(super) fn paper(mut self, value: impl Into<Option<f64>>) -> Figure {
        self.paper = value.into();
        self
    }

    /// As a difference of two measurements.
    #[must_use]
    pub(super) fn difference(mut self) -> Figure {
        self.is_difference = true;
        self.verdict = self.judge();
        self
    }

    fn judge(&self) -> Verdict {
        let [least, most] = self.plausible;
        match self.ours {
            None => Verdict::NotMeasured,
            Some(ours) if self.is_difference && ours.high <= 0.0 => Verdict::NotMeasurable,
            Some(ours) if self.is_difference && ours.low <= 0.0 && ours.high <= most => Verdict::AtMost,
            Some(ours) if (least..=most).contains(&ours.value) => Verdict::Measured,
            Some(_) => Verdict::NotPlausible,
        }
    }

    /// Our number in words.
    pub(super) fn shown(&self) -> String {
        let Some(ours) = self.ours else { return "not measured".to_owned() };
        match self.verdict {
            Verdict::Measured => number(ours.value),
            Verdict::AtMost => format!("at most {}", number(ours.high)),
            Verdict::NotMeasurable => "not measurable".to_owned(),
            Verdict::NotPlausible => format!("not plausible: {}", number(ours.value)),
            Verdict::NotMeasured => "not measured".to_owned(),
        }
    }

    /// Our interval, where the number is shown.
    pub(super) fn interval(&self) -> String {
        match (self.verdict, self.ours) {
            (Verdict::Measured, Some(ours)) => format!("{} to {}", number(ours.low), number(ours.high)),
            _ => String::new(),
        }
    }
}

/// A section that was measured; the report's JSON has these, and `--resume` reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SectionResult {
    pub(super) name: String,
    pub(super) document: String,
    pub(super) place: String,
    pub(super) title: String,
    /// Conditions of the document's numbers, and of ours.
    pub(super) paper_conditions: String,
    pub(super) our_conditions: String,
    pub(super) change: String,
    pub(super) figures: Vec<Figure>,
    pub(super) left_out: Vec<String>,
    pub(super) faults: Vec<String>,
    /// Time that it took.
    pub(super) seconds: f64,
    /// The least share of all processors that other programs had meanwhile; `None` if unknown.
    #[serde(default)]
    pub(super) others: Option<f64>,
}

impl SectionResult {
    pub(super) fn new(section: &Section, findings: Findings, seconds: f64) -> SectionResult {
        SectionResult {
            name: section.name.to_owned(),
            document: section.document.to_owned(),
            place: section.place.to_owned(),
            title: section.title.to_owned(),
            paper_conditions: section.conditions.to_owned(),
            our_conditions: findings.conditions,
            change: section.change.to_owned(),
            figures: findings.figures,
            left_out: findings.left_out,
            faults: findings.faults,
            seconds,
            others: None,
        }
    }

    /// A remark about other programs that ran meanwhile, if they had an effect.
    pub(super) fn others_remark(&self) -> Option<String> {
        let share = self.others.filter(|share| *share >= OTHERS_MIN)?;
        Some(format!(
            "other programs had at least {:.0} % of the processors meanwhile: rates, shares and costs of live traffic are \
             those of a machine that is loaded like that",
            100.0 * share
        ))
    }

    /// Whether there is a result that `--resume` can keep.
    pub(super) fn is_measured(&self) -> bool {
        self.figures.iter().any(|figure| figure.verdict != Verdict::NotMeasured)
    }

    /// Figures that cannot be right.
    pub(super) fn implausible(&self) -> usize {
        self.figures.iter().filter(|figure| figure.verdict == Verdict::NotPlausible).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, low: f64, high: f64) -> Figure {
        Figure::new("64 bytes", "copy", "cycles", Some(Spread { value, low, high }), [1.0, 1000.0])
    }

    #[test]
    fn values_that_cannot_be_right_are_named() {
        assert_eq!(figure(100.0, 90.0, 110.0).shown(), "100.0");
        assert_eq!(figure(100.0, 90.0, 110.0).interval(), "90.0 to 110.0");
        for (value, words) in [(-495.0, "not plausible: -495.0"), (0.0, "not plausible: 0.00")] {
            assert_eq!(figure(value, value, value).shown(), words);
        }
        assert_eq!(figure(12_311.0, 1.0, 13_000.0).verdict, Verdict::NotPlausible);
        assert_eq!(figure(f64::NAN, 0.0, 0.0).verdict, Verdict::NotPlausible);
        assert_eq!(Figure::new("", "", "", None, [0.0, 1.0]).shown(), "not measured");
    }

    #[test]
    fn other_programs_are_mentioned_when_they_count() {
        let section = &super::super::list::SECTIONS[0];
        let mut result = SectionResult::new(section, Findings::default(), 1.0);
        for (others, is_mentioned) in [(None, false), (Some(0.04), false), (Some(0.484), true)] {
            result.others = others;
            assert_eq!(result.others_remark().is_some_and(|text| text.contains(" 48 %")), is_mentioned);
        }
    }

    #[test]
    fn a_difference_below_its_error_has_no_number() {
        assert_eq!(figure(100.0, 90.0, 110.0).difference().shown(), "100.0");
        assert_eq!(figure(10.0, -20.0, 40.0).difference().shown(), "at most 40.0");
        assert_eq!(figure(-495.0, -600.0, -300.0).difference().shown(), "not measurable");
        assert_eq!(figure(5000.0, 4000.0, 6000.0).difference().shown(), "not plausible: 5,000");
    }
}
