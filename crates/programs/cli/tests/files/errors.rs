//! Errors say what happened, where, and what to do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::*;
use signal_hook::consts::SIGINT;
use tapline_sys::process;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sample;
use tapline_testkit::traffic::Traffic;

#[test]
fn a_bad_filter_is_shown_with_a_caret_at_the_place() {
    let finished = run(["capture", "-r", sample::STORED, "-n", "tcp port 80 and and udp"]);
    finished.failed_saying(&["tcp port 80 and and udp", "^"]);
    let mut lines = finished.stderr.lines().skip_while(|line| !line.contains("and and"));
    let (text, caret) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(caret.find('^'), text.find("and udp"), "{}", finished.stderr);
    assert_eq!(finished.stdout, b"", "packets were printed before the filter was understood");
}

#[test]
fn a_file_taken_for_a_host_is_explained() {
    let failed = run(["probe", "-r", sample::STORED, "--export", "no-such-host.invalid"]);
    failed.failed_saying(&["`no-such-host.invalid` is taken for a host", "file:no-such-host.invalid"]);
}

#[test]
fn wrong_destinations_are_wrong_command_lines() {
    let folder = tempfile::tempdir().unwrap();
    let input = fs::canonicalize(sample::STORED).unwrap();
    for (export, words) in [
        ("", &["--export names nothing"][..]),
        ("foo:x", &["`foo:x`", "the port is not a number"]),
        ("kafka:", &["`kafka:`", "the name is missing", "kafka://HOST/TOPIC"]),
        ("json:", &["`json:`", "the name is missing", "json:NAME"]),
        ("parquet:", &["`parquet:`", "the name is missing", "parquet:DIRECTORY"]),
        ("file:a,json:a", &["file:a and json:a", "of this command write the same file"]),
        ("json:a,json:a", &["json:a and json:a", "of this command write the same file"]),
        ("csv:a,batch+file:./a", &["csv:a and batch+file:./a", "of this command write the same file"]),
        ("http://127.0.0.1:1/p,http://127.0.0.1:1/p", &["http://127.0.0.1:1/p is named twice"]),
    ] {
        for command in ["probe", "collect-flows"] {
            let mut program = tapline([command, "--export", export, "-r", text(&input)]);
            let failed = finish(program.current_dir(folder.path()));
            failed.failed_saying(words);
            assert_eq!(failed.status.code(), Some(2), "{command} {export}: {}", failed.stderr);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file was made");
}

#[test]
fn a_bad_filter_fails_before_a_file_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    run(["capture", "-r", sample::STORED, "-w", out.to_str().unwrap(), "port nonsense-port"])
        .failed_saying(&["nonsense-port"]);
    assert!(!out.exists());
}

#[test]
fn a_missing_interface_is_reported_with_others() {
    if !namespaces_or_skip("a_missing_interface_is_reported_with_others") {
        return;
    }
    let namespace = Namespace::with_pair("errors").unwrap();
    let finished = run(["capture", "--netns", namespace.name(), "-i", "eth99", "-n"]);
    finished.failed_saying(&["eth99", NEAR, FAR]);
}

#[test]
fn a_missing_namespace_is_named() {
    if !root_or_skip("a_missing_namespace_is_named") {
        return;
    }
    run(["capture", "--netns", "no-such-namespace", "-i", "any", "-n"]).failed_saying(&["no-such-namespace"]);
}

#[test]
fn a_missing_capability_is_named_with_its_remedy() {
    const TEST: &str = "a_missing_capability_is_named_with_its_remedy";
    if !root_or_skip(TEST) || !program_or_skip(TEST, "setpriv") {
        return;
    }
    // The folder of the build may be closed to other users.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("tapline");
    copy_program(&program);
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]);
    command.arg(&program).args(["capture", "-i", "lo", "-n"]);
    finish(&mut command).failed_saying(&["CAP_NET_RAW", "setcap"]);
}

