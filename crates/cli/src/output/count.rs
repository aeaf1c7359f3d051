//! Packets counted and nothing else.

use tapline_capture::{Error, InterfaceAccount, OutputAccount, Sink};
use tapline_packet::{Batch, Interface, Selection, Timestamp};

/// Counts packets: `--count`.
pub(crate) struct CountSink {
    packets: u64,
}

impl CountSink {
    pub(crate) fn new() -> CountSink {
        CountSink { packets: 0 }
    }
}

impl Sink for CountSink {
    fn write(&mut self, _: &Batch<'_>, selection: &Selection, _: &[Interface]) -> Result<(), Error> {
        self.packets += selection.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: Timestamp, _: &[InterfaceAccount]) -> Result<(), Error> {
        Ok(())
    }

    fn account(&self) -> OutputAccount {
        OutputAccount { name: "count".to_owned(), written: self.packets, ..OutputAccount::default() }
    }
}
