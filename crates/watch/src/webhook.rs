//! Events as POST to addresses: retried, and spooled where nothing answers.
//!
//! ```text
//! event --queue of 256--> POST --2xx--> done
//!                          | three tries
//!                          '--> spool: lines {"url": ..., "event": ...}, tried again each half minute and at the next start
//! ```
//!
//! Only in builds with the feature `webhook`: TLS is a third of a build of Tapline.

use std::path::Path;

use crate::delivery::DeliveryCounts;
use crate::event::Event;

/// Calls of addresses for events.
pub struct Webhooks {
    #[cfg(feature = "webhook")]
    worker: crate::delivery::Worker<sending::Job>,
    #[cfg(not(feature = "webhook"))]
    never: std::convert::Infallible,
}

#[cfg(not(feature = "webhook"))]
impl Webhooks {
    /// There are none in this build.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: &Path) -> Result<Webhooks, String> {
        Err("this build calls no webhooks: build with --features webhook, or have run = [\"curl\", ...] call them".to_owned())
    }

    /// Has an address called for an event.
    pub fn offer(&mut self, _: &str, _: &Event) {
        match self.never {}
    }

    /// Waits for the calls that are due.
    pub fn finish(&mut self) {
        match self.never {}
    }

    /// Counters.
    pub fn counts(&self) -> DeliveryCounts {
        match self.never {}
    }
}
