//! Waiting for several sources at once: a packet of any ends the wait.

use std::time::Duration;

use tapline_source::{Error, Source};
use tapline_sys::Poller;

/// The wait for several sources.
#[derive(Debug, Default)]
pub(super) struct JointWait(Poller);

impl JointWait {
    /// Waits until one of the sources has something to say, at most for `limit`. Returns whether that was possible:
    /// `false`, without a wait, if a source must wait itself.
    pub(super) fn wait<'s>(
        &mut self,
        sources: impl Iterator<Item = &'s dyn Source>,
        limit: Duration,
    ) -> Result<bool, Error> {
        self.0.clear();
        for source in sources {
            if !source.wait_on(&mut self.0) {
                return Ok(false);
            }
        }
        self.0.wait(limit).map_err(|error| Error::source("capture", error))?;
        Ok(true)
    }

    /// Ticks of the processor's counter that all waits took together.
    pub(super) fn ticks(&self) -> u64 {
        self.0.waited_ticks()
    }
}
