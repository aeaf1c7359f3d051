//! Other programs as judges: tcpdump copies what we read, and reads what we write; so do tshark and capinfos.

use crate::samples;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::samples::{Noise, Read, data, mutate, read, read_source, small_files};
use tapline_file::{DirectCreator, FileSource, FileWriter, Format, Precision, Section, WriteOptions};
use tapline_packet::{ClockReading, Selection, Timestamp};
use tapline_testkit::surroundings::captures_or_skip;

/// Real captures.
fn captures(test: &str) -> Vec<PathBuf> {
    let mut paths = captures_or_skip(test).unwrap_or_default();
    paths.retain(|path| path.to_string_lossy().contains(".pcap"));
    paths
}

/// Whether `program` runs here; its output if it ends well.
fn run(program: &str, arguments: &[&str]) -> Option<Result<Vec<u8>, String>> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    })
}

fn open(path: &Path) -> FileSource {
    FileSource::open(path).unwrap_or_else(|error| panic!("{error}"))
}

fn copy(from: &Path, to: &Path, change: impl FnOnce(&mut WriteOptions)) {
    let mut source = open(from);
    let mut options = WriteOptions::new(to, source.interfaces());
    options.section = Section::of_this_machine("tapline test");
    change(&mut options);
    let start = Timestamp::EPOCH;
    let mut writer =
        FileWriter::create(options, source.interfaces(), ClockReading::unset(start), Box::new(DirectCreator))
            .unwrap();
    while source.advance().unwrap_or_else(|error| panic!("{error}")) {
        let batch = source.batch();
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        writer.write(&batch, &selection, source.interfaces()).unwrap();
    }
    writer.finish(&[]).unwrap();
}

/// tcpdump cuts packets to the snap length that a file's header claims; we keep what is there.
fn cut_as_tcpdump_does(packets: Vec<Read>, snap_len: u32) -> Vec<Read> {
    let limit = if snap_len == 0 { usize::MAX } else { snap_len as usize };
    let cut = |mut packet: Read| {
        packet.data.truncate(limit);
        packet.options.clear();
        packet
    };
    packets.into_iter().map(cut).collect()
}

#[test]
fn packets_equal_tcpdumps_copy_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("theirs.pcap");
    let mut compared = 0;
    for path in captures("packets_equal_tcpdumps_copy_byte_for_byte") {
        let arguments =
            ["--time-stamp-precision=nano", "-r", path.to_str().unwrap(), "-w", copy.to_str().unwrap()];
        match run("tcpdump", &arguments) {
            None => return eprintln!("skipped: no tcpdump here"),
            Some(Err(error)) => panic!("{error}"),
            Some(Ok(_)) => {}
        }
        let ours = read_source(&mut open(&path));
        assert!(ours.error.is_none(), "{}: {:?}", path.display(), ours.error);
        let theirs = read_source(&mut open(&copy));
        assert_eq!(ours.interfaces[0].link_type, theirs.interfaces[0].link_type);
        let packets = cut_as_tcpdump_does(ours.packets, ours.interfaces[0].snap_len);
        let facts = |packets: Vec<Read>| -> Vec<_> {
            packets.into_iter().map(|p| (p.meta.timestamp, p.meta.wire_len, p.data)).collect()
        };
        assert!(facts(packets) == facts(theirs.packets), "{}", path.display());
        compared += 1;
    }
    eprintln!("{compared} captures compared");
}

