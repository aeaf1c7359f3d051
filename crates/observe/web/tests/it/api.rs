//! The page's interface is as docs/format/api.md has it: each field of real answers is in a table there, and each field
//! there is in an answer.
//!
//! ```text
//! ## Totals                    a section for each kind of object
//! | `cut`, `late` | pairs |    its fields; a type with `?` may be absent
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tapline_meters::{Meters, RunFolder};
use tapline_pages::Rights;
use tapline_view::{Amount, Dimension, Key, Row, Second, Table, ViewFile};
use tapline_web::{PacketAnswer, PacketRequest, PacketSource};

use crate::server::{Served, this_minute, wait_for};

/// The tables of the document, compared with objects as they come.
struct Interface {
    /// Fields by section, and whether they may be absent.
    sections: BTreeMap<String, BTreeMap<String, bool>>,
    problems: Vec<String>,
}

impl Interface {
    fn read() -> Interface {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/format/api.md");
        let text = fs::read_to_string(&path).expect("the document");
        let mut sections = BTreeMap::<String, BTreeMap<String, bool>>::new();
        let mut section = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("## ") {
                name.clone_into(&mut section);
            }
            let mut cells = line.split('|').skip(1).map(str::trim);
            let (Some(names), Some(kind), false) = (cells.next(), cells.next(), section.is_empty()) else {
                continue;
            };
            let is_optional = kind.ends_with('?');
            let names = names.split('`').skip(1).step_by(2).map(|name| (name.to_owned(), is_optional));
            sections.entry(section.clone()).or_default().extend(names);
        }
        Interface { sections, problems: Vec::new() }
    }

    /// Compares the keys of an object with a section.
    fn compare(&mut self, section: &str, object: &Value) {
        let documented = &self.sections[section];
        let object = object.as_object().unwrap_or_else(|| panic!("{section} is an object: {object}"));
        let undocumented = object.keys().filter(|key| !documented.contains_key(*key));
        let undocumented =
            undocumented.map(|key| format!("docs/format/api.md, {section}: the field `{key}` is missing"));
        let absent =
            documented.iter().filter(|(key, is_optional)| !**is_optional && !object.contains_key(*key));
        let absent = absent.map(|(key, _)| format!("docs/format/api.md, {section}: no answer has `{key}`"));
        let found: Vec<String> = undocumented.chain(absent).collect();
        self.problems.extend(found);
    }

    fn compare_all(&mut self, section: &str, objects: &Value) {
        let objects = objects.as_array().unwrap_or_else(|| panic!("{section} is a list: {objects}"));
        assert!(!objects.is_empty(), "an answer with {section}");
        objects.iter().for_each(|object| self.compare(section, object));
    }

    fn compare_table(&mut self, table: &Value) {
        self.compare("Table", table);
        self.compare_all("Row", &table["rows"]);
    }
}

/// A second that ends then, in which each dimension has a row.
fn publish(view: &ViewFile, worker: usize, end: u64) {
    let (one, other) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
    let mut flow = Key::pair(one, other);
    // TCP from port 40000 to 443.
    flow.0[4] = 6 << 32 | 40_000 << 16 | 443;
    let keys = Dimension::ALL.map(|dimension| match dimension {
        Dimension::HostIn | Dimension::HostOut => Key::host(one),
        Dimension::Pair => Key::pair(one, other),
        Dimension::Service => Key::service(6, 443),
        Dimension::Name => Key::name("example.org"),
        Dimension::Segment | Dimension::Interface => Key::default(),
        Dimension::Flow => flow,
    });
    let amount = Amount { packets: 9, bytes: 900 };
    let row = |key: Key| Row { key, amount, name: Key::name("tls example.org"), ..Row::default() };
    let tables = keys.map(|key| Table { rows: vec![row(key)], ..Table::default() });
    let (end_ns, len_ns) = (end * 1_000_000_000, 1_000_000_000);
    view.contribute(
        worker,
        &Second { end_ns, len_ns, metered: 9, flow_bytes: 900, ..Second::default() },
        &tables,
    );
}

/// One packet.
struct OnePacket;

impl PacketSource for OnePacket {
    fn sources(&self) -> Vec<String> {
        vec!["tap:office".to_owned()]
    }

