//! Written files: round trips, rotation, full disks, broken pipes.

use crate::samples;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::samples::{Bytes, Noise, ORDERS, data, read};
use tapline_file::{
    BlockQueue, ByteOrder, Compression, DirectCreator, FileCreator, FileSource, FileWriter, Format,
    InterfaceStatistics, LeftOut, Precision, Rotation, Section, WriteError, WriteOptions, WriteProgress,
};
use tapline_packet::{
    Batch, ClockReading, Direction, Interface, InterfaceId, LinkType, Meta, PacketType, Record, Resolution,
    Selection, Timestamp, VlanTag,
};

const START: Timestamp = Timestamp::from_parts(1_700_000_000, 0);

fn seconds(s: i64) -> Timestamp {
    START.plus_nanos(s * 1_000_000_000)
}

/// A clock that is never set.
fn now(s: i64) -> ClockReading {
    ClockReading::unset(seconds(s))
}

fn writer(options: WriteOptions, interfaces: &[Interface]) -> FileWriter {
    FileWriter::create(options, interfaces, ClockReading::unset(START), Box::new(DirectCreator))
        .expect("created")
}

fn all(len: usize) -> Selection {
    let mut selection = Selection::none();
    selection.select_all(len);
    selection
}

/// Copies a file with our reader and writer.
fn copy(from: &[u8], to: &Path, change: impl FnOnce(&mut WriteOptions)) {
    let mut source =
        FileSource::from_reader(Box::new(io::Cursor::new(from.to_vec())), "in").expect("readable");
    let mut options = WriteOptions::new(to, source.interfaces());
    change(&mut options);
    let mut writer = writer(options, source.interfaces());
    while source.advance().expect("whole") {
        let batch = source.batch();
        writer.write(&batch, &all(batch.len()), source.interfaces()).expect("written");
    }
    writer.finish(&[]).expect("complete");
    assert_eq!((writer.written(), writer.lost()), (source.counters().iter().map(|c| c.packets).sum(), 0));
}

/// One packet of `len` bytes with this metadata, as a batch.
fn with_packet<T>(len: usize, meta: Meta, take: impl FnOnce(Batch<'_>) -> T) -> T {
    let base = data(len);
    take(Batch::new(&base, &[Record { offset: 0, cap_len: len as u32, options_len: 0, meta }]))
}

fn write_packets(
    writer: &mut FileWriter,
    interfaces: &[Interface],
    len: usize,
    count: usize,
) -> Result<(), WriteError> {
    let base = data(len);
    let meta = Meta { timestamp: START, wire_len: len as u32, ..Meta::default() };
    let records = vec![Record { offset: 0, cap_len: len as u32, options_len: 0, meta }; count];
    writer.write(&Batch::new(&base, &records), &all(count), interfaces)
}

/// Packets that cannot be packed much, each of other bytes.
fn write_noise(writer: &mut FileWriter, len: usize, count: usize, seed: u64) -> Result<(), WriteError> {
    let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let base: Vec<u8> = (0..len * count).map(|_| noise.below(256) as u8).collect();
    let meta = Meta { timestamp: START, wire_len: len as u32, ..Meta::default() };
    let record = |at| Record { offset: at * len, cap_len: len as u32, options_len: 0, meta };
    let records: Vec<Record> = (0..count).map(record).collect();
    writer.write(&Batch::new(&base, &records), &all(count), &ethernet())
}

/// The usual tool for a packed file finds nothing wrong with it, where it is installed.
fn unpacks(path: &Path) {
    let tool = match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => "gzip",
        Some("zst") => "zstd",
        Some("lz4") => "lz4",
        _ => return,
    };
    match std::process::Command::new(tool).arg("-t").arg(path).output() {
        Ok(output) => assert!(output.status.success(), "{tool} -t {}: {output:?}", path.display()),
        Err(_) => eprintln!("skipped: unpacks: no {tool} here"),
    }
}

fn ethernet() -> Vec<Interface> {
    vec![Interface::new("eth0", LinkType::ETHERNET)]
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn pcap_to_pcap_is_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.pcap");
    for (magic, link_field) in [(0xa1b2_c3d4, 1), (0xa1b2_3c4d, 0x2400_0001), (0xa1b2_c3d4, 40_000)] {
        let mut file = Bytes::new(ByteOrder::NATIVE);
        file.pcap_header(magic, (2, 4), 100, link_field);
        for i in 0..3000 {
            file.pcap_record((1_700_000_000 + i, i), 2000, &[], &data(i as usize % 101));
        }
        copy(&file.bytes, &path, |_| {});
        assert!(std::fs::read(&path).unwrap() == file.bytes, "{magic:x}");
    }
}

