//! Pipes to read captures from, which end when the capture is stopped, even while their writer is silent.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tapline_graph::Control;
use tapline_sys::Poller;

/// Polling interval of the order to stop.
const WAIT: Duration = Duration::from_millis(100);

/// Standard input, a named pipe or a device, unbuffered. Reads until the writer ends it or `control` says stop.
pub(crate) struct Stream {
    file: File,
    poller: Poller,
    control: Arc<Control>,
}

impl Stream {
    pub(crate) fn new(file: File, control: Arc<Control>) -> Stream {
        Stream { file, poller: Poller::new(), control }
    }
}

pub(crate) fn standard_input() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Whether reading from what bears this name may wait for a writer.
pub(crate) fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.control.is_stopped() {
            self.poller.clear();
            self.poller.add(self.file.as_fd());
            if self.poller.wait(WAIT).map_err(|error| error.source)? > 0 {
                return self.file.read(buffer);
            }
        }
        Ok(0)
    }
}
