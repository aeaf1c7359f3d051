//! One socket and its ring for a caller with a loop of its own: it can be put into an event loop, its filter can be
//! changed while it runs, and it sends.
//!
//! ```text
//! open:     socket -> filter "up to the snap length" -> ring -> clock -> promiscuous -> bind
//! advance:  give the finished block back -> take the next, if there is one -> records of up to 256 packets
//! memory:   the block is ours until then: headers may be written before the packets
//! ```
//!
//! [`AfPacket`](super::AfPacket) follows links and serves many interfaces; libpcap's interface promises one descriptor
//! and leaves links to its callers. Both read blocks by the same code.

use std::os::fd::{AsFd, BorrowedFd};

use tapline_bpf::Insn;
use tapline_packet::{BATCH_MAX, Batch, InterfaceId, Record};
use tapline_source::RingAccount;
use tapline_sys::{BlockRing, LinkControl, PacketSocket, RingGeometry, SyscallError};

use super::block::{self, Cursor, Frame};
use super::counting::{CountForm, Counting, KernelCount};
use super::{AfPacketError, CaptureDirection, TimestampSource, kernel_filter, size, timestamps};

/// Offset of `sockaddr_ll` in a frame: behind `tpacket3_hdr`.
const ADDRESS_AT: usize = 48;
const ADDRESS_LEN: usize = 20;

/// Settings of a [`SingleSocket`].
#[derive(Clone, Debug)]
pub struct SingleSettings {
    /// The interface's name, for its clock; empty for all interfaces at once.
    pub name: String,
    /// Number of the interface; 0 for all interfaces at once.
    pub if_index: u32,
    /// Whether packets start at their network header.
    pub is_cooked: bool,
    /// The protocol to receive, as `linux/if_ether.h` has it: 3 for all.
    pub protocol: u16,
    /// The most bytes to keep of a packet, at least 1.
    pub snap_len: u32,
    /// Bytes of the ring.
    pub ring_len: u64,
    /// About how many bytes a block has, which are handed over once they are full; `None` to choose by the ring's
    /// length.
    pub block_len: Option<u32>,
    /// Milliseconds after which packets are handed over though their block is not full, at least 1.
    pub latency_ms: u32,
    /// Whether the interface receives frames for other hosts.
    pub promiscuous: bool,
    /// The clock that stamps the packets.
    pub timestamps: TimestampSource,
    /// Whether processes that are forked have the ring too, for programs that open a capture and go on in a child. The
    /// caller promises that after a fork one process alone goes on with the [`SingleSocket`]; the others may only drop
    /// theirs. Without it a child must not use the inherited socket either: it has no such memory.
    pub is_inherited: bool,
}

/// Sender and kind of a packet, which the kernel gives with it: part of `sockaddr_ll` (packet(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkLayerAddress {
    /// EtherType, or a number below 1536 for what has none (`linux/if_ether.h`).
    pub protocol: u16,
    /// The interface's number.
    pub if_index: u32,
    /// `ARPHRD_*`.
    pub hardware_type: u16,
    /// `PACKET_HOST` and its like.
    pub packet_type: u8,
    /// Bytes of the address, of which 8 are given.
    pub address_len: u8,
    /// The sender's link-layer address.
    pub address: [u8; 8],
}

/// A count in the kernel, at a socket.
#[derive(Clone, Copy, Debug)]
pub struct SingleCount {
    /// The direction of the packets that are counted.
    pub direction: CaptureDirection,
    /// Bytes that the caller puts before each packet, counted with it.
    pub header_len: u16,
    /// Whether counted packets are lent too.
    pub hands_on: bool,
}

/// One socket, on one interface or on all, with its ring.
///
/// Opening needs `CAP_NET_RAW`. Minimum kernel: 3.2. Dropping it ends the capture.
#[derive(Debug)]
pub struct SingleSocket {
    socket: PacketSocket,
    ring: BlockRing,
    geometry: RingGeometry,
    frame: Frame,
    cursor: Cursor,
    records: Vec<Record>,
    /// The start of each record's frame in the block.
    frames: Vec<usize>,
    counted: RingAccount,
    snap_len: u32,
    is_inherited: bool,
    blocks_taken: u64,
    counting: Option<Counting>,
}

