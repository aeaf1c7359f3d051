//! Values as text (RFC 7373), written digit by digit: format strings take several times as long, and lines of flows are
//! made of little else.
//!
//! ```text
//! number    1500           address   10.0.0.1, 2001:db8::1        time   2026-11-22T20:10:15.123456789Z
//! octets    00a1ff         MAC       02:00:00:00:00:01            text   as it is
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::element::FieldValue;
use super::table::ColumnType;

/// Writes values as text. Keeps the text of a day, which the times of many rows share.
#[derive(Default)]
pub(super) struct ValueText {
    day: Option<i64>,
    /// Such as `2026-11-22T`; empty outside of the calendar, where packets have no times.
    date: String,
}

/// Seconds of a day.
const DAY: i64 = 86_400;

impl ValueText {
    /// Writes a value of a column of this type. A value that is absent is empty.
    pub(super) fn write(&mut self, value: FieldValue<'_>, kind: ColumnType, out: &mut Vec<u8>) {
        match (value, kind) {
            (FieldValue::Number(octets), ColumnType::Octets(len)) => {
                hex(&octets.to_be_bytes()[8 - usize::from(len.min(8))..], out);
            }
            (FieldValue::Number(address), ColumnType::Mac) => mac(address, out),
            (FieldValue::Number(value), _) => number(value, out),
            (FieldValue::Address(IpAddr::V4(address)), _) => ipv4(address, out),
            (FieldValue::Address(IpAddr::V6(address)), _) => ipv6(address, out),
            (FieldValue::Time(time), kind) => {
                let digits = match kind {
                    ColumnType::Seconds => 0,
                    ColumnType::Milliseconds => 3,
                    _ => 9,
                };
                self.time(time.seconds(), time.subsec_nanos(), digits, out);
            }
            (FieldValue::Text(text), _) => out.extend_from_slice(text.as_bytes()),
            (FieldValue::Bytes(bytes), _) => hex(bytes, out),
            (FieldValue::Absent, _) => {}
        }
    }

    /// Writes a time in UTC, with this number of digits after the decimal point of the second.
    fn time(&mut self, seconds: i64, nanos: u32, digits: usize, out: &mut Vec<u8>) {
        let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY) as usize);
        if self.day != Some(day) {
            let moment = jiff::Timestamp::from_second(day * DAY);
            self.date =
                moment.map_or_else(|_| String::new(), |moment| moment.strftime("%Y-%m-%dT").to_string());
            self.day = Some(day);
        }
        if self.date.is_empty() {
            return;
        }
        out.extend_from_slice(self.date.as_bytes());
        let [[h1, h2], [m1, m2], [s1, s2]] =
            [second / 3600, second / 60 % 60, second % 60].map(|at| PAIRS[at]);
        out.extend_from_slice(&[h1, h2, b':', m1, m2, b':', s1, s2]);
        if digits > 0 {
            let mut fraction = *b".000000000";
            let mut rest = nanos;
            for digit in fraction[1..].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            out.extend_from_slice(&fraction[..=digits.min(9)]);
        }
        out.push(b'Z');
    }
}

/// Both digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + at as u8 / 10, b'0' + at as u8 % 10];
        at += 1;
    }
    pairs
};

/// Each octet as a decimal number with a dot behind it, and the length of both.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut at = 0;
    while at < 256 {
        let [hundreds, tens, ones] =
            [b'0' + (at / 100) as u8, b'0' + (at / 10 % 10) as u8, b'0' + (at % 10) as u8];
        octets[at] = match at {
            0..10 => ([ones, b'.', 0, 0], 2),
            10..100 => ([tens, ones, b'.', 0], 3),
            _ => ([hundreds, tens, ones, b'.'], 4),
        };
        at += 1;
    }
    octets
};

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

fn number(number: u64, out: &mut Vec<u8>) {
    let len = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    let start = out.len();
    // A copy of a length that the compiler knows is a few instructions.
    out.extend_from_slice(&[b'0'; DIGITS_MAX]);
    out.truncate(start + len);
    let mut rest = number;
    for place in out[start..].rchunks_mut(2) {
        place.copy_from_slice(&PAIRS[(rest % 100) as usize][2 - place.len()..]);
        rest /= 100;
    }
}

fn ipv4(address: Ipv4Addr, out: &mut Vec<u8>) {
    let (mut text, mut len) = ([0; 20], 0);
    for octet in address.octets() {
        let (octet, octet_len) = OCTETS[usize::from(octet)];
        text[len..len + 4].copy_from_slice(&octet);
        len += usize::from(octet_len);
    }
    let start = out.len();
    out.extend_from_slice(&text);
    // Without the last dot.
    out.truncate(start + len - 1);
}

/// As RFC 5952 has it: the longest run of zeros is left out, the first of several, if there are at least two.
fn ipv6(address: Ipv6Addr, out: &mut Vec<u8>) {
    if let Some(mapped) = address.to_ipv4_mapped() {
        out.extend_from_slice(b"::ffff:");
        return ipv4(mapped, out);
    }
    let groups = address.segments();
    let (from, to) = longest_zeros(&groups);
    for (at, group) in groups.into_iter().enumerate() {
        if (from..to).contains(&at) {
            if at == from {
                out.extend_from_slice(b"::");
            }
            continue;
        }
        if at > 0 && at != to {
            out.push(b':');
        }
        let digits =
            [group >> 12, group >> 8 & 15, group >> 4 & 15, group & 15].map(|digit| HEX[usize::from(digit)]);
        let zeros = (group.leading_zeros() / 4).min(3) as usize;
        out.extend_from_slice(&digits[zeros..]);
    }
}

