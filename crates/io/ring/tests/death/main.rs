//! Readers and writers in processes of their own, killed, stopped and slowed at random points. Each time the account
//! must balance, no packet be torn, and no reader lose packets for another.
//!
//! ```text
//! readers die   this process writes; children read, each with a policy; signals come between batches
//! writer dies   a child writes; this process reads, and kills it while it does
//! ```
//!
//! `TAPLINE_RING_DEATHS` rounds (100), from the seed `TAPLINE_RING_SEED`. A child notes its packets in
//! memory that outlives it.

#[cfg(not(loom))]
mod rounds;

fn main() {
    #[cfg(not(loom))]
    rounds::main();
}