/// Everything that pcapng can say of a packet comes back.
#[test]
fn pcapng_keeps_all_metadata() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.pcapng");
    for order in ORDERS {
        let number = |n: u32| if order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let long = |n: u64| if order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let mut file = Bytes::new(order);
        file.section(&[]);
        file.interface(
            1,
            96,
            &[(2, b"eth0"), (12, b"Linux"), (8, &long(1000)), (11, b"\0ip"), (16, &long(7))],
        );
        file.interface(101, 0, &[(9, &[3])]);
        file.enhanced(
            0,
            55,
            &data(9),
            90,
            &[(1, b"a note"), (2, &number(1 | 2 << 2 | 4 << 5)), (4, &long(3))],
        );
        file.enhanced(1, 1_700_000_000_123, &data(4), 4, &[]);
        let before = read(&file.bytes);
        copy(&file.bytes, &path, |_| {});
        let after = read(&std::fs::read(&path).unwrap());
        assert!(after.error.is_none());
        assert_eq!(after.packets, before.packets);
        for (after, before) in after.interfaces.iter().zip(&before.interfaces) {
            assert_eq!(after.resolution, Resolution::NANO);
            assert_eq!(Interface { resolution: before.resolution, ..after.clone() }, *before);
        }
    }
}

/// No file of ours holds more of a packet than its header says, whatever the input held.
#[test]
fn packets_longer_than_the_snap_length_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = Bytes::new(ByteOrder::NATIVE);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 31, 1);
    file.pcap_record((1_700_000_000, 1), 60, &[], &data(34));
    assert_eq!(read(&file.bytes).packets[0].data.len(), 34, "the reader gives all that is there");
    for name in ["a.pcap", "a.pcapng", "a.pcap.gz"] {
        let path = directory.path().join(name);
        copy(&file.bytes, &path, |_| {});
        let whole = samples::read_source(&mut FileSource::open(&path).unwrap());
        assert_eq!((whole.packets[0].data.len(), whole.packets[0].meta.wire_len), (31, 60), "{name}");
        assert_eq!(whole.interfaces[0].snap_len, 31, "{name}");
    }
}

/// A pcap file of several interfaces has the greatest snap length in its header.
#[test]
fn the_greatest_snap_length_stands_in_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcap");
    let with = |snap_len| Interface { snap_len, ..Interface::new("", LinkType::ETHERNET) };
    let interfaces = [with(40), with(80)];
    let mut writer = writer(WriteOptions::new(&path, &interfaces), &interfaces);
    for interface in [0, 1] {
        let meta = Meta { wire_len: 100, interface: InterfaceId(interface), ..Meta::default() };
        with_packet(100, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    }
    writer.finish(&[]).unwrap();
    let whole = read(&std::fs::read(&path).unwrap());
    assert_eq!(whole.interfaces[0].snap_len, 80);
    assert_eq!(whole.packets.iter().map(|packet| packet.data.len()).collect::<Vec<_>>(), [40, 80]);
}

#[test]
fn pcapng_written_from_live_metadata() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("live.pcapng");
    let mut interfaces = ethernet();
    interfaces[0].filter = "udp".to_owned();
    let mut options = WriteOptions::new(&path, &interfaces);
    options.section =
        Section { comments: vec!["tapline test".to_owned()], ..Section::of_this_machine("tapline 9") };
    let mut writer = writer(options, &interfaces);
    let meta = Meta {
        timestamp: START.plus_nanos(7),
        wire_len: 60,
        direction: Direction::In,
        packet_type: PacketType::Multicast,
        drops_before: 4,
        label: 0,
        color: None,
        is_untimed: false,
        vlan: Some(VlanTag { tpid: 0x88a8, tci: 7 }),
        ..Meta::default()
    };
    with_packet(60, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    // Interfaces may come while packets are written.
    interfaces.push(Interface::new("tun0", LinkType::RAW));
    let raw = Meta { interface: InterfaceId(1), direction: Direction::Out, ..meta };
    with_packet(20, Meta { vlan: None, ..raw }, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    let statistics = InterfaceStatistics {
        interface: InterfaceId(0),
        taken: seconds(10),
        start: Some(START),
        end: Some(seconds(10)),
        received: Some(11),
        os_dropped: Some(4),
        ..InterfaceStatistics::default()
    };
    assert_eq!(writer.tick(now(9), &[statistics]).unwrap(), WriteProgress::Writing);
    assert_eq!(writer.tick(now(10), &[statistics]).unwrap(), WriteProgress::Writing);
    writer.finish(&[statistics]).unwrap();

    let mut source = FileSource::open(&path).unwrap();
    let whole = samples::read_source(&mut source);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    let tagged = &whole.packets[0];
    assert_eq!((tagged.data.len(), tagged.meta.wire_len), (64, 64));
    assert_eq!(tagged.data[12..16], [0x88, 0xa8, 0, 7]);
    assert_eq!((tagged.meta.direction, tagged.meta.packet_type), (Direction::In, PacketType::Multicast));
    assert_eq!((tagged.meta.drops_before, tagged.meta.timestamp), (4, START.plus_nanos(7)));
    assert_eq!(whole.packets[1].meta.direction, Direction::Out);
    assert_eq!(whole.interfaces[1].link_type, LinkType::RAW);
    assert_eq!(whole.interfaces[0].filter, "udp");
    assert_eq!(source.statistics(), [statistics, statistics], "one at the interval, one at the end");
    assert_eq!(
        (&*source.sections()[0].application, &*source.sections()[0].comments[0]),
        ("tapline 9", "tapline test")
    );
}

#[test]
fn pcap_leaves_out_other_link_types_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    let interfaces = vec![Interface::new("eth0", LinkType::ETHERNET), Interface::new("tun0", LinkType::RAW)];
    let mut writer = writer(WriteOptions::new(&path, &interfaces), &interfaces);
    let base = data(20);
    let record = |interface| Record {
        offset: 0,
        cap_len: 20,
        options_len: 0,
        meta: Meta { interface: InterfaceId(interface), wire_len: 20, ..Meta::default() },
    };
    let records = [record(0), record(0), record(1), record(0)];
    writer.write(&Batch::new(&base, &records), &all(4), &interfaces).unwrap();
    writer.write(&Batch::new(&base, &records), &all(4), &interfaces).unwrap();
    let [notice] = &writer.notices()[..] else { panic!("one notice") };
    assert!(notice.contains("tun0") && notice.contains("RAW") && notice.contains("pcapng"), "{notice}");
    writer.finish(&[]).unwrap();
    assert_eq!((writer.written(), writer.lost(), writer.unfit()), (6, 2, 2));
    assert_eq!(read(&std::fs::read(&path).unwrap()).packets.len(), 6);
}

