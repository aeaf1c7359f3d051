//! Text from packets, made safe to show.

use std::fmt::Write as _;

/// Maximum length of a reported text in bytes.
pub(crate) const TEXT_MAX: usize = 255;

/// Whether a letter shows as itself and leaves its neighbours in their slots: no control character, none that turns the
/// direction of a line, ends it, or is not seen (Unicode's category Cf in such scripts as have names).
pub fn is_plain(letter: char) -> bool {
    let is_unseen = matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !letter.is_control() && !is_unseen
}

/// Bytes of a packet as text that is safe in terminals, CSV and JSON: printable UTF-8 stays, every other byte and the
/// backslash become `\xNN`; at most [`TEXT_MAX`] bytes.
pub(super) fn escaped(bytes: &[u8]) -> Box<str> {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let is_plain = is_plain(letter) && letter != '\\';
            if out.len() + if is_plain { letter.len_utf8() } else { 4 * letter.len_utf8() } > TEXT_MAX {
                return out.into();
            }
            match is_plain {
                true => out.push(letter),
                false => {
                    let mut buffer = [0; 4];
                    letter.encode_utf8(&mut buffer).bytes().for_each(|byte| escape(byte, &mut out));
                }
            }
        }
        for byte in chunk.invalid() {
            if out.len() + 4 > TEXT_MAX {
                return out.into();
            }
            escape(*byte, &mut out);
        }
    }
    out.into()
}

fn escape(byte: u8, out: &mut String) {
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_do_no_harm() {
        assert_eq!(&*escaped("www.bücher.example".as_bytes()), "www.bücher.example");
        assert_eq!(&*escaped(b"a\x1b[2J\\\xff\n"), "a\\x1b[2J\\x5c\\xff\\x0a");
        assert_eq!(&*escaped("\u{85}".as_bytes()), "\\xc2\\x85");
        assert_eq!(&*escaped("a\u{202e}b\u{200b}c".as_bytes()), "a\\xe2\\x80\\xaeb\\xe2\\x80\\x8bc");
        assert_eq!(escaped(&[0; 300]).len(), 252);
        assert_eq!(escaped(&[b'a'; 300]).len(), 255);
    }
}
