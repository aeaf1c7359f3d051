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
    cells: Cells,
}

/// Where the cells are.
#[derive(Clone)]
enum Cells {
    Own(Arc<[AtomicU64]>),
    /// Memory that others see too, such as a mapped file.
    Shared(Arc<dyn AsRef<[AtomicU64]> + Send + Sync>),
}

impl fmt::Debug for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, Cells::Own(_)) { "Own" } else { "Shared" };
        write!(f, "{kind}({} cells)", self.as_ref().len())
    }
}

impl AsRef<[AtomicU64]> for Cells {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        match self {
            Cells::Own(cells) => cells,
            Cells::Shared(cells) => (**cells).as_ref(),
        }
    }
}

impl Memory {
    /// `cells` cells, all 0.
    ///
    /// # Panics
    /// If `cells` is neither 0 nor a power of two.
    pub fn new(cells: u32) -> Memory {
        assert!(cells == 0 || cells.is_power_of_two(), "the number of cells is a power of two");
        Memory { cells: Cells::Own((0..cells).map(|_| AtomicU64::new(0)).collect()) }
    }

    /// Cells in memory that others see too. They stay where they are, and are as many, as long as `cells` lives.
    ///
    /// # Panics
    /// If their number is neither 0 nor a power of two.
    pub fn shared(cells: Arc<dyn AsRef<[AtomicU64]> + Send + Sync>) -> Memory {
        let len = (*cells).as_ref().len();
        assert!(len == 0 || len.is_power_of_two(), "the number of cells is a power of two");
        Memory { cells: Cells::Shared(cells) }
    }

    /// Number of cells: 0 or a power of two.
    pub fn len(&self) -> usize {
        self.cells().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells().is_empty()
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
        self.cells.as_ref()
    }

    #[inline]
    fn cell(&self, index: u64) -> Option<&AtomicU64> {
        let cells = self.cells();
        let mask = (cells.len() as u64).wrapping_sub(1);
        cells.get((index & mask) as usize)
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
