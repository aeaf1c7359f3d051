//! A writer of packets to files.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tapline_packet::{Batch, ClockReading, Interface, InterfaceId, Selection};
use tapline_sys::open_files;

use super::blocks::{Blocks, Next};
use super::encoder::Encoder;
use super::name::Names;
use super::options::{FileCreator, WriteOptions};
use super::output::{Failure, Output, Target, part_name};
use super::rotation::{ByClock, Course};
use crate::error::WriteError;
use crate::section::InterfaceStatistics;

/// Bytes gathered before they are written. Measured by copying a file of 1.0 GB and 1.3 million packets with the
/// example `file_copy` (CPU time, user and system, medians of 7 interleaved runs, ext4): 128 KiB 0.89 s, 256 KiB 0.80
/// s, 512 KiB 0.87 s, 1 MiB 1.21 s, 4 MiB 1.60 s; `tcpdump -r -w` 2.23 s. The second-level cache is what counts.
const BUFFER_LEN: usize = 256 << 10;

/// Interfaces that are reported because a file cannot contain their packets; the packets of all are counted.
const UNFIT_TOLD_MAX: usize = 64;

/// Whether the writer takes more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteProgress {
    /// More packets are taken.
    Writing,
    /// As many files as requested are complete (`-W` with `-G`). Packets that come now are counted as lost.
    Done,
}

/// Writes packets to a file, or to a rotating set of files.
///
/// Packets are gathered in one buffer and written with one call; [`flush`](Self::flush) writes them earlier. Files
/// hold whole records at all times but while a write is under way, also when the disk is full.
pub struct FileWriter {
    options: WriteOptions,
    place: Box<dyn OutputFiles>,
    names: Names,
    course: Course,
    encoder: Encoder,
    current: Option<Current>,
    buffer: Vec<u8>,
    /// Packets in the buffer.
    gathered: u64,
    written: u64,
    lost: u64,
    /// Packets that the format cannot hold; among those lost.
    unfit: u64,
    /// Interfaces that were reported because the format cannot contain their packets.
    unfit_told: Vec<InterfaceId>,
    /// Whether a packet without a time was reported.
    is_untimed_told: bool,
    notices: Vec<String>,
    statistics: Vec<InterfaceStatistics>,
    /// The time of the next statistics, by the steady clock.
    statistics_due_ns: i64,
    /// Blocks without packets for the files.
    blocks: Option<Blocks>,
}

/// The file being written.
struct Current {
    output: Output,
    path: PathBuf,
    /// Temporary path until the file is complete, if it has one.
    part_path: Option<PathBuf>,
    /// Bytes before packing, including those in the buffer.
    len: u64,
    /// The file that had the name when it was made.
    number: Option<FileNumber>,
}

/// Device and inode.
type FileNumber = (u64, u64);

fn number_of(path: &Path) -> Option<FileNumber> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|about| (about.dev(), about.ino()))
}

/// Creates and renames outputs: the file system, or a fake in tests.
pub(super) trait OutputFiles: Send {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Target>>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
}

impl OutputFiles for Box<dyn FileCreator> {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Target>> {
        let file = FileCreator::create(self.as_mut(), path)?;
        Ok(Box::new(file))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        FileCreator::rename(self.as_mut(), from, to)
    }
}

impl FileWriter {
    /// Creates the first file and writes its header. `interfaces` are those known so far; for pcap the first gives the
    /// link type. `now` begins the first period and its name.
    ///
    /// # Errors
    /// If the options make no sense together, or the file cannot be created.
    pub fn create(
        options: WriteOptions,
        interfaces: &[Interface],
        now: ClockReading,
        files: Box<dyn FileCreator>,
    ) -> Result<FileWriter, WriteError> {
        FileWriter::create_in(Box::new(files), options, interfaces, now)
    }

