//! A capture file as a source of packets.
//!
//! ```text
//! Input --window--> Parser --records--> batch
//!   ^                  |
//!   +--- fill <--- Need: an item is not there as a whole
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tapline_packet::{BATCH_MAX, Batch, Interface, Record};

use crate::copied::BlockQueue;
use crate::error::{Error, FilePosition};
use crate::input::{Compression, Input};
use crate::read::detect::{self, DETECT_LEN, Format};
use crate::read::pcapng::Keep;
use crate::read::{ParseOutput, Parser, Stop, Window, erf, pcap, pcapng};
use crate::section::{InterfaceStatistics, Section};

mod draft;

pub(crate) use draft::Draft;

/// Reads a pcap, pcapng or ERF file, plain or packed with gzip, zstd or lz4, and lends its packets in batches.
///
/// ```no_run
/// use tapline_file::FileSource;
/// let mut file = FileSource::open("trace.pcapng.zst".as_ref())?;
/// while file.advance()? {
///     for packet in file.batch().iter() {
///         println!("{} bytes on {}", packet.data.len(), file.interfaces()[packet.meta.interface.0 as usize].name);
///     }
/// }
/// # Ok::<(), tapline_file::Error>(())
/// ```
pub struct FileSource {
    name: String,
    input: Input,
    format: Format,
    parser: Parser,
    interfaces: Vec<Interface>,
    counters: Vec<InterfaceCounters>,
    records: Vec<Record>,
    /// The file's first bytes.
    head: Vec<u8>,
    /// Bytes of the window that hold the batch, given back with the next advance.
    lent: usize,
    /// Whether the first batch was parsed when the file was opened.
    is_parsed: bool,
    /// Whether the reader had nothing, in [`ReadMode::Polled`].
    is_waiting: bool,
    /// Whether blocks without packets go to a queue.
    copies_blocks: bool,
    reading: ReadMode,
    /// The error that ended the file, returned once all packets before it have been lent.
    pending: Option<Error>,
    is_ended: bool,
}

/// The mode of reading: ahead of the packets that are lent, or packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// As far as its buffer has room: the fastest.
    Ahead,
    /// As [`Ahead`](Self::Ahead); a reader without bytes ([`io::ErrorKind::WouldBlock`]) is read again later.
    Polled,
    /// Packet by packet: the reader is behind the packet that was lent last. The next packet is read from the reader's
    /// position, wherever that is by then, also after an end or an error.
    ByPacket,
}

impl ReadMode {
    /// The most bytes to read if `missing` are needed.
    fn most(self, missing: usize) -> usize {
        match self {
            ReadMode::Ahead | ReadMode::Polled => usize::MAX,
            ReadMode::ByPacket => missing,
        }
    }
}

/// The packets of one interface of a file so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Packets lent.
    pub packets: u64,
    /// Packets lost between those lent, as recorded in the file (`epb_dropcount`, ERF's loss counter).
    pub drops: u64,
}

impl FileSource {
    /// Opens a file by name.
    ///
    /// # Errors
    /// If it cannot be opened, or its header shows that it is not a capture file, or damaged.
    pub fn open(path: &Path) -> Result<FileSource, Error> {
        FileSource::of(Input::open(path), &path.display().to_string(), Keep::All, ReadMode::Ahead)
    }

