//! The stream behind a savefile: its position, and the effect of moving it, are the same with our library and the
//! system's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Library, captures_or_skip, compile, programs_or_skip, system_library, told};
use tapline_testkit::volume::volume;
use tempfile::TempDir;

/// Both libraries' folders and the captures, if all that a test needs is there: one capture in five, all of them in CI,
/// or as many as `TAPLINE_CAPI_CAPTURES` says.
struct Bench {
    ours: Library,
    theirs: PathBuf,
    captures: Vec<PathBuf>,
    smtp: PathBuf,
}

impl Bench {
    fn new_or_skip(test: &str, programs: &[&str]) -> Option<Bench> {
        let captures = captures_or_skip(test)?;
        let Some(system) = system_library() else {
            eprintln!("skipped: {test}: no libpcap here");
            return None;
        };
        let theirs = system.parent().expect("a folder").to_owned();
        let smtp = captures.iter().find(|path| path.ends_with("smtp.pcap")).expect("it is there").clone();
        let wanted = volume("TAPLINE_CAPI_CAPTURES", 30).max(1) as usize;
        let step = captures.len().div_ceil(wanted).max(1);
        let captures = captures.into_iter().step_by(step).collect();
        programs_or_skip(test, programs).then(|| Bench { ours: Library::new(), theirs, captures, smtp })
    }

    /// The results of `run` on both libraries: ours first.
    fn both<T>(&self, mut run: impl FnMut(&Path) -> T) -> [T; 2] {
        [self.ours.folder(), &self.theirs].map(&mut run)
    }

    /// Fails if `run` gave something else for one of the captures.
    fn assert_equal<T: PartialEq>(&self, mut run: impl FnMut(&Path, &Path) -> T) {
        let differs = |capture: &&PathBuf| {
            let [ours, theirs] = self.both(|folder| run(folder, capture));
            ours != theirs
        };
        let differing: Vec<_> = self.captures.iter().filter(differs).collect();
        assert!(differing.is_empty(), "{} of {} differ: {differing:?}", differing.len(), self.captures.len());
    }
}

fn position(program: &Path, folder: &Path, how: &str, seed: usize, capture: &Path) -> String {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder).arg(how).arg(seed.to_string()).arg("80").arg(capture);
    let input = match how.starts_with("stdin") {
        true => Stdio::from(File::open(capture).expect("readable")),
        false => Stdio::null(),
    };
    told(&command.stdin(input).output().expect("it runs"))
}

/// Reading, asking and moving by chance. Places where no packet begins are tried in pcap files only: of pcapng we pass
/// over blocks that are longer than libpcap takes.
#[test]
fn moved_streams_are_read_alike() {
    let Some(bench) = Bench::new_or_skip("moved_streams_are_read_alike", &["cc"]) else { return };
    let program = compile(&bench.ours, "position", true);
    for (seed, how) in ["open", "fopen", "stdin", "open-wild", "fopen-wild"].into_iter().enumerate() {
        bench.assert_equal(|folder, capture| {
            let is_wild =
                how.ends_with("wild") && capture.extension().is_some_and(|ending| ending == "pcapng");
            (!is_wild).then(|| position(&program, folder, how, seed + 1, capture))
        });
    }
}

/// A program that asks for the stream of a pipe, or has opened it, finds it behind the packet that it got last.
#[test]
fn streams_of_pipes_stand_behind_the_packet() {
    const TEST: &str = "streams_of_pipes_stand_behind_the_packet";
    let Some(bench) = Bench::new_or_skip(TEST, &["cc"]) else { return };
    let program = compile(&bench.ours, "position", true);
    for how in ["rest-open", "rest-fopen"] {
        bench.assert_equal(|folder, capture| {
            let mut cat = Command::new("cat").arg(capture).stdout(Stdio::piped()).spawn().expect("cat runs");
            let mut command = Command::new(&program);
            command.env("LD_LIBRARY_PATH", folder).args([how, "1", "3", "-"]);
            let output = command.stdin(cat.stdout.take().expect("a pipe")).output().expect("it runs");
            cat.wait().expect("it ends");
            told(&output)
        });
    }
}

