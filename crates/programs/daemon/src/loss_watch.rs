//! Losses of captures as entries of the journal, at most one in [`INTERVAL`] and only when they grow. An interface that
//! cannot be captured has one entry, as nobody knows how many packets it had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tapline_source::{InterfaceAccount, LossPoint};

use crate::capture::CaptureTotals;
use crate::journal::{EntryKind, JournalEntry};

/// The least time between two looks.
const INTERVAL: Duration = Duration::from_secs(10);

/// A place where packets are lost: capture, interface (empty for the buffer) and place.
type LossKey = (String, String, String);

/// The losses that were reported.
#[derive(Debug)]
pub(crate) struct LossWatch {
    told: BTreeMap<LossKey, u64>,
    /// Captures and their interfaces that could not be captured.
    uncaptured: BTreeSet<(String, String)>,
    next: Instant,
}

impl LossWatch {
    pub(crate) fn new(now: Instant) -> LossWatch {
        LossWatch { told: BTreeMap::new(), uncaptured: BTreeSet::new(), next: now + INTERVAL }
    }

    /// Whether it is time to look; then the next time is an interval later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }

    /// An entry for each place where more packets were lost than reported, and for each interface that could not be
    /// captured.
    pub(crate) fn news(&mut self, totals: &[CaptureTotals]) -> Vec<JournalEntry> {
        let mut now = BTreeMap::new();
        totals.iter().for_each(|capture| add_losses(capture, &mut now));
        let mut entries = Vec::new();
        for (key, total) in now {
            let before = self.told.get(&key).copied().unwrap_or(0);
            if total > before {
                entries.push(entry(&key, total - before, total));
                self.told.insert(key, total);
            }
        }
        let mut uncaptured = BTreeSet::new();
        for capture in totals {
            for interface in &capture.interfaces {
                let mut losses = interface.losses.iter();
                let Some(loss) = losses.find(|loss| loss.place == LossPoint::Uncaptured) else { continue };
                let key = (capture.name.clone(), interface.name.clone());
                if !self.uncaptured.contains(&key) {
                    let place = format!("{}, {}", loss.place.name(), loss.counter);
                    entries.push(unknown_entry(&(key.0.clone(), key.1.clone(), place)));
                }
                uncaptured.insert(key);
            }
        }
        // Names that an account has no more are forgotten: interfaces of containers come and go.
        self.uncaptured = uncaptured;
        entries
    }
}

fn add_losses(capture: &CaptureTotals, losses: &mut BTreeMap<LossKey, u64>) {
    let name = &capture.name;
    for interface in &capture.interfaces {
        let InterfaceAccount { name: interface_name, ring, .. } = interface;
        let key = |place: &str| (name.clone(), interface_name.clone(), place.to_owned());
        if let Some(ring) = ring {
            *losses.entry(key("kernel ring")).or_default() += ring.dropped;
        }
        let counted = interface.losses.iter().filter(|loss| !loss.counts_unwanted_frames());
        for loss in counted.filter(|loss| matches!(loss.place, LossPoint::Nic | LossPoint::Driver)) {
            // All workers read the same counters of a card.
            let known = losses.entry(key(&format!("{}, {}", loss.place.name(), loss.counter))).or_default();
            *known = (*known).max(loss.count.known().unwrap_or(0));
        }
    }
    *losses.entry((name.clone(), String::new(), "buffer".to_owned())).or_default() += capture.not_stored;
}

/// An entry without numbers.
fn unknown_entry(key: &LossKey) -> JournalEntry {
    let (capture, interface, place) = key;
    let message = format!("{capture}: an unknown number of packets lost ({interface}, {place})");
    JournalEntry { kind: EntryKind::Loss, message, fields: place_fields(key) }
}

fn place_fields((capture, interface, place): &LossKey) -> Vec<(&'static str, String)> {
    let mut fields = vec![("CAPTURE", capture.clone()), ("PLACE", place.clone())];
    if !interface.is_empty() {
        fields.push(("INTERFACE", interface.clone()));
    }
    fields
}

fn entry(key: &LossKey, packets: u64, total: u64) -> JournalEntry {
    let (capture, interface, place) = key;
    let of_interface = if interface.is_empty() { String::new() } else { format!("{interface}, ") };
    let mut fields = place_fields(key);
    fields.extend([("PACKETS", packets.to_string()), ("TOTAL", total.to_string())]);
    let message = format!("{capture}: {packets} packets lost ({of_interface}{place}), {total} in all");
    JournalEntry { kind: EntryKind::Loss, message, fields }
}

#[cfg(test)]
mod tests {
    use tapline_source::{Count, Loss, RingAccount};

    use super::*;

    fn totals(dropped: u64, missed: u64) -> Vec<CaptureTotals> {
        let nic = |counter: &str, count| Loss {
            place: LossPoint::Nic,
            counter: counter.into(),
            count: Count::Known(count),
        };
        let interface = InterfaceAccount {
            ring: Some(RingAccount { dropped, ..RingAccount::default() }),
            losses: vec![nic("rx_dropped", 77), nic("rx_missed_errors", missed)],
            ..InterfaceAccount::of_file("eth0", 0)
        };
        let mut capture = CaptureTotals::of("office");
        capture.interfaces = vec![interface.clone(), interface];
        vec![capture]
    }

    #[test]
    fn losses_are_told_when_they_grow() {
        let mut watch = LossWatch::new(Instant::now());
        assert!(watch.news(&totals(0, 0)).is_empty());
        let told: Vec<String> = watch.news(&totals(5, 3)).into_iter().map(|entry| entry.message).collect();
        // Two workers lost five each; both read the same counter of the card.
        assert_eq!(
            told,
            [
                "office: 10 packets lost (eth0, kernel ring), 10 in all",
                "office: 3 packets lost (eth0, nic, rx_missed_errors), 3 in all"
            ]
        );
        assert!(watch.news(&totals(5, 3)).is_empty());
        let again = watch.news(&totals(6, 3));
        assert_eq!(again[0].message, "office: 2 packets lost (eth0, kernel ring), 12 in all");
        assert!(again[0].fields.contains(&("PACKETS", "2".to_owned())) && again.len() == 1);
    }

    #[test]
    fn an_interface_that_is_not_captured_is_reported_once() {
        let mut watch = LossWatch::new(Instant::now());
        let mut totals = totals(0, 0);
        totals[0].interfaces.push(InterfaceAccount::of_uncaptured("v7", "no socket"));
        let told = watch.news(&totals);
        assert_eq!(told[0].message, "office: an unknown number of packets lost (v7, uncaptured, no socket)");
        assert!(told[0].fields.contains(&("INTERFACE", "v7".to_owned())) && told.len() == 1);
        assert!(told[0].fields.iter().all(|(name, _)| *name != "PACKETS"));
        totals[0].interfaces.push(InterfaceAccount::of_further_uncaptured(3));
        assert_eq!(watch.news(&totals).len(), 1);
        totals[0].interfaces.push(InterfaceAccount::of_further_uncaptured(4));
        assert!(watch.news(&totals).is_empty());
    }

    #[test]
    fn a_look_comes_once_in_ten_seconds() {
        let start = Instant::now();
        let mut watch = LossWatch::new(start);
        assert!(!watch.is_due(start + INTERVAL / 2));
        assert!(watch.is_due(start + INTERVAL) && !watch.is_due(start + INTERVAL * 3 / 2));
        assert!(watch.is_due(start + INTERVAL * 2));
    }
}
