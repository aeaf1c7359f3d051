//! Blocks for tests.

use crate::{Block, BlockId, Encoding, Sensor};

/// A block of one row.
pub(crate) fn block(number: u64, bytes: &[u8]) -> Block {
    Block {
        id: BlockId { sensor: Sensor::new("test").expect("a name"), epoch: 7, number },
        encoding: Encoding::JsonLines,
        schema: 1,
        flows: 1,
        rows: 1,
        packets: 3,
        packets_before: 0,
        first_ns: 10,
        last_ns: 20,
        bytes: bytes.to_vec(),
    }
}
