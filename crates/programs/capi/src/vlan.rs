//! VLAN tags that the kernel took out of packets: back to where C programs expect them, and out again for a filter that
//! comes later.
//!
//! ```text
//! as filtered   |offset: head (12 Ethernet, 14 SLL)| type, data        meta.vlan = tag
//!                                    ^ put            | take v
//! as C sees it  |offset - 4: head | tag | type, data                   meta.vlan = none, the tag kept aside
//! ```
//!
//! Filters of live captures ask for the tag in the metadata, as the kernel has it, so they never see the bytes that
//! `put` writes.

use std::ffi::c_int;

use tapline_packet::{Packet, Record, VlanTag};

use crate::cooked::SLL;
use crate::raw::ETHERNET;
use crate::source::Keep;

/// Bytes of a VLAN tag.
pub(crate) const TAG_LEN: usize = 4;

/// Bytes before a tag, of link types whose packets have one.
fn head_len(dlt: c_int) -> Option<usize> {
    match dlt {
        ETHERNET => Some(12),
        SLL => Some(14),
        _ => None,
    }
}

/// The tags of a batch's packets that were put back, record by record.
#[derive(Default)]
pub(crate) struct Tags {
    /// None where there was no tag, or no place for it.
    of: Vec<Option<VlanTag>>,
    /// The batch's link type.
    dlt: c_int,
}

impl Tags {
    /// For a new batch, of this link type.
    pub(crate) fn begin(&mut self, dlt: c_int) {
        self.of.clear();
        self.dlt = dlt;
    }

    /// Makes the batch's next packet what C sees.
    pub(crate) fn put(&mut self, memory: &mut [u8], record: &mut Record) {
        self.of.push(put(memory, record, self.dlt));
    }

    /// Filters the packets from `from` on, each as it was when the batch came, and leaves out what `keep` refuses.
    pub(crate) fn refilter(
        &mut self,
        memory: &mut [u8],
        records: &mut Vec<Record>,
        from: usize,
        keep: Keep<'_>,
    ) {
        let first = from.min(records.len());
        let mut kept = first;
        for index in first..records.len() {
            let mut record = records[index];
            if let Some(tag) = self.of[index] {
                take(memory, &mut record, self.dlt, tag);
            }
            if keep(Packet { data: data(memory, &record), meta: &record.meta }) {
                let tag = put(memory, &mut record, self.dlt);
                (records[kept], self.of[kept]) = (record, tag);
                kept += 1;
            }
        }
        records.truncate(kept);
        self.of.truncate(kept);
    }
}

/// A record's bytes; none if it points outside of the memory.
pub(crate) fn data<'a>(memory: &'a [u8], record: &Record) -> &'a [u8] {
    memory.get(record.offset..record.offset.saturating_add(record.cap_len as usize)).unwrap_or(&[])
}

/// Puts the tag that the kernel took out back, and says which; none if there is none, or no room for it.
fn put(memory: &mut [u8], record: &mut Record, dlt: c_int) -> Option<VlanTag> {
    let head_len = head_len(dlt)?;
    let tag = record.meta.vlan?;
    let start = record.offset.wrapping_sub(TAG_LEN);
    let room = memory.get_mut(start..record.offset.wrapping_add(head_len))?;
    if (record.cap_len as usize) < head_len {
        return None;
    }
    room.copy_within(TAG_LEN.., 0);
    let [.., first, second, third, fourth] = room else { return None };
    [*first, *second] = tag.tpid.to_be_bytes();
    [*third, *fourth] = tag.tci.to_be_bytes();
    record.offset = start;
    record.cap_len += TAG_LEN as u32;
    record.meta.wire_len = record.meta.wire_len.saturating_add(TAG_LEN as u32);
    record.meta.vlan = None;
    Some(tag)
}

