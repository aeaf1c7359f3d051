//! Snapshots of a stage's counters: sums over workers, differences, means, percentiles, JSON.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::histogram::Histogram;
use crate::layout::{EXTRAS_MAX, Kind, SLOT_WORDS, SlotState, Tag, slot, text_of};

/// Value of a further counter that means that the number cannot be known.
pub const UNKNOWN: u64 = u64::MAX;

/// The counters of one stage, source, sink or interface at one moment.
///
/// Its JSON has all fields, and `cycles_per_packet` with `mean`, `p50`, `p90`, `p99` (null without packets).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of the stage in its graph: `web`.
    pub name: String,
    /// Class of the stage: `filter`.
    pub class: String,
    /// Whether it is a stage, a source, a sink or an interface.
    pub kind: Kind,
    /// Whether the stage still runs.
    pub state: SlotState,
    /// The stage's worker; the first one's after a merge.
    pub worker: u16,
    /// Number of earlier uses of the slot in the file.
    pub generation: u32,
    /// Start time, in nanoseconds since 1970 UTC.
    pub since_ns: u64,
    /// Batches received.
    pub batches: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Bytes received, by length on the wire.
    pub bytes_in: u64,
    /// Packets handed on, summed over all outputs.
    pub packets_out: u64,
    /// Bytes handed on, by length on the wire.
    pub bytes_out: u64,
    /// Cycles of the stage without its successors: ticks of the process's [`Clock`](crate::Clock).
    pub cycles: u64,
    /// Packets by their cost in cycles.
    pub histogram: Histogram,
    /// Further counters, by name.
    pub extras: Vec<(String, u64)>,
}

impl Snapshot {
    /// Decodes the words of a slot; `None` if they are not a valid slot.
    pub(crate) fn of_words(words: &[u64; SLOT_WORDS]) -> Option<Snapshot> {
        let tag = Tag::of_word(words[slot::TAG])?;
        let text = |range: std::ops::Range<usize>| text_of(words[range].iter().copied());
        let extras = (0..EXTRAS_MAX)
            .map(|index| slot::EXTRAS + index * slot::EXTRA_WORDS)
            .map(|place| (text(place..place + slot::EXTRA_NAME_WORDS), words[place + slot::EXTRA_NAME_WORDS]))
            .take_while(|(name, _)| !name.is_empty())
            .collect();
        let mut histogram = Histogram::default();
        histogram.packets.copy_from_slice(&words[slot::HISTOGRAM]);
        Some(Snapshot {
            name: text(slot::NAME),
            class: text(slot::CLASS),
            kind: tag.kind,
            state: tag.state,
            worker: tag.worker,
            generation: tag.generation,
            since_ns: words[slot::SINCE],
            batches: words[slot::BATCHES],
            packets_in: words[slot::PACKETS_IN],
            bytes_in: words[slot::BYTES_IN],
            packets_out: words[slot::PACKETS_OUT],
            bytes_out: words[slot::BYTES_OUT],
            cycles: words[slot::CYCLES],
            histogram,
            extras,
        })
    }

    /// Adds the counters of the same stage on another worker. The sum runs if one of the two does. Further counters are
    /// added by name, except that names ending in `_max` keep the maximum.
    pub fn merge(&mut self, other: &Snapshot) {
        for (ours, theirs) in self.counters().into_iter().zip(other.clone().counters()) {
            *ours = ours.saturating_add(*theirs);
        }
        self.histogram.merge(&other.histogram);
        for (name, value) in &other.extras {
            match self.extras.iter_mut().find(|(known, _)| known == name) {
                Some((_, greatest)) if name.ends_with("_max") => *greatest = (*greatest).max(*value),
                Some((_, sum)) => *sum = sum.saturating_add(*value),
                None => self.extras.push((name.clone(), *value)),
            }
        }
        if other.state == SlotState::Used {
            self.state = SlotState::Used;
        }
        self.since_ns = self.since_ns.min(other.since_ns);
    }

    /// The growth of the counters since `earlier`, an older snapshot of them. Further counters keep their present
    /// value, as they need not grow.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut difference = self.clone();
        for (now, before) in difference.counters().into_iter().zip(earlier.clone().counters()) {
            *now = now.saturating_sub(*before);
        }
        difference.histogram = self.histogram.since(&earlier.histogram);
        difference
    }

    /// Mean cycles per packet received; `None` without packets.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        (self.packets_in > 0).then(|| self.cycles as f64 / self.packets_in as f64)
    }

    /// The cycles that this share of the packets (0 to 1) did not exceed; see [`Histogram::percentile`].
    pub fn percentile(&self, share: f64) -> Option<f64> {
        self.histogram.percentile(share)
    }

    /// The snapshot as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written as JSON")
    }

    /// The counters that only grow.
    fn counters(&mut self) -> [&mut u64; 6] {
        [
            &mut self.batches,
            &mut self.packets_in,
            &mut self.bytes_in,
            &mut self.packets_out,
            &mut self.bytes_out,
            &mut self.cycles,
        ]
    }
}

