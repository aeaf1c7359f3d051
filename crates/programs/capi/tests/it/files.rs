//! Capture files and the interface's corners: what programs print on our library and on the system's is the same.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Library, captures_or_skip, compile, programs_or_skip, system_library, told};
use tapline_testkit::netns::namespaces_or_skip;
use tempfile::TempDir;

/// Longest run of a program before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options and filters of tcpdump.
const RUNS: [&[&str]; 5] = [
    &["-nn", "-tttt"],
    &["-nn", "-e", "-vv"],
    &["-nn", "-XX", "ip or ip6"],
    &["-nn", "-q", "-tt", "--nano", "tcp port 80 or udp"],
    &["-nn", "-c", "3", "vlan or greater 100"],
];

fn tcpdump(library: Option<&Library>, arguments: &[&str], file: &Path, text: &str) -> String {
    let mut command = match library {
        Some(library) => library.command(None, "tcpdump"),
        None => Command::new("tcpdump"),
    };
    let output =
        command.args(arguments).arg("-r").arg(file).args(Some(text).filter(|text| !text.is_empty())).output();
    told(&output.expect("tcpdump runs"))
}

/// libpcap 1.11, whose words we have, says some things otherwise than 1.10.
fn same_words(text: &str) -> String {
    const SAME: [(&str, &str); 2] = [
        ("tcpdump: no VLAN support for ", "tcpdump: 'vlan' not supported on "),
        (
            "tcpdump: NFLOG link-layer type filtering not implemented",
            "tcpdump: link-layer type filtering not implemented for DLT_NFLOG",
        ),
    ];
    let line = |line: &str| {
        let known = SAME.iter().find(|(old, new)| line.starts_with(old) || line.starts_with(new));
        known.map_or(line, |(old, _)| *old).to_owned() + "\n"
    };
    text.lines().map(line).collect()
}

#[test]
fn tcpdump_prints_the_same_on_both_libraries() {
    const TEST: &str = "tcpdump_prints_the_same_on_both_libraries";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !programs_or_skip(TEST, &["tcpdump"]) || system_library().is_none() {
        return;
    }
    let library = Library::new();
    let mut differing = Vec::new();
    for capture in &captures {
        for run in RUNS {
            let (options, text) = match run.split_last() {
                Some((last, options)) if !last.starts_with('-') => (options, *last),
                _ => (run, ""),
            };
            let theirs = tcpdump(None, options, capture, text);
            let ours = tcpdump(Some(&library), options, capture, text);
            if same_words(&theirs) != same_words(&ours) {
                differing.push((capture.clone(), run));
            }
        }
    }
    assert!(differing.is_empty(), "{} runs differ: {differing:?}", differing.len());
    eprintln!("{} files, {} runs each: equal", captures.len(), RUNS.len());
}

#[test]
fn tcpdumps_files_are_equal_byte_for_byte() {
    const TEST: &str = "tcpdumps_files_are_equal_byte_for_byte";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !programs_or_skip(TEST, &["tcpdump"]) || system_library().is_none() {
        return;
    }
    let library = Library::new();
    let folder = TempDir::new().expect("a folder");
    let mut written = 0;
    for capture in &captures {
        let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
        let write = |command: &mut Command, to: &Path| {
            let _ = fs::remove_file(to);
            let output = command.arg("-r").arg(capture).arg("-w").arg(to).arg("not arp").output();
            (told(&output.expect("tcpdump runs")), fs::read(to).ok())
        };
        let expected = write(&mut Command::new("tcpdump"), &theirs);
        let got = write(&mut library.command(None, "tcpdump"), &ours);
        assert_eq!(
            (same_words(&got.0), &got.1),
            (same_words(&expected.0), &expected.1),
            "{}",
            capture.display()
        );
        written += usize::from(got.1.is_some_and(|bytes| bytes.len() > 24));
    }
    assert!(written > captures.len() / 2, "only {written} files have packets");
}

