//! The thread that writes: row groups come, files become whole.
//!
//! ```text
//! Job(hour, rows)        row group into the hour's file, which is begun if there is none; closed before it would become too long
//! Job(hour, rows, last)  the same, and the file is closed
//! the channel's end      files that are still open are given up
//! ```
//!
//! A file that cannot be written is removed, with all of its rows lost; the next rows of its hour begin another.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterPropertiesPtr;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::TypePtr;

use super::column;
use super::draft::UnnamedFile;
use super::folder_of;
use super::sorting::SortOrder;
use crate::Error;
use crate::export::ExportAccount;
use crate::export::rows::Column;
use crate::export::table::RowGroup;

/// Estimated bytes of a file's end for each column of a row group: of 12 row groups with 21 columns it took 123 bytes
/// each, plus the index of pages, which has two values of 64 bytes at most for each of seven pages.
const FOOTER: usize = 1024;

/// Rows to write.
pub(super) struct Job {
    /// Since 1970.
    pub(super) hour: i64,
    pub(super) group: RowGroup,
    /// Whether the file is closed then.
    pub(super) is_last: bool,
}

/// Files that the thread has completed or given up.
#[derive(Default)]
pub(super) struct Outcome {
    /// The account of these files, each of which counts as a message.
    pub(super) account: ExportAccount,
    /// The first error that was not yet reported to the caller.
    pub(super) failure: Option<Error>,
}

/// Where files are written.
pub(super) enum ParquetOutput {
    Directory(PathBuf),
    /// One file for all hours.
    StandardOutput,
}

/// Open files, and the settings for writing them.
pub(super) struct Store {
    place: ParquetOutput,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    order: SortOrder,
    size_max: u64,
    /// A random number in file names, which keeps writers into the same directory apart.
    run: u64,
    /// Files begun.
    begun: u64,
    /// As many as the writer has hours.
    open: Vec<Open>,
    outcome: Arc<Mutex<Outcome>>,
}

/// A file that is not whole yet.
struct Open {
    hour: i64,
    name: String,
    /// `None` for standard output.
    draft: Option<UnnamedFile>,
    writer: SerializedFileWriter<File>,
    /// Packets of its rows.
    packets: u64,
    /// Row groups that it has, and bytes of the longest.
    groups: usize,
    longest: usize,
    /// Maximum bytes at the file's end for each row group: the offsets, and the least and greatest values.
    footer: usize,
}

impl Store {
    pub(super) fn new(
        place: ParquetOutput,
        columns: &[Column],
        size_max: u64,
        outcome: Arc<Mutex<Outcome>>,
    ) -> io::Result<Store> {
        let schema = column::schema(columns).map_err(io_error)?;
        let order = SortOrder::of(columns);
        let (properties, run) = (column::properties(columns, &order, true), random());
        Ok(Store { place, schema, properties, order, size_max, run, begun: 0, open: Vec::new(), outcome })
    }

    /// Does all jobs, until there will be no more.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        for job in jobs {
            self.take(job);
        }
    }

    fn take(&mut self, Job { hour, mut group, is_last }: Job) {
        group.sort(&self.order);
        let at = match self.open.iter().position(|open| open.hour == hour) {
            Some(at) => at,
            None if group.rows == 0 && !self.is_stream() => return,
            None => match self.begin(hour) {
                Ok(open) => {
                    self.open.push(open);
                    self.open.len() - 1
                }
                Err(source) => return self.note_lost(group.packets, self.name_of(hour), source),
            },
        };
        let open = &mut self.open[at];
        match open.write(group) {
            Ok(()) if is_last || open.is_full(self.size_max) => self.close(at),
            Ok(()) => {}
            Err(source) => {
                let Open { name, packets, .. } = self.open.swap_remove(at);
                self.note_lost(packets, name, source);
            }
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.place, ParquetOutput::StandardOutput)
    }

    fn begin(&mut self, hour: i64) -> io::Result<Open> {
        let name = self.name_of(hour);
        self.begun += 1;
        let (draft, file) = match &self.place {
            ParquetOutput::StandardOutput if self.begun > 1 => {
                return Err(io::Error::other("what was before is there in part"));
            }
            ParquetOutput::StandardOutput => (None, File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            ParquetOutput::Directory(directory) => {
                let folder = folder_of(directory, hour);
                fs::create_dir_all(&folder)?;
                let path = folder.join(format!("{:016x}-{:06}.parquet", self.run, self.begun));
                let (draft, file) = UnnamedFile::create(path)?;
                (Some(draft), file)
            }
        };
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        let footer = FOOTER * schema.get_fields().len();
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(io_error)?;
        Ok(Open { hour, name, draft, writer, packets: 0, groups: 0, longest: 0, footer })
    }

    /// Name of a file in messages: its final path.
    fn name_of(&self, hour: i64) -> String {
        match &self.place {
            ParquetOutput::StandardOutput => "standard output".to_owned(),
            ParquetOutput::Directory(directory) => {
                format!("a file in {}", folder_of(directory, hour).display())
            }
        }
    }

    fn close(&mut self, at: usize) {
        let open = self.open.swap_remove(at);
        let (name, packets) = (open.name.clone(), open.packets);
        match open.finish() {
            Ok(octets) => {
                let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
                outcome.account.packets.written += packets;
                outcome.account.octets += octets;
                outcome.account.messages += 1;
            }
            Err(source) => self.note_lost(packets, name, source),
        }
    }

    fn note_lost(&self, packets: u64, file: String, source: io::Error) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.account.packets.lost += packets;
        outcome.account.messages += 1;
        outcome.account.messages_lost += 1;
        outcome.failure.get_or_insert(Error::Parquet { file, source });
    }
}

impl Open {
    fn write(&mut self, group: RowGroup) -> io::Result<()> {
        if group.rows == 0 {
            return Ok(());
        }
        self.packets += group.packets;
        let before = self.writer.bytes_written();
        column::write(group, &mut self.writer).map_err(io_error)?;
        self.groups += 1;
        self.longest = self.longest.max(self.writer.bytes_written() - before);
        Ok(())
    }

    /// Whether another row group like the longest would make it too long.
    fn is_full(&self, size_max: u64) -> bool {
        let footers = (self.groups + 1) * self.footer;
        (self.writer.bytes_written() + self.longest + footers) as u64 > size_max
    }

    /// Completes the file. Its length in octets.
    fn finish(mut self) -> io::Result<u64> {
        self.writer.finish().map_err(io_error)?;
        let octets = self.writer.bytes_written() as u64;
        drop(self.writer);
        self.draft.map_or(Ok(()), UnnamedFile::publish)?;
        Ok(octets)
    }
}

/// A random number, which distinguishes this writer's files from those of other writers.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The system's error behind an error of the Parquet writer, if there is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