/// Packets that `program` counts in `path`.
fn counted_by(program: &str, path: &str) -> Option<usize> {
    let output = match program {
        "capinfos" => run(program, &["-M", "-c", path])?,
        "tshark" => run(program, &["-r", path, "-T", "fields", "-e", "frame.number"])?,
        _ => run(program, &["--count", "-n", "-r", path])?,
    };
    let output = String::from_utf8(output.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    // tcpdump counts "12 packets"; the others end in the number.
    let mut numbers = output.split_whitespace().filter_map(|word| word.parse().ok());
    Some(numbers.next_back().unwrap_or(0))
}

#[test]
fn tcpdump_tshark_and_capinfos_read_our_files() {
    let directory = tempfile::tempdir().unwrap();
    for (index, path) in captures("tcpdump_tshark_and_capinfos_read_our_files").iter().step_by(10).enumerate()
    {
        let packets = read_source(&mut open(path)).packets.len();
        for name in ["out.pcap", "out.pcapng", "out.pcap.gz"] {
            let out = directory.path().join(name);
            copy(path, &out, |_| {});
            for program in ["capinfos", "tcpdump", "tshark"] {
                // tcpdump does not unpack; tshark takes seconds to start.
                let is_fit = match program {
                    "tcpdump" => !name.ends_with("gz"),
                    "tshark" => index % 8 == 0 && name == "out.pcapng",
                    _ => true,
                };
                if is_fit && let Some(counted) = counted_by(program, out.to_str().unwrap()) {
                    assert_eq!(counted, packets, "{program} {name} of {}", path.display());
                }
            }
        }
    }
}

/// Two interfaces, comments, drop counts, flags: what tshark finds in our pcapng.
#[test]
fn tshark_understands_our_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.pcapng");
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Big);
    file.section(&[]).interface(1, 0, &[(2, b"left")]).interface(1, 0, &[(2, b"right")]);
    file.enhanced(0, 1_700_000_000_000_001, &data(60), 60, &[(1, b"first note"), (2, &[0, 0, 0, 1])]);
    file.enhanced(1, 1_700_000_000_000_002, &data(61), 61, &[(4, &[0, 0, 0, 0, 0, 0, 0, 9])]);
    std::fs::write(&input, &file.bytes).unwrap();
    let out = directory.path().join("out.pcapng");
    copy(&input, &out, |options| options.format = Format::Pcapng);
    let fields =
        ["frame.interface_name", "frame.comment", "frame.packet_flags_direction", "frame.drop_count"];
    let mut arguments = vec!["-r", out.to_str().unwrap(), "-T", "fields", "-E", "separator=|"];
    for field in fields.iter().chain(&["frame.time_epoch"]) {
        arguments.extend(["-e", field]);
    }
    let Some(output) = run("tshark", &arguments) else { return eprintln!("skipped: no tshark here") };
    let output = String::from_utf8(output.unwrap()).unwrap();
    let lines: Vec<_> = output.lines().map(|line| line.replace("0x00000001", "1")).collect();
    assert_eq!(lines, ["left|first note|1||1700000000.000001000", "right|||9|1700000000.000002000"]);
}

/// ERF as tshark reads it.
#[test]
fn erf_packets_equal_tsharks_view() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.erf");
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Little);
    for i in 0..9u64 {
        let fraction = i * 0x1234_5678;
        file.erf(
            (1_700_000_000 + i) << 32 | fraction,
            2,
            0,
            0,
            64,
            &[&[0, 0], &data(64)[..], &[0; 6]].concat(),
        );
        file.erf((1_700_000_000 + i) << 32 | fraction, 22, 0, 0, 40, &data(40));
    }
    std::fs::write(&path, &file.bytes).unwrap();
    let arguments =
        ["-r", path.to_str().unwrap(), "-T", "fields", "-e", "frame.time_epoch", "-e", "erf.wlen"];
    let Some(output) = run("tshark", &arguments) else { return eprintln!("skipped: no tshark here") };
    let theirs = String::from_utf8(output.unwrap()).unwrap();
    let ours: String = read_source(&mut open(&path))
        .packets
        .iter()
        .map(|p| {
            let time = p.meta.timestamp;
            format!("{}.{:09}\t{}\n", time.seconds(), time.subsec_nanos(), p.meta.wire_len)
        })
        .collect();
    assert_eq!(ours, theirs);
}

/// Colours and hashes as tshark finds them in the header and in extensions, and the colours in our copy.
#[test]
fn erf_colors_equal_tsharks_view() {
    let directory = tempfile::tempdir().unwrap();
    let [path, out] = ["x.erf", "out.erf"].map(|name| directory.path().join(name));
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Little);
    let time = |second: u64| (1_700_000_000 + second) << 32;
    let frame = [&[0, 0], &data(64)[..], &[0; 6]].concat();
    let behind = |extension: [u8; 8]| [&extension[..], &frame[..]].concat();
    file.erf(time(0), 11, 0, 0x1234, 64, &frame).erf(time(1), 16, 0, 7, 64, &frame);
    file.erf(time(2), 2 | 0x80, 0, 0, 64, &behind([6, 0x55, 1, 2, 0xde, 0xad, 0xbe, 0xef]));
    file.erf(time(3), 2 | 0x80, 0, 0, 64, &behind([3, 0x0a, 0xbc, 0xd4, 0, 0, 0, 9]));
    file.erf(time(4), 2 | 0x80, 0, 0, 64, &behind([16, 7, 5, 0, 1, 2, 3, 4]));
    std::fs::write(&path, &file.bytes).unwrap();
    let of_tshark = |path: &Path, fields: &[&str]| -> Option<Vec<Vec<Option<u32>>>> {
        let fields = fields.iter().flat_map(|field| ["-e", *field]);
        let arguments: Vec<&str> = ["-r", path.to_str()?, "-T", "fields"].into_iter().chain(fields).collect();
        let output =
            String::from_utf8(run("tshark", &arguments)?.unwrap_or_else(|why| panic!("{why}"))).ok()?;
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        Some(output.lines().map(|line| line.split('\t').map(number).collect()).collect())
    };
    let colors = ["erf.color", "erf.ehdr.bfs.color", "erf.ehdr.class.flags.user"];
    let hashes = ["erf.ehdr.bfs.rawhash", "erf.ehdr.flowid.flowhash"];
    let Some(theirs) = of_tshark(&path, &[&colors[..], &hashes[..]].concat()) else {
        return eprintln!("skipped: no tshark here");
    };
    let theirs: Vec<_> = theirs
        .iter()
        .map(|fields| {
            (fields[..3].iter().flatten().next().copied(), fields[3..].iter().flatten().next().copied())
        })
        .collect();
    let ours: Vec<_> = read_source(&mut open(&path))
        .packets
        .iter()
        .map(|p| (p.meta.color.map(u32::from), Some(p.meta.rx_hash).filter(|hash| *hash != 0)))
        .collect();
    assert_eq!(ours, theirs);
    copy(&path, &out, |options| options.format = Format::Erf);
    let copied: Vec<_> = of_tshark(&out, &["erf.color"]).expect("it ran before").concat();
    assert_eq!(copied, [Some(0x1234), Some(7), Some(0x102), Some(0xabcd), None]);
}