/// A file cut at every byte of its first packets ends in the same words.
#[test]
fn cut_files_end_alike() {
    const TEST: &str = "cut_files_end_alike";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !programs_or_skip(TEST, &["tcpdump"]) || system_library().is_none() {
        return;
    }
    let library = Library::new();
    let folder = TempDir::new().expect("a folder");
    let cut = folder.path().join("cut");
    for ending in ["pcap", "pcapng"] {
        let is_it = |path: &&std::path::PathBuf| path.extension().is_some_and(|found| found == ending);
        let bytes = fs::read(captures.iter().find(is_it).expect("one of each")).expect("readable");
        for len in (0..bytes.len().min(400)).step_by(3) {
            fs::write(&cut, &bytes[..len]).expect("written");
            let theirs = tcpdump(None, &["-nn"], &cut, "");
            assert_eq!(tcpdump(Some(&library), &["-nn"], &cut, ""), theirs, "{ending} cut at {len}");
        }
    }
}

/// Lengths that contradict the file's header: more than the snap length, more than can be, and the same cut short.
#[test]
fn odd_lengths_are_told_alike() {
    if !programs_or_skip("odd_lengths_are_told_alike", &["tcpdump"]) || system_library().is_none() {
        return;
    }
    let library = Library::new();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("odd");
    for (snap_len, cap_len, there) in
        [(100, 200, 200), (100, 200, 150), (100, 200, 50), (0, 300_000, 0), (100, 300_000, 0), (100, 60, 60)]
    {
        let words = [0xa1b2_c3d4, u32::from_ne_bytes([2, 0, 4, 0]), 0, 0, snap_len, 1];
        let record = [1_000_000_000, 5, cap_len, cap_len];
        let bytes: Vec<u8> = words.iter().chain(&record).flat_map(|word: &u32| word.to_ne_bytes()).collect();
        fs::write(&file, [bytes, vec![7; there]].concat()).expect("written");
        let theirs = tcpdump(None, &["-nn", "-xx"], &file, "");
        assert_eq!(
            tcpdump(Some(&library), &["-nn", "-xx"], &file, ""),
            theirs,
            "{snap_len} {cap_len} {there}"
        );
    }
}

#[test]
fn the_corners_of_the_interface_answer_alike() {
    const TEST: &str = "the_corners_of_the_interface_answer_alike";
    let Some(captures) = captures_or_skip(TEST) else { return };
    let Some(system) = system_library() else { return eprintln!("skipped: {TEST}: no libpcap here") };
    if !programs_or_skip(TEST, &["cc"]) {
        return;
    }
    let library = Library::new();
    let wanted = |name: &str| captures.iter().find(|path| path.ends_with(name));
    let files: Vec<_> = ["smtp.pcap", "krb-kerberos_tso.pcapng", "trunc-trunc-hdr.pcap"]
        .iter()
        .filter_map(|name| wanted(name))
        .collect();
    let has_headers = Path::new("/usr/include/pcap/pcap.h").is_file();
    for with_our_headers in [true, false] {
        if !with_our_headers && !has_headers {
            eprintln!("not compared: programs compiled with the system's headers, which are not here");
            continue;
        }
        let program = compile(&library, "corners", with_our_headers);
        let run = |folder: &Path| {
            let output_folder = TempDir::new().expect("a folder");
            let mut command = Command::new(&program);
            told(
                &command
                    .env("LD_LIBRARY_PATH", folder)
                    .arg(output_folder.path())
                    .args(&files)
                    .output()
                    .expect("it runs"),
            )
        };
        let theirs = run(system.parent().expect("a folder"));
        let ours = run(library.folder());
        assert!(ours.lines().count() > 150 && ours.ends_with("Some(0)\n"), "{ours}");
        assert_eq!(without_version(&ours), without_version(&theirs));
    }
}

/// The system may have another version of libpcap.
fn without_version(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("version ")).collect::<Vec<_>>().join("\n")
}

