//! `match`: packets whose payload holds one of many patterns.

use std::any::Any;
use std::cmp::Reverse;

use tapline_capture::Error;
use tapline_search::{Pattern, Patterns};

use crate::catalog::{Arguments, Class, Kind, Make, Order, Outputs, Parameter, Site};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;
use crate::table::{Cell, Table};

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "match",
    summary: "packets whose payload holds one of many patterns",
    description: "What is searched lies behind TCP, UDP or another transport's header; in packets without such a header, all bytes. A pattern that \
        is spread over two packets is not found. The result says which patterns occurred in how many packets.",
    parameters: &[
        Parameter {
            name: "text",
            kind: Kind::Text,
            default: Some(""),
            meaning: "one pattern: its bytes as text",
        },
        Parameter {
            name: "list",
            kind: Kind::Text,
            default: Some(""),
            meaning: "a file of patterns, one a line (docs/search.md), besides or instead of text",
        },
        Parameter {
            name: "case",
            kind: Kind::Choice(&["exact", "any"]),
            default: Some("exact"),
            meaning: "whether the letters of `text` match in either case; a list says so for each of its patterns",
        },
        Parameter {
            name: "n",
            kind: Kind::Number(1, 262_144),
            default: Some("20"),
            meaning: "how many patterns the result shows",
        },
    ],
    outputs: Outputs::One,
    order: Order::Free,
    example: "device(eth0) -> filter(\"tcp dst port 80\") -> match(\"default.ida?\") -> print",
    make: Make::Stage(make),
};

/// The number by which a single text is known; lines of a list count from 1.
const OF_TEXT: u32 = 0;

fn make(arguments: &Arguments, site: &Site<'_>) -> Result<Box<dyn Stage>, String> {
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
        let text =
            std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        patterns.extend(
            tapline_search::parse_list(&text).map_err(|error| format!("{}: {error}", path.display()))?,
        );
    }
    if patterns.is_empty() {
        return Err("no pattern: give a text, or list=FILE".to_owned());
    }
    let patterns = Patterns::new(patterns).map_err(|error| error.to_string())?;
    let met = vec![0; patterns.patterns().iter().map(|pattern| pattern.id as usize + 1).max().unwrap_or(0)];
    Ok(Box::new(Search { patterns, met, last: Vec::new(), n: arguments.number("n") as usize }))
}

struct Search {
    patterns: Patterns,
    /// By pattern, packets that hold it.
    met: Vec<u64>,
    /// Patterns of the packet at hand.
    last: Vec<u32>,
    n: usize,
}

impl Stage for Search {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        let Search { patterns, met, last, .. } = self;
        packets.selection.retain(|index| {
            let data = all.batch.packet(index).data;
            let start = all.headers(index).payload().unwrap_or(0);
            last.clear();
            patterns.for_each(&data[start.min(data.len())..], |found| last.push(found.id));
            last.sort_unstable();
            last.dedup();
            last.iter().for_each(|id| met[*id as usize] += 1);
            !last.is_empty()
        });
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let mut ranked: Vec<(&Pattern, u64)> =
            self.patterns.patterns().iter().map(|pattern| (pattern, self.met[pattern.id as usize])).collect();
        ranked.retain(|(_, packets)| *packets > 0);
        ranked.sort_unstable_by_key(|(pattern, packets)| (Reverse(*packets), pattern.id));
        let row = |(pattern, packets): &(&Pattern, u64)| {
            vec![Cell::from(pattern.bytes.escape_ascii().to_string()), Cell::from(*packets)]
        };
        Some(Table {
            columns: vec!["pattern", "packets"],
            rows: ranked.iter().take(self.n).map(row).collect(),
        })
    }

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Search>() {
            self.met.iter_mut().zip(&other.met).for_each(|(ours, theirs)| *ours += theirs);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
