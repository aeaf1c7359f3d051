//! Copies of packets: the first into the kernel's buffer, the second out of it, and storing in FFPF's buffers.
//!
//! ```text
//! slot of a card, 2 KiB --first copy--> ring of the kernel --second copy--> buffer of the program, 256 KiB
//!   warm: in the cache, or flushed as after DMA     256 KiB ... 64 MiB
//! ```
//!
//! Each window is timed by itself: so short that few windows are interrupted, and the median is over many. What makes a
//! copy cold happens between windows.

use std::hint::black_box;

use tapline_sys::memory::flush;
use tapline_sys::tsc;

use super::rig::Rig;
use super::section::{Figure, Findings};
use crate::spread::Spread;

/// Packets of a window.
const PACKETS: usize = 64;
/// A card's buffer for a packet.
const SLOT: usize = 2048;
/// Header before each packet in WinPcap's kernel buffer.
const HEADER: usize = 20;
/// The program's buffer.
const USER: usize = 256 << 10;
/// A ring that stays in the first two caches.
const WARM: usize = 128 << 10;
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];
/// Cycles of a byte: no processor copies 64 bytes in a cycle to memory and from it, and none takes 100 for one.
const PLAUSIBLE: [f64; 2] = [1.0 / 64.0, 100.0];
const UNIT: &str = "cycles a byte";

/// Figures 5 and 8: both copies by size.
pub(super) fn by_size(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let mut found = Findings {
        conditions: format!(
            "copies of {PACKETS} packets at a time out of slots of {SLOT} bytes; cold: the source is flushed from all \
             caches (clflush) before each window, as after DMA; medians of {} windows.",
            rig.windows()
        ),
        ..Findings::default()
    };
    for size in SIZES {
        rig.check()?;
        rig.show(&format!("{size} bytes"));
        let row = format!("{size} bytes");
        let paper = |small: f64, large: f64| match size {
            64 => Some(small / 64.0),
            1514 => Some(large / 1514.0),
            _ => None,
        };
        let figure = |series: &str, ours| Figure::new(row.clone(), series, UNIT, ours, PLAUSIBLE);
        let cold = first(rig.windows(), size, true);
        found.figures.push(figure("first copy, cold", cold).paper(paper(540.0, 10_500.0)));
        found.figures.push(figure("first copy, warm", first(rig.windows(), size, false)));
        let second = second(rig, size, USER, true)?;
        found.figures.push(figure("second copy, cold", second).paper(paper(259.0, 8550.0)));
        let warm = self::second(rig, size, USER, false)?;
        found.figures.push(figure("second copy, warm", warm));
    }
    if !flush(&[0]) {
        found.left_out.push("cold copies: this processor has no instruction to flush a line".to_owned());
        found.figures.retain(|figure| !figure.series.ends_with("cold"));
    }
    Ok(found)
}

/// The text of 4.3.2: the second copy by the size of the kernel's buffer.
pub(super) fn by_buffer(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let mut found = Findings {
        conditions: format!(
            "the kernel's buffer is filled, then copied out from its start, {PACKETS} packets at a time."
        ),
        ..Findings::default()
    };
    for mib in [0.25, 1.0, 4.0, 16.0, 64.0, 256.0] {
        for size in [64, 1514] {
            rig.check()?;
            rig.show(&format!("{mib} MiB, {size} bytes"));
            let ours = second(rig, size, (mib * 1_048_576.0) as usize, false)?;
            found.figures.push(Figure::new(
                format!("{mib} MiB"),
                format!("{size} bytes"),
                UNIT,
                ours,
                PLAUSIBLE,
            ));
        }
    }
    Ok(found)
}

