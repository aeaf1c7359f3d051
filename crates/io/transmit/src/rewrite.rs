//! Other endpoints in a packet: addresses replaced, checksums mended.
//!
//! ```text
//! Ethernet   source, destination                       by a map of addresses
//! ARP        hardware and protocol addresses of both    by the same maps
//! IPv4, v6   source, destination                       by a map of networks: the bits behind the prefix stay
//!            sums of IPv4, TCP, UDP, ICMPv6             by the difference (RFC 1624), so that a wrong sum stays wrong
//! ```
//!
//! The outermost IP header only: what a tunnel carries, and what an ICMP error quotes, stays as it is. Cut packets are
//! rewritten as far as they go.

use std::net::IpAddr;
use std::str::FromStr;

use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::numbers::ethertype;
use tapline_packet::{LinkType, checksum};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// A hardware address that replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacRule {
    from: [u8; 6],
    to: [u8; 6],
}

/// A network that replaces another of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRule {
    from: IpAddr,
    to: IpAddr,
    prefix_len: u8,
}

/// The reason that a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a rule: {why}; write {form}")]
pub struct RuleError {
    text: String,
    why: &'static str,
    form: &'static str,
}

const MAC_FORM: &str = "OLD=NEW, such as 02:00:00:00:00:01=02:00:00:00:00:02";
const IP_FORM: &str =
    "OLD=NEW, such as 10.0.0.1=192.0.2.1, 10.0.0.0/8=172.0.0.0/8 or 2001:db8::/32=fd00::/32";

impl FromStr for MacRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<MacRule, RuleError> {
        let fault = |why| RuleError { text: text.to_owned(), why, form: MAC_FORM };
        let (from, to) = text.split_once('=').ok_or_else(|| fault("there is no ="))?;
        let mac =
            |text| mac(text).ok_or_else(|| fault("an address has six numbers of two hexadecimal digits"));
        Ok(MacRule { from: mac(from)?, to: mac(to)? })
    }
}

impl FromStr for IpRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<IpRule, RuleError> {
        let fault = |why| RuleError { text: text.to_owned(), why, form: IP_FORM };
        let (from, to) = text.split_once('=').ok_or_else(|| fault("there is no ="))?;
        let network =
            |text| network(text).ok_or_else(|| fault("one side is neither an address nor a network"));
        let ((from, from_len), (to, to_len)) = (network(from)?, network(to)?);
        if from.is_ipv4() != to.is_ipv4() {
            return Err(fault("both must be of one version of IP"));
        }
        if from_len != to_len {
            return Err(fault("both must have prefixes of one length"));
        }
        Ok(IpRule { from, to, prefix_len: from_len })
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.trim().split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let text = text.trim();
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Some(most), |len| len.parse().ok())?;
    (len <= most).then_some((address, len))
}

/// The address to replace, and its replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Hardware addresses; the first rule that fits counts.
    pub macs: Vec<MacRule>,
    /// IP addresses; likewise.
    pub ips: Vec<IpRule>,
}

