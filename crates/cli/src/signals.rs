//! Signals as orders to the loop: Ctrl-C, SIGTERM and SIGHUP end it cleanly, SIGUSR1 asks for the account.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tapline_capture::Control;

/// Signals that are caught and wait to be obeyed.
pub(crate) struct Caught(Signals);

/// Catches signals from now on, so that none ends the program unaccounted. They wait until [`Caught::obey`]; but a second
/// SIGINT gives up at once, also while the program waits for something, such as the reader of a pipe that it opens.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn catch() -> io::Result<Caught> {
    let is_second = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&is_second))?;
    flag::register(SIGINT, is_second)?;
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXFSZ]).map(Caught)
}

impl Caught {
    /// Obeys what was caught and what comes. An end signal completes all outputs.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn obey(mut self, control: Arc<Control>) -> io::Result<()> {
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in &mut self.0 {
                match signal {
                    SIGUSR1 => control.report(),
                    SIGXFSZ => {} // caught so that the write fails instead, and the file is completed
                    _ => control.stop(),
                }
            }
        })?;
        Ok(())
    }
}
