//! Signals as orders to the loop: Ctrl-C, SIGTERM and SIGHUP end it cleanly, SIGUSR1 asks for the account.

use std::io;
use std::process;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use tapline_capture::Control;

/// Obeys signals from now on. The first end signal completes all outputs; a second SIGINT gives up at once.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn obey(control: Arc<Control>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXFSZ])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut interrupted = false;
        for signal in &mut signals {
            match signal {
                SIGUSR1 => control.report(),
                SIGXFSZ => {} // caught so that the write fails instead, and the file is completed
                SIGINT if interrupted => process::exit(128 + SIGINT),
                _ => {
                    interrupted |= signal == SIGINT;
                    control.stop();
                }
            }
        }
    })?;
    Ok(())
}
