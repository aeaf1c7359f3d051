//! Batches behind a meter, to the end of a run.

use tapline_testkit::frames::*;

use crate::trial::Trial;

fn pushed(text: &str, flows: u16) -> Trial {
    let mut trial = Trial::graph(text).unwrap_or_else(|why| panic!("{why}"));
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    let datagram = |src| Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"));
    trial.push_frames(&(0..flows).map(datagram).collect::<Vec<_>>());
    trial.assert_balanced();
    trial
}

#[test]
fn packets_are_written_once_their_block_is() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("flows.json");
    let to = format!("batch+file:{}", path.display());
    let text = format!("file(\"in\") -> flow -> e :: batches({to:?}, rows=10, block=1000)");
    let mut trial = pushed(&text, 100);
    trial.finish();
    trial.assert_balanced();
    let account = trial.account();
    let own = account.stages.iter().find(|stage| stage.name == "e").map(|stage| stage.counters.clone());
    let output = own.and_then(|own| own.output).expect("it is an output");
    assert_eq!((output.written, output.lost, output.buffered), (100, 0, 0));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there").lines().count(), 100);
}

#[test]
fn what_cannot_be_opened_is_told() {
    for (arguments, why) in [
        ("\"ftp://a\"", "begins with"),
        ("\"http://a:b@c/\"", "--export-secret"),
        ("\"batch+file:/nowhere/a\"", "/nowhere/a"),
        ("\"batch+stdout:\", sensor=\"a b\"", "not a name of a sensor"),
        ("\"batch+stdout:\", secret=\"/nowhere/secret\"", "/nowhere/secret"),
        ("\"batch+stdout:\", spool=\"/proc/none\"", "spool /proc/none"),
        ("\"batch+stdout:\", template=\"nothing\"", "not an information element"),
    ] {
        let text = format!("file(\"in\") -> flow -> batches({arguments})");
        let error = Trial::graph(&text).err().unwrap_or_else(|| panic!("{arguments} is taken"));
        assert!(error.contains(why), "{error}");
    }
}

#[cfg(not(feature = "http"))]
#[test]
fn without_the_feature_it_says_how_to_get_it() {
    let text = "file(\"in\") -> flow -> batches(\"http://localhost/\")";
    let why = Trial::graph(text).err().expect("it cannot");
    assert!(why.contains("--features http"), "{why}");
}

#[test]
fn contrib_has_the_table_of_the_default_template() {
    use tapline_export::Schema;
    use tapline_flow::export::{ExportOptions, NativeEncoder, TableShape};

    let shape = TableShape::new(&ExportOptions::default()).expect("the default");
    let columns = NativeEncoder::new(&shape, false).columns();
    let statement = Schema { version: 0, columns }.create("net.flows", false);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/clickhouse/flows.sql");
    let text = std::fs::read_to_string(path).expect("it is there");
    let without_ttl: Vec<&str> = text.lines().filter(|line| !line.starts_with("TTL toDateTime")).collect();
    let text = without_ttl.join("\n") + "\n";
    assert!(text.replace(";\n", "\n").contains(&statement), "the table should be:\n{statement}");
}
