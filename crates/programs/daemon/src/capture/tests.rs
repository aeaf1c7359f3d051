//! Readers of a capture: their latency, and the past.

use std::sync::Mutex;
use std::time::Instant;

use tapline_packet::Batch;
use tapline_ring::{Policy, Reader, SourceCounter as Counted, VerdictUse};
use tapline_source::{Advance, Error as CaptureError};

use super::test_source::{NumberedSource, Wire, settle};
use super::*;
use crate::memory::Ledger;

const FULL: Rights = Rights { filter: String::new(), snap_len: u32::MAX };

/// Has no packets, and notes how long they might wait.
struct Patient {
    interfaces: Vec<Interface>,
    wakeup: Arc<Wakeup>,
    told: Arc<Mutex<Vec<Duration>>>,
    is_stopped: bool,
}

impl Source for Patient {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, CaptureError> {
        if self.is_stopped {
            return Ok(Advance::End);
        }
        let mut poller = tapline_sys::Poller::new();
        poller.add(std::os::fd::AsFd::as_fd(&*self.wakeup));
        poller.wait(wait).expect("a wait");
        self.wakeup.take();
        Ok(Advance::Idle)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::empty()
    }

    fn stop(&mut self) -> Result<(), CaptureError> {
        self.is_stopped = true;
        Ok(())
    }

    fn set_max_latency(&mut self, latency: Duration) {
        self.told.lock().expect("no panic").push(latency);
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }
}

/// The source gets the least latency of all readers before packets come that the reader wants; and the next least one
/// when that reader is gone.
#[test]
fn the_least_patient_reader_sets_the_latency() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let source = Patient {
        interfaces: vec![Interface::new("test", LinkType::ETHERNET)],
        wakeup: Arc::new(Wakeup::new().expect("an eventfd")),
        told: Arc::clone(&told),
        is_stopped: false,
    };
    let rule = CaptureRule { name: "test".to_owned(), buffer: 4, ..CaptureRule::default() };
    let capture = Capture::start(rule, vec![Box::new(source)], None).expect("a capture");
    let rights = Rights { filter: String::new(), snap_len: 65_535 };
    let attach = |number, ms| {
        let wish = capture.compile(&rights, "").expect("a filter");
        let spec = ReaderSpec::new(Policy::Lossy);
        let max_latency = Duration::from_millis(ms);
        let start = StartPosition::Newest;
        let rights = rights.clone();
        let reader = NewReader {
            number,
            rights,
            wish,
            spec,
            start,
            max_latency,
            payer: None,
            group: None,
            precedence: None,
        };
        capture.attach(&reader).expect("a reader")
    };
    // The source hears of it right after the order was obeyed.
    let hears = |ms| {
        let begun = std::time::Instant::now();
        while told.lock().expect("no panic").last() != Some(&Duration::from_millis(ms)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "not told {ms}: {told:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let _patient = attach(1, 50);
    hears(50);
    let _hasty = attach(2, 0);
    hears(0);
    capture.detach(2);
    hears(50);
    let _very = attach(3, u64::from(u32::MAX));
    capture.detach(1);
    // However patient they are.
    hears(100);
    capture.stop(&mut |_| ());
}

/// A capture whose buffer has room for some 7,700 packets, to which 20,000 came before anybody reads; those that the
/// filter accepts are stored.
fn with_history(filter: &str) -> (Capture, Arc<Wire>) {
    let wire = Arc::<Wire>::default();
    wire.allow(20_000);
    let source = NumberedSource::new(&wire, 1000);
    let history = Some(filter.to_owned());
    let rule = CaptureRule { name: "test".to_owned(), buffer: 8, history, ..CaptureRule::default() };
    let capture = Capture::start(rule, vec![Box::new(source)], None).expect("a capture");
    settle("packets", || capture.status(&FULL).0.packets == 20_000);
    (capture, wire)
}

#[test]
fn events_of_the_end_are_logged() {
    let (capture, _wire) = with_history("");
    let mut lines = Vec::new();
    capture.stop(&mut |line| lines.push(line.to_owned()));
    assert!(lines.contains(&"test: test: stopped".to_owned()), "{lines:?}");
}

/// A reader of few places that begins with the oldest packet.
fn from_oldest(capture: &Capture, number: u64, filter: &str, policy: Policy) -> Reader {
    let rights = Rights { filter: String::new(), snap_len: capture.options.snap_len };
    let wish = capture.compile(&rights, filter).expect("a filter");
    let spec = ReaderSpec { policy, entries: 256 };
    let (start, max_latency) = (StartPosition::Oldest, Duration::ZERO);
    let reader = NewReader {
        number,
        rights,
        wish,
        spec,
        start,
        max_latency,
        payer: None,
        group: None,
        precedence: None,
    };
    let parts = capture.attach(&reader);
    Reader::open(parts.expect("a reader").remove(0)).expect("a reader")
}

/// All that the buffer holds, and all that comes while that is read, through an index of few places.
#[test]
fn the_past_comes_whole_then_the_present() {
    let (capture, wire) = with_history("");
    // Every 64th number is one whose first byte has no bit of 63.
    let mut readers = [(1, ""), (2, "link[0] & 63 = 0")]
        .map(|(number, filter)| from_oldest(&capture, number, filter, Policy::Lossless));
    wire.allow(60_000);
    let (mut found, begun) = ([Vec::new(), Vec::new()], Instant::now());
    while found[0].last() != Some(&59_999) || found[1].last() != Some(&59_968) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", found.map(|found| found.len()));
        for (reader, found) in readers.iter_mut().zip(&mut found) {
            reader.advance().expect("a sound index");
            let number = |data: &[u8]| u64::from_le_bytes(*data.first_chunk().expect("eight bytes"));
            found.extend(reader.batch().iter().map(|packet| number(packet.data)));
        }
    }
    let first = found[0][0];
    assert!((12_000..20_000).contains(&first), "{first}");
    assert_eq!(found[0], (first..60_000).collect::<Vec<_>>());
    assert_eq!(found[1], (first..60_000).filter(|number| number % 64 == 0).collect::<Vec<_>>());
    for mut reader in readers {
        while reader.advance().expect("a sound index") > 0 {}
        assert!(reader.guarantee() == tapline_ring::Guarantee::Lossless && reader.finish().lost.total() == 0);
    }
    capture.stop(&mut |_| ());
}