/// The link-layer addresses of a batch's packets, which the kernel writes into the frames of its records.
#[derive(Clone, Copy, Debug)]
pub struct LinkLayerAddresses<'a> {
    frames: &'a [usize],
}

impl LinkLayerAddresses<'_> {
    /// The address of the packet at `index` of the batch as it came, in the block of the batch.
    pub fn get(&self, block: &[u8], index: usize) -> LinkLayerAddress {
        let at = self.frames.get(index).map_or(usize::MAX, |frame| frame + ADDRESS_AT);
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<ADDRESS_LEN>());
        bytes.map_or_else(LinkLayerAddress::default, station)
    }
}

impl SingleSocket {
    /// Starts to capture.
    ///
    /// # Errors
    /// [`AfPacketError`], with the call that failed.
    pub fn open(settings: &SingleSettings) -> Result<SingleSocket, AfPacketError> {
        let fail = |source| AfPacketError::of_call(&settings.name, source);
        let socket = match settings.is_cooked {
            true => PacketSocket::open_cooked(),
            false => PacketSocket::open(),
        };
        let socket = socket.map_err(fail)?;
        let all = kernel_filter::program(None, CaptureDirection::Both, false, None, settings.snap_len);
        socket.attach_filter(&all).map_err(fail)?;
        let (ring, geometry) = map_ring(&socket, settings)?;
        if settings.is_inherited {
            ring.inherit().map_err(fail)?;
        }
        if settings.timestamps != TimestampSource::Host {
            let mut control = LinkControl::open().map_err(fail)?;
            timestamps::set_up(settings.timestamps, &settings.name, &mut control, &socket)?;
        }
        if settings.promiscuous && settings.if_index != 0 {
            socket.join_promiscuous(settings.if_index).map_err(fail)?;
        }
        socket.bind_to(settings.if_index, settings.protocol).map_err(fail)?;
        // An error that waits on the socket is told at once: an interface that is down.
        if let Some(source) = socket.take_error().map_err(fail)? {
            let errno = source.raw_os_error().unwrap_or(0);
            return Err(fail(SyscallError::new("bind(AF_PACKET)", errno)));
        }
        Ok(SingleSocket {
            socket,
            ring,
            geometry,
            frame: Frame { interface: InterfaceId(0), has_vnet_header: false, snap_len: settings.snap_len },
            cursor: Cursor::default(),
            records: Vec::with_capacity(BATCH_MAX),
            frames: Vec::with_capacity(BATCH_MAX),
            counted: RingAccount::default(),
            snap_len: settings.snap_len,
            is_inherited: settings.is_inherited,
            blocks_taken: 0,
            counting: None,
        })
    }

    /// Releases the last batch and gets the next, without waiting. Returns whether there is one.
    pub fn advance(&mut self) -> bool {
        self.records.clear();
        self.frames.clear();
        while self.records.is_empty() {
            if self.cursor.left == 0 && !self.take_block() {
                return false;
            }
            self.fill();
        }
        true
    }

