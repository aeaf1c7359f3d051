//! The workers of a capture, as the control thread sees them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tapline_bpf::{Insn, KERNEL_INSNS_MAX, Program};
use tapline_filter::{HandleKind, Options, SystemNames};
use tapline_filterset::Filter;
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, LinkType};
use tapline_ring::{Guarantee, ReaderParts, ReaderSpec, StartPosition};
use tapline_source::{InterfaceAccount, Source, UncapturedCounts, merge_interfaces};
use tapline_sys::Wakeup;
use tapline_tap_client::protocol::{CaptureStatus, ControlAction, LABELS_MAX, ReaderCounts};

use crate::budget::Payer;
use crate::interfaces::{InterfaceList, InterfaceNumbers};
use crate::memory::Allowance;
use crate::rules::MatchRule;
use crate::union::FilterNeed;
use crate::view::{Rights, View};
use crate::worker::{
    self, ControlLine, Eviction, History, Joining, Order, ReaderReport, Refusal, Report, Setting,
    VerdictRule, ViewReport, Wish, Worker,
};
use crate::{CaptureRule, Error};

/// Longest wait for an answer of a worker: it answers between two batches.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The longest filter of a reader in bytes, some 370 addresses of hosts. Others wait while it is compiled, twice: for
/// the set, and for the kernel. Measured once with `tapline capture -F`: 7 ms of processor time for such a list, 1.1 s
/// for 189 times `inner(...)`, which is made to take long.
const TEXT_LEN_MAX: usize = 8 << 10;

/// A capture that runs.
pub struct Capture {
    rule: CaptureRule,
    interfaces: Arc<InterfaceList>,
    options: Options,
    workers: Vec<Thread>,
    /// Lines of workers, for a person to read.
    log: Receiver<String>,
    evictions: Receiver<Eviction>,
}

/// An instruction as clients send it: code, jt, jf, k.
pub(crate) type RawInsn = (u16, u8, u8, u32);

pub(crate) struct NewReader {
    pub(crate) number: u64,
    pub(crate) rights: Rights,
    pub(crate) wish: Wish,
    pub(crate) spec: ReaderSpec,
    pub(crate) start: StartPosition,
    /// The longest time that packets may wait before the reader can read them.
    pub(crate) max_latency: Duration,
    /// The user that pays for it, and whose memory it takes; none for root and the owner of the daemon.
    pub(crate) payer: Option<(Payer, Allowance)>,
    /// The group whose share of the packets it gets.
    pub(crate) group: Option<tapline_tap_client::GroupRequest>,
    /// Rank among the readers of which the first gets each packet; `None` if the reader gets its packets anyway.
    pub(crate) precedence: Option<u64>,
}

/// A worker's thread, and the way to it.
struct Thread {
    orders: Sender<Order>,
    wakeup: Option<Arc<Wakeup>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

/// Counters of a reader, summed over all workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderSum {
    pub(crate) counts: ReaderCounts,
    pub(crate) standing: Guarantee,
    pub(crate) wakes: u64,
    pub(crate) past: u64,
}

/// Counters of a capture, at its end or on the way.
#[derive(Clone, Debug)]
pub struct CaptureTotals {
    /// Name of the capture.
    pub name: String,
    /// Before the daemon, for each interface: the sums of all workers.
    pub interfaces: Vec<InterfaceAccount>,
    /// Packets that sources lent.
    pub packets: u64,
    /// Packets of `packets` that no reader wanted.
    pub unwanted: u64,
    /// Packets stored, in all buffers.
    pub stored: u64,
    /// Packets that found no block.
    pub not_stored: u64,
    /// The reason for which the capture ended by itself; empty for the end of a file, `None` if it was stopped or goes
    /// on.
    pub end_reason: Option<String>,
}

impl Capture {
    /// Starts the threads: one for each source. `filter` is that of the rule, for packets of interfaces on which the
    /// source does not run it.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::LinkTypes`], [`Error::System`] without a thread.
    pub fn start(
        rule: CaptureRule,
        sources: Vec<Box<dyn Source>>,
        filter: Option<CompiledFilter>,
    ) -> Result<Capture, Error> {
        Capture::start_by(rule, sources, filter, None, None)
    }

