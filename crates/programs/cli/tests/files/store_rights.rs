//! Stores among other users, odd captures and full disks: rights of files, users that a recorder becomes, link types,
//! lost packets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{finish, root_or_skip, run, text};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
/// The number of the user nobody on systems of Linux.
const NOBODY: u32 = 65_534;

/// A pcap file of packets of a link type.
fn write_pcap(path: &Path, link_type: u32, packets: impl Iterator<Item = Vec<u8>>) {
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    for number in [0x0004_0002, 0, 0, 262_144, link_type] {
        bytes.extend_from_slice(&u32::to_le_bytes(number));
    }
    for (number, packet) in (0..).zip(packets) {
        let len = packet.len() as u32;
        for number in [1_795_518_000 + number / 1000, number % 1000, len, len] {
            bytes.extend_from_slice(&u32::to_le_bytes(number));
        }
        bytes.extend_from_slice(&packet);
    }
    fs::write(path, bytes).unwrap();
}

/// Ethernet packets of 1,500 bytes of an experimental protocol.
fn long_packets(count: usize) -> impl Iterator<Item = Vec<u8>> {
    std::iter::repeat_with(|| {
        let mut packet = vec![7; 1500];
        packet[12..14].copy_from_slice(&[0x88, 0xb5]);
        packet
    })
    .take(count)
}

/// A folder that every user may look into.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A command under a umask.
fn under_umask(umask: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_tapline")]).args(arguments);
    command
}

fn all_below(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all_below(&path, found) } else { found.push(path) }
    }
}

#[test]
fn other_users_cannot_read_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let (imported, recorded) = (folder.path().join("imported"), folder.path().join("recorded"));
    let sizes = ["--size", "8MiB", "--segment", "4MiB"];
    let import = ["store", "import", text(&imported), EXAMPLE, "--segment", "4MiB"];
    finish(&mut under_umask("000", &import)).succeeded();
    let record = [&["record", "-r", EXAMPLE, "--to", text(&recorded)], &sizes[..]].concat();
    finish(&mut under_umask("000", &record)).succeeded();
    finish(&mut under_umask("000", &["store", "hold", text(&recorded), "case", "tcp"])).succeeded();
    for store in [imported, recorded] {
        let mut found = Vec::new();
        all_below(&store, &mut found);
        assert!(found.len() > 6, "{found:?}");
        for path in found {
            let about = fs::metadata(&path).unwrap();
            let most = if about.is_dir() { 0o750 } else { 0o640 };
            assert_eq!(about.mode() & 0o777 & !most, 0, "{}: {:o}", path.display(), about.mode());
        }
    }
}

#[test]
fn a_recorder_without_rights_refuses_to_start() {
    if !root_or_skip("a_recorder_without_rights_refuses_to_start") {
        return;
    }
    let folder = open_folder();
    let store = folder.path().join("store");
    let to = ["--to", text(&store), "--size", "8MiB"];
    let record = |more: &'static [&'static str]| [&["record", "-r", EXAMPLE], &to[..], more].concat();
    finish(&mut under_umask("077", &record(&["--segment", "4MiB"]))).succeeded();
    // The directory is root's own and stays so.
    let refused = run(record(&["-Z", "nobody"]));
    refused.failed_saying(&["Permission denied", "chown -R 65534"]);
    assert_eq!(fs::metadata(&store).unwrap().uid(), 0);
    std::os::unix::fs::chown(&store, Some(NOBODY), None).unwrap();
    run(record(&["-Z", "nobody"])).succeeded();
}

#[test]
fn holds_of_root_do_not_stop_recorders_of_users() {
    if !root_or_skip("holds_of_root_do_not_stop_recorders_of_users") {
        return;
    }
    let folder = open_folder();
    let (store, packets) = (folder.path().join("store"), folder.path().join("packets.pcap"));
    write_pcap(&packets, 1, long_packets(9000));
    let record = ["record", "-r", text(&packets), "--to", text(&store), "--size", "8MiB", "-Z", "nobody"];
    let first = [&record[..], &["--segment", "4MiB"]].concat();
    run(&first).succeeded();
    finish(&mut under_umask("077", &["store", "hold", text(&store), "case", "host 1.2.3.4"])).succeeded();
    for name in ["holds", "holds/case.toml"] {
        assert_eq!(fs::metadata(store.join(name)).unwrap().uid(), NOBODY, "{name}");
    }
    let ended = run([&record[..], &["--json"]].concat()).succeeded();
    assert_eq!(ended.account().output("lost"), 0);
}