    /// The batch that the last [`advance`](Self::advance) found.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.ring.held(), &self.records)
    }

    /// The block and the records of the batch, for a caller that writes headers in front of packets or leaves packets
    /// out; and the kernel's addresses of the packets. There are at least 28 bytes between the bytes that
    /// [`LinkLayerAddresses::get`] reads and a cooked packet, 14 before an Ethernet frame.
    pub fn memory(&mut self) -> (&mut [u8], &mut Vec<Record>, LinkLayerAddresses<'_>) {
        (self.ring.held_mut(), &mut self.records, LinkLayerAddresses { frames: &self.frames })
    }

    /// Puts a program before the ring, or none. Packets that are in the ring by then saw the former one: those of the
    /// next [`blocks`](Self::blocks) blocks, at most.
    ///
    /// # Errors
    /// `EINVAL` and `ENOMEM` if the kernel refuses it; the former one stays.
    pub fn set_filter(&self, program: Option<&[Insn]>) -> Result<(), SyscallError> {
        let insns = kernel_filter::program(program, CaptureDirection::Both, false, None, self.snap_len);
        self.socket.attach_filter(&insns)
    }

    /// Counts packets that a program accepts, in the kernel, in place of the previous one, whose counts are continued.
    /// Ends with [`stop_count`](Self::stop_count). Minimum kernel: 5.5.
    ///
    /// # Errors
    /// A message for people if the kernel does not count; the former program stays.
    pub fn count(&mut self, program: Option<&[Insn]>, settings: SingleCount) -> Result<KernelCount, String> {
        let SingleCount { direction, header_len, hands_on } = settings;
        let insns = kernel_filter::program(program, direction, false, None, self.snap_len);
        let former = self.counting.as_ref().map(|counting| counting.count.clone());
        let counting = Counting::load(&insns, former, CountForm { header_len, hands_on, sample: None })?;
        counting.attach(&self.socket).map_err(|error| error.to_string())?;
        let count = counting.count.clone();
        self.counting = Some(counting);
        Ok(count)
    }

    /// Forgets the counts. The program stays until [`set_filter`](Self::set_filter) sets another.
    pub fn stop_count(&mut self) {
        self.counting = None;
    }

    /// Releases the block, whose last packet was examined; the batch is empty then.
    pub fn release(&mut self) {
        self.records.clear();
        self.frames.clear();
        if self.cursor.left == 0 {
            self.ring.give_back();
        }
    }

    /// Another ring on the same socket, of the size that `settings` give. Packets in the present ring are lost, and
    /// so are those that come meanwhile; no filter is set afterwards, also if this fails.
    ///
    /// # Errors
    /// [`AfPacketError::NoRing`], and the call that failed: `EBUSY` while a child process has the ring as well. The
    /// capture then goes on with a ring of the former size, if [`has_ring`](Self::has_ring).
    pub fn resize(&mut self, settings: &SingleSettings) -> Result<(), AfPacketError> {
        let fail = |source| AfPacketError::of_call(&settings.name, source);
        self.socket.attach_drop_all().map_err(fail)?;
        self.records.clear();
        self.frames.clear();
        self.cursor = Cursor::default();
        let replaced = self.replace_ring(settings);
        if self.is_inherited && self.has_ring() {
            self.ring.inherit().map_err(fail)?;
        }
        self.set_filter(None).map_err(fail).and(replaced)
    }

    /// Replaces the ring. Without memory for a ring of the new size, the new ring has the size of the old one.
    fn replace_ring(&mut self, settings: &SingleSettings) -> Result<(), AfPacketError> {
        self.ring.give_back();
        self.ring.unmap();
        if let Err(source) = self.socket.remove_ring() {
            // The ring is still there. Without the mapping there is none, as `has_ring` tells.
            let _ = self.socket.map_ring_again(&mut self.ring, &self.geometry);
            return Err(AfPacketError::of_call(&settings.name, source));
        }
        match map_ring(&self.socket, settings) {
            Ok(made) => {
                (self.ring, self.geometry) = made;
                Ok(())
            }
            Err(error) => {
                if let Ok(former) = self.socket.map_ring(&self.geometry, false) {
                    self.ring = former;
                }
                Err(error)
            }
        }
    }

    /// Whether there is a ring. Without one, after a [`resize`](Self::resize) that failed, no packet comes any more.
    pub fn has_ring(&self) -> bool {
        self.ring.has_blocks()
    }

    /// Number of blocks of the ring.
    pub fn blocks(&self) -> u32 {
        self.geometry.block_count
    }

    /// Number of blocks taken out of the ring since it was opened.
    pub fn blocks_taken(&self) -> u64 {
        self.blocks_taken
    }

    /// The counters of the kernel since the socket was opened. `unread` stays 0.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn statistics(&mut self) -> Result<RingAccount, SyscallError> {
        let new = self.socket.statistics()?;
        self.counted.received += u64::from(new.packets);
        self.counted.dropped += u64::from(new.drops);
        self.counted.freezes += u64::from(new.freezes);
        Ok(self.counted)
    }

    /// Sends one frame on the interface; `waits` says whether to wait for room.
    ///
    /// # Errors
    /// The error of send(2): `EAGAIN` if there is no room and it does not wait.
    pub fn send(&self, frame: &[u8], waits: bool) -> Result<usize, SyscallError> {
        self.socket.send(frame, waits)
    }

    /// The error that waits on the socket: `ENETDOWN` when the interface went down or away.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn take_error(&self) -> Result<Option<std::io::Error>, SyscallError> {
        self.socket.take_error()
    }

    fn take_block(&mut self) -> bool {
        self.ring.give_back();
        let Some(head) = self.ring.take() else { return false };
        self.cursor = Cursor { at: head.first_offset as usize, left: head.packets };
        self.blocks_taken += 1;
        true
    }

    fn fill(&mut self) {
        let block = self.ring.held();
        while self.cursor.left > 0 && self.records.len() < BATCH_MAX {
            let Some(headers) = block::headers_at(block, self.cursor.at) else {
                self.cursor.left = 0;
                return;
            };
            if block::u32_at::<20>(headers) & block::STATUS_USER != 0 {
                self.records.push(block::record(block, self.cursor.at, headers, &self.frame));
                self.frames.push(self.cursor.at);
            }
            block::step(&mut self.cursor, headers);
        }
    }
}

