//! The consumer's half of a TPACKET_V3 block ring.
//!
//! ```text
//! mapping  := block*                                   block_count times block_len bytes
//! block    := version:u32 offset_to_priv:u32
//!             block_status:u32 num_pkts:u32 offset_to_first_pkt:u32 blk_len:u32
//!             seq_num:u64 ts_first_pkt:2*u32 ts_last_pkt:2*u32  packet*        (host byte order, linux/if_packet.h)
//!
//! block_status      written by      meaning
//! 0  TP_STATUS_KERNEL   consumer    the kernel may open and fill it
//! 1  TP_STATUS_USER     kernel      closed: ours until we write 0
//! ```
//!
//! The kernel closes blocks strictly in order and, finding its next block not yet given back, drops packets until it
//! is. So one block is held at a time and given back as soon as its last packet was looked at.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::SyscallError;
use crate::error::check;

/// Offsets of words in a block.
const STATUS_OFFSET: usize = 8;
const PACKETS_OFFSET: usize = 12;
const FIRST_OFFSET: usize = 16;

/// The size of a ring, and the time after which its blocks are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    /// Bytes of one block: a multiple of the page size; a power of two wastes nothing. A packet must fit into one.
    pub block_len: u32,
    /// Blocks in the ring, at least 2 to be of use.
    pub block_count: u32,
    /// Milliseconds after which a block that holds a packet is handed over though not full; 0 lets the kernel choose.
    pub retire_ms: u32,
}

impl RingGeometry {
    /// Bytes of the whole ring.
    pub fn len(&self) -> u64 {
        u64::from(self.block_len) * u64::from(self.block_count)
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The head of a block. Numbers are the kernel's own; a reader checks them against the block's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// Packets in the block.
    pub packets: u32,
    /// The offset of the first packet's header, from the start of the block.
    pub first_offset: u32,
    /// Bytes in use, with this head and padding.
    pub used_len: u32,
    /// Packets were dropped since statistics were last read (`TP_STATUS_LOSING`).
    pub is_losing: bool,
    /// Handed over by the timer, not because it was full (`TP_STATUS_BLK_TMO`).
    pub is_timed_out: bool,
}

/// A mapped ring of blocks, and which of them is held.
///
/// Minimum kernel: 3.2.
#[derive(Debug)]
pub struct BlockRing {
    base: NonNull<u8>,
    block_len: usize,
    block_count: usize,
    /// The block that is held, or that will be handed over next.
    current: usize,
    is_held: bool,
    last: Last,
}

/// The block that the kernel was filling when the ring was [ended](BlockRing::end).
#[derive(Debug, Default)]
enum Last {
    /// The ring goes on.
    #[default]
    None,
    /// Place of the block in the ring, what its head said, and its bytes.
    Copied(usize, BlockHead, Box<[u8]>),
    /// There is nothing behind this place.
    Behind(usize),
}

impl Last {
    fn copy_of(&self, block: usize) -> Option<(&BlockHead, &[u8])> {
        match self {
            Last::Copied(place, head, bytes) if *place == block => Some((head, &bytes[..])),
            _ => None,
        }
    }
}

// SAFETY: the mapping belongs to this value alone and does not depend on the thread that made it.
unsafe impl Send for BlockRing {}

impl BlockRing {
    /// Maps the ring that was set up on the packet socket `fd` with this geometry.
    pub(crate) fn map(fd: BorrowedFd<'_>, geometry: &RingGeometry) -> Result<BlockRing, SyscallError> {
        let len =
            usize::try_from(geometry.len()).map_err(|_| SyscallError::from_errno("mmap", libc::ENOMEM))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so no existing mapping is replaced; the kernel checks fd and length.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap(packet ring)"));
        }
        let base = NonNull::new(address.cast()).ok_or(SyscallError::from_errno("mmap", libc::ENOMEM))?;
        let (block_len, block_count) = (geometry.block_len as usize, geometry.block_count as usize);
        let ring = BlockRing { base, block_len, block_count, current: 0, is_held: false, last: Last::None };
        // A mapping holds the socket open. A child process must not have it: the socket would outlive us there.
        // SAFETY: address and length are those of the mapping just made, and only its inheritance changes.
        check("madvise(MADV_DONTFORK)", unsafe { libc::madvise(address, len, libc::MADV_DONTFORK) })?;
        Ok(ring)
    }

