//! Frames through the transmit ring of an AF_XDP socket.
//!
//! ```text
//! frame --copy--> chunk --transmit--> TX ring --sendto, or the driver by itself--> the interface --completion ring--> chunk free again
//! ```
//!
//! A frame counts as taken once it is in the ring: it goes from there in order. In copy mode a driver that is full
//! drops it then, and only its own counter shows that. Frames that are in the ring at the end and do not leave in
//! time were never sent; [`finish`](XdpSender::finish) counts them. Memory is bounded by the chunks: with all of them
//! on their way, no frame is taken.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tapline_sys::xsk::{XdpSocket, XskSettings};
use tapline_sys::{PIECES_MAX, SyscallError};

use super::limit::{CHUNK_MAX, Limit};
use super::{EMSGSIZE, PAUSE};

const CHUNK_SHORT: u32 = 2048;
const CHUNKS: u32 = 4096;
const TX_LEN: u32 = 1024;
/// Sockets need one; nothing is received.
const FILL_LEN: u32 = 64;
/// The queue whose socket this is. Frames of one queue stay in their order.
const QUEUE: u32 = 0;
const ETHERNET_LEN: usize = 14;

const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;

#[derive(Debug)]
pub(crate) struct XdpSender {
    socket: XdpSocket,
    zero_copy: bool,
    /// Bytes of the frames in the ring that the kernel has not taken, the oldest first.
    pending: VecDeque<u32>,
    /// The error with which the kernel took none of them at the last call; 0 if it took some.
    errno: i32,
}

impl XdpSender {
    /// On the first queue of an interface, in the network namespace of the calling thread.
    pub(super) fn open(if_index: u32, limit: Limit) -> Result<XdpSender, SyscallError> {
        let chunk_len = if limit.longest() <= CHUNK_SHORT { CHUNK_SHORT } else { CHUNK_MAX };
        let settings = XskSettings {
            chunk_len,
            chunks: CHUNKS,
            fill_len: FILL_LEN,
            completion_len: CHUNKS,
            rx_len: 0,
            tx_len: TX_LEN,
            huge_pages: true,
        };
        let mut socket = XdpSocket::open(&settings)?;
        let bound = socket.bind_when_free(if_index, QUEUE, false)?;
        let pending = VecDeque::with_capacity(TX_LEN as usize);
        Ok(XdpSender { socket, zero_copy: bound.zero_copy, pending, errno: 0 })
    }

    /// Whether the driver reads frames from our memory itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    pub(super) fn send(
        &mut self,
        frames: &mut dyn Iterator<Item = [&[u8]; PIECES_MAX]>,
    ) -> Result<usize, SyscallError> {
        const CALL: &str = "the AF_XDP transmit ring";
        let (mut placed, mut refusal) = (0, None);
        // Pending frames go first; if they cannot, nor can those behind them.
        if !self.pending.is_empty() {
            self.push()?;
        }
        self.socket.complete();
        for pieces in frames {
            if let Err(errno) = self.place(&pieces) {
                refusal = Some(SyscallError::new(CALL, errno));
                break;
            }
            placed += 1;
        }
        match (placed, refusal) {
            (0, Some(error)) => Err(error),
            (0, None) => Ok(0),
            // Frames in the ring are taken. An error of the push will come again, with the next call or at the end.
            _ => {
                let _ = self.push();
                self.socket.complete();
                Ok(placed)
            }
        }
    }

    /// Puts a frame into the ring, or says why not.
    fn place(&mut self, pieces: &[&[u8]; PIECES_MAX]) -> Result<(), i32> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len < ETHERNET_LEN {
            return Err(EINVAL);
        }
        if self.pending.len() >= TX_LEN as usize {
            return Err(EAGAIN);
        }
        let chunk = self.socket.take_chunk().ok_or(EAGAIN)?;
        let memory = self.socket.chunk_mut(chunk);
        if len > memory.len() {
            self.socket.give_back(chunk);
            return Err(EMSGSIZE);
        }
        let mut at = 0;
        for piece in pieces {
            memory[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        if !self.socket.transmit(chunk, 0, len as u32, false) {
            self.socket.give_back(chunk);
            return Err(EAGAIN);
        }
        self.pending.push_back(len as u32);
        Ok(())
    }

    /// Makes the kernel take as many as it can now.
    fn push(&mut self) -> Result<(), SyscallError> {
        loop {
            let before = self.pending.len();
            let flushed = self.socket.flush();
            let left = self.socket.transmits_pending() as usize;
            self.pending.drain(..before.saturating_sub(left));
            self.errno = flushed.as_ref().map_or_else(SyscallError::errno, |_| 0);
            match flushed {
                // One call sends some 32 where frames are copied: as long as it goes on, so do we.
                Ok(false) if left < before && left > 0 => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until all is sent. Returns how many frames, and bytes, never will be, and why: an error number, or 0.
    pub(super) fn finish(&mut self, timeout: Duration) -> (u64, u64, i32) {
        let begin = Instant::now();
        while !self.is_done() && begin.elapsed() < timeout {
            let _ = self.push();
            self.socket.complete();
            if !self.is_done() {
                std::thread::sleep(PAUSE);
            }
        }
        let bytes = self.pending.iter().map(|len| u64::from(*len)).sum();
        (self.pending.len() as u64, bytes, self.errno)
    }

    /// A copy is sent when the kernel has made it; what a driver reads from our memory, when it gives that back.
    fn is_done(&self) -> bool {
        self.pending.is_empty() && (!self.zero_copy || self.socket.free_chunks() == CHUNKS)
    }
}
