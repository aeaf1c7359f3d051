//! Storing in a ring that stays in the cache: packets of three lengths, and an index entry in place of one.

use std::hint::black_box;

use tapline_meters::Task;

/// Bytes of the ring: a size that fits well into a second cache.
const RING_LEN: usize = 128 << 10;
/// Packets in a round.
const PACKETS: usize = 256;
/// FFPF's figures for a packet of 1500 bytes and for an index.
const PACKET: f64 = 7479.0;
const INDEX: f64 = 154.0;

/// An entry of an index: the packet's place.
#[derive(Clone, Copy, Default)]
struct Entry {
    offset: u64,
    len: u32,
    verdict: u32,
}

pub(super) fn tasks(tasks: &mut Vec<Task<'static>>) {
    tasks.push(index().with_reference(INDEX));
    tasks.extend([64, 512].map(packet));
    tasks.push(packet(1500).with_reference(PACKET));
}

/// Each entry is read again: the sum of all lengths.
fn index() -> Task<'static> {
    let mut ring = vec![Entry::default(); 4096];
    let mut at = 0;
    Task::new(
        "storing an index entry of 16 bytes",
        "packet",
        PACKETS as f64,
        64 * PACKETS as u64,
        move || {
            let mut sum = 0;
            for number in 0..PACKETS as u64 {
                let entry = black_box(Entry { offset: number * 64, len: 64, verdict: 0 });
                ring[at] = entry;
                let stored = black_box(&ring)[at];
                sum += u64::from(stored.len | stored.verdict) + (stored.offset - number * 64);
                at = (at + 1) % 4096;
            }
            sum
        },
    )
}

/// The last byte of each packet is read again.
fn packet(len: usize) -> Task<'static> {
    let packet = vec![1_u8; len];
    let mut ring = vec![0_u8; RING_LEN];
    let mut at = 0;
    let name = format!("storing {len} bytes");
    Task::new(&name, "packet", PACKETS as f64, PACKETS as u64, move || {
        let mut sum = 0;
        for _ in 0..PACKETS {
            if at + len > RING_LEN {
                at = 0;
            }
            ring[at..at + len].copy_from_slice(black_box(&packet));
            sum += u64::from(black_box(&ring)[at + len - 1]);
            at += len;
        }
        sum
    })
}
