//! Samples of the families, and the two forms of text: OpenMetrics 1.0 and Prometheus' exposition format 0.0.4.
//!
//! ```text
//! # TYPE tapline_stage_batches counter           # TYPE tapline_stage_batches_total counter
//! # HELP tapline_stage_batches Batches ...       # HELP tapline_stage_batches_total Batches ...
//! tapline_stage_batches_total{stage="web"} 12    tapline_stage_batches_total{stage="web"} 12
//! # EOF
//! ```
//!
//! The forms differ in the name of a counter in its description, in `UNIT`, in the type `info`, and in the end. A
//! library of Prometheus clients keeps counters of its own and has one of the two forms; here all counters belong to
//! other processes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::family::{FAMILIES, Family, FamilyKind, position};

/// A form of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' exposition format, version 0.0.4.
    Prometheus,
}

impl Format {
    /// Content type for HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Integer(u64),
    Float(f64),
}

/// The samples of one moment.
#[derive(Clone, Debug)]
pub struct Exposition {
    /// By family: label values in the family's order, and the number.
    samples: Vec<BTreeMap<Vec<String>, Number>>,
}

impl Default for Exposition {
    fn default() -> Exposition {
        Exposition { samples: vec![BTreeMap::new(); FAMILIES.len()] }
    }
}

impl Exposition {
    /// No samples.
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// Adds a count to a family, under its labels' values. A second one under the same values is added to the first.
    ///
    /// # Panics
    /// If there is no such family, or it has another number of labels.
    pub fn count(&mut self, family: &str, labels: &[&str], count: u64) {
        self.add(family, labels, Number::Integer(count));
    }

    /// As [`count`](Self::count), for a number with a fraction.
    ///
    /// # Panics
    /// If there is no such family, or it has another number of labels.
    pub fn number(&mut self, family: &str, labels: &[&str], number: f64) {
        self.add(family, labels, Number::Float(number));
    }

    /// The samples in all families.
    pub fn len(&self) -> usize {
        self.samples.iter().map(BTreeMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, family: &str, labels: &[&str], number: Number) {
        let at = position(family).unwrap_or_else(|| panic!("no family {family}"));
        assert_eq!(FAMILIES[at].labels.len(), labels.len(), "{family}");
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let sum = self.samples[at].entry(labels).or_insert(Number::Integer(0));
        *sum = match (*sum, number) {
            (Number::Integer(a), Number::Integer(b)) => Number::Integer(a.saturating_add(b)),
            (a, b) => Number::Float(a.float() + b.float()),
        };
    }

    /// The text. Families without samples are left out.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for (family, samples) in FAMILIES.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty())
        {
            head(&mut text, family, format);
            for (labels, number) in samples {
                text += &family.sample_name();
                labels_text(&mut text, family.labels, labels);
                let _ = match number {
                    Number::Integer(count) => writeln!(text, " {count}"),
                    Number::Float(number) => writeln!(text, " {number}"),
                };
            }
        }
        if format == Format::OpenMetrics {
            text += "# EOF\n";
        }
        text
    }
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Integer(count) => count as f64,
            Number::Float(number) => number,
        }
    }
}

fn head(text: &mut String, family: &Family, format: Format) {
    let (name, kind) = match (format, family.kind) {
        (Format::OpenMetrics, kind) => (family.name.to_owned(), kind.name()),
        (Format::Prometheus, FamilyKind::Info) => (family.sample_name(), FamilyKind::Gauge.name()),
        (Format::Prometheus, kind) => (family.sample_name(), kind.name()),
    };
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if format == Format::OpenMetrics && !family.unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {}", family.unit);
    }
    let _ = writeln!(text, "# HELP {name} {}", family.help);
}

fn labels_text(text: &mut String, names: &[&str], values: &[String]) {
    for (at, (name, value)) in names.iter().zip(values).enumerate() {
        text.push(if at == 0 { '{' } else { ',' });
        let _ = write!(text, "{name}=\"{}\"", escaped(value));
    }
    if !names.is_empty() {
        text.push('}');
    }
}

/// A label's value: names of interfaces, files and programs come from strangers.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition() -> Exposition {
        let mut exposition = Exposition::new();
        exposition.count("tapline_build", &["0.2"], 1);
        exposition.count("tapline_stage_batches", &["capture", "7", "a\"b\\c\nd", "filter"], 12);
        exposition.count("tapline_stage_batches", &["capture", "7", "a\"b\\c\nd", "filter"], 1);
        exposition.number("tapline_stage_cpu_seconds", &["capture", "7", "web", "filter"], 0.25);
        exposition
    }

    #[test]
    fn both_forms_of_text_have_their_names() {
        let text = exposition().text(Format::OpenMetrics);
        for line in [
            "# TYPE tapline_build info",
            "tapline_build_info{version=\"0.2\"} 1",
            "# TYPE tapline_stage_batches counter",
            "# UNIT tapline_stage_cpu_seconds seconds",
            "tapline_stage_cpu_seconds_total{command=\"capture\",meter=\"7\",stage=\"web\",class=\"filter\"} 0.25",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let text = exposition().text(Format::Prometheus);
        assert!(text.contains("# TYPE tapline_stage_batches_total counter\n"), "{text}");
        assert!(
            text.contains("# TYPE tapline_build_info gauge\n")
                && !text.contains("EOF")
                && !text.contains("UNIT")
        );
    }

    #[test]
    fn equal_labels_are_one_sample() {
        let text = exposition().text(Format::Prometheus);
        let sample = r#"tapline_stage_batches_total{command="capture",meter="7",stage="a\"b\\c\nd",class="filter"} 13"#;
        assert!(text.lines().any(|line| line == sample), "{text}");
        assert_eq!(exposition().len(), 3);
    }
}
