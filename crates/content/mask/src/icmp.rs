//! ICMP, ICMPv6 and IGMP: packets that they quote, and addresses of neighbours and groups.
//!
//! RFC 792, 950; RFC 4443, 4861, 8106, 4191, 2710, 3810; RFC 2236, 3376.

use std::ops::Range;

use crate::walk::Masker;

/// Options of neighbour discovery that are looked at, at most.
const OPTIONS_MAX: usize = 64;

impl Masker {
    pub(crate) fn icmp(&mut self, data: &mut [u8], place: Range<usize>, depth: u8) {
        let kind = data.get(place.start).copied().filter(|_| !place.is_empty());
        let behind = (place.start + 8).min(place.end);
        match kind {
            // Unreachable, source quench, redirect, time exceeded, parameter problem: the packet that caused it.
            Some(kind @ (3 | 4 | 5 | 11 | 12)) if behind - place.start == 8 => {
                if kind == 5 {
                    self.v4(data, place.start + 4);
                }
                self.quoted(data, behind..place.end, depth);
            }
            // Times of three clocks.
            Some(13 | 14) => self.wipe(data, (place.start + 20).min(place.end)..place.end),
            _ => self.wipe(data, behind..place.end),
        }
    }

    pub(crate) fn icmp6(&mut self, data: &mut [u8], place: Range<usize>, depth: u8) {
        let Some(&kind) = data.get(place.start).filter(|_| place.len() >= 8) else {
            return self.wipe(data, place);
        };
        let at = |offset: usize| (place.start + offset).min(place.end);
        let message = place.clone();
        match kind {
            1..=4 => self.quoted(data, at(8)..place.end, depth),
            130..=132 => {
                self.v6(&mut data[..message.end], at(8));
                let sources = if place.len() >= 28 { u16_at(data, at(26)) } else { 0 };
                self.groups(data, at(28)..place.end, sources, 16);
            }
            133 => self.neighbours(data, at(8)..place.end, depth),
            134 => self.neighbours(data, at(16)..place.end, depth),
            135 | 136 => {
                self.v6(&mut data[..message.end], at(8));
                self.neighbours(data, at(24)..place.end, depth);
            }
            137 => {
                self.v6(&mut data[..message.end], at(8));
                self.v6(&mut data[..message.end], at(24));
                self.neighbours(data, at(40)..place.end, depth);
            }
            143 => self.records(data, place, 16),
            _ => self.wipe(data, at(8)..place.end),
        }
    }

    pub(crate) fn igmp(&mut self, data: &mut [u8], place: Range<usize>) {
        if place.len() < 8 {
            return self.wipe(data, place);
        }
        if data[place.start] == 0x22 {
            return self.records(data, place, 4);
        }
        self.v4(data, place.start + 4);
        let sources = if place.len() >= 12 { u16_at(data, place.start + 10) } else { 0 };
        self.groups(data, (place.start + 12).min(place.end)..place.end, sources, 4);
    }

    /// The packet that a message quotes.
    fn quoted(&mut self, data: &mut [u8], place: Range<usize>, depth: u8) {
        if !place.is_empty() {
            self.ip(data, place, depth + 1);
        }
    }

    /// Addresses of sources, and the records behind them.
    fn groups(&mut self, data: &mut [u8], place: Range<usize>, sources: u16, len: usize) {
        let end = self.addresses(data, place.clone(), usize::from(sources), len);
        self.wipe(data, end..place.end);
    }

    /// Addresses of `len` bytes, as many as there are in `place`. Returns their end.
    fn addresses(&mut self, data: &mut [u8], place: Range<usize>, count: usize, len: usize) -> usize {
        let mut at = place.start;
        for _ in 0..count {
            if at + len > place.end {
                break;
            }
            if len == 4 {
                self.v4(data, at)
            } else {
                self.v6(data, at)
            }
            at += len;
        }
        at
    }

    /// Records of groups: type, length of auxiliary data, number of sources, group, sources, auxiliary data.
    fn records(&mut self, data: &mut [u8], place: Range<usize>, len: usize) {
        let mut at = (place.start + 8).min(place.end);
        let count = u16_at(data, place.start + 6);
        for _ in 0..count {
            if at + 4 + len > place.end {
                break;
            }
            let (auxiliary, sources) = (usize::from(data[at + 1]) * 4, usize::from(u16_at(data, at + 2)));
            at = self.addresses(data, at + 4..place.end, sources + 1, len);
            let end = (at + auxiliary).min(place.end);
            self.wipe(data, at.min(end)..end);
            at = end;
        }
        self.wipe(data, at..place.end);
    }

    /// Options of neighbour discovery: type, length in units of 8.
    fn neighbours(&mut self, data: &mut [u8], place: Range<usize>, depth: u8) {
        let mut at = place.start;
        for _ in 0..OPTIONS_MAX {
            if at + 8 > place.end {
                break;
            }
            let len = usize::from(data[at + 1]) * 8;
            if len == 0 || at + len > place.end {
                break;
            }
            let option = at..at + len;
            match data[at] {
                1 | 2 => self.mac(&mut data[..option.end], at + 2),
                3 if len == 32 => self.v6(data, at + 16),
                4 => self.quoted(data, at + 8..option.end, depth),
                24 if len == 24 => self.v6(data, at + 8),
                // The rest of a prefix of 64 bits or less is not told.
                24 => self.not_understood(data, at + 8..option.end),
                25 => self.groups(data, at + 8..option.end, u16::MAX, 16),
                5 | 14 => {}
                _ => self.not_understood(data, at + 2..option.end),
            }
            at = option.end;
        }
        self.wipe(data, at..place.end);
    }
}

/// The number at `at`, 0 behind the end.
fn u16_at(data: &[u8], at: usize) -> u16 {
    data.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}
