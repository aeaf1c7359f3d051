//! Domain names in messages (RFC 1035, 4.1.4), with compression.
//!
//! ```text
//! 00LLLLLL bytes        a label of L bytes; L = 0 ends the name
//! 11OOOOOO OOOOOOOO     the rest of the name is at offset O, which must lie before the pointer and all labels so far
//! 01000001 count bits   a bit string (RFC 2673, historic); other 01 and all 10 have no meaning
//! ```
//!
//! A pointer has to lead backwards, so no name is endless; see [`walk`] for the bound on its cost.

use super::HEADER_LEN;

/// Longest name in its text form, without the last dot (RFC 1035, 2.3.4).
pub const NAME_MAX: usize = 255;

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePart<'m> {
    /// A label, or its captured part.
    Label(&'m [u8]),
    /// A bit string.
    Bits {
        /// Number of bits, 1 to 256.
        count: usize,
        /// The bits, the first one in the top bit of the first byte.
        bits: &'m [u8],
    },
    /// The dot after a complete label.
    Dot,
    /// The name is longer than [`NAME_MAX`]; the rest is left out.
    TooLong,
}

/// Reason why a name could not be followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// The captured bytes end.
    Cut,
    /// A pointer that does not lead backwards.
    Pointer,
    /// A label of a kind that does not exist.
    LabelKind,
    /// A label of an extended kind without a meaning, and that kind.
    Element(u8),
}

/// Follows the name at offset `at` of a message, gives its parts to `piece`, and returns the offset behind the name.
///
/// Past [`NAME_MAX`] a compressed name is not followed further, so the cost is bounded by the length of the message,
/// however its pointers lie.
///
/// # Errors
///
/// A [`NameFault`]; the parts before it were given.
pub fn walk<'m>(message: &'m [u8], at: usize, piece: impl FnMut(NamePart<'m>)) -> Result<usize, NameFault> {
    follow(message, at, 0, piece)
}

/// Appends the text form of the name at offset `at` to `text`, labels with dots between and `.` for the root, and
/// returns the offset behind the name. Bytes of labels are copied as they are. `None`, with `text` in an undefined
/// state, for a name that is cut, longer than [`NAME_MAX`], has a bit string, or points into the message's header.
pub fn read(message: &[u8], at: usize, text: &mut Vec<u8>) -> Option<usize> {
    let start = text.len();
    let mut is_plain = true;
    let after = follow(message, at, HEADER_LEN, |piece| match piece {
        NamePart::Label(label) => text.extend_from_slice(label),
        NamePart::Dot => text.push(b'.'),
        NamePart::Bits { .. } | NamePart::TooLong => is_plain = false,
    });
    match text.len() - start {
        // A pointer to the root.
        0 => text.push(b'.'),
        1 => {}
        // The last label ends with a dot as the others do.
        _ => drop(text.pop()),
    }
    after.ok().filter(|_| is_plain && text.len() - start <= NAME_MAX)
}

/// Follows a name whose pointers lead to `lowest_target` or behind it.
fn follow<'m>(
    message: &'m [u8],
    mut at: usize,
    lowest_target: usize,
    mut piece: impl FnMut(NamePart<'m>),
) -> Result<usize, NameFault> {
    let mut lowest = at;
    let mut after = None;
    let mut written = 0;
    let mut label_len = label_length(message, at)?;
    if byte(message, at)? == 0 {
        piece(NamePart::Dot);
        return Ok(at + 1);
    }
    loop {
        let head = byte(message, at)?;
        at += 1;
        match head >> 6 {
            _ if head == 0 => break,
            3 => {
                after = after.or(Some(at + 1));
                let target = usize::from(head & 0x3f) << 8 | usize::from(byte(message, at)?);
                if target >= lowest || target < lowest_target {
                    return Err(NameFault::Pointer);
                }
                lowest = target;
                at = target;
                label_len = label_length(message, at)?;
                continue;
            }
            1 => piece(bits(message, at)?),
            _ => {
                let shown = label_len.min(NAME_MAX.saturating_sub(written));
                let captured = message.get(at..).unwrap_or(&[]);
                piece(NamePart::Label(&captured[..shown.min(captured.len())]));
                written += label_len;
            }
        }
        at += label_len;
        if at > message.len() {
            return Err(NameFault::Cut);
        }
        if written <= NAME_MAX {
            piece(NamePart::Dot);
        } else if after.is_some() {
            break;
        }
        written += 1;
        label_len = label_length(message, at)?;
    }
    if written > NAME_MAX + 1 {
        piece(NamePart::TooLong);
    }
    Ok(after.unwrap_or(at))
}

/// The offset behind the name at offset `at`, without following its pointers; `None` if it is cut or has a label
/// without a meaning.
pub fn skip(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let head = *message.get(at)?;
        at += 1;
        match head >> 6 {
            _ if head == 0 => return Some(at),
            0 => at += usize::from(head),
            1 if head == BIT_LABEL => at += 1 + bit_count(message, at).ok()?.div_ceil(8),
            3 => return Some(at + 1),
            _ => return None,
        }
    }
}

const BIT_LABEL: u8 = 0x41;

