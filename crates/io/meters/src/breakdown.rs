//! Cost of a packet by component, compared with the measured total: the table of a profile.
//!
//! ```text
//! total        measured by itself: cycles of the processors, over packets
//! components   each measured in its own way, which is said beside it
//! unexplained  total - sum of the components; below zero if components overlap
//! ```

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::Error;

tapline_packet::named_enum! {
    /// Basis of a component's cost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum CostBasis {
        /// The clock was read before and after, in each batch.
        Timed = "timed",
        /// The kernel's own statistics.
        Kernel = "kernel statistics",
        /// With it less without it: two measurements.
        Difference = "by difference",
        /// Unit cost, measured apart, times the number of units.
        Counted = "count times cost",
    }
}

/// One part of the cost of a packet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Component {
    /// Class of the stage: `filter`.
    pub name: String,
    /// Cycles a packet, over all packets of the run, also those that this component never saw.
    pub cycles: f64,
    /// Basis of the cost.
    pub how: CostBasis,
    /// Half of the interval of a difference, in cycles.
    #[serde(default)]
    pub error: Option<f64>,
    /// The most that a difference can be whose error is greater than its value; 0 if it is below its error.
    #[serde(default)]
    pub at_most: Option<f64>,
}

impl Component {
    /// The cost in words: a number, or an upper bound for a difference below its error.
    fn shown(&self) -> String {
        match self.at_most {
            None => format!("{:.1}", self.cycles),
            Some(most) if most > 0.0 => format!("at most {most:.1}"),
            Some(_) => "not measurable".to_owned(),
        }
    }
}

/// Cost of a packet in one run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Breakdown {
    /// Title of the run: `AF_PACKET, filter in the kernel`.
    pub title: String,
    /// Packets over which the means were taken.
    pub packets: u64,
    /// Cycles a packet in all, measured by itself.
    pub total_cycles: f64,
    /// Ticks of the clock in a second, by which cycles become nanoseconds.
    pub frequency_hz: f64,
    /// The parts, in the order of a packet's way.
    pub components: Vec<Component>,
}

impl Breakdown {
    /// Without components yet.
    pub fn new(title: &str, packets: u64, total_cycles: f64, frequency_hz: f64) -> Breakdown {
        Breakdown { title: title.to_owned(), packets, total_cycles, frequency_hz, components: Vec::new() }
    }

    /// With one more component.
    #[must_use]
    pub fn with(mut self, name: &str, cycles: f64, how: CostBasis) -> Breakdown {
        self.components.push(Component { name: name.to_owned(), cycles, how, error: None, at_most: None });
        self
    }

    /// With a component that is the difference of two measurements, known to `error` cycles. It costs nothing or more:
    /// a difference below zero counts as zero in the sum.
    #[must_use]
    pub fn with_difference(mut self, name: &str, cycles: f64, error: f64) -> Breakdown {
        let at_most = (cycles <= error).then(|| (cycles + error).max(0.0));
        self.components.push(Component {
            name: name.to_owned(),
            cycles: cycles.max(0.0),
            how: CostBasis::Difference,
            error: Some(error),
            at_most,
        });
        self
    }

    /// The sum of the components, in cycles a packet.
    pub fn explained_cycles(&self) -> f64 {
        self.components.iter().map(|component| component.cycles).sum()
    }

    /// The total without its components, in cycles a packet; negative if these come to more.
    pub fn unexplained_cycles(&self) -> f64 {
        self.total_cycles - self.explained_cycles()
    }

    /// Share of `cycles` in the total; `None` without a total.
    pub fn share(&self, cycles: f64) -> Option<f64> {
        (self.total_cycles > 0.0).then(|| cycles / self.total_cycles)
    }

    /// `cycles` in nanoseconds; `None` without a frequency.
    pub fn nanos(&self, cycles: f64) -> Option<f64> {
        (self.frequency_hz > 0.0).then(|| cycles * 1e9 / self.frequency_hz)
    }

