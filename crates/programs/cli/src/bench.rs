//! `tapline bench`: signals, and the bench itself.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use tapline_graph::Control;
use tapline_measure::system::{self, BenchArgs};

use crate::signals;

/// Runs the bench until it is done or a signal ends it.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let control = Arc::new(Control::new(None));
    signals::catch()?.obey(Arc::clone(&control))?;
    system::run(args, &|| control.is_stopped())
}