/// Undoes a [`put`] that said `tag`.
fn take(memory: &mut [u8], record: &mut Record, dlt: c_int, tag: VlanTag) {
    let Some(head_len) = head_len(dlt) else { return };
    let Some(room) = memory.get_mut(record.offset..record.offset + TAG_LEN + head_len) else { return };
    room.copy_within(..head_len, TAG_LEN);
    record.offset += TAG_LEN;
    record.cap_len -= TAG_LEN as u32;
    record.meta.wire_len = record.meta.wire_len.saturating_sub(TAG_LEN as u32);
    record.meta.vlan = Some(tag);
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;

    use super::*;
    use crate::cooked::SLL2;

    const TAG: VlanTag = VlanTag { tpid: 0x8100, tci: 0x2005 };

    fn record(offset: usize, cap_len: u32, vlan: Option<VlanTag>) -> Record {
        let meta = Meta { wire_len: cap_len, vlan, ..Meta::default() };
        Record { offset, cap_len, options_len: 0, meta }
    }

    #[test]
    fn a_tag_goes_back_before_the_ethertype() {
        let mut memory = [0; 40];
        memory[10..24].copy_from_slice(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0]);
        let mut frame = record(10, 30, Some(TAG));
        assert_eq!(put(&mut memory, &mut frame, ETHERNET), Some(TAG));
        assert_eq!((frame.offset, frame.cap_len, frame.meta.wire_len), (6, 34, 34));
        assert_eq!(memory[6..24], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x20, 5, 8, 0]);
    }

    #[test]
    fn no_room_and_short_packets_stay_as_they_are() {
        for (offset, cap_len) in [(0, 30), (3, 30), (10, 11), (usize::MAX - 3, 30), (35, 14)] {
            let mut memory = [7; 40];
            let mut frame = record(offset, cap_len, Some(TAG));
            assert_eq!(put(&mut memory, &mut frame, ETHERNET), None);
            assert_eq!((frame.offset, memory, frame.meta.vlan), (offset, [7; 40], Some(TAG)));
        }
    }

    /// Frames of 20 bytes, each with its number for a type, 10 bytes apart; those of odd numbers have a tag.
    fn batch(dlt: c_int) -> (Vec<u8>, Vec<Record>, Tags) {
        let mut memory: Vec<u8> = (0..=255).cycle().take(10 * 30).collect();
        let mut tags = Tags::default();
        tags.begin(dlt);
        let mut records = Vec::new();
        for number in 0..10u8 {
            let offset = usize::from(number) * 30 + 10;
            memory[offset + 12..offset + 16].copy_from_slice(&[8, number, 8, number]);
            let mut record = record(offset, 20, Some(TAG).filter(|_| number % 2 == 1));
            tags.put(&mut memory, &mut record);
            records.push(record);
        }
        (memory, records, tags)
    }

    /// A filter that is set in the middle of a batch sees the same packets as an earlier one, and C gets the same
    /// bytes.
    #[test]
    fn a_later_filter_sees_packets_as_they_were() {
        for dlt in [ETHERNET, SLL, SLL2] {
            let (mut memory, mut records, mut tags) = batch(dlt);
            let (was, before) = (memory.clone(), records.clone());
            let mut seen = Vec::new();
            let mut keep = |packet: Packet<'_>| {
                assert_eq!((packet.data.len(), packet.meta.wire_len), (20, 20));
                let number = packet.data[13];
                assert_eq!((packet.data[12], packet.meta.vlan.is_some()), (8, number % 2 == 1));
                seen.push(number);
                ![4, 5, 8].contains(&number)
            };
            tags.refilter(&mut memory, &mut records, 3, &mut keep);
            assert_eq!(seen, [3, 4, 5, 6, 7, 8, 9]);
            let left = [0, 1, 2, 3, 6, 7, 9];
            assert_eq!(records.len(), left.len());
            for (record, number) in records.iter().zip(left) {
                let original = &before[number];
                assert_eq!((record.offset, record.cap_len), (original.offset, original.cap_len), "{number}");
                assert_eq!(record.meta.vlan, original.meta.vlan, "{number}");
                assert_eq!(data(&memory, record), data(&was, original), "{number}");
            }
            // And once more, as tags went along with their records.
            let mut count = 0;
            let mut odd = |packet: Packet<'_>| {
                count += usize::from(packet.meta.vlan.is_some());
                true
            };
            tags.refilter(&mut memory, &mut records, 0, &mut odd);
            assert_eq!(count, 4, "1, 3, 7 and 9");
            tags.refilter(&mut memory, &mut records, usize::MAX, &mut |_| panic!("nothing is left to ask"));
        }
    }
}
