//! The journal of a meter: in their order, flows that began, packets that they counted, names that became known, flows
//! that ended.
//!
//! ```text
//! bits      30     2            8           24
//! a packet  slot | side 0, 1  | TCP flags | bytes
//! all else  slot | the kind 2 | what      | number     flows that began and names stand in lists beside
//! ```
//!
//! A thread that reads journals knows each flow by its slot and adds up the counts of packets, so that the meter's
//! thread has no more to do for a reader than to append 8 bytes a packet.

use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::details::Application;
use crate::packet::PacketSummary;
use crate::wheel::SLOTS_MAX;
use crate::{EndReason, FlowContext};

/// Entries from which on a journal is full: 16 KiB of packets. A meter writes some of them in turn, and they should
/// stay in the cache of its core.
const ENTRIES_MAX: usize = 2048;
/// Room for the entries of one more batch of 256 packets.
const ENTRIES_BEYOND: usize = 512;
/// Names from which on a journal is full.
const SAID_MAX: usize = 1024;
/// The most addresses of a name that one DNS answer gives.
pub(crate) const ADDRESSES_MAX: usize = 16;

const SLOT_BITS: u32 = 30;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const KIND_OTHER: u64 = 2;
const FLAGS_AT: u32 = 32;
const BYTES_AT: u32 = 40;
const BYTES_BITS: u32 = 24;
const BYTES_MASK: u32 = (1 << BYTES_BITS) - 1;

const _: () = assert!(SLOTS_MAX < 1 << SLOT_BITS, "a slot fits into an entry");

/// Kinds of entries other than packets.
mod what {
    pub(super) const BEGUN: u8 = 0;
    pub(super) const SAID: u8 = 1;
    pub(super) const ENDED: u8 = 2;
    /// The high bits of the bytes of the packet that follows.
    pub(super) const LONG: u8 = 3;
    pub(super) const NAMED: u8 = 4;
}

/// The work of a meter, in its order: see [`Meter::take_journal`](crate::Meter::take_journal).
#[derive(Clone, Debug)]
pub struct Journal {
    entries: Vec<u64>,
    begun: Vec<FlowBegin>,
    said: Vec<PayloadFacts>,
    named: Vec<NamedAddresses>,
}

/// A flow as it is when it first appears in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBegin {
    /// The source of the first packet, then its destination, as [`address_words`](Self::address_words) makes them.
    pub addresses: [[u64; 2]; 2],
    /// Ports of the flow, as in [`Endpoint`](crate::Endpoint).
    pub ports: [u16; 2],
    /// The IP protocol number.
    pub protocol: u8,
    /// The TCP flags of all packets so far, of both.
    pub tcp_flags: [u8; 2],
    /// The TCP flags of the first packet.
    pub tcp_flags_first: u8,
    /// The side that sent the first packet, by the numbers that [`JournalEntry::Packet`] has.
    pub first_side: u8,
    /// Fields of the first packet.
    pub context: FlowContext,
    /// When the flow began, by the meter's clock.
    pub began: Timestamp,
    /// The application, if the meter collects it and it is known so far.
    pub application: Option<Application>,
}

impl FlowBegin {
    /// The high and the low half of an address, one of IPv4 mapped into IPv6.
    pub fn address_words(address: IpAddr) -> [u64; 2] {
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        [(bits >> 64) as u64, bits as u64]
    }
}

/// Facts that the payload of a flow has shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayloadFacts {
    /// The application, if the meter collects it and it is known.
    pub application: Option<Application>,
    /// The name that the client asked for in TLS, HTTP or DNS, if the meter collects names and it is known; escaped as in
    /// [`Details`](crate::Details).
    pub name: Option<Box<str>>,
}

/// Addresses of a name, as a DNS answer has them. The sender of the answer chose both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedAddresses {
    /// The name; escaped as in [`Details`](crate::Details).
    pub name: Box<str>,
    /// At most 16.
    pub addresses: Vec<IpAddr>,
}

/// An entry of a journal. A slot is a number below the capacity of the meter's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JournalEntry<'j> {
    /// A flow has this slot from here on. Its packets follow.
    Begun {
        /// The flow's slot.
        slot: u32,
        /// The flow.
        flow: &'j FlowBegin,
    },
    /// A packet of a flow.
    Packet {
        /// The flow's slot.
        slot: u32,
        /// The side that sent it, 0 or 1.
        side: u8,
        /// TCP flags of the packet.
        tcp_flags: u8,
        /// Bytes of the packet, as flows count them.
        bytes: u32,
    },
    /// Application and name of a flow have become known, or others.
    Said {
        /// The flow's slot.
        slot: u32,
        /// The present facts.
        said: &'j PayloadFacts,
    },
    /// A flow has shown the addresses of a name.
    Named {
        /// The flow's slot.
        slot: u32,
        /// Name and addresses.
        named: &'j NamedAddresses,
    },
    /// A flow has ended; its slot is free.
    Ended {
        /// The flow's slot.
        slot: u32,
        /// The reason.
        reason: EndReason,
    },
}