    /// The table, a line for each component.
    ///
    /// ```
    /// use tapline_meters::{Breakdown, CostBasis};
    /// let run = Breakdown::new("file, 64 bytes", 1000, 50.0, 2e9).with("read", 30.0, CostBasis::Timed).with("filter", 15.0, CostBasis::Timed);
    /// assert_eq!(run.to_text(), "\
    /// file, 64 bytes: 1000 packets
    ///
    /// component    cycles/packet   ns/packet   share  how
    /// read                  30.0        15.0   60.0%  timed
    /// filter                15.0         7.5   30.0%  timed
    /// unexplained            5.0         2.5   10.0%
    /// total                 50.0        25.0  100.0%
    /// ");
    /// ```
    pub fn to_text(&self) -> String {
        let rows = self.rows();
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let cost_width = rows.iter().map(|row| row.cost.len()).chain([13]).max().unwrap_or(0);
        let mut text = format!("{}: {} packets\n\n", self.title, self.packets);
        text += &format!(
            "{:width$}  {:>cost_width$}  {:>10}  {:>6}  how\n",
            "component", "cycles/packet", "ns/packet", "share"
        );
        for Row { name, cost, cycles, how } in rows {
            let number = |value: Option<String>| match cycles {
                None => "-".to_owned(),
                Some(_) => value.unwrap_or_else(|| "unknown".to_owned()),
            };
            let nanos = number(self.nanos(cycles.unwrap_or(0.0)).map(|nanos| format!("{nanos:.1}")));
            let share =
                number(self.share(cycles.unwrap_or(0.0)).map(|share| format!("{:.1}%", share * 100.0)));
            let line = format!("{name:width$}  {cost:>cost_width$}  {nanos:>10}  {share:>6}  {how}");
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Components, the unexplained part, and the total.
    fn rows(&self) -> Vec<Row<'_>> {
        let parts = self.components.iter().map(|part| Row {
            name: &part.name,
            cost: part.shown(),
            cycles: part.at_most.is_none().then_some(part.cycles),
            how: match part.error {
                Some(error) => format!("{}, error {error:.1}", part.how.name()),
                None => part.how.name().to_owned(),
            },
        });
        let sums = [("unexplained", self.unexplained_cycles()), ("total", self.total_cycles)].map(
            |(name, cycles)| Row {
                name,
                cost: format!("{cycles:.1}"),
                cycles: Some(cycles),
                how: String::new(),
            },
        );
        parts.chain(sums).collect()
    }

    /// The breakdown as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written as JSON")
    }

    /// Reads the output of [`to_json`](Self::to_json). Unknown members are ignored.
    ///
    /// # Errors
    /// [`Error::Profile`] if it is something else.
    pub fn from_json(text: &str) -> Result<Breakdown, Error> {
        serde_json::from_str(text).map_err(|error| Error::Profile { reason: error.to_string() })
    }

    /// Cycles a packet of the component `name`.
    pub fn cycles_of(&self, name: &str) -> Option<f64> {
        let mut found = self.components.iter().filter(|part| part.name == name).peekable();
        found.peek()?;
        Some(found.map(|part| part.cycles).sum())
    }
}

/// Two runs side by side: each component in both, and the change.
pub fn compare(before: &Breakdown, after: &Breakdown) -> String {
    let names = component_names(&[before, after]);
    let width = names.iter().map(|name| name.chars().count()).chain(["unexplained".len()]).max().unwrap_or(0);
    let mut text = format!(
        "before: {}, {} packets\nafter:  {}, {} packets\n\n",
        before.title, before.packets, after.title, after.packets
    );
    text += &format!(
        "{:width$}  {:>10}  {:>10}  {:>10}  {:>7}   (cycles/packet)\n",
        "component", "before", "after", "change", "ratio"
    );
    let mut row = |name: &str, before: Option<f64>, after: Option<f64>| {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let change = after.unwrap_or(0.0) - before.unwrap_or(0.0);
        let ratio = before.zip(after).filter(|(before, after)| *before > 0.0 && *after > 0.0);
        let ratio = ratio.map_or("-".to_owned(), |(before, after)| format!("{:.2}x", before / after));
        let (before, after) = (number(before), number(after));
        text += &format!("{name:width$}  {before:>10}  {after:>10}  {change:>+10.1}  {ratio:>7}\n");
    };
    for name in names {
        row(name, before.cycles_of(name), after.cycles_of(name));
    }
    row("unexplained", Some(before.unexplained_cycles()), Some(after.unexplained_cycles()));
    row("total", Some(before.total_cycles), Some(after.total_cycles));
    text
}

/// The names of all components: the order of the first run; components that only later runs have follow their
/// predecessor there.
pub fn component_names<'a>(runs: &[&'a Breakdown]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        let mut place = 0;
        for part in &run.components {
            match names.iter().position(|name| *name == part.name) {
                Some(known) => place = place.max(known + 1),
                None => {
                    names.insert(place, &part.name);
                    place += 1;
                }
            }
        }
    }
    names
}

