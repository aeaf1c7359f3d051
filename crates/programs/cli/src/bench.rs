//! `tapline bench`: signals, and the bench itself.

use std::process::ExitCode;

use anyhow::Result;
use tapline_measure::system::{self, BenchArgs};

use crate::session::Session;

/// Runs the bench until it is done or a signal ends it.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let mut session = Session::new(Some("root"), None)?;
    session.obey(None)?;
    system::run(args, &|| session.control.is_stopped())
}