#[test]
fn full_disks_keep_packets_and_count_the_others() {
    const TEST: &str = "full_disks_keep_packets_and_count_the_others";
    if !root_or_skip(TEST) || !program_or_skip(TEST, "unshare") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (small, input) = (folder.path().join("small"), folder.path().join("in.pcap"));
    fs::create_dir(&small).unwrap();
    let mut file = fs::File::create(&input).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, Traffic::new(1).take(3000)).unwrap();
    let whole = packets_of(&input);
    for ending in ["pcap", "pcapng"] {
        // In a mount namespace of its own, so that nothing is left to unmount.
        let script = "mount -t tmpfs -o size=256k none \"$1\" || exit 99
            \"$2\" capture -r \"$3\" -w \"$1/out.$4\" --json; code=$?
            cp \"$1/out.$4\" \"$5\"; exit $code";
        let saved = folder.path().join(format!("saved.{ending}"));
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(&small)
            .arg(TAPLINE)
            .arg(&input)
            .arg(ending)
            .arg(&saved);
        let finished = finish(&mut command);
        if finished.status.code() == Some(99) {
            return eprintln!("skipped: {TEST}: no tmpfs: {}", finished.stderr);
        }
        finished.failed_saying(&["out.", "the disk is full"]);
        let account = finished.account();
        let kept = packets_of(&saved);
        assert!(kept.len() > 50, "{} packets of a file of 256 kB", kept.len());
        assert_eq!(bytes_of(kept.clone()), bytes_of(whole[..kept.len()].to_vec()));
        assert_eq!(account.output("written"), kept.len() as u64);
        assert_eq!(account.output("written") + account.output("lost"), account.count("accepted"));
        assert!(account.output("lost") > 0);
    }
}

#[test]
fn a_device_without_room_is_an_error() {
    run(["capture", "-r", sample::STORED, "-w", "/dev/full"])
        .failed_saying(&["/dev/full", "the disk is full"]);
}

#[test]
fn dropping_privileges_changes_no_foreign_owner() {
    if !root_or_skip("dropping_privileges_changes_no_foreign_owner") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("out.pcap");
    fs::write(&roots, "content").unwrap();
    let copy_to =
        |path: &Path| run(["capture", "-r", sample::STORED, "-Z", "nobody", "-w", path.to_str().unwrap()]);
    copy_to(&roots).failed_saying(&["does not belong", "-Z root"]);
    assert_eq!(fs::read(&roots).unwrap(), b"content");
    // A pipe can be written to, as a device can, and stays whose it is.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::null()).spawn();
    copy_to(&pipe).succeeded();
    assert!(reader.unwrap().wait().unwrap().success());
    assert_eq!(fs::metadata(&pipe).unwrap().uid(), 0);
}

/// A user who may write to a folder must not be able to make root write elsewhere through a link.
#[test]
fn root_writes_through_no_link_unless_told() {
    if !root_or_skip("root_writes_through_no_link_unless_told") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [target, link, flows] = ["target", "link.pcap", "flows.json"].map(|name| folder.path().join(name));
    fs::write(&target, "content").unwrap();
    for path in [&link, &flows] {
        std::os::unix::fs::symlink(&target, path).unwrap();
    }
    let copy = ["capture", "-r", sample::STORED, "-Z", "root", "-w", link.to_str().unwrap()];
    run(copy).failed_saying(&["it is a link", "--follow-links"]);
    let rows = format!("json:{}", flows.display());
    run(["probe", "-r", sample::STORED, "-Z", "root", "--export", &rows]).failed_saying(&["it is a link"]);
    assert_eq!(fs::read(&target).unwrap(), b"content");
    run(copy.into_iter().chain(["--follow-links"])).succeeded();
    assert_ne!(fs::read(&target).unwrap(), b"content");
    let plain = folder.path().join("plain.pcap");
    run(["capture", "-r", sample::STORED, "-Z", "root", "-w", plain.to_str().unwrap()]).succeeded();
    assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o777 & !0o640, 0);
    // Names of what is open already are links that the system made.
    for user in ["root", "nobody"] {
        let output = run(["capture", "-r", sample::STORED, "-Z", user, "-w", "/dev/stdout"]).succeeded();
        assert_eq!(output.stdout, fs::read(&plain).unwrap(), "as {user}");
    }
}

