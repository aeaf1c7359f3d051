//! The memory of a rule: its windows, known hosts, silent keys, and its number of reported events.

use std::collections::{HashMap, HashSet};

use tapline_packet::Timestamp;
use tapline_source::{InterfaceAccount, LossPoint};

use crate::burst::{Burst, BurstLimits, BurstMeter};
use crate::clock::ClockStep;
use crate::event::EventKind;
use crate::key::{Key, KeyField, Subject};
use crate::limit::LimitState;
use crate::outbox::{Happening, Outbox};
use crate::rules::{AccountRow, Count, Rule, Source};
use crate::window::{Threshold, Turn, Windows};

/// With `gap`, keys without a packet for so many times its length make room for others, after a minute at the earliest.
const GAPS_KEPT: i64 = 10;
const GAP_KEPT_MIN_NS: i64 = 60_000_000_000;
/// Packet time between two searches for such keys.
const GAP_SWEEP_NS: i64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct RuleState {
    pub(crate) number: usize,
    windows: Option<Windows>,
    known: HashSet<Key>,
    /// Until when new hosts and pairs are learnt without an event.
    learns_until_ns: Option<i64>,
    silence: HashMap<Key, Heard>,
    bursts: Option<Bursts>,
    /// The second that was reached; packets of before count at it.
    reached_ns: i64,
    /// The earliest time at which a key may be silent for too long.
    silence_due_ns: i64,
    /// The earliest time at which keys with long gaps are searched for.
    gap_sweep_ns: i64,
    limit: LimitState,
    events: u64,
    /// Keys for which the table was full.
    no_room: u64,
    /// Packets that belong to no window of bursts, or to no gap.
    late: u64,
    turns: Vec<Turn>,
    /// The row of the account by interface when it was last read. `None` until its first reading, which reports
    /// nothing, for a rule that joined a run: losses from before are not its concern.
    account: Option<HashMap<String, u64>>,
}

/// The meters of a rule on bursts. Those of keys without packets go at the end of a second.
#[derive(Debug)]
struct Bursts {
    limits: BurstLimits,
    meters: HashMap<Key, (BurstMeter, Subject)>,
}

impl Bursts {
    fn of(rule: &Rule) -> Option<Bursts> {
        let condition = rule.condition.filter(|_| rule.source == Source::Burst)?;
        let Threshold { window_ns, above, .. } = condition.threshold;
        let (packets, bytes) = if condition.count == Count::Bytes { (0, above) } else { (above, 0) };
        Some(Bursts { limits: BurstLimits { window_ns, packets, bytes }, meters: HashMap::new() })
    }
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    last_ns: i64,
    is_silent: bool,
    subject: Subject,
}

/// Counters of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Name of the rule.
    pub name: String,
    /// Packets, flows or other events of its source; calls of a script.
    pub matched: u64,
    /// Events that were reported.
    pub told: u64,
    /// Events beyond its limit.
    pub swallowed: u64,
    /// Keys at present.
    pub keys: u64,
    /// Events for whose key the table was full, and keys that made room before their gap ended.
    pub no_room: u64,
    /// Packets that bursts and gaps leave out: behind the start of the window that was reached, or without a time.
    pub late: u64,
    /// Calls of a script that failed.
    pub faults: u64,
    /// Packets that its recordings lack, as they could not be written.
    pub recordings_lost: u64,
}

impl RuleState {
    pub(crate) fn new(number: usize, rule: &Rule) -> RuleState {
        let condition = rule.condition.filter(|_| rule.source != Source::Burst);
        let windows = condition.map(|condition| {
            let counts_values = matches!(condition.count, Count::Distinct(_));
            Windows::new(condition.threshold, rule.keys_max, counts_values)
        });
        RuleState {
            number,
            windows,
            known: HashSet::new(),
            learns_until_ns: None,
            silence: HashMap::new(),
            bursts: Bursts::of(rule),
            reached_ns: i64::MIN,
            silence_due_ns: i64::MAX,
            gap_sweep_ns: i64::MIN,
            limit: LimitState::default(),
            events: 0,
            no_room: 0,
            late: 0,
            turns: Vec::new(),
            account: Some(HashMap::new()),
        }
    }

    /// The state of a rule that joins a run.
    pub(crate) fn joining(number: usize, rule: &Rule) -> RuleState {
        RuleState { account: None, ..RuleState::new(number, rule) }
    }