#[test]
fn packed_output_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let (_, file) = &samples::small_files()[0];
    for (name, packing) in [("a.pcap.gz", "gzip"), ("a.pcap.zst", "zstd"), ("a.pcapng.lz4", "lz4")] {
        let path = directory.path().join(name);
        copy(&file.bytes, &path, |_| {});
        let mut source = FileSource::open(&path).unwrap();
        assert_eq!(source.compression().map(Compression::name), Some(packing));
        assert_eq!(samples::read_source(&mut source).packets.len(), 5);
        let (read, len) = source.position();
        assert_eq!(Some(read), len, "progress ends at the end");
    }
}

#[test]
fn a_flushed_batch_can_be_read_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcap.gz", "a.pcap.zst", "a.pcap.lz4"] {
        let path = directory.path().join(name);
        let mut options = WriteOptions::new(&path, &ethernet());
        options.is_flushed_each_batch = true;
        let mut writer = writer(options, &ethernet());
        write_packets(&mut writer, &ethernet(), 60, 3).unwrap();
        let found = read(&std::fs::read(&path).unwrap());
        assert_eq!(found.packets.len(), 3, "{name}");
        assert_eq!(writer.written(), 3);
    }
}

#[test]
fn rotation_by_size_goes_round_as_tcpdump_does() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = WriteOptions::new(&directory.path().join("x"), &ethernet());
    options.rotation = Rotation { size_max: Some(500), count: Some(3), period_s: None };
    let mut writer = writer(options, &ethernet());
    // Each record has 116 bytes: a file is found too long after five (24 + 5 * 116 = 604).
    for _ in 0..4 {
        write_packets(&mut writer, &ethernet(), 100, 5).unwrap();
    }
    writer.finish(&[]).unwrap();
    assert_eq!(names(directory.path()), ["x0", "x1", "x2"]);
    let counts = ["x0", "x1", "x2"].map(|name| {
        let bytes = std::fs::read(directory.path().join(name)).unwrap();
        let whole = read(&bytes);
        assert!(whole.error.is_none());
        whole.packets.len()
    });
    assert_eq!(counts, [5, 5, 5], "the first was overwritten by the fourth");
    assert_eq!((writer.written(), writer.lost()), (20, 0));
}

#[test]
fn rotation_by_clock_needs_no_packets() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = WriteOptions::new(&directory.path().join("t%s.pcapng"), &ethernet());
    options.rotation = Rotation { period_s: Some(10), count: Some(3), size_max: None };
    options.has_part_name = true;
    let mut writer = writer(options, &ethernet());
    assert_eq!(names(directory.path()), ["t1700000000.pcapng.part"]);
    assert_eq!(writer.tick(now(9), &[]).unwrap(), WriteProgress::Writing);
    assert_eq!(writer.tick(now(10), &[]).unwrap(), WriteProgress::Writing);
    assert_eq!(names(directory.path()), ["t1700000000.pcapng", "t1700000010.pcapng.part"]);
    write_packets(&mut writer, &ethernet(), 60, 2).unwrap();
    assert_eq!(writer.tick(now(20), &[]).unwrap(), WriteProgress::Writing);
    assert_eq!(writer.tick(now(30), &[]).unwrap(), WriteProgress::Done);
    assert_eq!(names(directory.path()), ["t1700000000.pcapng", "t1700000010.pcapng", "t1700000020.pcapng"]);
    assert_eq!(read(&std::fs::read(directory.path().join("t1700000010.pcapng")).unwrap()).packets.len(), 2);
    // Packets that come now have no file.
    assert!(write_packets(&mut writer, &ethernet(), 60, 2).is_err());
    assert_eq!((writer.written(), writer.lost()), (2, 2));
    writer.finish(&[]).unwrap();
}

