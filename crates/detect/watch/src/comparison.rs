//! Comparisons of numbers of a flow: `bytes > 1M`.

use tapline_syntax::units;

use crate::key::Subject;

/// A number of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Packets,
    Bytes,
    /// In nanoseconds.
    Duration,
}

/// A comparison that a flow meets or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    number: Number,
    /// Greater than, or else less than.
    is_greater: bool,
    limit: u64,
}

impl Comparison {
    /// Parses `packets`, `bytes` or `duration`, then `>` or `<`, then a number with its unit.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn parse(text: &str) -> Result<Comparison, String> {
        let form =
            || format!("`{text}` is not a comparison: write bytes > 1M, packets < 3 or duration > 10s");
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, sign @ (">" | "<"), limit] = words.as_slice() else { return Err(form()) };
        let (number, limit) = match *name {
            "packets" => (Number::Packets, units::count(limit)),
            "bytes" => (Number::Bytes, units::size(limit)),
            "duration" => (Number::Duration, units::nanoseconds(limit)),
            _ => return Err(form()),
        };
        let limit = limit.map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Comparison { number, is_greater: *sign == ">", limit })
    }

    /// Whether the subject meets it.
    pub fn holds(&self, subject: &Subject) -> bool {
        let value = match self.number {
            Number::Packets => subject.packets,
            Number::Bytes => subject.bytes,
            Number::Duration => subject.duration_ns,
        };
        if self.is_greater { value > self.limit } else { value < self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units() {
        let flow = Subject { packets: 3, bytes: 2_000_000, duration_ns: 5_000_000_000, ..Subject::default() };
        let holds = |text: &str| Comparison::parse(text).unwrap().holds(&flow);
        assert!(holds("bytes > 1M") && holds("packets < 4") && holds("duration > 4.5s"));
        assert!(!holds("bytes > 2M") && !holds("packets > 3") && !holds("duration < 1s"));
        assert!(Comparison::parse("bytes >= 3").unwrap_err().contains("bytes > 1M"));
    }
}
