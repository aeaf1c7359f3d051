//! The table of sources. Its bounds on number and memory are shared: when the table is full, a new source replaces
//! another.
//!
//! ```text
//! table full       forgotten: 1. sources of a sender with more than its share    2. unproven sources    3. all others
//!                  of each kind those with the fewest messages in order first, of these the longest silent, a sixteenth
//!                  of the table at a time
//! memory used up   forgotten: 1. unproven sources                                2. all others
//!                  of each kind those of the sender with the most memory first
//! ```
//!
//! A source is proven once it has sent messages in order for a while. Forged addresses fill the table with unproven
//! sources, which replace each other; an exporter that is not proven yet, but has sent messages in order, stays
//! longer than addresses that were used once. Counters of forgotten sources are kept as one sum.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::account::{Forgotten, Protocol, RefusedCause, SourceAccount};
use crate::draft::MessageTime;
use crate::sampling::{SamplingRates, SharedRates};
use crate::sequence::Sequences;
use crate::template::Template;
use crate::totals::FlowTotals;

/// Memory of the templates, sets and sampling intervals of all sources, in bytes, about.
const MEMORY_MAX: usize = 64 << 20;
/// The part of the table that sources of one sender may fill once it is full: an eighth.
const SHARE: usize = 8;
/// The part of the table that is emptied when it is full: a sixteenth.
const FORGOTTEN_AT_ONCE: usize = 16;
/// A source is proven after this many messages in order, and this long.
const PROOF_MESSAGES: u32 = 3;
const PROOF_NS: i64 = 60 * 1_000_000_000;
/// An exporter whose uptime began this much later than before has restarted; less is a clock that was set.
const RESTART_NS: i64 = 10 * 1_000_000_000;
/// The time after which an uptime in milliseconds begins at 0 again, and how exact the header's seconds are.
const WRAP_NS: i64 = (1 << 32) * 1_000_000;
const SLACK_NS: i64 = 600 * 1_000_000_000;

/// A transport session (RFC 7011, 8.4), and the domain of the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SourceKey {
    /// The exporter's address; of sFlow the agent's.
    pub(crate) exporter: IpAddr,
    /// The port that it sends from; 0 where it does not matter or is not known.
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) domain: u32,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) account: SourceAccount,
    sequences: Sequences,
    pub(crate) rates: SamplingRates,
    pub(crate) templates: BTreeMap<u16, Template>,
    /// Fields of all templates.
    pub(crate) fields: usize,
    /// The time at which the uptime was 0, if options gave it.
    pub(crate) boot_ns: Option<i64>,
    /// The uptime of the last message in milliseconds, and the time at which it was 0.
    uptime: Option<(u32, i64)>,
    /// Totals of flows whose records count from the beginning of the flow.
    pub(crate) totals: FlowTotals,
    pub(crate) held: VecDeque<HeldSet>,
    pub(crate) held_octets: usize,
    /// Bytes of memory that count for the bound of all sources.
    pub(crate) memory: usize,
    /// The address that its datagrams come from.
    sender: IpAddr,
    first_seen: Timestamp,
    /// Messages in order, up to the number that proves the source.
    in_order: u32,
    pub(crate) is_proven: bool,
    /// Grows with each datagram of any source.
    last_used: u64,
}

/// A set of records whose template has not come.
#[derive(Debug)]
pub(crate) struct HeldSet {
    pub(crate) id: u16,
    pub(crate) time: MessageTime,
    pub(crate) octets: Box<[u8]>,
}

impl Source {
    fn new(key: SourceKey, sender: IpAddr, now: Timestamp) -> Source {
        Source {
            account: SourceAccount::new(key.exporter, key.port, key.protocol, key.domain),
            sequences: Sequences::default(),
            rates: SamplingRates::default(),
            templates: BTreeMap::new(),
            fields: 0,
            boot_ns: None,
            uptime: None,
            totals: FlowTotals::default(),
            held: VecDeque::new(),
            held_octets: 0,
            memory: 0,
            sender,
            first_seen: now,
            in_order: 0,
            is_proven: false,
            last_used: 0,
        }
    }

