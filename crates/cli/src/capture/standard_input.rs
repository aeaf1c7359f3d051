//! Standard input that ends when the capture is told to stop, even while its writer keeps silent.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tapline_capture::Control;
use tapline_sys::Poller;

/// How long a stop may go unnoticed.
const WAIT: Duration = Duration::from_millis(100);

/// Standard input, unbuffered.
pub(super) struct StandardInput {
    file: File,
    poller: Poller,
    control: Arc<Control>,
}

impl StandardInput {
    /// Reads until the writer ends it or `control` says stop.
    pub(super) fn new(control: Arc<Control>) -> io::Result<StandardInput> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(StandardInput { file, poller: Poller::new(), control })
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.control.stopped() {
            self.poller.clear();
            self.poller.add(self.file.as_fd());
            if self.poller.wait(WAIT).map_err(|error| error.source)? > 0 {
                return self.file.read(buffer);
            }
        }
        Ok(0)
    }
}
