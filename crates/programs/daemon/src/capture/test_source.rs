//! The source that tests of captures share: numbered packets, as many as a test allows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Checksum, Interface, InterfaceId, LinkType, Meta, Packet, Record, Timestamp};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Source, UncapturedCounts};

/// The most packets of a batch.
const BATCH: u64 = 100;
/// The byte that [`NumberedSource::hiding`] sets.
pub(super) const HIDDEN: usize = 100;
/// Longest wait of a test for an event.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The line between a test and its source.
#[derive(Default)]
pub(super) struct Wire {
    /// Packets that may come.
    pub(super) allowed: AtomicU64,
    /// Packets that were captured or refused by the kernel's filter.
    pub(super) passed: AtomicU64,
    kernel: Mutex<Option<CompiledFilter>>,
    /// Failures to capture an interface.
    pub(super) uncaptured: Mutex<UncapturedCounts>,
}

impl Wire {
    /// Lets packets come until there were `count`.
    pub(super) fn allow(&self, packets: u64) {
        self.allowed.store(packets, Ordering::Relaxed);
    }
}

/// Lends packets that begin with their numbers, as the kernel's filter lets them through.
pub(super) struct NumberedSource {
    interfaces: Vec<Interface>,
    wire: Arc<Wire>,
    hidden: u8,
    takes_filters: bool,
    /// The kernel refuses filters, and the source does not notice.
    loses_filters: bool,
    len: usize,
    bytes: Vec<u8>,
    records: Vec<Record>,
    is_stopped: bool,
}

impl NumberedSource {
    /// Packets of `len` bytes; without a kernel that filters them.
    pub(super) fn new(wire: &Arc<Wire>, len: usize) -> NumberedSource {
        NumberedSource { takes_filters: false, ..NumberedSource::hiding(wire, len, 0) }
    }

    /// A source that says that all packets passed the filters, which the kernel refused.
    pub(super) fn losing_filters(wire: &Arc<Wire>, len: usize) -> NumberedSource {
        NumberedSource { loses_filters: true, ..NumberedSource::hiding(wire, len, 0) }
    }

    /// Packets whose byte [`HIDDEN`] and metadata contain `hidden`.
    pub(super) fn hiding(wire: &Arc<Wire>, len: usize, hidden: u8) -> NumberedSource {
        NumberedSource {
            interfaces: vec![Interface::new("test", LinkType::ETHERNET)],
            wire: Arc::clone(wire),
            hidden,
            takes_filters: true,
            loses_filters: false,
            len,
            bytes: vec![0; BATCH as usize * len],
            records: Vec::new(),
            is_stopped: false,
        }
    }
}

impl Source for NumberedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        let passed = self.wire.passed.load(Ordering::Relaxed);
        let count = (self.wire.allowed.load(Ordering::Relaxed) - passed).min(BATCH);
        if count == 0 && self.is_stopped {
            return Ok(Advance::End);
        }
        if count == 0 {
            std::thread::sleep(wait.min(Duration::from_millis(1)));
            return Ok(Advance::Idle);
        }
        self.records.clear();
        let kernel = self.wire.kernel.lock().expect("no panic").clone();
        for (at, number) in (passed..passed + count).enumerate() {
            let packet = &mut self.bytes[at * self.len..][..self.len];
            packet.fill(0);
            packet[..8].copy_from_slice(&number.to_le_bytes());
            packet[HIDDEN] = self.hidden;
            let meta = Meta {
                timestamp: Timestamp::from_nanos(number as i64),
                wire_len: self.len as u32,
                rx_hash: self.hidden.into(),
                checksum: if self.hidden > 0 { Checksum::Valid } else { Checksum::Unknown },
                ..Meta::default()
            };
            if kernel.as_ref().is_none_or(|kernel| kernel.accepts(Packet { data: packet, meta: &meta })) {
                let cap_len = self.len as u32;
                self.records.push(Record { offset: at * self.len, cap_len, options_len: 0, meta });
            }
        }
        self.wire.passed.store(passed + count, Ordering::Relaxed);
        Ok(if self.records.is_empty() { Advance::Idle } else { Advance::Batch })
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    fn restrict(&self, program: Option<&CompiledFilter>) -> Result<bool, Error> {
        let takes_this = self.takes_filters && !self.loses_filters;
        *self.wire.kernel.lock().expect("no panic") = program.filter(|_| takes_this).cloned();
        Ok(self.takes_filters)
    }

    fn is_filtered(&self, _: InterfaceId) -> bool {
        self.loses_filters
    }

    fn events(&mut self) -> Vec<Event> {
        let event = Event { interface: "test".to_owned(), text: "stopped".to_owned(), is_warning: false };
        self.is_stopped.then_some(event).into_iter().collect()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }

    fn uncaptured(&self) -> UncapturedCounts {
        *self.wire.uncaptured.lock().expect("no panic")
    }
}

/// Waits until something is so.
pub(super) fn settle(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