/// The names that tcpdump itself makes, file by file.
#[test]
fn rotated_names_and_contents_equal_tcpdumps() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.pcap");
    let mut file = Bytes::new(ByteOrder::NATIVE);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 65_535, 1);
    for i in 0..4000 {
        file.pcap_record((1_700_000_000 + i, i), 1000, &[], &data(1000));
    }
    std::fs::write(&input, &file.bytes).unwrap();
    for count in [None, Some(1), Some(2), Some(12)] {
        let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
        for path in [&ours, &theirs] {
            let _ = std::fs::remove_dir_all(path);
            std::fs::create_dir(path).unwrap();
        }
        let mut tcpdump = std::process::Command::new("tcpdump");
        tcpdump.args(["-Z", "root", "-C", "1", "-r"]).arg(&input).arg("-w").arg(theirs.join("x"));
        if let Some(count) = count {
            tcpdump.arg("-W").arg(count.to_string());
        }
        match tcpdump.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                return eprintln!(
                    "skipped: tcpdump may not run here: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            Err(_) => return eprintln!("skipped: no tcpdump here"),
        }
        copy(&file.bytes, &ours.join("x"), |options| {
            options.rotation = Rotation { size_max: Some(1_000_000), count, period_s: None };
        });
        assert_eq!(names(&ours), names(&theirs), "{count:?}");
        for name in names(&ours) {
            let [a, b] = [&ours, &theirs].map(|path| std::fs::read(path.join(&name)).unwrap());
            assert!(a == b, "{count:?} {name}");
        }
    }
}

/// Two captures that write one file would destroy both: the second is refused, and the first keeps its packets.
#[test]
fn one_file_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    let options = || WriteOptions::new(&path, &ethernet());
    let mut first = writer(options(), &ethernet());
    write_packets(&mut first, &ethernet(), 60, 3).unwrap();
    first.flush().unwrap();
    let second = FileWriter::create(options(), &ethernet(), now(0), Box::new(DirectCreator));
    let error = second.err().expect("refused").to_string();
    assert!(error.contains("another program writes to it"), "{error}");
    assert_eq!(read(&std::fs::read(&path).unwrap()).packets.len(), 3);
    first.finish(&[]).unwrap();
    drop(writer(options(), &ethernet()));
}

#[test]
fn a_file_that_was_renamed_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let [path, old] = ["x.pcapng", "x.pcapng.1"].map(|name| directory.path().join(name));
    let mut writer = writer(WriteOptions::new(&path, &ethernet()), &ethernet());
    write_packets(&mut writer, &ethernet(), 60, 3).unwrap();
    assert!(!writer.reopen(&[]).unwrap(), "it is the same");
    std::fs::rename(&path, &old).unwrap();
    write_packets(&mut writer, &ethernet(), 60, 2).unwrap();
    assert!(writer.reopen(&[]).unwrap());
    write_packets(&mut writer, &ethernet(), 60, 4).unwrap();
    writer.finish(&[]).unwrap();
    assert_eq!((writer.written(), writer.lost()), (9, 0));
    for (path, packets) in [(&old, 5), (&path, 4)] {
        assert_eq!(read(&std::fs::read(path).unwrap()).packets.len(), packets, "{}", path.display());
    }
}

#[test]
fn standard_output_cannot_be_rotated() {
    let mut options = WriteOptions::new("-".as_ref(), &ethernet());
    options.rotation.size_max = Some(5);
    let error = FileWriter::create(options, &ethernet(), ClockReading::unset(START), Box::new(DirectCreator))
        .err()
        .expect("refused");
    assert!(error.to_string().contains("standard output"));
}

/// Gives out these files one after the other, whatever the name.
struct Given(Vec<File>);

