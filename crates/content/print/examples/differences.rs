//! Lists the differences between Tapline's text and that of the installed tcpdump, the most frequent first, for work on
//! a printer.
//!
//! ```text
//! cargo run -p tapline-print --example differences -- [whole|cut|changed] [FLAGS] [PART OF A FILE'S NAME]
//! ```
//!
//! `whole` compares the captures next to the repository as they are (flags `-n` unless others are given). `cut`
//! compares their packets cut at every length, which must be marked as cut where tcpdump marks them. `changed`
//! compares packets with bytes changed.

#[path = "../tests/it/captures/mod.rs"]
mod captures;
#[path = "../tests/it/tcpdump/comparison.rs"]
mod comparison;

use std::process::ExitCode;

use captures::Recorded;
use comparison::{Bench, Score, lines, printed, tcpdump};

/// Packets of each file that are cut, and the longest of the cuts.
const CUT_PACKETS: usize = 8;
const CUT_BYTES: usize = 400;

/// Packets of each file that are changed, and how often each.
const MUTATED_PACKETS: usize = 12;
const MUTATIONS: usize = 40;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    let (flags, only) = (word(1).unwrap_or("-n"), word(2).unwrap_or(""));
    let Some(bench) = Bench::find() else { return ExitCode::FAILURE };
    let judge: fn(&mut Score, &str, &str, &[Recorded]) = match word(0) {
        None | Some("whole") => {
            let score = bench.score_of(flags, |name| name.contains(only));
            println!("{} of 1000 lines are equal", score.per_mille());
            score.show(flags);
            return ExitCode::SUCCESS;
        }
        Some("cut") => score_cut,
        Some("changed") => score_mutated,
        Some(other) => {
            eprintln!("{other}: say whole, cut or changed");
            return ExitCode::FAILURE;
        }
    };
    let mut score = Score::default();
    for (name, _, packets) in bench.files.iter().filter(|(name, ..)| name.contains(only)) {
        judge(&mut score, flags, name, packets);
    }
    score.show(flags);
    ExitCode::SUCCESS
}

/// Cuts copies of some packets of a file at every length, and compares the text of those.
fn score_cut(score: &mut Score, flags: &str, name: &str, packets: &[Recorded]) {
    let mut cut = Vec::new();
    for packet in packets.iter().take(CUT_PACKETS) {
        for length in 1..packet.data.len().min(CUT_BYTES) {
            let data = packet.data[..length].to_vec();
            cut.push(Recorded { data, meta: packet.meta, interface: packet.interface.clone() });
        }
    }
    score_changed(score, flags, name, cut);
}

/// Changes bytes in copies of some packets of a file, and compares the text of those.
fn score_mutated(score: &mut Score, flags: &str, name: &str, packets: &[Recorded]) {
    let mut random = captures::Random::new();
    let mut changed = Vec::new();
    for packet in packets.iter().take(MUTATED_PACKETS) {
        for _ in 0..MUTATIONS {
            let mut data = packet.data.clone();
            random.change(&mut data);
            changed.push(Recorded { data, meta: packet.meta, interface: packet.interface.clone() });
        }
    }
    score_changed(score, flags, name, changed);
}

/// Compares the text of packets that are in no file yet.
fn score_changed(score: &mut Score, flags: &str, name: &str, mut packets: Vec<Recorded>) {
    let Some(first) = packets.first() else { return };
    let link_type = first.interface.link_type;
    packets.retain(|packet| packet.interface.link_type == link_type);
    let file = tempfile::NamedTempFile::with_suffix(".pcap").expect("a temporary file");
    std::fs::write(file.path(), captures::pcap(link_type, &packets)).expect("the file can be written");
    let Some(them) = tcpdump(flags, file.path()) else { return };
    score.compare(name, &lines(&them), &lines(&printed(flags, &packets)));
}