    /// Reads the rest of an open file. `name` is for messages.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn from_file(file: File, name: &str) -> Result<FileSource, Error> {
        FileSource::of(Input::of_file(file), name, Keep::All, ReadMode::Ahead)
    }

    /// Reads from standard input, a pipe or memory. `name` is for messages.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn from_reader(reader: Box<dyn Read + Send>, name: &str) -> Result<FileSource, Error> {
        FileSource::from_input(reader, name, Keep::All, ReadMode::Ahead)
    }

    /// Reads a stream that is not packed as far as it has come, in [`ReadMode::Polled`]. Opening reads its first 24
    /// bytes, which must be there.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn from_polled_reader(reader: Box<dyn Read + Send>, name: &str) -> Result<FileSource, Error> {
        FileSource::from_input(reader, name, Keep::All, ReadMode::Polled)
    }

    /// Reads the packets alone: sections and statistics are skipped. The interfaces of a pcapng file become two at
    /// most: the first one, for all packets of its link type, and one for all others. Opening reads up to the end of
    /// the file header or of the first interface.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn packets_from_reader(
        reader: Box<dyn Read + Send>,
        name: &str,
        reading: ReadMode,
    ) -> Result<FileSource, Error> {
        FileSource::from_input(reader, name, Keep::LinkTypes, reading)
    }

    fn from_input(
        reader: Box<dyn Read + Send>,
        name: &str,
        keep: Keep,
        reading: ReadMode,
    ) -> Result<FileSource, Error> {
        FileSource::of(Input::new(reader, None), name, keep, reading)
    }

    fn of(input: io::Result<Input>, name: &str, keep: Keep, reading: ReadMode) -> Result<FileSource, Error> {
        match input {
            Ok(input) => FileSource::new(input, name.to_owned(), keep, reading),
            Err(source) => Err(Error::Open { name: name.to_owned(), source }),
        }
    }

    fn new(mut input: Input, name: String, keep: Keep, reading: ReadMode) -> Result<FileSource, Error> {
        let mut interfaces = Vec::new();
        let format = detect_format(&mut input, &name)?;
        let parser = match format {
            Format::Pcap => read_pcap_header(&mut input, &name, &mut interfaces, reading)?,
            Format::Pcapng => Parser::Pcapng(Box::new(new_pcapng(keep))),
            Format::Erf => Parser::Erf(erf::Parser::default()),
        };
        let head = head(&mut input, reading);
        let mut source = FileSource {
            name,
            input,
            format,
            parser,
            interfaces,
            counters: Vec::new(),
            records: Vec::with_capacity(BATCH_MAX),
            head,
            lent: 0,
            is_parsed: false,
            is_waiting: false,
            copies_blocks: false,
            reading,
            pending: None,
            is_ended: false,
        };
        source.find_first_interface()?;
        Ok(source)
    }

    /// The file's name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interfaces known so far. The table only grows.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// `pcap`, `pcapng` or `ERF`.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
            Format::Erf => "ERF",
        }
    }

    /// The first 24 bytes of the file, unpacked; fewer if it is shorter. They hold fields of a pcap header that
    /// packets do not need.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The compression of the file, if there is one.
    pub fn compression(&self) -> Option<Compression> {
        self.input.compression()
    }

    /// Sends the blocks without packets to `queue`, for a copy of the file: sections, secrets, names, custom and
    /// unknown blocks. Call it before the first [`advance`](Self::advance), which otherwise drops those that came
    /// before the first packet. Files of other formats have none.
    pub fn copy_blocks_to(&mut self, queue: &BlockQueue) {
        let Parser::Pcapng(parser) = &mut self.parser else { return };
        if let Some(early) = parser.copies.replace(queue.clone()) {
            queue.take_from(&early);
        }
        self.copies_blocks = true;
    }

    /// Ends the last batch and parses the next, of up to [`BATCH_MAX`] packets; `false` at the end of the file, or
    /// while it [waits](Self::is_waiting).
    ///
    /// # Errors
    /// Packets before the fault have been lent by then. After an error the source is at its end.
    pub fn advance(&mut self) -> Result<bool, Error> {
        if !self.copies_blocks
            && let Parser::Pcapng(parser) = &mut self.parser
        {
            parser.copies = None;
        }
        if self.reading == ReadMode::ByPacket {
            self.input.free_former();
            self.step();
        } else if !std::mem::take(&mut self.is_parsed) {
            self.give_back();
            self.parse_batch();
        }
        if !self.records.is_empty() {
            self.count();
            return Ok(true);
        }
        match self.pending.take() {
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// Whether the last [`advance`](Self::advance) found no packets because the reader had nothing yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The batch that the last [`advance`](Self::advance) found.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.input.buffer(), &self.records)
    }

    /// Records `from..to` of the batch.
    pub(crate) fn batch_range(&self, from: usize, to: usize) -> Batch<'_> {
        Batch::new(self.input.buffer(), &self.records[from..to])
    }

    /// Packets lent so far, for each interface.
    pub fn counters(&self) -> &[InterfaceCounters] {
        &self.counters
    }

    /// The sections of a pcapng file read so far, the first 4,096: their writers, and comments.
    pub fn sections(&self) -> &[Section] {
        match &self.parser {
            Parser::Pcapng(parser) => &parser.sections,
            _ => &[],
        }
    }

    /// A sentence about what breaks a rule of the format and was read all the same, as far as the file was read.
    pub fn remark(&self) -> Option<String> {
        match &self.parser {
            Parser::Pcapng(parser) => parser.remark(),
            _ => None,
        }
    }

    /// The interface statistics of a pcapng file, as far as it was read: all of a file that has few, of others at
    /// least the last of each interface.
    pub fn statistics(&self) -> &[InterfaceStatistics] {
        match &self.parser {
            Parser::Pcapng(parser) => &parser.statistics,
            _ => &[],
        }
    }

    /// The offset in the unpacked file at which the batch begins, with its packets and the blocks between them;
    /// before the first batch and at the end of the file, the offset at which reading goes on.
    pub fn batch_offset(&self) -> u64 {
        self.input.offset()
    }

    /// The offset in the unpacked file up to which it was read.
    pub fn read_offset(&self) -> u64 {
        self.input.offset() + self.input.len() as u64
    }

    /// Changes to [`ReadMode::Ahead`], from behind the packet that was lent last.
    pub fn read_ahead(&mut self) {
        self.records.clear();
        self.lent = 0;
        self.input.restart();
        self.reading = ReadMode::Ahead;
    }

    /// Changes to [`ReadMode::ByPacket`]. The caller has put the reader of a file that is not packed to
    /// [`batch_offset`](Self::batch_offset) before. Afterwards the reader is behind the batch's first `lent` packets;
    /// at the end of the file, or behind damage that was reported, it is where reading packet by packet ends. The bytes
    /// of the batch stay until the next [`advance`](Self::advance); the batch is empty.
    pub fn stop_reading_ahead(&mut self, lent: usize) {
        let steps = if self.is_ended && self.records.is_empty() { 1 } else { lent };
        self.reading = ReadMode::ByPacket;
        self.input.change_buffer();
        for _ in 0..steps {
            self.step();
        }
        self.records.clear();
    }

    /// Bytes read of the file as stored on disk, and its length, if it is a regular file.
    pub fn position(&self) -> (u64, Option<u64>) {
        (self.input.raw_read(), self.input.raw_len())
    }

    /// The records of the current batch, for callers that renumber interfaces.
    pub(crate) fn records_mut(&mut self) -> &mut [Record] {
        &mut self.records
    }

    /// Reads on until the file has named an interface, so that filters can be compiled before the first packet.
    fn find_first_interface(&mut self) -> Result<(), Error> {
        while self.interfaces.is_empty() && !self.is_ended && !self.is_waiting {
            self.parse_more();
        }
        self.is_parsed = !self.records.is_empty();
        // A fault behind the first interface is told by the first advance, as with pcap.
        match self.pending.take_if(|_| self.interfaces.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn give_back(&mut self) {
        self.input.consume(self.lent);
        self.lent = 0;
        self.records.clear();
    }

    /// Reads the next packet from the reader's position.
    fn step(&mut self) {
        self.records.clear();
        self.lent = 0;
        (self.pending, self.is_ended, self.is_parsed) = (None, false, false);
        self.parser.restart();
        self.input.restart();
        // The least length of an item: without it there is nothing to parse.
        if self.input.fill_up_to(self.parser.item_len_min()) {
            self.parse_batch();
        } else {
            self.is_ended = true;
            self.pending = self.why_ended(Stop::Full);
        }
    }

    fn parse_batch(&mut self) {
        self.is_waiting = false;
        while self.records.is_empty() && !self.is_ended && !self.is_waiting {
            self.parse_more();
        }
    }

    /// Parses the bytes that are there; reads on if they give no packet.
    fn parse_more(&mut self) {
        let stop = self.parse_window(BATCH_MAX);
        if !self.records.is_empty() {
            self.pending = stop.err();
            self.is_ended = self.pending.is_some();
            return;
        }
        self.give_back();
        match stop {
            Ok(Stop::Full) => {}
            Ok(stop @ Stop::Need { len, .. }) => {
                let missing = (len as usize).saturating_sub(self.input.len());
                if !self.input.fill_up_to(self.reading.most(missing)) {
                    self.is_waiting = self.reading == ReadMode::Polled && self.input.resume();
                    self.is_ended = !self.is_waiting;
                    self.pending = if self.is_ended { self.why_ended(stop) } else { None };
                }
            }
            Err(error) => {
                self.is_ended = true;
                self.pending = Some(error);
            }
        }
    }

    fn parse_window(&mut self, records_max: usize) -> Result<Stop, Error> {
        let FileSource { input, parser, interfaces, records, .. } = self;
        let (bytes, start) = input.window();
        let mut window = Window { bytes, at: start };
        let mut found = ParseOutput { interfaces, records, records_max };
        let result = parser.parse(&mut window, &mut found);
        self.lent = window.at - start;
        result.map_err(|fault| fault.in_file(&self.name, self.place(self.lent)))
    }

    /// The error for input that ended when the parser had stopped for this reason; `None` if a file may end there.
    fn why_ended(&mut self, stop: Stop) -> Option<Error> {
        let (name, place) = (self.name.clone(), self.place(self.input.len()));
        if let Some(source) = self.input.take_fault() {
            return Some(read_fault(name, place, source, self.compression()));
        }
        let Stop::Need { item, consumed, len } = stop else { return None };
        let have = self.input.len() as u64;
        if have == 0 && consumed == 0 {
            return None;
        }
        let item_offset = place.offset - have - consumed;
        let (is_file, missing) = (self.input.is_file(), len.saturating_sub(have));
        Some(Error::Truncated { name, is_file, place, item, item_offset, missing })
    }

    /// The place `at` bytes into the window.
    fn place(&self, at: usize) -> FilePosition {
        place(&self.input, at)
    }

    fn count(&mut self) {
        self.counters.resize(self.interfaces.len(), InterfaceCounters::default());
        // pcap has one interface and no word for losses.
        if let (Format::Pcap, [counters]) = (self.format, &mut self.counters[..]) {
            counters.packets += self.records.len() as u64;
            return;
        }
        for record in &self.records {
            let counters = &mut self.counters[record.meta.interface.0 as usize];
            counters.packets += 1;
            counters.drops = counters.drops.saturating_add(record.meta.drops_before);
        }
    }
}

/// A parser that keeps blocks without packets until it is known whether a copy of the file is made.
fn new_pcapng(keep: Keep) -> pcapng::Parser {
    let mut parser = pcapng::Parser::new(keep);
    parser.copies = (keep == Keep::All).then(BlockQueue::default);
    parser
}

fn place(input: &Input, at: usize) -> FilePosition {
    FilePosition { offset: input.offset() + at as u64, is_unpacked: input.compression().is_some() }
}

fn read_fault(
    name: String,
    place: FilePosition,
    source: io::Error,
    compression: Option<Compression>,
) -> Error {
    match compression {
        Some(compression) => {
            let source = match source.kind() {
                // Each decoder has words of its own for this.
                io::ErrorKind::UnexpectedEof => {
                    io::Error::new(source.kind(), "the file ends in the middle of them")
                }
                _ => source,
            };
            Error::Unpack { name, format: compression.name(), place, source }
        }
        None => Error::Read { name, place, source },
    }
}

/// The first bytes of the file, while the window has not moved past them: it has at least the length of a pcap
/// header.
fn head(input: &mut Input, reading: ReadMode) -> Vec<u8> {
    let mut missing = pcap::FILE_HEADER_LEN.saturating_sub(input.window().0.len());
    while missing > 0 && input.fill_up_to(reading.most(missing)) {
        missing = pcap::FILE_HEADER_LEN.saturating_sub(input.window().0.len());
    }
    let (bytes, _) = input.window();
    bytes[..bytes.len().min(pcap::FILE_HEADER_LEN)].to_vec()
}

/// Reads until the format is certain, which takes four bytes of most files.
fn detect_format(input: &mut Input, name: &str) -> Result<Format, Error> {
    loop {
        let (bytes, start) = input.window();
        if let Some(format) = detect::format(&bytes[start..]) {
            return Ok(format);
        }
        if input.len() >= DETECT_LEN || !input.fill() {
            return Err(no_format(input, name.to_owned()));
        }
    }
}

fn no_format(input: &mut Input, name: String) -> Error {
    if let Some(source) = input.take_fault() {
        let place = place(input, input.len());
        return read_fault(name, place, source, input.compression());
    }
    let (bytes, start) = input.window();
    match &bytes[start..] {
        [] => Error::Empty { name },
        bytes => Error::NotACapture { name, looks_like: detect::looks_like(bytes) },
    }
}

fn read_pcap_header(
    input: &mut Input,
    name: &str,
    interfaces: &mut Vec<Interface>,
    reading: ReadMode,
) -> Result<Parser, Error> {
    loop {
        let (bytes, start) = input.window();
        let bytes = &bytes[start..];
        // The format was detected by these four.
        let header_len = bytes.first_chunk().map_or(pcap::FILE_HEADER_LEN, |magic| pcap::header_len(*magic));
        if bytes.len() < header_len {
            let missing = header_len - bytes.len();
            if input.fill_up_to(reading.most(missing)) {
                continue;
            }
            let (name, place) = (name.to_owned(), place(input, input.len()));
            return Err(match input.take_fault() {
                Some(source) => read_fault(name, place, source, input.compression()),
                None => Error::Truncated {
                    name,
                    is_file: input.is_file(),
                    place,
                    item: "file header",
                    item_offset: 0,
                    missing: missing as u64,
                },
            });
        }
        if bytes.len() < LAYOUT_TRIAL_LEN && input.is_file() && input.fill() {
            continue;
        }
        return start_pcap(input, name, interfaces);
    }
}

fn start_pcap(input: &mut Input, name: &str, interfaces: &mut Vec<Interface>) -> Result<Parser, Error> {
    let (bytes, start) = input.window();
    match pcap::Header::parse(&bytes[start..]) {
        Ok(header) => {
            interfaces.push(header.interface);
            input.consume(header.len);
            Ok(Parser::Pcap(header.parser))
        }
        Err(fault) => Err(fault.in_file(name, place(input, 0))),
    }
}

/// Bytes of a pcap file in which its first records are looked at, to distinguish variants of one magic number. The
/// reader does not wait for them on pipes, which may bring them much later.
const LAYOUT_TRIAL_LEN: usize = 4096;