impl Rewrite {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.macs.is_empty() && self.ips.is_empty()
    }

    /// Rewrites a packet in place, as far as it was captured.
    pub fn apply(&self, link_type: LinkType, data: &mut [u8]) {
        if self.is_empty() {
            return;
        }
        let headers = Headers::parse_data(link_type, data);
        if link_type == LinkType::ETHERNET {
            self.put_mac(data, 0);
            self.put_mac(data, 6);
        }
        match (headers.ip(), headers.l3()) {
            (Some(version), Some(at)) => self.rewrite_ip(data, &headers, version, at),
            (None, Some(at)) if headers.ether_type() == Some(ethertype::ARP) => self.rewrite_arp(data, at),
            _ => {}
        }
    }

    fn rewrite_ip(&self, data: &mut [u8], headers: &Headers, version: IpVersion, at: usize) {
        let (addresses, len) = match version {
            IpVersion::V4 => (at + 12, 4),
            IpVersion::V6 => (at + 8, 16),
        };
        let mut change = Difference::default();
        let mut is_changed = false;
        for place in [addresses, addresses + len] {
            let Some(field) = data.get_mut(place..place + len) else { return };
            change.take(field);
            is_changed |= self.put_ip(field);
            change.give(field);
        }
        // A sum of 0xffff and one of 0 are the same to a receiver: what is not changed keeps its own.
        if !is_changed {
            return;
        }
        if version == IpVersion::V4 {
            change.mend(data, at + 10, headers.ip_end());
        }
        // A later fragment has no transport header, and `l4` says so; the first one's sum is that of the whole.
        let Some(transport) = headers.l4() else { return };
        match headers.protocol() {
            Some(TCP) => change.mend(data, transport + 16, headers.ip_end()),
            Some(UDP) => {
                let is_none = data.get(transport + 6..transport + 8) == Some(&[0, 0]);
                if !is_none {
                    change.mend(data, transport + 6, headers.ip_end());
                    // RFC 768: 0 would mean that there is none.
                    let sum = data.get_mut(transport + 6..transport + 8).filter(|sum| *sum == [0, 0]);
                    sum.into_iter().for_each(|sum| sum.fill(0xff));
                }
            }
            Some(ICMPV6) if version == IpVersion::V6 => change.mend(data, transport + 2, headers.ip_end()),
            _ => {}
        }
    }

    /// ARP for IPv4 on Ethernet (RFC 826): 6 and 4 bytes of addresses, sender and target.
    fn rewrite_arp(&self, data: &mut [u8], at: usize) {
        if data.get(at..at + 6) != Some(&[0, 1, 8, 0, 6, 4]) {
            return;
        }
        for place in [at + 8, at + 18] {
            self.put_mac(data, place);
            if let Some(field) = data.get_mut(place + 6..place + 10) {
                self.put_ip(field);
            }
        }
    }

    fn put_mac(&self, data: &mut [u8], at: usize) {
        let Some(field) = data.get_mut(at..at + 6) else { return };
        if let Some(rule) = self.macs.iter().find(|rule| rule.from == *field) {
            field.copy_from_slice(&rule.to);
        }
    }

    /// Replaces the address in a field of 4 or 16 bytes. Returns whether a rule fits.
    fn put_ip(&self, field: &mut [u8]) -> bool {
        for rule in &self.ips {
            let replaced = match (rule.from, rule.to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    replace(field, &from.octets(), &to.octets(), rule.prefix_len)
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    replace(field, &from.octets(), &to.octets(), rule.prefix_len)
                }
                _ => false,
            };
            if replaced {
                return true;
            }
        }
        false
    }
}

/// Puts the first bits of `to` into a field that has those of `from`. Returns whether it has.
fn replace(field: &mut [u8], from: &[u8], to: &[u8], prefix_len: u8) -> bool {
    if field.len() != from.len() {
        return false;
    }
    let mask = |byte: usize| {
        let bits = usize::from(prefix_len).saturating_sub(byte * 8).min(8);
        !(0xff_u16 >> bits) as u8
    };
    let fits = field.iter().zip(from).enumerate().all(|(byte, (is, wanted))| (is ^ wanted) & mask(byte) == 0);
    if fits {
        for (byte, (is, new)) in field.iter_mut().zip(to).enumerate() {
            *is = (*is & !mask(byte)) | (new & mask(byte));
        }
    }
    fits
}

/// By how much a sum changes: that of the words that went, and that of those that came.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    before: u64,
    after: u64,
}

impl Difference {
    fn take(&mut self, words: &[u8]) {
        self.before += checksum::sum(words);
    }

    fn give(&mut self, words: &[u8]) {
        self.after += checksum::sum(words);
    }

