//! Maps: data that programs and we both access.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::attributes::{MapCreate, MapElement};
use super::{call, command, object_name, open};
use crate::SyscallError;

/// The kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Programs by number, for tail calls (`BPF_MAP_TYPE_PROG_ARRAY`). Minimum kernel: 4.2. The kernel empties the
    /// map when the last process closes it, even if a program still refers to it.
    Programs,
    /// AF_XDP sockets by receive queue (`BPF_MAP_TYPE_XSKMAP`). Minimum kernel: 4.18.
    XdpSockets,
    /// Network interfaces by number, to send frames on (`BPF_MAP_TYPE_DEVMAP`). Minimum kernel: 4.14.
    Devices,
}

impl MapKind {
    fn number(self) -> u32 {
        match self {
            MapKind::Programs => 3,
            MapKind::XdpSockets => 17,
            MapKind::Devices => 14,
        }
    }
}

/// A hash table that programs alone read and write; when it is full, a new entry replaces one that was not used lately
/// (`BPF_MAP_TYPE_LRU_HASH`). Making one takes the rights that loading a program takes. Minimum kernel: 4.10.
#[derive(Debug)]
pub struct LruTable {
    fd: OwnedFd,
}

impl LruTable {
    /// An empty table for keys and values of these lengths.
    ///
    /// # Errors
    /// `EPERM` without the right; `EINVAL` for a length of 0 or no entries.
    pub fn create(name: &str, key_len: u32, value_len: u32, entries: u32) -> Result<LruTable, SyscallError> {
        const LRU_HASH: u32 = 9;
        let mut attributes = MapCreate {
            map_type: LRU_HASH,
            key_size: key_len,
            value_size: value_len,
            max_entries: entries,
            map_name: object_name(name),
            ..MapCreate::default()
        };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_MAP_CREATE)", command::MAP_CREATE, &mut attributes)? };
        Ok(LruTable { fd })
    }
}

impl AsFd for LruTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A map of descriptors or interfaces by number. Making one takes the rights that loading a program takes.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
}

impl Map {
    /// An empty map with numbers from 0 to `entries`, exclusive.
    ///
    /// # Errors
    /// `EPERM` without the right; `EINVAL` for no entries or if the kernel does not know the kind.
    pub fn create(kind: MapKind, name: &str, entries: u32) -> Result<Map, SyscallError> {
        let mut attributes = MapCreate {
            map_type: kind.number(),
            key_size: 4,
            value_size: 4,
            max_entries: entries,
            map_name: object_name(name),
            ..MapCreate::default()
        };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_MAP_CREATE)", command::MAP_CREATE, &mut attributes)? };
        Ok(Map { fd })
    }

    /// Puts a program or socket under a number, replacing the previous one.
    ///
    /// # Errors
    /// `E2BIG` for a number that the map does not have; `EINVAL` for an object that the map does not hold, or a
    /// program of another kind than those that are there.
    pub fn set(&self, number: u32, object: BorrowedFd<'_>) -> Result<(), SyscallError> {
        self.update(number, object.as_raw_fd() as u32)
    }

    /// Puts an interface of the calling thread's network namespace under a number.
    ///
    /// # Errors
    /// `E2BIG` for a number that the map does not have; `EINVAL` if there is no such interface.
    pub fn set_interface(&self, number: u32, if_index: u32) -> Result<(), SyscallError> {
        self.update(number, if_index)
    }

    fn update(&self, number: u32, value: u32) -> Result<(), SyscallError> {
        let mut attributes = MapElement {
            map_fd: self.fd.as_raw_fd() as u32,
            key: &raw const number as u64,
            value: &raw const value as u64,
            ..MapElement::default()
        };
        // SAFETY: key and value are of 4 bytes as the map was made with, live through the call, and are only read.
        unsafe { call("bpf(BPF_MAP_UPDATE_ELEM)", command::MAP_UPDATE_ELEM, &mut attributes)? };
        Ok(())
    }

    /// Removes the object under a number.
    ///
    /// # Errors
    /// `ENOENT` if there is nothing; `E2BIG` or `EINVAL` for a number that the map does not have.
    pub fn remove(&self, number: u32) -> Result<(), SyscallError> {
        let mut attributes = MapElement {
            map_fd: self.fd.as_raw_fd() as u32,
            key: &raw const number as u64,
            ..MapElement::default()
        };
        // SAFETY: the key is of 4 bytes as the map was made with, lives through the call, and is only read.
        unsafe { call("bpf(BPF_MAP_DELETE_ELEM)", command::MAP_DELETE_ELEM, &mut attributes)? };
        Ok(())
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
