//! The driver of an interface: ethtool and timestamping requests, linux/ethtool.h.
//!
//! ```text
//! ioctl(SIOCETHTOOL, ifreq { name, data -> command:u32 arguments... })      the answer overwrites the arguments
//! ```
//!
//! Some commands make the kernel write as many words as the driver has, whatever room was offered. So answers go to
//! memory whose end is an inaccessible page: an answer that is too long is `EFAULT`, never an overrun.

mod loss;
mod tuning;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use crate::SyscallError;
use crate::error::check;

pub use loss::counts_receive_loss;
pub use tuning::{
    Channels, Coalescing, Duplex, HashFields, LinkMode, Offload, PauseFrames, ReceiveHash, RingSizes,
};

/// Room for answers: 8,191 words of statistics, or 8,191 names of 32 bytes need 256 KiB.
const ANSWER_LEN: usize = 256 * 1024;
const PAGE_LEN: usize = 64 * 1024;
/// Bytes of an answer that are zero before each question: more than any structure of a fixed length has. Clearing all
/// costs a millisecond where nothing has touched the memory for a second.
const FIXED_LEN: usize = 4096;

const STRING_LEN: usize = 32;
const SET_STATISTICS: u32 = 1;
const SET_FEATURES: u32 = 4;

const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_TIMESTAMPING: u32 = 0x41;
const GET_LINK_SETTINGS: u32 = 0x4c;

/// The driver of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name of the driver, such as `igc`.
    pub driver: String,
    /// Version of the driver.
    pub version: String,
    /// The firmware's version; empty if there is none.
    pub firmware: String,
    /// The device's address on its bus, such as `0000:02:00.0`; empty without a bus.
    pub bus: String,
}

/// The clocks that can stamp packets: `struct ethtool_ts_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamping {
    /// `SOF_TIMESTAMPING_*` of linux/net_tstamp.h.
    pub flags: u32,
    /// The number of its clock (`/dev/ptpN`); -1 if it has none.
    pub clock: i32,
    /// `1 << HWTSTAMP_FILTER_*`: which received packets it can stamp.
    pub receive_filters: u32,
}

impl Timestamping {
    /// Whether the adapter can stamp every packet that it receives.
    pub fn can_stamp_all(&self) -> bool {
        let needed = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        self.flags & needed == needed && self.receive_filters & 1 << libc::HWTSTAMP_FILTER_ALL != 0
    }
}

/// Queries interfaces by name, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinkControl {
    fd: OwnedFd,
    answer: Answer,
}

impl LinkControl {
    /// A socket to ask with. Needs no capability.
    ///
    /// # Errors
    /// The error of socket(2) and mmap(2).
    pub fn open() -> Result<LinkControl, SyscallError> {
        // Any family will do: these requests go to the network core. This one is in every kernel.
        // SAFETY: socket(2) takes integers only.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        let fd = check("socket(AF_UNIX)", fd)?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(LinkControl { fd, answer: Answer::map()? })
    }

    /// The driver.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it has none to report; `ENODEV` if there is no such interface.
    pub fn driver(&mut self, name: &str) -> Result<DriverInfo, SyscallError> {
        // struct ethtool_drvinfo: five names of 32 bytes after the command; the last is not asked for here.
        let answer = self.ask(name, "ioctl(ETHTOOL_GDRVINFO)", &[GET_DRIVER])?;
        let field = |number: usize| answer.text(4 + number * STRING_LEN, STRING_LEN);
        Ok(DriverInfo { driver: field(0), version: field(1), firmware: field(2), bus: field(3) })
    }

    /// The link's speed in bits per second; `None` while it is unknown (no carrier, or a virtual interface).
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver does not report it; `ENODEV` if there is no such interface. Minimum kernel: 4.6.
    pub fn speed(&mut self, name: &str) -> Result<Option<u64>, SyscallError> {
        const CALL: &str = "ioctl(ETHTOOL_GLINKSETTINGS)";
        const WORDS_AT: usize = 15;
        let mut question = [0u32; 12];
        question[0] = GET_LINK_SETTINGS;
        // The first answer only says, as a negative number, how many words of link modes the kernel has.
        let words = self.ask(name, CALL, &question)?.byte(WORDS_AT).wrapping_neg();
        question[WORDS_AT / 4] = u32::from_ne_bytes([0, 0, 0, words]);
        let speed = self.ask(name, CALL, &question)?.word(1);
        // SPEED_UNKNOWN is -1; in between lie numbers that no driver means.
        Ok((speed != 0 && speed <= i32::MAX as u32).then(|| u64::from(speed) * 1_000_000))
    }

