//! Packets as a stream of Arrow: `--arrow`. The format is Arrow IPC, streaming:
//!
//! ```text
//! schema | record batch | record batch | ... | end of stream
//! ```
//!
//! Packets gather in columns until there are 65,536 of them or their texts and bytes fill 8 MiB; on live
//! interfaces also until the source has nothing to lend. A packet counts as written once the stream took all of its
//! batch.

#[cfg(feature = "arrow")]
mod columns;
#[cfg(feature = "arrow")]
mod output;
#[cfg(feature = "arrow")]
mod rows;
#[cfg(all(test, feature = "arrow"))]
mod tests;

use std::io::Write;

use tapline_graph::Stage;

/// The stage that writes packets as Arrow to a stream, which must not keep bytes back by itself. `columns` are names with
/// commas between them, all if `None`. With `is_live` a batch is written when the source has nothing to lend.
///
/// # Errors
/// If there is no such column; if this build has no Arrow.
#[cfg(feature = "arrow")]
pub fn arrow_output<W: Write + Send + 'static>(
    columns: Option<&str>,
    stream: W,
    is_live: bool,
) -> Result<Box<dyn Stage>, String> {
    Ok(Box::new(output::ArrowOutput::new(columns::Columns::parse(columns)?, stream, is_live)))
}

/// The output in a build without Arrow.
///
/// # Errors
/// Always.
#[cfg(not(feature = "arrow"))]
pub fn arrow_output<W: Write + Send + 'static>(
    _: Option<&str>,
    _: W,
    _: bool,
) -> Result<Box<dyn Stage>, String> {
    Err("this build has no Arrow: cargo build --release --features arrow".to_owned())
}