    /// The clock begins.
    pub(crate) fn start(&mut self, rule: &Rule, now_ns: i64) {
        self.learns_until_ns.get_or_insert(now_ns.saturating_add(rule.learn_ns as i64));
        if let (Source::Silence(silence_ns), true) = (rule.source, rule.by.is_empty()) {
            self.hear(rule, silence_ns, now_ns, Key::default(), &Subject::default());
        }
    }

    /// Counts a packet or flow that the rule's filter accepts.
    pub(crate) fn take(&mut self, rule: &Rule, time_ns: i64, subject: &Subject, out: &mut Outbox) {
        self.events += 1;
        match rule.source {
            Source::Silence(silence_ns) => {
                let key = Key::of(subject, &rule.by);
                if let Some(length_ns) = self.hear(rule, silence_ns, time_ns, key, subject) {
                    let kind = EventKind::Cleared;
                    self.tell(rule, kind, time_ns, key, Some(subject), Some(length_ns), out);
                }
            }
            Source::Gap(_) | Source::Burst if time_ns == Timestamp::EPOCH.as_nanos() => self.late += 1,
            Source::Gap(gap_ns) => self.find_gap(rule, gap_ns, time_ns, subject, out),
            Source::Burst => self.burst(rule, time_ns, subject, out),
            Source::NewHost => self.meet(rule, time_ns, subject, &[KeyField::Src], out),
            Source::NewPair => self.meet(rule, time_ns, subject, &[KeyField::Pair], out),
            _ => self.count(rule, time_ns, subject, out),
        }
    }

    /// Counts under the rule's condition, or reports at once.
    fn count(&mut self, rule: &Rule, time_ns: i64, subject: &Subject, out: &mut Outbox) {
        let key = Key::of(subject, &rule.by);
        let (Some(windows), Some(condition)) = (&mut self.windows, rule.condition) else {
            return self.tell(rule, EventKind::Seen, time_ns, key, Some(subject), None, out);
        };
        let (amount, value) = match condition.count {
            Count::Events => (1, None),
            Count::Packets => (subject.packets, None),
            Count::Bytes => (subject.bytes, None),
            Count::Distinct(field) => (0, Some(Key::of(subject, &[field]))),
        };
        if let Some(turn) = windows.add(key, time_ns, amount, value, subject) {
            let kind = EventKind::Raised;
            self.tell_turn(rule, kind, time_ns, &turn, out);
        }
    }

    /// Notes a host or pair; a new one counts.
    fn meet(&mut self, rule: &Rule, time_ns: i64, subject: &Subject, by: &[KeyField], out: &mut Outbox) {
        if subject.src.is_none() {
            return;
        }
        let key = Key::of(subject, by);
        if self.known.contains(&key) {
            return;
        }
        if self.known.len() >= rule.keys_max {
            self.no_room += 1;
            return;
        }
        self.known.insert(key);
        if self.learns_until_ns.is_none_or(|until_ns| time_ns.max(self.reached_ns) >= until_ns) {
            self.count(rule, time_ns, subject, out);
        }
    }

    /// Notes that a key was heard. Returns the length of its silence, if that was reported.
    fn hear(
        &mut self,
        rule: &Rule,
        silence_ns: u64,
        time_ns: i64,
        key: Key,
        subject: &Subject,
    ) -> Option<u64> {
        let time_ns = time_ns.max(self.reached_ns);
        let heard = Heard { last_ns: time_ns, is_silent: false, subject: *subject };
        let due_ns = time_ns.saturating_add(silence_ns as i64);
        if let Some(before) = self.silence.get_mut(&key) {
            let was = std::mem::replace(before, heard);
            if was.is_silent {
                self.silence_due_ns = self.silence_due_ns.min(due_ns);
            }
            return was.is_silent.then(|| time_ns.saturating_sub(was.last_ns).max(0).unsigned_abs());
        }
        if self.silence.len() >= rule.keys_max {
            self.no_room += 1;
            return None;
        }
        self.silence.insert(key, heard);
        self.silence_due_ns = self.silence_due_ns.min(due_ns);
        None
    }

    /// Reports a gap that ends with this packet.
    fn find_gap(&mut self, rule: &Rule, gap_ns: u64, time_ns: i64, subject: &Subject, out: &mut Outbox) {
        let key = Key::of(subject, &rule.by);
        let heard = Heard { last_ns: time_ns, is_silent: false, subject: *subject };
        let Some(before) = self.silence.get_mut(&key) else {
            if self.silence.len() >= rule.keys_max {
                self.forget_long_gaps(gap_ns, time_ns);
            }
            match self.silence.len() < rule.keys_max {
                true => _ = self.silence.insert(key, heard),
                false => self.no_room += 1,
            }
            return;
        };
        let length_ns = time_ns.saturating_sub(before.last_ns).max(0).unsigned_abs();
        before.last_ns = before.last_ns.max(time_ns);
        if length_ns > gap_ns {
            self.tell(rule, EventKind::Seen, time_ns, key, Some(subject), Some(length_ns), out);
        }
    }