/// While a reader is in the past, new packets that only it wants are stored for it.
#[test]
fn packets_for_a_reader_of_the_past_are_stored() {
    let (capture, wire) = with_history("link[0] & 63 = 0");
    let mut reader = from_oldest(&capture, 1, "", Policy::Lossless);
    let sum = || capture.status(&FULL).1[0].1;
    settle("counters", || sum().counts.offered == 256);
    assert!(sum().past > 0, "it has no place for all");
    wire.allow(21_000);
    settle("counters", || capture.status(&FULL).0.packets == 21_000);
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.last() != Some(&20_999) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", found.len());
        reader.advance().expect("a sound index");
        let number = |data: &[u8]| u64::from_le_bytes(*data.first_chunk().expect("eight bytes"));
        found.extend(reader.batch().iter().map(|packet| number(packet.data)));
    }
    assert_eq!(found, (0..20_000).step_by(64).chain(20_000..21_000).collect::<Vec<_>>());
    capture.stop(&mut |_| ());
}

/// A reader that does not read has all of the past counted, offered or not, and all that comes.
#[test]
fn past_packets_without_a_place_are_counted() {
    let (capture, wire) = with_history("");
    let reader = from_oldest(&capture, 1, "", Policy::Lossy);
    let sum = || capture.status(&FULL).1[0].1;
    settle("counters", || sum().counts.offered == 256);
    let first = 20_000 - 256 - sum().past;
    wire.allow(60_000);
    settle("counters", || capture.status(&FULL).0.packets == 60_000 && sum().past == 0);
    let counts = sum().counts;
    assert_eq!((counts.offered, counts.index_full), (60_000 - first, 60_000 - first - 256));
    let account = reader.finish();
    assert_eq!((account.offered, account.lost.unread), (60_000 - first, 256));
    capture.stop(&mut |_| ());
}

