//! The settings of a recording, and its counters.

use super::{Cutoff, Overload};
use crate::index::IndexOptions;
use crate::layout::SEGMENT_LEN_DEFAULT;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct RecorderSettings {
    /// Bytes of all segments together; two segments at least. Indexes and roll-ups take 0.6 % more.
    pub size: u64,
    /// Bytes of a segment, 4 MiB to 4 GiB in whole MiB; `None` for the length that an existing store has, or 1 GiB
    /// for a new one.
    pub segment_len: Option<u64>,
    /// Age in nanoseconds at which packets are deleted, in whole segments, once the newest packet of the segment has
    /// it; `None`: segments go only when `size` is reached.
    pub keep_ns: Option<i64>,
    /// Age in nanoseconds at which [`Recorder::tick`] writes a chunk that is not full; searches then find its packets.
    pub flush_ns: i64,
    /// Interval in nanoseconds at which written chunks are flushed to the disk: a power failure loses later packets.
    pub sync_ns: i64,
    /// Snap length in bytes that is written for interfaces which do not have one. Packets are not shortened to it.
    pub snap_len: u32,
    /// Optional keys of the index (names, MAC addresses); `None` for no index: searches then read the head of each
    /// chunk.
    pub index: Option<IndexOptions>,
    /// Limits of bytes per flow: the first entry whose filter accepts the first packet of a flow applies to the flow. A
    /// flow that none applies to, and each flow if there are none, is recorded whole.
    pub cutoffs: Vec<Cutoff>,
    /// Level of zstd, 1 to 19, by which each chunk is compressed; `None`: chunks are not compressed.
    pub compress: Option<i32>,
    /// The packets that are given up when the disk does not keep up with the source.
    pub overload: Overload,
    /// Chunk buffers of 1 MiB between caller and disk; values below 2 count as 2.
    pub buffers: usize,
    /// Whether the disk space that no segment, index or line of the log took stays reserved after
    /// [`Recorder::finish`](crate::Recorder::finish).
    pub keeps_room: bool,
    /// Whether packets come from interfaces: then nothing was recorded in the times between this recording and others.
    pub is_live: bool,
}

impl Default for RecorderSettings {
    fn default() -> RecorderSettings {
        RecorderSettings {
            size: 10 * SEGMENT_LEN_DEFAULT,
            segment_len: None,
            keep_ns: None,
            flush_ns: 800_000_000,
            sync_ns: 5_000_000_000,
            snap_len: 262_144,
            index: Some(IndexOptions::default()),
            cutoffs: Vec::new(),
            compress: None,
            overload: Overload::Wait,
            buffers: 32,
            keeps_room: true,
            is_live: true,
        }
    }
}

/// Counters of the source since the recording began; `None` for one that the source does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that the source received, recorded or not.
    pub received: Option<u64>,
    /// Packets lost before they reached the recorder: by adapter, driver or kernel.
    pub lost: Option<u64>,
}

/// Counters of a recording, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets in chunks whose write succeeded.
    pub written: u64,
    /// Packets given to [`Recorder::write`] that could not be written: disk errors, no free segment, unknown
    /// interface, or longer than a segment can hold.
    pub lost: u64,
    /// Packets not recorded because their flow had reached its [`Cutoff`].
    pub cut: u64,
    /// Packets given up because the disk was too slow, in the order of [`Overload::LOSING`]: those that came while no
    /// buffer was free, those of the chunks that waited longest, those of flows that were refused.
    pub overload: [u64; 3],
    /// Packets in chunks that are not written yet; 0 after [`Recorder::finish`].
    pub buffered: u64,
    /// Bytes of chunks whose write succeeded, as they are on the disk.
    pub bytes: u64,
    /// Bytes of these chunks before they were compressed.
    pub unpacked: u64,
    /// Bytes of the indexes of sealed segments.
    pub index_bytes: u64,
    /// Segments that were begun.
    pub segments: u64,
    /// Segments that were deleted so that their files could be used again.
    pub recycled: u64,
}

impl Totals {
    /// Packets given up because the disk was too slow, for any reason.
    pub fn overloaded(&self) -> u64 {
        self.overload.iter().sum()
    }
}