/// Results are the same with the rights of root and confined without them: files, flows to files and to collectors,
/// names, programs.
#[test]
fn a_capture_without_rights_completes_its_work() {
    if !root_or_skip("a_capture_without_rights_completes_its_work") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::copy(sample::STORED, path("in.pcapng")).unwrap();
    fs::set_permissions(path("in.pcapng"), fs::Permissions::from_mode(0o644)).unwrap();
    let results = |user: &str| -> Vec<Vec<u8>> {
        let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(PATIENCE)).unwrap();
        let [rows, messages, packed] =
            ["rows", "messages", "packed.pcap.zst"].map(|name| path(&format!("{user}-{name}")));
        let to = format!("json:{rows},file:{messages},{}", collector.local_addr().unwrap());
        let input = path("in.pcapng");
        run(["probe", "-r", &input, "-Z", user, "--details", "all", "--export", &to]).succeeded();
        let mut message = [0; 2048];
        let len = collector.recv(&mut message).expect("a message comes");
        run(["capture", "-r", &input, "-Z", user, "-w", &packed, "-C", "1", "--part"]).succeeded();
        let graph = format!("file(\"{input}\") -> match(\"GET\") -> print");
        let shown = run(["run", "-Z", user, "-e", &graph]).succeeded();
        let text = run(["capture", "-r", &input, "-Z", user, "-vv", "-X"]).succeeded();
        vec![
            fs::read(rows).unwrap(),
            fs::read(messages).unwrap(),
            message[..len].to_vec(),
            fs::read(packed).unwrap(),
            shown.stdout,
            text.stdout,
        ]
    };
    let (root, nobody) = (results("root"), results("nobody"));
    assert!(
        root == nobody,
        "{:?} and {:?} bytes",
        root.iter().map(Vec::len).collect::<Vec<_>>(),
        nobody.iter().map(Vec::len).collect::<Vec<_>>()
    );
}

