//! Counts over a sliding window, by key, with a bound on the keys.
//!
//! ```text
//! window = 10 slots   | 3 | 0 | 7 | . | . | . | . | . | . | 2 |   sum 12     slot = time / (window / 10)
//!                       ^ oldest                            ^ now
//! not raised --sum >= above, at once--> raised --sum <= below, at the end of a second--> not raised
//! ```
//!
//! Slots begin at multiples of their length since 1970, so a window is the same whenever the program began.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::clock::ClockStep;
use crate::key::{Key, Subject};

/// Maximum number of values of a key that are distinguished.
pub(crate) const VALUES_MAX: u64 = 65_536;
/// Values of all keys of a rule beyond which a key keeps no more than twice its threshold.
const ALL_VALUES_MAX: usize = 1 << 22;
/// Slots of a window: how finely it slides.
const SLOTS: usize = 10;

/// When a window raises an event, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Length of the window in nanoseconds, at least one second.
    pub window_ns: u64,
    /// The least sum that raises, 1 or more; of different values 65,536 at most.
    pub above: u64,
    /// The greatest sum at which a raised condition is cleared, less than `above`.
    pub below: u64,
}

/// A change by an addition or by time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    /// The key that was raised or cleared.
    pub(crate) key: Key,
    /// The sum that raised; the greatest sum, when it is cleared.
    pub(crate) value: u64,
    /// Whether the sum is a lower bound: some values were refused.
    pub(crate) is_least: bool,
    /// The packet or flow that was counted last.
    pub(crate) subject: Subject,
}

#[derive(Debug)]
struct Window {
    slots: [u64; SLOTS],
    /// The number of the newest slot.
    head: i64,
    sum: u64,
    /// Greatest sum since it was raised; 0 where it is not.
    peak: u64,
    /// The newest slot in which a value was refused; `None` before the first.
    refused: Option<i64>,
    /// Whether the greatest sum is a lower bound.
    peak_is_least: bool,
    /// Values that were seen, each with the number of the slot in which it was seen last.
    values: Option<HashMap<Key, i64>>,
    subject: Subject,
}

impl Window {
    fn new(slot: i64, has_values: bool) -> Window {
        Window {
            slots: [0; SLOTS],
            head: slot,
            sum: 0,
            peak: 0,
            refused: None,
            peak_is_least: false,
            values: has_values.then(HashMap::new),
            subject: Subject::default(),
        }
    }

    /// Forgets the slots that are older than the window that ends with `slot`.
    fn slide(&mut self, slot: i64) {
        let steps = slot.saturating_sub(self.head);
        if steps <= 0 {
            return;
        }
        if steps >= SLOTS as i64 {
            (self.slots, self.sum) = ([0; SLOTS], 0);
        } else {
            for step in 1..=steps {
                let place = &mut self.slots[(self.head + step).rem_euclid(SLOTS as i64) as usize];
                self.sum -= *place;
                *place = 0;
            }
        }
        self.head = slot;
        if let Some(values) = &mut self.values {
            values.retain(|_, seen| *seen > slot - SLOTS as i64);
            self.sum = values.len() as u64;
        }
    }

    /// Moves the counts to slots that are `slots` earlier.
    fn set_back(&mut self, slots: i64) {
        self.head = self.head.saturating_sub(slots);
        self.slots.rotate_left(slots.rem_euclid(SLOTS as i64) as usize);
        self.refused = self.refused.map(|slot| slot.saturating_sub(slots));
        for seen in self.values.iter_mut().flat_map(HashMap::values_mut) {
            *seen = seen.saturating_sub(slots);
        }
    }

    /// Whether the sum is a lower bound: a value of this window was refused.
    fn is_least(&self) -> bool {
        self.refused.is_some_and(|slot| slot > self.head - SLOTS as i64)
    }

    /// Values that are kept.
    fn len(&self) -> usize {
        self.values.as_ref().map_or(0, HashMap::len)
    }

    fn add(&mut self, amount: u64) {
        self.slots[self.head.rem_euclid(SLOTS as i64) as usize] += amount;
        self.sum += amount;
    }

    /// Counts a value once while it is in the window; at most `most` values are kept.
    fn see(&mut self, value: Key, most: usize) {
        let head = self.head;
        let Some(values) = &mut self.values else { return };
        let len = values.len();
        match values.entry(value) {
            Entry::Occupied(mut seen) => _ = seen.insert(head),
            Entry::Vacant(place) if len < most => _ = place.insert(head),
            Entry::Vacant(_) => self.refused = Some(head),
        }
        self.sum = values.len() as u64;
    }
}

/// The windows of a rule.
#[derive(Debug)]
pub(crate) struct Windows {
    threshold: Threshold,
    slot_ns: i64,
    keys_max: usize,
    counts_values: bool,
    by_key: HashMap<Key, Window>,
    /// Keys that are raised, in the order in which they were.
    raised: Vec<Key>,
    /// The latest slot; additions of an earlier one count in it.
    now: i64,
    /// The slot at which keys without counts are looked for next.
    sweep: i64,
    no_room: u64,
    /// Values of all keys at present.
    values: usize,
}