    /// Maps the ring again that was [unmapped](Self::unmap) and is still set up on the socket `fd`, of the same
    /// geometry. Reading goes on with the block that was held, if that was not given back.
    pub(crate) fn map_again(
        &mut self,
        fd: BorrowedFd<'_>,
        geometry: &RingGeometry,
    ) -> Result<(), SyscallError> {
        let current = self.current;
        *self = BlockRing::map(fd, geometry)?;
        self.current = current % self.block_count.max(1);
        Ok(())
    }

    /// Takes the next block, if the kernel has handed it over. While one is held there is no other.
    pub fn take(&mut self) -> Option<BlockHead> {
        if self.is_held || self.block_count == 0 || !self.is_ready(self.current) {
            return None;
        }
        self.is_held = true;
        if let Some((head, _)) = self.last.copy_of(self.current) {
            return Some(*head);
        }
        let (status, head) = self.head(self.current);
        Some(BlockHead {
            is_losing: status & libc::TP_STATUS_LOSING != 0,
            is_timed_out: status & libc::TP_STATUS_BLK_TMO != 0,
            ..head
        })
    }

    /// The held block's bytes, all of them; empty if none is held.
    pub fn held(&self) -> &[u8] {
        if !self.is_held {
            return &[];
        }
        if let Some((_, bytes)) = self.last.copy_of(self.current) {
            return bytes;
        }
        // SAFETY: the block lies in the mapping. Its status, read with Acquire in `take`, is TP_STATUS_USER, and until
        // we give it back the kernel writes to it no more: prb_retire_current_block() and prb_open_block() in
        // net/packet/af_packet.c touch only blocks whose status is TP_STATUS_KERNEL. No other process has this memory:
        // we never pass the socket on, and a fork does not inherit the mapping, unless `inherit` was called, whose
        // caller promised that one process alone goes on to use the ring. `give_back` needs `&mut self`, so no slice
        // outlives our ownership.
        unsafe { slice::from_raw_parts(self.block(self.current), self.block_len) }
    }

    /// The held block with write access: a source may put headers before packets that it lends.
    pub fn held_mut(&mut self) -> &mut [u8] {
        if !self.is_held {
            return &mut [];
        }
        if self.last.copy_of(self.current).is_some() {
            let Last::Copied(_, _, bytes) = &mut self.last else { return &mut [] };
            return bytes;
        }
        // SAFETY: as in `held`; `&mut self` makes it the only slice. The kernel reads nothing of a block but its
        // status, which it expects us to write.
        unsafe { slice::from_raw_parts_mut(self.block(self.current), self.block_len) }
    }

    /// Lets a child process that is forked from now on have the mapping too, for programs that go on in a child
    /// (daemons).
    ///
    /// The caller promises, for its own callers too, that after a fork one process alone goes on to use the ring: the
    /// other's data may change while it reads. No other ring needs that promise, as none is inherited.
    ///
    /// # Errors
    /// The error of madvise(2).
    pub fn inherit(&self) -> Result<(), SyscallError> {
        let (address, len) = (self.base.as_ptr().cast(), self.block_len * self.block_count);
        // SAFETY: address and length are those of our mapping, and only its inheritance changes.
        check("madvise(MADV_DOFORK)", unsafe { libc::madvise(address, len, libc::MADV_DOFORK) }).map(|_| ())
    }

    /// Whether it has blocks: it was not unmapped.
    pub fn has_blocks(&self) -> bool {
        self.block_count > 0
    }

    /// Unmaps the ring, which then has no blocks: the kernel changes a ring only while it is not mapped. A held block
    /// is not given back: another process may hold it that was forked from this one.
    pub fn unmap(&mut self) {
        let len = self.block_len * self.block_count;
        (self.block_count, self.is_held) = (0, false);
        if len > 0 {
            // SAFETY: the mapping was made by `map` with this address and length; without blocks nothing refers to it
            // any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
        }
    }

