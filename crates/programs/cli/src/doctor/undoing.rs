//! `--undo`: restores what killed runs of `--fix` have left.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tapline_doctor::{Restored, restore};

use super::{json, tell};

/// Runs the command.
pub(super) fn run(is_json: bool) -> Result<ExitCode> {
    let Restored { done, kept } = restore(tell);
    if is_json {
        let undone: Vec<_> = done.iter().map(json::left).collect();
        writeln!(io::stdout(), "{}", json!({"undone": undone, "failed": kept.len()}))?;
    }
    Ok(if kept.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
