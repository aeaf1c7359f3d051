//! One output that several workers store into, a batch at a time.
//!
//! ```text
//! worker 0 --> SharedOutput \
//! worker 1 --> SharedOutput  >-- lock, once a batch --> the output
//! completer -> SharedOutput /                           (one more handle, which finishes it last)
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::{ClockReading, Interface};
use tapline_source::{Error, InterfaceAccount, OutputAccount, merge_interfaces};

/// A handle of an output that several workers store into. The last handle that is finished completes the output, with
/// the accounts of all workers added up.
pub struct SharedOutput {
    inner: Arc<Mutex<Inner>>,
    worker: usize,
    /// The packets that come here go nowhere else.
    is_only: bool,
    /// Packets of this worker that came after the output was complete and went nowhere else.
    unexamined: u64,
}

struct Inner {
    output: Box<dyn Stage>,
    /// The interfaces' accounts as each worker knew them last.
    interfaces: Vec<Vec<InterfaceAccount>>,
    unfinished: usize,
    /// Whether the output accepts no more.
    is_complete: bool,
    /// Packets that came later, of workers that had not heard of it yet. Other outputs took them; this one lost them.
    late: u64,
}

impl SharedOutput {
    /// A handle for each of `workers` workers. `is_only` says that packets of this output go nowhere else: those that
    /// come after another worker completed it count as not examined then, not as lost.
    pub fn handles(output: Box<dyn Stage>, workers: usize, is_only: bool) -> Vec<SharedOutput> {
        let interfaces = vec![Vec::new(); workers];
        let inner = Inner { output, interfaces, unfinished: workers, is_complete: false, late: 0 };
        let inner = Arc::new(Mutex::new(inner));
        let handle = |worker| SharedOutput { inner: Arc::clone(&inner), worker, is_only, unexamined: 0 };
        (0..workers).map(handle).collect()
    }

    /// Completes the output, as the last of its handles, which no graph has.
    ///
    /// # Errors
    /// The error of the output.
    pub fn complete(&mut self, now: ClockReading, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        self.finish(&TickContext::new(now, interfaces), &mut Out::nowhere())
    }

    /// The account of the packets of all workers.
    fn account(&self) -> OutputAccount {
        let inner = self.lock();
        let mut account = inner.output.counters().output.unwrap_or_default();
        account.lost += inner.late;
        account
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A worker that panicked left counters behind at worst, and the account shows what they say.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Sums the interfaces of all workers, after one has reported its own.
    fn sum_interfaces(&mut self, worker: usize, interfaces: &[InterfaceAccount]) -> Vec<InterfaceAccount> {
        self.interfaces[worker] = interfaces.to_vec();
        let mut sum = Vec::new();
        self.interfaces.iter().for_each(|theirs| merge_interfaces(&mut sum, theirs.clone()));
        sum
    }
}

impl Stage for SharedOutput {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut inner = self.lock();
        if !inner.is_complete {
            return inner.output.push(packets, out);
        }
        let late = packets.len() as u64;
        if self.is_only {
            drop(inner);
            self.unexamined += late;
        } else {
            inner.late += late;
        }
        Ok(())
    }

    fn join(&mut self, interfaces: &[Interface]) {
        self.lock().output.join(interfaces);
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.lock().output.idle()
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        let mut inner = self.lock();
        let sum = inner.sum_interfaces(self.worker, tick.interfaces);
        let status = inner.output.tick(&TickContext { interfaces: &sum, ..*tick }, out)?;
        inner.is_complete |= status == StageStatus::Complete;
        Ok(status)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut inner = self.lock();
        let sum = inner.sum_interfaces(self.worker, tick.interfaces);
        inner.unfinished = inner.unfinished.saturating_sub(1);
        match inner.unfinished {
            0 => inner.output.finish(&TickContext { interfaces: &sum, ..*tick }, out),
            _ => inner.output.idle(),
        }
    }

    fn events(&mut self) -> Vec<String> {
        self.lock().output.events()
    }

    fn notices(&mut self) -> Vec<String> {
        self.lock().output.notices()
    }

    fn counters(&self) -> StageCounters {
        let output = Some(self.account());
        StageCounters { unexamined: self.unexamined, is_shared: true, output, ..StageCounters::default() }
    }
}