impl Default for Journal {
    /// An empty journal, with room for its packets: one that grows is copied again and again.
    fn default() -> Journal {
        let entries = Vec::with_capacity(ENTRIES_MAX + ENTRIES_BEYOND);
        Journal { entries, begun: Vec::new(), said: Vec::new(), named: Vec::new() }
    }
}

impl Journal {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it should be read: from some 2,048 entries on. It takes more.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.said.len() + self.named.len() >= SAID_MAX
    }

    /// Empties it; its memory stays.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.begun.clear();
        self.said.clear();
        self.named.clear();
    }

    /// Writes a packet of a flow: its side, 0 or 1, its TCP flags and its bytes. A slot has 30 bits, here and below.
    #[inline]
    pub fn packet(&mut self, slot: u32, side: u8, tcp_flags: u8, bytes: u32) {
        if bytes > BYTES_MASK {
            self.long(slot, bytes);
        }
        self.entries.push(packet(slot & SLOT_MASK, side & 1, tcp_flags, bytes));
    }

    /// Writes packets of a meter, which have been added to their slots.
    #[inline]
    pub(crate) fn packets(&mut self, packets: &[PacketSummary]) {
        let (len, mut bytes) = (self.entries.len(), 0);
        self.entries.extend(packets.iter().map(|summary| {
            bytes |= summary.bytes;
            packet(summary.slot, summary.side, summary.flags, summary.bytes)
        }));
        if bytes > BYTES_MASK {
            self.entries.truncate(len);
            packets
                .iter()
                .for_each(|summary| self.packet(summary.slot, summary.side, summary.flags, summary.bytes));
        }
    }

    /// Writes the high bits of the bytes of the packet that follows.
    #[cold]
    #[inline(never)]
    fn long(&mut self, slot: u32, bytes: u32) {
        self.other(slot, what::LONG, bytes >> BYTES_BITS);
    }

    fn other(&mut self, slot: u32, what: u8, number: u32) {
        let fields = u64::from(what) << FLAGS_AT | u64::from(number) << BYTES_AT;
        self.entries.push(u64::from(slot & SLOT_MASK) | KIND_OTHER << SLOT_BITS | fields);
    }

    /// Writes that a flow has a slot from here on.
    pub fn begun(&mut self, slot: u32, flow: FlowBegin) {
        self.other(slot, what::BEGUN, 0);
        self.begun.push(flow);
    }

    /// Writes the facts from the payload of a flow.
    pub fn said(&mut self, slot: u32, said: PayloadFacts) {
        self.other(slot, what::SAID, 0);
        self.said.push(said);
    }

    /// Writes the addresses of a name.
    pub fn named(&mut self, slot: u32, named: NamedAddresses) {
        self.other(slot, what::NAMED, 0);
        self.named.push(named);
    }

    /// Writes the end of a flow.
    pub fn ended(&mut self, slot: u32, reason: EndReason) {
        self.other(slot, what::ENDED, reason as u32);
    }

    /// The entries, in the order in which the meter made them.
    pub fn entries(&self) -> impl Iterator<Item = JournalEntry<'_>> {
        let (mut begun, mut said, mut named) = (self.begun.iter(), self.said.iter(), self.named.iter());
        let mut high = 0;
        self.entries.iter().filter_map(move |&entry| {
            let slot = slot_of(entry);
            let (flags, number) = ((entry >> FLAGS_AT) as u8, (entry >> BYTES_AT) as u32);
            let kind = entry >> SLOT_BITS & 3;
            if kind != KIND_OTHER {
                let bytes = std::mem::take(&mut high) << BYTES_BITS | number;
                return Some(JournalEntry::Packet { slot, side: kind as u8, tcp_flags: flags, bytes });
            }
            match flags {
                what::BEGUN => begun.next().map(|flow| JournalEntry::Begun { slot, flow }),
                what::SAID => said.next().map(|said| JournalEntry::Said { slot, said }),
                what::NAMED => named.next().map(|named| JournalEntry::Named { slot, named }),
                what::ENDED => Some(JournalEntry::Ended { slot, reason: EndReason::of_number(number as u8) }),
                _ => {
                    high = number;
                    None
                }
            }
        })
    }

    /// The slots of all entries, for a reader that asks for their memory ahead.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|&entry| slot_of(entry))
    }

    /// Packets and bytes of all entries.
    pub fn sum(&self) -> (u64, u64) {
        self.entries().fold((0, 0), |(packets, bytes), entry| match entry {
            JournalEntry::Packet { bytes: more, .. } => (packets + 1, bytes + u64::from(more)),
            _ => (packets, bytes),
        })
    }
}

