//! The flows of a meter, rebuilt from its journals, by their slots, with the counts of each in this second.
//!
//! ```text
//! journal --packet--> Counts, 32 bytes a slot: the only part that a packet touches
//!         --begun---> FlowFields, 64 bytes; names
//! end of a flow -----------------> what it counted --> Rankings
//! end of the second: greatest ---> the same
//!                    then all ---> the same
//! ```
//!
//! The greatest flows of a second are ranked first: most others then find tables whose rows had more, and need no place.

use std::sync::Mutex;

use tapline_flow::{Application, FlowBegin, Journal, JournalEntry, PayloadFacts};
use tapline_sys::memory;

use crate::change::{Change, FlowFields, NO_NAME};
use crate::names::{AnsweredNames, lock};
use crate::rankings::{CHUNK, Rankings};
use crate::table::{Amount, state};

/// Entries of a journal between the request for the memory of a slot and its use.
const AHEAD: usize = 48;
/// Flows that are ranked before all others.
const GREATEST: usize = 512;
/// Flows that are kept as candidates for these before the list is cut.
const CANDIDATES: usize = 4 * GREATEST;
/// The room of a table that grows, by its length: the system provides memory only as slots come into use, and the old
/// memory is copied and the new one filled with zeros while the meter needs the same.
const GROWTH: usize = 8;
/// The least number of slots that have memory.
const SLOTS_LEAST: usize = 4096;

/// The counts of a flow in this second.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Counts {
    bytes: [u64; 2],
    packets: [u32; 2],
    /// TCP flags of all packets of the flow so far.
    tcp_flags: [u8; 2],
    /// The side that sent the first packet.
    first_side: u8,
    is_known: bool,
}

const _: () = assert!(size_of::<Counts>() == 32, "docs/view.md tells the memory of a flow");

/// The flows of a meter.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    counts: Vec<Counts>,
    flows: Vec<FlowFields>,
    texts: Texts,
    /// A bit for each slot: whether it had packets in this second.
    touched: Vec<u64>,
    /// Slots that had packets, at the end of the second, in their order: the memory of their counts is then read from
    /// its begin to its end.
    slots: Vec<u32>,
    greatest: Greatest,
    /// Packets of slots of which no flow is known.
    unknown: Amount,
}

impl Mirror {
    /// Reads a journal. Flows that end are ranked.
    pub(crate) fn read(&mut self, journal: &Journal, rankings: &mut Rankings, names: &Mutex<AnsweredNames>) {
        let mut ahead = journal.slots();
        ahead.by_ref().take(AHEAD).for_each(|slot| memory::prefetch_element(&self.counts, slot as usize));
        for entry in journal.entries() {
            if let Some(slot) = ahead.next() {
                memory::prefetch_element(&self.counts, slot as usize);
            }
            match entry {
                JournalEntry::Packet { slot, side, tcp_flags, bytes } => {
                    self.packet(slot, side, tcp_flags, bytes);
                }
                JournalEntry::Begun { slot, flow } => self.begin(slot, flow, rankings),
                JournalEntry::Said { slot, said } => self.say(slot, said),
                JournalEntry::Named { named, .. } => lock(names).learn(named),
                JournalEntry::Ended { slot, reason } => {
                    self.rank_one(slot, reason as u8, rankings);
                    self.forget(slot);
                }
            }
        }
    }

    fn packet(&mut self, slot: u32, side: u8, tcp_flags: u8, bytes: u32) {
        let Some(counts) = self.counts.get_mut(slot as usize).filter(|counts| counts.is_known) else {
            return self.unknown.add(Amount { packets: 1, bytes: bytes.into() });
        };
        let side = usize::from((side ^ counts.first_side) & 1);
        let Some(packets) = counts.packets[side].checked_add(1) else {
            return self.unknown.add(Amount { packets: 1, bytes: bytes.into() });
        };
        // Without a branch, which would be guessed wrong for each first packet of a second.
        self.touched[slot as usize / 64] |= 1 << (slot % 64);
        counts.packets[side] = packets;
        counts.bytes[side] += u64::from(bytes);
        counts.tcp_flags[side] |= tcp_flags;
    }