    /// Starts the thread of a published place of a graph. `handle` says how filters of its packets are compiled: as for
    /// the graph's own source. Its source waits for no reader, and lends packets only that readers want.
    ///
    /// # Errors
    /// As with [`start`](Self::start).
    pub fn start_place(
        rule: CaptureRule,
        source: Box<dyn Source>,
        handle: HandleKind,
    ) -> Result<Capture, Error> {
        Capture::start_by(rule, vec![source], None, Some(handle), None)
    }

    /// Starts the threads. `clock`, if there is one, replaces the clock for the processor time of users, in
    /// nanoseconds.
    fn start_by(
        rule: CaptureRule,
        sources: Vec<Box<dyn Source>>,
        filter: Option<CompiledFilter>,
        handle: Option<HandleKind>,
        clock: Option<fn() -> u64>,
    ) -> Result<Capture, Error> {
        // Files seldom say what they were captured on.
        let file = rule.file.as_deref().and_then(Path::file_name);
        let file = file.map(|file| file.to_string_lossy().into_owned());
        let interfaces = Arc::new(InterfaceList::new(file));
        let mut numbers = Vec::new();
        for source in &sources {
            let mut of_source = InterfaceNumbers::new(Arc::clone(&interfaces));
            of_source.learn(source.interfaces());
            numbers.push(of_source);
        }
        let is_file = rule.file.is_some();
        let link_type = link_type(&rule.name, &interfaces.all(), is_file)?;
        let handle = handle.unwrap_or(if is_file { HandleKind::Savefile } else { HandleKind::Live });
        // A name in a reader's filter blocks no other client, and no DNS server hears of it.
        let resolver = Arc::new(SystemNames::default().files_only());
        let options = Options { link_type, snap_len: rule.snap_len, handle, resolver, ..Options::default() };
        let history = rule.history.as_ref().map(|text| History {
            text: text.clone(),
            asked: FilterNeed::text(&rule.filter, text, &options),
        });
        let filter = filter.map(worker::ready);
        let mut workers = Vec::new();
        let (tell, log) = channel();
        let (evict, evictions) = channel();
        for (number, (source, interfaces)) in sources.into_iter().zip(numbers).enumerate() {
            let setting = Setting {
                link_type,
                buffer_mib: rule.buffer,
                worker: number as u32,
                history: history.clone(),
                goes_to_first: rule.matching == MatchRule::First,
                counts_all: is_file || rule.count_all,
                waits_for_readers: is_file,
                options: options.clone(),
                clock,
            };
            let (orders, received) = channel();
            let (stop, wakeup) = (Arc::<AtomicBool>::default(), source.wakeup());
            let (log, evictions, stopped) = (tell.clone(), evict.clone(), Arc::clone(&stop));
            let line = ControlLine { orders: received, log, evictions, stop: stopped };
            let worker = Worker::new(setting, (source, interfaces), filter.clone(), line);
            let name = format!("tap:{}", rule.name);
            let thread = std::thread::Builder::new().name(name).spawn(move || worker.run())?;
            workers.push(Thread { orders, wakeup, stop, thread });
        }
        Ok(Capture { rule, interfaces, options, workers, log, evictions })
    }

    pub(crate) fn rule(&self) -> &CaptureRule {
        &self.rule
    }

    pub(crate) fn interfaces(&self) -> &InterfaceList {
        &self.interfaces
    }

    /// Options of the compiler for the filters of readers.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Lines of its workers since the last call.
    pub(crate) fn news(&self) -> impl Iterator<Item = String> {
        self.log.try_iter()
    }

    /// Readers whose user spent all since the last call.
    pub(crate) fn evictions(&self) -> impl Iterator<Item = Eviction> {
        self.evictions.try_iter()
    }

    /// Whether something is withheld from readers with these rights.
    pub(crate) fn withholds(&self, rights: &Rights) -> bool {
        rights.withhold(self.options.snap_len)
    }

