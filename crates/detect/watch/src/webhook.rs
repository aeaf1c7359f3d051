//! Events as POST to addresses: retried, and spooled where nothing answers.
//!
//! ```text
//! event --queue of 256--> POST --2xx--> done; a redirection fails as all else does, since it would lose the body
//!                          | three tries
//!                          '--> spool: lines {"url": ..., "event": ...}, tried again later and at the next start;
//!                               one that was sent begins with `-` until the spool is rewritten
//!
//! address fails --> its events go to the spool at once, in order --next try, 30 s later--> sent, or the same again
//! other addresses go on
//! ```
//!
//! Only in builds with the feature `webhook`: TLS is a third of a build of Tapline.

use std::path::Path;
use std::time::Instant;

use crate::delivery::DeliveryCounts;
use crate::event::Event;
use crate::rules::Webhook;

#[cfg(feature = "webhook")]
mod body;
#[cfg(feature = "webhook")]
mod sending;

/// Calls of addresses for events.
pub struct Webhooks {
    #[cfg(feature = "webhook")]
    sender: sending::Sender,
    #[cfg(not(feature = "webhook"))]
    never: std::convert::Infallible,
}

#[cfg(feature = "webhook")]
impl Webhooks {
    /// Starts the thread that calls. Events without an answer are spooled in `directory`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(directory: &Path, receivers: &[Webhook]) -> Result<Webhooks, String> {
        let sender = sending::Sender::start(directory.join(sending::SPOOL), receivers);
        Ok(Webhooks { sender: sender.map_err(|error| format!("no thread for webhooks: {error}"))? })
    }

    /// Sets the receivers that addresses of calls may name.
    pub fn set_receivers(&self, all: &[Webhook]) {
        self.sender.set_receivers(all);
    }

    /// Queues a call of an address for an event, unless too many wait.
    pub fn offer(&mut self, url: &str, event: &Event) {
        self.sender.offer(url, event);
    }

    /// Makes the calls that are due before `end`: each is tried once more, and all are spooled once one has failed or
    /// the time is over.
    pub fn end_by(&mut self, end: Instant) {
        self.sender.0.end_by(end);
    }

    /// Waits for the calls that are due, after [`end_by`](Self::end_by).
    pub fn finish(&mut self) {
        self.sender.0.finish();
    }

    /// The calls that the end waits for, in words; `None` if there are none.
    pub fn waits_for(&self) -> Option<String> {
        self.sender.0.waits_for()
    }

    /// Counters; spooled events are neither done nor failed.
    pub fn counts(&self) -> DeliveryCounts {
        self.sender.0.counts()
    }

    /// Counters of a rule.
    pub fn counts_of(&self, rule: &str) -> DeliveryCounts {
        self.sender.0.counts_of(rule)
    }

    /// Failures since the last call, as sentences.
    pub fn take_faults(&self) -> Vec<String> {
        self.sender.0.take_faults()
    }
}

#[cfg(not(feature = "webhook"))]
impl Webhooks {
    /// There are none in this build.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: &Path, _: &[Webhook]) -> Result<Webhooks, String> {
        Err("this build calls no webhooks: build with --features webhook, or have run = [\"curl\", ...] call them".to_owned())
    }

    /// Sets the receivers that addresses of calls may name.
    pub fn set_receivers(&self, _: &[Webhook]) {
        match self.never {}
    }

    /// Queues a call of an address for an event.
    pub fn offer(&mut self, _: &str, _: &Event) {
        match self.never {}
    }

    /// Makes the calls that are due.
    pub fn end_by(&mut self, _: Instant) {
        match self.never {}
    }

    /// Waits for the calls that are due.
    pub fn finish(&mut self) {
        match self.never {}
    }

    /// The calls that the end waits for.
    pub fn waits_for(&self) -> Option<String> {
        match self.never {}
    }

    /// Counters.
    pub fn counts(&self) -> DeliveryCounts {
        match self.never {}
    }

    /// Counters of a rule.
    pub fn counts_of(&self, _: &str) -> DeliveryCounts {
        match self.never {}
    }

    /// Failures since the last call.
    pub fn take_faults(&self) -> Vec<String> {
        match self.never {}
    }
}
