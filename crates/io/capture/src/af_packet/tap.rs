//! One socket on one interface: its ring, its counters, and what has become of its link.
//!
//! ```text
//! refill:  give the finished block back -> take the next -> (statistics, if the block says that packets were lost)
//! fill:    records of the held block, up to a table full
//!
//! state      from         when                                               packets
//! Running                 up, with carrier                                   flow
//! NoCarrier  Running      carrier lost                                       none, but those sent
//! Down       any          switched off (ENETDOWN on the socket)              none until it is up; the kernel re-joins it
//! Gone       any          removed                                            what the ring still holds; then bind anew
//! ```

use std::sync::Arc;

use tapline_packet::{InterfaceId, Record, Timestamp};
use tapline_source::{CountedPackets, RingAccount};
use tapline_sys::{BlockRing, Link, PacketSocket, RingGeometry, SyscallError};

use super::block::{self, Cursor, Frame, Oddities};
use super::counting::Counting;
use super::extended::Accepted;
use super::growing::{Growable, Grown};
use crate::link_state::LinkState;

/// Blocks after which statistics are read in any case: far before a counter of 32 bits can wrap.
const BLOCKS_PER_READING: u32 = 64;

const SECOND_NS: i64 = 1_000_000_000;

/// One socket on one interface.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) id: InterfaceId,
    pub(super) name: String,
    pub(super) if_index: u32,
    pub(super) hardware_type: u16,
    pub(super) is_loopback: bool,
    pub(super) state: LinkState,
    pub(super) socket: PacketSocket,
    pub(super) geometry: RingGeometry,
    pub(super) oddities: Oddities,
    ring: BlockRing,
    frame: Frame,
    cursor: Cursor,
    counted: RingAccount,
    delivered: u64,
    /// Drops that no packet has carried yet.
    drops_pending: u64,
    blocks_since_reading: u32,
    /// The count in the kernel, where packets end in it.
    counting: Option<Arc<Counting>>,
    /// The program that starts the capture, where the socket was opened closed.
    program: Option<Accepted>,
    /// The larger ring that it may have.
    pub(super) growable: Option<Growable>,
    /// The fanout group of the socket, which can then not be bound again.
    pub(super) group: Option<u16>,
    /// Whether blocks were full before their time, or many, since this was looked at.
    is_crowded: bool,
    /// The beginning of a second by the packets' clock, and the blocks handed over in it.
    second: (Timestamp, u32),
}

/// The parts of a tap.
pub(super) struct Parts {
    pub(super) id: InterfaceId,
    pub(super) ring: BlockRing,
    pub(super) geometry: RingGeometry,
    pub(super) frame: Frame,
    pub(super) counting: Option<Arc<Counting>>,
    pub(super) program: Option<Accepted>,
    pub(super) group: Option<u16>,
    pub(super) growable: Option<Growable>,
}

impl Tap {
    pub(super) fn new(link: &Link, socket: PacketSocket, parts: Parts) -> Tap {
        let Parts { id, ring, geometry, frame, counting, program, group, growable } = parts;
        Tap {
            id,
            name: link.name.clone(),
            if_index: link.index,
            hardware_type: link.hardware_type,
            is_loopback: link.is_loopback(),
            state: LinkState::of(link),
            socket,
            geometry,
            oddities: Oddities::default(),
            ring,
            frame,
            cursor: Cursor::default(),
            counted: RingAccount::default(),
            delivered: 0,
            drops_pending: 0,
            blocks_since_reading: 0,
            counting,
            program,
            group,
            growable,
            is_crowded: false,
            second: (Timestamp::EPOCH, 0),
        }
    }

    /// The tap that goes on with a larger ring. This one gives up its name, and is closed once it is empty.
    pub(super) fn succeeded_by(&mut self, grown: Grown) -> Tap {
        let Grown { socket, ring, geometry } = grown;
        let (name, state) = (std::mem::take(&mut self.name), self.state);
        self.state = LinkState::Gone;
        Tap {
            id: self.id,
            name,
            if_index: self.if_index,
            hardware_type: self.hardware_type,
            is_loopback: self.is_loopback,
            state,
            socket,
            geometry,
            oddities: Oddities::default(),
            ring,
            frame: self.frame,
            cursor: Cursor::default(),
            counted: RingAccount::default(),
            delivered: 0,
            drops_pending: 0,
            blocks_since_reading: 0,
            counting: None,
            program: None,
            group: self.group,
            growable: None,
            is_crowded: false,
            second: (Timestamp::EPOCH, 0),
        }
    }

    /// Gives packets the number of another interface. To be called before any was lent.
    pub(super) fn set_interface(&mut self, id: InterfaceId) {
        self.id = id;
        self.frame.interface = id;
    }