/// Numbers of the packets that a reader gets up to `last`, with what `verdict` makes of each batch.
fn read_until(reader: &mut Reader, last: u64, verdicts: impl Fn(&Reader) -> Vec<u32>) -> Vec<(u64, u32)> {
    let (mut found, begun) = (Vec::<(u64, u32)>::new(), Instant::now());
    while found.last().map(|(number, _)| *number) != Some(last) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} came", found.len());
        reader.advance().expect("a sound index");
        let number = |data: &[u8]| u64::from_le_bytes(*data.first_chunk().expect("eight bytes"));
        let numbers = reader.batch().iter().map(|packet| number(packet.data)).collect::<Vec<_>>();
        found.extend(numbers.into_iter().zip(verdicts(reader)));
    }
    found
}

fn labels_of(reader: &Reader) -> Vec<u32> {
    reader.batch().records().iter().map(|record| record.meta.label.into()).collect()
}

/// Readers of the present, of a user, and of the past get the same labels.
#[test]
fn packets_bear_the_first_label_that_accepts_them() {
    let (capture, wire) = with_history("");
    let texts = ["link[0] & 3 = 3", "link[0] & 1 = 1", "link[0] & 3 = 3", ""].map(str::to_owned);
    let expected = |number: u64| match number & 3 {
        3 => 1,
        1 => 2,
        _ => 4,
    };
    let rights = Rights { filter: String::new(), snap_len: capture.options.snap_len };
    let user = (Payer { uid: 7, time_ms: 1000 }, Arc::<Ledger>::default().allowance(7, u64::MAX));
    let newest = StartPosition::Newest;
    let kinds = [(1, newest, None), (2, newest, Some(user)), (3, StartPosition::Oldest, None)];
    let mut readers = kinds.map(|(number, start, payer)| {
        let wish = capture.compile(&rights, "link[0] & 4 = 0").expect("a filter");
        let wish = Wish { verdicts: capture.compile_labels(&texts).expect("labels"), ..wish };
        let spec = ReaderSpec { policy: Policy::Lossless, entries: 256 };
        let (rights, max_latency) = (rights.clone(), Duration::ZERO);
        let reader = NewReader {
            number,
            rights,
            wish,
            spec,
            start,
            max_latency,
            payer,
            group: None,
            precedence: None,
        };
        let mut reader =
            Reader::open(capture.attach(&reader).expect("a reader").remove(0)).expect("a reader");
        reader.use_verdicts(VerdictUse::Label);
        reader
    });
    wire.allow(30_000);
    std::thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(|| {
                let found = read_until(reader, 29_995, labels_of);
                let wanted = (found[0].0..30_000).filter(|number| number & 4 == 0);
                assert_eq!(found, wanted.map(|number| (number, expected(number))).collect::<Vec<_>>());
            });
        }
    });
    capture.stop(&mut |_| ());
}

/// The return value of a program for a packet is in the index, also after the program was replaced.
#[test]
fn the_return_value_of_a_program_is_the_verdict() {
    let (capture, wire) = with_history("");
    let rights = Rights { filter: String::new(), snap_len: capture.options.snap_len };
    let spec = ReaderSpec { policy: Policy::Lossless, entries: 256 };
    let (start, max_latency) = (StartPosition::Newest, Duration::ZERO);
    // ld [0]; ret a: the first four bytes as a number.
    let wish = capture.compile_program(&rights, &[(0x20, 0, 0, 0), (0x16, 0, 0, 0)]).expect("a program");
    let reader = NewReader {
        number: 1,
        rights: rights.clone(),
        wish,
        spec,
        start,
        max_latency,
        payer: None,
        group: None,
        precedence: None,
    };
    let mut reader = Reader::open(capture.attach(&reader).expect("a reader").remove(0)).expect("a reader");
    reader.use_verdicts(VerdictUse::Lend);
    wire.allow(21_000);
    let found = read_until(&mut reader, 20_999, |reader| reader.verdicts().to_vec());
    let big_endian = |number: u64| (number as u32).swap_bytes();
    assert_eq!(found, (20_000..21_000).map(|number| (number, big_endian(number))).collect::<Vec<_>>());
    let constant = capture.compile_program(&rights, &[(0x06, 0, 0, 96)]).expect("a program");
    capture.set_filter(1, &constant).expect("another program");
    wire.allow(22_000);
    let found = read_until(&mut reader, 21_999, |reader| reader.verdicts().to_vec());
    assert_eq!(found, (21_000..22_000).map(|number| (number, 96)).collect::<Vec<_>>());
    capture.stop(&mut |_| ());
}

