//! Where packets go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_packet::{Batch, Interface, Now, Selection, Timestamp};

use crate::{Account, Error, InterfaceAccount, OutputAccount};

/// Where packets go: files, text, counters.
pub trait Sink: Send {
    /// Takes the selected packets of a batch. `interfaces` is the source's table, which may have grown since the last call.
    ///
    /// # Errors
    /// Packets that could not be stored are counted in [`account`](Sink::account); what was stored before stays whole.
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error>;

    /// Makes what was written visible to readers. Called when the source has nothing to lend, so that nothing lingers.
    fn flush(&mut self) -> Result<(), Error>;

    /// Called several times a second, with or without packets, for what goes by the clock: rotation, statistics.
    fn tick(&mut self, _now: Now, _interfaces: &[InterfaceAccount]) -> Result<Wants, Error> {
        Ok(Wants::More)
    }

    /// Completes the output. `interfaces` is the final account of the source, for the statistics that files carry.
    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error>;

    /// What became of the packets it was given.
    fn account(&self) -> OutputAccount;

    /// How many packets it was given after it was complete, since the last call. Its account has them as lost, and no
    /// longer once they were asked for here: the caller then accounts for them.
    fn take_refused(&mut self) -> u64 {
        0
    }
}

/// Whether a sink takes more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// It does.
    More,
    /// It is complete, and so is the run: as many files as were asked for are written.
    Nothing,
}

/// One sink that several workers write to, a batch at a time. Each worker holds a handle of its own; the last one that
/// finishes completes the sink, with the workers' accounts added up.
pub struct Shared {
    inner: Arc<Mutex<Inner>>,
    worker: usize,
    /// Packets that came from this worker after the sink was complete.
    refused: u64,
}

struct Inner {
    sink: Box<dyn Sink>,
    /// What each worker last knew of its interfaces.
    interfaces: Vec<Vec<InterfaceAccount>>,
    unfinished: usize,
    /// The sink wants nothing more.
    is_complete: bool,
    /// Packets from workers that had not heard of it yet, and that they have not taken back.
    refused: u64,
}

impl Shared {
    /// A handle for each of `workers` workers.
    pub fn handles(sink: Box<dyn Sink>, workers: usize) -> Vec<Shared> {
        let interfaces = vec![Vec::new(); workers];
        let inner = Inner { sink, interfaces, unfinished: workers, is_complete: false, refused: 0 };
        let inner = Arc::new(Mutex::new(inner));
        (0..workers).map(|worker| Shared { inner: Arc::clone(&inner), worker, refused: 0 }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A worker that panicked left counters behind at worst, and the account shows what they say.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&mut self, worker: usize, interfaces: &[InterfaceAccount]) -> Vec<InterfaceAccount> {
        self.interfaces[worker] = interfaces.to_vec();
        let mut sum = Account::default();
        for interfaces in &self.interfaces {
            sum.merge(Account { interfaces: interfaces.clone(), ..Account::default() });
        }
        sum.interfaces
    }
}

impl Sink for Shared {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        let mut inner = self.lock();
        if !inner.is_complete {
            return inner.sink.write(batch, selection, interfaces);
        }
        let refused = selection.len() as u64;
        inner.refused += refused;
        drop(inner);
        self.refused += refused;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.lock().sink.flush()
    }

    fn tick(&mut self, now: Now, interfaces: &[InterfaceAccount]) -> Result<Wants, Error> {
        let mut inner = self.lock();
        let sum = inner.note(self.worker, interfaces);
        let wants = inner.sink.tick(now, &sum)?;
        inner.is_complete |= wants == Wants::Nothing;
        Ok(wants)
    }

    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        let mut inner = self.lock();
        let sum = inner.note(self.worker, interfaces);
        inner.unfinished = inner.unfinished.saturating_sub(1);
        if inner.unfinished == 0 { inner.sink.finish(now, &sum) } else { inner.sink.flush() }
    }

    fn account(&self) -> OutputAccount {
        let inner = self.lock();
        let mut account = inner.sink.account();
        account.lost += inner.refused;
        account
    }

    fn take_refused(&mut self) -> u64 {
        let refused = std::mem::take(&mut self.refused);
        self.lock().refused -= refused;
        refused
    }
}
