//! The named fields of an Ethernet frame, taken apart with a cursor, one layer after the other.

use std::collections::HashMap;

type Fields = HashMap<&'static str, u64>;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// All fields that the frame has; those that it has not are missing.
pub(crate) fn fields(frame: &[u8]) -> Fields {
    let mut found = Fields::new();
    if frame.len() < 14 {
        return found;
    }
    found.insert("ETH_DST", number(&frame[..6]));
    found.insert("ETH_SRC", number(&frame[6..12]));
    let mut ether_type = number(&frame[12..14]);
    let mut at = 14;
    for tag in 0..2 {
        if ![0x8100, 0x88a8, 0x9100].contains(&ether_type) || frame.len() < at + 4 {
            break;
        }
        if tag == 0 {
            let control = number(&frame[at..at + 2]);
            found.extend([("IS_VLAN", 1), ("VLAN_ID", control % 4096), ("VLAN_PCP", control >> 13)]);
        }
        ether_type = number(&frame[at + 2..at + 4]);
        at += 4;
    }
    found.insert("ETH_TYPE", ether_type);
    match ether_type {
        0x0806 if frame.len() >= at + 28 => arp(&frame[at..], &mut found),
        0x0800 if frame.len() >= at + 20 => ipv4(frame, at, &mut found),
        0x86dd if frame.len() >= at + 40 => ipv6(frame, at, &mut found),
        _ => {}
    }
    found
}

fn arp(bytes: &[u8], found: &mut Fields) {
    found.extend([
        ("IS_ARP", 1),
        ("ARP_OP", number(&bytes[6..8])),
        ("ARP_SENDER_MAC", number(&bytes[8..14])),
        ("ARP_SENDER_IP", number(&bytes[14..18])),
        ("ARP_TARGET_MAC", number(&bytes[18..24])),
        ("ARP_TARGET_IP", number(&bytes[24..28])),
    ]);
}

fn ipv4(frame: &[u8], at: usize, found: &mut Fields) {
    let header = &frame[at..];
    let header_len = usize::from(header[0] % 16) * 4;
    let (len, flags) = (number(&header[2..4]), number(&header[6..8]));
    found.extend([
        ("IS_IP", 1),
        ("IP_VERSION", 4),
        ("IP_START", at as u64),
        ("IP_HLEN", header_len as u64),
        ("IP_TOS", header[1].into()),
        ("IP_DSCP", (header[1] >> 2).into()),
        ("IP_ECN", (header[1] & 3).into()),
        ("IP_LEN", len),
        ("IP_ID", number(&header[4..6])),
        ("IP_DF", flags >> 14 & 1),
        ("IP_MF", flags >> 13 & 1),
        ("IP_FRAG", flags & 0x1fff),
        ("IS_FRAGMENT", (flags & 0x3fff != 0).into()),
        ("IP_TTL", header[8].into()),
        ("IP_PROTO", header[9].into()),
        ("IP_CSUM", number(&header[10..12])),
        ("IP_SRC", number(&header[12..16])),
        ("IP_DST", number(&header[16..20])),
        ("IP_DEST", number(&header[16..20])),
    ]);
    if header_len >= 20 && flags & 0x1fff == 0 && header[9] != 0 {
        let end = if len == 0 { frame.len() } else { frame.len().min(at + len as usize) };
        transport(frame, at + header_len, header[9], end, found);
    }
}

fn ipv6(frame: &[u8], at: usize, found: &mut Fields) {
    let header = &frame[at..];
    let len = number(&header[4..6]);
    found.extend([
        ("IS_IP6", 1),
        ("IP_VERSION", 6),
        ("IP6_START", at as u64),
        ("IP6_CLASS", number(&header[0..2]) >> 4 & 0xff),
        ("IP6_FLOW", number(&header[1..4]) & 0xf_ffff),
        ("IP6_LEN", len),
        ("IP6_NEXT", header[6].into()),
        ("IP6_HOPS", header[7].into()),
        ("IP6_SRC_HIGH", number(&header[8..16])),
        ("IP6_SRC_LOW", number(&header[16..24])),
        ("IP6_DST_HIGH", number(&header[24..32])),
        ("IP6_DST_LOW", number(&header[32..40])),
    ]);
    let end = if len == 0 { frame.len() } else { frame.len().min(at + 40 + len as usize) };
    let (mut next, mut here) = (header[6], at + 40);
    for _ in 0..8 {
        let extension = match next {
            0 | 43 | 44 | 51 | 60 => frame.get(here..).filter(|rest| rest.len() >= 8),
            _ => {
                return if next != 0 {
                    transport(frame, here, next, end, found)
                };
            }
        };
        let Some(extension) = extension else { return };
        let units = usize::from(extension[1]);
        let len = match next {
            44 => 8,
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if next == 44 {
            found.insert("IS_FRAGMENT", 1);
            if number(&extension[2..4]) >> 3 != 0 {
                return;
            }
        }
        next = extension[0];
        here += len;
    }
    if ![0, 43, 44, 51, 60].contains(&next) {
        transport(frame, here, next, end, found);
    }
}

fn transport(frame: &[u8], at: usize, protocol: u8, end: usize, found: &mut Fields) {
    found.extend([("L4_PROTO", protocol.into()), ("L4_START", at as u64)]);
    let header = frame.get(at..).unwrap_or_default();
    let word = |from: usize| number(&header[from..from + 2]);
    let data = match protocol {
        6 if header.len() >= 20 => {
            let header_len = usize::from(header[12] >> 4) * 4;
            found.extend([
                ("IS_TCP", 1),
                ("TCP_SPORT", word(0)),
                ("TCP_DPORT", word(2)),
                ("TCP_SEQ", number(&header[4..8])),
                ("TCP_ACK", number(&header[8..12])),
                ("TCP_HLEN", header_len as u64),
                ("TCP_FLAGS", header[13].into()),
                ("TCP_WINDOW", word(14)),
                ("TCP_CSUM", word(16)),
                ("TCP_URGENT", word(18)),
            ]);
            if header_len < 20 {
                return;
            }
            at + header_len
        }
        17 if header.len() >= 8 => {
            found.extend([("IS_UDP", 1), ("UDP_SPORT", word(0)), ("UDP_DPORT", word(2))]);
            found.extend([("UDP_LEN", word(4)), ("UDP_CSUM", word(6))]);
            at + 8
        }
        1 if header.len() >= 8 => {
            found.extend([("IS_ICMP", 1), ("ICMP_TYPE", header[0].into()), ("ICMP_CODE", header[1].into())]);
            found.extend([("ICMP_CSUM", word(2)), ("ICMP_ID", word(4)), ("ICMP_SEQ", word(6))]);
            at + 8
        }
        58 if header.len() >= 4 => {
            found.extend([
                ("IS_ICMP6", 1),
                ("ICMP6_TYPE", header[0].into()),
                ("ICMP6_CODE", header[1].into()),
            ]);
            found.insert("ICMP6_CSUM", word(2));
            at + 8
        }
        _ => return,
    };
    found.extend([("DATA_START", data as u64), ("DATA_LEN", end.saturating_sub(data) as u64)]);
}
