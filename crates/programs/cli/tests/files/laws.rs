//! The laws that fuzzing looks to break, replayed on their seeds and on a thousand mutations of each.
//!
//! A failure names the law, the seed and the mutation. `TAPLINE_LAW_TRIES=10000` tries as many mutations, as `make soak`
//! does; the long search is `make fuzz`.

#[path = "../../../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library of its own where fuzz targets use it")]
mod fuzz;

use fuzz::{LAWS, Law};
use tapline_testkit::random::Random;
use tapline_testkit::volume::volume;

/// Bytes that find faults: bounds of bytes and words, and special characters of texts.
const SPICE: &[u8] = &[0, 1, 0x7f, 0x80, 0xff, 4, 6, b'(', b')', b'[', b' '];

fn law(name: &str) {
    let (law, seeds) = replayed(name);
    cut_everywhere(law, &seeds);
    mutate(law, &seeds, volume("TAPLINE_LAW_TRIES", 1000));
}

/// The law, and its seeds, which keep it.
fn replayed(name: &str) -> (&'static Law, Vec<Vec<u8>>) {
    let law = LAWS.iter().find(|law| law.name == name).expect("a law of this name");
    let seeds = (law.seeds)();
    seeds.iter().for_each(|seed| (law.check)(seed));
    (law, seeds)
}

fn mutate(law: &Law, seeds: &[Vec<u8>], tries: u64) {
    for number in 0..tries {
        let input = mutation(seeds, number);
        let broken = std::panic::catch_unwind(|| (law.check)(&input)).is_err();
        assert!(!broken, "law {}, mutation {number}: {input:02x?}", law.name);
    }
}

fn cut_everywhere(law: &Law, seeds: &[Vec<u8>]) {
    for seed in seeds {
        let step = seed.len() / 64 + 1;
        (0..seed.len()).step_by(step).for_each(|len| (law.check)(&seed[..len]));
    }
}

/// A seed with up to eight changes: bytes replaced, removed, doubled, or spliced in from another seed.
fn mutation(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut input = random.pick(seeds).clone();
    for _ in 0..random.between(1..=8) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let len = random.between(1..=8) as usize;
        let end = (at + len).min(input.len());
        match random.below(6) {
            0 => drop(input.drain(at..end)),
            1 => input.splice(at..at, vec![*random.pick(SPICE); len]).for_each(drop),
            2 => input.splice(at..end, random.bytes(len)).for_each(drop),
            3 => {
                let other = random.pick(seeds);
                let from = random.below(other.len() as u64 + 1) as usize;
                input.splice(at..end, other[from..].iter().copied().take(64)).for_each(drop);
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = *random.pick(SPICE);
                }
            }
        }
    }
    input
}

#[test]
fn capture_file() {
    law("capture_file");
}

#[test]
fn graph_text() {
    law("graph_text");
}

#[test]
fn rules_text() {
    law("rules_text");
}

#[test]
fn filter_text() {
    law("filter_text");
}

#[test]
fn bpf_program() {
    law("bpf_program");
}

#[test]
fn fpl_text() {
    law("fpl_text");
}

/// Each input makes machine code, so there are fewer.
#[test]
fn engines() {
    let (law, seeds) = replayed("engines");
    mutate(law, &seeds, volume("TAPLINE_LAW_TRIES", 1000) / 10);
}

#[test]
fn packet_text() {
    law("packet_text");
}

#[test]
fn packet_json() {
    law("packet_json");
}

#[test]
fn flows() {
    law("flows");
}

#[test]
fn collected() {
    law("collected");
}

#[test]
fn wire() {
    law("wire");
}

#[test]
fn application() {
    law("application");
}

#[test]
fn sip() {
    law("sip");
}

#[test]
fn signatures() {
    law("signatures");
}

#[test]
fn tcp_streams() {
    law("tcp_streams");
}

#[test]
fn pattern_search() {
    law("pattern_search");
}

#[test]
fn ring_writer() {
    law("ring_writer");
}

#[test]
fn ring_reader() {
    law("ring_reader");
}

#[test]
fn tap_socket() {
    law("tap_socket");
}

/// Each input is a search of files, so there are fewer.
#[test]
fn store_files() {
    let (law, seeds) = replayed("store_files");
    mutate(law, &seeds, volume("TAPLINE_LAW_TRIES", 1000) / 10);
}

#[test]
fn store_roll_up() {
    let (law, seeds) = replayed("store_roll_up");
    mutate(law, &seeds, volume("TAPLINE_LAW_TRIES", 1000) / 20);
}