    pub(crate) fn key(&self) -> SourceKey {
        let SourceAccount { exporter, port, protocol, domain, .. } = self.account;
        SourceKey { exporter, port, protocol, domain }
    }

    /// Notes the sequence number of a message with so many records that came at `now`. Whether the source is proven with
    /// it.
    pub(crate) fn note_sequence(&mut self, number: u32, records: Option<u32>, now: Timestamp) -> bool {
        if self.sequences.note(number, records, &mut self.account) {
            self.in_order = (self.in_order + 1).min(PROOF_MESSAGES);
        }
        let is_long = now.as_nanos().saturating_sub(self.first_seen.as_nanos()) >= PROOF_NS;
        let is_new = !self.is_proven && self.in_order == PROOF_MESSAGES && is_long;
        self.is_proven |= is_new;
        is_new
    }

    /// The second at which the exporter started, if its messages have it.
    pub(crate) fn boot_second(&self) -> Option<i64> {
        Some(self.uptime?.1.div_euclid(1_000_000_000))
    }

    /// Sets the second at which the exporter started, as a file has it.
    pub(crate) fn set_boot_second(&mut self, second: i64) {
        self.uptime = Some((u32::MAX, second.saturating_mul(1_000_000_000)));
    }

    /// Notes the uptime of a message. After a restart of the exporter its templates are not those from before, and have
    /// to come again (RFC 3954, 9; RFC 7011, 8.4). Whether the exporter has started since the message before, or there
    /// was none.
    pub(crate) fn note_uptime(&mut self, (uptime, boot_ns): (u32, i64)) -> bool {
        let before = self.uptime.replace((uptime, boot_ns));
        if before.is_none() {
            return true;
        }
        let Some((uptime_before, boot_before)) = before.filter(|before| uptime < before.0) else {
            return false;
        };
        let later = boot_ns.saturating_sub(boot_before);
        // A late message has the boot time that others have; an uptime that wraps has one 2^32 ms later.
        let is_wrap = (later - WRAP_NS).abs() < SLACK_NS && uptime_before > u32::MAX / 2;
        if later < RESTART_NS && uptime_before < u32::MAX {
            self.uptime = before;
        } else if later >= RESTART_NS && !is_wrap {
            self.forget_templates();
            return true;
        }
        false
    }

    /// Notes that a message of IPFIX of this number is about to be read. Exporters count from 0, so one that is at 0 again
    /// has restarted.
    pub(crate) fn note_first(&mut self, number: u32) {
        if self.sequences.begins_anew(number) {
            self.forget_templates();
        }
    }

    fn forget_templates(&mut self) {
        self.give_up_held();
        self.memory -= self.templates.values().map(Template::memory).sum::<usize>();
        self.fields = 0;
        self.templates.clear();
        self.account.templates = 0;
    }

    /// Gives up the sets that are held. They are counted as refused.
    fn give_up_held(&mut self) {
        self.account.refused[RefusedCause::NoTemplate as usize] += self.held.len() as u64;
        self.account.held = 0;
        self.memory -= mem::take(&mut self.held_octets);
        self.held.clear();
    }
}

/// The sources that are known.
#[derive(Debug)]
pub(crate) struct Sources {
    all: HashMap<SourceKey, Source>,
    exporters: HashMap<IpAddr, Exporter>,
    max: usize,
    /// Sum of [`Source::memory`] and of the memory of exporters.
    memory: usize,
    uses: u64,
    last_used: Option<SourceKey>,
    forgotten: Forgotten,
}

/// The common state of the domains of an exporter.
#[derive(Debug, Default)]
struct Exporter {
    rates: SharedRates,
    /// Sources that are known.
    sources: usize,
}

impl Sources {
    pub(crate) fn new(max: usize) -> Sources {
        Sources {
            all: HashMap::new(),
            exporters: HashMap::new(),
            max: max.max(1),
            memory: 0,
            uses: 0,
            last_used: None,
            forgotten: Forgotten::default(),
        }
    }

