//! Users against the daemon: the information that they gain of withheld bytes, and the costs that they cause for
//! others.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tapline_bpf::code;
use tapline_packet::{Batch, Meta, Record};
use tapline_ring::{Policy, Reader, SourceCounter as Counted};
use tapline_source::{Advance, Error as CaptureError};
use tapline_sys::usage;

use super::test_source::{HIDDEN, NumberedSource, PATIENCE, Wire, settle};
use super::*;
use crate::memory::Ledger;
use crate::rules::SNAP_LEN_MAX;

fn new_reader(number: u64, rights: &Rights, wish: Wish, start: StartPosition, uid: Option<u32>) -> NewReader {
    let account = |uid| {
        let payer = Payer { uid, time_ms: 200 };
        (payer, Arc::<Ledger>::default().allowance(uid, u64::MAX))
    };
    NewReader {
        number,
        rights: rights.clone(),
        wish,
        spec: ReaderSpec::new(Policy::Lossy),
        start,
        max_latency: Duration::ZERO,
        payer: uid.map(account),
        group: None,
        precedence: None,
    }
}

fn open(mut parts: Vec<ReaderParts>) -> Reader {
    Reader::open(parts.remove(0)).expect("a reader")
}

const LEN: usize = 200;
/// Bytes that the user may see.
const SEEN: u32 = 60;

/// All that a user sees of some thousand packets who may see their first bytes, while root asks for the others: packets
/// of each reader, its account, counters of the buffer, and status.
fn seen(hidden: u8, history: Option<&str>) -> (Vec<String>, Vec<usize>) {
    let wire = Arc::<Wire>::default();
    let source = NumberedSource::hiding(&wire, LEN, hidden);
    let history = history.map(str::to_owned);
    let rule = CaptureRule { name: "test".to_owned(), buffer: 4, history, ..CaptureRule::default() };
    let capture = Capture::start(rule, vec![Box::new(source)], None).expect("a capture");
    let send = |count| {
        let sent = wire.allowed.fetch_add(count, Ordering::Relaxed) + count;
        settle("packets", || wire.passed.load(Ordering::Relaxed) == sent);
        // The last batch is through when the worker answers.
        capture.account();
        capture.account();
    };
    let full = Rights { filter: String::new(), snap_len: SNAP_LEN_MAX };
    let wish = capture.compile(&full, "link[100] = 1").expect("a filter");
    let root = new_reader(1, &full, wish, StartPosition::Newest, None);
    let root = open(capture.attach(&root).expect("a reader"));
    let rights = Rights { filter: "link[1] & 1 = 0".to_owned(), snap_len: SEEN };
    let wishes = hostile_wishes(&capture, &rights);
    let mut readers = Vec::new();
    // Some live; then all of them once more, of the past.
    for start in [StartPosition::Newest, StartPosition::Oldest] {
        for wish in &wishes {
            // Nothing at first, so that root's filter alone decides what comes.
            if readers.is_empty() {
                send(300);
            }
            let number = readers.len() as u64 + 2;
            let reader = new_reader(number, &rights, wish.clone(), start, Some(7));
            readers.push(open(capture.attach(&reader).expect("a reader")));
        }
        send(700);
        settle("the past", || capture.status(&rights).1.iter().all(|(_, sum)| sum.past == 0));
    }
    // A filter that is exchanged.
    for number in 2..4 {
        capture.set_filter(number, &wishes[1]).expect("another filter");
    }
    send(700);
    let (status, mut sums) = capture.status(&rights);
    sums.sort_by_key(|(number, _)| *number);
    let mut told = vec![format!("{status:?}")];
    let sums = sums.iter().filter(|(number, _)| *number > 1);
    told.extend(sums.map(|(number, sum)| format!("{number}: {:?} {:?}", sum.counts, sum.past)));
    let counts = read_all(&mut readers, &mut told);
    drop(root);
    capture.stop(&mut |_| ());
    (told, counts)
}

