//! Output that is lost is reported: packets that count as written can be read back, and an output that took nothing
//! ends in an error.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::sample;

/// Packets of a file: enough that each disk here is full before its end.
const PACKETS: usize = 3000;

/// A pcap file of packets of 300 bytes, half of which cannot be packed.
fn input(folder: &Path) -> PathBuf {
    let path = folder.join("in.pcap");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let packet = |number: usize| {
        let mut data = vec![0; 300];
        for byte in &mut data[..150] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        (Duration::from_secs(1_700_000_000) + Duration::from_micros(number as u64), data)
    };
    let mut file = File::create(&path).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Microseconds, (0..PACKETS).map(packet)).unwrap();
    path
}

/// The program with files of at most `blocks` times 512 bytes: `ulimit -f` of POSIX.
fn limited(blocks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f \"$1\"; shift; exec \"$@\"", "sh", &blocks.to_string(), TAPLINE]);
    command.args(arguments);
    command
}

/// Packets that a reader finds in a file, to its damage if it has any.
fn readable(path: &Path) -> u64 {
    // The disk was full before the header of this file.
    if fs::metadata(path).is_ok_and(|about| about.len() == 0) {
        return 0;
    }
    let read = run(["capture", "-r", text(path), "--count", "--json"]);
    read.account().output("written")
}

/// A file system of 256 KiB, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<SmallDisk> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tapline-test"]).arg(at);
        mount.output().ok()?.status.success().then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

const NAMES: [&str; 6] = ["x.pcap", "x.pcapng", "x.pcap.gz", "x.pcapng.gz", "x.pcap.zst", "x.pcap.lz4"];

/// Every packing, with and without -U, at sizes where the limit falls into a header, a piece, and between two.
#[test]
fn written_packets_are_readable_at_a_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path());
    for name in NAMES {
        let path = folder.path().join(name);
        for flushed in [&["-U"][..], &[]] {
            for blocks in [1, 64, 307, 511] {
                let words = ["capture", "-r", text(&input), "-w", text(&path), "--json"];
                let finished = finish(&mut limited(blocks, &[&words[..], flushed].concat()));
                let account = finished.account();
                let (written, lost) = (account.output("written"), account.output("lost"));
                finished.failed_saying(&[text(&path), "as long as a file may be"]);
                assert_eq!(account.count("accepted"), written + lost, "{name} {flushed:?} {blocks}");
                assert_eq!(readable(&path), written, "{name} {flushed:?}, {blocks} blocks");
                assert!(blocks < 511 || written > 100, "{name} {flushed:?}: {written} written");
            }
        }
    }
}

/// `-` is standard output for each destination that names a file, and gets the octets of the file.
#[test]
fn each_file_of_flows_can_be_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let probe = ["probe", "-r", sample::STORED, "--export"];
    for format in ["file", "json", "csv", "batch+file"] {
        let path = folder.path().join(format);
        run(probe.into_iter().chain([&*format!("{format}:{}", text(&path))])).succeeded();
        let to = format!("{format}:-");
        let there = run(probe.into_iter().chain([&*to])).succeeded().stdout;
        assert!(!there.is_empty() && there == fs::read(&path).unwrap(), "{format}");
        let both = run(probe.into_iter().chain([&*to, "--json"]));
        both.failed_saying(&["only one output can use standard output"]);
    }
}

#[test]
fn written_packets_are_readable_on_a_full_disk() {
    const TEST: &str = "written_packets_are_readable_on_a_full_disk";
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path());
    for name in NAMES {
        for more in [&["-U"][..], &[], &["-C", "100k"], &["-C", "100k", "-U", "--part"]] {
            let at = folder.path().join("disk");
            fs::create_dir_all(&at).unwrap();
            let Some(disk) = SmallDisk::mount(&at) else {
                return eprintln!("skipped: {TEST}: no right to mount a small file system");
            };
            let path = disk.0.join(name);
            let words = ["capture", "-r", text(&input), "-w", text(&path), "--json"];
            let finished = run([&words[..], more].concat());
            let account = finished.account();
            let written = account.output("written");
            finished.failed_saying(&["full"]);
            let read: u64 = files_in(&disk.0).iter().map(|path| readable(path)).sum();
            assert_eq!(read, written, "{name} {more:?}");
            assert!(written > 400, "{name} {more:?}: {written} written");
        }
    }
}

