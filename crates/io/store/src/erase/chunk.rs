//! A chunk without some of its packets, at the same place, of the same length and number.

use tapline_file::blocks;
use tapline_packet::Timestamp;

use crate::chunk::{ChunkHead, Erasure, chain_hash, seal};
use crate::layout::{BLOCK_KIND, FILLER_MAGIC};
use crate::packed::{Packer, section};

/// The type of an Enhanced Packet Block (draft-ietf-opsawg-pcapng, section 4.3).
pub(crate) const PACKET: u32 = 6;

/// A packet of a chunk, and whether it stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) is_wanted: bool,
    pub(super) timestamp: Timestamp,
    pub(super) len: usize,
}

/// Level of a compressed chunk that is written again.
const LEVEL: i32 = 1;

/// Removes the wanted packets from the intact chunk `bytes`, with `at` as the time of the erasure. `None` if `verdicts`
/// is for other packets.
pub(super) fn without(bytes: &[u8], verdicts: &[Verdict], at: Timestamp) -> Option<Vec<u8>> {
    let head = ChunkHead::parse(bytes)?;
    let mut chunk = Vec::with_capacity(bytes.len());
    let mut packets = verdicts.iter();
    for (kind, block) in Blocks(&section(bytes, &head)?) {
        let is_filler = kind == blocks::LOCAL | BLOCK_KIND && block.get(8..16) == Some(&FILLER_MAGIC);
        if is_filler || kind == PACKET && packets.next()?.is_wanted {
            continue;
        }
        chunk.extend_from_slice(block);
    }
    if packets.next().is_some() {
        return None;
    }
    let wanted = verdicts.iter().filter(|verdict| verdict.is_wanted).count() as u32;
    let erased = head.erasure.map_or(0, |erasure| erasure.packets).saturating_add(wanted);
    let erasure = Erasure { packets: erased, original: chain_hash(bytes, &head), at };
    let mut head = of_the_rest(ChunkHead { erasure: Some(erasure), ..head }, verdicts);
    match head.packing {
        None => fill_up(&mut chunk, bytes.len())?,
        // Zeros take the place of what the old frame had behind the new one.
        Some(_) => chunk = Packer::new(LEVEL).ok()?.pack(&chunk, &mut head, bytes.len())?,
    }
    seal(&mut chunk, &head);
    Some(chunk)
}

/// The head with the counts and times of the packets that stay.
fn of_the_rest(head: ChunkHead, verdicts: &[Verdict]) -> ChunkHead {
    let stay = || verdicts.iter().filter(|verdict| !verdict.is_wanted);
    let times = || stay().map(|verdict| verdict.timestamp);
    ChunkHead {
        packets: stay().count() as u32,
        first: times().min().unwrap_or(head.closed),
        last: times().max().unwrap_or(head.closed),
        bytes: stay().map(|verdict| verdict.len as u64).sum(),
        ..head
    }
}

/// A filler up to `len`. `None` if it has no room: where a packet went it always has.
fn fill_up(chunk: &mut Vec<u8>, len: usize) -> Option<()> {
    let missing = len.checked_sub(chunk.len())?;
    if missing == 0 {
        return Some(());
    }
    let mut data = vec![0; missing.checked_sub(blocks::BLOCK_OVERHEAD)?];
    data.get_mut(..FILLER_MAGIC.len())?.copy_from_slice(&FILLER_MAGIC);
    blocks::local(chunk, BLOCK_KIND, &data);
    (chunk.len() == len).then_some(())
}

/// The blocks of a section, each with its type; ends where one contradicts itself.
pub(crate) struct Blocks<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Blocks<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<(u32, &'a [u8])> {
        let number = |at: usize| Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?));
        let (kind, len) = (number(0)?, number(4)? as usize);
        let is_sound = len >= blocks::BLOCK_OVERHEAD && len.is_multiple_of(4);
        let block = self.0.get(..len).filter(|_| is_sound)?;
        self.0 = &self.0[len..];
        Some((kind, block))
    }
}

