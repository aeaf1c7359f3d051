//! Passes over plans of these classes.

mod kernel;
mod sets;

use tapline_capture::af_packet::KernelTally;
use tapline_graph::catalog::{Pass, Tally};

pub use kernel::take_back as filter_in_user_space;

pub(crate) static PASSES: &[Pass] = &[kernel::push_down, kernel::push_down_work, sets::merge];

/// The work that the kernel does for a device and the stages behind it.
pub fn kernel_tally(tally: Option<&Tally>) -> Option<&KernelTally> {
    tally?.downcast_ref()
}