/// Filters, as text and as programs, that ask for bytes behind the snap length of `rights`.
fn hostile_wishes(capture: &Capture, rights: &Rights) -> Vec<Wish> {
    let (byte, indirect) = (code::LD | code::B | code::ABS, code::LD | code::B | code::IND);
    let accept_if_set = |load: Vec<RawInsn>| {
        let rest = [(code::JMP | code::JEQ | code::K, 1, 0, 1), (code::RET | code::K, 0, 0, 0)];
        [load, rest.to_vec(), vec![(code::RET | code::K, 0, 0, 1)]].concat()
    };
    let programs = [
        accept_if_set(vec![(byte, 0, 0, HIDDEN as u32)]),
        accept_if_set(vec![(code::LDX | code::W | code::IMM, 0, 0, 90), (indirect, 0, 0, 10)]),
        // The receive hash, which was computed from all bytes.
        accept_if_set(vec![(code::LD | code::W | code::ABS, 0, 0, (-0x1000_i32 + 32) as u32)]),
    ];
    let texts = ["", "link[100] = 1", "not link[100] = 1", "link[0] = 3", "link[0] = 3 or link[100:2] != 0"];
    let mut wishes: Vec<Wish> = texts.iter().map(|text| capture.compile(rights, text).expect(text)).collect();
    let programs = programs.iter().map(|insns| capture.compile_program(rights, insns).expect("a program"));
    wishes.extend(programs);
    wishes
}

/// Reads the packets of all readers: how many each has. `told` gets all that they saw.
fn read_all(readers: &mut [Reader], told: &mut Vec<String>) -> Vec<usize> {
    let mut counts = Vec::new();
    for (at, reader) in readers.iter_mut().enumerate() {
        let mut found = Vec::new();
        while reader.advance().expect("a sound index") > 0 {
            found.extend(reader.batch().iter().map(|packet| format!("{:?} {:?}", packet.meta, packet.data)));
        }
        counts.push(found.len());
        told.push(format!("{at}: {}", found.join("\n")));
        let source = reader.source();
        for place in [Counted::Received, Counted::KernelFiltered, Counted::Unwanted] {
            assert_eq!(source.get(place), None);
        }
    }
    counts
}

/// Whatever is withheld, and whatever others ask for: a user sees the same.
#[test]
fn nothing_behind_the_cut_is_told() {
    for history in [None, Some("link[0] & 7 = 3")] {
        let (zeros, counts) = seen(0, history);
        let (ones, _) = seen(1, history);
        for (zero, one) in zeros.iter().zip(&ones) {
            let len = zero.len().min(one.len()).min(2000);
            assert!(zero == one, "{history:?}:\n{}\n{}", &zero[..len], &one[..len]);
        }
        assert_eq!(zeros.len(), ones.len());
        // All that the rules allow; nothing for filters of hidden bytes; what else a filter accepts.
        assert!(counts[0] > 500 && counts[3] > 2, "{counts:?}");
        for hidden in [1, 2, 5, 6, 7] {
            assert_eq!(counts[hidden], 0, "{counts:?}");
        }
    }
}

/// Readers may have filters as long as the kernel's, and no longer ones.
#[test]
fn filters_are_as_long_as_the_kernel_takes() {
    let wire = Arc::<Wire>::default();
    let source = NumberedSource::new(&wire, LEN);
    let rule = CaptureRule { name: "test".to_owned(), buffer: 4, ..CaptureRule::default() };
    let capture = Capture::start(rule, vec![Box::new(source)], None).expect("a capture");
    let rights = Rights { filter: String::new(), snap_len: SNAP_LEN_MAX };
    let of = |len: usize| {
        let loads = vec![(code::LD | code::B | code::ABS, 0, 0, 0); len - 1];
        [loads, vec![(code::RET | code::K, 0, 0, 1)]].concat()
    };
    assert!(capture.compile_program(&rights, &of(4096)).is_ok());
    let error = |result: Result<Wish, String>| result.err().expect("a refusal");
    let told = error(capture.compile_program(&rights, &of(4097)));
    assert!(told.contains("4097 instructions; 4096 are the most"), "{told}");
    // A short text that becomes a long program.
    let text = ["protochain 6"; 60].join(" or ");
    let told = error(capture.compile(&rights, &text));
    assert!(told.contains("4096 are the most"), "{told}");
    capture.stop(&mut |_| ());
}

