//! Flows as Parquet files, for analytic databases.
//!
//! ```text
//! Flow --direction by direction--> rows of an hour --a row group, over a channel--> Store, in a thread of its own --> DIR/date=2026-11-22/hour=20/NAME.parquet
//! ```
//!
//! The metering thread fills columns in memory and hands full row groups to a second thread, which encodes, compresses
//! and writes them. If the disk cannot keep up, the metering thread waits.
//!
//! A row is filed under the hour in which its flow ended, because flows leave the meter in about that order: once the
//! idle timeout has passed, an hour that is over gets no more rows. A file gets its name when it is complete: at a size
//! or an age, when too many hours are open, or at the end.
//!
//! Memory: row groups of 128 Ki rows or 32 MiB at most: one being filled for each of [`HOURS_MAX`] hours, one queued,
//! one being written.

mod column;
mod draft;
mod encoder;
mod sorting;
mod store;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_geo::Places;
use tapline_packet::Timestamp;
use tapline_source::OutputAccount;

use super::element::{Element, RecordView, RowContext};
use super::file::MessageFile;
use super::rows;
use super::table::{ColumnType, RowGroup, TableShape};
use super::{ExportAccount, ExportOptions, FlowSink};
use crate::{Error, Flow, Sampling};
pub use encoder::ParquetEncoder;
use store::{Job, Outcome, ParquetOutput, Store};

/// Hours with open files at the same time.
const HOURS_MAX: usize = 4;
/// Row groups queued for the writing thread.
const JOBS_WAITING: usize = 1;
/// The most rows of a row group: engines scan row groups in parallel; DuckDB works best with 122,880 rows.
const GROUP_ROWS: usize = 128 << 10;
/// The most bytes of a row group in memory.
const GROUP_BYTES: usize = 32 << 20;

/// The shortest interval between files: shorter ones would make many small files.
const TIME_MIN: Duration = Duration::from_secs(1);

/// Limits at which a file is closed and becomes readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParquetLimits {
    /// The most bytes; a file with a single row group may be larger.
    pub size: u64,
    /// The longest time since the file's first row, at least 1 s: in packet time for files, by the clock for live
    /// interfaces.
    pub time: Duration,
}

impl Default for ParquetLimits {
    fn default() -> ParquetLimits {
        ParquetLimits { size: 128_000_000, time: Duration::from_secs(300) }
    }
}

/// Writes flows as Parquet.
pub struct ParquetWriter {
    name: String,
    shape: TableShape,
    /// Types of the columns in files.
    kinds: Vec<ColumnType>,
    limits: ParquetLimits,
    sampling: Sampling,
    /// The most bytes of a row group in memory.
    group_bytes: usize,
    /// Whether all hours go into one file.
    is_stream: bool,
    /// Ordered by their latest row, the oldest first.
    hours: Vec<Hour>,
    flows: u64,
    /// Rows, and the packets that they count.
    rows: u64,
    packets: u64,
    outcome: Arc<Mutex<Outcome>>,
    /// `None` once all is done.
    thread: Option<(SyncSender<Job>, JoinHandle<()>)>,
}

/// Hours since 1970.
struct Hour {
    /// Time of the first row of the file.
    number: i64,
    /// When the first row of its file came.
    since: Timestamp,
    group: RowGroup,
}

impl ParquetWriter {
    /// Writes files into a directory, which is created if it does not exist; `-` is one file on standard output. Of
    /// `options` the template, the domain and the biflow setting apply.
    ///
    /// # Errors
    /// If the directory cannot be written to, the template is invalid, or the time is too short.
    pub fn create(to: &Path, options: &ExportOptions, limits: ParquetLimits) -> Result<ParquetWriter, Error> {
        if limits.time < TIME_MIN {
            let seconds = limits.time.as_secs_f64();
            return Err(Error::Timeout { name: "Parquet files'", seconds, least: "1 s" });
        }
        let is_stream = to == Path::new("-");
        let name = MessageFile::name_of(to);
        let place =
            if is_stream { ParquetOutput::StandardOutput } else { ParquetOutput::Directory(to.to_owned()) };
        let fail = |source: io::Error| Error::Open { collector: name.clone(), source };
        let template = parquet_template(&options.template);
        let shape = TableShape::new(&ExportOptions { template, ..options.clone() })?;
        let (columns, kinds) = shape.columns();
        if !is_stream {
            fs::create_dir_all(to).and_then(|()| draft::try_out(to)).map_err(fail)?;
        }
        let mut outcome = Outcome::default();
        outcome.account.packets.name.clone_from(&name);
        let outcome = Arc::new(Mutex::new(outcome));
        let size_max = if is_stream { u64::MAX } else { limits.size };
        let store = Store::new(place, columns, size_max, Arc::clone(&outcome)).map_err(fail)?;
        let (jobs, theirs) = sync_channel(JOBS_WAITING);
        let thread = thread::Builder::new().name("parquet".to_owned());
        let thread = thread.spawn(move || store.run(&theirs)).map_err(fail)?;
        let mut writer = ParquetWriter {
            kinds: kinds.iter().map(|kind| kind.plain()).collect(),
            shape,
            group_bytes: GROUP_BYTES.min(usize::try_from(size_max).unwrap_or(usize::MAX)),
            limits,
            sampling: Sampling::NONE,
            is_stream,
            hours: Vec::new(),
            flows: 0,
            rows: 0,
            packets: 0,
            outcome,
            thread: Some((jobs, thread)),
            name,
        };
        if is_stream {
            // There is a file even if there are no flows.
            writer.open(0, Timestamp::EPOCH);
        }
        Ok(writer)
    }