#[test]
fn lost_packets_of_a_store_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (store, packets) = (folder.path().join("store"), folder.path().join("packets.pcap"));
    write_pcap(&packets, 1, long_packets(6000));
    let record = ["record", "-r", text(&packets), "--to", text(&store), "--size", "8MiB", "--json"];
    run([&record[..], &["--segment", "4MiB"]].concat()).succeeded();
    run(["store", "hold", text(&store), "all"]).succeeded();
    let ended = run(record);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("packets are not in the store"), "{}", ended.stderr);
    let value: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let missing = value["account"]["missing_in_store"].as_u64().unwrap();
    assert!(missing > 0 && missing == value["account"]["outputs"][0]["lost"], "{value}");
}

#[test]
fn unfit_link_types_do_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (mixed, odd) = (folder.path().join("mixed"), folder.path().join("odd"));
    // BSD loopback: the address family, then IPv4.
    let loopback = folder.path().join("loopback.pcap");
    let mut packet = vec![2, 0, 0, 0, 0x45, 0, 0, 20];
    packet.resize(24, 0);
    write_pcap(&loopback, 0, std::iter::repeat_n(packet, 5));
    run(["store", "import", text(&mixed), EXAMPLE, text(&loopback)]).succeeded();
    run(["store", "import", text(&odd), text(&loopback)]).succeeded();
    let filter = "not ether host 02:00:00:00:00:09";
    let of_example = run(["capture", "-r", EXAMPLE, "--count", filter]).succeeded().stdout;
    let ended = run(["find", text(&mixed), "--count", "--", filter]).succeeded();
    assert_eq!(ended.stdout, of_example);
    assert_eq!(ended.stderr.matches("does not support this filter").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("5 of link type NULL"), "{}", ended.stderr);
    run(["find", text(&odd), "--count", "--", filter]).failed_saying(&["ether"]);
    let erased = run(["store", "forget", text(&mixed), "--dry-run", "--json", "--", filter]).succeeded();
    let account: Value = serde_json::from_slice(&erased.stdout).unwrap();
    assert_eq!((&account["packets_unfit"], &account["balanced"]), (&5.into(), &true.into()), "{account}");
    run(["store", "forget", text(&odd), "--dry-run", "--", filter]).failed_saying(&["ether"]);
}

/// Number of reserved files that are not segments.
fn reserved(store: &Path) -> usize {
    let entries = fs::read_dir(store.join("seg")).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().starts_with("spare-")).count()
}

#[test]
fn an_import_leaves_no_room_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let (new, old) = (folder.path().join("new"), folder.path().join("old"));
    let packets = folder.path().join("packets.pcap");
    write_pcap(&packets, 1, long_packets(6000));
    run(["store", "import", text(&new), text(&packets), "--segment", "4MiB"]).succeeded();
    assert_eq!((reserved(&new), new.join("reserve").exists()), (0, false));
    // What a recorder keeps stays.
    run(["record", "-r", EXAMPLE, "--to", text(&old), "--size", "64MiB", "--segment", "4MiB"]).succeeded();
    let kept = (reserved(&old), fs::metadata(old.join("reserve")).unwrap().len());
    run(["store", "import", text(&old), text(&packets)]).succeeded();
    assert!((kept.0 - 3..=kept.0).contains(&reserved(&old)), "{kept:?}");
    let room = fs::metadata(old.join("reserve")).unwrap().len();
    assert!((kept.1 / 2..=kept.1).contains(&room), "{room} of {}", kept.1);
    assert_eq!(run(["store", "verify", text(&old)]).status.code(), Some(0));
}

#[test]
fn reasons_of_holds_do_not_steer_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    run(["store", "import", text(&store), EXAMPLE]).succeeded();
    let hold = ["store", "hold", text(&store), "case", "--why", "a\u{1b}[31m\nb\u{202e}c"];
    let made = run(hold).succeeded();
    let listed = run(["store", "hold", text(&store)]).succeeded();
    for out in [made.stdout, listed.stdout] {
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 1, "{out:?}");
        assert!(out.contains("a [31m b c") && !out.contains('\u{1b}'), "{out:?}");
    }
}