impl FileCreator for Given {
    fn create(&mut self, _path: &Path) -> io::Result<File> {
        self.0.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that ends as a pipe does, and its other end.
fn pipe() -> (UnixStream, File) {
    let (reader, writer) = UnixStream::pair().unwrap();
    (reader, File::from(std::os::fd::OwnedFd::from(writer)))
}

/// Ends a reader at once: a program that another test is about to start has a copy of its descriptor.
fn end(reader: UnixStream) {
    reader.shutdown(Shutdown::Both).unwrap();
}

/// The second file of a rotation fails at its header: no packet counts as written that is not.
#[test]
fn a_failed_file_header_loses_later_packets() {
    for format in [Format::Pcap, Format::Pcapng] {
        let (reader, broken) = pipe();
        end(reader);
        let mut options = WriteOptions::new("x".as_ref(), &ethernet());
        options.format = format;
        options.rotation.size_max = Some(300);
        let first = tempfile::tempfile().unwrap();
        let given = Box::new(Given(vec![broken, first]));
        let mut writer = FileWriter::create(options, &ethernet(), ClockReading::unset(START), given).unwrap();
        let error = write_packets(&mut writer, &ethernet(), 100, 10).expect_err("the second file fails");
        assert!(matches!(error, WriteError::BrokenPipe { .. }), "{error}");
        // 24 + 3 * 116 and 28 + 64 + 2 * 132 bytes are the first to exceed 300.
        assert!((2..=3).contains(&writer.written()), "{} written", writer.written());
        assert_eq!(writer.written() + writer.lost(), 10);
    }
}

#[test]
fn a_broken_pipe_is_told_apart() {
    let (reader, pipe) = pipe();
    let given = Given(vec![pipe]);
    let options = WriteOptions::new("pipe".as_ref(), &ethernet());
    let mut writer =
        FileWriter::create(options, &ethernet(), ClockReading::unset(START), Box::new(given)).unwrap();
    end(reader);
    write_packets(&mut writer, &ethernet(), 60, 4).unwrap();
    let error = writer.flush().expect_err("the pipe has no reader");
    assert!(matches!(error, WriteError::BrokenPipe { .. }), "{error}");
    assert_eq!((writer.written(), writer.lost()), (0, 4));
}

#[test]
fn a_device_that_is_full_at_once() {
    let options = WriteOptions::new("/dev/full".as_ref(), &ethernet());
    let error = FileWriter::create(options, &ethernet(), ClockReading::unset(START), Box::new(DirectCreator))
        .err()
        .expect("full");
    assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
}

/// A file system of 256 KiB, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<SmallDisk> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tapline-test"]).arg(at);
        mount.output().ok()?.status.success().then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn full_disks_leave_whole_records_and_count_losses() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path()) else {
        return eprintln!("skipped: no right to mount a small file system");
    };
    let names = ["a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz", "a.pcap.zst", "a.pcap.lz4"];
    for (name, is_flushed_each_batch) in names.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let path = disk.0.join(name);
        let mut options = WriteOptions::new(&path, &ethernet());
        options.is_flushed_each_batch = is_flushed_each_batch;
        options.precision = Precision::Nano;
        let mut writer = writer(options, &ethernet());
        let mut given = 0;
        let error = loop {
            given += 200;
            if let Err(error) = write_noise(&mut writer, 333, 200, given) {
                break error;
            }
        };
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("full") && error.to_string().contains("lost"), "{error}");
        writer.finish(&[]).unwrap();
        let whole = read(&std::fs::read(&path).unwrap());
        assert!(whole.error.is_none(), "{name}: {:?}", whole.error);
        assert_eq!(whole.packets.len() as u64, writer.written(), "{name}");
        assert_eq!(writer.written() + writer.lost(), given, "{name}");
        assert!(writer.written() >= 200, "{name}: {} written", writer.written());
        unpacks(&path);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn times_outside_of_pcap_become_the_nearest() {
    let directory = tempfile::tempdir().unwrap();
    for (time, expected) in [(-5, 0), (i64::MAX / 1_000_000_000, u32::MAX.into())] {
        let path = directory.path().join("x.pcap");
        let mut writer = writer(WriteOptions::new(&path, &ethernet()), &ethernet());
        let meta = Meta { timestamp: Timestamp::from_parts(time, 0), ..Meta::default() };
        with_packet(4, meta, |batch| writer.write(&batch, &all(1), &ethernet())).unwrap();
        writer.finish(&[]).unwrap();
        let whole = read(&std::fs::read(&path).unwrap());
        assert_eq!(whole.packets[0].meta.timestamp.seconds(), expected);
    }
}

