use tapline_packet::{Meta, Timestamp};
use tapline_source::{Advance, Source};
use tapline_testkit::random::Random;

use super::input::time_key;
use super::*;
use std::time::Duration;

/// Packets in each of two files.
const PACKETS: u64 = 4000;
const EXITS: usize = 2;
const INLETS: usize = 2;

/// A block that a worker hands over: its share of the packets of the batch that begins at `start`. A packet is its
/// number.
fn block(start: u64, numbers: &[u64]) -> PacketBlock {
    let mut block = PacketBlock::default();
    for &number in numbers {
        let record =
            Record { cap_len: 8, meta: Meta { wire_len: 8, ..Meta::default() }, ..Record::default() };
        append_packet(&mut block.bytes, &mut block.records, &Batch::new(&number.to_le_bytes(), &[record]), 0);
        block.keys.push((start, number));
    }
    block
}

/// Reads both files, batches of one and then the other, in steps that depend on the worker.
fn work(merge: &Arc<WorkerMerge>, worker: usize, workers: u64, seed: u64) {
    let inputs = MergeInputs::new(merge, worker);
    let watermarks: Vec<Watermark> = (0..INLETS).filter_map(|inlet| inputs.watermark(inlet)).collect();
    let mut random = Random::new(seed);
    let mut at = [0; INLETS];
    while at.iter().any(|at| *at < PACKETS) {
        let inlet = random.below(INLETS as u64) as usize;
        // Batches end where they do in every worker.
        for _ in 0..random.below(40) {
            let (start, end) = (at[inlet], (at[inlet] + 16).min(PACKETS));
            let numbers: Vec<u64> =
                (start..end).filter(|number| number * 7 % 11 % workers == worker as u64).collect();
            if !numbers.is_empty() {
                watermarks[inlet].begin_batch(start);
                for exit in 0..EXITS {
                    merge.put(exit * INLETS + inlet, worker, block(start, &numbers));
                }
            }
            watermarks[inlet].advance(end);
            at[inlet] = end;
        }
    }
}

/// Workers that read at their own pace, with queues so short that they wait for each other across lines: every packet
/// comes, in its order.
#[test]
fn lines_of_waiting_workers_are_ordered_and_whole() {
    for (seed, workers) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4)] {
        let merge = WorkerMerge::new(EXITS, INLETS, workers, Vec::new());
        merge.lock().queue_len = 300;
        let mut sources = MergedSource::all(&merge);
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let merge = Arc::clone(&merge);
                std::thread::spawn(move || work(&merge, worker, workers as u64, seed * 100 + worker as u64))
            })
            .collect();
        let mut seen = vec![Vec::new(); sources.len()];
        let mut open = vec![true; sources.len()];
        while open.contains(&true) {
            for (at, source) in sources.iter_mut().enumerate() {
                match source.advance(Duration::from_millis(1)).unwrap() {
                    Advance::Batch => seen[at].extend(
                        source
                            .batch()
                            .iter()
                            .map(|packet| u64::from_le_bytes(packet.data.try_into().unwrap())),
                    ),
                    Advance::Idle => {}
                    Advance::End => open[at] = false,
                }
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for lane in seen {
            assert!(lane.iter().copied().eq(0..PACKETS), "seed {seed}: {} packets", lane.len());
        }
    }
}

#[test]
fn a_worker_ends_without_a_reader() {
    let merge = WorkerMerge::new(1, 1, 1, Vec::new());
    merge.lock().queue_len = 0;
    drop(MergedSource::all(&merge));
    merge.put(0, 0, block(0, &[1]));
    drop(MergeInputs::new(&merge, 0));
    assert_eq!(merge.lock().live, 0);
}

#[test]
fn times_are_keys_in_their_order() {
    let times = [i64::MIN, -1, 0, 1, i64::MAX].map(|time| time_key(Timestamp::from_nanos(time)));
    assert!(times.is_sorted());
}

#[test]
fn packets_keep_options_and_the_cut_of_the_batch() {
    let base = *b"..abcdefghij##OPTN";
    let record = Record { offset: 2, cap_len: 10, options_len: 4, meta: Meta::default() };
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    append_packet(&mut bytes, &mut records, &Batch::new(&base[..], &[record]).cut(5), 0);
    let batch = Batch::new(&bytes, &records);
    assert_eq!(batch.packet(0).data, b"abcde");
    assert_eq!(batch.options(0), b"OPTN");
}
