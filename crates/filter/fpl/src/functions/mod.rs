//! Functions for [`Registry`](super::Registry): those that FFPF brought along, and the parser of its second example.
//!
//! | name | input | output | value |
//! |---|---|---|---|
//! | `count` | | packets, bytes on the wire | packets |
//! | `sample` | n | calls since the last 1 | 1 for every n-th call, else 0; n of 0 gives 0 |
//! | `rtsp_ports` | | see [`rtsp_ports`] | ports found in this packet |
//! | [`aho_corasick`], [`horspool`] | start, length | pattern, place | 1 if a pattern was found |
//!
//! The first three are in [`Registry::standard`](super::Registry::standard); the searches are registered with their
//! patterns. FFPF also had `drop`. Here a program drops a packet by `RETURN 0`, and nothing is taken from other
//! readers.

mod rtsp;
mod search;

use super::function::External;
pub use rtsp::{RTSP_CELLS, RTSP_PORTS_MAX, rtsp_ports};
pub use search::{aho_corasick, horspool};

/// The functions of [`Registry::standard`](super::Registry::standard).
pub(super) fn standard() -> [External; 3] {
    [count(), sample(), rtsp_ports()]
}

/// Counts the packets that it is called for, and their bytes on the wire.
pub fn count() -> External {
    External::new("count", 0, 2, |call| {
        call.set_output(0, call.output(0).wrapping_add(1));
        call.set_output(1, call.output(1).wrapping_add(call.packet().meta.wire_len.into()));
        call.output(0)
    })
}

/// Returns 1 for one call in as many as its input says.
pub fn sample() -> External {
    External::new("sample", 1, 1, |call| {
        let calls = call.output(0).saturating_add(1);
        let is_chosen = call.input(0) != 0 && calls >= call.input(0);
        call.set_output(0, if is_chosen { 0 } else { calls });
        is_chosen.into()
    })
}
