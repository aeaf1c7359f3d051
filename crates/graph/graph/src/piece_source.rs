//! A source whose packets several workers take piece by piece, in any order: for counts, to which the order of packets
//! does not matter, nor that those of a flow meet.
//!
//! ```text
//! source: piece 0, piece 1, piece 2, ...      each goes to the worker that comes next
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, Interface};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Piece, PieceReader, Source};
use tapline_sys::tsc;

use crate::shard::{FlowShardSource, count};

/// A worker's pieces of a source.
pub struct PieceSource {
    pieces: Arc<dyn PieceReader>,
    ends: Arc<Mutex<WorkerEnds>>,
    interfaces: Vec<Interface>,
    piece: Piece,
    /// The records of the piece that are lent.
    records: Range<usize>,
    /// Packets lent of each interface.
    lent: Vec<u64>,
    progress: Option<(u64, u64)>,
    waited: u64,
    is_stopped: bool,
    is_at_end: bool,
}

/// The ends of the workers of a source.
struct WorkerEnds {
    /// Workers that still take pieces.
    open: usize,
    /// The error that ended the source.
    error: Option<Error>,
}

impl PieceSource {
    /// A source for each of `workers` workers. One that cannot be split is shared by flow: see [`FlowShardSource`].
    pub fn all(mut source: Box<dyn Source>, workers: usize) -> Vec<Box<dyn Source>> {
        let (interfaces, progress) = (source.interfaces().to_vec(), source.progress());
        let Some(pieces) = source.split(workers) else {
            return FlowShardSource::all(source, workers);
        };
        let ends = Arc::new(Mutex::new(WorkerEnds { open: workers, error: None }));
        let of_worker = |_| {
            Box::new(PieceSource {
                pieces: Arc::clone(&pieces),
                ends: Arc::clone(&ends),
                interfaces: interfaces.clone(),
                piece: Piece::default(),
                records: 0..0,
                lent: Vec::new(),
                progress,
                waited: 0,
                is_stopped: false,
                is_at_end: false,
            }) as Box<dyn Source>
        };
        (0..workers).map(of_worker).collect()
    }

    /// Lends the next packets of the piece; `false` if there are none.
    fn next_in_piece(&mut self) -> bool {
        let from = self.records.end;
        self.records = from..self.piece.records.len().min(from + BATCH_MAX);
        count(&self.piece.records[self.records.clone()], &mut self.lent);
        !self.records.is_empty()
    }

    fn learn_interfaces(&mut self) {
        self.interfaces.extend(self.pieces.interfaces_from(self.interfaces.len()));
    }

    /// Ends this worker. The one that comes to the end last reports an error: it would stop the others.
    fn end(&mut self, error: Option<Error>) -> Result<Advance, Error> {
        self.learn_interfaces();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.error = ends.error.take().or(error);
        if !std::mem::replace(&mut self.is_at_end, true) {
            ends.open -= 1;
        }
        let error = if ends.open == 0 { ends.error.take() } else { None };
        error.map_or(Ok(Advance::End), Err)
    }
}

impl Source for PieceSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped || self.is_at_end {
            self.records = 0..0;
            return Ok(Advance::End);
        }
        if self.next_in_piece() {
            return Ok(Advance::Batch);
        }
        self.records = 0..0;
        let begin = tsc::now();
        match self.pieces.read(&mut self.piece, wait) {
            Ok(Advance::Batch) => {
                if self.piece.interfaces > self.interfaces.len() {
                    self.learn_interfaces();
                }
                self.lent.resize(self.lent.len().max(self.piece.interfaces), 0);
                self.progress = self.piece.progress;
                self.next_in_piece();
                Ok(Advance::Batch)
            }
            Ok(Advance::Idle) => {
                self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(begin));
                Ok(Advance::Idle)
            }
            Ok(Advance::End) => self.end(None),
            Err(error) => self.end(Some(error)),
        }
    }

    fn batch(&self) -> Batch<'_> {
        match self.piece.records.get(self.records.clone()) {
            Some(records) => Batch::new(&self.piece.bytes, records),
            None => Batch::empty(),
        }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped |= !self.is_at_end;
        self.records = 0..0;
        let mut stopped = Ok(());
        self.pieces.look(&mut |source| stopped = source.stop());
        stopped
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        if self.is_at_end {
            self.learn_interfaces();
        }
        let mut accounts = Vec::new();
        self.pieces.look(&mut |source| accounts = source.account());
        for (at, account) in accounts.iter_mut().enumerate() {
            account.delivered = self.lent.get(at).copied().unwrap_or(0);
            account.is_partial |= self.is_stopped;
        }
        accounts
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.pieces.look(&mut |source| events = source.events());
        events
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.progress
    }
}