    fn add(&mut self, flow: &Flow, now: Timestamp) {
        // Rows borrow the places while they are added.
        let lookup = std::mem::take(&mut self.shape.places);
        let places = lookup.of_flow(flow);
        let context = RowContext { places: places.as_ref(), ..self.shape.context(self.sampling) };
        context.for_each_row(flow, |view, packets| self.add_row(view, packets, now));
        self.shape.places = lookup;
    }

    fn add_row(&mut self, view: &RecordView<'_>, packets: u64, now: Timestamp) {
        let number = if self.is_stream { 0 } else { hour_of(view.last) };
        let at = self.hours.iter().position(|hour| hour.number == number);
        match at {
            Some(0) => {}
            Some(at) => self.hours[..=at].rotate_right(1),
            None => self.open(number, now),
        }
        let group = &mut self.hours[0].group;
        group.push(self.shape.columns().0, view, packets);
        self.rows += 1;
        self.packets += packets;
        if group.rows >= GROUP_ROWS || group.bytes >= self.group_bytes {
            self.hand_on(0, false);
        }
    }

    /// Begins an hour, as the first. If there are too many, that which has waited longest is closed.
    fn open(&mut self, number: i64, since: Timestamp) {
        if self.hours.len() >= HOURS_MAX {
            self.close(self.hours.len() - 1);
        }
        self.hours.insert(0, Hour { number, since, group: RowGroup::new(&self.kinds) });
    }

    fn close(&mut self, at: usize) {
        self.hand_on(at, true);
        self.hours.remove(at);
    }

    /// Hands the rows of an hour to the thread, and waits for it if need be.
    fn hand_on(&mut self, at: usize, is_last: bool) {
        let Hour { number, group, .. } = &mut self.hours[at];
        let group = std::mem::replace(group, RowGroup::new(&self.kinds));
        let packets = group.packets;
        let is_taken = self
            .thread
            .as_ref()
            .is_some_and(|(jobs, _)| jobs.send(Job { hour: *number, group, is_last }).is_ok());
        if !is_taken {
            self.outcome().account.packets.lost += packets;
        }
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlowSink for ParquetWriter {
    fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        self.sampling = sampling;
        Ok(())
    }

    fn set_places(&mut self, places: &Arc<Places>) {
        self.shape.set_places(places);
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), Error> {
        for flow in flows {
            self.flows += 1;
            self.add(flow, now);
        }
        self.flush(now)
    }

    fn flush(&mut self, now: Timestamp) -> Result<(), Error> {
        let time = i64::try_from(self.limits.time.as_nanos()).unwrap_or(i64::MAX);
        // A clock that was set back must not keep a file open until it has come there again.
        let is_old = |hour: &Hour| !(0..time).contains(&now.since(hour.since));
        while !self.is_stream
            && let Some(at) = self.hours.iter().position(is_old)
        {
            self.close(at);
        }
        self.outcome().failure.take().map_or(Ok(()), Err)
    }

    fn finish(&mut self, _: Timestamp) -> Result<(), Error> {
        while !self.hours.is_empty() {
            self.close(0);
        }
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            // A thread that panicked has told nothing of what it had: that is lost.
            let is_done = thread.join().is_ok();
            let mut outcome = self.outcome();
            outcome.account.packets.lost = self.packets.saturating_sub(outcome.account.packets.written);
            if !is_done && outcome.failure.is_none() {
                let source = io::Error::other("the thread that writes has ended");
                outcome.failure = Some(Error::Parquet { file: self.name.clone(), source });
            }
        }
        self.outcome().failure.take().map_or(Ok(()), Err)
    }

    fn account(&self) -> ExportAccount {
        // Packets of rows are written once their file is whole, and until then they wait; messages are files.
        let mut account = self.outcome().account.clone();
        let OutputAccount { written, lost, .. } = account.packets;
        account.packets.buffered = self.packets.saturating_sub(written + lost);
        (account.flows, account.records) = (self.flows, self.rows);
        let files = account.messages - account.messages_lost;
        account.counters = vec![("files", files), ("files_lost", account.messages_lost)];
        account
    }
}

impl Drop for ParquetWriter {
    /// A file that is not whole by now never will be, and is removed before this returns.
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// A template whose default is that of Parquet: rows as those of lines, but in milliseconds, as many engines know no
/// nanoseconds.
pub fn parquet_template(template: &str) -> String {
    Element::names(template, &default_template()).join(",")
}

fn default_template() -> String {
    let of_lines = rows::DEFAULT.split(',').map(str::trim).filter(|name| *name != rows::COMMUNITY_ID);
    let names: Vec<&str> = of_lines.chain(["observationDomainId", "samplingInterval"]).collect();
    names.join(",").replace("Nanoseconds", "Milliseconds")
}

/// Hours since 1970.
fn hour_of(time: Timestamp) -> i64 {
    time.seconds().div_euclid(3600)
}

fn folder_of(directory: &Path, hour: i64) -> PathBuf {
    let time = jiff::Timestamp::from_second(hour.saturating_mul(3600)).unwrap_or_default();
    directory.join(time.strftime("date=%Y-%m-%d/hour=%H").to_string())
}
