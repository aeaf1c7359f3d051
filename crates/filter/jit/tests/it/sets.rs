//! A set whose filters' programs are native code answers as its filters' programs do one by one, interpreted.
//!
//! `TAPLINE_FILTER_SEED=7` sets where chance starts (else 1), `TAPLINE_SET_ROUNDS=100` how many sets are tried (else
//! 8).

use std::sync::Arc;

use crate::support::Packets;
use tapline_bpf::PacketFilter;
use tapline_filter::{Options, compile};
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_ir::CompiledFilter;
use tapline_jit::{NativeResiduals, RESIDUALS_MAX};
use tapline_packet::{Batch, LinkType, Meta, Selection};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::gallery::exhibits;
use tapline_testkit::random::Random;
use tapline_testkit::volume::{number, volume};

const FILTERS: usize = 60;

/// Frames as they are, cut, and with a byte changed.
fn packets(random: &mut Random) -> Packets {
    let mut packets = Packets::default();
    let frames: Vec<Vec<u8>> = exhibits().into_iter().map(|(_, frame)| frame).collect();
    for _ in 0..256 {
        let mut frame = random.pick(&frames).clone();
        let wire_len = frame.len() as u32;
        if random.one_of(1, 4) {
            frame.truncate(random.below(80) as usize);
        }
        if let Some(byte) = frame.get_mut(random.below(60) as usize)
            && random.one_of(1, 3)
        {
            *byte = random.bits() as u8;
        }
        packets.push(&frame, Meta { wire_len, ..Meta::default() });
    }
    packets
}

fn classify(set: &mut FilterSet, batch: &Batch<'_>) -> Vec<Vec<u32>> {
    let (mut selection, mut matches) = (Selection::none(), Matches::new());
    selection.select_all(batch.len());
    set.classify(batch, &selection, &mut matches);
    (0..batch.len()).map(|packet| matches.of(packet).to_vec()).collect()
}

#[test]
fn sets_agree_with_their_native_programs() {
    let mut random = Random::new(number("TAPLINE_FILTER_SEED", 1));
    let residuals = NativeResiduals::new(RESIDUALS_MAX);
    let (mut accepted, mut texts, mut native) = (0, 0, 0);
    for _ in 0..volume("TAPLINE_SET_ROUNDS", 1) {
        let options = Options { netmask: Some(0), ..Options::new(LinkType::ETHERNET) };
        let mut expressions = Expressions::new(random.bits(), 1);
        let mut set = FilterSet::new(MatchPolicy::All);
        let mut programs: Vec<(u32, CompiledFilter)> = Vec::new();
        while programs.len() < FILTERS {
            let text = expressions.text();
            let Ok(program) = compile(&text, &options) else { continue };
            let filter = Filter::compile_with(&text, &options, &|program| residuals.ready(program));
            let id = set.insert(filter.expect("it compiled before"), 0);
            programs.push((id.index(), program));
        }
        let packets = packets(&mut random);
        let batch = Batch::new(&packets.base, &packets.records);
        for (packet, matches) in batch.iter().zip(classify(&mut set, &batch)) {
            let accepts = |(_, program): &&(u32, CompiledFilter)| program.run(packet) != 0;
            let mut alone: Vec<u32> = programs.iter().filter(accepts).map(|(index, _)| *index).collect();
            alone.sort_unstable();
            assert_eq!(matches, alone, "{:02x?}", packet.data);
            accepted += alone.len();
        }
        texts += programs.len();
        native += residuals.native();
        drop(set);
        assert_eq!(residuals.native(), 0, "what goes gives its place back");
    }
    eprintln!("{texts} texts, {native} with native code of their own, {accepted} pairs accepted");
    assert!(accepted > 0 && native > 0 && residuals.interpreted() == 0);
}

#[test]
fn beyond_the_limit_programs_are_interpreted() {
    let residuals = NativeResiduals::new(1);
    let text = "ip[8] + ip[9] = 70";
    let program = || compile(text, &Options::default()).expect("compiles");
    let ready: [Arc<dyn PacketFilter>; 2] = [(); 2].map(|()| residuals.ready(program()));
    assert_eq!((residuals.native(), residuals.interpreted()), (1, 1));
    let frames: Vec<Vec<u8>> = exhibits().into_iter().map(|(_, frame)| frame).collect();
    let (meta, reference) = (Meta { wire_len: 60, ..Meta::default() }, program());
    for data in &frames {
        let packet = tapline_packet::Packet { data, meta: &meta };
        ready.iter().for_each(|one| assert_eq!(one.accepts(packet), reference.run(packet) != 0));
    }
}