    pub(super) fn create_in(
        place: Box<dyn OutputFiles>,
        options: WriteOptions,
        interfaces: &[Interface],
        now: ClockReading,
    ) -> Result<FileWriter, WriteError> {
        options.rotation.check()?;
        if options.is_standard_output() && options.rotation.is_used() {
            return Err(WriteError::Options(
                "standard output cannot be rotated: give a file name with -w".to_owned(),
            ));
        }
        let encoder = Encoder::new(&options, interfaces);
        let blocks = options.blocks.clone().map(|queue| Blocks::new(queue, options.section.clone()));
        let names = Names::new(&options.path, options.rotation.period_s.is_some(), options.rotation.count);
        let mut writer = FileWriter {
            course: Course::new(options.rotation, now),
            names,
            place,
            encoder,
            current: None,
            buffer: Vec::with_capacity(BUFFER_LEN * 2),
            gathered: 0,
            written: 0,
            lost: 0,
            unfit: 0,
            unfit_told: Vec::new(),
            is_untimed_told: false,
            notices: Vec::new(),
            statistics: Vec::new(),
            statistics_due_ns: now.steady_ns.saturating_add(options.statistics_interval_ns),
            blocks,
            options,
        };
        writer.begin_first_file()?;
        Ok(writer)
    }

    /// Packets that a reader would find in the bytes that the system took: whole records, and of packed files those
    /// before the last mark.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Packets that were given to [`write`](Self::write) but are in no file.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Lost packets that the format cannot contain: of another link type than the file's, or of too many interfaces.
    pub fn unfit(&self) -> u64 {
        self.unfit
    }

    /// Notes that packets of this interface may come, so that [`notices`](Self::notices) says it if the file cannot
    /// hold them.
    pub fn expect(&mut self, id: InterfaceId, interface: &Interface) {
        let Some(reason) = self.encoder.misfit(id, interface) else { return };
        if !self.unfit_told.contains(&id) && self.unfit_told.len() < UNFIT_TOLD_MAX {
            self.unfit_told.push(id);
            let name = if interface.label().is_empty() { "another interface" } else { interface.label() };
            self.notices.push(format!("packets of {name} are left out: {reason}"));
        }
    }

    /// Takes the sentences about interfaces whose packets the file cannot hold, since the last call.
    pub fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Packets gathered but not written yet; 0 after [`finish`](Self::finish).
    pub fn buffered(&self) -> u64 {
        self.gathered
    }

    /// The final name of the file in progress.
    pub fn path(&self) -> &Path {
        self.current.as_ref().map_or(&self.options.path, |current| &current.path)
    }