    /// Queues that receive packets: those for both directions and those for one.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver does not report them; `ENODEV` if there is no such interface.
    pub fn receive_queues(&mut self, name: &str) -> Result<u32, SyscallError> {
        Ok(self.channels(name)?.receive_queues())
    }

    /// The driver's own counters, by the names that it gives them.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it has none; `ENODEV` if there is no such interface.
    pub fn statistics(&mut self, name: &str) -> Result<Vec<(String, u64)>, SyscallError> {
        let names = self.strings(name, SET_STATISTICS)?;
        let values = self.statistics_values(name)?;
        Ok(names.into_iter().zip(values).collect())
    }

    /// The values alone, in the order of [`statistics`](Self::statistics). Cheaper, for repeated readings.
    ///
    /// # Errors
    /// As for [`statistics`](Self::statistics).
    pub fn statistics_values(&mut self, name: &str) -> Result<Vec<u64>, SyscallError> {
        let count = self.set_len(name, SET_STATISTICS)?;
        let len = 8 + count as usize * 8;
        let answer = self.ask_for(name, "ioctl(ETHTOOL_GSTATS)", &[GET_STATISTICS, count], len)?;
        let count = answer.word(1).min(count) as usize;
        Ok((0..count).map(|index| answer.double(8 + index * 8)).collect())
    }

    /// The interface's offloads by name, and whether each is on.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel does not report them; `ENODEV` if there is no such interface.
    pub fn features(&mut self, name: &str) -> Result<Vec<Offload>, SyscallError> {
        let names = self.strings(name, SET_FEATURES)?;
        let blocks = names.len().div_ceil(32) as u32;
        let len = 8 + blocks as usize * 16;
        let answer = self.ask_for(name, "ioctl(ETHTOOL_GFEATURES)", &[GET_FEATURES, blocks], len)?;
        // struct ethtool_get_features_block: available, requested, active, never_changed.
        let is_set = |bit: usize, field: usize| answer.word(2 + bit / 32 * 4 + field) & 1 << (bit % 32) != 0;
        let feature = |(bit, name)| Offload {
            name,
            is_on: is_set(bit, 2),
            is_changeable: is_set(bit, 0) && !is_set(bit, 3),
        };
        Ok(names.into_iter().enumerate().map(feature).collect())
    }

    /// The clocks that can stamp packets.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver does not report it; `ENODEV` if there is no such interface.
    pub fn timestamping(&mut self, name: &str) -> Result<Timestamping, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GET_TS_INFO)", &[GET_TIMESTAMPING])?;
        Ok(Timestamping {
            flags: answer.word(1),
            clock: answer.word(2) as i32,
            receive_filters: answer.word(7),
        })
    }

    /// Makes the adapter stamp every packet that it receives and sends. The setting is for all programs, and stays
    /// after this process.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `ERANGE` if it cannot stamp all packets; `EOPNOTSUPP` if none.
    pub fn stamp_all(&mut self, name: &str) -> Result<(), SyscallError> {
        // struct hwtstamp_config: flags, tx_type, rx_filter.
        let config = [0, libc::HWTSTAMP_TX_ON, libc::HWTSTAMP_FILTER_ALL];
        self.request(name, "ioctl(SIOCSHWTSTAMP)", libc::SIOCSHWTSTAMP, &config)
    }

    /// The strings of a set, in order.
    fn strings(&mut self, name: &str, set: u32) -> Result<Vec<String>, SyscallError> {
        let count = self.set_len(name, set)?;
        let len = 12 + count as usize * STRING_LEN;
        let answer = self.ask_for(name, "ioctl(ETHTOOL_GSTRINGS)", &[GET_STRINGS, set, count], len)?;
        let count = answer.word(2).min(count) as usize;
        Ok((0..count).map(|index| answer.text(12 + index * STRING_LEN, STRING_LEN)).collect())
    }

    fn set_len(&mut self, name: &str, set: u32) -> Result<u32, SyscallError> {
        let mask = (1u64 << set).to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes([mask[at], mask[at + 1], mask[at + 2], mask[at + 3]]);
        // struct ethtool_sset_info: command, reserved, mask of sets (64 bits), one length for each set that there is.
        let answer = self.ask(name, "ioctl(ETHTOOL_GSSET_INFO)", &[GET_SET_INFO, 0, half(0), half(4)])?;
        Ok(if answer.word(2) | answer.word(3) == 0 { 0 } else { answer.word(4) })
    }

    fn ask(&mut self, name: &str, call: &'static str, question: &[u32]) -> Result<&Answer, SyscallError> {
        self.ask_for(name, call, question, FIXED_LEN)
    }

    /// As [`ask`](Self::ask), for an answer that may have `len` bytes.
    fn ask_for(
        &mut self,
        name: &str,
        call: &'static str,
        question: &[u32],
        len: usize,
    ) -> Result<&Answer, SyscallError> {
        self.answer.clear(len);
        self.request(name, call, libc::SIOCETHTOOL, question)?;
        Ok(&self.answer)
    }

    /// The one funnel for ioctl(2) on an interface.
    fn request(
        &mut self,
        name: &str,
        call: &'static str,
        request: libc::c_ulong,
        question: &[u32],
    ) -> Result<(), SyscallError> {
        if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(SyscallError::from_errno(call, libc::ENODEV));
        }
        self.answer.set(question);
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        ifreq.ifr_ifru.ifru_data = self.answer.base.as_ptr().cast();
        // SAFETY: `ifreq` lives through the call and has a terminated name; its data pointer is to `Answer`, which the
        // kernel may overwrite from its start and past whose end no access succeeds.
        check(call, unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, &raw mut ifreq) }).map(|_| ())
    }
}