    /// Makes room: forgets keys that were not heard for long. At most once a second, so a full table costs little.
    fn forget_long_gaps(&mut self, gap_ns: u64, now_ns: i64) {
        if now_ns < self.gap_sweep_ns {
            return;
        }
        self.gap_sweep_ns = now_ns.saturating_add(GAP_SWEEP_NS);
        let kept_ns =
            i64::try_from(gap_ns).unwrap_or(i64::MAX).saturating_mul(GAPS_KEPT).max(GAP_KEPT_MIN_NS);
        let before = self.silence.len();
        self.silence.retain(|_, heard| now_ns.saturating_sub(heard.last_ns) <= kept_ns);
        self.no_room += (before - self.silence.len()) as u64;
    }

    /// Counts a packet in the window of its key.
    fn burst(&mut self, rule: &Rule, time_ns: i64, subject: &Subject, out: &mut Outbox) {
        let Some(Bursts { limits, meters }) = &mut self.bursts else { return };
        let key = Key::of(subject, &rule.by);
        if meters.len() >= rule.keys_max && !meters.contains_key(&key) {
            self.no_room += 1;
            return;
        }
        let limits = *limits;
        let (meter, last) = meters.entry(key).or_default();
        let Ok(over) = meter.add(&limits, time_ns, subject.packets, subject.bytes) else {
            self.late += 1;
            return;
        };
        let before = std::mem::replace(last, *subject);
        if let Some(burst) = over {
            self.tell_burst(rule, key, &before, &limits, &burst, out);
        }
    }

    /// Ends bursts that are over at a time, or all, and forgets keys without packets.
    fn end_bursts(&mut self, rule: &Rule, now_ns: Option<i64>, out: &mut Outbox) {
        let Some(Bursts { limits, meters }) = &mut self.bursts else { return };
        let limits = *limits;
        let mut over = Vec::new();
        meters.retain(|key, (meter, subject)| {
            let burst = match now_ns {
                Some(now_ns) => meter.advance(&limits, now_ns),
                None => meter.finish(&limits),
            };
            over.extend(burst.map(|burst| (*key, *subject, burst)));
            !meter.is_idle()
        });
        over.sort_unstable_by_key(|(key, _, burst)| (burst.end_ns, *key));
        for (key, subject, burst) in over {
            self.tell_burst(rule, key, &subject, &limits, &burst, out);
        }
    }

    fn tell_burst(
        &mut self,
        rule: &Rule,
        key: Key,
        subject: &Subject,
        limits: &BurstLimits,
        burst: &Burst,
        out: &mut Outbox,
    ) {
        let value = if limits.bytes > 0 { burst.bytes } else { burst.packets };
        let happening = Happening {
            value: Some(value),
            above: rule.condition.map(|condition| condition.threshold.above),
            burst: Some((burst, limits.window_ns)),
            ..Happening::new(EventKind::Seen, burst.end_ns, key, Some(subject))
        };
        out.tell(self.number, rule, &mut self.limit, &happening);
    }

    /// The run ends.
    pub(crate) fn finish(&mut self, rule: &Rule, out: &mut Outbox) {
        self.end_bursts(rule, None, out);
    }

