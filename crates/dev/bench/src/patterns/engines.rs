//! Search engines: each counts every occurrence, overlapping ones too, in all payloads.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use daachorse::DoubleArrayAhoCorasick;
use std::ops::ControlFlow;
use tapline_search::{Pattern, Patterns, SearchEngine};

/// Counts the matches in all payloads.
type Search = dyn Fn(&[Vec<u8>]) -> u64;

/// An engine with its tables.
pub(super) struct Peer {
    pub(super) name: String,
    /// Bytes of the tables.
    pub(super) memory: usize,
    /// The engine only says whether a payload matches: its count differs from the others.
    pub(super) stops_early: bool,
    search: Box<Search>,
}

impl Peer {
    pub(super) fn count(&self, payloads: &[Vec<u8>]) -> u64 {
        (self.search)(payloads)
    }
}

/// Ours first; those that cannot search this set are left out.
pub(super) fn peers(patterns: &[Pattern]) -> anyhow::Result<Vec<Peer>> {
    let chosen = Patterns::new(patterns.to_vec())?;
    let name = format!("tapline ({})", chosen.engine());
    let mut peers = vec![ours(name, chosen), first_only(Patterns::new(patterns.to_vec())?)];
    let engines = [SearchEngine::Teddy, SearchEngine::Grams, SearchEngine::Automaton];
    for engine in engines {
        if let Ok(set) = Patterns::with_engine(patterns.to_vec(), engine) {
            peers.push(ours(engine.to_string(), set));
        }
    }
    peers.push(aho_corasick("aho-corasick DFA", AhoCorasickKind::DFA, patterns)?);
    peers.push(aho_corasick("aho-corasick NFA", AhoCorasickKind::ContiguousNFA, patterns)?);
    peers.extend(daachorse(patterns));
    Ok(peers)
}

fn ours(name: String, set: Patterns) -> Peer {
    let memory = set.memory();
    let search = move |payloads: &[Vec<u8>]| {
        let mut count = 0;
        set.for_each_in(payloads.iter().map(Vec::as_slice), |_, _| count += 1);
        count
    };
    Peer { name, memory, stops_early: false, search: Box::new(search) }
}

fn first_only(set: Patterns) -> Peer {
    let memory = set.memory();
    let search = move |payloads: &[Vec<u8>]| {
        let mut count = 0;
        set.for_each_matching_payload(payloads.iter().map(Vec::as_slice), |_| count += 1);
        count
    };
    Peer { name: "tapline, first match only".into(), memory, stops_early: true, search: Box::new(search) }
}

fn aho_corasick(name: &str, kind: AhoCorasickKind, patterns: &[Pattern]) -> anyhow::Result<Peer> {
    let automaton = AhoCorasick::builder()
        .kind(Some(kind))
        .ascii_case_insensitive(patterns.iter().any(|pattern| pattern.nocase))
        .build(patterns.iter().map(|pattern| &pattern.bytes))?;
    let memory = automaton.memory_usage();
    let search = move |payloads: &[Vec<u8>]| {
        let count = |payload: &Vec<u8>| automaton.find_overlapping_iter(payload).count() as u64;
        payloads.iter().map(count).sum()
    };
    Ok(Peer { name: name.into(), memory, stops_early: false, search: Box::new(search) })
}

/// daachorse has no case-insensitive search.
fn daachorse(patterns: &[Pattern]) -> Option<Peer> {
    if patterns.iter().any(|pattern| pattern.nocase) {
        return None;
    }
    let automaton = DoubleArrayAhoCorasick::<u32>::new(patterns.iter().map(|pattern| &pattern.bytes)).ok()?;
    let memory = automaton.heap_bytes();
    let search = move |payloads: &[Vec<u8>]| {
        let count = |payload: &Vec<u8>| {
            let mut matches = automaton.find_overlapping_iter(payload);
            let mut count = 0;
            let _ = matches.try_for_each(|_| {
                count += 1;
                ControlFlow::<()>::Continue(())
            });
            count
        };
        payloads.iter().map(count).sum()
    };
    Some(Peer { name: "daachorse".into(), memory, stops_early: false, search: Box::new(search) })
}
