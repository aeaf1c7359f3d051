//! A large file that several threads read at once.
//!
//! ```text
//! file       | piece 0 | piece 1 | piece 2 | piece 3 | ...
//!              thread 0  thread 1  thread 0  thread 1        each reads a piece and parses it ahead, from a likely start
//! in turn     0 --------> 1 -----> 2 ...                     the parser of the file goes from piece to piece, under a lock:
//!                                                            where the guess is right it steps over all records at once
//! ready      0, 1, ...                                       pieces with their packets, for whichever thread comes next
//! ```
//!
//! Packets, interfaces, errors and counters are those of one thread by construction: a guess saves the work of parsing
//! in turn, and is dropped where that does not come to the record at which it began, or where sections or interfaces
//! were described meanwhile. A thread works on the next piece instead of waiting for its turn, as long as no more
//! pieces are begun than a few for each thread.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tapline_packet::{Interface, Record};
use tapline_source::{Advance, Error, Piece, PieceReader, Source, free_long_buffer};

use super::FileInput;
use crate::read::Scout;
use crate::source::Draft;

/// Bytes of a piece: with its records it stays in the second-level cache until its packets are looked at.
pub(super) const PIECE_LEN: usize = 128 << 10;

/// Files with fewer bytes are read by one thread.
pub(super) const FILE_LEN_MIN: u64 = 1 << 20;

/// A capture file in pieces, which are the same packets in the same order as the file.
pub struct FilePieces {
    file: Arc<File>,
    /// Place of the first piece in the file.
    start: u64,
    piece_len: usize,
    /// Pieces that may be begun ahead of the one whose turn it is.
    ahead_max: u64,
    state: Mutex<State>,
    /// A piece was parsed in turn.
    moved: Condvar,
}

struct State {
    /// The file's parser, its interfaces and its counters.
    input: FileInput,
    /// Number of the next piece of the file to read.
    next: u64,
    /// Number of the piece whose turn it is.
    turn: u64,
    /// Pieces whose turn has not come.
    drafts: BTreeMap<u64, Draft>,
    /// Bytes of an item that begins in the piece before, and the least number of bytes to go on with.
    left_over: Vec<u8>,
    need: u64,
    scout: Option<Arc<Scout>>,
    /// Pieces with packets that no thread has taken.
    ready: VecDeque<Piece>,
    /// Number of the next of them, and packets before it.
    number: u64,
    packets: u64,
    /// Buffers of pieces that came back.
    spare: Vec<(Vec<u8>, Vec<Record>)>,
    counts: PieceCounts,
    is_over: bool,
    error: Option<crate::Error>,
}

/// The ways in which pieces of a file were parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Pieces whose records were parsed by several threads at once.
    pub ahead: u64,
    /// Pieces whose records were parsed in turn, as no likely start was found within a few kilobytes, or a wrong one.
    pub in_turn: u64,
}

impl FilePieces {
    /// Takes the packets out of `input`, for up to `threads` threads, in pieces of `piece_len` bytes. `None` leaves an
    /// input as it is that is not one regular and plain file of at least `file_len_min` bytes, or of which an excerpt
    /// is read.
    pub fn cut(
        input: &mut FileInput,
        threads: usize,
        piece_len: usize,
        file_len_min: u64,
    ) -> Option<FilePieces> {
        let is_special = input.excerpt.is_some() || input.is_answer || input.stopped || input.is_read;
        let (_, len) = input.files.position();
        if is_special || len? < file_len_min || !input.lent.is_empty() {
            return None;
        }
        let (file, start, first) = input.files.only()?.split()?;
        let mut state = State {
            input: std::mem::replace(input, FileInput::new(Vec::new(), crate::MergeOrder::Given)),
            next: 0,
            turn: 0,
            drafts: BTreeMap::new(),
            left_over: Vec::new(),
            need: 0,
            scout: None,
            ready: VecDeque::new(),
            number: 0,
            packets: 0,
            spare: Vec::new(),
            counts: PieceCounts::default(),
            is_over: false,
            error: None,
        };
        state.hand_out(first);
        state.update_scout();
        let ahead_max = 2 * threads as u64 + 2;
        let (state, moved, piece_len) = (Mutex::new(state), Condvar::new(), piece_len.max(1));
        Some(FilePieces { file, start, piece_len, ahead_max, state, moved })
    }

