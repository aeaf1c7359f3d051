//! Writes JSON (RFC 8259) into a byte vector: one value after the other, no tree, no allocation of its own.
//!
//! ```text
//! object(number_field("a", 1), array_field("b", text("x")))   ->   {"a":1,"b":["x"]}
//! ```
//!
//! Commas are set from one bit of state: whether a value has just been completed.

use std::io::Write as _;

use crate::text::Text;

/// Appends JSON to a vector. The caller closes everything that it opens.
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    after_value: bool,
}

impl<'o> Writer<'o> {
    /// Appends to `out`, which may hold earlier lines.
    pub(super) fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, after_value: false }
    }

    /// An object; `body` writes its members. It is closed also where `body` gives up half-way.
    pub(super) fn object<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.enclose(b'{', b'}', body)
    }

    /// Opens an object as a field; the caller writes its members before [`close_object`](Self::close_object).
    pub(super) fn open_object(&mut self, name: &'static str) {
        self.key(name);
        self.out.push(b'{');
    }

    /// Closes the object that [`open_object`](Self::open_object) opened.
    pub(super) fn close_object(&mut self) {
        self.out.push(b'}');
        self.after_value = true;
    }

    /// An array; `body` writes its elements. It is closed also where `body` gives up half-way.
    pub(super) fn array<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.enclose(b'[', b']', body)
    }

    /// A string; `body` writes its parts. It is closed also where `body` gives up half-way.
    pub(super) fn string<R>(&mut self, body: impl FnOnce(&mut StringWriter) -> R) -> R {
        self.begin();
        self.out.push(b'"');
        let result = body(&mut StringWriter { out: self.out });
        self.out.push(b'"');
        result
    }

    /// The name of the next value, which has to follow: so it is for fields alone. Names are ours: letters, digits and
    /// `_`, so nothing is escaped.
    fn key(&mut self, name: &'static str) {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// A whole number.
    pub(super) fn number(&mut self, value: impl Into<u64>) {
        self.begin();
        self.out.dec(value.into());
    }

    /// A whole number that may be negative.
    pub(super) fn signed(&mut self, value: impl Into<i64>) {
        self.begin();
        let _ = write!(self.out, "{}", value.into());
    }

    /// A number with a fraction, to six digits: the precision of fixed-point fields of protocols.
    pub(super) fn fraction(&mut self, value: f64) {
        self.begin();
        let _ = write!(self.out, "{value:.6}");
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, value: bool) {
        self.begin();
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A string from the bytes of a packet; bytes that are not UTF-8 become U+FFFD.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.string(|part| part.bytes(bytes));
    }

    /// A string of `0x` and at least `digits` hexadecimal digits.
    pub(super) fn hex(&mut self, value: u64, digits: usize) {
        self.string(|part| {
            part.out.text("0x");
            part.out.hex(value, digits);
        });
    }

    /// A string of two hexadecimal digits for each byte.
    pub(super) fn hex_bytes(&mut self, bytes: &[u8]) {
        self.string(|part| bytes.iter().for_each(|&byte| part.out.hex(byte, 2)));
    }

    /// A link-layer address: `00:11:22:33:44:55`, of any length.
    pub(super) fn mac(&mut self, bytes: &[u8]) {
        self.string(|part| part.out.colon_hex(bytes));
    }

    /// An IPv4 address of 4 bytes or an IPv6 address of 16 (RFC 5952); bytes in hexadecimal if it is neither.
    pub(super) fn address(&mut self, bytes: &[u8]) {
        if let Ok(four) = <[u8; 4]>::try_from(bytes) {
            self.string(|part| part.out.ipv4(four));
        } else if let Ok(sixteen) = <[u8; 16]>::try_from(bytes) {
            self.string(|part| part.out.ipv6(sixteen));
        } else {
            self.hex_bytes(bytes);
        }
    }

    /// `"name": {...}`.
    pub(super) fn object_field<R>(&mut self, name: &'static str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.key(name);
        self.object(body)
    }

    /// `"name": [...]`.
    pub(super) fn array_field<R>(&mut self, name: &'static str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.key(name);
        self.array(body)
    }

    /// `"name": "..."`; `body` writes the parts of the string.
    pub(super) fn string_field<R>(
        &mut self,
        name: &'static str,
        body: impl FnOnce(&mut StringWriter) -> R,
    ) -> R {
        self.key(name);
        self.string(body)
    }

    /// `"name": "0102ff"`.
    pub(super) fn bytes_field(&mut self, name: &'static str, bytes: &[u8]) {
        self.key(name);
        self.hex_bytes(bytes);
    }

    /// `"name": -1`.
    pub(super) fn signed_field(&mut self, name: &'static str, value: impl Into<i64>) {
        self.key(name);
        self.signed(value);
    }

    /// `"name": 0.500000`.
    pub(super) fn fraction_field(&mut self, name: &'static str, value: f64) {
        self.key(name);
        self.fraction(value);
    }

    /// `"name": number`.
    pub(super) fn number_field(&mut self, name: &'static str, value: impl Into<u64>) {
        self.key(name);
        self.number(value);
    }

    /// `"name": true`.
    pub(super) fn boolean_field(&mut self, name: &'static str, value: bool) {
        self.key(name);
        self.boolean(value);
    }

    /// `"name": "text"`.
    pub(super) fn text_field(&mut self, name: &'static str, bytes: &[u8]) {
        self.key(name);
        self.text(bytes);
    }

    /// `"name": "0x0800"`.
    pub(super) fn hex_field(&mut self, name: &'static str, value: impl Into<u64>, digits: usize) {
        self.key(name);
        self.hex(value.into(), digits);
    }

    /// `"name": "192.0.2.1"`.
    pub(super) fn address_field(&mut self, name: &'static str, bytes: &[u8]) {
        self.key(name);
        self.address(bytes);
    }

    /// `"name": "00:11:22:33:44:55"`.
    pub(super) fn mac_field(&mut self, name: &'static str, bytes: &[u8]) {
        self.key(name);
        self.mac(bytes);
    }

    /// Writes a comma if a value precedes; a key never needs one behind it.
    fn separate(&mut self) {
        if self.after_value {
            self.out.push(b',');
        }
        self.after_value = false;
    }

    /// As [`separate`](Self::separate), for a value that is complete when this call's caller returns.
    fn begin(&mut self) {
        self.separate();
        self.after_value = true;
    }

    fn enclose<R>(&mut self, open: u8, close: u8, body: impl FnOnce(&mut Self) -> R) -> R {
        self.separate();
        self.out.push(open);
        let result = body(self);
        self.out.push(close);
        self.after_value = true;
        result
    }
}

