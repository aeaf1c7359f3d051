//! `match`: packets whose payload holds one of many patterns.

mod flow;

use std::any::Any;
use std::cmp::Reverse;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, StageClass,
};
use tapline_graph::{Cell, Out, Packets, Stage, Table};
use tapline_packet::headers::Headers;
use tapline_packet::{Packet, Timestamp};
use tapline_search::{Pattern, Patterns};
use tapline_source::Error;

use crate::fpl::LABEL;
use crate::labels::Labels;
use flow::Flows;

pub(crate) const CLASS: StageClass = StageClass {
    name: "match",
    summary: "packets whose payload holds one of many patterns",
    description: "The payload behind TCP, UDP or another transport's header is searched, up to the end of the IP packet; in packets without such a header, all \
        bytes. With borders=flow a pattern may be spread over packets of a flow, and the one in which it ends is passed on: TCP in the order of its sequence \
        numbers, others as they come. Segments that come late are searched alone; bytes that were lost or not captured match nothing. The result says \
        in how many packets each pattern ended, and the place where it was found first: the flow, and the byte of its payload (of the packet's, without \
        borders=flow). With label=yes a packet passes with the line of the pattern in the list as its label (of several the first; 255 for a later one), \
        by which switch(by=label) chooses its output.",
    parameters: &[
        Parameter::new("text", ParameterType::Text, "").means("one pattern: its bytes as text"),
        Parameter::new("list", ParameterType::Text, "")
            .means("a file of patterns, one a line (docs/search.md), with or instead of text"),
        Parameter::new("case", ParameterType::Choice(&["exact", "any"]), "exact")
            .means("whether the letters of `text` match in either case; a list says so for each of its patterns"),
        Parameter::new("borders", ParameterType::Choice(&["packet", "flow"]), "packet")
            .means("whether a pattern may be spread over packets of a flow"),
        Parameter::new("room", ParameterType::Number(1, 100_000_000), "100000")
            .means("directions of flows that are remembered for certain; each takes 150 bytes and up to twice the longest pattern"),
        Parameter::new("n", ParameterType::Number(1, 262_144), "20").means("patterns that the result shows"),
        LABEL,
    ],
    order: Order::Flow,
    example: "device(eth0) -> filter(\"tcp dst port 80\") -> match(\"default.ida?\") -> print",
    // Lists of patterns name further files.
    access: |_, access| access.allowed.reads.push("/".into()),
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// The number by which a single text is known; lines of a list count from 1.
const OF_TEXT: u32 = 0;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let mut patterns = Vec::new();
    let text = arguments.text("text");
    if !text.is_empty() {
        patterns.push(match arguments.text("case") {
            "any" => Pattern::nocase(OF_TEXT, text),
            _ => Pattern::new(OF_TEXT, text),
        });
    }
    let list = arguments.text("list");
    if !list.is_empty() {
        let path = site.common.path(list);
        let text = super::input_file::read(&path, super::input_file::PATTERNS_MAX)?;
        patterns.extend(
            tapline_search::parse_list(&text).map_err(|error| format!("{}: {error}", path.display()))?,
        );
    }
    if patterns.is_empty() {
        return Err("no pattern: give a text, or list=FILE".to_owned());
    }
    let patterns = Patterns::new(patterns).map_err(|error| error.to_string())?;
    let ids = patterns.patterns().iter().map(|pattern| pattern.id as usize + 1).max().unwrap_or(0);
    let flows = (arguments.text("borders") == "flow").then(|| Flows::new(arguments.number("room") as usize));
    let met = vec![PatternMatches::default(); ids];
    let labels = (arguments.text("label") == "yes").then(Labels::default);
    Ok(Box::new(Search { patterns, flows, met, last: Vec::new(), labels, n: arguments.number("n") as usize }))
}

struct Search {
    patterns: Patterns,
    /// State of flows, if patterns may span packets.
    flows: Option<Flows>,
    met: Vec<PatternMatches>,
    /// Patterns of the packet at hand, and where they begin.
    last: Vec<(u32, u64)>,
    /// Labels of packets, if they get the number of their first pattern.
    labels: Option<Labels>,
    n: usize,
}

/// Results of a pattern.
#[derive(Clone, Default)]
struct PatternMatches {
    /// Packets in which it ended.
    packets: u64,
    /// When and where it was found first.
    first: Option<(Timestamp, String, u64)>,
}

