//! The capture's end of a published place: a source for a worker of the daemon.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tapline_bpf::code;
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Interface};
use tapline_source::{Advance, Count, Error, InterfaceAccount, RingAccount, Source, UncapturedCounts};
use tapline_sys::{Poller, Wakeup, tsc};

use super::queue::{PacketBlock, Queue, ReaderFilter};

/// The packets of a published place. Losses in its queue are those of a ring in the account.
pub struct PublishedSource {
    queue: Arc<Queue>,
    interfaces: Vec<Interface>,
    block: PacketBlock,
    has_batch: bool,
    /// Packets lent, by interface.
    delivered: Vec<u64>,
    poller: Poller,
    waited: u64,
    is_stopped: bool,
}

impl PublishedSource {
    pub(super) fn new(queue: Arc<Queue>) -> PublishedSource {
        let interfaces = queue.lock().interfaces.clone();
        PublishedSource {
            queue,
            interfaces,
            block: PacketBlock::default(),
            has_batch: false,
            delivered: Vec::new(),
            poller: Poller::new(),
            waited: 0,
            is_stopped: false,
        }
    }

    /// Takes the next block, if there is one; `None` at the end.
    fn take(&mut self, will_sleep: bool) -> Option<bool> {
        let mut state = self.queue.lock();
        self.interfaces.extend(state.interfaces.iter().skip(self.interfaces.len()).cloned());
        let taken = state.take(&mut self.block);
        if !taken && (state.is_ended || self.is_stopped) {
            return None;
        }
        state.is_awaited = !taken && will_sleep;
        Some(taken)
    }

    fn lend(&mut self) {
        self.has_batch = true;
        self.delivered.resize(self.interfaces.len(), 0);
        for record in self.block.batch().records() {
            if let Some(count) = self.delivered.get_mut(record.meta.interface.0 as usize) {
                *count += 1;
            }
        }
    }
}

impl Source for PublishedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.has_batch = false;
        for may_sleep in [true, false] {
            match self.take(may_sleep && !wait.is_zero()) {
                None => return Ok(Advance::End),
                Some(true) => {
                    self.lend();
                    return Ok(Advance::Batch);
                }
                Some(false) if !may_sleep || wait.is_zero() => break,
                Some(false) => {}
            }
            let start = tsc::now();
            self.poller.clear();
            self.poller.add(self.queue.wakeup.as_fd());
            self.poller.wait(wait).map_err(|error| Error::source("tap", error))?;
            self.queue.wakeup.take();
            self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(start));
        }
        Ok(Advance::Idle)
    }

    fn batch(&self) -> Batch<'_> {
        if self.has_batch { self.block.batch() } else { Batch::empty() }
    }

    /// Lends the packets in the queue, and then ends. The graph goes on, and its place has no reader.
    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        self.queue.want(ReaderFilter::Nothing);
        Ok(())
    }

    fn restrict(&self, program: Option<&CompiledFilter>) -> Result<bool, Error> {
        self.queue.want(match program {
            None => ReaderFilter::All,
            Some(program) if is_nothing(program) => ReaderFilter::Nothing,
            Some(program) => ReaderFilter::Only(program.clone()),
        });
        Ok(true)
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let state = self.queue.lock();
        let account = |(number, interface): (usize, &Interface)| {
            let of = |counts: &[u64]| counts.get(number).copied().unwrap_or(0);
            let (delivered, dropped) = (of(&self.delivered), of(&state.lost));
            let ring = RingAccount { received: delivered + dropped, dropped, ..RingAccount::default() };
            InterfaceAccount {
                kernel_filtered: Count::Unknown,
                ring: Some(ring),
                ..InterfaceAccount::of_file(interface.label(), delivered)
            }
        };
        self.interfaces.iter().enumerate().map(account).collect()
    }

    fn uncaptured(&self) -> UncapturedCounts {
        self.queue.lock().uncaptured
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.queue.wakeup))
    }
}

impl Drop for PublishedSource {
    fn drop(&mut self) {
        self.queue.want(ReaderFilter::Nothing);
    }
}

/// Whether a program refuses every packet.
fn is_nothing(program: &CompiledFilter) -> bool {
    matches!(program.insns(), [only] if only.code == code::RET | code::K && only.k == 0)
}
