//! One receive queue: its socket, and packets made of what the socket receives.
//!
//! ```text
//! frames   | given back at release | not looked at yet, or the beginning of a packet whose rest has not come |
//!           0 .. done                done ..
//!
//! packet   := frame                        lent where it lies
//!           | frame(continued)* frame      put together in the scratch memory behind the chunks, and lent from there
//! ```

use std::os::fd::{AsFd, BorrowedFd};

use tapline_ebpf::RxMetadata;
use tapline_packet::{BATCH_MAX, Direction, InterfaceId, Meta, Record, Timestamp, VlanTag};
use tapline_source::XdpAccount;
use tapline_sys::xsk::{Frame, XdpSocket, XskStatistics};
use tapline_sys::{SyscallError, memory};

/// Room for packets that are put together, for one batch.
pub(super) const SCRATCH_LEN: usize = 1 << 20;

/// Parts of a packet at most: the kernel's limit is `MAX_SKB_FRAGS` + 1, 18 in most builds and 46 at most. Parts
/// beyond are another packet.
const PARTS_MAX: usize = 64;

/// Packets ahead that are prefetched. Another processor wrote them: the first reader of a line waits for it. Chunks begin
/// at multiples of 2048, so that only two dozen of their lines fit into a first-level cache at a time.
const PACKETS_AHEAD: usize = 8;

/// Batches after which statistics are read in any case, so that a packet carries the losses before it.
const BATCHES_PER_READING: u32 = 64;

/// Properties that packets of a queue share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) interface: InterfaceId,
    pub(super) if_index: u32,
    pub(super) snap_len: u32,
}

/// One receive queue of an interface.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    /// Number of the queue at the interface.
    pub(super) number: u16,
    pub(super) common: Common,
    frames: Vec<Frame>,
    done: usize,
    delivered: u64,
    joined: u64,
    counted: XskStatistics,
    /// The cookie at the end of notes in front of packets, if there are any.
    pub(super) cookie: Option<u64>,
    /// Whether the time of a note is the packet's.
    pub(super) wants_time: bool,
    /// Packets that the adapter should have stamped and did not.
    pub(super) unstamped: u64,
    /// Losses that no packet has carried yet.
    drops_pending: u64,
    batches_since_reading: u32,
}

impl Queue {
    pub(super) fn new(socket: XdpSocket, number: u16, common: Common) -> Queue {
        Queue {
            socket,
            number,
            common,
            frames: Vec::with_capacity(BATCH_MAX + PARTS_MAX),
            done: 0,
            delivered: 0,
            joined: 0,
            counted: XskStatistics::default(),
            cookie: None,
            wants_time: false,
            unstamped: 0,
            drops_pending: 0,
            batches_since_reading: 0,
        }
    }

    /// Makes records of what has come, up to a batch. Says whether there are any.
    pub(super) fn take(&mut self, now: impl FnOnce() -> Timestamp, records: &mut Vec<Record>) -> bool {
        debug_assert!(self.done == 0, "what was lent is released first");
        let room = BATCH_MAX.saturating_sub(self.frames.len()).max(1);
        self.socket.receive(&mut self.frames, room);
        if self.frames.is_empty() {
            return false;
        }
        let Common { interface, if_index, snap_len } = self.common;
        let meta =
            Meta { timestamp: now(), interface, if_index, direction: Direction::In, ..Meta::default() };
        let mut scratch = 0;
        self.frames[..PACKETS_AHEAD.min(self.frames.len())].iter().for_each(|frame| self.prefetch(frame));
        while let Some(&frame) = self.frames.get(self.done).filter(|_| records.len() < BATCH_MAX) {
            if let Some(ahead) = self.frames.get(self.done + PACKETS_AHEAD) {
                self.prefetch(ahead);
            }
            let (offset, cap_len, wire_len, parts) = if frame.is_continued {
                let Some(joined) = self.join(&mut scratch) else { break };
                joined
            } else {
                (frame.offset, frame.len, frame.len, 1)
            };
            self.done += parts;
            let meta = self.noted(frame, Meta { wire_len, ..meta });
            records.push(Record { offset, cap_len: cap_len.min(snap_len), meta, ..Record::default() });
        }
        self.batches_since_reading += 1;
        if self.batches_since_reading >= BATCHES_PER_READING {
            // A socket that cannot be read leaves its sums as they were; the account then shows it.
            let _ = self.read_statistics();
        }
        if let Some(first) = records.first_mut() {
            first.meta.drops_before = std::mem::take(&mut self.drops_pending);
        }
        self.delivered += records.len() as u64;
        !records.is_empty()
    }