/// A FIFO whose reader takes some bytes and leaves.
fn leaving_reader(fifo: &Path) -> std::thread::JoinHandle<()> {
    let fifo = fifo.to_owned();
    std::thread::spawn(move || {
        let mut taken = [0; 1000];
        File::open(fifo).unwrap().read_exact(&mut taken).unwrap();
    })
}

#[test]
fn a_reader_that_leaves_a_fifo_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path());
    for name in ["fifo", "fifo.pcap.gz", "fifo.pcapng.zst"] {
        let fifo = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let graph = format!("file({:?}) -> record({:?})", text(&input), text(&fifo));
        let words: [&[&str]; 2] =
            [&["capture", "-r", text(&input), "-w", text(&fifo), "--json"], &["run", "--json", "-e", &graph]];
        for words in words {
            let reader = leaving_reader(&fifo);
            let finished = run(words);
            reader.join().unwrap();
            finished.failed_saying(&[text(&fifo), "the reader has gone"]);
            assert!(finished.account().value["lost"].as_u64().unwrap() > 0, "{}", finished.stderr);
        }
    }
}

/// Runs a command line of the shell's with the program's name in the place of `tapline`.
fn shell(line: &str) -> Finished {
    let line = line.replace("tapline ", &format!("{TAPLINE} "));
    finish(Command::new("sh").args(["-c", &line]))
}

/// Opening it would wait for a reader, and hear no signal meanwhile.
#[test]
fn a_pipe_planted_in_a_rotation_is_an_error() {
    if !root_or_skip("a_pipe_planted_in_a_rotation_is_an_error") {
        return;
    }
    let (folder, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::set_permissions(shared.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let input = input(folder.path());
    for user in ["nobody", "root"] {
        let path = shared.path().join(format!("{user}.pcap"));
        let pipe = format!("{}1", text(&path));
        assert!(Command::new("mkfifo").args(["-m", "666", &pipe]).status().unwrap().success());
        std::os::unix::fs::chown(&pipe, Some(1234), None).unwrap();
        let words = ["capture", "-r", text(&input), "-Z", user, "-C", "2k", "-w", text(&path)];
        run(words).failed_saying(&[&pipe, "a pipe of another user"]);
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (input, stored) = (input(folder.path()), sample::STORED);
    for line in [
        &format!("capture -r {} -w -", text(&input)),
        &format!("capture -n -r {stored}"),
        &format!("capture -r {stored} --count"),
        &format!("capture --json -r {stored}"),
        &format!("run -e 'file(\"{stored}\") -> print'"),
        &format!("run -e 'file(\"{stored}\") -> count -> drop'"),
        &format!("probe -r {stored}"),
        &format!("probe -r {stored} --export json:-"),
        "interfaces",
    ] {
        shell(&format!("tapline {line} >&-")).failed_saying(&["standard output", "closed"]);
    }
    // A closed standard output costs no packets of other outputs.
    let copy = folder.path().join("copy.pcap");
    shell(&format!("tapline capture -r {} -w {} >&-", text(&input), text(&copy))).succeeded();
    assert_eq!(readable(&copy), PACKETS as u64);
}

#[test]
fn a_full_device_is_an_error_with_an_account() {
    let stored = sample::STORED;
    for line in [
        "capture -n -r FILE",
        "capture -r FILE --count",
        "capture -r FILE -w -",
        "run -e 'file(\"FILE\") -> print'",
        "run -e 'file(\"FILE\") -> count -> drop'",
        "probe -r FILE",
        "probe -r FILE --export json:-",
        "probe -r FILE --export csv:/dev/full",
        "probe -r FILE --export file:/dev/full",
    ] {
        let line = line.replace("FILE", stored);
        let finished = shell(&format!("tapline {line} >/dev/full"));
        finished.failed_saying(&[]);
        let is_told = ["full", "No space left on device"].iter().any(|words| finished.stderr.contains(words));
        assert!(is_told, "{line}: {}", finished.stderr);
        let has_account = ["balanced", "0 dropped"].iter().any(|words| finished.stderr.contains(words));
        assert!(line.contains("-w -") || has_account, "{line}: {}", finished.stderr);
    }
}

/// `| head`: lines end quietly; a capture file does not, nor does a file that lacks packets because the lines ended.
#[test]
fn readers_of_lines_may_leave_early() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path());
    let copy = folder.path().join("copy.pcap");
    let before_head = |arguments: &[&str]| {
        let mut child = tapline(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 100]).unwrap();
        drop(out);
        Finished::new(child.wait_with_output().unwrap())
    };
    let lines = before_head(&["capture", "-n", "-r", text(&input)]).succeeded();
    assert!(!lines.stderr.contains("reader has gone") && lines.stderr.contains("LOST"), "{}", lines.stderr);
    before_head(&["capture", "-r", text(&input), "-w", "-"])
        .failed_saying(&["standard output", "reader has gone"]);
    before_head(&["capture", "-n", "-r", text(&input), "-w", text(&copy), "--print"])
        .failed_saying(&["standard output", "reader has gone"]);
}

