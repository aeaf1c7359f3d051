//! Addresses in options: of IPv4, of TCP, and in IPv6 extension headers.

use std::ops::Range;

use crate::walk::Masker;

/// Extension headers that are looked into, as `packet` does.
const EXTENSIONS_MAX: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AH: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// IPv4 options with addresses (RFC 791): record route, strict and loose source route; and time stamps.
const ROUTES: [u8; 3] = [7, 131, 137];
const TIME_STAMP: u8 = 68;

/// The home address of a mobile node (RFC 6275, 6.3).
const HOME_ADDRESS: u8 = 201;

/// MPTCP (RFC 8684), and its subtype that names another address.
const MPTCP: u8 = 30;
const ADD_ADDRESS: u8 = 3;

/// An extension header: its number, where it is, and how long.
struct Extension {
    kind: u8,
    place: Range<usize>,
}

/// The extension headers of the packet at `at`, up to `end`.
fn extensions(data: &[u8], at: usize, end: usize) -> impl Iterator<Item = Extension> {
    let (mut next, mut at, mut left) = (data[at + 6], at + 40, EXTENSIONS_MAX);
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let units = usize::from(*data.get(at + 1).filter(|_| at + 2 <= end)?);
        let len = match next {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => (units + 1) * 8,
            AH => (units + 2) * 4,
            FRAGMENT => 8,
            _ => return None,
        };
        let extension = Extension { kind: next, place: at..(at + len).min(end) };
        (next, at) = (data[at], at + len);
        Some(extension)
    })
}

/// Replaces source and destination by those that checksums count: the home address of a mobile node (RFC 6275, 6.3),
/// and the last one of a route that is not at its end (RFC 8200, 8.1).
pub(crate) fn effective_addresses(data: &[u8], at: usize, end: usize, pseudo: &mut [Range<usize>; 2]) {
    for Extension { kind, place } in extensions(data, at, end) {
        match kind {
            DESTINATION_OPTIONS => {
                let home = options_of(data, place.start + 2..place.end, &[0]);
                for (_, option) in home.filter(|(kind, option)| *kind == HOME_ADDRESS && option.len() == 18) {
                    pseudo[0] = option.start + 2..option.end;
                }
            }
            ROUTING => {
                let addresses = route(data, &place);
                let segments_left = data.get(place.start + 3).copied().unwrap_or(0);
                let last = match data.get(place.start + 2) {
                    Some(4) => addresses.clone().next(),
                    _ => addresses.last(),
                };
                if let Some(last) = last.filter(|_| segments_left > 0) {
                    pseudo[1] = last..last + 16;
                }
            }
            _ => {}
        }
    }
}

/// The offsets of the addresses in a routing header of type 0, 2 (RFC 6275) or 4 (RFC 8754).
fn route(data: &[u8], place: &Range<usize>) -> impl Iterator<Item = usize> + Clone + use<> {
    let start = place.start + 8;
    let there = place.end.saturating_sub(start) / 16;
    let count = match data.get(place.start + 2) {
        Some(0 | 2) => there,
        Some(4) => data.get(place.start + 4).map_or(0, |last| usize::from(*last) + 1).min(there),
        _ => 0,
    };
    (0..count).map(move |number| start + number * 16)
}

/// Options of a kind and a length in `place`: kind, and the whole option. Kinds in `alone` have no length.
fn options_of<'a>(
    data: &'a [u8],
    place: Range<usize>,
    alone: &'a [u8],
) -> impl Iterator<Item = (u8, Range<usize>)> + 'a {
    let mut at = place.start;
    std::iter::from_fn(move || {
        loop {
            let kind = *data.get(at).filter(|_| at < place.end)?;
            if alone.contains(&kind) {
                at += 1;
                continue;
            }
            let len = usize::from(*data.get(at + 1).filter(|_| at + 1 < place.end)?);
            // Options of IPv6 do not count their first two bytes; those of IPv4 and TCP do.
            let len = if alone == [0] { len + 2 } else { len };
            if len < 2 || at + len > place.end {
                return None;
            }
            let option = at..at + len;
            at += len;
            return Some((kind, option));
        }
    })
}

/// Like [`options_of`], one at a time from `at`, so that the bytes may change in between.
fn option_at(data: &[u8], at: usize, end: usize, alone: &[u8]) -> Option<(u8, Range<usize>)> {
    options_of(data, at..end, alone).next()
}

impl Masker {
    pub(crate) fn v4_options(&mut self, data: &mut [u8], place: Range<usize>) {
        let mut at = place.start;
        while data.get(at).is_some_and(|kind| *kind != 0)
            && let Some((kind, option)) = option_at(data, at, place.end, &[1])
        {
            at = option.end;
            let flags = data.get(option.start + 3).map_or(0, |flags| flags & 15);
            let (first, step) = match kind {
                kind if ROUTES.contains(&kind) => (option.start + 3, 4),
                TIME_STAMP if matches!(flags, 1 | 3) => (option.start + 4, 8),
                _ => continue,
            };
            let mut address = first;
            while address + 4 <= option.end {
                // Room that no router has filled yet stays empty.
                if data[address..address + 4] != [0; 4] {
                    self.v4(data, address);
                }
                address += step;
            }
        }
    }

    pub(crate) fn v6_extensions(&mut self, data: &mut [u8], at: usize, end: usize) {
        let found: [Option<Extension>; EXTENSIONS_MAX] = {
            let mut extensions = extensions(data, at, end);
            std::array::from_fn(|_| extensions.next())
        };
        for Extension { kind, place } in found.into_iter().flatten() {
            match kind {
                ROUTING => self.routing(data, place),
                DESTINATION_OPTIONS => {
                    let mut at = place.start + 2;
                    while let Some((kind, option)) = option_at(data, at, place.end, &[0]) {
                        if kind == HOME_ADDRESS && option.len() == 18 {
                            self.v6(data, option.start + 2);
                        }
                        at = option.end;
                    }
                }
                _ => {}
            }
        }
    }

    fn routing(&mut self, data: &mut [u8], place: Range<usize>) {
        match data.get(place.start + 2) {
            Some(0 | 2 | 4) => {
                for address in route(data, &place) {
                    self.v6(data, address);
                }
            }
            _ => data[(place.start + 4).min(place.end)..place.end].fill(0),
        }
    }

    /// Masks the addresses that MPTCP names.
    pub(crate) fn tcp_options(&mut self, data: &mut [u8], place: Range<usize>) {
        let mut at = place.start;
        while data.get(at).is_some_and(|kind| *kind != 0)
            && let Some((kind, option)) = option_at(data, at, place.end, &[1])
        {
            at = option.end;
            if kind != MPTCP || data.get(option.start + 2).is_none_or(|subtype| subtype >> 4 != ADD_ADDRESS) {
                continue;
            }
            match option.len() {
                8 | 10 | 16 | 18 => self.v4(data, option.start + 4),
                20 | 22 | 28 | 30 => self.v6(data, option.start + 4),
                _ => {}
            }
        }
    }
}
