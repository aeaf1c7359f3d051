//! `tapline store hold`, `forget`, `check`, `repair`, `import`, with other programs on what they leave, and the stage
//! `store`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{captures_or_skip, files_in, finish, packets_of, program_or_skip, run, text};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");

/// Runs a command of `tapline store`; gives its JSON and its exit status.
#[track_caller]
fn store(words: &[&str]) -> (Value, i32) {
    let ended = run(["store"].into_iter().chain(words.iter().copied()).chain(["--json"]));
    let value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{words:?}: {}", ended.stderr));
    (value, ended.status.code().expect("it ended"))
}

fn found(store: &Path, filter: &str) -> u64 {
    run(["find", text(store), "--count", "--json", "--", filter]).succeeded().account().output("written")
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let mut files = files_in(&store.join("seg"));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "pcapng"));
    files
}

/// Packets that tcpdump counts in the segments.
fn by_tcpdump(store: &Path, filter: &str) -> u64 {
    let count = |file: &PathBuf| {
        let output = Command::new("tcpdump").args(["--count", "-r", text(file), filter]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{text}"))
    };
    segments(store).iter().map(count).sum()
}

/// Lines that a program prints.
fn lines_of(program: &str, words: &[&str]) -> usize {
    let ended = finish(Command::new(program).args(words)).succeeded();
    ended.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
}

/// The example's packets in a store, and how many there are.
fn imported(folder: &Path) -> (PathBuf, u64) {
    let directory = folder.join("store");
    let (account, status) = store(&["import", text(&directory), EXAMPLE, "--segment", "4MiB"]);
    let packets = packets_of(Path::new(EXAMPLE)).len() as u64;
    assert_eq!(
        (status, &account["written"], &account["balanced"]),
        (0, &packets.into(), &true.into()),
        "{account}"
    );
    (directory, packets)
}

#[test]
fn imported_files_are_found_and_read_elsewhere() {
    let test = "imported_files_are_found_and_read_elsewhere";
    let folder = tempfile::tempdir().unwrap();
    let (directory, packets) = imported(folder.path());
    assert_eq!(found(&directory, ""), packets);
    assert_eq!(store(&["verify", text(&directory)]).1, 0);
    if program_or_skip(test, "tcpdump") {
        for filter in ["", "tcp", "udp port 53", "arp", "ip6"] {
            assert_eq!(found(&directory, filter), by_tcpdump(&directory, filter), "{filter}");
        }
    }
    if program_or_skip(test, "capinfos") {
        for segment in segments(&directory) {
            finish(Command::new("capinfos").arg("-c").arg(&segment)).succeeded();
        }
    }
    // A folder, with a file that is not a capture: the rest is imported, and the account says which was not.
    let pcaps = folder.path().join("pcaps/deeper");
    fs::create_dir_all(&pcaps).unwrap();
    fs::copy(EXAMPLE, pcaps.join("b.pcapng")).unwrap();
    fs::write(pcaps.join("notes.txt"), "no capture").unwrap();
    let (account, status) = store(&["import", text(&directory), text(&folder.path().join("pcaps"))]);
    assert_eq!((status, &account["files"], &account["files_whole"]), (0, &2.into(), &1.into()), "{account}");
    assert_eq!(account["files_passed_over"].as_array().unwrap().len(), 1);
    assert_eq!(found(&directory, ""), 2 * packets);
    assert_eq!(store(&["verify", text(&directory)]).1, 0);
}

#[test]
fn a_pipe_is_not_imported() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    tapline_sys::disk::make_pipe(&pipe).unwrap();
    let ended = run(["store", "import", text(&folder.path().join("store")), text(&pipe)]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("is neither a file nor a folder"), "{}", ended.stderr);
}

#[test]
fn all_captures_are_imported_in_little_room() {
    let Some(captures) = captures_or_skip("all_captures_are_imported_in_little_room") else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("store");
    let names: Vec<&str> = captures.iter().map(|path| text(path)).collect();
    let words: Vec<&str> =
        ["import", text(&directory), "--segment", "4MiB"].into_iter().chain(names).collect();
    let (account, _) = store(&words);
    assert_eq!(
        (&account["balanced"], &account["lost"], &account["segments_recycled"]),
        (&true.into(), &0.into(), &0.into()),
        "{account}"
    );
    assert_eq!(found(&directory, ""), account["written"].as_u64().unwrap());
    let (bytes, packets) = (account["bytes"].as_u64().unwrap(), account["packets"].as_u64().unwrap());
    let captured: u64 = captures.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes < 2 * captured + 200 * packets, "{bytes} bytes of chunks for {captured} of files");
    assert_eq!(store(&["verify", text(&directory)]).1, 0);
}

