//! Filters: the cost of a call, and of three of the papers' filters in each engine.

use std::hint::black_box;

use anyhow::anyhow;
use tapline_bpf::PacketFilter;
use tapline_fpl::FplOptions;
use tapline_ir::Memory;
use tapline_ir::optimise::optimise;
use tapline_jit::Native;
use tapline_meters::Task;
use tapline_packet::BATCH_MAX;

use crate::filter::Subject;
use crate::filter::engines::select_all;
use crate::filter::packets::Packets;
use crate::filters::FILTERS;

/// FFPF's simple filter: TCP to one port.
const SIMPLE: &str = include_str!("../../../../filter/fpl/programs/simple.fpl");
/// Name of the task that runs it.
pub(crate) const FPL_NAME: &str = "filter tcp80, FPL-2, native, a batch a call";

/// Batches in a round.
const BATCHES: usize = 16;
/// FFPF's figures for calling a filter, and for a simple filter in FPL-2 and by BPF's interpreter.
const CALL: f64 = 71.0;
const COMPILED: f64 = 185.0;
const INTERPRETED: f64 = 740.0;

/// One packet a call, of a filter that looks at nothing.
pub(super) fn calls(tasks: &mut Vec<Task<'static>>) -> anyhow::Result<()> {
    let Some(native) = native("")? else { return Ok(()) };
    let Some((_, packets)) = packets_of("ip") else { return Ok(()) };
    let memory = Memory::new(0);
    let count = (BATCHES * BATCH_MAX) as u64;
    let task =
        Task::new("calling a filter, native, a packet a call", "call", count as f64, count, move || {
            let accepted = |batch: tapline_packet::Batch<'_>| {
                batch.iter().filter(|packet| native.run(black_box(*packet), &memory) != 0).count() as u64
            };
            (0..BATCHES).map(|_| packets.batches().map(accepted).sum::<u64>()).sum()
        });
    tasks.push(task.with_reference(CALL));
    Ok(())
}

/// FFPF's simple filter as an FPL-2 program, in native code, on packets that it accepts.
pub(super) fn fpl(tasks: &mut Vec<Task<'static>>) -> anyhow::Result<()> {
    let Some((_, packets)) = packets_of("tcp80") else { return Ok(()) };
    let compiled = tapline_fpl::compile(SIMPLE, &FplOptions::default());
    let mut ir = compiled.map_err(|error| anyhow!(tapline_fpl::report(&error, SIMPLE)))?.ir;
    optimise(&mut ir);
    let Ok(native) = Native::compile(&ir) else { return Ok(()) };
    let memory = Memory::new(ir.cells);
    let count = (BATCHES * BATCH_MAX) as u64;
    let task = Task::new(FPL_NAME, "packet", count as f64, count, move || {
        let round = |_| select_all(&packets, |batch, all| native.select(batch, &memory, all)) as u64;
        (0..BATCHES).map(round).sum()
    });
    tasks.push(task.with_reference(COMPILED));
    Ok(())
}

/// Each engine on packets that go through every test.
pub(super) fn engines(tasks: &mut Vec<Task<'static>>) -> anyhow::Result<()> {
    for name in ["ip", "tcp80", "tcp5", "h10p10"] {
        let Some((text, packets)) = packets_of(name) else { continue };
        let subject = Subject::new(text)?;
        let count = (BATCHES * BATCH_MAX) as u64;
        let title = format!("filter {name}, interpreted");
        let task = Task::new(&title, "packet", count as f64, count, move || {
            let round = |_| select_all(&packets, |batch, all| subject.ours.select(batch, all)) as u64;
            (0..BATCHES).map(round).sum()
        });
        tasks.push(if name == "tcp80" { task.with_reference(INTERPRETED) } else { task });
        tasks.extend(native_batches(name, text)?);
    }
    Ok(())
}

fn native_batches(name: &str, text: &str) -> anyhow::Result<Option<Task<'static>>> {
    let (Some(native), Some((_, packets))) = (native(text)?, packets_of(name)) else { return Ok(None) };
    let memory = Memory::new(0);
    let count = (BATCHES * BATCH_MAX) as u64;
    let title = format!("filter {name}, native, a batch a call");
    Ok(Some(Task::new(&title, "packet", count as f64, count, move || {
        let round = |_| select_all(&packets, |batch, all| native.select(batch, &memory, all)) as u64;
        (0..BATCHES).map(round).sum()
    })))
}

/// The filter as native code; `None` on machines for which there is none.
fn native(text: &str) -> anyhow::Result<Option<Native>> {
    Ok(Native::of(&Subject::new(text)?.ours).ok())
}

/// A filter of the papers, and packets that it accepts after all of its tests.
fn packets_of(name: &str) -> Option<(&'static str, Packets)> {
    let filter = FILTERS.iter().find(|filter| filter.name == name)?;
    Some((filter.text, Packets::worst(filter.worst?)))
}
