//! Bodies of HTTP, unpacked: gzip and deflate (RFC 9110, 8.4.1).

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::conversation::Shared;

/// Bodies that are unpacked at a time; about 64 KiB of memory each.
const UNPACKING_MAX: usize = 1024;
/// The longest unpacked body. More of one is not shown.
const BODY_MAX: u64 = 16 << 20;
/// Packed bytes that are unpacked at a time, to 4 MiB at most.
const PIECE_LEN: usize = 4096;

/// A remark on bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The coding is another one.
    OtherCoding,
    /// Too many bodies are being unpacked.
    TooMany,
    /// The packed bytes are damaged, or some are missing.
    Damaged,
    /// The body is longer than the longest that is shown.
    TooLong,
}

impl Note {
    pub(super) fn text(self) -> &'static str {
        match self {
            Note::OtherCoding => "the body is shown as it was sent: only gzip and deflate are unpacked",
            Note::TooMany => "the body is shown as it was sent: 1,024 others are being unpacked",
            Note::Damaged => "the body cannot be unpacked from here on",
            Note::TooLong => "the rest of the body is left out: it unpacks to more than 16 MiB",
        }
    }
}

/// A body with a coding.
pub(super) struct Body {
    state: BodyForm,
    /// Unpacked bytes so far.
    len: u64,
}

enum BodyForm {
    Unpacking(Decoder),
    /// The bytes are shown as they were sent, behind this note.
    AsSent(Option<Note>),
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// `deflate` is zlib, but some servers send deflate alone: the first byte shows which.
    Either,
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
}

impl Decoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let (Decoder::Either, Some(first)) = (&self, bytes.first()) {
            *self = match first & 0x0f {
                8 => Decoder::Zlib(Box::new(ZlibDecoder::new(Vec::new()))),
                _ => Decoder::Deflate(Box::new(DeflateDecoder::new(Vec::new()))),
            };
        }
        match self {
            Decoder::Gzip(decoder) => decoder.write_all(bytes),
            Decoder::Zlib(decoder) => decoder.write_all(bytes),
            Decoder::Deflate(decoder) => decoder.write_all(bytes),
            Decoder::Either => Ok(()),
        }
    }

    /// Unpacks what the decoder still has.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Decoder::Gzip(decoder) => decoder.try_finish(),
            Decoder::Zlib(decoder) => decoder.try_finish(),
            Decoder::Deflate(decoder) => decoder.try_finish(),
            Decoder::Either => Ok(()),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Decoder::Gzip(decoder) => std::mem::take(decoder.get_mut()),
            Decoder::Zlib(decoder) => std::mem::take(decoder.get_mut()),
            Decoder::Deflate(decoder) => std::mem::take(decoder.get_mut()),
            Decoder::Either => Vec::new(),
        }
    }
}