impl AsFd for SingleSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `struct sockaddr_ll` of linux/if_packet.h.
fn station(bytes: &[u8; ADDRESS_LEN]) -> LinkLayerAddress {
    let mut address = [0; 8];
    address.copy_from_slice(&bytes[12..]);
    LinkLayerAddress {
        protocol: u16::from_be_bytes([bytes[2], bytes[3]]),
        if_index: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        hardware_type: u16::from_ne_bytes([bytes[8], bytes[9]]),
        packet_type: bytes[10],
        address_len: bytes[11],
        address,
    }
}

/// The largest ring that there is memory for, from the requested size down.
fn map_ring(
    socket: &PacketSocket,
    settings: &SingleSettings,
) -> Result<(BlockRing, RingGeometry), AfPacketError> {
    let wish = size::Wish {
        ring_len: Some(settings.ring_len),
        retire_ms: settings.latency_ms.max(1),
        ..size::Wish::default()
    };
    let wanted =
        with_blocks(size::geometry(&wish), settings.block_len, size::block_len_min(settings.snap_len));
    size::largest(wanted, &settings.name, |geometry| socket.map_ring(geometry, false))
}

/// A ring of the same size with blocks of about this length: a power of two that the longest packet fits, and at least
/// two of them.
fn with_blocks(geometry: RingGeometry, block_len: Option<u32>, least: u64) -> RingGeometry {
    let Some(wanted) = block_len else { return geometry };
    let most = (geometry.len() / 2).max(least);
    let block_len = u64::from(wanted).next_power_of_two().clamp(least, 1 << most.ilog2());
    let block_count = geometry.len().div_ceil(block_len).max(2);
    RingGeometry { block_len: block_len as u32, block_count: block_count as u32, ..geometry }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_asked_if_a_packet_fits() {
        let geometry = RingGeometry { block_len: 1 << 18, block_count: 8, retire_ms: 10 };
        let blocks_of = |wanted, snap_len| {
            let least = size::block_len_min(snap_len);
            let RingGeometry { block_len, block_count, .. } = with_blocks(geometry, wanted, least);
            (block_len, block_count)
        };
        let blocks = |wanted| blocks_of(wanted, 65_535);
        assert_eq!(blocks(None), (1 << 18, 8));
        assert_eq!(blocks_of(Some(16_000), 96), (1 << 14, 128));
        assert_eq!(blocks(Some(16_000)), (1 << 16, 32));
        assert_eq!(blocks(Some(100_000)), (1 << 17, 16));
        assert_eq!(blocks(Some(u32::MAX)), (1 << 20, 2));
    }

    #[test]
    fn the_address_beside_a_packet() {
        let mut bytes = [0; ADDRESS_LEN];
        bytes[..2].copy_from_slice(&17u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[0x86, 0xdd]);
        bytes[4..8].copy_from_slice(&7u32.to_ne_bytes());
        bytes[8..10].copy_from_slice(&772u16.to_ne_bytes());
        bytes[10..].copy_from_slice(&[4, 6, 1, 2, 3, 4, 5, 6, 0, 0]);
        let expected = LinkLayerAddress {
            protocol: 0x86dd,
            if_index: 7,
            hardware_type: 772,
            packet_type: 4,
            address_len: 6,
            address: [1, 2, 3, 4, 5, 6, 0, 0],
        };
        assert_eq!(station(&bytes), expected);
    }
}