/// Memory for an answer, with an inaccessible page behind it. Mapped, hence zeroed and aligned.
#[derive(Debug)]
struct Answer {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone and does not depend on the thread that made it.
unsafe impl Send for Answer {}

impl Answer {
    fn map() -> Result<Answer, SyscallError> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let len = ANSWER_LEN + PAGE_LEN;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap(answer)"));
        }
        let base = NonNull::new(address.cast()).ok_or(SyscallError::from_errno("mmap", libc::ENOMEM))?;
        let answer = Answer { base };
        // SAFETY: the last PAGE_LEN bytes of the mapping just made, at an address that is a multiple of any page size.
        let result =
            unsafe { libc::mprotect(answer.base.as_ptr().add(ANSWER_LEN).cast(), PAGE_LEN, libc::PROT_NONE) };
        check("mprotect(answer)", result).map(|_| answer)
    }

    /// Puts zeros into the first `len` bytes, and into at least [`FIXED_LEN`].
    fn clear(&mut self, len: usize) {
        self.bytes_mut()[..len.clamp(FIXED_LEN, ANSWER_LEN)].fill(0);
    }

    /// Puts these words at the start.
    fn set(&mut self, words: &[u32]) {
        for (to, word) in self.bytes_mut().chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the accessible part of the mapping, borrowed mutably through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), ANSWER_LEN) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the accessible part of the mapping; the kernel writes to it only inside `request`, which has it
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), ANSWER_LEN) }
    }

    /// The byte at an offset; 0 past the end, as for the two below.
    fn byte(&self, at: usize) -> u8 {
        self.bytes().get(at).copied().unwrap_or(0)
    }

    /// The 32-bit word of this number.
    fn word(&self, number: usize) -> u32 {
        let bytes = self.bytes().get(number * 4..number * 4 + 4);
        bytes.and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    /// The 64 bits at an offset.
    fn double(&self, at: usize) -> u64 {
        let bytes = self.bytes().get(at..at + 8);
        bytes.and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn text(&self, at: usize, len: usize) -> String {
        let bytes = self.bytes().get(at..at + len).unwrap_or(&[]);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this address and length, and no slice of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), ANSWER_LEN + PAGE_LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_answers() {
        let mut control = LinkControl::open().unwrap();
        let features = control.features("lo").unwrap();
        assert!(features.iter().any(|feature| feature.name == "loopback" && feature.is_on), "{features:?}");
        let timestamping = control.timestamping("lo").unwrap();
        assert!(timestamping.flags & libc::SOF_TIMESTAMPING_RX_SOFTWARE != 0);
        assert!(!timestamping.can_stamp_all());
    }

    #[test]
    fn a_missing_interface_is_enodev() {
        let mut control = LinkControl::open().unwrap();
        for name in ["no-such-if", "a name that is far too long", "lo\0"] {
            assert_eq!(control.driver(name).unwrap_err().errno(), libc::ENODEV, "{name:?}");
        }
    }
}