/// Number of packets of a section that its blocks fill, each with its length at both ends; else nothing.
///
/// The lengths are followed from both ends at once: each of them has to be loaded before the next one is known, so two
/// chains take half the time of one.
pub(crate) fn packets_of(section: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u32::from_ne_bytes(*section.get(at..)?.first_chunk()?));
    // A block from `at` on, whose length was read at one end and is compared with that at the other.
    let is_packet = |at: usize, len: usize, other: usize| {
        let is_sound =
            len >= blocks::BLOCK_OVERHEAD && len.is_multiple_of(4) && number(other)? as usize == len;
        is_sound.then_some(u64::from(number(at)? == PACKET))
    };
    let (mut front, mut back, mut packets) = (0, section.len(), 0);
    while front < back {
        let len = number(front + 4)? as usize;
        let end = front.checked_add(len).filter(|&end| end <= back)?;
        packets += is_packet(front, len, end.checked_sub(4)?)?;
        front = end;
        if front < back {
            let len = number(back.checked_sub(4)?)? as usize;
            let begin = back.checked_sub(len).filter(|&begin| begin >= front)?;
            packets += is_packet(begin, len, begin + 4)?;
            back = begin;
        }
    }
    Some(packets)
}

#[cfg(test)]
mod tests {
    use tapline_file::SectionReader;
    use tapline_packet::{Interface, LinkType, Meta, Packet};

    use super::*;
    use tapline_testkit::random::Random;

    use crate::chunk::{CHUNK_HEAD_LEN, ChunkBuffer, ChunkBuilder, is_intact};
    use crate::layout::SLOT_LEN;

    fn chunk(packets: u8) -> Vec<u8> {
        let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
        let mut builder = ChunkBuilder::new(65_535);
        builder.begin(ChunkBuffer::default(), SLOT_LEN, &interfaces);
        for number in 0..packets {
            let meta =
                Meta { wire_len: 60, timestamp: Timestamp::from_nanos(number.into()), ..Meta::default() };
            builder.push(&Packet { data: &[number; 60], meta: &meta }, &interfaces[0], &[]);
        }
        let (buffer, mut head) = builder.finish(&[], Timestamp::from_nanos(99));
        head.number = 1;
        let mut bytes = buffer.bytes().to_vec();
        seal(&mut bytes, &head);
        bytes
    }

    fn packets(bytes: &[u8]) -> Vec<u8> {
        let mut reader = SectionReader::new();
        let filled: Result<(), ()> = reader.refill(|buffer| {
            buffer.extend_from_slice(bytes);
            Ok(())
        });
        filled.unwrap();
        let mut found = Vec::new();
        while reader.advance().unwrap() {
            found.extend(reader.batch().iter().map(|packet| packet.data[0]));
        }
        found
    }

    fn verdicts(all: &[u8], wanted: impl Fn(u8) -> bool) -> Vec<Verdict> {
        let verdict = |number: &u8| Verdict {
            is_wanted: wanted(*number),
            timestamp: Timestamp::from_nanos((*number).into()),
            len: 60,
        };
        all.iter().map(verdict).collect()
    }

    #[test]
    fn what_is_erased_is_gone_and_the_rest_stands() {
        let whole = chunk(100);
        let original = *blake3::hash(&whole).as_bytes();
        let third = without(&whole, &verdicts(&packets(&whole), |n| n % 3 == 0), Timestamp::EPOCH).unwrap();
        // Once more: the chain keeps the hash of what was recorded.
        let sixth = without(&third, &verdicts(&packets(&third), |n| n % 2 == 0), Timestamp::EPOCH).unwrap();
        let head = ChunkHead::parse(&sixth).unwrap();
        assert!(is_intact(&sixth, &head));
        assert_eq!((head.packets, head.erasure.unwrap().packets, head.bytes), (33, 67, 33 * 60));
        assert_eq!((head.first.as_nanos(), head.last.as_nanos()), (1, 97));
        assert_eq!(head.erasure.unwrap().original, original);
        let left: Vec<u8> = (0..100).filter(|n| n % 3 != 0 && n % 2 != 0).collect();
        assert_eq!(packets(&sixth), left);
        let is_in = |bytes: &[u8], number: u8| bytes.windows(60).any(|window| window == [number; 60]);
        assert!(is_in(&whole, 6) && !is_in(&sixth, 6) && is_in(&sixth, 7));
        let none = without(&sixth, &verdicts(&left, |_| true), Timestamp::EPOCH).unwrap();
        let head = ChunkHead::parse(&none).unwrap();
        assert_eq!((head.packets, head.first.as_nanos(), packets(&none).len()), (0, 99, 0));
    }