    /// Lends the source of a datagram from `sender` that came at `now` to `read`, and makes room afterwards.
    pub(crate) fn with<R>(
        &mut self,
        key: SourceKey,
        sender: IpAddr,
        now: Timestamp,
        read: impl FnOnce(&mut Source, &mut SharedRates) -> R,
    ) -> R {
        if self.all.len() >= self.max && !self.all.contains_key(&key) {
            self.shorten();
        }
        self.uses += 1;
        let Exporter { rates, sources } = self.exporters.entry(key.exporter).or_default();
        let source = self.all.entry(key).or_insert_with(|| {
            *sources += 1;
            Source::new(key, sender, now)
        });
        source.last_used = self.uses;
        if source.account.datagrams == 0 {
            // A file may have known it before.
            source.first_seen = now;
        }
        self.last_used = Some(key);
        let before = source.memory + rates.memory();
        let read = read(source, rates);
        self.memory = self.memory - before + source.memory + rates.memory();
        if self.memory > MEMORY_MAX {
            self.shrink();
        }
        read
    }

    /// The account of the source that was lent last; the sum of the forgotten ones if it is one of them.
    pub(crate) fn last_used(&mut self) -> Option<&mut SourceAccount> {
        match self.all.get_mut(&self.last_used?) {
            Some(source) => Some(&mut source.account),
            None => Some(&mut self.forgotten.account),
        }
    }

    pub(crate) fn contains(&self, key: SourceKey) -> bool {
        self.all.contains_key(&key)
    }

    /// Takes a source out of the table that has sent nothing yet: a file had its templates.
    pub(crate) fn remove_unseen(&mut self, key: SourceKey) -> Option<Source> {
        self.all.get(&key).filter(|source| source.account.datagrams == 0)?;
        self.remove(key)
    }

    fn remove(&mut self, key: SourceKey) -> Option<Source> {
        let source = self.all.remove(&key)?;
        self.memory -= source.memory;
        if let Some(exporter) = self.exporters.get_mut(&key.exporter) {
            exporter.sources -= 1;
            if exporter.sources == 0 {
                self.memory -= exporter.rates.memory();
                self.exporters.remove(&key.exporter);
            }
        }
        Some(source)
    }