    fn list(&self, _: &PacketRequest) -> Result<PacketAnswer, String> {
        Ok(PacketAnswer {
            packets: 1,
            span_ns: Some((1, 1)),
            lines: vec![(1, 60, "a".into())],
            ..PacketAnswer::default()
        })
    }

    fn write(&self, _: &PacketRequest, _: &mut dyn Write) -> Result<PacketAnswer, String> {
        Err("not asked".to_owned())
    }
}

/// Two lines of `tapline watch --json`: an event and a table of a recorder.
const EVENTS: &str = concat!(
    r#"{"time":"2025-11-25T00:00:10Z","rule":"scan","event":"raised","message":"a","recording":"a.pcapng"}"#,
    "\n",
    r#"{"recorder":"t/top","kind":"top","from":"2025-11-25T00:00:00Z","to":"2025-11-25T01:00:00Z","columns":["key"],"rows":[["a"]]}"#,
    "\n"
);

#[test]
fn answers_have_the_documented_fields() {
    let folder = tempfile::tempdir().expect("a folder");
    let (history, events) = (folder.path().join("history.sqlite"), folder.path().join("events"));
    fs::write(&events, EVENTS).expect("room");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe").expect("a view");
    view.set_live();
    let meters = Meters::create_in(folder.path(), "probe").expect("meters");
    let _stage = meters.slot("web", "filter", 0);
    let worker = view.join();
    publish(&view, worker, this_minute() - 119);
    let served = Served::with_events(
        folder.path(),
        (Some(Arc::new(OnePacket)), Some(history.as_path())),
        Some(&events),
        Rights::Packets,
    );
    let ask = |path: &str| -> Value {
        let text = served.text(path);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {head}"))
    };
    let mut interface = Interface::read();
    interface.compare("Session", &served.session());

    wait_for("a second is shown", || ask("/api/page")["second"].is_object());
    let page = ask("/api/page");
    interface.compare("Page", &page);
    interface.compare("Process", &page["process"]);
    interface.compare("Totals", &page["second"]);
    interface.compare("Totals", &page["window"]);
    for name in ["overview", "hosts", "pairs", "flows", "protocols"] {
        let page = ask(&format!("/api/page?page={name}"));
        let tables = page["page"].as_object().expect("tables");
        tables.values().for_each(|table| interface.compare_table(table));
    }
    let host = &ask("/api/page?page=hosts&host=10.0.0.1")["page"];
    interface.compare("Host", host);
    interface.compare("Row", &host["in"]);
    for part in ["pair", "service", "name_", "flow"] {
        interface.compare("Part", &host[part]);
        interface.compare_all("Row", &host[part]["rows"]);
    }
    let stacked = ask("/api/page?stack=service");
    interface.compare("Page", &stacked);
    interface.compare("Stack", &stacked["stack"]);
    interface.compare_all("Layer", &stacked["stack"]["rows"]);
    let costs = &ask("/api/page?page=costs")["page"];
    interface.compare("Costs", costs);
    interface.compare_all("Stage", &costs["stages"]);
    interface.compare("Seconds", &ask("/api/seconds"));

    // A minute is kept once one of the next has come.
    publish(&view, worker, this_minute() - 59);
    let asked = format!("/api/history?from={}&to={}", this_minute() - 600, this_minute() + 600);
    wait_for("the history has it", || ask(&asked)["buckets"] != 0);
    let past = ask(&format!("{asked}&stack=host_out"));
    interface.compare("History", &past);
    interface.compare("Stack", &past["stack"]);
    interface.compare_all("Layer", &past["stack"]["rows"]);
    interface.compare_table(&past["table"]);

    wait_for("events are read", || ask("/api/watched")["tables"] != serde_json::json!([]));
    let watched = ask("/api/watched");
    interface.compare("Watched", &watched);
    interface.compare_all("Event", &watched["events"]);
    interface.compare_all("Recorder", &watched["tables"]);
    interface.compare("Packets", &ask("/api/packets?from=1&to=2"));

    interface.problems.sort();
    interface.problems.dedup();
    assert!(interface.problems.is_empty(), "{}", interface.problems.join("\n"));
}