/// The header of a packed file is that of the file, but for the packets.
#[test]
fn packed_files_have_their_headers() {
    const TEST: &str = "packed_files_have_their_headers";
    if !programs_or_skip(TEST, &["cc", "gzip", "zstd", "lz4"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "corners", true);
    let folder = TempDir::new().expect("a folder");
    // The other byte order, an older version, an FCS length in the link type.
    let swapped =
        |words: &[u32]| words.iter().flat_map(|word| word.swap_bytes().to_ne_bytes()).collect::<Vec<_>>();
    let version = [2u16, 3].map(|half| half.swap_bytes().to_ne_bytes()).concat();
    let header = [swapped(&[0xa1b2_c3d4]), version, swapped(&[0, 0, 100, 0x2400_0001])].concat();
    let record = [swapped(&[1_000_000_000, 7, 60, 64]), vec![5; 60]].concat();
    // The other byte order in pcapng: a section, an interface.
    let section = swapped(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28]);
    let interface = swapped(&[1, 20, 0x0001_0000, 100, 20]);
    for (bytes, expected) in [
        ([header, record.repeat(5)].concat(), "extra 24000000 snapshot 100 swapped 1 version 2.3"),
        ([section, interface].concat(), "extra 0 snapshot 100 swapped 1 version 1.0"),
    ] {
        let plain = folder.path().join("plain");
        fs::write(&plain, bytes).expect("written");
        let run = |file: &Path| {
            let mut command = Command::new(&program);
            command.env("LD_LIBRARY_PATH", library.folder()).arg(folder.path()).arg(file);
            told(&command.output().expect("it runs"))
        };
        let ours = run(&plain);
        assert!(ours.contains(expected), "{ours}");
        for packer in ["gzip", "zstd", "lz4"] {
            let packed = folder.path().join("packed");
            let output = Command::new(packer).arg("-c").arg(&plain).output().expect("it runs");
            assert!(output.status.success(), "{packer}");
            fs::write(&packed, output.stdout).expect("written");
            assert_eq!(run(&packed), ours, "{packer}");
        }
    }
}

/// Ctrl-C while tcpdump waits for more of a pipe ends it.
#[test]
fn a_wait_for_a_pipe_ends_by_a_signal() {
    const TEST: &str = "a_wait_for_a_pipe_ends_by_a_signal";
    let Some(captures) = captures_or_skip(TEST) else { return };
    let Some(system) = system_library() else { return eprintln!("skipped: {TEST}: no libpcap here") };
    // Only root may see everywhere where a process waits, and make namespaces.
    if !programs_or_skip(TEST, &["tcpdump"]) || !namespaces_or_skip(TEST) {
        return;
    }
    let library = Library::new();
    let capture = captures.iter().find(|path| path.ends_with("smtp.pcap")).expect("it is there");
    let bytes = fs::read(capture).expect("readable");
    let run = |folder: &Path| {
        let mut command = Command::new("tcpdump");
        command.args(["-nn", "-l", "-r", "-"]).env("LD_LIBRARY_PATH", folder).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(&bytes).expect("it reads");
        // Each packet has a line; after the last one it waits for more.
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let printed: Vec<String> = lines.by_ref().take(125).map(|line| line.expect("text")).collect();
        let id = child.id().to_string();
        // Before it waits, Ctrl-C breaks the loop, and no read is interrupted.
        let deadline = Instant::now() + PATIENCE;
        let mut wait_until = |is_so: &mut dyn FnMut(&mut Child) -> bool| {
            while !is_so(&mut child) {
                if Instant::now() > deadline {
                    let _ = child.kill();
                    panic!("it does not wait for the pipe, or does not end");
                }
                sleep(Duration::from_millis(5));
            }
        };
        wait_until(&mut |_| {
            fs::read_to_string(format!("/proc/{id}/wchan")).expect("it runs").contains("pipe_read")
        });
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
        wait_until(&mut |child| child.try_wait().expect("a child").is_some());
        drop(pipe);
        (printed, told(&child.wait_with_output().expect("its outputs")))
    };
    let ours = run(library.folder());
    assert!(ours.1.contains("error reading dump file: Interrupted system call"), "{}", ours.1);
    assert_eq!(ours, run(system.parent().expect("a folder")));
}

#[test]
fn valgrind_finds_nothing_wrong() {
    const TEST: &str = "valgrind_finds_nothing_wrong";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !programs_or_skip(TEST, &["cc", "valgrind"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "corners", true);
    let folder = TempDir::new().expect("a folder");
    let output = Command::new("valgrind")
        .args(["-q", "--error-exitcode=9", "--child-silent-after-fork=yes"])
        .arg(&program)
        .env("LD_LIBRARY_PATH", library.folder())
        .arg(folder.path())
        .args(captures.iter().filter(|path| path.ends_with("smtp.pcap")))
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{}", told(&output));
}
