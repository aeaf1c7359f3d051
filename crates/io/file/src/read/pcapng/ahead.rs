//! Packet blocks from the middle of a section, by the interfaces that are known: see [`Scout`](crate::read::Scout).

use tapline_packet::Record;

use super::{BLOCK_HEADER_LEN, Block, ENHANCED_PACKET, Keep, PACKET, Parser, SIMPLE_PACKET, TRAILER_LEN};
use crate::byte_order::ByteOrder;
use crate::read::Window;
use crate::read::scout::CHAIN_LEN;

/// The most interfaces of a section that is parsed from the middle on: each scout has a copy of their table.
const INTERFACES_MAX: usize = 1024;

/// Bytes from `offset` up to the next place at which a block can begin.
pub(crate) fn padding(offset: u64) -> usize {
    (offset.wrapping_neg() % 4) as usize
}

impl Parser {
    /// A copy that knows the section, for its packets alone. `None` if packets are changed in place, as those of the
    /// other byte order may be.
    pub(crate) fn scout(&self) -> Option<Parser> {
        let is_plain = self.order == ByteOrder::NATIVE && self.keep == Keep::All;
        let has_few = (1..=INTERFACES_MAX).contains(&self.interfaces.len());
        (is_plain && has_few).then(|| Parser {
            interfaces: self.interfaces.clone(),
            block_len_max: self.block_len_max,
            ..Parser::new(Keep::All)
        })
    }

    /// Whether a chain of packet blocks begins here.
    pub(crate) fn is_likely_start(&self, bytes: &[u8], at: usize) -> bool {
        let mut rest = bytes.get(at..).unwrap_or_default();
        (0..CHAIN_LEN).all(|_| {
            let Some(block) = self.packet_block(rest) else { return false };
            rest = &rest[block.len..];
            true
        })
    }

    /// Parses packets as far as no other block comes, nor one that breaks a rule.
    pub(crate) fn parse_likely(&self, window: &mut Window<'_>, records: &mut Vec<Record>) {
        while let Some(block) = self.packet_block(window.rest()) {
            let (start, end) = (window.at, window.at + block.len - TRAILER_LEN);
            let bytes = &mut window.bytes[..end];
            let record = match block.kind {
                ENHANCED_PACKET => self.enhanced(bytes, start),
                PACKET => self.obsolete(bytes, start),
                _ => self.simple(bytes, start),
            };
            let Ok(record) = record else { return };
            records.push(record);
            window.at += block.len;
        }
    }

    /// The packet block at the start of `rest`, if there is a whole one with two equal lengths.
    #[inline]
    fn packet_block(&self, rest: &[u8]) -> Option<Block> {
        let head = rest.first_chunk::<BLOCK_HEADER_LEN>()?;
        let is_packet = matches!(self.order.u32(head, 0), ENHANCED_PACKET | SIMPLE_PACKET | PACKET);
        let has_whole_words = self.order.u32(head, 4).is_multiple_of(4);
        let block = if is_packet && has_whole_words { self.block(rest).ok()? } else { return None };
        self.check_trailer(rest.get(..block.len)?).is_ok().then_some(block)
    }
}
