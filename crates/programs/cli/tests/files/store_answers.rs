//! Answers of `tapline find`: why one is empty, packets that may be missing, the order of packets, their flows.

use std::fs;
use std::path::{Path, PathBuf};

use tapline_testkit::random::Random;

use crate::support::{Finished, files_in, packets_of, run, text};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
/// 2024-01-01 00:00:00 UTC.
const START: u32 = 1_704_067_200;

/// A pcap file of UDP packets of this many bytes at these milliseconds after [`START`].
fn write_pcap(path: &Path, len: usize, times: &[u32]) {
    let mut bytes = Vec::new();
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    header.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    let mut frame = vec![0; len];
    frame[12..14].copy_from_slice(&[8, 0]);
    // 10.0.0.1 port 1024 to 10.0.0.2 port 53.
    let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 53];
    frame[14..38].copy_from_slice(&header);
    frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    frame[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
    for time in times {
        for word in [START + time / 1000, time % 1000 * 1000, len as u32, len as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&frame);
    }
    fs::write(path, bytes).unwrap();
}

/// A store of such packets.
fn recorded(folder: &Path, len: usize, times: &[u32], options: &[&str]) -> PathBuf {
    let (file, store) = (folder.join("made.pcap"), folder.join("store"));
    write_pcap(&file, len, times);
    let words = ["record", "-r", text(&file), "--to", text(&store), "--size", "32MiB", "--segment", "4MiB"];
    run(words.iter().chain(options)).succeeded();
    store
}

fn find(store: &Path, words: &[&str]) -> Finished {
    run(["find", text(store)].iter().chain(words))
}

fn stdout(ended: &Finished) -> String {
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

#[test]
fn a_search_says_why_nothing_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = recorded(folder.path(), 100, &[0, 1000, 2000], &[]);
    for (words, reason) in [
        (&["--from", "2024-01-02T00:00:00Z"][..], "nothing was recorded in this time yet"),
        (&["--to", "2023-12-31T00:00:00Z"], "nothing was recorded before"),
        (&["--from", "2024-01-01T00:00:00.1Z", "--to", "2024-01-01T00:00:00.9Z"], "looked at, and none"),
        (&["host", "10.9.9.9"], "by the indexes no packet of this time can match"),
        (&["udp", "and", "ip[8]", "=", "63"], "3 packets were looked at, and none matches"),
    ] {
        let found = find(&store, &[&["--count"], words].concat()).succeeded();
        assert!(
            found.stderr.contains("nothing found: ") && found.stderr.contains(reason),
            "{}",
            found.stderr
        );
        let json = find(&store, &[&["--count", "--json"], words].concat()).succeeded();
        assert!(json.account().value["search"]["notes"].to_string().contains(reason), "{words:?}");
    }
    let found = find(&store, &["--count", "udp"]).succeeded();
    assert!(!found.stderr.contains("nothing found"), "{}", found.stderr);
}

#[test]
fn times_before_the_oldest_packets_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let times: Vec<u32> = (0..40_000).collect();
    let store = recorded(folder.path(), 1400, &times, &[]);
    let found = find(&store, &["--count", "--from", "2024-01-01T00:00:00Z"]).succeeded();
    let told = "older packets have made room for newer ones: the store begins at 2024-01-01";
    assert!(found.stderr.contains(told), "{}", found.stderr);
    let found = find(&store, &["--count", "--to", "2024-01-01T00:00:01Z"]).succeeded();
    assert!(found.stderr.contains("nothing found: older packets have made room"), "{}", found.stderr);
}

