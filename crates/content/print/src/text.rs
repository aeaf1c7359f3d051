//! Numbers and strings into a byte buffer, without `core::fmt` where it is hot.

/// Writes the usual forms of numbers to the end of a buffer.
pub(crate) trait Text {
    /// Bytes as they are.
    fn raw(&mut self, bytes: &[u8]);

    #[inline]
    fn text(&mut self, text: &str) {
        self.raw(text.as_bytes());
    }

    /// Decimal.
    #[inline]
    fn dec(&mut self, value: impl Unsigned) {
        let mut digits = [0; 20];
        let start = decimal(value.wide(), &mut digits);
        self.raw(&digits[start..]);
    }

    /// Decimal, filled with zeros to at least `width` (at most 20).
    #[inline]
    fn dec_padded(&mut self, value: impl Unsigned, width: usize) {
        let mut digits = [b'0'; 20];
        let start = decimal(value.wide(), &mut digits);
        self.raw(&digits[start.min(20 - width.min(20))..]);
    }

    /// Lower-case hexadecimal without prefix, filled with zeros to at least `width` (at most 16): `%0<width>x`.
    #[inline]
    fn hex(&mut self, value: impl Unsigned, width: usize) {
        let mut digits = [b'0'; 16];
        let mut value = value.wide();
        let mut start = 16;
        while value != 0 {
            start -= 1;
            digits[start] = HEX_DIGITS[(value & 15) as usize];
            value >>= 4;
        }
        self.raw(&digits[start.min(16 - width.clamp(1, 16))..]);
    }

    /// `a.b.c.d`.
    #[inline]
    fn ipv4(&mut self, [a, b, c, d]: [u8; 4]) {
        let mut text = [0; 16];
        let mut len = 0;
        for octet in [a, b, c, d] {
            len += short_decimal(octet, &mut text[len..]);
            text[len] = b'.';
            len += 1;
        }
        self.raw(&text[..len - 1]);
    }

    /// In the form of RFC 5952, as `inet_ntop` prints it: `2001:db8::1`, `::ffff:1.2.3.4`.
    fn ipv6(&mut self, address: [u8; 16]) {
        write_ipv6(self, address);
    }

    /// `aa:bb:cc:dd:ee:ff`, for any number of bytes.
    fn colon_hex(&mut self, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            if index > 0 {
                self.text(":");
            }
            self.hex(*byte, 2);
        }
    }

    /// A character as `cat -v` shows it: `^A` for control characters, `M-` before those of the upper half.
    fn visible(&mut self, mut byte: u8) {
        if byte >= 0x80 {
            self.text("M-");
            byte &= 0x7f;
        }
        if !(0x20..0x7f).contains(&byte) {
            self.text("^");
            byte ^= 0x40;
        }
        self.raw(&[byte]);
    }

    /// Each byte as [`visible`](Text::visible) shows it.
    fn visible_all(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.visible(byte);
        }
    }

    /// The bytes before the first NUL, visibly. Whether there was a NUL.
    fn visible_until_nul(&mut self, bytes: &[u8]) -> bool {
        let end = bytes.iter().position(|&b| b == 0);
        self.visible_all(&bytes[..end.unwrap_or(bytes.len())]);
        end.is_some()
    }
}

/// The unsigned integers that are printed.
pub(crate) trait Unsigned: Copy {
    /// The value in 64 bits.
    fn wide(self) -> u64;
}

macro_rules! unsigned {
    ($($t:ty)*) => { $(impl Unsigned for $t {
        #[inline]
        fn wide(self) -> u64 { self as u64 }
    })* };
}
unsigned!(u8 u16 u32 u64 usize);

impl Text for Vec<u8> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

const DIGIT_PAIRS: &[u8; 200] =
    b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Writes the digits to the end of the buffer; where they start.
#[inline]
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> usize {
    let mut start = 20;
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        digits[start] = b'0' + value as u8;
    }
    start
}

/// Writes the one to three digits of a byte; how many.
#[inline]
fn short_decimal(value: u8, text: &mut [u8]) -> usize {
    let pair = usize::from(value % 100) * 2;
    if value >= 100 {
        text[0] = b'0' + value / 100;
        text[1..3].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
        3
    } else if value >= 10 {
        text[..2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
        2
    } else {
        text[0] = b'0' + value;
        1
    }
}

fn write_ipv6<T: Text + ?Sized>(out: &mut T, address: [u8; 16]) {
    let groups: [u16; 8] = std::array::from_fn(|i| u16::from_be_bytes([address[2 * i], address[2 * i + 1]]));
    let (gap, gap_len) = longest_zero_run(groups);
    let mut index = 0;
    while index < 8 {
        if index == gap {
            out.text("::");
            index += gap_len;
            continue;
        }
        if index > 0 && index != gap + gap_len {
            out.text(":");
        }
        if index == 6 && ends_as_ipv4(groups, gap, gap_len) {
            out.ipv4([address[12], address[13], address[14], address[15]]);
            return;
        }
        out.hex(groups[index], 1);
        index += 1;
    }
}

/// The first of the longest runs of at least two zero groups; (8, 0) if there is none.
fn longest_zero_run(groups: [u16; 8]) -> (usize, usize) {
    let mut best = (8, 1);
    let mut start = 0;
    // A last group that is not zero ends a run at the end.
    for (index, group) in groups.into_iter().chain([1]).enumerate() {
        if group == 0 {
            continue;
        }
        if index - start > best.1 {
            best = (start, index - start);
        }
        start = index + 1;
    }
    if best.0 == 8 { (8, 0) } else { best }
}

/// IPv4-compatible (`::a.b.c.d`) and IPv4-mapped (`::ffff:a.b.c.d`) addresses, by the rule of `inet_ntop`.
fn ends_as_ipv4(groups: [u16; 8], gap: usize, gap_len: usize) -> bool {
    gap == 0 && (gap_len == 6 || (gap_len == 7 && groups[7] != 1) || (gap_len == 5 && groups[5] == 0xffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn decimal_matches_format() {
        for value in [0, 1, 9, 10, 99, 100, 101, 12_345, 999_999, u64::MAX] {
            assert_eq!(written(|o| o.dec(value)), value.to_string());
            assert_eq!(written(|o| o.dec_padded(value, 6)), format!("{value:06}"));
            assert_eq!(written(|o| o.hex(value, 4)), format!("{value:04x}"));
            assert_eq!(written(|o| o.hex(value, 0)), format!("{value:x}"));
        }
    }

    #[test]
    fn addresses() {
        for octets in [[0, 0, 0, 0], [255, 10, 9, 100], [1, 99, 200, 255]] {
            assert_eq!(written(|o| o.ipv4(octets)), std::net::Ipv4Addr::from(octets).to_string());
        }
        for text in [
            "::",
            "::1",
            "2001:db8::1",
            "1:0:2:0:0:3:0:4",
            "1:0:0:2::3",
            "fe80::",
            "::ffff:1.2.3.4",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7:0",
            "0:1::",
            "::2:0:0:3",
        ] {
            let address: std::net::Ipv6Addr = text.parse().expect("an address");
            assert_eq!(written(|o| o.ipv6(address.octets())), address.to_string(), "{text}");
        }
    }

    #[test]
    fn visible_characters() {
        assert_eq!(written(|o| o.visible_all(b"a\x01\x7f\x81\xe9")), "a^A^?M-^AM-i");
        assert!(!written(|o| assert!(o.visible_until_nul(b"ab\0cd"))).contains('c'));
    }
}
