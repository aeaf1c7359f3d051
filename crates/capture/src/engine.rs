//! The one loop that drives every source.
//!
//! ```text
//! advance -> Batch: filter, cut to the limit, write to every sink
//!         -> Idle:  flush
//!         -> End:   finish
//! ten times a second: tick the sinks; once a second, or when asked: read the counters, tell the watcher
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tapline_filter::bpf::Program;
use tapline_packet::{Interface, InterfaceId, Selection, Timestamp};

use crate::filters::{Faster, Filters};
use crate::second::{Decide, Second};
use crate::{Account, Advance, Error, Event, InterfaceAccount, Sink, Source, Wants};

/// How long a source may wait for packets before the loop looks at its flags and the clock.
const WAIT: Duration = Duration::from_millis(100);
/// How often sinks hear of the time.
const TICK_NS: i64 = 100_000_000;
/// How often counters are read: kernel counters of 32 bits wrap no sooner than in seconds.
const COUNTERS_NS: i64 = 1_000_000_000;

/// Compiles the filter for an interface; `None` accepts every packet.
pub type Compile<'a> = dyn Fn(&Interface) -> Result<Option<Program>, Error> + Sync + 'a;

/// Orders to a running loop from other threads and signal handlers.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    /// Somebody outside told the loop to end.
    is_ordered: AtomicBool,
    /// An output is complete and wants nothing more.
    is_complete: AtomicBool,
    report: AtomicU64,
    remaining: AtomicU64,
}

impl Control {
    /// Runs until the source ends or `limit` packets were accepted, whichever comes first.
    pub fn new(limit: Option<u64>) -> Control {
        Control {
            stop: AtomicBool::new(false),
            is_ordered: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
            report: AtomicU64::new(0),
            remaining: AtomicU64::new(limit.unwrap_or(u64::MAX)),
        }
    }

    /// Ends the loop soon, with every output complete.
    pub fn stop(&self) {
        self.is_ordered.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Whether the loop is to end: it was told to, has reached its limit, or a worker failed or completed the work.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether it is to end because [`stop`](Self::stop) said so.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered.load(Ordering::Relaxed)
    }