impl Body {
    /// A body of this `Content-Encoding`; `None` if it has none.
    pub(super) fn begin(coding: &str, shared: &mut Shared) -> Option<Body> {
        let decoder = match coding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => return None,
            "gzip" | "x-gzip" => Ok(Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))),
            "deflate" => Ok(Decoder::Either),
            _ => Err(Note::OtherCoding),
        };
        let decoder =
            if shared.unpacking < UNPACKING_MAX { decoder } else { decoder.and(Err(Note::TooMany)) };
        let state = match decoder {
            Ok(decoder) => {
                shared.unpacking += 1;
                BodyForm::Unpacking(decoder)
            }
            Err(note) => {
                shared.not_unpacked += 1;
                BodyForm::AsSent(Some(note))
            }
        };
        Some(Body { state, len: 0 })
    }

    /// Takes the next bytes, and gives `show` what to show of them.
    pub(super) fn write(&mut self, bytes: &[u8], shared: &mut Shared, show: &mut dyn FnMut(Shown<'_>)) {
        let mut pieces = bytes.chunks(PIECE_LEN);
        while let BodyForm::Unpacking(decoder) = &mut self.state
            && let Some(piece) = pieces.next()
        {
            let written = decoder.write(piece);
            let unpacked = decoder.take();
            self.show(&unpacked, shared, show);
            if written.is_err() {
                self.fail(shared);
            }
        }
        if let BodyForm::AsSent(note) = &mut self.state {
            note.take().into_iter().for_each(|note| show(Shown::Note(note)));
            pieces.for_each(|piece| show(Shown::Bytes(piece)));
        }
    }

    fn show(&mut self, unpacked: &[u8], shared: &mut Shared, show: &mut dyn FnMut(Shown<'_>)) {
        let room = usize::try_from(BODY_MAX.saturating_sub(self.len)).unwrap_or(usize::MAX);
        let (now, rest) = unpacked.split_at(unpacked.len().min(room));
        show(Shown::Bytes(now));
        if !rest.is_empty() && self.len <= BODY_MAX {
            show(Shown::Note(Note::TooLong));
        }
        self.len += unpacked.len() as u64;
        shared.left_out += rest.len() as u64;
    }

    /// Goes on with bytes as they are sent: they cannot be unpacked.
    pub(super) fn fail(&mut self, shared: &mut Shared) {
        if let BodyForm::Unpacking(_) = self.state {
            shared.unpacking -= 1;
            shared.not_unpacked += 1;
            self.state = BodyForm::AsSent(Some(Note::Damaged));
        }
    }

    /// Shows what is left. `is_whole` says that all of the body was there.
    pub(super) fn end(mut self, is_whole: bool, shared: &mut Shared, show: &mut dyn FnMut(Shown<'_>)) {
        if let BodyForm::Unpacking(decoder) = &mut self.state {
            let finished = decoder.finish();
            let unpacked = decoder.take();
            self.show(&unpacked, shared, show);
            if finished.is_err() && is_whole {
                self.fail(shared);
                show(Shown::Note(Note::Damaged));
            }
        }
        self.forget(shared);
    }

    /// Frees its decoder.
    pub(super) fn forget(self, shared: &mut Shared) {
        shared.unpacking -= usize::from(matches!(self.state, BodyForm::Unpacking(_)));
    }
}

/// A part of a body.
pub(super) enum Shown<'b> {
    Bytes(&'b [u8]),
    Note(Note),
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    /// Text and notes of a body in pieces.
    fn shown(coding: &str, bytes: &[u8], step: usize) -> (Vec<u8>, Vec<Note>, Shared) {
        let mut shared = Shared::default();
        let (mut text, mut notes) = (Vec::new(), Vec::new());
        let mut show = |shown: Shown<'_>| match shown {
            Shown::Bytes(bytes) => text.extend_from_slice(bytes),
            Shown::Note(note) => notes.push(note),
        };
        let mut body = Body::begin(coding, &mut shared).expect("a coding");
        bytes.chunks(step).for_each(|piece| body.write(piece, &mut shared, &mut show));
        body.end(true, &mut shared, &mut show);
        assert_eq!(shared.unpacking, 0);
        (text, notes, shared)
    }

    fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = Compression::default();
        let mut out = Vec::new();
        match coding {
            "gzip" => GzEncoder::new(&mut out, level).write_all(text),
            "zlib" => ZlibEncoder::new(&mut out, level).write_all(text),
            _ => DeflateEncoder::new(&mut out, level).write_all(text),
        }
        .expect("memory");
        out
    }

    #[test]
    fn bodies_are_unpacked_however_they_are_cut() {
        let text = "some text ".repeat(50_000).into_bytes();
        for (coding, name) in [("gzip", "gzip"), ("zlib", "deflate"), ("deflate", "deflate")] {
            for step in [1, 1000, 1 << 20] {
                let (unpacked, notes, _) = shown(name, &packed(coding, &text), step);
                assert!(unpacked == text && notes.is_empty(), "{coding} {step} {notes:?} {}", unpacked.len());
            }
        }
    }

    #[test]
    fn hostile_bodies_are_bounded_and_counted() {
        let bomb = packed("gzip", &vec![0; BODY_MAX as usize + 5]);
        let (unpacked, notes, shared) = shown("gzip", &bomb, 1 << 16);
        assert_eq!((unpacked.len() as u64, notes, shared.left_out), (BODY_MAX, vec![Note::TooLong], 5));
        let mut damaged = packed("gzip", b"some text");
        damaged[12] ^= 0x55;
        let (_, notes, shared) = shown("gzip", &damaged, 5);
        assert_eq!((notes, shared.not_unpacked), (vec![Note::Damaged], 1));
        let (as_sent, notes, _) = shown("br", b"abc", 2);
        assert_eq!((as_sent, notes), (b"abc".to_vec(), vec![Note::OtherCoding]));
        let mut shared = Shared { unpacking: UNPACKING_MAX, ..Shared::default() };
        assert!(
            Body::begin("gzip", &mut shared).is_some_and(|body| matches!(body.state, BodyForm::AsSent(_)))
        );
    }
}
