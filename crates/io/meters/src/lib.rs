//! Counters, histograms and costs for each stage, as data that other processes read while it runs.
//!
//! ```text
//! engine   t0 = clock.now(); stage(batch); t1 = clock.now(); meter.add(&Cost { cycles: t1 - t0, .. })
//!                                                              │
//!          Meters: a file, a slot for each Meter  ◄────────────┘
//!                   │
//! others   Reader::list(), Reader::open(path).snapshot() ──► Snapshot: merge, since, percentile, to_json
//! ```
//!
//! `docs/format/meters.md` describes the file, `docs/costs.md` the cost of measuring. The crate also has [`Clock`],
//! which meters use, [`Stamp`], which gives packets their times, [`KernelCounters`] for the cost before packets reach
//! us, and [`Breakdown`], which puts all of it into one table or picture.
#![forbid(unsafe_code)]

mod activity;
mod breakdown;
mod clock;
mod error;
mod histogram;
mod kernel;
mod layout;
mod meter;
mod meter_name;
mod meters;
mod micro;
mod place;
mod reader;
mod scheduling;
mod snapshot;
mod spread;
mod stamp;

pub use activity::{Activity, activities};
pub use breakdown::{Breakdown, Component, CostBasis, compare, component_names};
pub use clock::{Clock, ClockKind};
pub use error::Error;
pub use histogram::{BUCKETS, Histogram, bucket_start};
pub use kernel::{CpuTimes, Interrupt, KernelCounters, Softnet};
pub use layout::{EXTRAS_MAX, Kind, SLOTS_MAX, SlotState, text_of, words_of};
pub use meter::{Cost, Extra, Meter};
pub use meter_name::{command_of, meter_name};
pub use meters::{Meters, SharedFile};
pub use micro::{Task, TaskReport, measure_tasks, tasks_to_text};
pub use place::{FileKind, RunFolder, is_stale, run_folders};
pub use reader::{Process, Reader};
pub use scheduling::Scheduling;
pub use snapshot::{Snapshot, UNKNOWN, merge_workers};
pub use spread::Distribution;
pub use stamp::{
    Clocks, Stamp, StampError, StampMode, StampReport, SystemClocks, UnknownStampMode, measure_stamps,
    stamps_to_text,
};