    /// Corrects the sum at `at`, if it is before `end`.
    fn mend(self, data: &mut [u8], at: usize, end: usize) {
        let Some(field) = data.get_mut(..end).and_then(|data| data.get_mut(at..at + 2)) else { return };
        let old = u16::from_be_bytes([field[0], field[1]]);
        field.copy_from_slice(&checksum::updated(old, self.before, self.after).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tapline_testkit::frames::{Ethernet, Host, IpPair, Tcp, Udp, fragments_v4, icmpv6};
    use tapline_testkit::frames::{IpVersion as Version, Ipv4};
    use tapline_testkit::traffic::Traffic;

    use super::*;

    fn hosts() -> (Host, Host, Rewrite) {
        let (a, b) = (Host::number(1), Host::number(2));
        let shown = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let (new_a, new_b) = (Host::number(0x0901), Host::number(0x0902));
        let rewrite = Rewrite {
            macs: vec![
                format!("{}={}", shown(a.mac), shown(new_a.mac)).parse().unwrap(),
                format!("{}={}", shown(b.mac), shown(new_b.mac)).parse().unwrap(),
            ],
            ips: vec![
                "10.0.0.0/24=10.0.9.0/24".parse().unwrap(),
                "fd00::/120=fd00::900/120".parse().unwrap(),
            ],
        };
        (new_a, new_b, rewrite)
    }

    /// A frame between two hosts, of every kind that carries a sum.
    fn frames(a: &Host, b: &Host) -> Vec<Vec<u8>> {
        let ethernet = Ethernet::between(a, b);
        let mut frames = Vec::new();
        for version in [Version::V4, Version::V6] {
            let ips = IpPair::between(a, b, version);
            let tcp = Tcp { src: 1, dst: 2, ..Tcp::default() };
            frames.push(ethernet.ip(&tcp.packet(ips, b"odd")));
            frames.push(ethernet.ip(&Udp { src: 3, dst: 4 }.packet(ips, b"even")));
        }
        let ips = IpPair::between(a, b, Version::V6);
        frames.push(ethernet.ip(&ips.packet(58, &icmpv6(a.v6, b.v6, 128, 0, [0, 1, 0, 1], &[9]))));
        let segment =
            Tcp { src: 1, dst: 2, ..Tcp::default() }.segment(IpPair::between(a, b, Version::V4), &[7; 2000]);
        frames.extend(
            fragments_v4(&Ipv4::new(a.v4, b.v4, 6), &segment, 800).iter().map(|packet| ethernet.ip(packet)),
        );
        frames
    }

    #[test]
    fn rewritten_frames_equal_those_of_the_other_hosts() {
        let (new_a, new_b, rewrite) = hosts();
        let before = frames(&Host::number(1), &Host::number(2));
        for (mut frame, expected) in before.into_iter().zip(frames(&new_a, &new_b)) {
            rewrite.apply(LinkType::ETHERNET, &mut frame);
            assert_eq!(frame, expected);
        }
    }

    #[test]
    fn rewriting_back_restores_the_frame() {
        let there = Rewrite { macs: Vec::new(), ips: vec!["0.0.0.0/1=128.0.0.0/1".parse().unwrap()] };
        let back = Rewrite { macs: Vec::new(), ips: vec!["128.0.0.0/1=0.0.0.0/1".parse().unwrap()] };
        for (_, frame) in Traffic::new(21).take(2000) {
            let is_low = |at: usize| frame.get(at).is_some_and(|byte| *byte < 128);
            let headers = Headers::parse_data(LinkType::ETHERNET, &frame);
            let low = headers.l3().is_some_and(|at| is_low(at + 12) && is_low(at + 16));
            if headers.ip() != Some(IpVersion::V4) || !low {
                continue;
            }
            let mut changed = frame.clone();
            there.apply(LinkType::ETHERNET, &mut changed);
            assert_ne!(changed, frame);
            back.apply(LinkType::ETHERNET, &mut changed);
            assert_eq!(changed, frame);
        }
    }

    #[test]
    fn frames_cut_anywhere_do_no_harm() {
        let (.., rewrite) = hosts();
        for (_, frame) in Traffic::new(22).take(60) {
            for len in 0..=frame.len() {
                rewrite.apply(LinkType::ETHERNET, &mut frame[..len].to_vec());
            }
        }
    }

    #[test]
    fn rules_that_are_none_say_why() {
        let fault = |text: &str| text.parse::<IpRule>().map(|_| ()).unwrap_err().to_string();
        assert!(
            fault("10.0.0.1").contains("there is no =")
                && fault("10.0.0.1").contains("10.0.0.0/8=172.0.0.0/8")
        );
        assert!(fault("10.0.0.1=::1").contains("one version"));
        assert!(fault("10.0.0.0/8=11.0.0.0/9").contains("one length"));
        assert!(fault("10.0.0.0/33=11.0.0.0/33").contains("neither an address"));
        assert!("02:00:00:00:00=1".parse::<MacRule>().is_err());
        assert!("02:00:00:00:00:01:02=02:00:00:00:00:01".parse::<MacRule>().is_err());
        let rule: IpRule = "10.1.0.0/13=192.168.0.0/13".parse().unwrap();
        let mut field = Ipv4Addr::new(10, 7, 3, 4).octets();
        Rewrite { ips: vec![rule], macs: Vec::new() }.put_ip(&mut field);
        assert_eq!(field, [192, 175, 3, 4]);
    }
}