/// A pcapng file with a block of each kind other than packets, between two packets.
fn with_blocks(order: ByteOrder) -> Vec<u8> {
    let mut file = Bytes::new(order);
    let custom_option = file.body(|b| {
        b.u32(32_473).raw(b"kept");
    });
    file.section(&[
        (1, b"hello section"),
        (2, b"card"),
        (3, b"BSD"),
        (4, b"other 1.0"),
        (2988, &custom_option),
    ]);
    let secrets = file.body(|b| {
        b.u32(0x544c_534b).u32(6).padded(b"KEYS 1").options(&[(1, b"of yesterday")]);
    });
    file.block(10, &secrets).interface(1, 96, &[(2, b"eth0"), (1, b"uplink")]);
    file.enhanced(0, 1_000, &data(5), 50, &[(1, b"first packet")]);
    let names = file.body(|b| {
        b.u16(1)
            .u16(9)
            .padded(&[10, 0, 0, 1, b'h', b'o', b's', b't', 0])
            .u16(0)
            .u16(0)
            .options(&[(2, b"ns.")]);
    });
    file.block(4, &names);
    file.block(9, b"__REALTIME_TIMESTAMP=1\n");
    file.enhanced(0, 2_000, &data(6), 60, &[]);
    let custom = file.body(|b| {
        b.u32(32_473).padded(b"custom data");
    });
    file.block(0x0bad, &custom).block(0x4000_0bad, &custom).block(0x8000_0001, &[1; 8]);
    file.bytes
}

/// Types of the blocks of a file in this machine's order, and the bytes of each.
fn blocks_of(file: &[u8]) -> Vec<(u32, &[u8])> {
    let (mut rest, mut blocks) = (file, Vec::new());
    while !rest.is_empty() {
        let number = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let (block, behind) = rest.split_at(number(4) as usize);
        blocks.push((number(0), block));
        rest = behind;
    }
    blocks
}

/// Copies a file with its blocks. Which were left out is returned.
fn copy_with_blocks(from: &[u8], to: &Path, change: impl FnOnce(&mut WriteOptions)) -> LeftOut {
    let queue = BlockQueue::default();
    let mut source =
        FileSource::from_reader(Box::new(io::Cursor::new(from.to_vec())), "in").expect("readable");
    source.copy_blocks_to(&queue);
    let mut options = WriteOptions::new(to, source.interfaces());
    options.section.application = "tapline 9".to_owned();
    options.blocks = Some(queue.clone());
    change(&mut options);
    let mut writer = writer(options, source.interfaces());
    while source.advance().expect("whole") {
        let batch = source.batch();
        writer.write(&batch, &all(batch.len()), source.interfaces()).expect("written");
    }
    writer.finish(&[]).expect("complete");
    queue.left_out()
}

#[test]
fn blocks_without_packets_keep_their_positions() {
    let directory = tempfile::tempdir().unwrap();
    let other = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
    for order in [ByteOrder::NATIVE, other] {
        let (from, to) = (with_blocks(order), directory.path().join("copy.pcapng"));
        let left_out = copy_with_blocks(&from, &to, |_| {});
        let copy = std::fs::read(&to).unwrap();
        let blocks = blocks_of(&copy);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        let is_native = order == ByteOrder::NATIVE;
        let mut expected = vec![0x0a0d_0d0a, 1, 10, 6, 4, 9, 6];
        expected.extend(is_native.then_some(0x0bad));
        assert_eq!(kinds, expected);
        assert_eq!((left_out.not_to_copy, left_out.local), (1, 1));
        assert_eq!(left_out.other_byte_order, u64::from(!is_native));
        let original = with_blocks(ByteOrder::NATIVE);
        for (kind, block) in blocks_of(&original).iter().filter(|(kind, _)| [4, 9, 10].contains(kind)) {
            assert!(blocks.contains(&(*kind, block)), "block {kind} is the same");
        }
    }
}

#[test]
fn a_copy_keeps_the_words_of_its_section() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("copy.pcapng");
    let mut from = with_blocks(ByteOrder::NATIVE);
    from.extend(with_blocks(ByteOrder::NATIVE));
    let mut second = Bytes::new(ByteOrder::NATIVE);
    second.section(&[(1, b"a second place")]).interface(1, 96, &[(2, b"eth0")]);
    second.enhanced(0, 3_000, &data(7), 7, &[]);
    from.extend(second.bytes);
    copy_with_blocks(&from, &to, |options| options.section.comments.push("copied".to_owned()));
    let mut source = FileSource::open(&to).unwrap();
    let whole = samples::read_source(&mut source);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    assert_eq!(whole.packets.len(), 5);
    let [first, second] = source.sections() else { panic!("two sections: {:?}", source.sections()) };
    assert_eq!((&*first.hardware, &*first.os, &*first.application), ("card", "BSD", "tapline 9"));
    assert_eq!(first.comments, ["hello section", "copied from a section that other 1.0 wrote", "copied"]);
    assert_eq!(first.options, [(2988, [&32_473u32.to_ne_bytes()[..], b"kept"].concat())]);
    assert_eq!(second.comments, ["a second place", "copied"]);
    assert_eq!(whole.packets[0].options[4..16], *b"first packet");
}

#[test]
fn each_file_of_a_rotation_has_names_and_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("copy.pcapng");
    let left_out = copy_with_blocks(&with_blocks(ByteOrder::NATIVE), &to, |options| {
        options.rotation.size_max = Some(1);
    });
    assert_eq!(left_out.other_format, 0);
    let second = std::fs::read(directory.path().join("copy.pcapng2")).unwrap();
    let kinds: Vec<u32> = blocks_of(&second).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 10, 4, 6, 0x0bad]);
}