    /// Takes the selected packets. `interfaces` is the source's table, which may have grown.
    ///
    /// # Errors
    /// If they cannot be written; then they are counted as lost, and so is all that comes later.
    pub fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), WriteError> {
        let before = self.written + self.lost + self.gathered;
        let result = self.write_selected(batch, selection, interfaces);
        if result.is_err() {
            // Packets that the loop did not come to are lost too.
            let counted = self.written + self.lost + self.gathered - before;
            self.lost += selection.len() as u64 - counted;
        }
        result
    }

    /// Writes the gathered packets, so that readers can see them.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_buffer()
    }

    /// Does the work that is due by the clock: the next file of a rotation by time, statistics in pcapng. To be
    /// called several times a second, with or without packets; `statistics` are the present counters of the
    /// interfaces.
    ///
    /// # Errors
    /// If a file cannot be completed or created.
    pub fn tick(
        &mut self,
        now: ClockReading,
        statistics: &[InterfaceStatistics],
    ) -> Result<WriteProgress, WriteError> {
        self.statistics = statistics.to_vec();
        if self.current.is_none() {
            return Ok(WriteProgress::Done);
        }
        match self.course.next_by_clock(now) {
            ByClock::Stay => self.write_due_statistics(now)?,
            ByClock::Next => {
                self.end_file()?;
                self.begin_file()?;
            }
            ByClock::Done => {
                self.end_file()?;
                return Ok(WriteProgress::Done);
            }
        }
        Ok(WriteProgress::Writing)
    }

    /// Goes on with another file if the one that is written was renamed or removed, as logrotate does, and is the only
    /// one. Returns whether it is another one now; the file before is complete then. `statistics` as for
    /// [`tick`](Self::tick).
    ///
    /// # Errors
    /// If a file cannot be completed or created.
    pub fn reopen(&mut self, statistics: &[InterfaceStatistics]) -> Result<bool, WriteError> {
        let Some(Current { path, part_path: None, number: Some(own), .. }) = &self.current else {
            return Ok(false);
        };
        if self.options.rotation.is_used() || number_of(path) == Some(*own) {
            return Ok(false);
        }
        self.statistics = statistics.to_vec();
        self.end_file()?;
        self.begin_file()?;
        Ok(true)
    }

    /// Completes the file. `statistics` is the final account of the interfaces.
    ///
    /// # Errors
    /// If gathered packets cannot be written.
    pub fn finish(&mut self, statistics: &[InterfaceStatistics]) -> Result<(), WriteError> {
        self.statistics = statistics.to_vec();
        if self.current.is_some() {
            self.append_blocks()?;
        }
        self.end_file()
    }

    fn write_selected(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), WriteError> {
        self.append_blocks()?;
        self.encoder.describe_new_interfaces(&mut self.buffer, interfaces, &self.options);
        let size_max = self.course.size_max();
        for index in selection.iter() {
            let Some(current) = &mut self.current else { return Err(self.is_closed()) };
            if current.len > size_max {
                self.next_file_by_size()?;
            }
            if !self.encode(batch, index, interfaces)? {
                self.leave_out(batch.packet(index).meta.interface, interfaces);
            }
            if self.buffer.len() >= BUFFER_LEN {
                self.write_buffer()?;
            }
        }
        if self.options.is_flushed_each_batch { self.flush() } else { Ok(()) }
    }

    /// Counts a packet that the format cannot hold.
    fn leave_out(&mut self, id: InterfaceId, interfaces: &[Interface]) {
        self.lost += 1;
        self.unfit += 1;
        if let Some(interface) = interfaces.get(id.0 as usize).filter(|_| !self.unfit_told.contains(&id)) {
            self.expect(id, interface);
        }
    }

    /// Appends a packet. Returns whether the format can hold it.
    #[inline]
    fn encode(
        &mut self,
        batch: &Batch<'_>,
        index: usize,
        interfaces: &[Interface],
    ) -> Result<bool, WriteError> {
        let before = self.buffer.len();
        if !self.encoder.packet(&mut self.buffer, batch, index, interfaces, &self.options)? {
            return Ok(false);
        }
        if let Some(current) = &mut self.current {
            current.len += (self.buffer.len() - before) as u64;
        }
        self.gathered += 1;
        if batch.packet(index).meta.is_untimed {
            self.note_untimed();
        }
        Ok(true)
    }

    /// Says once that the format gives packets a time that they do not have.
    #[cold]
    fn note_untimed(&mut self) {
        if self.encoder.has_blocks() || std::mem::replace(&mut self.is_untimed_told, true) {
            return;
        }
        let text = "some packets have no time, and the format of this file must give them one: 1970-01-01; write pcapng";
        self.notices.push(text.to_owned());
    }

    /// Opens the first file, whose section header names the capturing machine.
    fn begin_first_file(&mut self) -> Result<(), WriteError> {
        let mut first = Vec::new();
        match &mut self.blocks {
            Some(blocks) if self.encoder.has_blocks() => (self.options.section, first) = blocks.begin(),
            Some(blocks) => blocks.refuse(),
            None => {}
        }
        self.begin_file()?;
        for block in first.iter().filter(|block| !block.is_for_each_file()) {
            self.append(block.bytes())?;
        }
        Ok(())
    }

    /// Appends the blocks without packets that have come since.
    fn append_blocks(&mut self) -> Result<(), WriteError> {
        let Some(blocks) = &mut self.blocks else { return Ok(()) };
        if !self.encoder.has_blocks() {
            blocks.refuse();
            return Ok(());
        }
        while let Some(next) = self.blocks.as_mut().and_then(Blocks::next) {
            match next {
                Next::Block(block) => self.append(block.bytes())?,
                Next::Section(section) => {
                    self.options.section = section;
                    let before = self.buffer.len();
                    self.header();
                    if let Some(current) = &mut self.current {
                        current.len += (self.buffer.len() - before) as u64;
                    }
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, block: &[u8]) -> Result<(), WriteError> {
        let Some(current) = &mut self.current else { return Err(self.is_closed()) };
        self.buffer.extend_from_slice(block);
        current.len += block.len() as u64;
        if self.buffer.len() >= BUFFER_LEN { self.write_buffer() } else { Ok(()) }
    }

    fn next_file_by_size(&mut self) -> Result<(), WriteError> {
        self.end_file()?;
        self.course.next_by_size();
        self.begin_file()
    }

    fn begin_file(&mut self) -> Result<(), WriteError> {
        let path = self.names.make(self.course.period_start(), self.course.number())?;
        let part_path =
            (self.options.has_part_name && !self.options.is_standard_output()).then(|| part_name(&path));
        let opened = part_path.as_deref().unwrap_or(&path);
        let name = self.shown(&path);
        let output = if self.options.is_standard_output() {
            Output::standard(self.options.compression)
        } else if open_files::is_read(opened) {
            Err(io::Error::other("packets are read from it; name another file"))
        } else {
            self.place.create(opened).and_then(|target| Output::new(target, self.options.compression))
        };
        let output = output.map_err(|source| match self.options.is_standard_output() {
            true => WriteError::Write { name, source },
            false => WriteError::Create { name, source },
        })?;
        self.header();
        let len = self.buffer.len() as u64;
        let number = number_of(part_path.as_ref().unwrap_or(&path));
        self.current = Some(Current { output, path, part_path, len, number });
        // At once, so that the file is one from its first moment, and the buffer begins with a record.
        self.write_buffer()
    }

    fn header(&mut self) {
        let repeated = self.blocks.as_ref().map_or(&[][..], Blocks::repeated);
        self.encoder.header(&mut self.buffer, &self.options, repeated);
    }

    fn write_due_statistics(&mut self, now: ClockReading) -> Result<(), WriteError> {
        let interval = self.options.statistics_interval_ns;
        if interval <= 0 || now.steady_ns < self.statistics_due_ns {
            return Ok(());
        }
        self.statistics_due_ns = now.steady_ns.saturating_add(interval);
        self.encoder.statistics(&mut self.buffer, &self.statistics);
        self.write_buffer()
    }

    fn end_file(&mut self) -> Result<(), WriteError> {
        if self.current.is_none() {
            return Ok(());
        }
        self.encoder.statistics(&mut self.buffer, &self.statistics);
        self.write_buffer()?;
        let Some(Current { output, path, part_path, .. }) = self.current.take() else { return Ok(()) };
        let name = self.shown(&path);
        // Without its end a packed file still holds all packets: it gets its name all the same.
        let finished = output.finish().map_err(|source| self.explain(&name, source));
        let renamed = match part_path {
            Some(part_path) => self.place.rename(&part_path, &path),
            None => Ok(()),
        };
        finished.and(renamed.map_err(|source| WriteError::Create { name, source }))
    }

    fn write_buffer(&mut self) -> Result<(), WriteError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        match current.output.write(&self.buffer) {
            Ok(()) => {
                self.buffer.clear();
                self.buffer.shrink_to(BUFFER_LEN * 2);
                self.written += std::mem::take(&mut self.gathered);
                Ok(())
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Closes the file after its last whole record and counts the lost packets.
    fn fail(&mut self, failure: Failure) -> WriteError {
        let taken = self.buffer.get(..failure.taken).unwrap_or_default();
        let (keep, packets) = self.encoder.whole_records(taken, self.gathered > 0);
        self.written += packets;
        self.lost += std::mem::take(&mut self.gathered).saturating_sub(packets);
        self.buffer.clear();
        let Some(current) = self.current.take() else { return self.is_closed() };
        let name = self.shown(&current.path);
        // If even this fails, the first failure is what matters; readers deliver all before the cut.
        let _ = current.output.repair(&failure, keep);
        if let Some(part_path) = current.part_path {
            let _ = self.place.rename(&part_path, &current.path);
        }
        self.explain(&name, failure.source)
    }

    /// The name of a file in messages.
    fn shown(&self, path: &Path) -> String {
        match self.options.is_standard_output() {
            true => "standard output".to_owned(),
            false => path.display().to_string(),
        }
    }

    fn explain(&self, name: &str, source: io::Error) -> WriteError {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::BrokenPipe => WriteError::BrokenPipe { name },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::DiskFull { name },
            io::ErrorKind::FileTooLarge => WriteError::FileTooLarge { name },
            _ => WriteError::Write { name, source },
        }
    }

    fn is_closed(&self) -> WriteError {
        let source =
            io::Error::other("the output is closed, after a failure or because all files are complete");
        WriteError::Write { name: self.shown(&self.options.path), source }
    }
}

/// Buffered bytes are written even without `finish`.
impl Drop for FileWriter {
    fn drop(&mut self) {
        let _ = self.end_file();
    }
}