    /// Returns the held block to the kernel. Does nothing if none is held.
    pub fn give_back(&mut self) {
        if !self.is_held {
            return;
        }
        if self.last.copy_of(self.current).is_some() {
            (self.last, self.is_held) = (Last::Behind(self.current), false);
            return;
        }
        // Release: our reads of the block are done before the kernel may see it free. Pairs with the load of
        // BLOCK_STATUS and the smp_rmb() in prb_dispatch_next_block() and prb_open_block().
        self.status(self.current).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.current = (self.current + 1) % self.block_count;
        self.is_held = false;
    }

    /// Ends a ring into which the kernel puts no packet any more: the block that it was filling is handed over behind
    /// those that are full, and does not wait for its time. The caller has seen to that with
    /// [`attach_drop_all`](crate::PacketSocket::attach_drop_all) and
    /// [`wait_for_receive_paths`](crate::wait_for_receive_paths), and knows by the kernel's counts how many packets were
    /// neither read nor handed over. A block with another number of packets is a former one, which a ring that was full
    /// has not opened again: nothing changes then.
    pub fn end(&mut self, packets: u64) {
        let first = self.current + usize::from(self.is_held);
        let mut places = (first..self.current + self.block_count).map(|block| block % self.block_count);
        // In a ring that is full the kernel fills no block.
        let Some(open) = places.find(|&block| !self.is_ready(block)) else { return };
        // SAFETY: the word lies in the mapping and is aligned; any value is possible, and the block's reader checks it.
        let word = |at: usize| unsafe { self.block(open).add(at).cast::<u32>().read_volatile() };
        let head = BlockHead {
            packets: word(PACKETS_OFFSET),
            first_offset: word(FIRST_OFFSET),
            is_timed_out: true,
            ..BlockHead::default()
        };
        if packets == 0 || u64::from(head.packets) != packets {
            return;
        }
        let mut bytes = vec![0; self.block_len].into_boxed_slice();
        // SAFETY: the block lies in the mapping and has as many bytes as `bytes`. The kernel may still close it when its
        // time is over, and then writes the status, the time of the last packet, and the 0 behind it: words that may
        // have either value. No reference to the mapping is made.
        unsafe { std::ptr::copy_nonoverlapping(self.block(open), bytes.as_mut_ptr(), bytes.len()) };
        self.last = Last::Copied(open, head, bytes);
    }

    /// Whether half of the ring or more waits to be read.
    pub fn is_half_full(&self) -> bool {
        self.block_count > 0 && self.is_ready((self.current + self.block_count / 2) % self.block_count)
    }

    /// Packets in blocks that were handed over but not yet taken.
    pub fn packets_waiting(&self) -> u64 {
        let first = self.current + usize::from(self.is_held);
        let most = self.block_count - usize::from(self.is_held);
        (first..first + most)
            .map(|block| block % self.block_count)
            .take_while(|&block| self.is_ready(block))
            .map(|block| match self.last.copy_of(block) {
                Some((head, _)) => u64::from(head.packets),
                None => u64::from(self.head(block).1.packets),
            })
            .sum()
    }