    #[test]
    fn packets_are_counted_from_both_ends() {
        let whole = chunk(101);
        let section = section(&whole, &ChunkHead::parse(&whole).unwrap()).unwrap().into_owned();
        // One end after the other, as a reader goes.
        let from_the_front = |bytes: &[u8]| {
            let mut blocks = Blocks(bytes);
            let has_both_lengths = |block: &[u8]| block[4..8] == block[block.len() - 4..];
            let mut packets = 0;
            for (kind, block) in blocks.by_ref() {
                packets += u64::from(kind == PACKET);
                if !has_both_lengths(block) {
                    return None;
                }
            }
            blocks.0.is_empty().then_some(packets)
        };
        assert_eq!((packets_of(&section), packets_of(&[])), (Some(101), Some(0)));
        let mut random = Random::new(5);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = section.clone();
            bytes.truncate(random.below(section.len() as u64 + 1).max(8) as usize & !3);
            for _ in 0..random.between(0..=2) {
                // Lengths are in the words of blocks: those of 0 to 255 make the most mistakes.
                let word = random.below(bytes.len() as u64 / 4) as usize * 4;
                bytes[word..word + 4].copy_from_slice(&(random.below(256) as u32).to_ne_bytes());
            }
            let expected = from_the_front(&bytes);
            assert_eq!(packets_of(&bytes), expected);
            refused += u64::from(expected.is_none());
        }
        assert!((10_000..20_000).contains(&refused), "{refused}");
    }

    #[test]
    fn a_chunk_with_other_packets_is_left() {
        let whole = chunk(3);
        for told in [0, 2, 4] {
            let all: Vec<u8> = (0..told).collect();
            assert!(without(&whole, &verdicts(&all, |_| true), Timestamp::EPOCH).is_none(), "{told}");
        }
    }

    #[test]
    fn a_chunk_that_only_high_levels_fit_stays() {
        // Noise that comes again behind more bytes than low levels look back.
        let mut random = Random::new(51);
        let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
        let mut builder = ChunkBuilder::new(65_535).packed(true);
        builder.begin(ChunkBuffer::of_slot(), SLOT_LEN, &interfaces);
        let noise: Vec<Vec<u8>> =
            (0..9).map(|_| (0..55_000).map(|_| random.below(256) as u8).collect()).collect();
        for data in [vec![0; 60]].iter().chain(&noise).chain(&noise) {
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            builder.push(&Packet { data, meta: &meta }, &interfaces[0], &[]);
        }
        let (buffer, mut head) = builder.finish(&[], Timestamp::EPOCH);
        head.number = 1;
        let whole = buffer.bytes();
        let whole = [&whole[..28], &whole[CHUNK_HEAD_LEN..]].concat();
        let mut packer = Packer::new(19).unwrap();
        head.len = packer.pack(&whole, &mut head.clone(), 0).unwrap().len() as u32;
        assert!((head.len as usize) < SLOT_LEN * 3 / 5, "{}", head.len);
        let mut chunk = packer.pack(&whole, &mut head, 0).unwrap();
        seal(&mut chunk, &head);
        assert!(without(&chunk, &verdicts(&[0; 19], |_| false), Timestamp::EPOCH).is_none());
        // Shorter places have no room for it at all.
        for len in [0, 1, 255, 256, 4095, head.len - 4096, head.len - 1] {
            assert!(packer.pack(&whole, &mut ChunkHead { len, ..head.clone() }, 0).is_none(), "{len}");
        }
    }
}