    /// A filter within rights.
    pub(crate) fn compile(&self, rights: &Rights, text: &str) -> Result<Wish, String> {
        if text.len() > TEXT_LEN_MAX {
            let len = text.len();
            return Err(format!(
                "a filter of {len} bytes; {TEXT_LEN_MAX} are the most that is compiled for readers"
            ));
        }
        let own = tapline_filter::compile(text, &self.options).map_err(|error| error.render(text))?;
        check_len(own.program())?;
        // What the rules ask is asked before, of whole packets; this, of what the reader may see.
        let filter = Arc::new(worker::compile(text, &self.options)?);
        let (capture, forced) = (&self.rule.filter, &rights.filter);
        let asked = if text.trim().is_empty() {
            FilterNeed::text(capture, forced, &self.options)
        } else if self.withholds(rights) || capture.trim().is_empty() {
            FilterNeed::program(capture, forced, own.program(), rights.snap_len, &self.options)
        } else {
            FilterNeed::text(capture, text, &self.options)
        };
        Ok(Wish { filter, asked, verdicts: VerdictRule::None })
    }

    /// The verdicts of labels, each the text of a filter.
    pub(crate) fn compile_labels(&self, texts: &[String]) -> Result<VerdictRule, String> {
        if texts.is_empty() {
            return Ok(VerdictRule::None);
        }
        let mut len = 0;
        let mut labels = Vec::new();
        for (number, text) in (1..).zip(texts) {
            len += text.len();
            if number > LABELS_MAX || len > TEXT_LEN_MAX {
                return Err(format!(
                    "{} labels; {LABELS_MAX} of {TEXT_LEN_MAX} bytes together are the most",
                    texts.len()
                ));
            }
            let program = tapline_filter::compile(text, &self.options);
            let program = program.map_err(|error| format!("label {number}: {}", error.render(text)))?;
            check_len(program.program())?;
            labels.push(Arc::new(worker::compile(text, &self.options)?));
        }
        Ok(VerdictRule::Labels(labels.into()))
    }

    /// A program of classic BPF within rights.
    pub(crate) fn compile_program(&self, rights: &Rights, insns: &[RawInsn]) -> Result<Wish, String> {
        if insns.is_empty() {
            return self.compile(rights, "");
        }
        // Before they are looked at.
        if insns.len() > KERNEL_INSNS_MAX {
            return Err(too_long(insns.len()));
        }
        let insns = insns.iter().map(|&(code, jt, jf, k)| Insn { code, jt, jf, k }).collect();
        let program = Program::new(insns).map_err(|error| format!("no program: {error}"))?;
        check_len(&program)?;
        let Rights { filter, snap_len } = rights;
        let asked = FilterNeed::program(&self.rule.filter, filter, &program, *snap_len, &self.options);
        let verdicts = VerdictRule::of_program(&program);
        let filter = Arc::new(Filter::from_program(worker::ready(program.into())));
        Ok(Wish { filter, asked, verdicts })
    }

    /// Adds a reader to all workers. Gives its descriptors.
    pub(crate) fn attach(&self, reader: &NewReader) -> Result<Vec<ReaderParts>, String> {
        let mut parts = Vec::new();
        for (at, worker) in self.workers.iter().enumerate() {
            match self.attach_to(worker, at as u32, reader) {
                Ok(one) => parts.push(one),
                Err(error) => {
                    self.detach(reader.number);
                    return Err(error);
                }
            }
        }
        Ok(parts)
    }

    /// Adds a reader to a worker, with a buffer made here if it needs one: the worker has packets to look at.
    fn attach_to(&self, worker: &Thread, number: u32, reader: &NewReader) -> Result<ReaderParts, String> {
        let mut joining = Box::new(Joining {
            number: reader.number,
            rights: reader.rights.clone(),
            wish: reader.wish.clone(),
            spec: reader.spec,
            start: reader.start,
            max_latency: reader.max_latency,
            group: reader.group.clone(),
            precedence: reader.precedence,
            payer: reader.payer.as_ref().map(|(payer, _)| *payer),
            view: None,
        });
        loop {
            let brings_view = joining.view.is_some();
            match worker.order(|reply| Order::Attach(joining, reply)) {
                Some(Ok(parts)) => return Ok(parts),
                Some(Err(Refusal::Text(text))) => return Err(text),
                Some(Err(Refusal::NoBuffer(back))) if !brings_view => joining = back,
                Some(Err(Refusal::NoBuffer(_))) | None => {
                    return Err("the capture does not answer".to_owned());
                }
            }
            let (mib, Options { link_type, snap_len, .. }) = (self.rule.buffer, &self.options);
            let charge = |allowance: &Allowance| {
                allowance.charge(u64::from(mib) << 20, "a buffer for what the rules let you see")
            };
            let charge = reader.payer.as_ref().map(|(_, allowance)| charge(allowance)).transpose()?;
            let view = View::new(joining.rights.clone(), *link_type, *snap_len, mib, number);
            joining.view = Some(View { charge, ..view.map_err(|error| error.to_string())? });
        }
    }

