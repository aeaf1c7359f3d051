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

use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::delivery::DeliveryQueue;
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
}

/// At the end each call that is due is tried once more, and all are spooled once one has failed or the time is over.
/// Spooled events are neither done nor failed.
impl Deref for Webhooks {
    type Target = dyn DeliveryQueue;

    fn deref(&self) -> &Self::Target {
        #[cfg(feature = "webhook")]
        return &self.sender.0;
        #[cfg(not(feature = "webhook"))]
        match self.never {}
    }
}

impl DerefMut for Webhooks {
    fn deref_mut(&mut self) -> &mut Self::Target {
        #[cfg(feature = "webhook")]
        return &mut self.sender.0;
        #[cfg(not(feature = "webhook"))]
        match self.never {}
    }
}