#[test]
fn labels_are_bounded_and_errors_name_theirs() {
    let (capture, _) = with_history("");
    let labels = |count| vec!["udp".to_owned(); count];
    assert!(capture.compile_labels(&labels(255)).is_ok());
    assert!(capture.compile_labels(&labels(256)).is_err());
    let error = capture.compile_labels(&["udp".to_owned(), "upd".to_owned()]).err().expect("no filter");
    assert!(error.starts_with("label 2: "), "{error}");
    capture.stop(&mut |_| ());
}

/// Nothing is captured in a pause; both states refuse what leads nowhere.
#[test]
fn a_pause_captures_nothing_and_is_counted() {
    use tapline_tap_client::protocol::ControlAction::{Pause, Resume};
    let (capture, wire) = with_history("");
    let packets = |count| settle("packets", || capture.status(&FULL).0.packets == count);
    assert!(capture.control(Resume).is_err(), "it runs");
    capture.control(Pause).expect("it runs");
    assert!(capture.control(Pause).is_err(), "it is paused");
    assert!(capture.status(&FULL).0.is_paused);
    wire.allow(25_000);
    packets(25_000);
    let (status, _) = capture.status(&FULL);
    assert_eq!((status.stored, status.paused, status.unwanted), (20_000, 5_000, 5_000));
    capture.control(Resume).expect("it is paused");
    assert!(!capture.status(&FULL).0.is_paused);
    assert_eq!(capture.account().unwanted, 5_000);
    capture.stop(&mut |_| ());
}

/// The source does not run the filter of the capture: readers of the past and of the present, with and without rights
/// of their own, get accepted packets only.
#[test]
fn a_filter_that_the_source_does_not_run_holds() {
    let wires = [Arc::default(), Arc::default()];
    filter_holds(&wires[0], Box::new(NumberedSource::new(&wires[0], 1000)));
    filter_holds(&wires[1], Box::new(NumberedSource::losing_filters(&wires[1], 1000)));
}