    fn is_ready(&self, block: usize) -> bool {
        match &self.last {
            Last::Copied(place, ..) if *place == block => return true,
            Last::Behind(place) if *place == block => return false,
            _ => {}
        }
        // Acquire: what the kernel wrote into the block before closing it is seen after this load. Pairs with the
        // smp_wmb() before BLOCK_STATUS is set in prb_flush_block().
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The status and the head of a block whose status has been seen to be `TP_STATUS_USER`.
    fn head(&self, block: usize) -> (u32, BlockHead) {
        debug_assert!(self.is_ready(block));
        // SAFETY: the block starts with a tpacket_block_desc, is aligned to a page, and is ours (see `held`), so
        // no thread or process writes to it during this read.
        let desc = unsafe { self.block(block).cast::<libc::tpacket_block_desc>().read() };
        // SAFETY: the union has one variant, and any bytes are a value of it.
        let head = unsafe { desc.hdr.bh1 };
        let (packets, first_offset, used_len) = (head.num_pkts, head.offset_to_first_pkt, head.blk_len);
        (head.block_status, BlockHead { packets, first_offset, used_len, ..BlockHead::default() })
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, aligned to 4, and lives as long as `self`. Both sides only ever access
        // it as a whole word, we atomically.
        unsafe { AtomicU32::from_ptr(self.block(block).add(STATUS_OFFSET).cast()) }
    }

    fn block(&self, block: usize) -> *mut u8 {
        debug_assert!(block < self.block_count);
        // SAFETY: `block` is less than `block_count`, so the address lies in the mapping.
        unsafe { self.base.as_ptr().add(block * self.block_len) }
    }
}

impl Drop for BlockRing {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::mem::{offset_of, size_of};
    use std::os::fd::{AsFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    use libc::{tpacket_block_desc, tpacket_hdr_v1};

    use super::*;

    const GEOMETRY: RingGeometry = RingGeometry { block_len: 4096, block_count: 4, retire_ms: 10 };

    /// Memory that both sides map: this test plays the kernel by writing to the file.
    struct Kernel(File);

    impl Kernel {
        fn new() -> Kernel {
            // SAFETY: the name is a C string; the descriptor is new, and no other value owns it.
            let file = unsafe { File::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC)) };
            file.set_len(GEOMETRY.len()).unwrap();
            Kernel(file)
        }

        fn put(&self, block: u64, at: u64, word: u32) {
            let offset = block * u64::from(GEOMETRY.block_len) + at;
            self.0.write_all_at(&word.to_ne_bytes(), offset).unwrap();
        }

        fn hand_over(&self, block: u64, packets: u32, status: u32) {
            self.put(block, 12, packets);
            self.put(block, 16, 48);
            self.put(block, 20, 1000 + packets);
            self.put(block, 8, status);
        }

        fn status(&self, block: u64) -> u32 {
            let mut word = [0; 4];
            self.0.read_exact_at(&mut word, block * u64::from(GEOMETRY.block_len) + 8).unwrap();
            u32::from_ne_bytes(word)
        }
    }

    #[test]
    fn the_status_word_lies_where_the_kernel_has_it() {
        assert_eq!(offset_of!(tpacket_block_desc, hdr) + offset_of!(tpacket_hdr_v1, block_status), 8);
        assert_eq!(size_of::<tpacket_block_desc>(), 48);
    }

    #[test]
    fn an_ended_ring_hands_its_open_block_over() {
        for (closed, open) in [(0, 3), (2, 3), (3, 1)] {
            for is_held in [false, true] {
                let kernel = Kernel::new();
                let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
                for block in 0..closed {
                    kernel.hand_over(block, 10 + block as u32, libc::TP_STATUS_USER);
                }
                kernel.hand_over(closed, open, libc::TP_STATUS_KERNEL);
                kernel.put(closed, 48, 77);
                let mut expected: Vec<u32> = (0..closed).map(|block| 10 + block as u32).collect();
                expected.push(open);
                let mut taken = Vec::new();
                if is_held {
                    taken.extend(ring.take().map(|head| head.packets));
                }
                ring.end(open.into());
                let waiting = expected[taken.len()..].iter().sum::<u32>();
                assert_eq!(ring.packets_waiting(), u64::from(waiting), "{closed} {open}");
                // The kernel's timer comes late, and changes nothing.
                kernel.hand_over(closed, 99, libc::TP_STATUS_USER);
                ring.give_back();
                while let Some(head) = ring.take() {
                    taken.push(head.packets);
                    assert!(
                        head.packets != open || ring.held()[48] == 77,
                        "the bytes are those of the block"
                    );
                    ring.give_back();
                }
                assert_eq!((taken, ring.packets_waiting()), (expected, 0), "{closed} {open} {is_held}");
            }
        }
    }

