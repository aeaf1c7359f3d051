//! A ring through which programs hand records to us: `BPF_MAP_TYPE_RINGBUF`, kernel/bpf/ringbuf.c.
//!
//! ```text
//! mapping  := consumer page, which we write | producer page | data | data again        the second time for records across the end
//! record   := len:u32 page:u32 bytes, to a multiple of 8        bit 31 of len: the program still writes it; bit 30: discarded
//! consumer, producer := position:u64                            bytes since the start; equal if nothing waits
//! ```

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::attributes::MapCreate;
use super::{command, object_name, open};
use crate::SyscallError;
use crate::usage::page_len;

/// `BPF_MAP_TYPE_RINGBUF`.
const KIND: u32 = 27;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_LEN: u64 = 8;

/// A ring of records that programs write and we read, in their order. Minimum kernel: 5.8. Making one takes the rights
/// that loading a program takes.
#[derive(Debug)]
pub struct RecordRing {
    fd: OwnedFd,
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    len: usize,
    page_len: usize,
}

// SAFETY: the mappings belong to this value; what programs do with them goes on whatever thread we are in.
unsafe impl Send for RecordRing {}

impl RecordRing {
    /// A ring of `len` bytes, a power of two and a multiple of the page size.
    ///
    /// # Errors
    /// `EPERM` without the right; `EINVAL` for another length, or on a kernel without such maps; `ENOMEM`.
    pub fn create(name: &str, len: u32) -> Result<RecordRing, SyscallError> {
        let mut attributes = MapCreate {
            map_type: KIND,
            max_entries: len,
            map_name: object_name(name),
            ..MapCreate::default()
        };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_MAP_CREATE)", command::MAP_CREATE, &mut attributes)? };
        let (len, page_len) = (len as usize, page_len());
        let consumer = map(&fd, page_len, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = match map(&fd, page_len + 2 * len, libc::PROT_READ, page_len) {
            Ok(producer) => producer,
            Err(error) => {
                unmap(consumer, page_len);
                return Err(error);
            }
        };
        Ok(RecordRing { fd, consumer, producer, len, page_len })
    }

    /// Calls `visit` with each record that waits, `max` at most, and gives its place back. Returns their number.
    pub fn read(&mut self, max: usize, mut visit: impl FnMut(&[u8])) -> usize {
        let mut at = self.consumed().load(Ordering::Relaxed);
        // Pairs with smp_store_release(&rb->producer_pos) of __bpf_ringbuf_reserve.
        let end = self.produced().load(Ordering::Acquire);
        let mut count = 0;
        while at < end && count < max {
            let place = at as usize & (self.len - 1);
            // Pairs with the xchg of bpf_ringbuf_commit, which clears BUSY behind the record's bytes.
            let head = self.head(place).load(Ordering::Acquire);
            let record_len = (head & !(BUSY | DISCARDED)) as usize;
            if head & BUSY != 0 || record_len > self.len - HEADER_LEN as usize {
                break;
            }
            if head & DISCARDED == 0 {
                visit(self.bytes(place + HEADER_LEN as usize, record_len));
                count += 1;
            }
            at += (HEADER_LEN + record_len as u64).next_multiple_of(8);
        }
        // Pairs with smp_load_acquire(&rb->consumer_pos): the kernel may write there from here on.
        self.consumed().store(at, Ordering::Release);
        count
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives, and begins with the position, aligned.
        unsafe { AtomicU64::from_ptr(self.consumer.as_ptr().cast()) }
    }

    fn produced(&self) -> &AtomicU64 {
        // SAFETY: as above; the mapping is read only, and only loads are made.
        unsafe { AtomicU64::from_ptr(self.producer.as_ptr().cast()) }
    }

    /// The length of the record at a place, a multiple of 8 within the ring.
    fn head(&self, place: usize) -> &AtomicU32 {
        debug_assert!(place < self.len && place.is_multiple_of(8));
        // SAFETY: the place lies in the data, which is mapped twice behind the producer's page; only loads are made.
        unsafe { AtomicU32::from_ptr(self.producer.as_ptr().add(self.page_len + place).cast()) }
    }

    /// Bytes of a record that its program has committed.
    fn bytes(&self, place: usize, len: usize) -> &[u8] {
        assert!(place <= self.len + HEADER_LEN as usize && len <= self.len - HEADER_LEN as usize);
        // SAFETY: both were just checked, so the bytes lie in the data's two mappings. No program writes a committed
        // record, and the kernel reuses its place only once `read` has stored the position behind it.
        unsafe { std::slice::from_raw_parts(self.producer.as_ptr().add(self.page_len + place), len) }
    }
}

impl AsFd for RecordRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for RecordRing {
    fn drop(&mut self) {
        unmap(self.consumer, self.page_len);
        unmap(self.producer, self.page_len + 2 * self.len);
    }
}

fn map(fd: &OwnedFd, len: usize, access: i32, offset: usize) -> Result<NonNull<u8>, SyscallError> {
    // SAFETY: a new shared mapping at an address that the kernel chooses touches no memory of ours; it checks
    // descriptor, length and offset.
    let base = unsafe {
        libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), offset as libc::off_t)
    };
    if base == libc::MAP_FAILED {
        return Err(SyscallError::last("mmap(BPF_MAP_TYPE_RINGBUF)"));
    }
    Ok(NonNull::new(base.cast()).expect("the kernel never maps address 0 unless told to"))
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the mapping was made by `map` with this length, and no borrow of it is left.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}