fn filter_holds(wire: &Wire, source: Box<dyn Source>) {
    const FILTER: &str = "link[0] & 63 = 0";
    // A filter that accepts all, so that the source is asked for another filter than the capture's.
    const OTHER: &str = "link[2] = 0";
    wire.allow(5_000);
    let rule = CaptureRule {
        name: "test".to_owned(),
        buffer: 8,
        filter: FILTER.to_owned(),
        history: Some(OTHER.to_owned()),
        ..CaptureRule::default()
    };
    let filter = tapline_filter::compile(FILTER, &Options::default()).expect("a filter");
    let capture = Capture::start(rule, vec![source], Some(filter)).expect("a capture");
    settle("packets", || capture.status(&FULL).0.packets == 5_000);
    let snap_len = capture.options.snap_len;
    let user = (Payer { uid: 7, time_ms: 1000 }, Arc::<Ledger>::default().allowance(7, u64::MAX));
    let newest = StartPosition::Newest;
    let kinds = [
        (1, "", StartPosition::Oldest, None),
        (2, "", newest, None),
        (3, "", newest, Some(user.clone())),
        (4, "link[0] & 64 = 0", newest, Some(user)),
    ];
    let mut readers = kinds.map(|(number, forced, start, payer)| {
        let rights = Rights { filter: forced.to_owned(), snap_len };
        let reader = NewReader {
            number,
            wish: capture.compile(&rights, OTHER).expect("a filter"),
            rights,
            spec: ReaderSpec { policy: Policy::Lossless, entries: 1024 },
            start,
            max_latency: Duration::ZERO,
            payer,
            group: None,
            precedence: None,
        };
        Reader::open(capture.attach(&reader).expect("a reader").remove(0)).expect("a reader")
    });
    wire.allow(10_000);
    let last = 9_984;
    for (index, reader) in readers.iter_mut().enumerate() {
        let (first, step) = match index {
            0 => (0, 64),
            3 => (5_120, 128),
            _ => (5_056, 64),
        };
        let found = read_until(reader, last, labels_of).into_iter().map(|(number, _)| number);
        assert_eq!(found.collect::<Vec<_>>(), (first..=last).step_by(step).collect::<Vec<_>>(), "{index}");
    }
    drop(readers);
    settle("counters", || capture.status(&FULL).0.packets == 10_000);
    let totals = capture.stop(&mut |_| ());
    assert_eq!((totals.packets, totals.unwanted), (10_000, 10_000 - 10_000_u64.div_ceil(64)));
}

/// Any of the interfaces may have had packets for a reader, whatever its rights. All workers see the same failures.
#[test]
fn failures_to_capture_are_counted_for_all_readers() {
    let wires = [0, 1].map(|_| Arc::<Wire>::default());
    let source = |wire| Box::new(NumberedSource::new(wire, 200)) as Box<dyn Source>;
    let rule = CaptureRule { name: "test".to_owned(), buffer: 4, ..CaptureRule::default() };
    let capture = Capture::start(rule, wires.iter().map(source).collect(), None).expect("a capture");
    for (wire, begun) in wires.iter().zip([3, 2]) {
        *wire.uncaptured.lock().expect("no panic") = UncapturedCounts { begun, ended: 1 };
    }
    let full = Rights { filter: String::new(), snap_len: capture.options.snap_len };
    let narrow = Rights { filter: "link[0] = 1".to_owned(), snap_len: 60 };
    // Each worker asks its source ten times a second.
    let known =
        |worker: &Thread| worker.order(Order::Report).is_some_and(|report| report.uncaptured.lasting() > 0);
    settle("failures", || capture.workers.iter().all(known));
    for (number, rights) in [full, narrow].into_iter().enumerate() {
        let status = capture.status(&rights).0;
        assert_eq!((status.uncaptured, status.uncaptured_before), (2, 1));
        let reader = NewReader {
            number: number as u64,
            wish: capture.compile(&rights, "").expect("a filter"),
            rights,
            spec: ReaderSpec::new(Policy::Lossy),
            start: StartPosition::Newest,
            max_latency: Duration::ZERO,
            payer: None,
            group: None,
            precedence: None,
        };
        let parts = capture.attach(&reader).expect("a reader");
        let counts = parts.into_iter().map(|parts| {
            let counts = Reader::open(parts).expect("a reader").source();
            [Counted::UncapturedBegun, Counted::UncapturedEnded].map(|place| counts.get(place))
        });
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts, [[Some(3), Some(1)], [Some(2), Some(1)]]);
    }
    capture.stop(&mut |_| ());
}

#[test]
fn the_account_names_an_interface_once() {
    let report = || Report {
        interfaces: vec![
            InterfaceAccount::of_file("v0", 5),
            InterfaceAccount::of_uncaptured("v1", "no socket"),
        ],
        ..Report::default()
    };
    let mut totals = CaptureTotals::of("test");
    (0..2).for_each(|_| totals.add(report()));
    let rows: Vec<_> = totals.interfaces.iter().map(|row| (row.name.as_str(), row.delivered)).collect();
    assert_eq!(rows, [("v0", 10), ("v1", 0)]);
    assert_eq!(totals.interfaces[1].losses.len(), 1);
}