/// The inside of a string.
pub(super) struct StringWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl StringWriter<'_> {
    /// More of it, escaped; bytes that are not UTF-8 become U+FFFD.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.utf8_chunks() {
            self.valid(chunk.valid().as_bytes());
            if !chunk.invalid().is_empty() {
                self.out.text("\u{fffd}");
            }
        }
    }

    /// Valid UTF-8 with its control characters escaped: also DEL, and U+0080 to U+009F, which are two bytes.
    fn valid(&mut self, mut bytes: &[u8]) {
        while let [byte, rest @ ..] = bytes {
            bytes = rest;
            match (byte, rest) {
                (0xc2, [number @ 0x80..0xa0, rest @ ..]) => {
                    self.escape_number(*number);
                    bytes = rest;
                }
                _ => self.escape(*byte),
            }
        }
    }

    /// Decimal, filled with zeros to `width` digits.
    pub(super) fn decimal(&mut self, value: u64, width: usize) {
        self.out.dec_padded(value, width);
    }

    /// Two hexadecimal digits for each byte.
    pub(super) fn hex(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.out.hex(byte, 2));
    }

    /// One byte of valid UTF-8 (RFC 8259, section 7).
    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' => self.out.text("\\\""),
            b'\\' => self.out.text("\\\\"),
            b'\n' => self.out.text("\\n"),
            b'\r' => self.out.text("\\r"),
            b'\t' => self.out.text("\\t"),
            0..0x20 | 0x7f => self.escape_number(byte),
            _ => self.out.push(byte),
        }
    }

    fn escape_number(&mut self, number: u8) {
        self.out.text("\\u");
        self.out.hex(number, 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Writer)) -> String {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out));
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn no_control_character_stays_raw() {
        let text = written(|json| json.text("\u{1f} \u{7f}\u{80}\u{9b}2J\u{9f}\u{a0}é".as_bytes()));
        assert_eq!(text, "\"\\u001f \\u007f\\u0080\\u009b2J\\u009f\u{a0}é\"");
    }

    #[test]
    fn commas_stand_between_values_only() {
        let text = written(|json| {
            json.object(|json| {
                json.number_field("a", 1_u8);
                json.array_field("b", |json| {
                    json.text(b"x");
                    json.object(|_| ());
                    json.array(|_| ());
                    json.boolean(true);
                });
                json.signed_field("c", -2);
            });
        });
        assert_eq!(text, r#"{"a":1,"b":["x",{},[],true],"c":-2}"#);
    }

    #[test]
    fn addresses_take_their_usual_form() {
        let text = written(|w| {
            w.array(|w| {
                w.address(&[192, 0, 2, 1]);
                w.address(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                w.mac(&[0, 1, 2, 0xab, 4, 5]);
                w.hex(0x800, 4);
                w.address(&[1]);
            });
        });
        assert_eq!(text, r#"["192.0.2.1","2001:db8::1","00:01:02:ab:04:05","0x0800","01"]"#);
    }

    proptest! {
        #[test]
        fn strings_read_back_as_the_bytes_read_lossily(bytes: Vec<u8>) {
            let text = written(|w| w.text(&bytes));
            let back: String = serde_json::from_str(&text).expect("a JSON string");
            prop_assert_eq!(back, String::from_utf8_lossy(&bytes));
        }
    }
}
