//! The capture that comes with the repository, `examples/mixed.pcapng`: one frame of every kind, then mixed traffic.
//!
//! `tapline-testkit sample FILE` rewrites it; a test compares the stored file with the output of this code.

use crate::capture_file::{ETHERNET, write_pcapng};
use crate::gallery;
use crate::traffic::{TimedFrame, Traffic};
use std::io::{self, Write};
use std::time::Duration;

/// Path of the stored sample, from this crate's folder.
pub const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");

const SEED: u64 = 2026;
const TRAFFIC_FRAMES: usize = 360;

/// Writes the sample. Gives the number of packets.
///
/// # Errors
/// Errors of `out`.
pub fn write(out: &mut impl Write) -> io::Result<u64> {
    write_pcapng(out, ETHERNET, "demo0", frames())
}

/// The frames of the sample with their times.
pub fn frames() -> impl Iterator<Item = TimedFrame> {
    const PAUSE: Duration = Duration::from_millis(1);
    let exhibits = gallery::exhibits();
    let after = PAUSE * exhibits.len() as u32;
    let shown = exhibits.into_iter().enumerate().map(|(index, (_, frame))| (PAUSE * index as u32, frame));
    shown.chain(Traffic::new(SEED).take(TRAFFIC_FRAMES).map(move |(at, frame)| (after + at, frame)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_sample_is_made_by_this_code() {
        let mut made = Vec::new();
        write(&mut made).expect("writing to memory");
        let stored = std::fs::read(STORED).expect("the sample is part of the repository");
        assert!(
            made == stored,
            "examples/mixed.pcapng differs: run `cargo run -p tapline-testkit -- sample {STORED}`"
        );
        assert!(made.len() < 200_000, "the sample has {} bytes", made.len());
    }
}