    /// Counts of pieces so far.
    pub fn counts(&self) -> PieceCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a piece, and parses it ahead.
    fn draft(&self, number: u64, scout: Option<&Scout>, memory: (Vec<u8>, Vec<Record>)) -> Draft {
        let _alarm = Alarm(self);
        let offset = self.start.saturating_add(number.saturating_mul(self.piece_len as u64));
        Draft::read(&self.file, offset, self.piece_len, scout, memory)
    }
}

impl State {
    /// Parses all pieces whose turn has come.
    fn take_turns(&mut self, file: &File) {
        while let Some(draft) = self.drafts.remove(&self.turn) {
            self.turn += 1;
            if !self.is_over {
                self.parse(draft, file);
            }
        }
    }

    fn parse(&mut self, mut draft: Draft, file: &File) {
        draft.follow(file);
        let len = self.left_over.len() + draft.piece().len();
        if (len as u64) < self.need && !draft.is_last() {
            self.left_over.extend_from_slice(draft.piece());
            return self.take_back(draft.bytes, draft.records);
        }
        draft.put_before(&mut self.left_over);
        let Some(source) = self.input.files.only() else { return };
        let end = source.parse_draft(&mut draft);
        self.input.files.learn_interfaces();
        self.left_over.extend_from_slice(&draft.bytes[end.rest]);
        self.need = end.need;
        let count = if end.is_ahead { &mut self.counts.ahead } else { &mut self.counts.in_turn };
        *count += 1;
        match end.ended {
            None => self.update_scout(),
            Some(ended) => {
                self.is_over = true;
                self.input.is_read = ended.is_ok();
                self.error = ended.err();
            }
        }
        self.hand_out(draft);
    }

    /// Hands out the packets of a piece that was parsed, if it has any.
    fn hand_out(&mut self, draft: Draft) {
        let Draft { bytes, records, .. } = draft;
        if records.is_empty() {
            return self.take_back(bytes, records);
        }
        let packets = records.len() as u64;
        self.ready.push_back(Piece {
            number: self.number,
            start: self.packets,
            bytes,
            records,
            interfaces: self.input.interfaces().len(),
            progress: self.input.progress(),
        });
        self.number += 1;
        self.packets += packets;
    }

    fn take_back(&mut self, mut bytes: Vec<u8>, records: Vec<Record>) {
        free_long_buffer(&mut bytes);
        if !bytes.is_empty() {
            self.spare.push((bytes, records));
        }
    }

    /// Makes a new scout if the file has described sections or interfaces.
    fn update_scout(&mut self) {
        let Some(source) = self.input.files.only() else { return };
        if self.scout.as_ref().is_none_or(|scout| scout.facts() != source.facts()) {
            self.scout = source.scout().map(Arc::new);
        }
    }
}

impl PieceReader for FilePieces {
    fn read(&self, piece: &mut Piece, wait: Duration) -> Result<Advance, Error> {
        let mut state = self.lock();
        let Piece { bytes, records, .. } = std::mem::take(piece);
        state.take_back(bytes, records);
        let (mut has_waited, mut drafts) = (false, 0);
        loop {
            if let Some(found) = state.ready.pop_front() {
                *piece = found;
                return Ok(Advance::Batch);
            }
            if state.is_over {
                return state.error.take().map_or(Ok(Advance::End), |error| Err(error.into()));
            }
            if drafts == self.ahead_max {
                // All of a very long packet: the caller may have other work meanwhile.
                return Ok(Advance::Idle);
            }
            if state.next - state.turn < self.ahead_max {
                drafts += 1;
                let number = state.next;
                state.next += 1;
                let (memory, scout) = (state.spare.pop().unwrap_or_default(), state.scout.clone());
                drop(state);
                let draft = self.draft(number, scout.as_deref(), memory);
                state = self.lock();
                state.drafts.insert(number, draft);
                state.take_turns(&self.file);
                self.moved.notify_all();
                continue;
            }
            if has_waited {
                return Ok(Advance::Idle);
            }
            state = self.moved.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            has_waited = true;
        }
    }

    fn interfaces_from(&self, known: usize) -> Vec<Interface> {
        self.lock().input.interfaces().get(known..).unwrap_or_default().to_vec()
    }

    fn look(&self, look: &mut dyn FnMut(&mut dyn Source)) {
        look(&mut self.lock().input);
    }
}

/// Ends the pieces when a thread panics: the turn of its piece would never come.
struct Alarm<'a>(&'a FilePieces);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().is_over = true;
            self.0.moved.notify_all();
        }
    }
}