    #[test]
    fn former_and_full_blocks_are_no_open_ones() {
        let kernel = Kernel::new();
        let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        kernel.hand_over(0, 7, libc::TP_STATUS_KERNEL);
        [0, 3, 8].into_iter().for_each(|packets| ring.end(packets));
        assert_eq!((ring.take(), ring.packets_waiting()), (None, 0));
        (0..4).for_each(|block| kernel.hand_over(block, 7, libc::TP_STATUS_USER));
        ring.end(7);
        assert_eq!(ring.packets_waiting(), 28);
        ring.unmap();
        ring.end(7);
    }

    #[test]
    fn a_fork_does_not_inherit_the_mapping() {
        let kernel = Kernel::new();
        let ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", ring.base.as_ptr() as usize);
        let ours = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = ours.skip(1).find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}"); // "do not copy area on fork", proc(5)
    }

    #[test]
    fn forks_inherit_the_mapping_on_request() {
        let kernel = Kernel::new();
        let ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        ring.inherit().unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", ring.base.as_ptr() as usize);
        let ours = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = ours.skip(1).find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(!flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }

    #[test]
    fn an_unmapped_ring_has_no_blocks() {
        let kernel = Kernel::new();
        let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        kernel.hand_over(0, 3, libc::TP_STATUS_USER);
        assert!(ring.take().is_some());
        assert_eq!(ring.held_mut().len(), 4096);
        ring.unmap();
        assert_eq!((ring.take(), ring.held().len(), ring.held_mut().len()), (None, 0, 0));
        assert_eq!((ring.packets_waiting(), ring.is_half_full()), (0, false));
        ring.give_back();
        ring.unmap();
    }

    #[test]
    fn rings_mapped_again_continue_at_their_block() {
        let kernel = Kernel::new();
        let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        for block in 0..3 {
            kernel.hand_over(block, block as u32, libc::TP_STATUS_USER);
        }
        assert_eq!(ring.take().map(|head| head.packets), Some(0));
        ring.give_back();
        assert_eq!(ring.take().map(|head| head.packets), Some(1));
        ring.give_back();
        ring.unmap();
        ring.map_again(kernel.0.as_fd(), &GEOMETRY).unwrap();
        assert_eq!(ring.take().map(|head| head.packets), Some(2));
        ring.give_back();
        assert_eq!(ring.take(), None);
    }

    #[test]
    fn blocks_are_taken_and_given_back_in_order() {
        let kernel = Kernel::new();
        let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        assert_eq!((ring.take(), ring.held().len()), (None, 0));
        for round in 0..3u32 {
            for block in 0..4 {
                kernel.hand_over(block, round * 10 + block as u32, libc::TP_STATUS_USER);
                let head = ring.take().unwrap();
                assert_eq!((head.packets, head.first_offset), (round * 10 + block as u32, 48));
                assert_eq!(head.used_len, 1000 + head.packets);
                assert!(ring.take().is_none(), "one at a time");
                assert_eq!(ring.held().len(), 4096);
                assert_eq!(kernel.status(block), libc::TP_STATUS_USER);
                ring.give_back();
                ring.give_back();
                assert_eq!(kernel.status(block), libc::TP_STATUS_KERNEL);
            }
        }
    }

    #[test]
    fn a_block_ahead_of_its_turn_waits() {
        let kernel = Kernel::new();
        let mut ring = BlockRing::map(kernel.0.as_fd(), &GEOMETRY).unwrap();
        kernel.hand_over(1, 5, libc::TP_STATUS_USER);
        assert_eq!((ring.take(), ring.packets_waiting()), (None, 0));
        kernel.hand_over(0, 3, libc::TP_STATUS_USER | libc::TP_STATUS_LOSING | libc::TP_STATUS_BLK_TMO);
        assert_eq!((ring.packets_waiting(), ring.is_half_full()), (8, false));
        let head = ring.take().unwrap();
        assert!(head.is_losing && head.is_timed_out);
        assert_eq!(ring.packets_waiting(), 5, "what is held waits no more");
        kernel.hand_over(2, 1, libc::TP_STATUS_USER);
        kernel.hand_over(3, 1, libc::TP_STATUS_USER);
        assert_eq!((ring.packets_waiting(), ring.is_half_full()), (7, true));
    }
}
