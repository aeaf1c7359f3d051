//! One program for the integration tests of this crate.

mod cut;
mod erf_colors;
mod formats;
mod hostile;
mod oracle;
mod packed;
mod pieces;
mod samples;
mod write;
