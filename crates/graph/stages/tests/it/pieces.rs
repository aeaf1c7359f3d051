//! Files that workers read in pieces: each worker has the packets that it has if one thread reads for all.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tapline_file::{FileInput, MergeOrder};
use tapline_graph::{FlowShardSource, PieceSource};
use tapline_packet::{Batch, Interface};
use tapline_source::{Advance, Error, InterfaceAccount, Source};
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::traffic::Traffic;

const WAIT: Duration = Duration::from_millis(100);

/// A file that cannot be split.
struct OneThread(FileInput);

impl Source for OneThread {
    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.0.advance(wait)
    }

    fn batch(&self) -> Batch<'_> {
        self.0.batch()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.0.stop()
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        self.0.account()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.0.progress()
    }
}

/// A worker's packets by time and length, its account, and the error with which it ended.
#[derive(Debug, PartialEq)]
struct WorkerEnd {
    packets: Vec<(i64, usize)>,
    account: Vec<InterfaceAccount>,
    error: Option<String>,
}

fn drain(source: &mut dyn Source) -> WorkerEnd {
    let mut packets = Vec::new();
    let error = loop {
        match source.advance(WAIT) {
            Ok(Advance::Batch) => {
                let batch = source.batch();
                packets
                    .extend(batch.iter().map(|packet| (packet.meta.timestamp.as_nanos(), packet.data.len())));
            }
            Ok(Advance::Idle) => {}
            Ok(Advance::End) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    assert_eq!(source.advance(WAIT).expect("it stays at its end"), Advance::End);
    let account = source.account();
    assert_eq!(account[0].delivered, packets.len() as u64);
    WorkerEnd { packets, account, error }
}

/// Lets each source run in a thread of its own.
fn run(sources: Vec<Box<dyn Source>>) -> Vec<WorkerEnd> {
    std::thread::scope(|scope| {
        let threads = sources.into_iter().map(|mut source| scope.spawn(move || drain(source.as_mut())));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn input(path: &Path) -> FileInput {
    FileInput::new(vec![FileInput::open_file(path).expect("a capture file")], MergeOrder::Given)
}

#[test]
fn workers_that_read_get_what_a_reader_gives() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in.pcap");
    let mut bytes = Vec::new();
    write_pcap(&mut bytes, ETHERNET, Unit::Nanoseconds, Traffic::new(31).take(12_000)).expect("memory");
    for len in [bytes.len(), bytes.len() - 3] {
        fs::write(&path, &bytes[..len]).expect("room");
        let alone = drain(&mut input(&path));
        assert!(input(&path).split(2).is_some(), "the file is long enough for pieces");
        for workers in [1, 2, 3, 7] {
            let read = run(FlowShardSource::all(Box::new(OneThread(input(&path))), workers));
            let errors =
                |ends: &[WorkerEnd]| ends.iter().filter_map(|end| end.error.clone()).collect::<Vec<_>>();
            for turn in 0..3 {
                let found = run(FlowShardSource::all(Box::new(input(&path)), workers));
                assert_eq!(errors(&found), Vec::from_iter(alone.error.clone()), "one worker has the error");
                for (worker, (found, read)) in found.iter().zip(&read).enumerate() {
                    let same = (&found.packets, &found.account) == (&read.packets, &read.account);
                    assert!(same, "worker {worker} of {workers}, turn {turn}");
                }
                let found = run(PieceSource::all(Box::new(input(&path)), workers));
                assert_eq!(errors(&found), Vec::from_iter(alone.error.clone()));
                let mut all: Vec<_> = found.iter().flat_map(|end| end.packets.iter().copied()).collect();
                let mut expected = alone.packets.clone();
                all.sort_unstable();
                expected.sort_unstable();
                assert!(all == expected, "{workers} workers, turn {turn}");
            }
        }
    }
}

#[test]
fn workers_that_stop_early_leave_the_others_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in.pcap");
    let mut file = fs::File::create(&path).expect("a file");
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, Traffic::new(32).take(12_000)).expect("room");
    assert!(input(&path).split(3).is_some(), "the file is long enough for pieces");
    let expected = run(FlowShardSource::all(Box::new(OneThread(input(&path))), 3));
    let mut sources = FlowShardSource::all(Box::new(input(&path)), 3);
    drop(sources.remove(1));
    let found = run(sources);
    assert!(found[0].packets == expected[0].packets && found[1].packets == expected[2].packets);
}
