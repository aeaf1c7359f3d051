//! `script`: packets that a function of a script lets pass, or labels.
//!
//! ```text
//! packet --map--> verdict(p) in Rhai, bounded --true--> on  --7--> on, with the label 7  --false--> refused
//! ```

use std::any::Any;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, Property, StageClass,
};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_packet::LinkType;
use tapline_source::Error;
use tapline_watch::{Verdict, VerdictCounts, VerdictScript};

use crate::input_file;
use crate::labels::Labels;

pub(crate) const CLASS: StageClass = StageClass {
    name: "script",
    summary: "packets that a function in Rhai lets pass; it may label them for switch",
    description: "The function gets the packet as a map, as on_packet of tapline watch does (docs/watch.md), and returns true (the packet passes), false (it is refused), \
        or a number from 0 to 255: the packet passes with this label, by which switch(by=label) chooses its output. The functions for tables and print are there. A call is \
        bounded in operations, stack, memory and time; one that fails, or returns something else, is counted (failed), its packet passes or is refused by `failed`, \
        and the first faults are shown. After ten calls without an end in time the function is called no more. A call takes microseconds: put a filter before it.",
    parameters: &[
        Parameter::required("file", ParameterType::Path).means("the script"),
        Parameter::new("function", ParameterType::Text, "verdict")
            .means("the function that is called with each packet"),
        Parameter::new("operations", ParameterType::Number(100, 100_000_000), "100000")
            .means("the most operations of a call"),
        Parameter::new("failed", ParameterType::Choice(&["pass", "refuse"]), "pass")
            .means("whether a packet passes for which the script fails"),
    ],
    order: Order::All,
    example: "device(eth0) -> filter(\"udp port 53\") -> script(\"names.rhai\") -> s :: switch(by=label); s[0] -> print; s[1] -> record(\"odd.pcapng\")",
    properties: &[Property::Scripts, Property::External],
    access: |arguments, access| access.reads_file(arguments.text("file")),
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// The most bytes of a script.
const SCRIPT_MAX: u64 = 1 << 20;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let path = site.common.path(arguments.text("file"));
    let text = input_file::read_text(&path, SCRIPT_MAX)?;
    let file = path.display().to_string();
    let script =
        VerdictScript::load(&file, text, arguments.text("function"), arguments.number("operations"))?;
    let passes_failed = arguments.text("failed") == "pass";
    Ok(Box::new(Script {
        script,
        passes_failed,
        labels: Labels::default(),
        absorbed: VerdictCounts::default(),
    }))
}

struct Script {
    script: VerdictScript,
    passes_failed: bool,
    labels: Labels,
    /// Counts of this stage in other workers.
    absorbed: VerdictCounts,
}

impl Stage for Script {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let (all, interfaces) = (packets.batch, packets.interfaces);
        let Script { script, passes_failed, labels, .. } = self;
        labels.begin();
        packets.selection.retain(|index| {
            let packet = all.packet(index);
            let interface = interfaces.get(packet.meta.interface.0 as usize);
            let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
            match script.decide(link_type, packet) {
                Verdict::Pass => true,
                Verdict::Drop => false,
                Verdict::Failed => *passes_failed,
                Verdict::Label(label) => {
                    labels.set(&all, index, label);
                    true
                }
            }
        });
        out.pass(&mut packets.changed(labels.of(&all)))
    }

    fn result(&self) -> Option<Table> {
        let mut counts = self.script.counts();
        counts.merge(&self.absorbed);
        let VerdictCounts { passed, labelled, dropped, failed, not_told } = counts;
        Some(Table::of_numbers(&[
            ("passed", passed),
            ("labelled", labelled),
            ("dropped", dropped),
            ("failed", failed),
            ("not_told", not_told),
        ]))
    }

    fn events(&mut self) -> Vec<String> {
        self.script.take_lines()
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Script>() {
            self.absorbed.merge(&other.script.counts());
        }
    }
}

#[cfg(all(test, feature = "scripts"))]
mod tests {
    use std::fs;

    use tapline_graph::Cell;
    use tapline_testkit::frames::*;

    use crate::trial::Trial;

    fn datagrams(ports: &[u16]) -> Vec<Vec<u8>> {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let datagram =
            |dst: &u16| Ethernet::between(&a, &b).ip(&Udp { src: 9, dst: *dst }.packet(pair, b"text"));
        ports.iter().map(datagram).collect()
    }

    fn with_script(text: &str, arguments: &str, graph: &str) -> Result<Trial, String> {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("f.rhai");
        fs::write(&file, text).expect("there is room");
        Trial::graph(&format!("s :: script(\"{}\"{arguments}); file(\"in\") -> s; {graph}", file.display()))
    }

    fn counts(trial: &Trial) -> Vec<u64> {
        let row = trial.result("s").rows[0].clone();
        row.iter()
            .map(|cell| if let Cell::Number(number) = cell { *number } else { panic!("a number") })
            .collect()
    }

    const VERDICT: &str = "fn verdict(p) {
        let seen = add(\"ports\", p.dport, 1);
        if p.text != \"text\" { throw \"text\" }
        if p.dport < 10 { false } else if p.dport < 20 { p.dport - 10 } else { true }
    }";

    #[test]
    fn a_verdict_passes_drops_or_labels() {
        let graph = "s -> w :: switch(by=label); w[0] -> json; w[7] -> json";
        let mut trial = with_script(VERDICT, "", graph).unwrap_or_else(|why| panic!("{why}"));
        trial.push_frames(&datagrams(&[5, 17, 30, 17, 10]));
        trial.assert_balanced();
        assert_eq!([0, 1].map(|end| trial.arrived_at(end).len()), [2, 2]);
        assert_eq!(counts(&trial), [1, 3, 1, 0, 0]);
    }

    #[test]
    fn failures_are_counted_and_bounded() {
        let text =
            "fn verdict(p) { if p.dport == 1 { loop {} } else if p.dport == 2 { \"no\" } else { 256 } }";
        for (failed, passed) in [("pass", 4), ("refuse", 0)] {
            let mut trial =
                with_script(text, &format!(", operations=1000, failed={failed}"), "s -> json").unwrap();
            trial.push_frames(&datagrams(&[1, 2, 3, 1]));
            trial.assert_balanced();
            assert_eq!((trial.data().len(), counts(&trial)[3]), (passed, 4));
        }
    }

    #[test]
    fn scripts_without_a_verdict_are_refused() {
        for (text, why) in [
            ("fn other(p) { true }", "no fn verdict"),
            ("fn verdict() { true }", "no fn verdict"),
            ("on_packet(\"\", \"verdict\"); fn verdict(p) { true }", "triggers"),
            ("fn verdict(p) {", "f.rhai"),
        ] {
            let error = with_script(text, "", "s -> json").err().expect("a mistake");
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
