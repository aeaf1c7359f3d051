//! Rules with their counters, shared by the workers that obey them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::action::{Actions, Outputs};
use crate::exact::ExactTable;
use crate::parse::RuleFile;

/// Packets and bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// The rest without `other`.
    fn minus(self, other: Counts) -> Counts {
        let Counts { packets, bytes } = self;
        Counts { packets: packets.saturating_sub(other.packets), bytes: bytes.saturating_sub(other.bytes) }
    }
}

/// A counter that workers add to.
#[derive(Debug, Default)]
struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn counts(&self) -> Counts {
        Counts { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    fn count(&self, bytes: u64, is_shared: bool) -> u64 {
        count(&self.packets, &self.bytes, bytes, is_shared)
    }
}

/// Counts a packet, and gives the number of packets before. Where one thread counts, no locked instruction is needed.
#[inline]
pub(crate) fn count(packets: &AtomicU64, sum: &AtomicU64, bytes: u64, is_shared: bool) -> u64 {
    if is_shared {
        sum.fetch_add(bytes, Ordering::Relaxed);
        return packets.fetch_add(1, Ordering::Relaxed);
    }
    let before = packets.load(Ordering::Relaxed);
    packets.store(before + 1, Ordering::Relaxed);
    sum.store(sum.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    before
}

/// The fate of a packet as far as it is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Outputs that it goes to.
    pub outputs: Outputs,
    /// Whether no further rule is asked.
    pub is_final: bool,
}

impl Decision {
    #[inline]
    fn obey(&mut self, actions: &Actions, number: u64, salt: u64) {
        self.outputs = self.outputs.and(actions.outputs_of(number, salt));
        self.is_final = !actions.goes_on;
    }
}

/// Counts of the parts of a file without its exact rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListTotals {
    /// Packets that the filter refused.
    pub refused: Counts,
    /// Counts of each rule of the list.
    pub list: Vec<Counts>,
    /// Packets that the sample dropped.
    pub unsampled: Counts,
    /// Packets that came to the default.
    pub default: Counts,
    /// Packets of rules of earlier files that are gone.
    pub removed: Counts,
}

/// All counts of a set of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts of all parts but the exact rules.
    pub totals: ListTotals,
    /// Counts of each exact rule that has counted a packet, by its number.
    pub exact: Vec<(u32, Counts)>,
    /// Exact rules that were idle for too long.
    pub purged: u64,
    /// Flows that were learned.
    pub learned: LearnedTotals,
    /// The second that [`RuleSet::see`] has come to; 0 before the first packet with a time.
    pub now_s: u32,
}

/// Counts of flows that were learned, of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedTotals {
    /// Flows at present.
    pub flows: u64,
    /// Flows that made room, as they were idle for too long.
    pub forgotten: u64,
    /// Packets whose flow found no room.
    pub refused: u64,
    /// Packets of these flows.
    pub counts: Counts,
}

/// Rules with their counters. Workers share one; a changed file makes another.
#[derive(Debug)]
pub struct RuleSet {
    file: RuleFile,
    is_shared: bool,
    refused: Counter,
    list: Vec<Counter>,
    sampled: Counter,
    unsampled: Counter,
    default: Counter,
    learned: LearnedCounters,
    /// The second of the first packet with a time, since 1970; 0 before it.
    began_s: AtomicU32,
    clock: AtomicU64,
    /// The most seconds that the clock steps at once: the shortest idle time.
    step_max_s: u32,
    /// The rules before these. Workers may still count there.
    previous: Mutex<Option<Arc<RuleSet>>>,
    /// Counts of the rules before these, once no worker counts there any more.
    carried: OnceLock<Carried>,
}

/// The clock of idle times, in seconds since 1970; both are 0 before the first packet with a time.
#[derive(Clone, Copy)]
struct Clock {
    /// The last time stamp.
    stamp_s: u32,
    now_s: u32,
}

impl Clock {
    #[inline]
    fn of(bits: u64) -> Clock {
        Clock { stamp_s: (bits >> 32) as u32, now_s: bits as u32 }
    }

    fn bits(self) -> u64 {
        u64::from(self.stamp_s) << 32 | u64::from(self.now_s)
    }

