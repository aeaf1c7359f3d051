//! Domain names in messages (RFC 1035, 4.1.4), with compression.
//!
//! ```text
//! 00LLLLLL bytes        a label of L bytes; L = 0 ends the name
//! 11OOOOOO OOOOOOOO     the rest of the name stands at offset O, which must lie before what pointed here
//! 01000001 count bits   a bit string (RFC 2673, historic); other 01 and all 10 have no meaning
//! ```
//!
//! A pointer has to lead backwards, so no name is endless; see [`walk`] for the bound on its cost.

use crate::bytes::{Cut, Span};

/// Longest name in its text form, without the end.
const NAME_MAX: usize = 255;

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'p> {
    /// A label, or what was captured of one.
    Label(&'p [u8]),
    /// A bit string of `count` bits.
    Bits { count: usize, bits: &'p [u8] },
    /// The dot after a label that is complete.
    Dot,
    /// The name is longer than names may be; the rest is left out.
    TooLong,
}

/// Why a name could not be followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The captured bytes end.
    Cut,
    /// A pointer that does not lead backwards.
    Pointer,
    /// A label of a kind that does not exist.
    LabelKind,
    /// A label of an extended kind that is not known.
    Element(u8),
}

impl From<Cut> for Fault {
    fn from(_: Cut) -> Fault {
        Fault::Cut
    }
}

/// Follows the name at `at` and hands its pieces to `piece`; where what follows the name starts.
///
/// Past its longest allowed length a compressed name is not followed further, so the cost is bounded by the length of the
/// message, however its pointers lie.
pub(crate) fn walk<'p>(
    message: Span<'p>,
    mut at: usize,
    mut piece: impl FnMut(Piece<'p>),
) -> Result<usize, Fault> {
    let mut lowest = at;
    let mut after = None;
    let mut written = 0;
    let mut label_len = label_length(message, at)?;
    if message.u8(at)? == 0 {
        piece(Piece::Dot);
        return Ok(at + 1);
    }
    loop {
        let head = message.u8(at)?;
        at += 1;
        match head >> 6 {
            _ if head == 0 => break,
            3 => {
                after = after.or(Some(at + 1));
                let target = usize::from(head & 0x3f) << 8 | usize::from(message.u8(at)?);
                if target >= lowest {
                    return Err(Fault::Pointer);
                }
                lowest = target;
                at = target;
                label_len = label_length(message, at)?;
                continue;
            }
            1 => piece(bits(message, at)?),
            _ => {
                let shown = label_len.min(NAME_MAX.saturating_sub(written));
                let captured = message.data.get(at..).unwrap_or(&[]);
                piece(Piece::Label(&captured[..shown.min(captured.len())]));
                written += label_len;
            }
        }
        message.need(at + label_len)?;
        at += label_len;
        if written <= NAME_MAX {
            piece(Piece::Dot);
        } else if after.is_some() {
            break;
        }
        written += 1;
        label_len = label_length(message, at)?;
    }
    if written > NAME_MAX + 1 {
        piece(Piece::TooLong);
    }
    Ok(after.unwrap_or(at))
}

/// Where what follows the name at `at` starts, without following its pointers.
pub(crate) fn skip(message: Span<'_>, mut at: usize) -> Result<usize, Cut> {
    loop {
        let head = message.u8(at)?;
        at += 1;
        match head >> 6 {
            _ if head == 0 => return Ok(at),
            0 => at += usize::from(head),
            1 if head == BIT_LABEL => at += 1 + bit_count(message, at)?.div_ceil(8),
            3 => return Ok(at + 1),
            _ => return Err(Cut),
        }
    }
}

const BIT_LABEL: u8 = 0x41;

/// Bytes that the label at `at` has behind its first.
fn label_length(message: Span<'_>, at: usize) -> Result<usize, Fault> {
    let head = message.u8(at)?;
    match head >> 6 {
        0 => Ok(usize::from(head)),
        1 if head == BIT_LABEL => Ok(1 + bit_count(message, at + 1)?.div_ceil(8)),
        1 => Err(Fault::Element(head & 0x3f)),
        2 => Err(Fault::LabelKind),
        _ => Ok(1),
    }
}

fn bits(message: Span<'_>, at: usize) -> Result<Piece<'_>, Cut> {
    let count = bit_count(message, at)?;
    Ok(Piece::Bits { count, bits: message.bytes(at + 1, count.div_ceil(8))? })
}

/// 0 stands for 256.
fn bit_count(message: Span<'_>, at: usize) -> Result<usize, Cut> {
    Ok(match message.u8(at)? {
        0 => 256,
        count => usize::from(count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(bytes: &[u8], at: usize) -> (String, Result<usize, Fault>) {
        let mut text = String::new();
        let end = walk(Span::whole(bytes), at, |piece| match piece {
            Piece::Label(label) => text.push_str(&String::from_utf8_lossy(label)),
            Piece::Dot => text.push('.'),
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
        assert_eq!(name(message, 13), (String::new(), Err(Fault::Cut)));
    }

    #[test]
    fn pointers_lead_backwards() {
        assert_eq!(name(b"\xc0\x00", 0).1, Err(Fault::Pointer));
        assert_eq!(name(b"\x01a\xc0\x00", 0), ("a.".into(), Err(Fault::Pointer)));
        assert_eq!(name(b"\0\xc0\x03\xc0\x01", 1).1, Err(Fault::Pointer));
    }

    #[test]
    fn what_was_captured_of_a_label_is_shown() {
        assert_eq!(name(b"\x05ab", 0), ("ab".into(), Err(Fault::Cut)));
        assert_eq!(name(b"\x80", 0).1, Err(Fault::LabelKind));
        assert_eq!(name(b"\x42", 0).1, Err(Fault::Element(2)));
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end_within_the_message(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0_usize..620) {
            let mut shown = 0;
            let end = walk(Span::whole(&bytes), at, |piece| match piece {
                Piece::Label(label) => shown += label.len(),
                Piece::Bits { bits, .. } => shown += bits.len(),
                Piece::Dot | Piece::TooLong => {}
            });
            prop_assert!(shown <= 255 + bytes.len());
            if let Ok(end) = end {
                prop_assert!(end <= bytes.len() && end > at);
            }
        }
    }
}