#[test]
fn damage_is_told_with_every_answer() {
    let folder = tempfile::tempdir().unwrap();
    let times: Vec<u32> = (0..2_000).collect();
    let store = recorded(folder.path(), 1400, &times, &["--flush", "10ms"]);
    let segment = files_in(&store.join("seg")).remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    // In the packets of the second slot.
    bytes[(1 << 20) + 5000] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let found = find(&store, &["--count", "--json", "udp"]);
    assert_eq!(found.status.code(), Some(3), "{}", found.stderr);
    let account = found.account();
    assert_eq!(account.value["search"]["chunks_damaged"], 1, "{:?}", account.value);
    assert!((1..2_000).contains(&account.output("written")), "{:?}", account.value);
    let told = "warning: 1 chunk is damaged and not searched: packets may be missing";
    let found = find(&store, &["--count", "udp"]);
    assert!(found.stderr.contains(told), "{}", found.stderr);
    // Other commands that read a store tell it too.
    let probed = run(["probe", "-r", &format!("store:{}", text(&store)), "--json"]).succeeded();
    assert!(probed.stderr.contains("1 chunk is damaged"), "{}", probed.stderr);
    // Damage outside of the times does not matter.
    let found = find(&store, &["--count", "--to", "2024-01-01T00:00:00.010Z"]).succeeded();
    assert!(stdout(&found).contains("10 packets") && !found.stderr.contains("warning"), "{}", found.stderr);
}

#[test]
fn packets_come_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(9);
    // Up to 2.1 MB from where their times are, over several segments of 4 MiB.
    let mut times: Vec<u32> = (0..9_000).collect();
    times.sort_by_cached_key(|time| u64::from(*time) + random.below(1_500));
    let store = recorded(folder.path(), 1400, &times, &[]);
    let out = folder.path().join("found.pcap");
    for words in [&[][..], &["udp port 53"], &["--from", "2024-01-01T00:00:02Z"]] {
        let found = find(&store, &[&["-w", text(&out)], words].concat()).succeeded();
        let times: Vec<u64> = packets_of(&out).iter().map(|packet| packet.time_ns).collect();
        assert!(times.is_sorted() && !times.is_empty(), "{words:?}");
        assert_eq!(times.len(), if words.len() == 2 { 7_000 } else { 9_000 }, "{words:?}");
        assert!(!found.stderr.contains("order of time"), "{}", found.stderr);
    }
    // Without an index the heads of the chunks say as much.
    files_in(&store.join("seg"))
        .iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "tix"))
        .for_each(|path| fs::remove_file(path).unwrap());
    find(&store, &["-w", text(&out)]).succeeded();
    let times: Vec<u64> = packets_of(&out).iter().map(|packet| packet.time_ns).collect();
    assert!(times.is_sorted() && times.len() == 9_000);
}

#[test]
fn a_step_of_the_clock_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let times: Vec<u32> = (100_000..108_000).chain(1_000..9_000).collect();
    let store = recorded(folder.path(), 1400, &times, &[]);
    let out = folder.path().join("found.pcap");
    let found = find(&store, &["-w", text(&out)]).succeeded();
    assert_eq!(packets_of(&out).len(), 16_000);
    assert!(found.stderr.contains("not in the order of time"), "{}", found.stderr);
}

#[test]
fn flows_of_a_store_are_those_of_a_probe() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    run(["record", "-r", EXAMPLE, "--to", text(&store), "--size", "16MiB", "--segment", "4MiB"]).succeeded();
    let in_store = format!("store:{}", text(&store));
    let wanted = run(["probe", "-r", &in_store, "--export", "json:-", "--", "tcp"]).succeeded();
    let found = find(&store, &["--flows", "--json", "tcp"]).succeeded();
    assert!(found.stdout == wanted.stdout && found.stdout.len() > 100, "{}", stdout(&found));
    let (table, csv) = (find(&store, &["--flows", "tcp"]).succeeded(), folder.path().join("flows, all.csv"));
    assert!(stdout(&table).contains("tcp"), "{}", stdout(&table));
    find(&store, &["--flows", "-w", text(&csv), "tcp"]).succeeded();
    let lines = fs::read_to_string(&csv).unwrap().lines().count();
    assert_eq!(lines, stdout(&found).lines().count() + 1, "a line of names comes first");
    find(&store, &["--flows", "-w", "flows.doc"]).failed_saying(&["--flows writes .csv", ".parquet"]);
}