    /// Handles a clock that was set back: the memory keeps its age.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        // Windows have numbers that count from 1970; the bursts of the old time end unseen.
        self.bursts.iter_mut().for_each(|bursts| bursts.meters.clear());
        self.windows.iter_mut().for_each(|windows| windows.set_back(step));
        self.silence.values_mut().for_each(|heard| heard.last_ns = step.moved(heard.last_ns));
        if self.silence_due_ns < i64::MAX {
            self.silence_due_ns = step.moved(self.silence_due_ns);
        }
        self.gap_sweep_ns = step.moved(self.gap_sweep_ns);
        self.reached_ns = step.moved(self.reached_ns);
        self.learns_until_ns = self.learns_until_ns.map(|until_ns| step.moved(until_ns));
        self.limit.set_back();
    }

    /// Whether time alone can change anything.
    pub(crate) fn is_active(&self) -> bool {
        self.silence_due_ns < i64::MAX
            || self.windows.as_ref().is_some_and(Windows::is_active)
            || self.bursts.as_ref().is_some_and(|bursts| !bursts.meters.is_empty())
    }

    /// Applies the passing of time: conditions that no longer hold, silences that have lasted.
    pub(crate) fn advance(&mut self, rule: &Rule, now_ns: i64, out: &mut Outbox) {
        self.reached_ns = self.reached_ns.max(now_ns);
        if let Some(windows) = self.windows.as_mut().filter(|windows| windows.is_active()) {
            windows.advance(now_ns, &mut self.turns);
            for turn in std::mem::take(&mut self.turns) {
                self.tell_turn(rule, EventKind::Cleared, now_ns, &turn, out);
            }
        }
        self.end_bursts(rule, Some(now_ns), out);
        if let (Source::Silence(silence_ns), true) = (rule.source, self.silence_due_ns <= now_ns) {
            self.find_silent(rule, silence_ns as i64, now_ns, out);
        }
    }

    fn find_silent(&mut self, rule: &Rule, silence_ns: i64, now_ns: i64, out: &mut Outbox) {
        let mut silent = Vec::new();
        self.silence_due_ns = i64::MAX;
        for (key, heard) in self.silence.iter_mut().filter(|(_, heard)| !heard.is_silent) {
            let due_ns = heard.last_ns.saturating_add(silence_ns);
            if due_ns <= now_ns {
                heard.is_silent = true;
                silent.push((*key, *heard));
            } else {
                self.silence_due_ns = self.silence_due_ns.min(due_ns);
            }
        }
        silent.sort_unstable_by_key(|(key, _)| *key);
        for (key, heard) in silent {
            let length_ns = now_ns.saturating_sub(heard.last_ns).max(0).unsigned_abs();
            let subject = heard.subject.src.is_some().then_some(&heard.subject);
            self.tell(rule, EventKind::Raised, now_ns, key, subject, Some(length_ns), out);
        }
    }

    /// Counts by how much the rule's row of the account has grown on each interface.
    pub(crate) fn read_account(
        &mut self,
        rule: &Rule,
        row: AccountRow,
        accounts: &[InterfaceAccount],
        now_ns: i64,
        out: &mut Outbox,
    ) {
        let has_joined = self.account.is_some();
        let rows = self.account.get_or_insert_default();
        for (at, account) in accounts.iter().enumerate() {
            let now = value_of(row, account);
            let known = rows.insert(account.name.clone(), now);
            let before = known.unwrap_or(if has_joined { 0 } else { now });
            let growth = if row == AccountRow::Imbalance { now } else { now.saturating_sub(before) };
            if growth == 0 {
                continue;
            }
            self.events += 1;
            let key = Key::of_number(at as u64);
            let (kind, value) = match (&mut self.windows, rule.condition) {
                (Some(windows), Some(_)) => {
                    match windows.add(key, now_ns, growth, None, &Subject::default()) {
                        Some(turn) => (EventKind::Raised, turn.value),
                        None => continue,
                    }
                }
                _ => (EventKind::Seen, growth),
            };
            let above = rule.condition.map(|condition| condition.threshold.above);
            let named = Some(("interface", account.name.as_str()));
            let happening =
                Happening { value: Some(value), above, named, ..Happening::new(kind, now_ns, key, None) };
            out.tell(self.number, rule, &mut self.limit, &happening);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the facts of an event, each of another kind")]
    fn tell(
        &mut self,
        rule: &Rule,
        kind: EventKind,
        time_ns: i64,
        key: Key,
        subject: Option<&Subject>,
        value: Option<u64>,
        out: &mut Outbox,
    ) {
        let above = rule.condition.map(|condition| condition.threshold.above);
        let happening = Happening { value, above, ..Happening::new(kind, time_ns, key, subject) };
        out.tell(self.number, rule, &mut self.limit, &happening);
    }

    /// Reports that a condition came to hold, or no longer holds.
    fn tell_turn(&mut self, rule: &Rule, kind: EventKind, time_ns: i64, turn: &Turn, out: &mut Outbox) {
        let happening = Happening {
            value: Some(turn.value),
            is_least: turn.is_least,
            above: rule.condition.map(|condition| condition.threshold.above),
            ..Happening::new(kind, time_ns, turn.key, Some(&turn.subject))
        };
        out.tell(self.number, rule, &mut self.limit, &happening);
    }

    pub(crate) fn counts(&self, rule: &Rule) -> RuleCounts {
        let (told, swallowed) = self.limit.counts();
        let windows = self.windows.as_ref();
        let keys = windows.map_or(0, Windows::keys)
            + self.known.len()
            + self.silence.len()
            + self.bursts.as_ref().map_or(0, |bursts| bursts.meters.len());
        RuleCounts {
            name: rule.name.clone(),
            matched: self.events,
            told,
            swallowed,
            keys: keys as u64,
            no_room: self.no_room + windows.map_or(0, Windows::no_room),
            late: self.late,
            faults: 0,
            recordings_lost: 0,
        }
    }
}

fn value_of(row: AccountRow, account: &InterfaceAccount) -> u64 {
    match row {
        AccountRow::Lost => account.lost(),
        AccountRow::Before => {
            let before = account
                .losses
                .iter()
                .filter(|loss| !matches!(loss.place, LossPoint::Daemon) && !loss.counts_unwanted_frames());
            before.filter_map(|loss| loss.count.known()).sum()
        }
        AccountRow::Imbalance => u64::from(account.imbalance().is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Report;

    const MS: i64 = 1_000_000;
    const SECOND: i64 = 1000 * MS;

    /// A rule at work: source numbers and times in; times and values of events, and counters, out.
    fn told(text: &str, packets: &[(u8, i64)]) -> (Vec<(i64, Option<u64>)>, RuleCounts) {
        let rules = crate::parse(text).expect("a rule");
        let rule = &rules.rules[0];
        let mut state = RuleState::new(0, rule);
        let mut out = Outbox::empty();
        for (source, time_ns) in packets {
            let src = Some([10, 0, 0, *source].into());
            let subject = Subject { src, packets: 1, bytes: 100, ..Subject::default() };
            state.take(rule, *time_ns, &subject, &mut out);
        }
        state.finish(rule, &mut out);
        let of_event = |report: &Report| match report {
            Report::Event(event) => Some((event.time_ns, event.value)),
            Report::Period(_) => None,
        };
        (out.reports.iter().filter_map(of_event).collect(), state.counts(rule))
    }

    const BURST: &str =
        "[[rule]]\nname = \"b\"\non = \"burst\"\ncount = \"packets\"\nwindow = \"1ms\"\nabove = 2\n";
    const GAP: &str = "[[rule]]\nname = \"g\"\non = \"gap 50ms\"\n";

    #[test]
    fn packets_without_a_time_are_no_burst_or_gap() {
        let untimed = [(1, 0); 30];
        for rule in [BURST, GAP] {
            let (events, counts) = told(rule, &untimed);
            assert_eq!((events.len(), counts.matched, counts.late), (0, 30, 30));
        }
        // They end no gap of 56 years, and cut no burst in two.
        let at = |ns: i64| (1, 1_764_000_000 * SECOND + ns);
        let packets = [(1, 0), at(0), at(1), (1, 0), at(2), at(60 * MS)];
        let (bursts, _) = told(BURST, &packets);
        assert_eq!(bursts, [(at(2).1, Some(3))]);
        let (gaps, counts) = told(GAP, &packets);
        assert_eq!((gaps, counts.late), (vec![(at(60 * MS).1, Some(60 * MS as u64 - 2))], 2));
    }

    #[test]
    fn late_packets_are_counted_by_the_rule() {
        let packets: Vec<_> =
            [(1, 2 * SECOND)].into_iter().chain((0..80).map(|at| (1, SECOND + at * 10 * MS + MS))).collect();
        let (events, counts) = told(BURST, &packets);
        assert_eq!((events.len(), counts.matched, counts.late), (0, 81, 80));
    }

    #[test]
    fn keys_with_long_gaps_make_room() {
        let rule = format!("{GAP}by = [\"src\"]\nkeys = 3\n");
        let scan = (1..=10).map(|source| (source, SECOND + i64::from(source) * MS));
        let later = (0..5).map(|at| (99, 3600 * SECOND + at * SECOND));
        let (events, counts) = told(&rule, &scan.clone().chain(later).collect::<Vec<_>>());
        assert_eq!((events.len(), counts.keys), (4, 1), "{counts:?}");
        assert_eq!(counts.no_room, 7 + 3, "seven found no room, three made it");
        // Gaps that are not so long stay: a key within a minute of the scan finds no room.
        let soon = [(99, 30 * SECOND), (99, 40 * SECOND), (1, 50 * SECOND)];
        let (events, counts) = told(&rule, &scan.chain(soon).collect::<Vec<_>>());
        assert_eq!((events, counts.no_room), (vec![(50 * SECOND, Some(49 * SECOND as u64 - MS as u64))], 9));
    }
}