    /// Asks each worker for a fresh account soon.
    pub fn report(&self) {
        self.report.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all workers, for a reason of their own.
    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends all workers, for whom no output has any use any more.
    fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
        self.end();
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` packets from what the limit still allows.
    fn take(&self, wanted: u64) -> u64 {
        let before = self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(if left == u64::MAX { left } else { left.saturating_sub(wanted) })
        });
        let left = before.unwrap_or(0);
        if left <= wanted && left != u64::MAX {
            self.end();
        }
        wanted.min(left)
    }
}

/// How a run came to its end.
#[derive(Debug)]
pub enum Ended {
    /// The source had no more.
    Source,
    /// It was told to stop, or the limit was reached.
    Stopped,
    /// Something failed; what was accepted until then is in the outputs or counted as lost.
    Failed(Error),
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// Where every packet went.
    pub account: Account,
    /// Why it ended.
    pub ended: Ended,
}

/// What a watcher is told while the loop runs.
#[derive(Debug)]
pub struct Watch<'a> {
    /// The time of the report.
    pub now: Timestamp,
    /// The account so far; balances but for packets that the ring still holds.
    pub account: &'a Account,
    /// What happened since the last report.
    pub events: &'a [Event],
    /// Bytes read and bytes in all, where there is a whole.
    pub progress: Option<(u64, u64)>,
    /// Whether this report was asked for with [`Control::report`].
    pub asked: bool,
}

/// The loop: filter, limit and snap length, applied to any source.
pub struct Engine<'a> {
    compile: &'a Compile<'a>,
    snap_len: u32,
    clock: fn() -> Timestamp,
    filters: Filters<'a>,
    second: Option<Second<'a>>,
    selection: Selection,
    account: Account,
}

impl<'a> Engine<'a> {
    /// A loop that filters with what `compile` gives for each interface and hands sinks at most `snap_len` bytes of a
    /// packet. `clock` is read once a batch.
    pub fn new(compile: &'a Compile<'a>, snap_len: u32, clock: fn() -> Timestamp) -> Engine<'a> {
        Engine {
            compile,
            snap_len,
            clock,
            filters: Filters::new(),
            second: None,
            selection: Selection::none(),
            account: Account::default(),
        }
    }

    /// Hands each program to `faster` once it has seen so many packets that this pays.
    pub fn made_faster(self, faster: &'a Faster<'a>) -> Engine<'a> {
        Engine { filters: self.filters.made_faster(faster), ..self }
    }

    /// Lets `decide` have the last word over each packet that the filters accept, in the order of the packets.
    pub fn decided_by(self, decide: &'a Decide<'a>) -> Engine<'a> {
        Engine { second: Some(Second::new(decide)), ..self }
    }

    /// Drives `source` to its end, or until `control` says so, and completes every sink.
    pub fn run(
        mut self,
        source: &mut dyn Source,
        sinks: &mut [Box<dyn Sink>],
        control: &Control,
        watch: &mut dyn FnMut(&Watch<'_>),
    ) -> Outcome {
        let mut ended = self.drive(source, sinks, control, watch);
        if matches!(ended, Ended::Failed(_)) {
            // Other workers would go on without this one's share of the packets.
            control.end();
        }
        self.refresh(source, sinks);
        if let Err(error) = finish(sinks, (self.clock)(), &self.account.interfaces) {
            ended = match ended {
                Ended::Failed(first) => Ended::Failed(first),
                _ => Ended::Failed(error),
            };
        }
        self.account.outputs = sinks.iter().map(|sink| sink.account()).collect();
        let events = source.events();
        let account = &self.account;
        let asked = false;
        watch(&Watch { now: (self.clock)(), account, events: &events, progress: source.progress(), asked });
        Outcome { account: self.account, ended }
    }

    fn drive(
        &mut self,
        source: &mut dyn Source,
        sinks: &mut [Box<dyn Sink>],
        control: &Control,
        watch: &mut dyn FnMut(&Watch<'_>),
    ) -> Ended {
        let mut timers = Timers::starting((self.clock)());
        let mut failure: Option<Error> = None;
        let mut stopping = false;
        loop {
            let is_over = failure.is_some() || control.is_complete();
            if is_over {
                control.end();
            }
            if !stopping && control.stopped() {
                stopping = true;
                if let Err(error) = source.stop() {
                    return Ended::Failed(failure.unwrap_or(error));
                }
            }
            let step = match source.advance(WAIT) {
                Ok(Advance::Batch) if is_over => {
                    self.discard(source);
                    Ok(())
                }
                Ok(Advance::Batch) => self.batch(source, sinks, control),
                Ok(Advance::Idle) => each(sinks, |sink| sink.flush()),
                Ok(Advance::End) if failure.is_none() => {
                    return if stopping { Ended::Stopped } else { Ended::Source };
                }
                Ok(Advance::End) => return ended(failure),
                Err(error) => return ended(failure.or(Some(error))),
            };
            let ticked = self.by_the_clock(&mut timers, source, sinks, control, watch);
            if matches!(ticked, Ok(Wants::Nothing)) {
                control.complete();
            }
            failure = failure.or(step.err()).or(ticked.err());
        }
    }

    /// Filters one batch and hands what is left to every sink.
    fn batch(
        &mut self,
        source: &mut dyn Source,
        sinks: &mut [Box<dyn Sink>],
        control: &Control,
    ) -> Result<(), Error> {
        if source.interfaces().len() > self.filters.len()
            && let Err(error) = self.compile_new(source)
        {
            self.discard(source);
            return Err(error);
        }
        let batch = source.batch();
        self.selection.select_all(batch.len());
        self.filters.select(&batch, &mut self.selection);
        if let Some(second) = &self.second {
            second.select(&batch, &mut self.selection);
        }
        let examined = self.limit(batch.len(), control);
        let accepted = self.selection.len() as u64;
        self.account.delivered += batch.len() as u64;
        self.account.accepted += accepted;
        self.account.filtered += examined as u64 - accepted;
        self.account.unexamined += (batch.len() - examined) as u64;
        if accepted == 0 {
            return Ok(());
        }
        let batch = batch.cut(self.snap_len);
        let (selection, interfaces) = (&self.selection, source.interfaces());
        let written = each(sinks, |sink| sink.write(&batch, selection, interfaces));
        if let [only] = sinks {
            // Another worker completed it meanwhile: these came after the end, and went nowhere else.
            let refused = only.take_refused();
            self.account.accepted -= refused;
            self.account.unexamined += refused;
        }
        written
    }

    fn discard(&mut self, source: &dyn Source) {
        let len = source.batch().len() as u64;
        self.account.delivered += len;
        self.account.unexamined += len;
    }

    fn compile_new(&mut self, source: &dyn Source) -> Result<(), Error> {
        let interfaces = source.interfaces();
        let mut programs = Vec::new();
        for (index, interface) in interfaces.iter().enumerate().skip(self.filters.len()) {
            let done = source.is_filtered(InterfaceId(index as u32));
            programs.push(if done { None } else { (self.compile)(interface)? });
        }
        if let Some(second) = &mut self.second {
            second.extend(interfaces)?;
        }
        self.filters.extend(programs);
        Ok(())
    }

    /// Cuts the selection to the limit. Returns how many packets of the batch were looked at.
    fn limit(&mut self, batch_len: usize, control: &Control) -> usize {
        let wanted = self.selection.len();
        let granted = control.take(wanted as u64) as usize;
        if granted == wanted && !control.stopped() {
            return batch_len;
        }
        self.selection.truncate(granted);
        if control.remaining.load(Ordering::Relaxed) > 0 {
            return batch_len; // stopped from outside: this batch is still looked at as a whole
        }
        self.selection.iter().last().map_or(0, |last| last + 1)
    }

    fn by_the_clock(
        &mut self,
        timers: &mut Timers,
        source: &mut dyn Source,
        sinks: &mut [Box<dyn Sink>],
        control: &Control,
        watch: &mut dyn FnMut(&Watch<'_>),
    ) -> Result<Wants, Error> {
        let now = (self.clock)();
        let asked = timers.asked(control);
        if asked || timers.counters.due(now, COUNTERS_NS) {
            self.refresh(source, sinks);
            let (account, events) = (&self.account, source.events());
            watch(&Watch { now, account, events: &events, progress: source.progress(), asked });
        }
        if timers.tick.due(now, TICK_NS) {
            return tick(sinks, now, &self.account.interfaces);
        }
        Ok(Wants::More)
    }

    fn refresh(&mut self, source: &mut dyn Source, sinks: &[Box<dyn Sink>]) {
        self.account.interfaces = source.account();
        self.account.filter = self.filters.account();
        self.account.outputs.clear();
        self.account.outputs.extend(sinks.iter().map(|sink| sink.account()));
    }
}

fn ended(failure: Option<Error>) -> Ended {
    failure.map_or(Ended::Source, Ended::Failed)
}

/// Does the same to every sink, even after one failed, so that each account stays whole. The first error is returned.
fn each(
    sinks: &mut [Box<dyn Sink>],
    mut act: impl FnMut(&mut dyn Sink) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut first = Ok(());
    for sink in sinks {
        let result = act(sink.as_mut());
        if first.is_ok() {
            first = result;
        }
    }
    first
}

/// Tells every sink the time. One that wants nothing more ends the run for all.
fn tick(
    sinks: &mut [Box<dyn Sink>],
    now: Timestamp,
    interfaces: &[InterfaceAccount],
) -> Result<Wants, Error> {
    let mut wants = Wants::More;
    each(sinks, |sink| {
        if sink.tick(now, interfaces)? == Wants::Nothing {
            wants = Wants::Nothing;
        }
        Ok(())
    })?;
    Ok(wants)
}

fn finish(sinks: &mut [Box<dyn Sink>], now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
    each(sinks, |sink| sink.finish(now, interfaces))
}

/// What is due next by the clock.
struct Timers {
    tick: Timer,
    counters: Timer,
    reports_seen: u64,
}

impl Timers {
    fn starting(now: Timestamp) -> Timers {
        let timer = || Timer { last: now };
        Timers { tick: timer(), counters: timer(), reports_seen: 0 }
    }

    fn asked(&mut self, control: &Control) -> bool {
        let reports = control.report.load(Ordering::Relaxed);
        std::mem::replace(&mut self.reports_seen, reports) != reports
    }
}

struct Timer {
    last: Timestamp,
}

impl Timer {
    /// Whether `period` nanoseconds passed since it was last due. A clock that was set back counts as due.
    fn due(&mut self, now: Timestamp, period: i64) -> bool {
        let due = !(0..period).contains(&now.since(self.last));
        if due {
            self.last = now;
        }
        due
    }
}

#[cfg(test)]
mod tests;
