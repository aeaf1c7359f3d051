//! A disk that is full at each byte in turn: a reader finds the packets that were reported as written, and no others.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tapline_packet::{Batch, ClockReading, Interface, LinkType, Meta, Record, Selection, Timestamp};
use tapline_testkit::volume::volume;

use super::options::{Format, WriteOptions};
use super::output::Target;
use super::rotation::Rotation;
use super::writer::{FileWriter, OutputFiles};
use crate::FileSource;
use crate::error::Error;
use crate::input::Compression;

/// Packets in a run, and in a batch.
const PACKETS: usize = 12;
const BATCH: usize = 3;

/// Files in memory, with room for a number of bytes in all.
#[derive(Default)]
struct Disk {
    files: BTreeMap<PathBuf, Vec<u8>>,
    room: usize,
    /// Whether written bytes can be taken back, as from a file but not from a pipe.
    can_be_cut: bool,
}

#[derive(Clone)]
struct Handle(Arc<Mutex<Disk>>);

impl Handle {
    fn new(room: usize, can_be_cut: bool) -> Handle {
        Handle(Arc::new(Mutex::new(Disk { room, can_be_cut, ..Disk::default() })))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("no test panics with it")
    }
}

impl OutputFiles for Handle {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Target>> {
        self.disk().files.insert(path.to_owned(), Vec::new());
        Ok(Box::new(OpenFile { disk: self.clone(), path: path.to_owned() }))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let bytes = disk.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.files.insert(to.to_owned(), bytes);
        Ok(())
    }
}

struct OpenFile {
    disk: Handle,
    path: PathBuf,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.disk.disk();
        let used: usize = disk.files.values().map(Vec::len).sum();
        let len = bytes.len().min(disk.room - used);
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = disk.files.get_mut(&self.path).expect("it is open");
        file.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for OpenFile {
    fn take_back(&mut self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.disk();
        if !disk.can_be_cut {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = disk.files.get_mut(&self.path).expect("it is open");
        file.truncate(file.len() - len as usize);
        Ok(())
    }
}

/// The settings under which a file is written.
#[derive(Clone, Copy, Debug)]
struct WriteCase {
    format: Format,
    compression: Option<Compression>,
    is_flushed_each_batch: bool,
    is_rotated: bool,
    has_part_name: bool,
    can_be_cut: bool,
}

fn ways() -> Vec<WriteCase> {
    let mut ways = Vec::new();
    for format in [Format::Pcap, Format::Pcapng] {
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd), Some(Compression::Lz4)] {
            for number in 0..16u8 {
                let bit = |bit: u8| number & 1 << bit != 0;
                let (is_flushed_each_batch, is_rotated) = (bit(0), bit(1));
                let (has_part_name, can_be_cut) = (bit(2), bit(3));
                ways.push(WriteCase {
                    format,
                    compression,
                    is_flushed_each_batch,
                    is_rotated,
                    has_part_name,
                    can_be_cut,
                });
            }
        }
    }
    ways
}

/// Writes packets until the end or a failure; the writer's account.
fn write(way: WriteCase, disk: &Handle) -> (u64, u64, usize) {
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
    let mut options = WriteOptions::new("x".as_ref(), &interfaces);
    options.format = way.format;
    options.compression = way.compression;
    options.is_flushed_each_batch = way.is_flushed_each_batch;
    options.has_part_name = way.has_part_name;
    if way.is_rotated {
        options.rotation = Rotation { size_max: Some(400), ..Rotation::default() };
    }
    let start = ClockReading::unset(Timestamp::from_parts(1_700_000_000, 0));
    let Ok(mut writer) = FileWriter::create_in(Box::new(disk.clone()), options, &interfaces, start) else {
        return (0, 0, 0);
    };
    let mut given = 0;
    for batch in 0..PACKETS / BATCH {
        let (bytes, records) = packets(batch * BATCH);
        let mut selection = Selection::none();
        selection.select_all(BATCH);
        given += BATCH;
        if writer.write(&Batch::new(&bytes, &records), &selection, &interfaces).is_err() {
            break;
        }
    }
    let _ = writer.finish(&[]);
    assert_eq!(writer.buffered(), 0);
    (writer.written(), writer.lost(), given)
}

