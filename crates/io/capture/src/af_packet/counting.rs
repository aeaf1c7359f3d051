//! Packets sampled and counted in the kernel, by the filter's own program.
//!
//! ```text
//! classic program --as eBPF--> accepted: sampled -> counts[processor] += 1, bytes -> ring (hands_on), or the packet's end
//!                                                   mapped: a reading takes no system call
//! ```
//!
//! Packets that end here cost no copy, no block and no wake-up. Loading takes a right that is given up once the
//! capture runs; attaching and reading take none.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tapline_bpf::Insn;
use tapline_ebpf::{Hook, SocketCount};
use tapline_packet::BlockSample;
use tapline_source::CountedPackets;
use tapline_sys::bpf::SharedArray;
use tapline_sys::{PacketSocket, SyscallError, affinity};

use super::extended::{Extended, text};

/// The most lines: processors beyond that share them.
const LINES_MAX: usize = 1024;

/// The name in bpftool(8).
const NAME: &str = "tapline_count";

/// The counts of a program in the kernel. They can be read from any thread, also after the program is gone.
#[derive(Clone, Debug)]
pub struct KernelCount {
    memory: Arc<SharedArray>,
    lines: u16,
}

impl KernelCount {
    fn new() -> Result<KernelCount, String> {
        let lines = affinity::configured().next_power_of_two().clamp(1, LINES_MAX) as u16;
        let memory = SharedArray::create(NAME, SocketCount::memory_len(lines), 1).map_err(text)?;
        Ok(KernelCount { memory: Arc::new(memory), lines })
    }

    /// The counts so far. While packets come, a packet may be counted of which the bytes are not yet.
    pub fn read(&self) -> CountedPackets {
        let mut sum = CountedPackets::default();
        for line in 0..self.lines {
            let word = SocketCount::packets_word(line);
            sum.add(&CountedPackets {
                packets: self.memory.word(0, word),
                bytes: self.memory.word(0, word + 1),
                padded_bytes: self.memory.word(0, word + 2),
                tagged: self.memory.word(0, word + 3),
            });
        }
        sum
    }

    /// Packets that the sample was taken of; 0 without one.
    fn sampled(&self) -> u64 {
        self.memory.word(0, SocketCount::NUMBER_WORD)
    }
}

/// Form of a counting program, and its use of packets that it accepts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountForm {
    /// Bytes that are counted with each packet.
    pub(super) header_len: u16,
    pub(super) sample: Option<BlockSample>,
    pub(super) hands_on: bool,
}

/// A program that counts.
#[derive(Debug)]
pub(super) struct Counting {
    program: Extended,
    pub(super) count: KernelCount,
}

impl Counting {
    /// The program that counts packets which the classic one accepts; it continues the counts of a former program.
    ///
    /// # Errors
    /// A message for people.
    pub(super) fn load(
        classic: &[Insn],
        former: Option<KernelCount>,
        form: CountForm,
    ) -> Result<Counting, String> {
        let count = former.map_or_else(KernelCount::new, Ok)?;
        let map = count.memory.as_fd().as_raw_fd();
        let CountForm { header_len, sample, hands_on } = form;
        let hook = Hook::Count(SocketCount { map, lines: count.lines, header_len, sample, hands_on });
        Ok(Counting { program: Extended::load(classic, hook)?, count })
    }

    pub(super) fn attach(&self, socket: &PacketSocket) -> Result<(), SyscallError> {
        self.program.attach(socket)
    }
}

/// Work on accepted packets that the kernel is to do at the sockets of a capture, and whether it does.
///
/// Without a sample each socket has counts of its own. With one, all sockets share the numbers of packets, so that the
/// sample is exact over all of them; the capture is then of one interface.
#[derive(Clone, Debug, Default)]
pub struct KernelTally(Arc<Tallying>);

#[derive(Debug, Default)]
struct Tallying {
    sample: Option<BlockSample>,
    hands_on: bool,
    counts: Mutex<Vec<KernelCount>>,
    /// The program that sockets of a sample share, and its classic form.
    shared: Mutex<Option<(Vec<Insn>, Arc<Counting>)>>,
    /// Packets that were sampled here, where the kernel does not.
    numbered: AtomicU64,
}

impl KernelTally {
    /// Packets are counted, and end there.
    pub fn of_count() -> KernelTally {
        KernelTally::new(None, false)
    }

    /// A sample is taken, and counted. `hands_on` says that its packets are lent; else they end there.
    pub fn new(sample: Option<BlockSample>, hands_on: bool) -> KernelTally {
        KernelTally(Arc::new(Tallying { sample, hands_on, ..Tallying::default() }))
    }

    /// Whether the kernel does the work, for one socket at least.
    pub fn is_in_kernel(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The counts of all sockets together.
    pub fn read(&self) -> CountedPackets {
        self.lock().iter().fold(CountedPackets::default(), |mut sum, count| {
            sum.add(&count.read());
            sum
        })
    }

    /// Packets that the kernel's sample left out.
    pub(super) fn left_out(&self) -> u64 {
        let sampled: u64 = self.lock().iter().map(KernelCount::sampled).sum();
        if self.0.sample.is_some() { sampled.saturating_sub(self.read().packets) } else { 0 }
    }

    /// The number of the first of `packets` packets, for a sample that is taken here for all workers.
    pub fn number(&self, packets: u64) -> u64 {
        self.0.numbered.fetch_add(packets, Ordering::Relaxed)
    }

    /// Whether all sockets share one count.
    pub(super) fn is_shared(&self) -> bool {
        self.0.sample.is_some()
    }

    /// Whether counted packets end in the kernel.
    pub(super) fn ends_packets(&self) -> bool {
        !self.0.hands_on
    }

    /// A program for a socket, in place of the classic one.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(super) fn load(&self, classic: &[Insn]) -> Result<Arc<Counting>, String> {
        let form = CountForm { sample: self.0.sample, hands_on: self.0.hands_on, ..CountForm::default() };
        if self.0.sample.is_none() {
            let counting = Arc::new(Counting::load(classic, None, form)?);
            self.lock().push(counting.count.clone());
            return Ok(counting);
        }
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some((known, counting)) if known == classic => Ok(Arc::clone(counting)),
            former => {
                let count = former.as_ref().map(|(_, counting)| counting.count.clone());
                let counting = Arc::new(Counting::load(classic, count, form)?);
                *self.lock() = vec![counting.count.clone()];
                *shared = Some((classic.to_vec(), Arc::clone(&counting)));
                Ok(counting)
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<KernelCount>> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
