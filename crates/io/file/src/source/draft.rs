//! Pieces of a file: read and parsed ahead by any thread, then parsed in turn.
//!
//! ```text
//!           left over          the piece in the file
//! bytes |..|=========|===================================|
//!                        ^ found ahead, by the scout   ^
//!          ^ in turn --> if this comes to the first of them, they are taken, and it goes on behind them
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tapline_packet::Record;

use super::{FileSource, ReadMode};
use crate::error::Error;
use crate::read::{Parser, Scout, Stop, Window};

/// Room for bytes left over from the piece before. If a longer packet leaves more, the piece is copied.
const ROOM_BEFORE: usize = 16 << 10;

/// A piece of a file.
#[derive(Default)]
pub(crate) struct Draft {
    /// Memory of the piece.
    pub(crate) bytes: Vec<u8>,
    /// Records found ahead behind an empty one, in whose place comes the record that begins in the piece before; all
    /// records once the piece is parsed in turn.
    pub(crate) records: Vec<Record>,
    /// The bytes of the piece, later with those left over before it.
    window: Range<usize>,
    /// The place of the window's first byte in the file.
    offset: u64,
    /// The bytes of the records found ahead, and the facts by which they were parsed.
    ahead: Option<(Range<usize>, u64)>,
    /// Whether the file ends with the piece, or cannot be read on.
    is_last: bool,
    fault: Option<io::Error>,
}

/// The end of a piece that was parsed in turn.
pub(crate) struct DraftEnd {
    /// Bytes of the draft that are left over.
    pub(crate) rest: Range<usize>,
    /// The least number of bytes to go on with, counted from the first left over.
    pub(crate) need: u64,
    /// Whether the file ended, and the error with which it did.
    pub(crate) ended: Option<Result<(), Error>>,
    /// Whether the records found ahead were taken.
    pub(crate) is_ahead: bool,
}

impl Draft {
    /// Reads `len` bytes at `offset` of a file into the memory of a former piece, and parses them ahead.
    pub(crate) fn read(
        file: &File,
        offset: u64,
        len: usize,
        scout: Option<&Scout>,
        (mut bytes, mut records): (Vec<u8>, Vec<Record>),
    ) -> Draft {
        bytes.resize(ROOM_BEFORE + len, 0);
        records.clear();
        let mut draft =
            Draft { bytes, records, window: ROOM_BEFORE..ROOM_BEFORE, offset, ..Draft::default() };
        draft.read_on(file);
        draft.ahead = scout.and_then(|scout| {
            draft.records.push(Record::default());
            let window = Window { bytes: &mut draft.bytes[..draft.window.end], at: draft.window.start };
            Some((scout.parse(window, offset, &mut draft.records)?, scout.facts()))
        });
        draft
    }

    /// Reads until the piece is full or the file ends.
    fn read_on(&mut self, file: &File) {
        let at = self.offset + self.window.len() as u64;
        let (len, fault) = read_up_to(file, &mut self.bytes[self.window.end..], at);
        self.window.end += len;
        self.is_last = self.window.end < self.bytes.len();
        self.fault = fault;
    }

    /// Reads on where the file ended when the piece was read: it may have grown since.
    pub(crate) fn follow(&mut self, file: &File) {
        if self.is_last && self.fault.is_none() {
            self.read_on(file);
        }
    }

    /// Whether no bytes follow.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// The bytes of the piece.
    pub(crate) fn piece(&self) -> &[u8] {
        &self.bytes[self.window.clone()]
    }

    /// Puts the bytes left over from the piece before in front, and leaves none.
    pub(crate) fn put_before(&mut self, left_over: &mut Vec<u8>) {
        let len = left_over.len();
        self.offset -= len as u64;
        match self.window.start.checked_sub(len) {
            Some(start) => {
                self.bytes[start..self.window.start].copy_from_slice(left_over);
                self.window.start = start;
            }
            None => {
                left_over.extend_from_slice(&self.bytes[self.window.clone()]);
                self.window = 0..left_over.len();
                std::mem::swap(&mut self.bytes, left_over);
                self.ahead = None;
            }
        }
        left_over.clear();
    }
}

