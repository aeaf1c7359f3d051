//! Numbers as people write them.

use std::net::IpAddr;

use tapline_syntax::units;
pub(super) use tapline_syntax::units::decimal;

use crate::share::Share;
use crate::space::NumberRanges;

/// A [`units::count`].
pub(super) fn number(text: &str) -> Option<u64> {
    units::count(text).ok()
}

/// A [`units::duration`] in nanoseconds.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    units::nanoseconds(text).ok()
}

/// `1/100`.
pub(super) fn share(text: &str) -> Option<Share> {
    let (over, under) = text.split_once('/')?;
    let (over, under) = (number(over)?.try_into().ok()?, number(under)?.try_into().ok()?);
    (under > 0 && over <= under).then_some(Share { over, under })
}

/// A link address: `02:00:00:00:00:01`.
pub(super) fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        *byte =
            parts.next().filter(|part| part.len() <= 2).and_then(|part| u8::from_str_radix(part, 16).ok())?;
    }
    parts.next().is_none().then_some(bytes)
}

/// Ports: `80`, `1024-65535`, with commas.
pub(super) fn ports(text: &str) -> Option<NumberRanges> {
    let range = |part: &str| -> Option<NumberRanges> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then(|| NumberRanges::range(first.into(), last.into()))
    };
    text.split(',').map(range).reduce(|all, part| Some(all?.and(part?))).flatten()
}

/// Addresses of both IP versions: `10.0.0.1`, `10.0.0.0/24`, `10.0.0.1-10.0.0.9`, with commas.
pub(super) fn addresses(text: &str) -> Option<(Option<NumberRanges>, Option<NumberRanges>)> {
    let (mut v4, mut v6): (Option<NumberRanges>, Option<NumberRanges>) = (None, None);
    for part in text.split(',') {
        let (is_v4, space) = address_range(part)?;
        let all = if is_v4 { &mut v4 } else { &mut v6 };
        *all = Some(match all.take() {
            Some(before) => before.and(space),
            None => space,
        });
    }
    Some((v4, v6))
}

fn address_range(text: &str) -> Option<(bool, NumberRanges)> {
    if let Some((address, len)) = text.split_once('/') {
        let (address, len) = (address.parse().ok()?, len.parse().ok()?);
        return prefix(address, len).map(|space| (address.is_ipv4(), space));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    let is_alike = first.is_ipv4() == last.is_ipv4() && first <= last;
    is_alike.then(|| (first.is_ipv4(), NumberRanges::range(bits(first), bits(last))))
}

/// The hosts of a network: without the addresses of the network and of all hosts, where IPv4 has them, and without
/// the address of any router (RFC 4291, 2.6.1) where IPv6 has it.
pub(crate) fn prefix(address: IpAddr, len: u32) -> Option<NumberRanges> {
    let width = if address.is_ipv4() { 32 } else { 128 };
    let free = width - Some(len).filter(|len| *len <= width)?;
    let mask = if free == 128 { u128::MAX } else { (1 << free) - 1 };
    let first = bits(address) & !mask;
    Some(match (free, address.is_ipv4()) {
        (0 | 1, _) => NumberRanges::range(first, first + mask),
        (_, true) => NumberRanges::range(first + 1, first + mask - 1),
        (_, false) => NumberRanges::range(first + 1, first + mask),
    })
}

pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Numbers joined by dots.
pub(super) fn dotted(text: &str, min: u32, max: u32) -> Option<Vec<u32>> {
    let number = |part: &str| part.parse().ok().filter(|number| (min..=max).contains(number));
    text.split('.').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_their_hosts() {
        let space = |text: &str| {
            addresses(text).and_then(|(v4, v6)| v4.or(v6)).map(|space| (space.at(0), space.len()))
        };
        assert_eq!(space("10.0.0.0/24"), Some((0x0a00_0001, 254)));
        assert_eq!(space("10.0.0.7/32"), Some((0x0a00_0007, 1)));
        assert_eq!(space("10.0.0.6/31"), Some((0x0a00_0006, 2)));
        assert_eq!(space("0.0.0.0/0"), Some((1, (1 << 32) - 2)));
        assert_eq!(space("fd00::/120"), Some(((0xfd00 << 112) + 1, 255)));
        assert_eq!(space("::/0").map(|(first, _)| first), Some(1));
        assert_eq!(space("10.0.0.1-10.0.0.3,10.9.9.9"), Some((0x0a00_0001, 4)));
        for wrong in ["", "10.0.0", "10.0.0.0/33", "10.0.0.2-10.0.0.1", "10.0.0.1-::1", "::/129", "10.0.0.1,"]
        {
            assert_eq!(space(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ports_and_shares() {
        assert_eq!(ports("80,1000-1001").map(|space| space.len()), Some(3));
        assert_eq!(["2-1", "65536", "", "a"].map(|text| ports(text).is_none()), [true; 4]);
        assert_eq!(share("1/100"), Some(Share { over: 1, under: 100 }));
        assert_eq!(["2/1", "1/0", "1", "1/9G"].map(|text| share(text).is_none()), [true; 4]);
        assert_eq!(mac("02:0:0:0:0:ff"), Some([2, 0, 0, 0, 0, 255]));
        assert_eq!(
            ["02:00", "02:00:00:00:00:00:00", "xx:0:0:0:0:0"].map(|text| mac(text).is_none()),
            [true; 3]
        );
    }
}