#[test]
fn a_format_without_blocks_counts_them() {
    let directory = tempfile::tempdir().unwrap();
    let left_out =
        copy_with_blocks(&with_blocks(ByteOrder::NATIVE), &directory.path().join("x.pcap"), |_| {});
    assert_eq!(left_out.other_format, 4, "{left_out:?}");
    assert!(left_out.clauses()[0].contains("write pcapng"), "{:?}", left_out.clauses());
}

#[test]
fn erf_comes_back_with_times_and_lengths() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.erf");
    let mut interface = Interface::new("eth0", LinkType::ETHERNET);
    interface.fcs_len = Some(4);
    let interfaces = [interface, Interface::new("ip", LinkType::RAW)];
    let mut writer = writer(WriteOptions::new(&path, &interfaces), &interfaces);
    let times = [0, 1, 499_999_999, 999_999_999];
    for nanos in times {
        let meta =
            Meta { wire_len: 70, timestamp: START.plus_nanos(nanos), drops_before: 3, ..Meta::default() };
        with_packet(61, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    }
    let timestamp = START.plus_nanos(1_000_000_000);
    let meta = Meta { wire_len: 40, timestamp, interface: InterfaceId(1), ..Meta::default() };
    with_packet(40, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    writer.finish(&[]).unwrap();
    let whole = samples::read(&std::fs::read(&path).unwrap());
    assert!(whole.error.is_none(), "{:?}", whole.error);
    for (packet, nanos) in whole.packets.iter().zip(times) {
        assert_eq!((packet.data.len(), packet.meta.wire_len, packet.meta.drops_before), (61, 70, 3));
        assert_eq!(packet.data, data(61));
        assert_eq!(packet.meta.timestamp, START.plus_nanos(nanos));
    }
    assert_eq!((whole.packets[4].data.as_slice(), whole.packets[4].meta.wire_len), (&*data(40), 40));
    assert_eq!(whole.interfaces[1].link_type, LinkType::IPV4);
}

#[test]
fn erf_leaves_out_what_it_cannot_hold() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.erf");
    let interfaces = [ethernet()[0].clone(), Interface::new("wlan", LinkType::IEEE802_11)];
    let mut writer = writer(WriteOptions::new(&path, &interfaces), &interfaces);
    let meta = Meta { wire_len: 60, ..Meta::default() };
    with_packet(60, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    let meta = Meta { interface: InterfaceId(1), ..meta };
    with_packet(60, meta, |batch| writer.write(&batch, &all(1), &interfaces)).unwrap();
    assert!(matches!(&writer.notices()[..], [one] if one.contains("ERF has no record")));
    assert_eq!((writer.lost(), writer.unfit()), (1, 1));
    writer.finish(&[]).unwrap();
    let whole = samples::read(&std::fs::read(&path).unwrap());
    assert_eq!((whole.packets[0].data.len(), whole.packets[0].meta.wire_len), (64, 64));
    // The residue of CRC-32 over a frame and its check sequence.
    let mut crc = flate2::Crc::new();
    crc.update(&whole.packets[0].data);
    assert_eq!(crc.sum(), 0x2144_df1c);
}

/// A file of two packets of one interface: one with a time, and one in a simple packet block.
fn with_untimed(order: ByteOrder, link_type: u16) -> Vec<u8> {
    let mut file = Bytes::new(order);
    file.section(&[]).interface(link_type, 0, &[]);
    let timed = file.body(|b| {
        b.u32(0).u32(0x0006_0000).u32(0).u32(5).u32(5).raw(&[1, 2, 3, 4, 5, 0, 0, 0]);
    });
    file.block(6, &timed);
    let untimed = file.body(|b| {
        b.u32(6).raw(&[1, 2, 3, 4, 5, 6, 0, 0]);
    });
    file.block(3, &untimed);
    file.bytes.clone()
}

#[test]
fn a_packet_without_a_time_has_none_in_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    for order in ORDERS {
        let original = with_untimed(order, 1);
        let path = directory.path().join("copy.pcapng");
        copy(&original, &path, |_| {});
        let whole = read(&std::fs::read(&path).unwrap());
        let untimed: Vec<bool> = whole.packets.iter().map(|packet| packet.meta.is_untimed).collect();
        assert_eq!(untimed, [false, true]);
        assert_eq!(whole.packets[1].data, [1, 2, 3, 4, 5, 6]);
    }
    // Another interface cannot have a simple packet; then a comment says that the time means nothing.
    let path = directory.path().join("other.pcapng");
    let interfaces = [ethernet(), ethernet()].concat();
    let mut two = writer(WriteOptions::new(&path, &interfaces), &interfaces);
    let meta = Meta { is_untimed: true, wire_len: 9, interface: InterfaceId(1), ..Meta::default() };
    with_packet(9, meta, |batch| two.write(&batch, &all(1), &interfaces)).unwrap();
    two.finish(&[]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("the time of this packet is unknown"));
    // A pcap file must give it one, and the writer says so.
    let path = directory.path().join("x.pcap");
    let mut pcap = writer(WriteOptions::new(&path, &ethernet()), &ethernet());
    let meta = Meta { is_untimed: true, wire_len: 9, ..Meta::default() };
    for _ in 0..2 {
        with_packet(9, meta, |batch| pcap.write(&batch, &all(1), &ethernet())).unwrap();
    }
    assert!(matches!(&pcap.notices()[..], [one] if one.contains("1970")));
}