    fn begin(&mut self, slot: u32, flow: &FlowBegin, rankings: &mut Rankings) {
        // Of a flow that is described once more in a second nothing is left out.
        self.rank_one(slot, 0, rankings);
        self.forget(slot);
        let at = slot as usize;
        if at >= self.counts.len() {
            extend(&mut self.counts, at + 1, Counts::default());
            extend(&mut self.flows, at + 1, FlowFields::NOTHING);
            self.touched.resize(at / 64 + 1, 0);
        }
        self.counts[at] = Counts {
            tcp_flags: flow.tcp_flags,
            first_side: flow.first_side,
            is_known: true,
            ..Counts::default()
        };
        let protocol = (flow.protocol, flow.tcp_flags_first);
        // As keys have them: the bytes in their order.
        let hosts = flow.addresses.map(|address| address.map(u64::to_be));
        let fields = FlowFields::new(hosts, flow.ports, protocol, &flow.context, flow.began.as_nanos());
        self.flows[at] = FlowFields { application: self.texts.number(flow.application), ..fields };
    }

    fn say(&mut self, slot: u32, said: &PayloadFacts) {
        let at = slot as usize;
        if !self.counts.get(at).is_some_and(|counts| counts.is_known) {
            return;
        }
        let flow = &mut self.flows[at];
        flow.application = self.texts.number(said.application);
        self.texts.forget(std::mem::replace(&mut flow.name, NO_NAME));
        flow.name = said.name.clone().map_or(NO_NAME, |name| self.texts.keep(name));
    }

    fn forget(&mut self, slot: u32) {
        if let Some(counts) = self.counts.get_mut(slot as usize) {
            counts.is_known = false;
            self.texts.forget(std::mem::replace(&mut self.flows[slot as usize].name, NO_NAME));
        }
    }

    /// Ranks the counts of the flow in a slot, if it has any, and restarts them; `end` is the reason for its end.
    fn rank_one(&mut self, slot: u32, end: u8, rankings: &mut Rankings) {
        if self.counts.get(slot as usize).is_some_and(|counts| counts.packets != [0; 2]) {
            self.rank(&[slot], end, rankings);
        }
    }

    /// Ranks the counts of the flows in these slots, and restarts them; `end` is the reason for their end.
    fn rank(&mut self, slots: &[u32], end: u8, rankings: &mut Rankings) {
        const NOTHING: Change<'_> = Change::NOTHING;
        let mut changes = [NOTHING; CHUNK];
        let mut ahead = slots.iter().skip(CHUNK);
        for slots in slots.chunks(CHUNK) {
            for &slot in ahead.by_ref().take(CHUNK) {
                memory::prefetch_element(&self.counts, slot as usize);
                memory::prefetch_element(&self.flows, slot as usize);
            }
            let mut len = 0;
            for &slot in slots {
                let Some(counts) = self.counts.get_mut(slot as usize) else { continue };
                if counts.packets == [0; 2] {
                    continue;
                }
                let (packets, bytes) =
                    (std::mem::take(&mut counts.packets), std::mem::take(&mut counts.bytes));
                let fields = &self.flows[slot as usize];
                changes[len] = Change {
                    fields,
                    amounts: [0, 1].map(|side| Amount { packets: packets[side].into(), bytes: bytes[side] }),
                    state: state(counts.tcp_flags, end, fields.server == 0),
                    application: self.texts.application(fields.application),
                    name: self.texts.name(fields.name),
                };
                len += 1;
            }
            rankings.add(&changes[..len]);
        }
    }