    /// Pauses all workers, or has them go on.
    ///
    /// # Errors
    /// The state from which there is no such way, in words.
    pub(crate) fn control(&self, action: ControlAction) -> Result<(), String> {
        self.order_all(|reply| Order::Control(action, reply))
    }

    fn order_all(&self, order: impl Fn(SyncSender<Result<(), String>>) -> Order) -> Result<(), String> {
        self.workers.iter().try_for_each(|worker| {
            worker.order(&order).unwrap_or_else(|| Err("the capture does not answer".to_owned()))
        })
    }

    /// Replaces the filter of a reader.
    pub(crate) fn set_filter(&self, number: u64, wish: &Wish) -> Result<(), String> {
        self.order_all(|reply| Order::Filter(number, wish.clone(), reply))
    }

    /// Takes a reader away, with what became of its packets.
    pub(crate) fn detach(&self, number: u64) -> ReaderCounts {
        let mut sum = ReaderCounts::default();
        for worker in &self.workers {
            if let Some(counts) = worker.order(|reply| Order::Detach(number, reply)) {
                sum.merge(&counts);
            }
        }
        sum
    }

    /// Status of the capture without its readers and interfaces, and sums of the readers by number. A user with
    /// restricted rights gets only sums of readers with the same rights: the rest would reveal packets of others.
    pub(crate) fn status(&self, rights: &Rights) -> (CaptureStatus, Vec<(u64, ReaderSum)>) {
        let is_restricted = self.withholds(rights);
        let mut status =
            CaptureStatus { name: self.rule.name.clone(), is_restricted, ..CaptureStatus::default() };
        let mut readers: Vec<(u64, ReaderSum)> = Vec::new();
        let mut uncaptured = UncapturedCounts::default();
        for worker in &self.workers {
            let Some(report) = worker.order(Order::Report) else { continue };
            status.is_paused |= report.is_paused;
            if is_restricted {
                let theirs = report.views.iter().filter(|view| view.rights == *rights);
                for ViewReport { stored, bytes, not_stored, .. } in theirs {
                    status.packets += stored;
                    status.bytes += bytes;
                    status.stored += stored;
                    status.not_stored += not_stored;
                }
            } else {
                status.packets += report.packets;
                status.bytes += report.bytes;
                status.unwanted += report.unwanted;
                status.paused += report.paused;
                status.fragments_apart += report.fragments_apart;
                status.stored += report.stored;
                status.not_stored += report.not_stored;
                status.cpu_ns += report.cpu_ns;
                status.kernel_insns = report.restricted.map(|len| len as u32);
            }
            status.lost_before += report.interfaces.iter().map(lost_before).sum::<u64>();
            uncaptured.merge(report.uncaptured);
            status.rx_dropped += report.interfaces.iter().map(|account| told(account, true)).sum::<u64>();
            if let Some((number, since)) = report.blocked {
                status.waits_for = Some(number);
                status.waits_ms = status.waits_ms.max(since.as_millis() as u64);
            }
            for reader in report.readers {
                let ReaderReport { counts, standing, wakes, past, .. } = reader;
                let sum = ReaderSum { counts, standing, wakes, past };
                match readers.iter_mut().find(|(number, _)| *number == reader.number) {
                    Some((_, known)) => known.merge(&sum),
                    None => readers.push((reader.number, sum)),
                }
            }
        }
        (status.uncaptured, status.uncaptured_before) = (uncaptured.lasting(), uncaptured.ended);
        (status, readers)
    }

