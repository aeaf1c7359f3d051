//! Commands on stores for other programs: errors and counts as JSON, exit statuses, limits of the process; packets as
//! they are stored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, TAPLINE, finish, packets_of, program_or_skip, run, text};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
const ETHERNET: u16 = 1;
/// Loopback of BSD.
const NULL: u16 = 0;
/// Packets of up to 128 MiB.
const DBUS: u16 = 231;

fn block(bytes: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (12 + body.len().next_multiple_of(4)) as u32;
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len() + body.len().wrapping_neg() % 4, 0);
    bytes.extend_from_slice(&len.to_le_bytes());
}

/// An interface of a pcapng file.
#[derive(Clone)]
struct Described {
    link_type: u16,
    name: String,
    /// Seconds that are added to its times.
    offset: i64,
    packet: Vec<u8>,
}

impl Described {
    fn new(link_type: u16, name: &str, packet: Vec<u8>) -> Described {
        Described { link_type, name: name.to_owned(), offset: 0, packet }
    }
}

/// A pcapng file with a packet of each interface, a microsecond apart.
fn write_pcapng(path: &Path, snap_len: u32, interfaces: &[Described]) {
    let mut bytes = Vec::new();
    block(&mut bytes, 0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    for one in interfaces {
        let mut body = u32::from(one.link_type).to_le_bytes().to_vec();
        body.extend_from_slice(&snap_len.to_le_bytes());
        body.extend_from_slice(&[&2_u16.to_le_bytes()[..], &(one.name.len() as u16).to_le_bytes()].concat());
        body.extend_from_slice(one.name.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend_from_slice(&[14, 0, 8, 0]);
        body.extend_from_slice(&one.offset.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        block(&mut bytes, 1, &body);
    }
    for (number, Described { packet, .. }) in interfaces.iter().enumerate() {
        let time = 1_700_000_000_000_000 + number as u64;
        let len = packet.len() as u32;
        let words = [number as u32, (time >> 32) as u32, time as u32, len, len];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend_from_slice(packet);
        block(&mut bytes, 6, &body);
    }
    fs::write(path, bytes).unwrap();
}

/// A store of such a file.
fn imported(folder: &Path, interfaces: &[Described]) -> PathBuf {
    let (file, store) = (folder.join("made.pcapng"), folder.join("store"));
    write_pcapng(&file, 65_535, interfaces);
    run(["store", "import", text(&store), text(&file)]).succeeded();
    store
}

fn udp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 53]);
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    frame
}

/// The objects of standard output.
fn objects(ended: &Finished) -> Vec<Value> {
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn counts_and_errors_are_objects_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let store = imported(folder.path(), &[Described::new(ETHERNET, "eth0", udp())]);
    let found = run(["find", text(&store), "--count", "--json", "udp"]).succeeded();
    let objects_found = objects(&found);
    assert_eq!((objects_found.len(), &objects_found[0]["count"]), (1, &1.into()), "{objects_found:?}");
    let nowhere = folder.path().join("nowhere");
    for words in [
        &["find", text(&nowhere)][..],
        &["store", "check", text(&nowhere)],
        &["store", "hold", text(&store), "a b"],
        &["record", "-r", text(&nowhere), "--to", text(&store)],
    ] {
        let ended = run(words.iter().copied().chain(["--json"]));
        ended.failed_saying(&["tapline: "]);
        let said = objects(&ended);
        let error = said.last().and_then(|last| last["error"].as_str()).unwrap_or_default();
        assert!(!error.is_empty() && ended.stderr.contains(error), "{words:?}: {said:?}\n{}", ended.stderr);
    }
    run(["find", text(&store), "-c", "0"]).failed_saying(&["0 is not 1 or more\n"]);
    run(["find", text(&store), "--from", "@9300000000"]).failed_saying(&["--from", "1677 to 2262"]);
}

#[test]
fn packets_that_a_store_lacks_fail_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (file, store) = (folder.path().join("long.pcapng"), folder.path().join("store"));
    // Longer than a segment of 4 MiB.
    let long = Described::new(DBUS, "bus", vec![1; 5 << 20]);
    write_pcapng(&file, 0, &[long, Described::new(DBUS, "bus", vec![2; 100])]);
    let told = "1 packets are not in the store";
    let recorded = run([
        "record",
        "-s",
        "6M",
        "-r",
        text(&file),
        "--to",
        text(&store),
        "--size",
        "16MiB",
        "--segment",
        "4MiB",
    ]);
    recorded.failed_saying(&[told]);
    let graph = format!("file(\"{}\") -> store(\"{}\", size=16MiB, segment=4MiB)", text(&file), text(&store));
    let graphed = run(["run", "-e", &graph]);
    graphed.failed_saying(&[told]);
    assert_eq!((recorded.status.code(), graphed.status.code()), (Some(1), Some(1)));
    let found = run(["find", text(&store), "--count", "--json"]).succeeded();
    assert_eq!(objects(&found)[0]["count"], 2);
}

