//! Faults as figures: what a store loses when processes are killed, power fails, disks fail, clocks jump, bits flip.
//!
//! Each test does a little by default; `TAPLINE_STORE_FAULTS=N` makes each do N times its kind of fault: `200` for
//! kills, `1000` for images of a power failure, `10000` for flipped bits.

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

/// Number of faults that a test makes: `usual` unless the environment says otherwise.
fn faults(usual: u64) -> u64 {
    std::env::var("TAPLINE_STORE_FAULTS").map_or(usual, |count| count.parse().expect("a number"))
}