#[test]
fn a_copy_keeps_the_number_of_an_unknown_link_type() {
    let directory = tempfile::tempdir().unwrap();
    for number in [18, 13, 20, 98, 290, 65_535] {
        let original = with_untimed(ByteOrder::NATIVE, number);
        for name in ["copy.pcap", "copy.pcapng"] {
            let path = directory.path().join(name);
            copy(&original, &path, |_| {});
            assert_eq!(read(&std::fs::read(&path).unwrap()).interfaces[0].link_type, LinkType(number));
        }
    }
}

#[test]
fn a_length_that_is_no_multiple_of_four_is_told() {
    for order in ORDERS {
        let mut bytes = with_untimed(order, 1);
        let mut whole = FileSource::from_reader(Box::new(io::Cursor::new(bytes.clone())), "x").unwrap();
        while whole.advance().unwrap() {}
        assert_eq!(whole.remark(), None);
        // A block that nobody knows, of 11 bytes of body and one of padding, which its length leaves out.
        let mut odd = Bytes::new(order);
        odd.u32(0x99).u32(23).raw(&[7; 11]).raw(&[0]).u32(23);
        bytes.extend(odd.bytes);
        bytes.extend(&with_untimed(order, 1));
        let mut source = FileSource::from_reader(Box::new(io::Cursor::new(bytes)), "x").unwrap();
        while source.advance().unwrap() {}
        assert_eq!(source.counters().iter().map(|counters| counters.packets).sum::<u64>(), 4);
        let remark = source.remark().expect("a block has an odd length");
        assert!(remark.starts_with("1 block has") && remark.contains("the first one 23"), "{remark}");
    }
}

/// A reader finds each packet that was reported as written, with all bytes, whatever lengths and times packets have.
#[test]
fn written_is_what_a_reader_finds() {
    let directory = tempfile::tempdir().unwrap();
    let erf = |kind: u8, len: u16| {
        let mut record = vec![0; 40];
        (record[8], record[10], record[11]) = (kind, (len >> 8) as u8, len as u8);
        record
    };
    let records = [erf(2, 40), erf(2, 1000), erf(48, 40), erf(0x82, 40), erf(24, 40), vec![2; 9]];
    for (link_type, packets, found) in [
        (LinkType::ETHERNET, [data(60), data(1), data(0), data(61), data(62), data(63)], 6),
        (LinkType::IPV4, [data(60), data(1), data(0), data(61), data(62), data(63)], 6),
        (LinkType::ERF, records, 4),
    ] {
        let interfaces = vec![Interface::new("eth0", link_type)];
        for name in ["out.erf", "out.pcap", "out.pcapng"] {
            let path = directory.path().join(name);
            let mut writer = writer(WriteOptions::new(&path, &interfaces), &interfaces);
            for (number, packet) in packets.iter().enumerate() {
                let cap_len = packet.len() as u32;
                // One in two has fewer bytes on the wire than captured, and the clock jumps by years.
                let wire_len = if number % 2 == 0 { cap_len } else { cap_len / 4 };
                let timestamp = seconds([0, 1 << 31, 5, -(1 << 30)][number % 4]);
                let meta = Meta { timestamp, wire_len, ..Meta::default() };
                let record = Record { offset: 0, cap_len, options_len: 0, meta };
                writer.write(&Batch::new(packet, &[record]), &all(1), &interfaces).expect("written");
            }
            writer.finish(&[]).expect("complete");
            let whole = read(&std::fs::read(&path).unwrap());
            assert!(whole.error.is_none(), "{name} {link_type}: {:?}", whole.error);
            assert_eq!(whole.packets.len() as u64, writer.written(), "{name} {link_type}");
            assert_eq!(writer.written() + writer.lost(), packets.len() as u64);
            assert_eq!(writer.written(), if name == "out.erf" { found } else { 6 }, "{name} {link_type}");
            for (packet, written) in whole.packets.iter().zip(&packets).filter(|_| link_type != LinkType::ERF)
            {
                assert!(packet.data.starts_with(written), "{name} {link_type}");
            }
        }
    }
}