    /// The sources that have sent a datagram.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &SourceAccount> {
        self.all.values().map(|source| &source.account).filter(|source| source.datagrams > 0)
    }

    /// All sources, the proven ones first, of each kind the last used first.
    pub(crate) fn by_worth(&self) -> Vec<&Source> {
        let mut all: Vec<&Source> = self.all.values().collect();
        all.sort_unstable_by_key(|source| Reverse((source.is_proven, source.last_used)));
        all
    }

    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    pub(crate) fn finish(&mut self) {
        for source in self.all.values_mut() {
            let before = source.memory;
            source.give_up_held();
            self.memory = self.memory - before + source.memory;
        }
    }

    /// Forgets a part of a full table.
    fn shorten(&mut self) {
        let mut all: Vec<&Source> = self.all.values().collect();
        // A share has the best of its sender.
        all.sort_unstable_by_key(|source| Reverse((source.is_proven, source.in_order, source.last_used)));
        let share = (self.max / SHARE).max(1);
        let mut of_sender: HashMap<IpAddr, usize> = HashMap::new();
        let rank = |source: &&Source| {
            let count = of_sender.entry(source.sender).or_default();
            *count += 1;
            ((*count <= share, source.is_proven, source.in_order, source.last_used), source.key())
        };
        let mut ranked: Vec<_> = all.iter().map(rank).collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        let count = (self.max / FORGOTTEN_AT_ONCE).max(1);
        ranked.into_iter().take(count).for_each(|(_, key)| self.forget(key));
    }

    /// Forgets sources until an eighth of the memory is free.
    fn shrink(&mut self) {
        let mut of_sender: HashMap<IpAddr, usize> = HashMap::new();
        for source in self.all.values() {
            *of_sender.entry(source.sender).or_default() += source.memory;
        }
        let rank = |source: &Source| {
            let memory = of_sender.get(&source.sender).copied().unwrap_or(0);
            ((source.is_proven, source.in_order, Reverse(memory), source.last_used), source.key())
        };
        let mut ranked: Vec<_> = self.all.values().filter(|source| source.memory > 0).map(rank).collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        for (_, key) in ranked {
            if self.memory <= MEMORY_MAX - MEMORY_MAX / 8 {
                return;
            }
            self.forget(key);
        }
    }

    fn forget(&mut self, key: SourceKey) {
        if let Some(mut source) = self.remove(key) {
            source.give_up_held();
            self.forgotten.add(&source.account);
        }
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u32) -> SourceKey {
        SourceKey {
            exporter: IpAddr::from(last.to_be_bytes()),
            port: 1,
            protocol: Protocol::Ipfix,
            domain: 0,
        }
    }

    /// A message in order from this source, at this second.
    fn message(sources: &mut Sources, key: SourceKey, second: i64) {
        sources.with(key, key.exporter, Timestamp::from_parts(second, 0), |source, _| {
            let number = source.account.datagrams as u32;
            source.account.datagrams += 1;
            source.note_sequence(number, Some(1), Timestamp::from_parts(second, 0));
        });
    }

    #[test]
    fn forged_addresses_make_room_for_each_other() {
        let mut sources = Sources::new(100);
        (0..5).for_each(|minute| message(&mut sources, key(7), 60 * minute));
        (1000..40_000).for_each(|forged| message(&mut sources, key(forged), 300));
        message(&mut sources, key(8), 300);
        assert!(sources.contains(key(7)), "proven");
        assert!(sources.contains(key(8)), "a new one finds room");
        let (known, forgotten) = (sources.seen().count() as u64, sources.forgotten());
        assert_eq!(forgotten.sources + known, 39_002);
        let known: u64 = sources.seen().map(|source| source.datagrams).sum();
        assert_eq!(forgotten.account.datagrams + known, 39_000 + 5 + 1, "no count is lost");
    }

    /// Exporters that send seldom, or have begun a moment ago, are not proven: a flood of other addresses, or of other ports
    /// of theirs, takes no place from them.
    #[test]
    fn unproven_exporters_outlast_forged_addresses() {
        let mut sources = Sources::new(160);
        (0..2).for_each(|message_number| message(&mut sources, key(7), 300 * message_number));
        (0..5).for_each(|second| message(&mut sources, key(8), 596 + second));
        (1000..20_000).for_each(|forged| message(&mut sources, key(forged), 601));
        (2..20_000).for_each(|port| message(&mut sources, SourceKey { port, ..key(8) }, 602));
        assert!(sources.contains(key(7)), "one that sends seldom");
        assert!(sources.contains(key(8)), "one that has begun a moment ago");
    }

    /// A source's entry in the file does not count as time in which it has sent messages.
    #[test]
    fn a_source_is_proven_by_its_own_messages() {
        let mut sources = Sources::new(100);
        sources.with(key(7), key(7).exporter, Timestamp::EPOCH, |_, _| ());
        let is_proven = |sources: &mut Sources| {
            sources.with(key(7), key(7).exporter, Timestamp::EPOCH, |source, _| source.is_proven)
        };
        (0..10).for_each(|second| message(&mut sources, key(7), 1_700_000_000 + second));
        assert!(!is_proven(&mut sources));
        message(&mut sources, key(7), 1_700_000_060);
        assert!(is_proven(&mut sources));
    }

    #[test]
    fn one_sender_has_a_share_of_a_full_table() {
        let mut sources = Sources::new(160);
        (0..20).for_each(|last| message(&mut sources, key(last), 0));
        let forged = |domain| SourceKey { domain, ..key(9999) };
        (0..10_000).for_each(|domain| message(&mut sources, forged(domain), 1));
        assert!((0..20).all(|last| sources.contains(key(last))), "none of others is forgotten");
    }

    #[test]
    fn memory_is_that_of_the_largest_senders() {
        let mut sources = Sources::new(10_000);
        let take = |sources: &mut Sources, key: SourceKey, bytes: usize| {
            sources.with(key, key.exporter, Timestamp::EPOCH, |source, _| source.memory += bytes);
        };
        take(&mut sources, key(1), 10_000);
        (2..1000).for_each(|last| take(&mut sources, key(last), 1 << 20));
        assert!(sources.memory() <= MEMORY_MAX && sources.contains(key(1)));
    }
}