    /// Asks for the beginning of a packet, and for the note in front of it if there is one.
    #[inline]
    fn prefetch(&self, frame: &Frame) {
        let memory = self.socket.memory();
        if self.cookie.is_some() {
            memory::prefetch_element(memory, frame.offset.wrapping_sub(RxMetadata::LEN));
        }
        memory::prefetch_element(memory, frame.offset);
    }

    /// Adds the driver's metadata of the packet.
    fn noted(&mut self, frame: Frame, meta: Meta) -> Meta {
        let Some(cookie) = self.cookie else { return meta };
        let note = self.take_note(frame, cookie).unwrap_or_default();
        let is_stamped = self.wants_time && note.time != 0;
        self.unstamped += u64::from(self.wants_time && !is_stamped);
        let timestamp = if is_stamped { Timestamp::from_nanos(note.time as i64) } else { meta.timestamp };
        let (tpid, tci) = note.vlan;
        Meta { timestamp, vlan: (tpid != 0).then_some(VlanTag { tpid, tci }), ..meta }
    }

    /// The note in front of a packet's first byte.
    fn take_note(&mut self, frame: Frame, cookie: u64) -> Option<RxMetadata> {
        let at = frame.offset % self.socket.settings().chunk_len as usize;
        let start = at.checked_sub(RxMetadata::LEN)?;
        let bytes = self.socket.chunk_mut(frame.chunk).get_mut(start..at)?;
        RxMetadata::take(bytes.try_into().ok()?, cookie)
    }

    /// Joins the parts of the packet that begins at `done`: its place, its bytes there and on the wire, its number of
    /// parts. `None` if its rest has not come, or there is no room for it in this batch.
    fn join(&mut self, scratch: &mut usize) -> Option<(usize, u32, u32, usize)> {
        let rest = &self.frames[self.done..];
        let parts = match rest.iter().take(PARTS_MAX).position(|frame| !frame.is_continued) {
            Some(last) => last + 1,
            None if rest.len() >= PARTS_MAX => PARTS_MAX,
            None => return None,
        };
        let wire_len: u32 = rest[..parts].iter().map(|frame| frame.len).sum();
        let start = *scratch;
        if start > 0 && start + wire_len as usize > SCRATCH_LEN {
            return None;
        }
        for number in self.done..self.done + parts {
            *scratch += self.socket.gather(&self.frames[number], *scratch);
        }
        self.joined += 1;
        Some((self.socket.scratch_start() + start, (*scratch - start) as u32, wire_len, parts))
    }

    /// Releases the lent batch: nothing of it may be in use any more.
    pub(super) fn release(&mut self) -> Result<(), SyscallError> {
        if self.done == 0 {
            return Ok(());
        }
        for frame in self.frames.drain(..std::mem::take(&mut self.done)) {
            self.socket.give_back(frame.chunk);
        }
        self.socket.refill();
        if self.socket.needs_receive_wakeup() { self.socket.wake_receive() } else { Ok(()) }
    }

    /// Whether packets were lent since the counters were read.
    pub(super) fn has_lent(&self) -> bool {
        self.batches_since_reading > 0
    }

    /// Packets that have come and were not lent.
    pub(super) fn waiting(&mut self) -> u64 {
        let begun = self.frames[self.done..].iter().filter(|frame| !frame.is_continued).count();
        begun as u64 + u64::from(self.socket.packets_waiting())
    }

    /// The memory that records point into.
    pub(super) fn base(&self) -> &[u8] {
        self.socket.memory()
    }

    /// Reads the kernel's counters.
    pub(super) fn read_statistics(&mut self) -> Result<(), SyscallError> {
        let new = self.socket.statistics()?;
        let lost = |counted: &XskStatistics| counted.rx_dropped + counted.rx_ring_full;
        self.drops_pending += lost(&new).saturating_sub(lost(&self.counted));
        self.counted = new;
        self.batches_since_reading = 0;
        Ok(())
    }

    /// Packets lent, and the counters of the kernel at the last reading.
    pub(super) fn counts(&self) -> (u64, XdpAccount) {
        let XskStatistics { rx_dropped, rx_ring_full, rx_fill_ring_empty, rx_invalid, .. } = self.counted;
        let account = XdpAccount {
            no_room: rx_dropped,
            ring_full: rx_ring_full,
            fill_empty: rx_fill_ring_empty,
            invalid: rx_invalid + self.socket.refused_descriptors(),
            joined: self.joined,
        };
        (self.delivered, account)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
