//! Faults as figures: what a store loses when processes are killed, power fails, disks fail, clocks jump, bits flip.
//!
//! Each test does a little by default, `make soak` ten times as much. `TAPLINE_STORE_FAULTS=N` makes each do N times its
//! kind of fault: `200` for kills, `1000` for images of a power failure, `10000` for flipped bits.

mod bits;
mod clocks;
mod disk;
mod erasing;
mod failures;
mod full_disk;
mod kills;
mod packets;
mod power;
mod recording;
mod surroundings;

use tapline_testkit::volume::volume;

/// Number of faults that a test makes: `usual`, times the volume of the run, unless the environment gives a number.
fn faults(usual: u64) -> u64 {
    volume("TAPLINE_STORE_FAULTS", usual)
}
