//! FPL programs as native code: verdicts and memory of the interpreter, packet after packet.
//!
//! ```text
//! random text --compile--> Ir --+--------------> Machine, Native
//!                               +--optimise--> Machine, Native
//!     the same packets through each, one by one and as a batch: the same verdicts, and after each packet the same cells
//! ```
//!
//! `TAPLINE_FPL_PROGRAMS=100000` sets how many programs are judged (else 2,000), `TAPLINE_FPL_SEED=7` where chance
//! starts.

use crate::support::{Guarded, Packets};
use tapline_fpl::{FplOptions, compile};
use tapline_ir::optimise::optimise;
use tapline_ir::{Ir, Machine, Memory};
use tapline_jit::Native;
use tapline_packet::{Batch, Meta, Packet, Selection};
use tapline_testkit::fpl::{CELLS, packet, program};
use tapline_testkit::random::Random;
use tapline_testkit::volume::{number, volume};

const PACKETS_PER_PROGRAM: usize = 16;

/// A program's graph, and the memory of each engine that runs it.
struct Engines {
    machine: Machine,
    native: Native,
    /// The interpreter's, native code's one by one, native code's by batches.
    memories: [Memory; 3],
}

impl Engines {
    fn new(ir: &Ir) -> Engines {
        let native = Native::compile(ir).unwrap_or_else(|error| panic!("{error}\n{ir}"));
        let memories = [(); 3].map(|()| Memory::new(ir.cells));
        Engines { machine: Machine::new(ir.clone()), native, memories }
    }

    /// The graph as it was made, and after the passes.
    fn both(ir: &Ir) -> [Engines; 2] {
        let mut optimised = ir.clone();
        optimise(&mut optimised);
        [Engines::new(ir), Engines::new(&optimised)]
    }
}

fn cells(memory: &Memory) -> Vec<u64> {
    (0..memory.len() as u64).map(|cell| memory.get(cell)).collect()
}

fn options() -> FplOptions {
    FplOptions { memory_cells: CELLS, ..FplOptions::default() }
}

fn compiled(text: &str) -> Option<Ir> {
    compile(text, &options()).ok().map(|compiled| compiled.ir)
}

fn some_packets(random: &mut Random) -> Packets {
    let mut packets = Packets::default();
    for _ in 0..PACKETS_PER_PROGRAM {
        let data = packet(random);
        let wire_len = data.len() as u32 + random.below(2) as u32 * 4;
        packets.push(&data, Meta { wire_len, ..Meta::default() });
    }
    packets
}

/// All engines on the same packets. Gives how many were accepted.
fn judge(text: &str, ir: &Ir, packets: &Packets, guarded: &mut Guarded) -> usize {
    let batch = Batch::new(&packets.base, &packets.records);
    let mut engines = Engines::both(ir);
    let mut wanted = Vec::new();
    for (index, Packet { data, meta }) in batch.iter().enumerate() {
        // Directly before memory that is not there.
        let held = guarded.hold(data);
        let mut expected = None;
        for (name, Engines { machine, native, memories }) in ["as made", "optimised"].iter().zip(&mut engines)
        {
            let packet = Packet { data: held, meta };
            let interpreted = (machine.run(packet, &memories[0]), cells(&memories[0]));
            let compiled = (native.run(packet, &memories[1]), cells(&memories[1]));
            let expected = expected.get_or_insert_with(|| interpreted.clone());
            let about = || format!("{name}, packet {index} {held:02x?} of\n{text}\n{}", machine.ir());
            assert_eq!(&interpreted, expected, "interpreter, {}", about());
            assert_eq!(&compiled, expected, "native code, {}", about());
        }
        if expected.is_some_and(|(verdict, _)| verdict != 0) {
            wanted.push(index);
        }
    }
    for Engines { machine, native, memories } in &engines {
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        native.select(&batch, &memories[2], &mut selection);
        let selected: Vec<usize> = selection.iter().collect();
        assert_eq!(selected, wanted, "batch, of\n{text}\n{}", machine.ir());
        assert_eq!(cells(&memories[2]), cells(&memories[0]), "batch, of\n{text}\n{}", machine.ir());
        assert_eq!(native.panics(), 0);
    }
    wanted.len()
}

/// The verdicts of a run.
#[derive(Clone, Copy, Default)]
struct Judged {
    programs: usize,
    with_loops: usize,
    with_calls: usize,
    accepted: usize,
    rejected: usize,
}

/// Every second, third, ... seed from `first` on.
fn judge_seeds(first: u64, end: u64, step: u64) -> Judged {
    let mut guarded = Guarded::new(1 << 14);
    let mut judged = Judged::default();
    for seed in (first..end).step_by(step as usize) {
        let mut random = Random::new(seed);
        let text = program(&mut random);
        let Some(ir) = compiled(&text) else { continue };
        let packets = some_packets(&mut random);
        let kept = judge(&text, &ir, &packets, &mut guarded);
        judged.programs += 1;
        judged.with_loops += usize::from(!ir.loops.is_empty());
        judged.with_calls += usize::from(!ir.functions.is_empty());
        judged.accepted += kept;
        judged.rejected += PACKETS_PER_PROGRAM - kept;
    }
    judged
}

#[test]
fn native_code_equals_the_interpreter() {
    let (programs, seed) = (volume("TAPLINE_FPL_PROGRAMS", 50), number("TAPLINE_FPL_SEED", 0));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let all = std::thread::scope(|scope| {
        let start = |thread| scope.spawn(move || judge_seeds(seed + thread, seed + programs, threads));
        let threads: Vec<_> = (0..threads).map(start).collect();
        threads.into_iter().fold(Judged::default(), |sum, thread| {
            let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Judged {
                programs: sum.programs + one.programs,
                with_loops: sum.with_loops + one.with_loops,
                with_calls: sum.with_calls + one.with_calls,
                accepted: sum.accepted + one.accepted,
                rejected: sum.rejected + one.rejected,
            }
        })
    });
    let Judged { programs: judged, with_loops, with_calls, accepted, rejected } = all;
    eprintln!(
        "{judged} programs, {with_loops} with loops, {with_calls} with calls: {accepted} packets accepted, {rejected} not"
    );
    assert!(judged as u64 * 10 > programs * 7, "only {judged} programs compile");
    assert!(with_loops * 10 > judged && with_calls * 10 > judged, "too few loops or calls");
    assert!(accepted * 20 > rejected && rejected * 20 > accepted, "packets hardly differ");
}