impl Windows {
    /// Windows for at most `keys_max` keys at a time. `counts_values`: sums are numbers of different values.
    pub(crate) fn new(threshold: Threshold, keys_max: usize, counts_values: bool) -> Windows {
        let slot_ns = (threshold.window_ns / SLOTS as u64).max(1) as i64;
        Windows {
            threshold,
            slot_ns,
            keys_max,
            counts_values,
            by_key: HashMap::new(),
            raised: Vec::new(),
            now: i64::MIN,
            sweep: i64::MIN,
            no_room: 0,
            values: 0,
        }
    }

    /// Adds to the window of a key: `amount`, or the value if values are counted. Returns the condition that this
    /// raised.
    pub(crate) fn add(
        &mut self,
        key: Key,
        time_ns: i64,
        amount: u64,
        value: Option<Key>,
        subject: &Subject,
    ) -> Option<Turn> {
        let slot = self.reach(time_ns);
        if self.by_key.len() >= self.keys_max && !self.by_key.contains_key(&key) {
            self.sweep(slot);
            if self.by_key.len() >= self.keys_max {
                self.no_room += 1;
                return None;
            }
        }
        let Threshold { above, .. } = self.threshold;
        let window = self.by_key.entry(key).or_insert_with(|| Window::new(slot, self.counts_values));
        let len = window.len();
        window.slide(slot);
        match value {
            // Each key has room for twice the threshold. More values change nothing but the number that is told: they
            // share what is left.
            Some(value) => {
                let own = above.saturating_mul(2).min(VALUES_MAX);
                let most = if self.values < ALL_VALUES_MAX { VALUES_MAX } else { own };
                window.see(value, most as usize);
            }
            None => window.add(amount),
        }
        self.values = self.values.saturating_add(window.len()).saturating_sub(len);
        window.subject = *subject;
        if window.peak > 0 {
            window.peak = window.peak.max(window.sum);
            window.peak_is_least |= window.is_least();
            return None;
        }
        if window.sum < above {
            return None;
        }
        window.peak = window.sum;
        window.peak_is_least = window.is_least();
        self.raised.push(key);
        Some(Turn { key, value: window.sum, is_least: window.peak_is_least, subject: *subject })
    }

    /// Clears conditions that no longer hold at `time_ns`, and forgets keys whose windows are empty.
    pub(crate) fn advance(&mut self, time_ns: i64, cleared: &mut Vec<Turn>) {
        let slot = self.reach(time_ns);
        let Windows { by_key, raised, threshold, values, .. } = self;
        raised.retain(|key| {
            let Some(window) = by_key.get_mut(key) else { return false };
            let len = window.len();
            window.slide(slot);
            *values = values.saturating_sub(len - window.len());
            // Of a lower bound it is not known that it is below.
            if window.sum > threshold.below || window.is_least() {
                return true;
            }
            let (value, is_least) = (window.peak, window.peak_is_least);
            cleared.push(Turn { key: *key, value, is_least, subject: window.subject });
            window.peak = 0;
            false
        });
        if slot >= self.sweep {
            self.sweep(slot);
        }
    }