/// Merges the snapshots of workers: one for each kind, name and class, in the order of the first of each.
pub fn merge_workers(snapshots: &[Snapshot]) -> Vec<Snapshot> {
    let mut merged: Vec<Snapshot> = Vec::new();
    for snapshot in snapshots {
        let is_same = |known: &&mut Snapshot| {
            (known.kind, &known.name, &known.class) == (snapshot.kind, &snapshot.name, &snapshot.class)
        };
        match merged.iter_mut().find(is_same) {
            Some(known) => known.merge(snapshot),
            None => merged.push(snapshot.clone()),
        }
    }
    merged
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Snapshot", 14)?;
        object.serialize_field("name", &self.name)?;
        object.serialize_field("class", &self.class)?;
        object.serialize_field("kind", &self.kind)?;
        object.serialize_field("state", &self.state)?;
        object.serialize_field("worker", &self.worker)?;
        object.serialize_field("since_ns", &self.since_ns)?;
        object.serialize_field("batches", &self.batches)?;
        object.serialize_field("packets_in", &self.packets_in)?;
        object.serialize_field("bytes_in", &self.bytes_in)?;
        object.serialize_field("packets_out", &self.packets_out)?;
        object.serialize_field("bytes_out", &self.bytes_out)?;
        object.serialize_field("cycles", &self.cycles)?;
        object.serialize_field("cycles_per_packet", &CycleStatistics::of(self))?;
        let extras: serde_json::Map<String, serde_json::Value> =
            self.extras.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        object.serialize_field("extras", &extras)?;
        object.end()
    }
}

#[derive(Serialize)]
struct CycleStatistics {
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
}

impl CycleStatistics {
    fn of(snapshot: &Snapshot) -> CycleStatistics {
        CycleStatistics {
            mean: snapshot.cycles_per_packet(),
            p50: snapshot.percentile(0.5),
            p90: snapshot.percentile(0.9),
            p99: snapshot.percentile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str, worker: u16, packets: u64) -> Snapshot {
        let mut histogram = Histogram::default();
        histogram.add(packets * 8, packets);
        Snapshot {
            name: name.into(),
            class: "filter".into(),
            state: SlotState::Retired,
            worker,
            batches: 1,
            packets_in: packets,
            bytes_in: packets * 64,
            packets_out: packets / 2,
            bytes_out: packets * 32,
            cycles: packets * 8,
            histogram,
            extras: vec![("flows".into(), packets), ("chain_max".into(), packets)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn workers_are_added_and_stages_are_not() {
        let all = [snapshot("web", 0, 10), snapshot("dns", 0, 1), snapshot("web", 1, 30)];
        let merged = merge_workers(&all);
        assert_eq!(merged.len(), 2);
        assert_eq!((merged[0].packets_in, merged[0].cycles, merged[0].batches), (40, 320, 2));
        assert_eq!((merged[0].bytes_in, merged[0].packets_out, merged[0].bytes_out), (2560, 20, 1280));
        assert_eq!(merged[0].extras, [("flows".to_owned(), 40), ("chain_max".to_owned(), 30)]);
        assert_eq!(merged[0].histogram.packets(), 40);
        assert_eq!(merged[1], all[1]);
    }

    #[test]
    fn a_difference_holds_later_counts_only() {
        let (earlier, later) = (snapshot("web", 0, 10), snapshot("web", 0, 30));
        let mut sum = earlier.clone();
        sum.merge(&later);
        let difference = sum.since(&earlier);
        assert_eq!((difference.packets_in, difference.cycles), (later.packets_in, later.cycles));
        assert_eq!(difference.histogram, later.histogram);
        assert_eq!(earlier.since(&sum).packets_in, 0, "never negative");
    }

    #[test]
    fn json_has_the_fields_that_programs_need() {
        let text = snapshot("we\"b", 3, 100).to_json();
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["name"], "we\"b");
        assert_eq!(value["kind"], "stage");
        assert_eq!(value["state"], "retired");
        assert_eq!(value["cycles_per_packet"]["mean"], 8.0);
        assert_eq!(value["cycles_per_packet"]["p50"], 9.0);
        assert_eq!(value["extras"]["flows"], 100);
        let empty: serde_json::Value = serde_json::from_str(&Snapshot::default().to_json()).expect("JSON");
        assert!(empty["cycles_per_packet"]["p99"].is_null());
    }
}