/// Nanoseconds survive into pcap; tcpdump's own copy at that precision is the same file.
#[test]
fn nanosecond_copies_equal_tcpdumps() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (directory.path().join("ours.pcap"), directory.path().join("theirs.pcap"));
    for path in captures("nanosecond_copies_equal_tcpdumps").iter().step_by(7) {
        let snap_len = open(path).interfaces()[0].snap_len as usize;
        if read_source(&mut open(path)).packets.iter().any(|p| snap_len > 0 && p.data.len() > snap_len) {
            continue;
        }
        copy(path, &ours, |options| options.precision = Precision::Nano);
        let arguments =
            ["--time-stamp-precision=nano", "-r", path.to_str().unwrap(), "-w", theirs.to_str().unwrap()];
        let Some(result) = run("tcpdump", &arguments) else { return eprintln!("skipped: no tcpdump here") };
        result.unwrap();
        assert!(std::fs::read(&ours).unwrap() == std::fs::read(&theirs).unwrap(), "{}", path.display());
    }
}

/// Damaged files: what tcpdump still gets out of them, we get too; of pcap, neither more nor less.
#[test]
fn damaged_files_give_the_packets_of_tcpdump() {
    let directory = tempfile::tempdir().unwrap();
    let (damaged, copy) = (directory.path().join("damaged"), directory.path().join("copy"));
    let files = small_files();
    let mut compared = 0;
    for seed in 1..=400u64 {
        let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (name, file) = &files[noise.below(4)];
        // The beginning stays: pcap's first three records decide between layouts that tcpdump does not know.
        let kept = if *name == "pcap" { file.packet_ends[2] } else { file.item_ends[1] };
        let mut rest = file.bytes[kept..].to_vec();
        mutate(&mut rest, &mut noise);
        let bytes = [&file.bytes[..kept], &rest].concat();
        std::fs::write(&damaged, &bytes).unwrap();
        let _ = std::fs::remove_file(&copy);
        let arguments = ["-r", damaged.to_str().unwrap(), "-w", copy.to_str().unwrap()];
        if run("tcpdump", &arguments).is_none() {
            return eprintln!("skipped: no tcpdump here");
        }
        let theirs = std::fs::read(&copy).map_or(Vec::new(), |bytes| read(&bytes).packets);
        let ours = cut_as_tcpdump_does(read(&bytes).packets, 65_535);
        let is_enough = if *name == "pcap" { ours.len() == theirs.len() } else { ours.len() >= theirs.len() };
        let is_same = ours.iter().zip(&theirs).all(|(ours, theirs)| is_the_same(ours, theirs));
        assert!(
            is_enough && is_same,
            "{name} seed {seed}: {} packets, tcpdump has {}",
            ours.len(),
            theirs.len()
        );
        compared += theirs.len();
    }
    assert!(compared > 400, "only {compared} packets were compared");
}

/// Whether `theirs` is what tcpdump's copy makes of `ours`: times in microseconds, with 32 bits of seconds.
fn is_the_same(ours: &Read, theirs: &Read) -> bool {
    let [a, b] = [ours, theirs].map(|packet| packet.meta.timestamp);
    let is_same_time = a.as_nanos() / 1000 == b.as_nanos() / 1000;
    let fits = (0..=i64::from(u32::MAX)).contains(&a.seconds());
    ours.data == theirs.data && ours.meta.wire_len == theirs.meta.wire_len && (is_same_time || !fits)
}
