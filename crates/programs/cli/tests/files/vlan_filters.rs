//! Filters that look behind VLAN tags: `--any-vlan` in every command that has a filter, the setting for all commands,
//! and the hint where a filter matches nothing of tagged traffic.

use std::fs;
use std::path::Path;

use crate::support::*;

/// Packets with two tags.
fn tagged(path: &Path) {
    run(["generate", "-w", text(path), "count=20", "udp", "vlan=5.7"]).succeeded();
}

#[test]
fn every_command_looks_behind_vlan_tags() {
    let folder = tempfile::tempdir().expect("there is room");
    let (tagged_file, rules) = (folder.path().join("in.pcap"), folder.path().join("rules.toml"));
    let store = folder.path().join("store");
    tagged(&tagged_file);
    let rule = "[[rule]]\nname = \"udp\"\non = \"packet\"\nfilter = \"udp\"\n";
    fs::write(&rules, rule).expect("a file of rules");
    let (file, store) = (text(&tagged_file), text(&store));
    run(["record", "-r", file, "--to", store, "--size", "16MiB", "--segment", "4MiB"]).succeeded();
    let graph = format!("file(\"{file}\") -> filter(\"udp\") -> count");
    let lines = |words: &[&str], is_any: bool| {
        let option: &[&str] = if is_any { &["--any-vlan"] } else { &[] };
        let (command, rest) = words.split_first().expect("a command");
        let run = run([&[*command], option, rest].concat()).succeeded();
        format!("{}{}", String::from_utf8_lossy(&run.stdout), run.stderr)
    };
    for (words, found) in [
        (&["capture", "-r", file, "--count", "udp"][..], "20 packets\n"),
        (&["find", store, "--count", "udp"], "20 packets\n"),
        (&["find", store, "--flows", "udp"], "20 packets, 0 dropped"),
        (&["probe", "-r", file, "udp"], "20 packets, 0 dropped"),
        (&["run", "-e", &graph], "1,200"),
        (&["grep", "-r", file, ".", "udp"], "20 of 20 packets match"),
        (&["stats", "-r", file, "udp"], "1,200"),
        (&["watch", "-r", file, "--rules", text(&rules)], "udp"),
    ] {
        let (without, with) = (lines(words, false), lines(words, true));
        assert!(with.contains(found), "{words:?}: {with}");
        assert_ne!(without, with, "{words:?}");
    }
}

#[test]
fn a_setting_is_for_all_commands() {
    let folder = tempfile::tempdir().expect("there is room");
    let (file, config) = (folder.path().join("in.pcap"), folder.path().join("config"));
    tagged(&file);
    fs::create_dir(&config).expect("a folder");
    fs::write(config.join("tapline.toml"), "any-vlan = true\n[capture]\nany-vlan = false\n").expect("a file");
    let count = |command: &str| {
        let run = tapline([command, "-r", text(&file), "udp"]).env("TAPLINE_CONFIG_DIR", &config).output();
        String::from_utf8_lossy(&run.expect("it runs").stderr).into_owned()
    };
    assert!(count("probe").contains("20 packets, 0 dropped"));
    assert!(count("capture").contains("0 packets, 0 dropped"));
}

#[test]
fn tagged_packets_and_no_match_give_a_hint() {
    let folder = tempfile::tempdir().expect("there is room");
    let (tagged_file, plain) = (folder.path().join("in.pcap"), folder.path().join("plain.pcap"));
    tagged(&tagged_file);
    run(["generate", "-w", text(&plain), "count=20", "udp"]).succeeded();
    let store = folder.path().join("store");
    let hint = "tapline: no packet matched, and packets have VLAN tags; --any-vlan looks behind them";
    let recorded = run([
        "record",
        "-r",
        text(&tagged_file),
        "--to",
        text(&store),
        "--size",
        "16MiB",
        "--segment",
        "4MiB",
        "udp",
    ])
    .succeeded();
    assert!(recorded.stderr.contains(hint), "{}", recorded.stderr);
    for (file, filter, is_hinted) in [
        (&tagged_file, &["udp"][..], true),
        (&tagged_file, &["vlan 5"], false),
        (&tagged_file, &["vlan 6"], false),
        (&tagged_file, &["--any-vlan", "tcp"], false),
        (&tagged_file, &["arp or len > 0"], false),
        (&plain, &["tcp"], false),
    ] {
        for command in ["capture", "probe"] {
            let run = run([&[command, "-r", text(file)], filter].concat()).succeeded();
            assert_eq!(run.stderr.contains(hint), is_hinted, "{command} {filter:?}: {}", run.stderr);
        }
    }
    // Each column and each rule has a filter of its own.
    let rules = folder.path().join("rules.toml");
    let rule = |name: &str, filter: &str| {
        format!("[[rule]]\nname = \"{name}\"\non = \"packet\"\nfilter = \"{filter}\"\nlimit = \"1/1h\"\n")
    };
    fs::write(&rules, [rule("udp", "udp"), rule("all", "len > 0"), rule("vlan", "vlan 6")].concat())
        .expect("rules");
    let hint = "no packet matched, and packets have VLAN tags; --any-vlan looks behind them";
    for (file, option, is_hinted) in
        [(&tagged_file, &["--any-vlan"][..], false), (&tagged_file, &[], true), (&plain, &[], false)]
    {
        let stats =
            run([&["stats", "-r", text(file)], option, &["udp port 1", "len > 0", "vlan 6"]].concat());
        let watch = run([&["watch", "-r", text(file), "--rules", text(&rules)], option].concat());
        for (ran, hinted) in [(stats.succeeded(), "`udp port 1`: "), (watch.succeeded(), "rule udp: ")] {
            let hints = ran.stderr.lines().filter(|line| line.contains(hint)).count();
            assert_eq!(hints, usize::from(is_hinted), "{}", ran.stderr);
            assert_eq!(ran.stderr.contains(&format!("{hinted}{hint}")), is_hinted, "{}", ran.stderr);
        }
    }
    // Of several filters, the hint names the one.
    let graph = format!(
        "file({tagged_file:?}) -> t :: tee; t -> all :: filter(\"len > 0\") -> drop; t -> udp :: filter(\"udp\") -> drop"
    );
    let run = run(["run", "-e", &graph]).succeeded();
    assert!(run.stderr.contains(&format!("tapline: udp: {hint}")), "{}", run.stderr);
}