#[test]
fn forgotten_packets_are_gone_unless_held() {
    let test = "forgotten_packets_are_gone_unless_held";
    let folder = tempfile::tempdir().unwrap();
    let (directory, packets) = imported(folder.path());
    let directory_text = text(&directory);
    let udp = found(&directory, "udp");
    assert!(udp > 0 && udp < packets, "{udp} of {packets}");
    // Nothing without a word of consent, nothing by a dry run.
    run(["store", "forget", directory_text, "udp"]).failed_saying(&["--yes"]);
    run(["store", "forget", directory_text, "--yes"]).failed_saying(&["every packet"]);
    let (looked, status) = store(&["forget", directory_text, "--dry-run", "udp"]);
    assert_eq!((status, &looked["packets_erased"], &looked["erased"]), (0, &udp.into(), &false.into()));
    assert_eq!(found(&directory, "udp"), udp);
    // On hold: refused, by name.
    let (held, _) = store(&["hold", directory_text, "case-7", "udp port 53", "--why", "asked for"]);
    assert_eq!(held["holds"][0]["why"], "asked for");
    let dns = found(&directory, "udp port 53");
    assert!(dns > 0);
    run(["store", "forget", directory_text, "--yes", "udp"]).failed_saying(&["on hold", "case-7"]);
    assert_eq!(found(&directory, "udp"), udp);
    run(["store", "hold", directory_text, "case-7", "tcp"]).failed_saying(&["there is a hold"]);
    run(["store", "hold", directory_text, "case-8", "no filter (("]).failed_saying(&["filter"]);
    let (erased, status) = store(&["forget", directory_text, "--yes", "udp and not port 53"]);
    assert_eq!(
        (status, &erased["packets_erased"], &erased["balanced"]),
        (0, &(udp - dns).into(), &true.into())
    );
    store(&["release", directory_text, "case-7"]);
    run(["store", "release", directory_text, "case-7"]).failed_saying(&["no hold"]);
    assert_eq!(
        store(&["forget", directory_text, "--yes", "udp", "--why", "request 14"]).0["packets_erased"],
        dns
    );
    assert_eq!((found(&directory, "udp"), found(&directory, "")), (0, packets - udp));
    let (verified, status) = store(&["verify", directory_text]);
    assert_eq!((status, &verified["erased_packets"]), (0, &udp.into()), "{verified}");
    assert_eq!(store(&["check", directory_text]).1, 0);
    if program_or_skip(test, "tcpdump") {
        assert_eq!((by_tcpdump(&directory, "udp"), by_tcpdump(&directory, "")), (0, packets - udp));
    }
    if program_or_skip(test, "tshark") {
        let left: usize =
            segments(&directory).iter().map(|segment| lines_of("tshark", &["-n", "-r", text(segment)])).sum();
        assert_eq!(left as u64, packets - udp);
    }
    if program_or_skip(test, "capinfos") {
        let number = |segment: &PathBuf| {
            let told =
                finish(Command::new("capinfos").args(["-M", "-T", "-r", "-c"]).arg(segment)).succeeded();
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            told.split_whitespace()
                .next_back()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("{told}"))
        };
        assert_eq!(segments(&directory).iter().map(number).sum::<u64>(), packets - udp);
    }
    let log = fs::read_to_string(directory.join("log")).unwrap();
    for word in ["imported", "held", "erasing", "request 14", "erased", "released"] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

#[test]
fn a_check_says_what_repair_mends() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, packets) = imported(folder.path());
    let directory_text = text(&directory);
    assert_eq!(store(&["check", directory_text]).1, 0);
    let segment = segments(&directory).remove(0);
    fs::remove_file(segment.with_extension("tix")).unwrap();
    // The only segment may be one that was broken off.
    let (checked, status) = store(&["check", directory_text]);
    assert_eq!((status, &checked["segments_open"]), (0, &1.into()), "{checked}");
    fs::write(segment.with_extension("tix"), [7; 4096]).unwrap();
    assert_eq!(store(&["check", directory_text]).1, 3);
    let (repaired, status) = store(&["repair", directory_text]);
    assert_eq!(
        (status, &repaired["segments_made"], &repaired["balanced"]),
        (0, &1.into(), &true.into()),
        "{repaired}"
    );
    assert_eq!((store(&["check", directory_text]).1, found(&directory, "")), (0, packets));
    // A head that is damaged costs packets: no repair brings them back.
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, window)| window == b"TAPLCHNK")
        .map(|(at, _)| at)
        .nth(1)
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let (checked, status) = store(&["check", directory_text]);
    assert_eq!(status, 1, "{checked}");
    assert!(
        checked["findings"].as_array().unwrap().iter().any(|finding| finding["mendable"] == false),
        "{checked}"
    );
}

#[test]
fn a_graph_records_into_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("store");
    let graph = format!(
        "file(\"{EXAMPLE}\") -> filter(\"udp\") -> store(\"{}\", size=16MiB, segment=4MiB)",
        directory.display()
    );
    run(["run", "-e", &graph]).succeeded();
    let udp = found(&directory, "");
    assert!(udp > 0);
    assert_eq!(found(&directory, "not udp"), 0);
    run(["run", "-e", &graph]).succeeded();
    assert_eq!(found(&directory, ""), 2 * udp);
    let twice = format!("file(\"{EXAMPLE}\") -> t :: tee; t -> store(\"a\"); t -> store(\"a\", keep=1h)");
    run(["run", "--check", "-e", &twice]).failed_saying(&["writes to a already"]);
    run(["run", "-e", &graph.replace("16MiB", "lots")]).failed_saying(&["size"]);
}
