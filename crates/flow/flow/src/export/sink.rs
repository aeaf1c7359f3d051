//! The interface of all destinations of flows.

use std::sync::Arc;
use std::time::Duration;

use tapline_geo::Places;
use tapline_packet::Timestamp;

use super::{ExportAccount, RecordBatch, RecordLayout};
use crate::{Error, Flow, Sampling};

/// A destination of flows: collectors, lines of text, files of Parquet, receivers of batches.
pub trait FlowSink: Send {
    /// Sets how packets or flows were sampled, before the first flow: records, options and headers carry it.
    ///
    /// # Errors
    /// [`Error::Sampling`] or [`Error::FlowSampling`] if the protocol cannot express it.
    fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error>;

    /// Sets the files of places of addresses, from the next flow on.
    fn set_places(&mut self, places: &Arc<Places>);

    /// Sets the timeout of a message over TCP, 5 s by default, which the caller of [`export`](Self::export) may wait.
    /// After a timeout the connection is closed and not tried for ten seconds.
    fn set_write_timeout(&mut self, _timeout: Duration) {}

    /// Sets whether the flows to come are of live interfaces.
    fn set_live(&mut self, _is_live: bool) {}

    /// Takes flows. `now` is the time in the headers of messages, and that by which files become too old.
    ///
    /// # Errors
    /// The first failure of a file since the last call. All flows are taken and counted all the same; losses of network
    /// receivers are counted, and are not an error.
    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), Error>;

    /// The layout of records that the destination takes at present as it takes flows; `None` if it takes none. See
    /// [`export_records`](Self::export_records).
    fn record_layout(&self) -> Option<Arc<RecordLayout>> {
        None
    }

    /// Takes records of collected flows in its [`record_layout`](Self::record_layout), as
    /// [`export`](Self::export) takes the flows. Destinations without a layout are given none.
    ///
    /// # Errors
    /// As for [`export`](Self::export).
    fn export_records(&mut self, records: &RecordBatch, _now: Timestamp) -> Result<(), Error> {
        debug_assert_eq!(records.flows(), 0, "records for a destination without a layout");
        Ok(())
    }

    /// Writes messages and lines that are not full, and closes files that are too old.
    ///
    /// # Errors
    /// As for [`export`](Self::export). Lines are written whole or, for the account, not at all.
    fn flush(&mut self, now: Timestamp) -> Result<(), Error>;

    /// Flushes for the last time, and waits until all is written.
    ///
    /// # Errors
    /// As for [`export`](Self::export).
    fn finish(&mut self, now: Timestamp) -> Result<(), Error> {
        self.flush(now)
    }

    /// Goes on with another file where its own was renamed or removed, as logrotate does. Returns whether there is
    /// another one.
    ///
    /// # Errors
    /// If another one cannot be made, and then that before stays; as for [`export`](Self::export).
    fn reopen(&mut self, _now: Timestamp) -> Result<bool, Error> {
        Ok(false)
    }

    /// The account so far.
    fn account(&self) -> ExportAccount;

    /// Takes the events to be shown to the user: a connection lost or restored, a UDP port without a listener.
    fn take_events(&mut self) -> Vec<String> {
        Vec::new()
    }
}
