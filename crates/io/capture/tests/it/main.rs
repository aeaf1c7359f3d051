//! Live capture in network namespaces of its own: every packet is lent, or counted as lost.
//!
//! ```text
//! namespace:  near0 <=== veth ===> far0        a sender on one end that counts what the kernel took, a capture on either
//! ```
//!
//! Needs the right to make namespaces; without it each test says so and passes. No test depends on how fast anything
//! is: what is waited for is waited for until it happens, or the test fails after a minute.

mod bench;
mod counts;
mod errors;
mod links;
mod packets;
mod waking;
mod workers;
