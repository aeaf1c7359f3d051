//! Where packets go.

use std::sync::{Arc, Mutex, MutexGuard};

use tapline_packet::{Batch, Interface, Selection, Timestamp};

use crate::{Error, InterfaceAccount, OutputAccount};

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
    fn tick(&mut self, _now: Timestamp, _interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        Ok(())
    }

    /// Completes the output. `interfaces` is the final account of the source, for the statistics that files carry.
    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error>;

    /// What became of the packets it was given.
    fn account(&self) -> OutputAccount;
}

/// One sink that several workers write to, a batch at a time.
pub struct Shared<S: ?Sized>(Arc<Mutex<S>>);

impl<S: Sink> Shared<S> {
    /// Wraps `sink`.
    pub fn new(sink: S) -> Shared<S> {
        Shared(Arc::new(Mutex::new(sink)))
    }
}

impl<S: ?Sized> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        // A worker that panicked left counters behind at worst, and the account shows what they say.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<S: ?Sized> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(Arc::clone(&self.0))
    }
}

impl<S: Sink + ?Sized> Sink for Shared<S> {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        self.lock().write(batch, selection, interfaces)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.lock().flush()
    }

    fn tick(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        self.lock().tick(now, interfaces)
    }

    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        self.lock().finish(now, interfaces)
    }

    fn account(&self) -> OutputAccount {
        self.lock().account()
    }
}