#[test]
fn a_second_ctrl_c_ends_the_wait_for_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = tapline(["capture", "-r", sample::STORED, "-w", pipe.to_str().unwrap()]).spawn().unwrap();
    let id = child.id().to_string();
    let mut announced = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut announced).unwrap();
    // Signals that come while one waits for a busy process are one signal: they are sent until two were obeyed.
    wait_for("the end", || {
        let _ = Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status();
        sleep(Duration::from_millis(50));
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_output_that_cannot_be_made_is_named() {
    run(["capture", "-r", sample::STORED, "-w", "/nonexistent/out.pcap"])
        .failed_saying(&["/nonexistent/out.pcap", "No such file"]);
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    let mut file = fs::File::create(&input).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, Traffic::new(2).take(50_000)).unwrap();
    for flags in [&["-n"][..], &["-w", "-"], &["--json"]] {
        let mut child = tapline(["capture", "-r", input.to_str().unwrap()]).args(flags).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_until(b'\n', &mut Vec::new()).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert!(output.status.code().is_some(), "ended by a signal: {}", output.status);
    }
}

/// In every command, as docs/exit-status.md says.
#[test]
fn mistakes_of_the_caller_have_their_status() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").to_str().unwrap().to_owned();
    run(["store", "import", &store, sample::STORED]).succeeded();
    let of_store = format!("store:{store}");
    let program = folder.path().join("wrong.fpl").to_str().unwrap().to_owned();
    fs::write(&program, "RETURN PKT.NOTHING;\n").unwrap();
    let with_program = format!("file({:?}) -> fpl({program:?}) -> drop", sample::STORED);
    let place = folder.path().join("place").to_str().unwrap().to_owned();
    let published = format!(
        "file({:?}) -> publish(dns, users=\"nobody-of-this-name\", socket={place:?})",
        sample::STORED
    );
    let cells = folder.path().join("cells").to_str().unwrap().to_owned();
    let counting = folder.path().join("count.fpl").to_str().unwrap().to_owned();
    fs::write(&counting, "M[0] += 1;\nRETURN 1;\n").unwrap();
    let count = ["capture", "-r", sample::STORED, "--count", "--fpl", &counting, "--fpl-memory-file", &cells];
    run(count).succeeded();
    for line in [
        &["capture", "-r", sample::STORED, "tcp prot"][..],
        &["capture", "-r", sample::STORED, "tcp and ip6 and arp"],
        &["probe", "-r", sample::STORED, "tcp prot"],
        &["probe"],
        &["probe", "-r", sample::STORED, "--idle-timeout", "11000d"],
        &["probe", "-r", sample::STORED, "--payload", "8"],
        &["probe", "-r", sample::STORED, "--spool", "/tmp/x,1G"],
        &["collect-flows"],
        &["collect-flows", "--listen", "nothing"],
        &["collect-flows", "-r", sample::STORED, "tcp prot"],
        &["run", "-e", r#"file("a.pcap") -> filter("tcp prot") -> drop"#],
        &["run", "-e", "file("],
        &["profile", "-r", sample::STORED, "tcp prot"],
        &["find", &store, "tcp prot"],
        &["store", "hold", &store, "a", "tcp prot"],
        &["store", "forget", &store, "--yes", "tcp prot"],
        &["replay", &of_store, "-i", "lo", "--filter", "tcp prot"],
        &["record", "-r", sample::STORED, "--to", &store, "tcp prot"],
        &["filter", "explain", "tcp prot"],
        &["filter", "bench", "tcp prot"],
        &["generate", "-w", "-", "match='tcp prot'"],
        &["serve", "-r", sample::STORED, "--history", "tcp prot", "--socket", "/nonexistent/x"],
        &["top", "--filter", "tcp prot", "--once"],
        &["capture", "-r", sample::STORED, "-Q", "in"],
        &["capture", "-r", sample::STORED, "--workers", "2", "--print"],
        &["capture", "-r", sample::STORED, "-y", "NOTHING"],
        &["capture", "-r", sample::STORED, "-y", "RAW"],
        &["capture", "-r", sample::STORED, "-Z", "nobody-of-this-name"],
        &["capture", "-r", sample::STORED, "--fpl", &program, "--count"],
        &["filter", "explain", "--fpl", &program],
        &["run", "-e", &with_program],
        &["run", "--check", "-e", &with_program],
        &["run", "-e", &published],
        &["memory", &cells, "--set", "9999999=1"],
        &["capture", "-r", sample::STORED, "-w", "/nonexistent/x", "-C", "much"],
        &["capture", "-r", sample::STORED, "--follow"],
        &["capture", "-r", sample::STORED, "--count", "--spool", "/tmp/x,1G"],
        &["capture", "-r", sample::STORED, "-w", "kafka://h"],
        &["capture", "-r", &of_store, "-r", sample::STORED],
        &["capture", "-i", "lo,xdp:lo"],
        &["capture", "-i", "lo", "--from", "-1h"],
        &["find", &store, "--from", "nonsense"],
        &["find", &store, "--flows", "-w", "a.txt"],
        &["find", "tap:x", "--explain"],
        &["store", "forget", &store, "--yes"],
        &["store", "forget", &store, "tcp"],
        &["record", "--to", &store],
        &["grep", "[", "-r", sample::STORED],
        &["generate", "-w", "a.pcap", "size=60"],
        &["generate", "-i", "lo", "nothing=1"],
        &["replay", "-i", "lo", sample::STORED, "--filter", "tcp"],
        &["run"],
        &["run", "--stages", "nothing"],
        &["profile"],
        &["profile", "--timestamps", "--micro"],
        &["profile", "-e", "nothing"],
        &["top", "--once", "--page", "events"],
        &["extcap"],
        &["filter", "explain", "-y", "NOTHING", "tcp"],
        &["filter", "explain", "--stage", "nothing", "tcp"],
        &["config", "show", "nothing"],
        &["serve"],
        &["info", &of_store, sample::STORED],
        &["metrics"],
        &["metrics", "--listen", "nothing"],
    ] {
        let finished = run(line.iter().copied());
        assert_eq!(finished.status.code(), Some(2), "{line:?}: {}", finished.stderr);
    }
    run(["capture", "-r", sample::STORED, "ip.addr == 10.0.0.1 && dns"])
        .failed_saying(&["display filter of Wireshark; write: host 10.0.0.1 and port 53"]);
}

#[test]
fn unknown_flags_and_contradictions_are_refused() {
    run(["capture", "--no-such-flag"]).failed_saying(&["--no-such-flag"]);
    run(["capture", "-r", "a", "-i", "b"]).failed_saying(&["cannot be used with"]);
}

#[test]
fn corrupt_lengths_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    let mut bytes = Vec::new();
    write_pcap(&mut bytes, ETHERNET, Unit::Microseconds, Traffic::new(3).take(10)).unwrap();
    let second = 24 + 16 + u32::from_ne_bytes(bytes[32..36].try_into().unwrap()) as usize;
    bytes[second + 8..second + 12].copy_from_slice(&0xffff_fff0_u32.to_ne_bytes());
    fs::write(&input, &bytes).unwrap();
    let out = folder.path().join("out.pcap");
    let finished = run(["capture", "-r", input.to_str().unwrap(), "-w", out.to_str().unwrap()]);
    finished.failed_saying(&["in.pcap", &second.to_string()]);
    assert_eq!(packets_of(&out).len(), 1);
}