#[test]
fn thousands_of_interfaces_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let (file, store) = (folder.path().join("many.pcapng"), folder.path().join("store"));
    let mut all: Vec<Described> =
        (0..60_000).map(|number| Described::new(ETHERNET, &format!("port{number:05}"), udp())).collect();
    // A time before 1970.
    all[7].offset = -1_800_000_000;
    write_pcapng(&file, 65_535, &all);
    let ended = run(["store", "import", text(&store), text(&file), "--json"]).succeeded();
    let account = &objects(&ended)[0];
    assert_eq!((&account["written"], &account["lost"]), (&60_000.into(), &0.into()), "{account}");
    let joined = account["interfaces_joined"].as_u64().unwrap();
    assert!((30_000..60_000).contains(&joined), "{account}");
    assert_eq!(account["packets_out_of_time"], 1, "{account}");
    let found = run(["find", text(&store), "--count", "--json", "udp port 53"]).succeeded();
    assert_eq!(objects(&found)[0]["count"], 60_000);
}

#[test]
fn an_odd_link_type_ends_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut tagged = udp();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let odd = Described::new(NULL, "lo0", [&[2, 0, 0, 0], &udp()[14..]].concat());
    // Met first, and last.
    let all = [odd.clone(), Described::new(ETHERNET, "eth0", tagged), odd.clone()];
    let store = imported(folder.path(), &all);
    let name = format!("store:{}", text(&store));
    let probed = run(["probe", "-r", &name, "--export", "json:-", "vlan"]).succeeded();
    let flows = objects(&probed).len();
    assert!(flows == 1 && probed.stderr.contains("packets not accepted"), "{flows}: {}", probed.stderr);
    let probed = run(["probe", "-r", &name, "--json", "vlan"]).succeeded();
    let account = &objects(&probed).pop().unwrap()["account"];
    assert_eq!(account["unfit_link_types"][0]["packets"], 2, "{account}");
    let graph = format!("file(\"{name}\") -> filter(\"vlan 5\") -> count");
    let counted = run(["run", "-e", &graph]).succeeded();
    assert!(counted.stderr.contains("2 of link type NULL"), "{}", counted.stderr);
    run(["store", "hold", text(&store), "tags", "vlan 5"]).succeeded();
    // A store with nothing else: no answer is given as if there were one.
    let only = folder.path().join("only");
    fs::create_dir(&only).unwrap();
    let store = imported(&only, &[odd]);
    for words in
        [&["find", text(&store), "--count", "vlan"][..], &["store", "hold", text(&store), "x", "vlan"]]
    {
        run(words).failed_saying(&["not supported on"]);
    }
    let name = format!("store:{}", text(&store));
    run(["probe", "-r", &name, "vlan"]).failed_saying(&["not supported on"]);
    run(["find", text(&store), "--count", "udp"]).succeeded();
}

#[test]
fn answers_have_packets_as_they_are_stored() {
    let test = "answers_have_packets_as_they_are_stored";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.pcapng");
    let packet: Vec<u8> = udp().into_iter().chain((0..300).map(|byte| byte as u8)).collect();
    let bus: Vec<u8> = (0..300_000).map(|byte| byte as u8).collect();
    for (link_type, packet) in [(ETHERNET, packet), (DBUS, bus)] {
        let store = folder.path().join(format!("store{link_type}"));
        // The files say 96 bytes at most, and have more.
        write_pcapng(&file, 96, &[Described::new(link_type, "port", packet.clone())]);
        run(["store", "import", text(&store), text(&file)]).succeeded();
        for ending in ["pcapng", "pcap"] {
            let out = folder.path().join(format!("found.{ending}"));
            run(["find", text(&store), "-w", text(&out)]).succeeded();
            let found: Vec<Vec<u8>> = packets_of(&out).into_iter().map(|packet| packet.data).collect();
            assert!(found == [packet.clone()], "{link_type} {ending}: {}", found[0].len());
            if program_or_skip(test, "tcpdump") {
                let read = finish(Command::new("tcpdump").args(["--count", "-r", text(&out)])).succeeded();
                assert!(read.stdout.starts_with(b"1 packet"), "{}", read.stderr);
            }
        }
    }
}

#[test]
fn limits_of_a_process_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = imported(folder.path(), &[Described::new(ETHERNET, "eth0", udp())]);
    let limited = |limit: &str, words: &[&str]| {
        let script = format!("ulimit {limit}; exec \"$@\"");
        finish(Command::new("sh").args(["-c", &script, "sh", TAPLINE]).args(words))
    };
    limited("-n 30", &["find", text(&store)]).failed_saying(&["30 files open", "ulimit -n"]);
    limited("-n 80", &["find", text(&store), "--count"]).succeeded();
    let to = folder.path().join("other");
    limited("-n 30", &["record", "-r", EXAMPLE, "--to", text(&to)]).failed_saying(&["ulimit -n"]);
    let out = folder.path().join("out.pcapng");
    limited("-f 8", &["capture", "-r", EXAMPLE, "-w", text(&out)]).failed_saying(&["ulimit -f"]);
}

#[test]
fn following_ends_with_the_times() {
    let folder = tempfile::tempdir().unwrap();
    let store = imported(folder.path(), &[Described::new(ETHERNET, "eth0", udp())]);
    let found = run(["find", text(&store), "--follow", "--to", "2023-12-01", "--count"]).succeeded();
    assert!(found.stdout.starts_with(b"1 packet"), "{}", found.stderr);
}