/// Reads until `bytes` is full or the file ends. Returns the number of bytes, and an error behind them.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> (usize, Option<io::Error>) {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], offset.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (len, Some(error)),
        }
    }
    (len, None)
}

impl FileSource {
    /// Gives away the file, the place at which pieces of it begin, and the packets that were parsed when it was opened.
    /// `None` for a stream, a packed file, and one that is at its end or known to be damaged.
    pub(crate) fn split(&mut self) -> Option<(Arc<File>, u64, Draft)> {
        let is_special = self.copies_blocks || self.reading != ReadMode::Ahead;
        if is_special || self.is_ended || self.pending.is_some() {
            return None;
        }
        let file = self.input.plain_file()?;
        if let Parser::Pcapng(parser) = &mut self.parser {
            parser.copies = None;
        }
        self.count();
        let offset = self.input.offset() + self.lent as u64;
        let (bytes, records) = (self.input.take_buffer(), std::mem::take(&mut self.records));
        (self.lent, self.is_parsed) = (0, false);
        Some((file, offset, Draft { bytes, records, ..Draft::default() }))
    }

    /// A parser for pieces whose turn has not come.
    pub(crate) fn scout(&self) -> Option<Scout> {
        self.parser.scout(&self.interfaces)
    }

    /// The number of facts by which records are parsed.
    pub(crate) fn facts(&self) -> u64 {
        self.parser.facts()
    }

    /// Parses a piece, whose bytes follow those that were parsed before, to its last whole item.
    pub(crate) fn parse_draft(&mut self, draft: &mut Draft) -> DraftEnd {
        let (window, ahead) = (draft.window.clone(), draft.ahead.take());
        let until = ahead.as_ref().map_or(window.end, |(span, _)| span.start);
        self.input.set_buffer(std::mem::take(&mut draft.bytes), window.start..until, draft.offset);
        self.records.clear();
        let mut stop = self.parse_rest();
        let mut is_ahead = false;
        if let Some((span, facts)) = ahead
            && stop.is_ok()
        {
            let is_at_first = self.input.len() == 0 && matches!(stop, Ok(Stop::Need { consumed: 0, .. }));
            is_ahead = is_at_first && facts == self.parser.facts();
            self.input.set_end(window.end);
            if is_ahead {
                drop(draft.records.splice(..1, self.records.drain(..)));
                std::mem::swap(&mut self.records, &mut draft.records);
                self.input.consume(span.len());
            }
            stop = self.parse_rest();
        }
        self.count();
        draft.records.clear();
        std::mem::swap(&mut self.records, &mut draft.records);
        let rest = window.end - self.input.len()..window.end;
        let need = match stop {
            Ok(Stop::Need { len, .. }) if !rest.is_empty() => len,
            _ => 0,
        };
        let ended = self.end_of_draft(stop, draft);
        draft.bytes = self.input.take_buffer();
        DraftEnd { rest, need, ended, is_ahead }
    }

    /// Parses to the end of the window.
    fn parse_rest(&mut self) -> Result<Stop, Error> {
        let stop = self.parse_window(usize::MAX);
        self.input.consume(std::mem::take(&mut self.lent));
        stop
    }

    fn end_of_draft(&mut self, stop: Result<Stop, Error>, draft: &mut Draft) -> Option<Result<(), Error>> {
        let stop = match stop {
            Ok(stop) => stop,
            Err(error) => return Some(Err(error)),
        };
        if !draft.is_last {
            return None;
        }
        draft.fault.take().into_iter().for_each(|fault| self.input.fail(fault));
        Some(self.why_ended(stop).map_or(Ok(()), Err))
    }
}