#[test]
fn unknown_link_types_are_copied_and_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let mut file = fs::File::create(&input).unwrap();
    write_pcap(&mut file, 60_000, Unit::Nanoseconds, Traffic::new(4).take(10)).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    run(["capture", "-r", &path(&input), "-w", &path(&out)]).succeeded();
    assert!(fs::read(&input).unwrap() == fs::read(&out).unwrap());
    let printed = run(["capture", "-r", &path(&input), "-n"]).succeeded();
    assert!(String::from_utf8_lossy(&printed.stdout).contains("0x0000:"));
}

/// Ctrl-C reaches the writer of a stream as well, whose end may be seen before the signal is obeyed.
#[test]
fn an_interrupted_stream_may_be_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(sample::STORED).unwrap();
    for round in 0..20 {
        let out = folder.path().join(format!("{round}.pcap"));
        let mut command = tapline(["capture", "-r", "-", "-w", out.to_str().unwrap()]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes[..bytes.len() - 7]).unwrap();
        // Signals are caught before outputs are opened.
        wait_for("the output", || out.exists());
        process::signal(child.id(), SIGINT).unwrap();
        drop(stdin);
        Finished::new(child.wait_with_output().unwrap()).succeeded();
    }
    // Without the signal a cut stream is an error.
    let output = run_with_input(&mut tapline(["capture", "-r", "-", "--count"]), &bytes[..bytes.len() - 7]);
    output.failed_saying(&["ends"]);
}

#[test]
fn texts_without_an_end_are_refused() {
    let commands = [
        "run --check /dev/zero",
        "capture -r {} --fpl /dev/zero",
        "capture -r {} -F /dev/zero",
        "filter explain --fpl /dev/zero",
    ];
    for command in commands {
        let command = command.replace("{}", sample::STORED);
        run(command.split(' ')).failed_saying(&["/dev/zero has more than 1048576 bytes"]);
    }
}