    fn step(self, stamp_s: u32, max_s: u32) -> Clock {
        let step_s = stamp_s.abs_diff(self.stamp_s).min(max_s);
        let now_s = match self.now_s {
            0 => stamp_s,
            now_s if stamp_s > self.stamp_s => now_s.saturating_add(step_s).min(ExactTable::PURGED - 1),
            now_s => now_s.saturating_sub(step_s).max(1),
        };
        Clock { stamp_s, now_s }
    }
}

/// Counters of flows that were learned.
#[derive(Debug, Default)]
struct LearnedCounters {
    learned: AtomicU64,
    forgotten: AtomicU64,
    refused: AtomicU64,
    packets: Counter,
}

/// Counts from earlier rules.
#[derive(Debug, Default)]
struct Carried {
    totals: ListTotals,
    /// In the order of the table's numbers.
    exact: HashMap<u32, Counts>,
}

/// Salts of samples, so that neighbours do not choose alike.
const OF_EXACT: u64 = 1 << 32;
const OF_SAMPLE: u64 = 2 << 32;
const OF_LEARNED: u64 = 3 << 32;

impl RuleSet {
    /// Rules of a file; `is_shared` if several threads obey them.
    pub fn new(file: RuleFile, is_shared: bool) -> RuleSet {
        let list = file.list.iter().map(|_| Counter::default()).collect();
        RuleSet {
            step_max_s: file.shortest_idle().unwrap_or(u32::MAX),
            file,
            is_shared,
            refused: Counter::default(),
            list,
            sampled: Counter::default(),
            unsampled: Counter::default(),
            default: Counter::default(),
            learned: LearnedCounters::default(),
            began_s: AtomicU32::new(0),
            clock: AtomicU64::new(0),
            previous: Mutex::new(None),
            carried: OnceLock::new(),
        }
    }

    /// As [`new`](Self::new), after other rules: the counts of a rule that stays go on.
    pub fn after(file: RuleFile, is_shared: bool, previous: Arc<RuleSet>) -> RuleSet {
        let clock = Clock::of(previous.clock.load(Ordering::Relaxed));
        RuleSet {
            began_s: AtomicU32::new(clock.now_s),
            clock: AtomicU64::new(clock.bits()),
            previous: Mutex::new(Some(previous)),
            ..RuleSet::new(file, is_shared)
        }
    }

    /// The second of a packet as idle times count it, from the second of its time stamp. Where stamps leap, forth or
    /// back, it steps by the shortest idle time at most: no rule in use ends by a stamp that is wrong or a clock that was
    /// set. A packet without a time is of the second of the packet before; 0 if there was none.
    #[inline]
    pub fn see(&self, stamp_s: Option<u32>) -> u32 {
        let clock = Clock::of(self.clock.load(Ordering::Relaxed));
        match stamp_s {
            Some(stamp_s) if stamp_s != clock.stamp_s => self.step(clock, stamp_s),
            _ => clock.now_s,
        }
    }

    fn step(&self, clock: Clock, stamp_s: u32) -> u32 {
        let next = clock.step(stamp_s, self.step_max_s);
        if clock.now_s == 0 {
            self.began_s.store(next.now_s, Ordering::Relaxed);
        }
        // Workers that step at the same time may count one step twice, or once for both.
        self.clock.store(next.bits(), Ordering::Relaxed);
        next.now_s
    }

    /// The rules.
    pub fn file(&self) -> &RuleFile {
        &self.file
    }