impl Serialize for Breakdown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = |part: &Component| CostShare {
            name: part.name.clone(),
            cycles: part.cycles,
            ns: self.nanos(part.cycles),
            share: self.share(part.cycles),
            how: part.how,
            error: part.error,
            at_most: part.at_most,
        };
        let unexplained = self.unexplained_cycles();
        let mut object = serializer.serialize_struct("Breakdown", 9)?;
        object.serialize_field("title", &self.title)?;
        object.serialize_field("packets", &self.packets)?;
        object.serialize_field("frequency_hz", &self.frequency_hz)?;
        object.serialize_field("total_cycles", &self.total_cycles)?;
        object.serialize_field("total_ns", &self.nanos(self.total_cycles))?;
        object.serialize_field("explained_cycles", &self.explained_cycles())?;
        object.serialize_field("unexplained_cycles", &unexplained)?;
        object.serialize_field("unexplained_share", &self.share(unexplained))?;
        object.serialize_field("components", &self.components.iter().map(part).collect::<Vec<_>>())?;
        object.end()
    }
}

/// A line of the table.
struct Row<'a> {
    name: &'a str,
    cost: String,
    /// `None` for a difference below its error.
    cycles: Option<f64>,
    how: String,
}

#[derive(Serialize)]
struct CostShare {
    name: String,
    cycles: f64,
    ns: Option<f64>,
    share: Option<f64>,
    how: CostBasis,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> [Breakdown; 2] {
        let run = |title: &str, total| Breakdown::new(title, 148_809, total, 0.0);
        [
            run("before", 5680.0)
                .with("interrupt", 54.0, CostBasis::Kernel)
                .with("tap", 830.0, CostBasis::Difference)
                .with("timestamp", 1800.0, CostBasis::Timed),
            run("after", 3164.0)
                .with("interrupt", 54.0, CostBasis::Kernel)
                .with("driver", 1497.0, CostBasis::Kernel)
                .with("timestamp", 270.0, CostBasis::Timed),
        ]
    }

    #[test]
    fn unexplained_time_is_shown() {
        let [before, _] = paper();
        assert_eq!(before.explained_cycles(), 2684.0);
        assert_eq!(before.unexplained_cycles(), 2996.0);
        assert!(before.to_text().contains("unknown"), "no frequency, no nanoseconds");
        let value: serde_json::Value = serde_json::from_str(&before.to_json()).expect("JSON");
        assert_eq!(value["unexplained_cycles"], 2996.0);
        assert_eq!(value["components"][1]["how"], "difference");
        assert!(value["total_ns"].is_null());
        assert_eq!(Breakdown::from_json(&before.to_json()).expect("our own"), before);
        assert!(Breakdown::from_json("{}").is_err_and(|error| error.to_string().contains("title")));
    }

    #[test]
    fn a_difference_below_its_error_is_no_number() {
        let run = |cycles| Breakdown::new("x", 1, 100.0, 1e9).with_difference("tap and copy", cycles, 20.0);
        let text = |cycles| run(cycles).to_text();
        assert!(text(40.0).contains("40.0        40.0   40.0%  by difference, error 20.0"), "{}", text(40.0));
        assert!(text(15.0).contains("at most 35.0           -       -  by difference"), "{}", text(15.0));
        assert!(text(-495.0).contains("not measurable"), "{}", text(-495.0));
        assert_eq!(run(-495.0).unexplained_cycles(), 100.0, "no cost is negative");
        for cycles in [40.0, 15.0, -495.0] {
            assert_eq!(Breakdown::from_json(&run(cycles).to_json()).expect("our own"), run(cycles));
        }
    }

    #[test]
    fn components_that_overlap_leave_less_than_nothing() {
        let run = Breakdown::new("x", 1, 10.0, 1e9).with("a", 8.0, CostBasis::Timed).with(
            "b",
            4.0,
            CostBasis::Timed,
        );
        assert_eq!(run.unexplained_cycles(), -2.0);
        assert!(run.to_text().contains("-20.0%"));
    }

    #[test]
    fn runs_stand_side_by_side() {
        let [before, after] = paper();
        assert_eq!(component_names(&[&before, &after]), ["interrupt", "driver", "tap", "timestamp"]);
        let text = compare(&before, &after);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
        assert_eq!(
            line("timestamp").split_whitespace().collect::<Vec<_>>()[1..],
            ["1800.0", "270.0", "-1530.0", "6.67x"]
        );
        assert_eq!(
            line("driver").split_whitespace().collect::<Vec<_>>()[1..],
            ["-", "1497.0", "+1497.0", "-"]
        );
        assert_eq!(line("total").split_whitespace().collect::<Vec<_>>()[4], "1.80x");
    }
}