/// A batch of packets that differ in length and bytes, half of which can be packed.
fn packets(first: usize) -> (Vec<u8>, Vec<Record>) {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for number in first..first + BATCH {
        let len = 30 + 7 * number;
        let meta = Meta { wire_len: len as u32, ..Meta::default() };
        records.push(Record { offset: bytes.len(), cap_len: len as u32, options_len: 0, meta });
        bytes.extend((0..len).map(|at| if at % 2 == 0 { (at * at * 31 + number * 57) as u8 } else { 0 }));
    }
    (bytes, records)
}

/// The packets that a reader finds in all files, and the files that have no end.
fn read(disk: &Disk) -> (u64, usize) {
    let (mut found, mut unended) = (0, 0);
    for (path, bytes) in &disk.files {
        let source = FileSource::from_reader(Box::new(Cursor::new(bytes.clone())), "x");
        let mut source = match source {
            Ok(source) => source,
            // Its header is missing, or no interface is described.
            Err(_) => continue,
        };
        loop {
            match source.advance() {
                Ok(true) => found += source.batch().len() as u64,
                Ok(false) => break,
                Err(Error::Unpack { .. } | Error::Truncated { .. }) => {
                    unended += 1;
                    break;
                }
                Err(other) => panic!("{}: {other}", path.display()),
            }
        }
    }
    (found, unended)
}

#[test]
fn written_packets_are_read_at_every_failing_byte() {
    // Each way takes one byte in five, other bytes than the way before it; `TAPLINE_FAILING_BYTES=5` takes all.
    let every = 5 / volume("TAPLINE_FAILING_BYTES", 1).clamp(1, 5) as usize;
    for (number, way) in ways().into_iter().enumerate() {
        let whole = Handle::new(usize::MAX, true);
        assert_eq!(write(way, &whole), (PACKETS as u64, 0, PACKETS), "{way:?}");
        assert_eq!(read(&whole.disk()), (PACKETS as u64, 0), "{way:?}");
        let total: usize = whole.disk().files.values().map(Vec::len).sum();
        for room in (number % every..total).step_by(every) {
            let disk = Handle::new(room, way.can_be_cut);
            let (written, lost, given) = write(way, &disk);
            assert_eq!(written + lost, given as u64, "{way:?}, {room} bytes");
            let (found, unended) = read(&disk.disk());
            if way.can_be_cut || way.compression.is_none() {
                assert_eq!(found, written, "{way:?}, {room} bytes");
            } else {
                // Packets behind the last mark of a stream that cannot be cut are not told, though some of them may
                // be readable.
                assert!(found >= written, "{way:?}, {room} bytes: {found} found, {written} written");
            }
            // A file that can be cut ends as it should, but where there is no room for the end itself.
            if way.can_be_cut && unended > 0 {
                let used: usize = disk.disk().files.values().map(Vec::len).sum();
                assert!(unended == 1 && room - used < 10, "{way:?}, {room} bytes, {used} used");
            }
        }
    }
}

/// With -U every packet that was given can be read at once, whatever the packing.
#[test]
fn a_flushed_stream_can_be_read_while_it_grows() {
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Lz4] {
        let mut packer = super::packer::Packer::new(compression).expect("memory");
        let mut stream = Vec::new();
        let mut plain = Vec::new();
        for number in 0..200u32 {
            let piece = vec![number as u8; (number as usize * 37) % 3000 + 1];
            stream.extend_from_slice(packer.pack(&piece).expect("packed"));
            packer.mark();
            plain.extend_from_slice(&piece);
            let unpacked = unpack(compression, &stream);
            assert!(unpacked == plain, "{compression:?}, piece {number}");
            let ended = [&stream[..], &packer.end()].concat();
            assert!(unpack(compression, &ended) == plain, "{compression:?}, piece {number}");
        }
    }
}

fn unpack(compression: Compression, stream: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut reader = compression.unpack_all(Cursor::new(stream.to_vec())).expect("a stream");
    let _ = io::Read::read_to_end(&mut reader, &mut plain);
    plain
}
