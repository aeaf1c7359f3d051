//! Options of pcapng blocks.
//!
//! ```text
//! option = code u16, length u16, value, padding to 4
//! ```
//!
//! A list ends with code 0, with its block, or where an option would reach beyond the block.

use tapline_packet::{Interface, LinkType, Resolution};

use super::room::Room;
use crate::byte_order::{ByteOrder, reverse};

pub(crate) const END: u16 = 0;
pub(crate) const COMMENT: u16 = 1;
pub(crate) const SECTION_HARDWARE: u16 = 2;
pub(crate) const SECTION_OS: u16 = 3;
pub(crate) const SECTION_APPLICATION: u16 = 4;
pub(crate) const IF_NAME: u16 = 2;
pub(crate) const IF_DESCRIPTION: u16 = 3;
pub(crate) const IF_SPEED: u16 = 8;
pub(crate) const IF_TSRESOL: u16 = 9;
const IF_TZONE: u16 = 10;
pub(crate) const IF_FILTER: u16 = 11;
pub(crate) const IF_FCS_LEN: u16 = 13;
pub(crate) const IF_TSOFFSET: u16 = 14;
const IF_TX_SPEED: u16 = 16;
const IF_RX_SPEED: u16 = 17;
pub(crate) const EPB_FLAGS: u16 = 2;
pub(crate) const EPB_DROP_COUNT: u16 = 4;
const EPB_PACKET_ID: u16 = 5;
const EPB_QUEUE: u16 = 6;

/// Options of private enterprises, whose value begins with the enterprise's number.
const CUSTOM: [u16; 4] = [2988, 2989, 19372, 19373];

/// Walks a list of options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    pub(crate) fn new(order: ByteOrder, bytes: &'a [u8]) -> Options<'a> {
        Options { order, rest: bytes }
    }

    pub(crate) fn order(&self) -> ByteOrder {
        self.order
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let head = self.rest.get(..4)?;
        let (code, len) = (self.order.u16(head, 0), usize::from(self.order.u16(head, 2)));
        if code == END {
            return None;
        }
        let value = self.rest.get(4..4 + len)?;
        self.rest = self.rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    }
}

/// Puts the options of a packet into this machine's order, codes, lengths and the numbers among the values.
pub(super) fn to_native(order: ByteOrder, options: &mut [u8]) {
    let number_len = |code| match code {
        EPB_FLAGS | EPB_QUEUE => 4,
        EPB_DROP_COUNT | EPB_PACKET_ID => 8,
        code if CUSTOM.contains(&code) => 4,
        _ => 0,
    };
    turn_around(order, options, number_len);
}

/// Puts options into this machine's order whose values are text or addresses, but for those of enterprises.
pub(crate) fn heads_to_native(order: ByteOrder, options: &mut [u8]) {
    turn_around(order, options, |code| if CUSTOM.contains(&code) { 4 } else { 0 });
}

/// Turns around codes, lengths, and the numbers with which values of a code begin.
fn turn_around(order: ByteOrder, options: &mut [u8], number_len: impl Fn(u16) -> usize) {
    if order == ByteOrder::NATIVE {
        return;
    }
    let mut at = 0;
    while at + 4 <= options.len() {
        let (code, len) = (order.u16(options, at), usize::from(order.u16(options, at + 2)));
        options[at..at + 2].reverse();
        options[at + 2..at + 4].reverse();
        if code == END {
            return;
        }
        let number_len = number_len(code);
        if number_len <= len && reverse(options, at + 4, number_len).is_none() {
            return;
        }
        at += 4 + len.next_multiple_of(4);
    }
}

/// The unit of an interface's times.
pub(super) fn resolution(order: ByteOrder, options: &[u8]) -> Resolution {
    let last =
        Options::new(order, options).filter(|(code, value)| *code == IF_TSRESOL && value.len() == 1).last();
    last.map_or(Resolution::MICRO, |(_, value)| super::resolution(value[0]))
}

/// The interface that an interface description's options describe, without its snap length. `None` if there is no room
/// for it.
pub(super) fn interface(
    order: ByteOrder,
    link_type: LinkType,
    options: &[u8],
    room: &mut Room,
) -> Option<Interface> {
    let mut interface = Interface::new("", link_type);
    interface.resolution = Resolution::MICRO;
    for (code, value) in Options::new(order, options) {
        room.take(value.len())?;
        match (code, value) {
            (IF_NAME, _) => interface.name = text(value),
            (IF_DESCRIPTION, _) => interface.description = text(value),
            (IF_SPEED, [_, _, _, _, _, _, _, _]) => interface.speed = Some(order.u64(value, 0)),
            (IF_TSRESOL, &[byte]) => interface.resolution = super::resolution(byte),
            // 0: text in the language of pcap-filter(7). 1 is byte code, which is kept as it is.
            (IF_FILTER, [0, expression @ ..]) => interface.filter = text(expression),
            (IF_FCS_LEN, &[len]) => interface.fcs_len = Some(len),
            (IF_TSOFFSET, _) => {}
            _ => interface.options.push((code, native_value(order, code, value))),
        }
    }
    Some(interface)
}

/// `if_tsoffset`: seconds to add to each time.
pub(super) fn time_offset(order: ByteOrder, options: &[u8]) -> i64 {
    Options::new(order, options)
        .find(|(code, value)| *code == IF_TSOFFSET && value.len() == 8)
        .map_or(0, |(_, value)| order.u64(value, 0) as i64)
}

/// Text as files have it: UTF-8, perhaps with a 0 at its end.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

pub(super) fn native_value(order: ByteOrder, code: u16, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    let number_len = match code {
        IF_TX_SPEED | IF_RX_SPEED => 8,
        IF_TZONE => 4,
        code if CUSTOM.contains(&code) => 4,
        _ => 0,
    };
    if order != ByteOrder::NATIVE && number_len <= value.len() {
        value[..number_len].reverse();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_at_its_end_mark_or_where_it_is_cut() {
        let bytes = [1, 0, 3, 0, b'a', b'b', b'c', 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 9];
        let list: Vec<_> = Options::new(ByteOrder::Little, &bytes).collect();
        assert_eq!(list, [(1, &b"abc"[..]), (2, &b""[..])]);
        for end in 0..bytes.len() {
            assert!(Options::new(ByteOrder::Little, &bytes[..end]).count() <= 2);
        }
    }

    #[test]
    fn numbers_come_into_native_order() {
        let foreign = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
        let flags = 0x0102_0304u32;
        let mut bytes = [0, 2, 0, 4, 1, 2, 3, 4, 0, 1, 0, 1, b'x', 0, 0, 0, 0, 0, 0, 0];
        if foreign == ByteOrder::Little {
            bytes = [2, 0, 4, 0, 4, 3, 2, 1, 1, 0, 1, 0, b'x', 0, 0, 0, 0, 0, 0, 0];
        }
        to_native(foreign, &mut bytes);
        let list: Vec<_> = Options::new(ByteOrder::NATIVE, &bytes).collect();
        assert_eq!(list, [(EPB_FLAGS, &flags.to_ne_bytes()[..]), (COMMENT, &b"x"[..])]);
    }
}