/// Rows 3 and 4 of FFPF's Table 1, in rings that are in no cache.
pub(super) fn store(windows: usize) -> [Option<Spread>; 2] {
    // An entry is 16 bytes; a packet has 1500.
    let index = timed(windows, 16 * PACKETS, &|ring, _| {
        for (at, entry) in ring.chunks_exact_mut(16).enumerate() {
            entry[..8].copy_from_slice(&black_box(at as u64).to_ne_bytes());
            entry[8..].copy_from_slice(&black_box(1500_u64).to_ne_bytes());
        }
    });
    let packet = timed(windows, 1500 * PACKETS, &|ring, slots| {
        for (to, from) in ring.chunks_exact_mut(1500).zip(slots.chunks_exact(SLOT)) {
            to.copy_from_slice(&black_box(from)[..1500]);
        }
    });
    [index, packet]
}

/// Cycles for each of `PACKETS` packets of work that reads flushed slots and writes a flushed ring of `len` bytes.
fn timed(windows: usize, len: usize, work: &dyn Fn(&mut [u8], &[u8])) -> Option<Spread> {
    let slots = vec![1_u8; PACKETS * SLOT];
    let mut ring = vec![0_u8; len];
    let mut costs = Vec::with_capacity(windows);
    for _ in 0..windows {
        if !(flush(&slots) && flush(&ring)) {
            return None;
        }
        let before = tsc::now();
        work(&mut ring, &slots);
        costs.push(tsc::now().wrapping_sub(before) as f64 / PACKETS as f64);
        black_box(&ring);
    }
    Spread::of(&costs)
}

/// Cycles a byte of the first copy into a warm ring.
fn first(windows: usize, size: usize, is_cold: bool) -> Option<Spread> {
    let slots = vec![1_u8; PACKETS * SLOT];
    let mut ring = vec![0_u8; WARM];
    let mut costs = Vec::with_capacity(windows);
    for _ in 0..windows {
        if is_cold {
            flush(&slots);
        } else {
            black_box(slots.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
        }
        let before = tsc::now();
        for (to, from) in ring.chunks_exact_mut(size + HEADER).zip(slots.chunks_exact(SLOT)) {
            to[HEADER..].copy_from_slice(&black_box(from)[..size]);
        }
        let copied = PACKETS.min(WARM / (size + HEADER));
        costs.push(tsc::now().wrapping_sub(before) as f64 / (copied * size) as f64);
        black_box(&ring);
    }
    Spread::of(&costs)
}

/// Cycles a byte of the second copy, out of a kernel's buffer of `len` bytes that was filled before.
fn second(rig: &Rig<'_>, size: usize, len: usize, is_cold: bool) -> anyhow::Result<Option<Spread>> {
    let stride = size + HEADER;
    let slot = vec![1_u8; stride];
    let mut ring = vec![0_u8; len / stride * stride];
    let mut user = vec![0_u8; USER];
    let mut costs = Vec::with_capacity(rig.windows());
    while costs.len() < rig.windows() {
        rig.check()?;
        ring.chunks_exact_mut(stride).for_each(|to| to.copy_from_slice(black_box(&slot)));
        for block in ring.chunks_exact(stride * PACKETS.min(len / stride)).take(rig.windows() - costs.len()) {
            if is_cold {
                flush(block);
            }
            let before = tsc::now();
            for (to, from) in user.chunks_exact_mut(stride).zip(block.chunks_exact(stride)) {
                to.copy_from_slice(black_box(from));
            }
            costs.push(tsc::now().wrapping_sub(before) as f64 / block.len() as f64);
            black_box(&user);
        }
    }
    Ok(Spread::of(&costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_copy_costs_more_than_a_warm_one() {
        let (Some(cold), Some(warm)) = (first(101, 1514, true), first(101, 1514, false)) else {
            panic!("nothing was timed")
        };
        if !flush(&[0]) {
            return;
        }
        assert!(cold.low > warm.high, "cold {cold:?}, warm {warm:?}");
        let [index, packet] = store(101).map(|spread| spread.expect("timed").value);
        assert!(packet > index, "{packet} {index}");
    }
}