    /// Handles a clock that was set back: the counts keep their age.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        let slots = step.from_ns.div_euclid(self.slot_ns) - step.to_ns.div_euclid(self.slot_ns);
        self.by_key.values_mut().for_each(|window| window.set_back(slots));
        self.now = self.now.saturating_sub(slots);
        self.sweep = self.sweep.saturating_sub(slots);
    }

    /// Goes on to a time; the slot that it is then.
    fn reach(&mut self, time_ns: i64) -> i64 {
        self.now = self.now.max(time_ns.div_euclid(self.slot_ns));
        self.now
    }

    /// Whether time can change anything: some key has a count.
    pub(crate) fn is_active(&self) -> bool {
        !self.by_key.is_empty()
    }

    /// Keys at present.
    pub(crate) fn keys(&self) -> usize {
        self.by_key.len()
    }

    /// Additions that were refused, because there were too many keys.
    pub(crate) fn no_room(&self) -> u64 {
        self.no_room
    }

    /// Keys whose windows are empty go. They are looked for once a window, so each costs little.
    fn sweep(&mut self, slot: i64) {
        if slot < self.sweep {
            return;
        }
        self.by_key.retain(|_, window| window.peak > 0 || window.head > slot - SLOTS as i64);
        self.values = self.by_key.values().map(Window::len).sum();
        self.sweep = slot + if self.by_key.len() >= self.keys_max { 1 } else { SLOTS as i64 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn windows(above: u64, below: u64) -> Windows {
        Windows::new(Threshold { window_ns: 10_000_000_000, above, below }, 4, false)
    }

    fn add(windows: &mut Windows, key: u64, second: i64) -> Option<u64> {
        let turn = windows.add(Key::of_number(key), second * SECOND, 1, None, &Subject::default());
        turn.map(|turn| turn.value)
    }

    fn cleared(windows: &mut Windows, second: i64) -> Vec<u64> {
        let mut turns = Vec::new();
        windows.advance(second * SECOND, &mut turns);
        turns.iter().map(|turn| turn.value).collect()
    }

    #[test]
    fn a_window_raises_once_and_clears_below() {
        let mut windows = windows(3, 1);
        assert_eq!([0, 1, 2, 3].map(|second| add(&mut windows, 7, second)), [None, None, Some(3), None]);
        assert!(cleared(&mut windows, 9).is_empty(), "four are in the window");
        assert!(cleared(&mut windows, 11).is_empty(), "two are above one");
        assert_eq!(cleared(&mut windows, 12), [4], "one is not");
        assert_eq!([13, 13].map(|second| add(&mut windows, 7, second)), [None, None]);
        assert_eq!(add(&mut windows, 7, 14), Some(3), "raised again");
    }

    #[test]
    fn what_slid_out_is_not_counted() {
        let mut windows = windows(3, 0);
        assert_eq!([0, 5, 10, 15, 20].map(|second| add(&mut windows, 7, second)), [None; 5]);
        assert_eq!(add(&mut windows, 7, 1000), None);
        assert_eq!(add(&mut windows, 7, 1), None, "a late packet counts in the newest slot");
    }

    #[test]
    fn a_window_goes_on_after_a_step_back() {
        let mut windows = windows(3, 1);
        assert_eq!([3600, 3604, 3605].map(|second| add(&mut windows, 7, second)), [None, None, Some(3)]);
        windows.set_back(ClockStep { from_ns: 3606 * SECOND, to_ns: 6 * SECOND });
        assert_eq!(add(&mut windows, 7, 7), None, "it is raised");
        assert!(cleared(&mut windows, 13).is_empty(), "those of 4, 5 and 7");
        assert_eq!(cleared(&mut windows, 15), [4], "that of 7 is left");
        assert_eq!((cleared(&mut windows, 30), windows.keys()), (vec![], 0));
    }

    #[test]
    fn values_are_as_old_after_a_step_back() {
        let mut windows = Windows::new(Threshold { window_ns: 10_000_000_000, above: 2, below: 1 }, 4, true);
        let see = |windows: &mut Windows, value: u64, second: i64| {
            let value = Some(Key::of_number(value));
            windows.add(Key::default(), second * SECOND, 0, value, &Subject::default()).is_some()
        };
        assert!(!see(&mut windows, 1, 3600));
        windows.set_back(ClockStep { from_ns: 3600 * SECOND, to_ns: 0 });
        assert!(!see(&mut windows, 2, 10), "the first one is ten seconds old");
        assert!(see(&mut windows, 3, 19));
    }

    /// A host that tries 60 ports is reported with 60, whatever the threshold; beyond the bound it is reported as a
    /// least number.
    #[test]
    fn values_beyond_the_threshold_are_a_lower_bound() {
        let most = VALUES_MAX;
        for (above, seen, value, is_least) in [
            (20, 60, 60, false),
            (20, most, most, false),
            (20, most + 1, most, true),
            (most, most + 9, most, true),
        ] {
            let threshold = Threshold { window_ns: 10_000_000_000, above, below: 5 };
            let mut windows = Windows::new(threshold, 4, true);
            for value in 0..seen {
                windows.add(Key::default(), 0, 0, Some(Key::of_number(value)), &Subject::default());
            }
            let mut turns = Vec::new();
            windows.advance(9 * SECOND, &mut turns);
            assert!(turns.is_empty());
            windows.advance(10 * SECOND, &mut turns);
            let told: Vec<_> = turns.iter().map(|turn| (turn.value, turn.is_least)).collect();
            assert_eq!(told, [(value, is_least)], "{above} {seen}");
            assert_eq!(windows.values, 0);
        }
    }

    #[test]
    fn keys_are_bounded_and_empty_ones_go() {
        let mut windows = windows(2, 0);
        assert_eq!([1, 2, 3, 4, 5].map(|key| add(&mut windows, key, 0)), [None; 5]);
        assert_eq!((windows.keys(), windows.no_room()), (4, 1));
        assert_eq!(add(&mut windows, 5, 30), None);
        assert_eq!((windows.keys(), windows.no_room()), (1, 1), "four windows were empty");
        assert_eq!(add(&mut windows, 5, 30), Some(2));
    }

    #[test]
    fn a_value_counts_once_while_it_is_seen() {
        let mut windows = Windows::new(Threshold { window_ns: 10_000_000_000, above: 2, below: 1 }, 4, true);
        let mut see = |value: u64, second: i64| {
            let value = Some(Key::of_number(value));
            windows.add(Key::default(), second * SECOND, 0, value, &Subject::default()).is_some()
        };
        assert_eq!([(1, 0), (1, 1), (1, 9)].map(|(value, second)| see(value, second)), [false; 3]);
        assert!(!see(2, 25), "the first one was last seen long ago");
        assert!(see(3, 26));
    }
}