/// Copies of a file with packets longer than its header says are those of tcpdump, byte by byte.
#[test]
fn a_copy_is_cut_to_the_snap_length_as_tcpdumps() {
    const TEST: &str = "a_copy_is_cut_to_the_snap_length_as_tcpdumps";
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path());
    for snap_len in [1u32, 31, 299, 300, 301] {
        let mut bytes = fs::read(&input).unwrap();
        bytes[16..20].copy_from_slice(&snap_len.to_ne_bytes());
        fs::write(&input, &bytes).unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        run(["capture", "-r", text(&input), "-w", text(&ours)]).succeeded();
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-Z", "root", "-r"]).arg(&input).arg("-w").arg(&theirs);
        assert!(tcpdump.output().unwrap().status.success());
        assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(), "snap length {snap_len}");
    }
}

/// A version, or a link type, that is not read: refused with its name, whatever the packing.
#[test]
fn unknown_versions_and_link_types_are_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let header = |version: (u16, u16), link_type: u32| {
        let mut bytes = 0xa1b2_c3d4u32.to_ne_bytes().to_vec();
        bytes.extend([version.0.to_ne_bytes(), version.1.to_ne_bytes()].concat());
        bytes.extend([[0; 4], [0; 4], 65_535u32.to_ne_bytes(), link_type.to_ne_bytes()].concat());
        bytes
    };
    let mut section = 0x0a0d_0d0au32.to_ne_bytes().to_vec();
    section.extend([28u32.to_ne_bytes(), 0x1a2b_3c4du32.to_ne_bytes()].concat());
    section.extend([0u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    section.extend([[0xff; 4], [0xff; 4], 28u32.to_ne_bytes()].concat());
    for (bytes, words) in [
        (section, "this is version 0.1 of pcapng"),
        (header((3, 0), 1), "this is version 3.0 of the pcap format"),
        (header((2, 4), 0x0030_0000), "savefile linktype reserved bits set (0x00300000)"),
    ] {
        let path = folder.path().join("odd");
        fs::write(&path, &bytes).unwrap();
        for packer in ["cat", "gzip", "zstd", "lz4"] {
            let line = format!("{packer} < {0} > {0}.packed", text(&path));
            let packed = Command::new("sh").args(["-c", &line]).output().unwrap();
            if !packed.status.success() {
                eprintln!("skipped: unknown_versions_and_link_types_are_no_damage: no {packer} here");
                continue;
            }
            let finished = run(["capture", "-n", "-r", &format!("{}.packed", text(&path))]);
            finished.failed_saying(&[words]);
            assert!(!finished.stderr.contains("damaged"), "{}", finished.stderr);
        }
    }
}