    /// The fate of packets up to now; the counters of its parts are of moments that differ a little.
    pub(crate) fn account(&self) -> CaptureTotals {
        let mut sum = CaptureTotals::of(&self.rule.name);
        for worker in &self.workers {
            worker.order(Order::Report).into_iter().for_each(|report| sum.add(report));
        }
        sum
    }

    /// Ends the capture: captured packets are still passed on, and readers have a moment to read them. `log` gets the
    /// last lines of its workers.
    pub fn stop(self, log: &mut dyn FnMut(&str)) -> CaptureTotals {
        for worker in &self.workers {
            worker.stop.store(true, Ordering::Relaxed);
            let _ = worker.orders.send(Order::Stop);
            worker.wake();
        }
        let mut ended = CaptureTotals::of(&self.rule.name);
        for worker in self.workers {
            ended.add(worker.thread.join().unwrap_or_default());
        }
        self.log.try_iter().for_each(|line| log(&format!("{}: {line}", self.rule.name)));
        ended
    }
}

impl CaptureTotals {
    pub(crate) fn of(name: &str) -> CaptureTotals {
        CaptureTotals {
            name: name.to_owned(),
            interfaces: Vec::new(),
            packets: 0,
            unwanted: 0,
            stored: 0,
            not_stored: 0,
            end_reason: None,
        }
    }

    fn add(&mut self, report: Report) {
        self.packets += report.packets;
        self.unwanted += report.unwanted;
        self.stored += report.stored;
        self.not_stored += report.not_stored;
        merge_interfaces(&mut self.interfaces, report.interfaces);
        self.end_reason = self.end_reason.take().or(report.ended);
    }
}

impl ReaderSum {
    fn merge(&mut self, other: &ReaderSum) {
        self.counts.merge(&other.counts);
        self.wakes += other.wakes;
        self.past += other.past;
        if self.standing.keeps_unread() && !other.standing.keeps_unread() {
            self.standing = other.standing;
        }
    }
}

impl Thread {
    /// Gives an order and waits for the answer.
    fn order<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.orders.send(order(reply)).ok()?;
        self.wake();
        answer.recv_timeout(ANSWER_WAIT).ok()
    }

    fn wake(&self) {
        if let Some(wakeup) = &self.wakeup {
            wakeup.notify();
        }
    }
}

/// Whether a reader's filter is short enough.
fn check_len(program: &Program) -> Result<(), String> {
    let len = program.insns().len();
    if len > KERNEL_INSNS_MAX { Err(too_long(len)) } else { Ok(()) }
}

fn too_long(len: usize) -> String {
    format!(
        "the filter has {len} instructions; {KERNEL_INSNS_MAX} are the most for readers: ask for less, or filter what you read"
    )
}

/// Packets known to be lost before the source lent any.
fn lost_before(account: &InterfaceAccount) -> u64 {
    account.lost().saturating_add(told(account, false))
}

/// Sum of the counters before the source: of those that count losses alone, or of the others.
fn told(account: &InterfaceAccount, is_doubtful: bool) -> u64 {
    let losses = account.losses.iter().filter(|loss| loss.counts_unwanted_frames() == is_doubtful);
    losses.filter_map(|loss| loss.count.known()).fold(0, u64::saturating_add)
}

/// The link type of a capture. A live source refuses packets of interfaces that have another one; a file cannot.
fn link_type(capture: &str, interfaces: &[Interface], is_file: bool) -> Result<LinkType, Error> {
    let first = interfaces.first().ok_or_else(|| Error::NoInterface { capture: capture.to_owned() })?;
    match interfaces.iter().find(|other| is_file && other.link_type != first.link_type) {
        None => Ok(first.link_type),
        Some(other) => Err(Error::LinkTypes {
            capture: capture.to_owned(),
            first: first.name.clone(),
            first_type: name_of(first.link_type),
            other: other.name.clone(),
            other_type: name_of(other.link_type),
        }),
    }
}

fn name_of(link_type: LinkType) -> String {
    link_type.name().map_or_else(|| link_type.0.to_string(), str::to_owned)
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod test_source;
#[cfg(test)]
mod tests;