/// A file that is written has the same position and contents as libpcap's, however it was opened.
#[test]
fn written_streams_stand_alike() {
    let Some(bench) = Bench::new_or_skip("written_streams_stand_alike", &["cc"]) else { return };
    let program = compile(&bench.ours, "dump", true);
    let folder = TempDir::new().expect("a folder");
    let mut seed = 0;
    bench.assert_equal(|library, capture| {
        // Both libraries get the same seed.
        seed += 1;
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library).arg((seed / 2 + seed % 2).to_string());
        told(&command.arg(capture).arg(folder.path()).output().expect("it runs"))
    });
}

#[test]
fn tcpslice_cuts_and_joins_alike() {
    let Some(bench) = Bench::new_or_skip("tcpslice_cuts_and_joins_alike", &["tcpslice"]) else { return };
    let folder = TempDir::new().expect("a folder");
    let written = folder.path().join("written");
    let runs: [(&[&str], &[&str], bool); 7] = [
        (&["-D"], &[], false),
        (&[], &["+0", "+1"], false),
        (&[], &["+0.5", "+10"], false),
        (&["-R"], &[], false),
        (&["-d", "-R"], &["+1", "+5"], false),
        (&["-D", "-l"], &[], true),
        (&[], &[], true),
    ];
    for (options, times, is_joined) in runs {
        bench.assert_equal(|library, capture| {
            let _ = fs::remove_file(&written);
            let mut command = Command::new("tcpslice");
            command.env("LD_LIBRARY_PATH", library).args(options).arg("-w").arg(&written).args(times);
            command.arg(capture).args(is_joined.then_some(&bench.smtp)).stdin(Stdio::null());
            (told(&command.output().expect("tcpslice runs")), fs::read(&written).ok())
        });
    }
}

#[test]
fn nfpcapd_meters_the_same_flows() {
    let Some(bench) = Bench::new_or_skip("nfpcapd_meters_the_same_flows", &["nfpcapd", "nfdump"]) else {
        return;
    };
    bench.assert_equal(|library, capture| {
        let flows = TempDir::new().expect("a folder");
        let mut command = Command::new("nfpcapd");
        command.env("LD_LIBRARY_PATH", library).arg("-r").arg(capture).arg("-w").arg(flows.path());
        let metered = command.output().expect("nfpcapd runs");
        let mut nfdump = Command::new("nfdump");
        nfdump.arg("-q").arg("-R").arg(flows.path());
        // Without the time at which it was metered.
        let output = nfdump.args(["-o", "fmt:%ts %te %pr %sa %sp %da %dp %pkt %byt %flg %tos"]).output();
        let text = told(&output.expect("nfdump runs"));
        let folder_name = flows.path().display().to_string();
        let mut lines: Vec<String> = text.lines().map(|line| line.replace(&folder_name, "")).collect();
        lines.sort_unstable();
        (metered.status.code(), lines)
    });
}

/// An interface takes some dozens of bytes, whatever its name.
#[test]
fn a_million_interfaces_take_little_memory() {
    if !programs_or_skip("a_million_interfaces_take_little_memory", &["cc"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "position", true);
    let folder = TempDir::new().expect("a folder");
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let halves = |first: u16, second: u16| {
        let (first, second) = (first.to_ne_bytes(), second.to_ne_bytes());
        u32::from_ne_bytes([first[0], first[1], second[0], second[1]])
    };
    let peak_kib = |count: u32| -> u64 {
        let section = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, halves(1, 0), u32::MAX, u32::MAX, 28]);
        let name = [words(&[halves(2, 8)]), b"veth1234".to_vec(), words(&[0])].concat();
        let interface = [words(&[1, 36, halves(1, 0), 65_535]), name, words(&[36])].concat();
        let packet = words(&[6, 36, count - 1, 0, 1000, 4, 4, 0x0102_0304, 36]);
        let file = folder.path().join("interfaces.pcapng");
        fs::write(&file, [section, interface.repeat(count as usize), packet].concat()).expect("written");
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library.folder()).args(["memory", "1", "1"]).arg(&file);
        let text = told(&command.output().expect("it runs"));
        let peak = text.lines().find_map(|line| line.strip_prefix("1 packets, peak "));
        peak.unwrap_or_else(|| panic!("{text}")).parse().expect("a number")
    };
    let (few, many) = (peak_kib(1), peak_kib(1_000_000));
    assert!(many < few + (64 << 10), "{few} KiB with one interface, {many} KiB with a million");
}