    /// The socket alone, without its ring.
    pub(super) fn into_socket(self) -> PacketSocket {
        let Tap { socket, ring, .. } = self;
        drop(ring);
        socket
    }

    /// Whether the ring should grow: since the last call a block was full before its time.
    pub(super) fn take_crowded(&mut self) -> bool {
        std::mem::take(&mut self.is_crowded) && self.growable.is_some()
    }

    /// Lets packets in, if the socket was opened closed.
    pub(super) fn start(&mut self) -> Result<(), SyscallError> {
        self.program.take().map_or(Ok(()), |program| program.attach(&self.socket))
    }

    /// Releases the held block if all of its packets were lent. Nothing of it may be in use any more.
    pub(super) fn release(&mut self) {
        if self.cursor.left == 0 {
            self.ring.give_back();
        }
    }

    /// Holds a block with packets to lend, if there is one. Returns whether.
    pub(super) fn refill(&mut self) -> Result<bool, SyscallError> {
        while self.cursor.left == 0 {
            self.ring.give_back();
            let Some(head) = self.ring.take() else { return Ok(false) };
            self.cursor = Cursor { at: head.first_offset as usize, left: head.packets };
            if self.growable.is_some() {
                self.is_crowded |= !head.is_timed_out || head.is_losing || self.is_often_handed_over();
            }
            self.blocks_since_reading += 1;
            if head.is_losing || self.blocks_since_reading >= BLOCKS_PER_READING {
                self.read_statistics()?;
            }
        }
        Ok(true)
    }

    /// Whether a second's hand-overs take half of the ring's blocks, however little they hold: a reader that pauses for
    /// a second should lose nothing. To be asked once for each block.
    fn is_often_handed_over(&mut self) -> bool {
        let time = self.next_time().unwrap_or_default();
        if !(0..SECOND_NS).contains(&time.since(self.second.0)) {
            self.second = (time, 0);
        }
        self.second.1 += 1;
        self.second.1 >= self.geometry.block_count / 2
    }

    /// Has the block that the kernel fills handed over at once. The caller has seen to it that no packet comes any more,
    /// and has read the statistics after that.
    pub(super) fn end_ring(&mut self) {
        let open = self.in_flight().saturating_sub(self.waiting());
        self.ring.end(open);
    }

    /// Whether half of the ring or more waits to be lent.
    pub(super) fn is_half_full(&self) -> bool {
        self.ring.is_half_full()
    }

    /// The time of the next packet in the held block.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        block::next_time(self.ring.held(), &self.cursor)
    }

    /// Adds records of the held block's next packets up to `until`. The first one carries the drops before it.
    pub(super) fn fill(&mut self, until: Timestamp, records: &mut Vec<Record>) {
        let first = records.len();
        let Tap { ring, cursor, frame, oddities, .. } = self;
        block::read(ring.held(), cursor, frame, until, records, oddities);
        self.delivered += (records.len() - first) as u64;
        if let Some(record) = records.get_mut(first) {
            record.meta.drops_before = std::mem::take(&mut self.drops_pending);
        }
    }

    /// The memory that the records point into.
    pub(super) fn base(&self) -> &[u8] {
        self.ring.held()
    }

    /// Adds the kernel's counts since the last reading.
    pub(super) fn read_statistics(&mut self) -> Result<(), SyscallError> {
        let new = self.socket.statistics()?;
        self.counted.received += u64::from(new.packets);
        self.counted.dropped += u64::from(new.drops);
        self.counted.freezes += u64::from(new.freezes);
        self.drops_pending += u64::from(new.drops);
        self.blocks_since_reading = 0;
        Ok(())
    }

    /// Whether every packet that was counted so far and not dropped has been lent.
    pub(super) fn is_drained(&self) -> bool {
        self.in_flight() == 0
    }

    /// Packets that were counted but neither dropped nor lent: in handed-over blocks, or in the one being filled.
    pub(super) fn in_flight(&self) -> u64 {
        self.counted.received.saturating_sub(self.counted.dropped).saturating_sub(self.delivered)
    }

    /// Packets in blocks that were handed over and not yet lent, by counting them there.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.packets_waiting() + u64::from(self.cursor.left)
    }

    /// The counters so far, with `unread` left 0, and the packets lent.
    pub(super) fn counters(&self) -> (RingAccount, u64) {
        (self.counted, self.delivered)
    }

    pub(super) fn counted_in_kernel(&self) -> Option<CountedPackets> {
        self.counting.as_ref().map(|counting| counting.count.read())
    }

    /// Changes to an interface that was created again under the same name.
    pub(super) fn rebind(&mut self, link: &Link) -> Result<(), SyscallError> {
        self.socket.bind(link.index)?;
        self.if_index = link.index;
        self.state = LinkState::of(link);
        Ok(())
    }
}