/// The run of zeros that is left out, empty at the start if there is none.
fn longest_zeros(groups: &[u16; 8]) -> (usize, usize) {
    let (mut longest, mut from) = ((0, 0), 0);
    for (at, group) in groups.iter().enumerate() {
        if *group != 0 {
            from = at + 1;
        } else if at + 1 - from > (longest.1 - longest.0).max(1) {
            longest = (from, at + 1);
        }
    }
    longest
}

const HEX: [u8; 16] = *b"0123456789abcdef";

fn hex(octets: &[u8], out: &mut Vec<u8>) {
    out.extend(octets.iter().flat_map(|octet| [HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]]));
}

/// A MAC address as RFC 7373, 4.6 writes it.
fn mac(address: u64, out: &mut Vec<u8>) {
    for (at, octet) in address.to_be_bytes()[2..].iter().enumerate() {
        if at > 0 {
            out.push(b':');
        }
        hex(&[*octet], out);
    }
}

/// A text of JSON with its quotes. Texts have no control characters.
pub(super) fn json_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// The name of a field of JSON with its colon, and what separates it from the field before.
pub(super) fn json_key(name: &str) -> Vec<u8> {
    format!(",\"{name}\":").into_bytes()
}

/// Ends the object of JSON that begins at `start`: its first separator becomes the brace.
pub(super) fn end_json_line(start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start) {
        Some(separator) => *separator = b'{',
        None => out.push(b'{'),
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapline_packet::Timestamp;

    use super::*;

    fn written(value: FieldValue<'_>, kind: ColumnType) -> String {
        let mut out = b"before ".to_vec();
        ValueText::default().write(value, kind, &mut out);
        String::from_utf8(out.split_off(7)).expect("ASCII")
    }

    fn of_address(address: impl Into<IpAddr>) -> String {
        written(FieldValue::Address(address.into()), ColumnType::Text)
    }

    #[test]
    fn edges_are_as_format_strings_write_them() {
        let powers = (0..20).flat_map(|power| [10_u64.pow(power) - 1, 10_u64.pow(power)]);
        for value in powers.chain([u64::MAX]) {
            assert_eq!(written(FieldValue::Number(value), ColumnType::Unsigned(64)), value.to_string());
        }
        for octet in 0..=255 {
            let address = Ipv4Addr::new(octet, 255 - octet, 0, octet);
            assert_eq!(of_address(address), address.to_string());
        }
        assert_eq!(written(FieldValue::Number(0xab_cdef), ColumnType::Octets(3)), "abcdef");
        assert_eq!(written(FieldValue::Number(1), ColumnType::Octets(3)), "000001");
        assert_eq!(written(FieldValue::Bytes(&[0, 255, 16]), ColumnType::Octets(u16::MAX)), "00ff10");
        assert_eq!(written(FieldValue::Number(0x0200_5e10_0001), ColumnType::Mac), "02:00:5e:10:00:01");
        assert_eq!(written(FieldValue::Absent, ColumnType::Text), "");
    }

    /// Zeros at each set of groups.
    #[test]
    fn zeros_are_left_out_as_in_rfc_5952() {
        for (set, bits) in (0..256_u16).flat_map(|set| [(set, 1_u16), (set, 0xfff)]) {
            let groups: [u16; 8] =
                std::array::from_fn(|at| if set >> at & 1 == 0 { 0 } else { bits << (at % 4 * 4) });
            let address = Ipv6Addr::from(groups);
            assert_eq!(of_address(address), address.to_string());
        }
        assert_eq!(of_address(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()), "::ffff:10.0.0.1");
    }

    proptest! {
        #[test]
        fn numbers_and_addresses_are_standard(number: u64, shift in 0..64, address: u128, mask: u128) {
            let number = number >> shift;
            prop_assert_eq!(written(FieldValue::Number(number), ColumnType::Unsigned(64)), number.to_string());
            let address = Ipv6Addr::from(address & mask);
            prop_assert_eq!(of_address(address), address.to_string());
        }

        #[test]
        fn times_are_those_of_the_calendar(nanos: i64, same_day in 0..86_400_i64) {
            let mut values = ValueText::default();
            for nanos in [nanos, nanos.saturating_add(same_day * 1_000_000_000), -nanos.saturating_abs()] {
                let moment = jiff::Timestamp::from_nanosecond(nanos.into()).expect("in the calendar");
                let time = Timestamp::from_nanos(nanos);
                for (kind, form) in [
                    (ColumnType::Seconds, "%Y-%m-%dT%H:%M:%SZ"),
                    (ColumnType::Milliseconds, "%Y-%m-%dT%H:%M:%S.%3fZ"),
                    (ColumnType::Nanoseconds, "%Y-%m-%dT%H:%M:%S.%9fZ"),
                ] {
                    let mut out = Vec::new();
                    values.write(FieldValue::Time(time), kind, &mut out);
                    prop_assert_eq!(String::from_utf8_lossy(&out), moment.strftime(form).to_string());
                }
            }
        }
    }
}