/// The entry of a packet. Bytes above the mask are shifted out.
fn packet(slot: u32, side: u8, tcp_flags: u8, bytes: u32) -> u64 {
    let fields = u64::from(tcp_flags) << FLAGS_AT | u64::from(bytes) << BYTES_AT;
    u64::from(slot) | u64::from(side) << SLOT_BITS | fields
}

fn slot_of(entry: u64) -> u32 {
    entry as u32 & SLOT_MASK
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn entries_come_back_in_their_order() {
        let flow = FlowBegin {
            addresses: [Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST]
                .map(|of| FlowBegin::address_words(of.into())),
            ports: [1, 2],
            protocol: 6,
            tcp_flags: [2, 0],
            tcp_flags_first: 2,
            first_side: 1,
            context: FlowContext::NONE,
            began: Timestamp::from_nanos(7),
            application: Some("tls"),
        };
        let said = PayloadFacts { application: None, name: Some("example".into()) };
        let named = NamedAddresses { name: "a.example".into(), addresses: vec![Ipv4Addr::LOCALHOST.into()] };
        let slot = SLOTS_MAX as u32;
        let mut journal = Journal::default();
        assert!(journal.is_empty());
        journal.begun(slot, flow);
        journal.packet(slot, 1, 0xff, u32::MAX);
        journal.packet(0, 0, 0, BYTES_MASK);
        journal.packet(0, 0, 0, BYTES_MASK + 1);
        journal.said(3, said.clone());
        journal.named(4, named.clone());
        journal.packet(slot, 0, 0x12, 0);
        journal.ended(slot, EndReason::Full);
        let entries: Vec<JournalEntry<'_>> = journal.entries().collect();
        let packet = |slot, side, tcp_flags, bytes| JournalEntry::Packet { slot, side, tcp_flags, bytes };
        assert_eq!(
            entries,
            [
                JournalEntry::Begun { slot, flow: &flow },
                packet(slot, 1, 0xff, u32::MAX),
                packet(0, 0, 0, BYTES_MASK),
                packet(0, 0, 0, BYTES_MASK + 1),
                JournalEntry::Said { slot: 3, said: &said },
                JournalEntry::Named { slot: 4, named: &named },
                packet(slot, 0, 0x12, 0),
                JournalEntry::Ended { slot, reason: EndReason::Full },
            ]
        );
        assert_eq!(journal.sum(), (4, u64::from(u32::MAX) + 2 * u64::from(BYTES_MASK) + 1));
        journal.clear();
        assert!(journal.is_empty() && journal.entries().next().is_none());
    }

    /// Packets of a meter come back as single ones, whatever their bytes.
    #[test]
    fn packets_are_written_together() {
        for most in [BYTES_MASK, u32::MAX] {
            let summary = |number: u32| PacketSummary {
                slot: SLOTS_MAX as u32 - number,
                side: (number % 2) as u8,
                flags: number as u8,
                bytes: most - number,
                ..PacketSummary::default()
            };
            let packets: Vec<PacketSummary> = (0..64).map(summary).collect();
            let (mut one, mut many) = (Journal::default(), Journal::default());
            one.packet(1, 0, 0, 60);
            many.packet(1, 0, 0, 60);
            packets.iter().for_each(|summary| {
                one.packet(summary.slot, summary.side, summary.flags, summary.bytes);
            });
            many.packets(&packets);
            assert!(one.entries().eq(many.entries()));
        }
    }

    #[test]
    fn a_journal_is_full_of_packets_or_of_names() {
        let mut journal = Journal::default();
        for _ in 0..ENTRIES_MAX {
            assert!(!journal.is_full());
            journal.packet(1, 0, 0, 60);
        }
        assert!(journal.is_full());
        journal.clear();
        (0..SAID_MAX as u32)
            .for_each(|slot| journal.said(slot, PayloadFacts { application: None, name: None }));
        assert!(journal.is_full());
    }
}