impl Search {
    /// Searches a packet; whether there is anything in it.
    fn search(&mut self, headers: &Headers, packet: Packet<'_>) -> bool {
        let Search { patterns, flows, last, .. } = self;
        last.clear();
        let in_flow = flows
            .as_mut()
            .and_then(|flows| flows.search(patterns, headers, packet, |id, start| last.push((id, start))));
        if in_flow.is_none() {
            let end = headers.ip_end().min(packet.data.len());
            let payload = headers.payload().map_or(packet.data, |start| &packet.data[start.min(end)..end]);
            patterns.for_each(payload, |found| last.push((found.id, found.start as u64)));
        }
        last.sort_unstable();
        last.dedup_by_key(|(id, _)| *id);
        for &(id, start) in last.iter() {
            let met = &mut self.met[id as usize];
            met.packets += 1;
            // The earliest, so that it is the same for any number of workers.
            let time = packet.meta.timestamp;
            if met.first.as_ref().is_none_or(|(first, ..)| time <= *first) {
                let flow = headers.five_tuple(packet.data).map(|tuple| tuple.to_string());
                let here = (time, flow.unwrap_or_default(), start);
                met.first = Some(met.first.take().map_or(here.clone(), |first| first.min(here)));
            }
        }
        !last.is_empty()
    }
}

impl Stage for Search {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        self.labels.iter_mut().for_each(Labels::begin);
        packets.selection.retain(|index| {
            let is_found = self.search(&all.headers(index), all.batch.packet(index));
            if let (Some(labels), Some((id, _))) = (&mut self.labels, self.last.first()) {
                labels.set(&all.batch, index, u8::try_from(*id).unwrap_or(u8::MAX));
            }
            is_found
        });
        match &self.labels {
            None => out.pass(packets),
            Some(labels) => out.pass(&mut packets.changed(labels.of(&all.batch))),
        }
    }

    fn result(&self) -> Option<Table> {
        let mut ranked: Vec<(&Pattern, &PatternMatches)> = self
            .patterns
            .patterns()
            .iter()
            .map(|pattern| (pattern, &self.met[pattern.id as usize]))
            .collect();
        ranked.retain(|(_, met)| met.packets > 0);
        ranked.sort_unstable_by_key(|(pattern, met)| (Reverse(met.packets), pattern.id));
        let row = |(pattern, met): &(&Pattern, &PatternMatches)| {
            let (flow, at) = met.first.as_ref().map_or(("", 0), |(_, flow, at)| (flow.as_str(), *at));
            let text = Cell::from(pattern.bytes.escape_ascii().to_string());
            vec![text, Cell::from(met.packets), Cell::from(at), Cell::from(flow.to_owned())]
        };
        Some(Table {
            columns: vec!["pattern", "packets", "first_at", "first_in"],
            rows: ranked.iter().take(self.n).map(row).collect(),
        })
    }

    fn merge(&mut self, other: &dyn Any) {
        let Some(other) = other.downcast_ref::<Search>() else { return };
        for (ours, theirs) in self.met.iter_mut().zip(&other.met) {
            ours.packets += theirs.packets;
            let firsts = ours.first.take().into_iter().chain(theirs.first.clone());
            ours.first = firsts.min();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trial::Trial;

    /// The line of the first pattern of the list that is in a packet is its output.
    #[test]
    fn the_pattern_that_is_found_chooses_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list.txt");
        std::fs::write(&list, "apple\npear\nplum\n").unwrap();
        let text = format!(
            "s :: switch(by=label); file(\"in\") -> match(list=\"{}\", label=yes) -> s; s[1] -> json; s[2] -> json; s[3] -> json",
            list.display()
        );
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        let packet = |text: &str| [&[0xff; 14], text.as_bytes()].concat();
        let texts = ["a pear", "plum and pear", "cherry", "apple", "plum"];
        trial.push_frames(&texts.map(packet));
        trial.assert_balanced();
        assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [1, 2, 1]);
    }

    #[test]
    fn later_lines_share_the_greatest_label() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list.txt");
        std::fs::write(&list, (1..=300).map(|line| format!("word{line:03}\n")).collect::<String>()).unwrap();
        let text = format!(
            "s :: switch(by=label); file(\"in\") -> match(list=\"{}\", label=yes) -> s; s[44] -> json; s[254] -> json; s[255] -> json",
            list.display()
        );
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        let packet = |line: u32| [&[0xff; 14], format!("word{line:03}").as_bytes()].concat();
        trial.push_frames(&[254, 255, 256, 300].map(packet));
        trial.assert_balanced();
        assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [0, 1, 3]);
    }
}
