//! State that an FPL program keeps from packet to packet, and functions that it may call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapline_packet::Packet;

/// Memory cells of 64 bits that outlive packets (FFPF's MBuf). A clone is another handle on the same cells: the owner
/// of a program reads and writes them while it runs.
///
/// Each access to one cell is whole; nothing is promised about the order of several. `M[i] += 1` is a read and a
/// write, so a count that the owner resets meanwhile may survive.
#[derive(Clone, Debug)]
pub struct Memory {
    cells: Arc<[AtomicU64]>,
}

impl Memory {
    /// `cells` cells, all 0.
    ///
    /// # Panics
    /// If `cells` is neither 0 nor a power of two.
    pub fn new(cells: u32) -> Memory {
        assert!(cells == 0 || cells.is_power_of_two(), "the number of cells is a power of two");
        Memory { cells: (0..cells).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Number of cells: 0 or a power of two.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cell's value. An index counts modulo the number of cells; without cells, all are 0.
    #[inline]
    pub fn get(&self, index: u64) -> u64 {
        self.cell(index).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Writes the cell. An index counts modulo the number of cells; without cells, nothing is written.
    #[inline]
    pub fn set(&self, index: u64, value: u64) {
        if let Some(cell) = self.cell(index) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// All cells, for engines that address them themselves.
    pub fn cells(&self) -> &[AtomicU64] {
        &self.cells
    }

    #[inline]
    fn cell(&self, index: u64) -> Option<&AtomicU64> {
        let mask = (self.cells.len() as u64).wrapping_sub(1);
        self.cells.get((index & mask) as usize)
    }
}

/// A function that FPL programs may call (`EXTERN`). One instance serves all programs that name it.
pub trait Function: Send + Sync + fmt::Debug {
    /// The name in programs.
    fn name(&self) -> &str;

    /// Looks at a packet and at cells, may write cells, and gives a number. Must not panic on any packet or argument;
    /// takes time in proportion to the packet's length at most.
    fn call(&self, packet: Packet<'_>, memory: &Memory, arguments: &[u64]) -> u64;
}