fn byte(message: &[u8], at: usize) -> Result<u8, NameFault> {
    message.get(at).copied().ok_or(NameFault::Cut)
}

/// Bytes that the label at offset `at` has behind its first.
fn label_length(message: &[u8], at: usize) -> Result<usize, NameFault> {
    let head = byte(message, at)?;
    match head >> 6 {
        0 => Ok(usize::from(head)),
        1 if head == BIT_LABEL => Ok(1 + bit_count(message, at + 1)?.div_ceil(8)),
        1 => Err(NameFault::Element(head & 0x3f)),
        2 => Err(NameFault::LabelKind),
        _ => Ok(1),
    }
}

fn bits(message: &[u8], at: usize) -> Result<NamePart<'_>, NameFault> {
    let count = bit_count(message, at)?;
    let bits = message.get(at + 1..at + 1 + count.div_ceil(8)).ok_or(NameFault::Cut)?;
    Ok(NamePart::Bits { count, bits })
}

/// The number of bits; 0 means 256.
fn bit_count(message: &[u8], at: usize) -> Result<usize, NameFault> {
    Ok(match byte(message, at)? {
        0 => 256,
        count => usize::from(count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(bytes: &[u8], at: usize) -> (String, Result<usize, NameFault>) {
        let mut text = String::new();
        let end = walk(bytes, at, |piece| match piece {
            NamePart::Label(label) => text.push_str(&String::from_utf8_lossy(label)),
            NamePart::Dot => text.push('.'),
            other => text.push_str(&format!("{other:?}")),
        });
        (text, end)
    }

    #[test]
    fn labels_and_pointers() {
        let message = b"\x03www\x02de\0\x01a\xc0\x04\0";
        assert_eq!(name(message, 0), ("www.de.".into(), Ok(8)));
        assert_eq!(name(message, 8), ("a.de.".into(), Ok(12)));
        assert_eq!(name(message, 12), (".".into(), Ok(13)));
        assert_eq!(name(message, 13), (String::new(), Err(NameFault::Cut)));
    }

    #[test]
    fn pointers_lead_backwards() {
        assert_eq!(name(b"\xc0\x00", 0).1, Err(NameFault::Pointer));
        assert_eq!(name(b"\x01a\xc0\x00", 0), ("a.".into(), Err(NameFault::Pointer)));
        assert_eq!(name(b"\0\xc0\x03\xc0\x01", 1).1, Err(NameFault::Pointer));
    }

    #[test]
    fn the_captured_part_of_a_label_is_shown() {
        assert_eq!(name(b"\x05ab", 0), ("ab".into(), Err(NameFault::Cut)));
        assert_eq!(name(b"\x80", 0).1, Err(NameFault::LabelKind));
        assert_eq!(name(b"\x42", 0).1, Err(NameFault::Element(2)));
    }

    #[test]
    fn names_are_read_as_text() {
        let message = b"------------\x03www\x02de\0\x01a\xc0\x10\0\x41\x08\xff\0\xc0\x18";
        let mut text = Vec::new();
        let mut read_at = |at| {
            text.clear();
            read(message, at, &mut text).map(|after| (after, String::from_utf8_lossy(&text).into_owned()))
        };
        assert_eq!(read_at(12), Some((20, "www.de".into())));
        assert_eq!(read_at(20), Some((24, "a.de".into())));
        assert_eq!(read_at(24), Some((25, ".".into())));
        assert_eq!(read_at(25), None, "a bit string");
        assert_eq!(read_at(29), Some((31, ".".into())), "a pointer to the root");
        assert_eq!(read(b"------------\xc0\x01\0", 12, &mut Vec::new()), None, "into the header");
    }

    #[test]
    fn a_name_of_255_bytes_is_the_longest() {
        let labels = |last: usize| {
            let long = [&[63][..], &[b'x'; 63]].concat();
            [&[0; HEADER_LEN][..], &long, &long, &long, &[last as u8], &vec![b'x'; last], &[0]].concat()
        };
        let mut text = Vec::new();
        assert!(read(&labels(63), 12, &mut text).is_some());
        assert_eq!(text.len(), NAME_MAX);
        let longer = [&labels(63)[..12 + 4 * 64], &[1, b'y', 0]].concat();
        assert_eq!(read(&longer, 12, &mut Vec::new()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_within_the_message(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            at in 0_usize..620,
        ) {
            let mut shown = 0;
            let end = walk(&bytes, at, |piece| match piece {
                NamePart::Label(label) => shown += label.len(),
                NamePart::Bits { bits, .. } => shown += bits.len(),
                NamePart::Dot | NamePart::TooLong => {}
            });
            prop_assert!(shown <= 255 + bytes.len());
            if let Ok(end) = end {
                prop_assert!(end <= bytes.len() && end > at);
                prop_assert_eq!(skip(&bytes, at), Some(end));
            }
            let mut text = Vec::new();
            if let Some(after) = read(&bytes, at, &mut text) {
                prop_assert_eq!(end, Ok(after));
                prop_assert!((1..=NAME_MAX).contains(&text.len()));
            }
        }
    }
}