    /// Counts packets that the filter refused.
    pub fn refuse(&self, packets: u64, bytes: u64) {
        self.refused.packets.fetch_add(packets, Ordering::Relaxed);
        self.refused.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A packet of an exact rule, in a second of [`see`](Self::see); a rule that was idle for too long decides nothing.
    #[inline]
    pub fn obey_exact(&self, rule: u32, bytes: u64, time_s: u32, decision: &mut Decision) {
        let actions = &self.file.actions[usize::from(self.file.exact.actions(rule))];
        let idle_s = self.file.idle_of(actions);
        if !self.file.exact.meet(rule, time_s, idle_s, self.began_s.load(Ordering::Relaxed)) {
            return;
        }
        let number = self.file.exact.count(rule, bytes, self.is_shared);
        decision.obey(actions, number, OF_EXACT | u64::from(rule));
    }

    /// A packet of a flow that was learned; `place` is its number in the flow, with its bytes.
    pub(crate) fn obey_learned(
        &self,
        number: u32,
        actions: &Actions,
        (place, bytes): (u64, u64),
        decision: &mut Decision,
    ) {
        self.learned.packets.count(bytes, self.is_shared);
        decision.obey(actions, place, OF_LEARNED | u64::from(number));
    }

    /// Counts flows that were learned.
    pub(crate) fn note_learned(&self, flows: u64) {
        self.learned.learned.fetch_add(flows, Ordering::Relaxed);
    }

    /// Counts learned flows that made room.
    pub(crate) fn note_forgotten(&self, flows: u64) {
        self.learned.forgotten.fetch_add(flows, Ordering::Relaxed);
    }

    /// Counts a packet whose flow found no room.
    pub(crate) fn refuse_flow(&self) {
        self.learned.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A packet of a rule of the list.
    ///
    /// # Panics
    /// If the rule does not exist.
    #[inline]
    pub fn obey_list(&self, rule: usize, bytes: u64, decision: &mut Decision) {
        let number = self.list[rule].count(bytes, self.is_shared);
        decision.obey(&self.file.list[rule].actions, number, rule as u64);
    }

    /// A packet that no rule has decided: the sample and the default. Whether it came to the default.
    #[inline]
    pub fn obey_rest(&self, bytes: u64, decision: &mut Decision) -> bool {
        if let Some(share) = self.file.sample {
            let number = self.sampled.count(bytes, self.is_shared);
            if !share.chooses(number, OF_SAMPLE) {
                self.unsampled.count(bytes, self.is_shared);
                decision.is_final = true;
                return false;
            }
        }
        let number = self.default.count(bytes, self.is_shared);
        decision.obey(&self.file.default, number, OF_SAMPLE + 1);
        decision.is_final = true;
        true
    }

    /// All counts, with those before a change.
    pub fn report(&self) -> Report {
        self.with_carried(|carried| {
            let exact = self.file.exact.numbers();
            let exact = exact.map(|rule| (rule, self.exact_counts(rule, carried)));
            let exact = exact.filter(|(_, counts)| counts.packets > 0).collect();
            let now_s = Clock::of(self.clock.load(Ordering::Relaxed)).now_s;
            let (purged, learned) = (self.purged(now_s), self.learned());
            Report { totals: self.totals(carried), exact, purged, learned, now_s }
        })
    }

    fn purged(&self, now_s: u32) -> u64 {
        let RuleFile { exact, .. } = &self.file;
        let began_s = self.began_s.load(Ordering::Relaxed);
        let is_purged = |rule: &u32| {
            let idle_s = self.file.idle_of(self.file.actions_of(*rule));
            idle_s > 0 && exact.is_purged(*rule, now_s, idle_s, began_s)
        };
        exact.numbers().filter(is_purged).count() as u64
    }

    fn learned(&self) -> LearnedTotals {
        let LearnedCounters { learned, forgotten, refused, packets } = &self.learned;
        let forgotten = forgotten.load(Ordering::Relaxed);
        LearnedTotals {
            flows: learned.load(Ordering::Relaxed).saturating_sub(forgotten),
            forgotten,
            refused: refused.load(Ordering::Relaxed),
            counts: packets.counts(),
        }
    }

    fn exact_counts(&self, rule: u32, carried: &Carried) -> Counts {
        self.file.exact.counts(rule).plus(carried.exact.get(&rule).copied().unwrap_or_default())
    }

    fn totals(&self, carried: &Carried) -> ListTotals {
        let mut totals = carried.totals.clone();
        totals.list.resize(self.list.len(), Counts::default());
        let list = totals.list.iter_mut().zip(&self.list);
        list.for_each(|(sum, counter)| *sum = sum.plus(counter.counts()));
        totals.refused = totals.refused.plus(self.refused.counts());
        totals.unsampled = totals.unsampled.plus(self.unsampled.counts());
        totals.default = totals.default.plus(self.default.counts());
        totals
    }

    /// Takes over the counts of the rules before these. No worker may count there any more.
    pub fn settle(&self) {
        let previous = self.lock().clone();
        if let Some(previous) = previous {
            let _ = self.carried.set(self.carry(&previous));
            *self.lock() = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<RuleSet>>> {
        self.previous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_carried<T>(&self, look: impl FnOnce(&Carried) -> T) -> T {
        if let Some(carried) = self.carried.get() {
            return look(carried);
        }
        let previous = self.lock().clone();
        match (previous, self.carried.get()) {
            (Some(previous), None) => look(&self.carry(&previous)),
            (_, Some(carried)) => look(carried),
            (None, None) => look(&Carried::default()),
        }
    }

    /// The counts of rules that stay, and those of the others as one sum.
    fn carry(&self, previous: &RuleSet) -> Carried {
        let Report { totals: before, exact: old, learned, .. } = previous.report();
        let all = before.list.iter().chain(old.iter().map(|(_, counts)| counts)).copied();
        // Flows that the earlier rules learned are gone with them.
        let all = all.fold(learned.counts, Counts::plus);
        let actions = |set: &RuleSet, rule| set.file.actions[usize::from(set.file.exact.actions(rule))];
        let stays = |(rule, counts): (u32, Counts)| {
            let same = previous.file.exact.same_in(rule, &self.file.exact)?;
            let is_same = actions(self, same) == actions(previous, rule);
            if is_same {
                self.file.exact.take_last_s(same, previous.file.exact.last_s(rule));
            }
            is_same.then_some((same, counts))
        };
        let exact: HashMap<u32, Counts> = old.into_iter().filter_map(stays).collect();
        let list = self.carry_list(previous, &before);
        let kept = list.iter().chain(exact.values()).copied().fold(Counts::default(), Counts::plus);
        let removed = before.removed.plus(all.minus(kept));
        Carried { totals: ListTotals { list, removed, ..before }, exact }
    }

    /// For each rule of the list the counts of the same rule before.
    fn carry_list(&self, previous: &RuleSet, before: &ListTotals) -> Vec<Counts> {
        let mut old: HashMap<_, Vec<Counts>> = HashMap::new();
        for (rule, counts) in previous.file.list.iter().zip(&before.list).rev() {
            old.entry(rule.identity()).or_default().push(*counts);
        }
        let rules = self.file.list.iter();
        rules.map(|rule| old.get_mut(&rule.identity()).and_then(Vec::pop).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::{ExactRule, Flow};

    fn file(text: &str) -> RuleFile {
        parse(text, &["web".to_owned()]).unwrap_or_else(|error| panic!("{}", error.render(text)))
    }

    /// The number of the rule for the flow of an exact rule.
    fn exact(set: &RuleSet, text: &str) -> u32 {
        let written = file(text);
        let ExactRule { tuple, .. } = written.exact.rule(written.exact.numbers().next().expect("one rule"));
        set.file().exact.find(&Flow::of(&tuple).expect("of one version")).expect("the rule is there")
    }

    #[test]
    fn rules_that_stay_keep_their_counts() {
        let (a, b) = ("flow tcp 1.1.1.1:1 <-> 2.2.2.2:2 => drop\n", "flow tcp [::1]:1 -> [::2]:2 => pass\n");
        let (x, y) = ("rule x: ip => drop\n", "rule: udp => count\n");
        let first = Arc::new(RuleSet::new(file(&[a, b, x, y].concat()), false));
        let mut decision = Decision::default();
        for _ in 0..3 {
            first.obey_exact(exact(&first, a), 100, 1, &mut decision);
            first.obey_exact(exact(&first, b), 10, 1, &mut decision);
            first.obey_list(0, 7, &mut decision);
            first.obey_list(1, 8, &mut decision);
            first.obey_rest(1, &mut decision);
        }
        // b has another action now, x another place, y is gone.
        let text = [a, "flow tcp [::1]:1 -> [::2]:2 => drop\nrule: arp => pass\n", x].concat();
        let second = RuleSet::after(file(&text), false, Arc::clone(&first));
        second.obey_exact(exact(&second, a), 100, 1, &mut decision);
        first.obey_list(0, 7, &mut decision);
        second.obey_list(1, 7, &mut decision);
        let expect = |report: Report| {
            assert_eq!(report.exact, [(exact(&second, a), Counts { packets: 4, bytes: 400 })]);
            assert_eq!(report.totals.list, [Counts::default(), Counts { packets: 5, bytes: 35 }]);
            assert_eq!(report.totals.default, Counts { packets: 3, bytes: 3 });
            assert_eq!(report.totals.removed, Counts { packets: 6, bytes: 54 });
        };
        expect(second.report());
        second.settle();
        expect(second.report());
        let third = RuleSet::after(file(&text), false, Arc::new(second));
        third.settle();
        assert_eq!(third.report().totals.removed, Counts { packets: 6, bytes: 54 });
        assert_eq!(third.report().exact.len(), 1);
    }

    /// Whether the rule of a text decides packets in the seconds of these stamps, one after the other.
    fn decided(text: &str, stamps: &[Option<u32>]) -> Vec<bool> {
        let set = RuleSet::new(file(text), false);
        let rule = exact(&set, text);
        let decide = |stamp_s: &Option<u32>| {
            let mut decision = Decision::default();
            set.obey_exact(rule, 1, set.see(*stamp_s), &mut decision);
            decision.is_final
        };
        stamps.iter().map(decide).collect()
    }

    #[test]
    fn stamps_that_leap_end_no_rule_in_use() {
        let text = "flow udp 1.1.1.1:1 -> 2.2.2.2:2 => drop, idle 10s\n";
        let now = 1_700_000_000;
        for stamps in [
            &[Some(now), Some(now + 86_400), Some(now + 1), Some(now + 2)][..],
            &[Some(now), Some(now + 3600), Some(now + 3601)],
            &[Some(now), Some(now - 3600), Some(now - 3599), Some(now + 1)],
            &[Some(1), Some(now), Some(now + 9)],
            &[None, None, Some(now), None, Some(now + 10), None],
        ] {
            assert!(decided(text, stamps).iter().all(|is_decided| *is_decided), "{stamps:?}");
        }
    }

    #[test]
    fn time_goes_on_with_other_packets() {
        let text = "flow udp 1.1.1.1:1 -> 2.2.2.2:2 => drop, idle 10s\n";
        let set = RuleSet::new(file(text), false);
        let obey = |time_s: u32| {
            let mut decision = Decision::default();
            set.obey_exact(exact(&set, text), 1, time_s, &mut decision);
            decision.is_final
        };
        assert!(obey(set.see(Some(100))));
        // A clock that is set forward by an hour, and a second later back again.
        for stamp_s in [104, 3704, 3705, 105, 106] {
            set.see(Some(stamp_s));
        }
        assert!(obey(set.see(Some(110))));
        for stamp_s in 111..=121 {
            set.see(Some(stamp_s));
        }
        assert_eq!(set.report().purged, 1);
        assert!(!obey(set.see(Some(121))));
        // After more than the idle time without the rule, it is over though the clock was set back.
        assert!(!obey(set.see(Some(112))));
    }

    #[test]
    fn decisions_follow_the_actions() {
        let text =
            "rule: ip => sample 1/2, to web, go on\nrule: ip => sample 1/2\nsample 0/1\ndefault to web";
        let set = RuleSet::new(file(text), true);
        let decide = |rule: usize| {
            let mut decision = Decision::default();
            set.obey_list(rule, 1, &mut decision);
            decision
        };
        let copies: Vec<Decision> = (0..100).map(|_| decide(0)).collect();
        assert_eq!(copies.iter().filter(|decision| decision.outputs == Outputs::of(1)).count(), 50);
        assert!(copies.iter().all(|decision| !decision.is_final));
        let chosen: Vec<Decision> = (0..100).map(|_| decide(1)).collect();
        assert_eq!(chosen.iter().filter(|decision| decision.outputs == Outputs::PASS).count(), 50);
        assert!(chosen.iter().all(|decision| decision.is_final));
        let mut rest = Decision::default();
        set.obey_rest(60, &mut rest);
        assert_eq!((rest.outputs, rest.is_final), (Outputs::default(), true));
        assert_eq!(set.report().totals.unsampled, Counts { packets: 1, bytes: 60 });
    }
}
