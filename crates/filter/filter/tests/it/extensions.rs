//! Modifiers, which libpcap's language does not have, against a walker of packets that shares nothing with the
//! compiler.
//!
//! ```text
//! random tree --text--> compile (simplified or not) --> program --run--> verdict
//!           \--holds (extensions/oracle.rs) ----------------------------> the same verdict
//!
//! packets: layers upon layers at random, bits flipped, and captures; each cut at every length
//! ```
//!
//! `TAPLINE_FILTER_TREES` trees are tried (default below), from `TAPLINE_FILTER_SEED` on.

mod oracle;

use oracle::{Modes, holds};
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::{Meta, Packet, VlanTag};
use tapline_testkit::forms::{self, Tree};
use tapline_testkit::layers;
use tapline_testkit::libpcap::Libpcap;
use tapline_testkit::random::Random;
use tapline_testkit::volume::{number, volume};

const NEVER: &str = "expression rejects all packets";

fn options(modes: Modes, handle: HandleKind, optimise: bool) -> Options {
    Options {
        scoped: modes.scoped,
        ipv6_extensions: modes.extensions,
        handle,
        optimise,
        ..Options::default()
    }
}

/// The program of a text; `None` if it is proven never true, or needs more cells than there are.
fn program(text: &str, options: &Options) -> Option<CompiledFilter> {
    match compile(text, options) {
        Ok(program) => Some(program),
        Err(error) if error.message == NEVER || error.message.starts_with("too many registers") => None,
        Err(error) => panic!("{}", error.render(text)),
    }
}

fn run(program: &CompiledFilter, data: &[u8], wire_len: usize, vlan: Option<VlanTag>) -> bool {
    let meta = Meta { wire_len: wire_len as u32, vlan, ..Meta::default() };
    program.run(Packet { data, meta: &meta }) != 0
}

/// A tree's programs, and what judges them.
struct Judged<'a> {
    tree: &'a Tree,
    text: String,
    modes: Modes,
    plain: CompiledFilter,
    simplified: Option<CompiledFilter>,
    live: Option<CompiledFilter>,
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    accepted: u64,
    live: u64,
}

impl Judged<'_> {
    fn judge(&self, frame: &[u8], cuts: &[usize], tally: &mut Tally) {
        for &len in cuts {
            let cut = &frame[..len];
            let expected = holds(self.tree, cut, self.modes);
            let case = || format!("{} {:?} cut at {len}: {}", self.text, self.modes, hex(frame));
            assert_eq!(run(&self.plain, cut, frame.len(), None), expected, "plain: {}", case());
            let simplified = self.simplified.as_ref().is_some_and(|p| run(p, cut, frame.len(), None));
            assert_eq!(simplified, expected, "simplified: {}", case());
            tally.pairs += 1;
            tally.accepted += u64::from(expected);
            self.judge_live(frame, len, expected, tally);
        }
    }

    /// Judges the frame as the kernel shows it, which takes the outer tag out of the bytes.
    fn judge_live(&self, frame: &[u8], len: usize, expected: bool, tally: &mut Tally) {
        let tag = match frame.get(12..16) {
            Some(&[a, b, c, d]) if len >= 16 => [[a, b], [c, d]].map(u16::from_be_bytes),
            _ => return,
        };
        if !self.modes.scoped || !matches!(tag[0], 0x8100 | 0x88a8) {
            return;
        }
        let stripped = [&frame[..12], &frame[16..len]].concat();
        let vlan = Some(VlanTag { tpid: tag[0], tci: tag[1] });
        let verdict = self.live.as_ref().is_some_and(|live| run(live, &stripped, frame.len() - 4, vlan));
        assert_eq!(verdict, expected, "live: {} {:?} cut at {len}: {}", self.text, self.modes, hex(frame));
        tally.live += 1;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every length up to 120, and then some.
fn cuts(frame: &[u8]) -> Vec<usize> {
    (0..=frame.len()).filter(|len| *len <= 120 || len % 7 == 0 || frame.len() - len < 3).collect()
}

#[test]
fn modifiers_equal_the_walker() {
    let mut random = Random::new(number("TAPLINE_FILTER_SEED", 7));
    let captured = layers::captured(Libpcap::get().ok());
    let mut tally = Tally::default();
    for _ in 0..volume("TAPLINE_FILTER_TREES", 150) {
        let modes = Modes { scoped: random.one_of(1, 2), extensions: random.one_of(1, 2) };
        let tree = forms::tree(&mut random, modes.scoped, 0);
        let text = tree.to_string();
        // Without the optimiser nothing is proven; then a text only lacks cells.
        let plain = program(&text, &options(modes, HandleKind::Savefile, false));
        let plain_live = program(&text, &options(modes, HandleKind::Live, false));
        let Some(plain) = plain.filter(|_| plain_live.is_some()) else { continue };
        let simplified = program(&text, &options(modes, HandleKind::Savefile, true));
        // Only scoped text means the same where a tag is in the metadata.
        let live = program(&text, &options(modes, HandleKind::Live, true)).filter(|_| modes.scoped);
        for program in [Some(&plain), simplified.as_ref(), live.as_ref()].into_iter().flatten() {
            match program.program().check_for_kernel() {
                Ok(()) => {}
                Err(refusal) => assert!(program.insns().len() > 4096, "{text}: {refusal}"),
            }
        }
        let judged = Judged { tree: &tree, text, modes, plain, simplified, live };
        for _ in 0..12 {
            let frame = layers::frame(&mut random);
            judged.judge(&frame, &cuts(&frame), &mut tally);
        }
        for _ in 0..6 {
            let frame = random.pick(&captured);
            let cuts = [frame.len(), frame.len() / 2, random.below(60) as usize % (frame.len() + 1)];
            judged.judge(frame, &cuts, &mut tally);
        }
    }
    eprintln!(
        "{} pairs, {} accepted, {} also with the tag in the metadata; {} captured frames",
        tally.pairs,
        tally.accepted,
        tally.live,
        captured.len()
    );
    assert!(tally.accepted * 20 > tally.pairs, "hardly anything is accepted: the test compares nothing");
}
