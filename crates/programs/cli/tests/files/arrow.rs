//! `--arrow`: readers that are not ours find in the stream what the lines of JSON of the same packets have.
#![cfg(feature = "arrow")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{TAPLINE, finish, module_or_skip, python, run, tapline};
use serde_json::Value;

const MIXED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");

/// Prints a line of JSON for each packet: integers, texts, and bytes as hexadecimal.
const READ: &str = "
import json, sys
import pyarrow as pa, pyarrow.ipc
stream = pyarrow.ipc.open_stream(sys.stdin.buffer)
print(json.dumps([str(field.type) for field in stream.schema]))
for batch in stream:
    names = batch.schema.names
    if 'time' in names:
        at = names.index('time')
        batch = batch.set_column(at, 'time', batch.column(at).cast(pa.int64()))
    for row in batch.to_pylist():
        print(json.dumps({name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}))
";

/// Reads with pyarrow: the types of the columns, and the packets.
fn read(arguments: &[&str]) -> (Value, Vec<Value>) {
    let mut writer = Command::new(TAPLINE).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let stream = writer.stdout.take().unwrap();
    let output = python().args(["-c", READ]).stdin(stream).output().unwrap();
    assert!(writer.wait().unwrap().success());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// Blocks of Python in a document.
fn blocks(document: &str) -> Vec<String> {
    let path = format!("{}/../../../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    text.split("```python\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_documented_reader_reads() {
    if !module_or_skip("the_documented_reader_reads", "pyarrow") {
        return;
    }
    let blocks = blocks("arrow.md");
    let [block] = &blocks[..] else { panic!("{blocks:?}") };
    let stream =
        run(["capture", "-r", MIXED, "--arrow", "--columns", "length", "-c", "3"]).succeeded().stdout;
    let mut reader = python();
    let mut child = reader.args(["-c", block]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&stream).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("3 ["), "{text}");
}

/// Spark itself is for `make test-cluster`.
#[test]
fn python_for_spark_is_python() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let sources = ["contrib/spark/tapline_spark.py", "contrib/spark/tests/cluster.py"];
    let mut texts: Vec<String> =
        sources.iter().map(|name| fs::read_to_string(root.join(name)).unwrap()).collect();
    texts.extend(blocks("cluster.md"));
    assert_eq!(texts.len(), sources.len() + 2);
    for text in texts {
        let compile = ["-c", "import sys; compile(sys.argv[1], 'text', 'exec')", &text];
        match Command::new("python3").args(compile).output() {
            Err(error) => return eprintln!("skipped: python_for_spark_is_python: python3: {error}"),
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// A value of a packet's JSON; the outermost IP header's.
fn of_ip<'a>(packet: &'a Value, key: &str) -> &'a Value {
    let ip = if packet.get("ipv4").is_some() { "ipv4" } else { "ipv6" };
    &packet[ip][key]
}

#[test]
fn columns_have_what_the_lines_have() {
    const TEST: &str = "columns_have_what_the_lines_have";
    if !module_or_skip(TEST, "pyarrow") {
        return;
    }
    let lines = run(["capture", "-r", MIXED, "--json"]).succeeded();
    let text = String::from_utf8(lines.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let packets = &lines[..lines.len() - 1];
    let (types, rows) = read(&["capture", "-r", MIXED, "--arrow"]);
    let wanted =
        "timestamp[ns, tz=UTC] string int64 int64 int32 string string int16 int32 int32 int16 string binary";
    let types: Vec<&str> = types.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(types.join(" "), wanted);
    assert_eq!(rows.len(), packets.len());
    let mut ports = 0;
    for (row, packet) in rows.iter().zip(packets) {
        assert_eq!(row["time"].as_i64().unwrap().to_string(), packet["time_ns"].as_str().unwrap());
        for key in ["length", "captured", "interface"] {
            assert_eq!(row[key], packet[key], "{packet}");
        }
        assert_eq!((&row["src"], &row["dst"]), (of_ip(packet, "src"), of_ip(packet, "dst")), "{packet}");
        let transport = ["tcp", "udp", "sctp"].into_iter().find(|name| packet.get(name).is_some());
        let transport = transport.map_or(&Value::Null, |name| &packet[name]);
        assert_eq!(
            (&row["sport"], &row["dport"]),
            (&transport["src_port"], &transport["dst_port"]),
            "{packet}"
        );
        ports += u32::from(!row["sport"].is_null());
        let len = row["data"].as_str().unwrap().len() as u64 / 2;
        assert_eq!(len, packet["captured"].as_u64().unwrap());
    }
    assert!(ports > 100, "{ports} packets with ports");
}

/// A search of a store by time and filter gives what the same search counts, and accounts for it.
#[test]
fn a_search_of_a_store_gives_its_packets() {
    const TEST: &str = "a_search_of_a_store_gives_its_packets";
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let store = store.to_str().unwrap();
    run(["record", "-r", MIXED, "--to", store, "--size", "16MiB", "--segment", "4MiB"]).succeeded();
    let search = ["find", store, "--from", "2023-11-14T22:13:20Z", "--to", "+5s"];
    let json = run([&search[..], &["--json", "udp"]].concat()).succeeded();
    let wanted = String::from_utf8(json.stdout).unwrap().lines().count() - 1;
    assert!(wanted > 10);
    let told = run([&search[..], &["--arrow", "--json", "udp"]].concat()).succeeded();
    let account: Value = told.stderr.lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap();
    assert_eq!(account["account"]["balanced"], true);
    assert_eq!(account["account"]["outputs"][0]["written"], wanted as u64, "{account}");
    if module_or_skip(TEST, "pyarrow") {
        let (_, rows) = read(&[&search[..], &["--arrow", "--columns", "dport,protocol", "udp"]].concat());
        assert_eq!(rows.len(), wanted);
        assert!(rows.iter().all(|row| row["protocol"] == 17 && row.as_object().unwrap().len() == 2));
    }
}

#[test]
fn wrong_columns_are_named() {
    let finished = run(["capture", "-r", MIXED, "--arrow", "--columns", "time,adress"]);
    finished.failed_saying(&["there is no column \"adress\"", "time, interface"]);
    let finished = finish(&mut tapline(["capture", "-r", MIXED, "--arrow", "--print"]));
    finished.failed_saying(&["--arrow and --print would both write to standard output"]);
}
