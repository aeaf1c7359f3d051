//! Work of stages between two readings of their counters, and since their start.
//!
//! ```text
//! earlier: [web 0, web 1, old]    now: [web 0, web 1, old (retired), new]
//!                     │                      │
//!                     └────────since─────────┤
//!                                            ▼
//!                 web: recent, total    new: recent = total    old: ended
//! ```

use serde::Serialize;

use crate::layout::SlotState;
use crate::snapshot::{Snapshot, merge_workers};

/// A stage over all its workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Since the earlier reading.
    pub recent: Snapshot,
    /// Since it began.
    pub total: Snapshot,
    /// Workers that run it.
    pub workers: usize,
    /// Cycles of the recent ones of all stages that were these, 0 to 1; `None` if no stage took any.
    pub share: Option<f64>,
}

impl Activity {
    /// Whether it runs no more, and its counters are final.
    pub fn has_ended(&self) -> bool {
        self.total.state == SlotState::Retired
    }
}

/// Activity between two readings of one process: running stages in their order, then ended ones.
///
/// Adds up workers. A slot that was reused for something else in between counts for its present use.
pub fn activities(now: &[Snapshot], earlier: &[Snapshot]) -> Vec<Activity> {
    let of_state = |state: SlotState| -> Vec<Snapshot> {
        now.iter().filter(|snapshot| snapshot.state == state).cloned().collect()
    };
    let [running, ended] = [SlotState::Used, SlotState::Retired].map(of_state);
    let mut all = of_one_state(&running, earlier);
    all.extend(of_one_state(&ended, earlier));
    let sum: u64 = all.iter().fold(0, |sum, one| sum.saturating_add(one.recent.cycles));
    for one in &mut all {
        one.share = (sum > 0).then(|| one.recent.cycles as f64 / sum as f64);
    }
    all
}

fn of_one_state(now: &[Snapshot], earlier: &[Snapshot]) -> Vec<Activity> {
    let recent: Vec<Snapshot> = now
        .iter()
        .map(|snapshot| match earlier.iter().find(|before| is_same(snapshot, before)) {
            Some(before) => snapshot.since(before),
            None => snapshot.clone(),
        })
        .collect();
    // Both lists have the same names in the same order.
    let pairs = merge_workers(&recent).into_iter().zip(merge_workers(now));
    pairs
        .map(|(recent, total)| {
            let workers = now.iter().filter(|one| is_instance(one, &total)).count();
            Activity { recent, total, workers, share: None }
        })
        .collect()
}

/// Whether both snapshots are of the same counters.
fn is_same(now: &Snapshot, before: &Snapshot) -> bool {
    is_instance(now, before)
        && (now.worker, now.generation, now.since_ns) == (before.worker, before.generation, before.since_ns)
}

fn is_instance(one: &Snapshot, other: &Snapshot) -> bool {
    (one.kind, &one.name, &one.class) == (other.kind, &other.name, &other.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str, worker: u16, packets: u64) -> Snapshot {
        let mut snapshot = Snapshot {
            name: name.into(),
            worker,
            since_ns: 1,
            state: SlotState::Used,
            packets_in: packets,
            cycles: packets * 10,
            ..Snapshot::default()
        };
        snapshot.histogram.add(packets * 10, packets);
        snapshot
    }

    #[test]
    fn rates_since_the_last_reading_are_with_totals() {
        let earlier = [snapshot("web", 0, 10), snapshot("web", 1, 5)];
        let now = [snapshot("web", 0, 40), snapshot("web", 1, 5), snapshot("new", 0, 10)];
        let [web, new] = &activities(&now, &earlier)[..] else { panic!("two stages") };
        assert_eq!((web.recent.packets_in, web.total.packets_in, web.workers), (30, 45, 2));
        assert_eq!((new.recent.packets_in, new.total.packets_in, new.workers), (10, 10, 1));
        assert_eq!((web.share, new.share), (Some(0.75), Some(0.25)));
        assert_eq!(web.recent.histogram.packets(), 30);
    }

    #[test]
    fn ended_processes_come_last_and_are_not_added() {
        let mut old = snapshot("web", 0, 100);
        old.state = SlotState::Retired;
        let now = [old.clone(), snapshot("web", 0, 7)];
        let [running, ended] = &activities(&now, &[old])[..] else { panic!("two") };
        assert_eq!((running.total.packets_in, running.has_ended()), (7, false));
        assert_eq!((ended.total.packets_in, ended.recent.packets_in), (100, 0));
        assert!(ended.has_ended());
    }

    #[test]
    fn a_slot_that_changed_hands_is_new() {
        let before = snapshot("web", 0, 100);
        let now = Snapshot { generation: 1, since_ns: 9, ..snapshot("web", 0, 3) };
        assert_eq!(activities(&[now], &[before])[0].recent.packets_in, 3);
        assert_eq!(activities(&[], &[]), []);
    }

    #[test]
    fn nothing_done_has_no_share() {
        let now = [snapshot("web", 0, 5)];
        assert_eq!(activities(&now, &now)[0].share, None);
    }
}