thread_local! {
    /// Time for the worker of a [`Load`]: its processor time and the time that it waits for packets.
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// Packets at a rate per second of the worker's own time, in a kernel's ring of a given size. How loaded the machine is
/// makes no difference.
struct Load {
    interfaces: Vec<Interface>,
    wire: Arc<Wire>,
    rate: u64,
    /// Since when packets come; none before they may.
    begun: Option<u64>,
    taken: u64,
    dropped: Arc<AtomicU64>,
    cpu: Duration,
    bytes: Vec<u8>,
    records: Vec<Record>,
    is_stopped: bool,
}

/// Small packets that fit into a kernel ring of 2 MiB, which is far less than the default.
const RING: u64 = 20_000;

impl Source for Load {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, CaptureError> {
        let cpu = usage::thread_time();
        let busy_ns = cpu.saturating_sub(self.cpu).as_nanos() as u64;
        self.cpu = cpu;
        let mut now_ns = NOW_NS.get() + busy_ns;
        let allowed = self.wire.allowed.load(Ordering::Relaxed);
        if allowed > 0 && self.begun.is_none() {
            self.begun = Some(now_ns);
        }
        let Some(begun) = self.begun.filter(|_| self.taken < allowed) else {
            NOW_NS.set(now_ns);
            if self.is_stopped {
                return Ok(Advance::End);
            }
            std::thread::sleep(wait.min(Duration::from_millis(1)));
            return Ok(Advance::Idle);
        };
        let come = |now_ns: u64| ((now_ns - begun) * self.rate / 1_000_000_000).min(allowed);
        if come(now_ns) == self.taken {
            // Half of a millisecond without a packet.
            now_ns += 500_000;
        }
        NOW_NS.set(now_ns);
        let lost = (come(now_ns) - self.taken).saturating_sub(RING);
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        let count = (come(now_ns) - self.taken - lost).min(256);
        self.records.clear();
        for at in 0..count as usize {
            let meta = Meta { wire_len: 128, ..Meta::default() };
            self.records.push(Record { offset: at * 128, cap_len: 128, options_len: 0, meta });
        }
        self.taken += lost + count;
        self.wire.passed.store(self.taken, Ordering::Relaxed);
        Ok(if count == 0 { Advance::Idle } else { Advance::Batch })
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    fn stop(&mut self) -> Result<(), CaptureError> {
        self.is_stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }
}

/// Result of a run under load.
struct Loaded {
    /// Packets that the kernel's ring had no room for.
    dropped: u64,
    /// Packets that root's reader was offered.
    offered: u64,
    /// Readers that were sent away.
    sent_away: usize,
    /// Processor time of the worker, in nanoseconds a packet.
    cost_ns: u64,
}

/// A program of 4,096 instructions, each of which needs the result of the one before.
fn costly(number: usize) -> Vec<RawInsn> {
    let mut insns: Vec<RawInsn> = vec![(code::LDX | code::W | code::IMM, 0, 0, number as u32 + 2)];
    for at in 0..1364 {
        insns.push((code::LD | code::B | code::ABS, 0, 0, at % 100));
        insns.push((code::ALU | code::MUL | code::X, 0, 0, 0));
        insns.push((code::MISC | code::TAX, 0, 0, 0));
    }
    insns.extend([(code::JMP | code::JEQ | code::K, 0, 1, 7), (code::RET | code::K, 0, 0, 1)]);
    insns.push((code::RET | code::K, 0, 0, 0));
    insns
}

/// Packets at a rate, for root and for `hostile` readers of users with costly programs. `wishes` are those programs,
/// compiled by the first run that needs them: that takes longer than all packets.
fn under_load(
    packets: u64,
    rate: u64,
    hostile: usize,
    wishes: &mut Vec<Wish>,
    uid: impl Fn(usize) -> Option<u32>,
) -> Loaded {
    let (wire, dropped) = (Arc::<Wire>::default(), Arc::<AtomicU64>::default());
    let source = Load {
        interfaces: vec![Interface::new("test", LinkType::ETHERNET)],
        wire: Arc::clone(&wire),
        rate,
        begun: None,
        taken: 0,
        dropped: Arc::clone(&dropped),
        cpu: Duration::ZERO,
        bytes: vec![1; 256 * 128],
        records: Vec::new(),
        is_stopped: false,
    };
    let rule = CaptureRule { name: "test".to_owned(), buffer: 64, ..CaptureRule::default() };
    let capture = Capture::start_by(rule, vec![Box::new(source)], None, None, Some(|| NOW_NS.get()))
        .expect("a capture");
    let rights = Rights { filter: String::new(), snap_len: SNAP_LEN_MAX };
    let wish = capture.compile(&rights, "").expect("a filter");
    let root = capture.attach(&new_reader(1, &rights, wish, StartPosition::Newest, None)).expect("a reader");
    let all = capture.compile(&rights, "link[0] = 200").expect("a filter");
    let mut parts = Vec::new();
    for at in 0..hostile {
        let number = at as u64 + 2;
        let reader = new_reader(number, &rights, all.clone(), StartPosition::Newest, uid(at));
        parts.extend(capture.attach(&reader));
        if at == wishes.len() {
            wishes.push(capture.compile_program(&rights, &costly(at)).expect("within bounds"));
        }
        let _ = capture.set_filter(number, &wishes[at]);
    }
    let before_ns = capture.workers[0].order(Order::Report).map_or(0, |report| report.cpu_ns);
    wire.allowed.store(packets, Ordering::Relaxed);
    let (mut sent_away, begun) = (0, Instant::now());
    while wire.passed.load(Ordering::Relaxed) < packets {
        assert!(begun.elapsed() < 3 * PATIENCE, "the worker does not come on");
        for over in capture.evictions() {
            sent_away += over.readers.len();
            over.readers.iter().for_each(|number| drop(capture.detach(*number).offered.to_string()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = capture.workers[0].order(Order::Report).expect("an answer");
    let offered =
        report.readers.iter().find(|reader| reader.number == 1).map_or(0, |root| root.counts.offered);
    drop((root, parts));
    capture.stop(&mut |_| ());
    Loaded {
        dropped: dropped.load(Ordering::Relaxed),
        offered,
        sent_away,
        cost_ns: (report.cpu_ns - before_ns) / packets,
    }
}

/// Readers whose programs cost too much.
const HOSTILE: usize = 24;
/// Packets that they are offered.
const OFFERED: u64 = 40_000;

/// Readers with programs of 4,096 instructions, of one user and of as many, while packets come at 40,000 a second, or as
/// fast as root's reader alone takes a fifth of the processor: root loses none.
#[test]
fn readers_over_budget_go_without_loss_to_others() {
    let mut wishes = Vec::new();
    let alone = under_load(20_000, 40_000, 0, &mut wishes, |_| None);
    assert_eq!((alone.dropped, alone.offered), (0, 20_000));
    let rate = (200_000_000 / alone.cost_ns.max(1)).clamp(1000, 40_000);
    // Their work where it is not counted: each packet costs as much as the next.
    let free = under_load(OFFERED / 20, rate, HOSTILE, &mut wishes, |_| None);
    for uid in [|_: usize| 7, |at: usize| at as u32 + 1000] {
        let held = under_load(OFFERED, rate, HOSTILE, &mut wishes, |at| Some(uid(at)));
        eprintln!(
            "at {rate}/s: free {} dropped, {} ns a packet; held {} dropped, {} ns a packet, {} sent away",
            free.dropped, free.cost_ns, held.dropped, held.cost_ns, held.sent_away
        );
        assert_eq!((held.dropped, held.offered), (0, OFFERED), "{} were sent away", held.sent_away);
        assert!(held.sent_away > 0 && free.cost_ns > 2 * held.cost_ns);
    }
}
