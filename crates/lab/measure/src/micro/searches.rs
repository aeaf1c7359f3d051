//! Searching payloads for patterns.

use std::hint::black_box;

use anyhow::ensure;
use tapline_meters::Task;
use tapline_search::Patterns;

use crate::payloads::{Traffic, Workload};

/// Payloads in a round, of 1400 to 1500 bytes.
const PAYLOADS: usize = 64;
/// FFPF's figures for Snort's Aho-Corasick: 9900 cycles for 1500 bytes without a match, 1000 for a packet with one.
const MISS_BYTE: f64 = 6.6;
const MATCH: f64 = 1000.0;

pub(super) fn tasks(tasks: &mut Vec<Task<'static>>) -> anyhow::Result<()> {
    for count in [10, 1000] {
        tasks.push(miss(count)?.with_reference(MISS_BYTE));
    }
    tasks.push(first_match(10)?.with_reference(MATCH));
    Ok(())
}

/// An earlier step saw that the set finds present patterns, so finding nothing means that nothing is there.
fn miss(count: usize) -> anyhow::Result<Task<'static>> {
    let workload = Workload::new(count, Traffic::Miss, PAYLOADS, false);
    let set = Patterns::new(workload.patterns.clone())?;
    let planted: Vec<&[u8]> = workload.patterns.iter().map(|pattern| pattern.bytes.as_slice()).collect();
    let mut found = 0;
    set.for_each_in(planted.iter().copied(), |_, _| found += 1);
    ensure!(found >= count, "{found} of {count} patterns were found in themselves");
    let bytes = workload.bytes();
    let name = format!("searching {count} patterns, no match");
    Ok(Task::new(&name, "byte", bytes as f64, bytes as u64, move || {
        let (mut scanned, mut found) = (0, 0);
        let payloads = black_box(&workload.payloads).iter().map(|payload| {
            scanned += payload.len() as u64;
            payload.as_slice()
        });
        set.for_each_in(payloads, |_, _| found += 1);
        scanned - found
    }))
}

fn first_match(count: usize) -> anyhow::Result<Task<'static>> {
    let workload = Workload::new(count, Traffic::Match, PAYLOADS, false);
    let set = Patterns::new(workload.patterns.clone())?;
    let name = format!("searching {count} patterns, first match");
    Ok(Task::new(&name, "payload", PAYLOADS as f64, PAYLOADS as u64, move || {
        let mut matching = 0;
        set.for_each_matching_payload(black_box(&workload.payloads).iter().map(Vec::as_slice), |_| {
            matching += 1
        });
        matching
    }))
}