    /// Ends the second: ranks all that was counted. Returns the packets of which no flow is known.
    pub(crate) fn end_second(&mut self, rankings: &mut Rankings) -> Amount {
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        for (number, bits) in self.touched.iter_mut().enumerate() {
            let mut rest = std::mem::take(bits);
            while rest != 0 {
                slots.push((number * 64) as u32 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        for (number, &slot) in slots.iter().enumerate() {
            if let Some(&next) = slots.get(number + AHEAD) {
                memory::prefetch_element(&self.counts, next as usize);
            }
            let Some(counts) = self.counts.get(slot as usize) else { continue };
            self.greatest.offer(counts.bytes[0].saturating_add(counts.bytes[1]), slot);
        }
        let greatest = self.greatest.take();
        self.rank(&greatest, 0, rankings);
        self.rank(&slots, 0, rankings);
        self.slots = slots;
        std::mem::take(&mut self.unknown)
    }
}

/// Lengthens a table of slots, into large pages where there are: its places are read all over.
fn extend<T: Copy>(table: &mut Vec<T>, len: usize, value: T) {
    if len > table.capacity() {
        let mut longer = Vec::with_capacity((GROWTH * len).max(SLOTS_LEAST));
        memory::advise_large_pages(longer.spare_capacity_mut());
        longer.extend_from_slice(table);
        *table = longer;
    }
    table.resize(len, value);
}

/// Names and applications of flows, by numbers.
#[derive(Debug, Default)]
struct Texts {
    names: Vec<Box<str>>,
    /// Numbers of names that no flow has any more.
    free: Vec<u32>,
    applications: Vec<Application>,
}

impl Texts {
    /// The number of an application, from 1 on: there are some dozens.
    fn number(&mut self, application: Option<Application>) -> u16 {
        let Some(application) = application else { return 0 };
        let place = self.applications.iter().position(|known| *known == application).unwrap_or_else(|| {
            self.applications.push(application);
            self.applications.len() - 1
        });
        u16::try_from(place + 1).unwrap_or(0)
    }

    /// The application of a number; empty for none.
    fn application(&self, number: u16) -> Application {
        let place = usize::from(number).checked_sub(1);
        place.and_then(|place| self.applications.get(place)).copied().unwrap_or_default()
    }

    fn keep(&mut self, name: Box<str>) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = name;
                number
            }
            None => {
                self.names.push(name);
                (self.names.len() - 1) as u32
            }
        }
    }

    fn forget(&mut self, number: u32) {
        if let Some(name) = self.names.get_mut(number as usize) {
            *name = Box::default();
            self.free.push(number);
        }
    }

    /// The name of a number; empty for none.
    fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }
}

/// The slots of the greatest flows, in the memory of few.
#[derive(Debug, Default)]
struct Greatest {
    /// Bytes and slot.
    candidates: Vec<(u64, u32)>,
    /// Flows of no more bytes are not among the greatest.
    floor: u64,
}

impl Greatest {
    fn offer(&mut self, bytes: u64, slot: u32) {
        if bytes <= self.floor {
            return;
        }
        self.candidates.push((bytes, slot));
        if self.candidates.len() == CANDIDATES {
            self.cut();
            self.floor = self.candidates.iter().map(|(bytes, _)| *bytes).min().unwrap_or(0);
        }
    }

    fn cut(&mut self) {
        if self.candidates.len() > GREATEST {
            self.candidates.select_nth_unstable_by(GREATEST, |one, other| other.cmp(one));
            self.candidates.truncate(GREATEST);
        }
    }

    /// Takes the greatest so far, in no order, and starts again.
    fn take(&mut self) -> Vec<u32> {
        self.cut();
        self.floor = 0;
        self.candidates.drain(..).map(|(_, slot)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever their order, the greatest of many are chosen, each once, and then others.
    #[test]
    fn the_greatest_of_many_are_chosen() {
        let mut greatest = Greatest::default();
        for (len, step) in [(10_000_u64, 7919), (10_000, 1), (10_000, 9_999), (600, 7), (5, 1)] {
            for number in 0..len {
                let number = number * step % len;
                greatest.offer(100 + number, number as u32);
            }
            let mut chosen = greatest.take();
            chosen.sort_unstable();
            let first = len.saturating_sub(GREATEST as u64);
            assert_eq!(chosen, (first as u32..len as u32).collect::<Vec<_>>(), "{len} by {step}");
        }
        assert!(greatest.candidates.capacity() <= 2 * CANDIDATES, "memory is bounded");
        assert_eq!(greatest.take(), [0_u32; 0]);
    }

    #[test]
    fn names_and_applications_have_numbers() {
        let mut texts = Texts::default();
        let (tls, dns) = (texts.number(Some("tls")), texts.number(Some("domain")));
        assert_eq!((texts.number(None), texts.number(Some("tls"))), (0, tls));
        assert_eq!([0, tls, dns].map(|number| texts.application(number)), ["", "tls", "domain"]);
        let (one, other) = (texts.keep("one".into()), texts.keep("other".into()));
        texts.forget(one);
        texts.forget(NO_NAME);
        assert_eq!((texts.name(one), texts.name(other), texts.name(NO_NAME)), ("", "other", ""));
        assert_eq!(texts.keep("new".into()), one, "numbers are used again");
        assert_eq!(texts.name(one), "new");
    }
}
