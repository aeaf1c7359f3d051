use std::time::Duration;

use tapline_bpf::code;
use tapline_filter::Options;
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, ClockReading, Interface, LinkType, Meta, Record, Timestamp};
use tapline_source::{Advance, Source, UncapturedCounts};

use super::queue::BLOCKS_MAX;
use super::*;

/// Packets of `len` bytes with the numbers from `first` on.
struct Sample {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

fn sample(first: u32, count: usize, len: usize) -> Sample {
    let mut sample = Sample { bytes: Vec::new(), records: Vec::new() };
    for number in (first..).take(count) {
        let meta =
            Meta { wire_len: len as u32, timestamp: Timestamp::from_nanos(number.into()), ..Meta::default() };
        sample.records.push(Record { offset: sample.bytes.len(), cap_len: len as u32, options_len: 0, meta });
        sample.bytes.extend_from_slice(&number.to_be_bytes());
        sample.bytes.resize(sample.bytes.len() + len - 4, 0);
    }
    sample
}

fn interfaces() -> Vec<Interface> {
    vec![Interface::new("eth0", LinkType::ETHERNET)]
}

fn push(stage: &mut Publish, sample: &Sample) {
    let (interfaces, batch) = (interfaces(), Batch::new(&sample.bytes, &sample.records));
    let mut packets = Packets::all(batch, &interfaces, ClockReading::default());
    stage.push(&mut packets, &mut Out::nowhere()).unwrap();
}

fn output(stage: &Publish) -> OutputAccount {
    stage.counters().output.expect("an output")
}

/// The numbers of all packets that are there.
fn read(source: &mut PublishedSource) -> Vec<u32> {
    let mut numbers = Vec::new();
    while source.advance(Duration::ZERO).unwrap() == Advance::Batch {
        let batch = source.batch();
        let number = |index| u32::from_be_bytes(batch.packet(index).data[..4].try_into().unwrap());
        numbers.extend((0..batch.len()).map(number));
    }
    numbers
}

#[test]
fn readers_get_packets_in_order_and_then_the_end() {
    let (mut stage, mut source) = Publish::new("a", &interfaces()).unwrap();
    for (first, count) in [(0, 3), (3, 256), (259, 1)] {
        push(&mut stage, &sample(first, count, 60));
    }
    assert_eq!(read(&mut source), (0..260).collect::<Vec<_>>());
    assert_eq!(source.advance(Duration::ZERO).unwrap(), Advance::Idle);
    push(&mut stage, &sample(260, 2, 60));
    let tick = TickContext::new(ClockReading::default(), &[]);
    stage.finish(&tick, &mut Out::nowhere()).unwrap();
    assert_eq!(read(&mut source), [260, 261]);
    assert_eq!(source.advance(Duration::ZERO).unwrap(), Advance::End);
    assert_eq!(output(&stage).written, 262);
}

#[test]
fn captures_that_do_not_read_lose_packets() {
    let (mut stage, mut source) = Publish::new("a", &interfaces()).unwrap();
    let batches = BLOCKS_MAX + 5;
    for batch in 0..batches {
        push(&mut stage, &sample(256 * batch as u32, 256, 60));
    }
    let told = output(&stage);
    // One block more waits in the stage.
    assert_eq!((told.written, told.buffered, told.lost), (256 * BLOCKS_MAX as u64, 256, 4 * 256));
    assert_eq!(told.total(), 256 * batches as u64);
    stage.idle().unwrap();
    assert_eq!(output(&stage).buffered, 256, "there is no room yet");
    let first = read(&mut source);
    assert_eq!(first, (0..256 * BLOCKS_MAX as u32).collect::<Vec<_>>());
    stage.idle().unwrap();
    assert_eq!(read(&mut source).len(), 256, "what waited comes once there is room");
    let account = source.account();
    let ring = account[0].ring.expect("a ring");
    assert_eq!((ring.dropped, account[0].imbalance()), (4 * 256, None));
}

#[test]
fn only_what_readers_want_is_copied() {
    let (mut stage, mut source) = Publish::new("a", &interfaces()).unwrap();
    let program = |text: &str| {
        CompiledFilter::from(tapline_filter::compile(text, &Options::default()).unwrap().program().clone())
    };
    let nothing = tapline_bpf::Program::new(vec![tapline_bpf::Insn::new(code::RET | code::K, 0)]).unwrap();
    assert!(source.restrict(Some(&nothing.into())).unwrap());
    push(&mut stage, &sample(0, 10, 60));
    assert_eq!((output(&stage).skipped(), read(&mut source)), (10, vec![]));
    assert!(source.restrict(Some(&program("ether[3] == 12"))).unwrap());
    push(&mut stage, &sample(10, 10, 60));
    assert_eq!((output(&stage).skipped(), read(&mut source)), (19, vec![12]));
    assert!(source.restrict(None).unwrap());
    push(&mut stage, &sample(20, 2, 60));
    assert_eq!(read(&mut source), [20, 21]);
    drop(source);
    push(&mut stage, &sample(22, 5, 60));
    let told = output(&stage);
    assert_eq!((told.skipped(), told.written, told.total()), (24, 3, 27), "its daemon is gone");
}

/// Readers of the place learn that packets of the graph's source are missing, each for the time of its own reading.
#[test]
fn failures_to_capture_interfaces_are_passed_on() {
    let (mut stage, source) = Publish::new("a", &interfaces()).unwrap();
    assert_eq!(source.uncaptured(), UncapturedCounts::default());
    let mut tick = TickContext::new(ClockReading::default(), &[]);
    // A worker that hears of them later takes nothing back.
    for (begun, ended, expected) in [(3, 1, (3, 1)), (2, 2, (3, 2)), (4, 3, (4, 3))] {
        tick.uncaptured = UncapturedCounts { begun, ended };
        stage.tick(&tick, &mut Out::nowhere()).unwrap();
        let (begun, ended) = expected;
        assert_eq!(source.uncaptured(), UncapturedCounts { begun, ended });
    }
}
