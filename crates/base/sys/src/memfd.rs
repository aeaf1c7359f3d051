//! Memory that is passed to other processes as a descriptor, with seals on its later use: memfd_create(2).
//!
//! ```text
//! create(len): all of it reserved --map--> ours, for writing --seal--> no other size, no new writers --prove--> passed on
//! adopt(fd): seals looked at before anything is mapped --map_to_read--> theirs
//! ```
//!
//! A file that cannot be shrunk cannot end its readers by `SIGBUS`; one that is reserved at the start cannot do so
//! for lack of memory.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::SyscallError;
use crate::error::check;
use crate::shared_words::{ReadWords, SharedWords};

/// `MFD_NOEXEC_SEAL`, Linux 6.3: the C library's headers have it, the `libc` crate not everywhere.
const MFD_NOEXEC_SEAL: libc::c_uint = 0x8;

/// Seals of a memory file, as in fcntl(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seals(i32);

impl Seals {
    /// The size stays, and so do the seals: `F_SEAL_SHRINK`, `F_SEAL_GROW`, `F_SEAL_SEAL`.
    pub const SIZE: Seals = Seals(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
    /// As [`SIZE`](Self::SIZE), and only existing mappings can write: `F_SEAL_FUTURE_WRITE`, Linux 5.1.
    pub const READ_ONLY: Seals = Seals(Seals::SIZE.0 | libc::F_SEAL_FUTURE_WRITE);

    /// Whether all of `others` are among these.
    pub const fn contains(self, others: Seals) -> bool {
        self.0 & others.0 == others.0
    }

    /// The seals of a descriptor.
    ///
    /// # Errors
    /// `EINVAL` for files that know no seals: those of a disk.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Seals, SyscallError> {
        // SAFETY: fcntl(2) with integers only.
        check("fcntl(F_GET_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }).map(Seals)
    }
}

/// A memory file.
#[derive(Debug)]
pub struct Memfd {
    file: File,
}

impl Memfd {
    /// A new one of `len` bytes, all zero, all reserved. /proc shows `name`.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2) and fallocate(2): `ENOMEM` or `ENOSPC` if there is not so much
    /// memory.
    pub fn create(name: &CStr, len: u64) -> Result<Memfd, SyscallError> {
        let file = create(name, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let len =
            libc::off_t::try_from(len).map_err(|_| SyscallError::from_errno("ftruncate", libc::EFBIG))?;
        // SAFETY: both calls take a descriptor of ours and numbers.
        check("ftruncate", unsafe { libc::ftruncate(file.as_raw_fd(), len) })?;
        // SAFETY: as above.
        check("fallocate", unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) })?;
        Ok(Memfd { file })
    }

    /// A memfd of another process. Nothing is known of it yet.
    pub fn from_descriptor(fd: OwnedFd) -> Memfd {
        Memfd { file: fd.into() }
    }

    /// Puts seals on it.
    ///
    /// # Errors
    /// The error of fcntl(2): `EINVAL` for a seal that the kernel does not know.
    pub fn seal(&self, seals: Seals) -> Result<(), SyscallError> {
        // SAFETY: fcntl(2) with integers only.
        check("fcntl(F_ADD_SEALS)", unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_ADD_SEALS, seals.0) })
            .map(|_| ())
    }

    /// Seals of the file.
    ///
    /// # Errors
    /// As [`Seals::of`].
    pub fn seals(&self) -> Result<Seals, SyscallError> {
        Seals::of(self.file.as_fd())
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn size(&self) -> Result<u64, SyscallError> {
        self.file.metadata().map(|data| data.len()).map_err(|source| SyscallError { call: "fstat", source })
    }

    /// All of it, for reading and writing.
    ///
    /// # Errors
    /// As [`SharedWords::map`].
    pub fn map(&self) -> Result<SharedWords, SyscallError> {
        SharedWords::map(&self.file, self.words()?)
    }

    /// Maps the file with all its pages present from the start.
    ///
    /// # Errors
    /// As [`SharedWords::map_populated`].
    pub fn map_populated(&self) -> Result<SharedWords, SyscallError> {
        SharedWords::map_populated(&self.file, self.words()?)
    }

    /// All of it, for reading. Look at the seals before: a file that can shrink can kill its reader.
    ///
    /// # Errors
    /// As [`SharedWords::map`].
    pub fn map_to_read(&self) -> Result<ReadWords, SyscallError> {
        ReadWords::map(&self.file, self.words()?)
    }

    /// Another descriptor for it.
    ///
    /// # Errors
    /// The error of fcntl(2).
    pub fn duplicate(&self) -> Result<OwnedFd, SyscallError> {
        let copy = self.file.try_clone();
        copy.map(OwnedFd::from).map_err(|source| SyscallError { call: "fcntl(F_DUPFD_CLOEXEC)", source })
    }

    /// Tries all that [`Seals::READ_ONLY`] forbids, and returns an operation that worked although it should not, or
    /// that could not be tried: `None` if all of it was refused for the seals' sake.
    ///
    /// Kernels before 5.13 took the seal on huge pages and did not keep to it, so that it is there proves little.
    pub fn find_broken_seal(&self) -> Option<&'static str> {
        let fd = self.file.as_raw_fd();
        let Ok(size) = self.size() else { return Some("its size could not be read, so nothing was tried") };
        let len = usize::try_from(size).unwrap_or(usize::MAX).min(4096);
        writable_map(fd, len)
            .find_broken_seal("it could be mapped for writing", "mapping it for writing could not be tried")
            .or_else(|| {
                later_writable_map(fd, len).find_broken_seal(
                    "it could be mapped for reading, then made writable",
                    "making a mapping of it writable could not be tried",
                )
            })
            // The last byte is written as it should never be, but only where writing works after all; then this file is
            // not handed out.
            .or_else(|| {
                // SAFETY: one byte of a constant is read; the descriptor is ours.
                let written = unsafe { libc::pwrite(fd, b"!".as_ptr().cast(), 1, size as libc::off_t - 1) };
                Answer::of(written != -1, libc::EPERM).find_broken_seal(
                    "it could be written to with write(2)",
                    "writing to it could not be tried",
                )
            })
            .or_else(|| [size / 2, size + 1].into_iter().find_map(|other| resize(fd, other)))
            .or_else(|| {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: a descriptor of ours and numbers.
                let emptied = unsafe { libc::fallocate(fd, punch, 0, 4096) };
                Answer::of(emptied != -1, libc::EPERM).find_broken_seal(
                    "it could be emptied with fallocate(2)",
                    "emptying it could not be tried",
                )
            })
            .or_else(|| self.reopened_breach(len))
    }

    /// A descriptor that can only be read does not protect, because it can be opened again; so the seal must hold
    /// there too.
    fn reopened_breach(&self, len: usize) -> Option<&'static str> {
        const UNTRIED: &str = "opening it again and mapping it for writing could not be tested";
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let Ok(again) = File::options().read(true).write(true).open(path) else { return Some(UNTRIED) };
        writable_map(again.as_raw_fd(), len)
            .find_broken_seal("it could be opened again and mapped for writing", UNTRIED)
    }

    fn words(&self) -> Result<usize, SyscallError> {
        let size = self.size()?;
        usize::try_from(size / 8).map_err(|_| SyscallError::from_errno("mmap(a file)", libc::EFBIG))
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Memfd> for OwnedFd {
    fn from(memfd: Memfd) -> OwnedFd {
        memfd.file.into()
    }
}

/// Never executable where the kernel can promise that.
fn create(name: &CStr, flags: libc::c_uint) -> Result<File, SyscallError> {
    // SAFETY: the name ends in a zero and is only read.
    let mut fd = unsafe { libc::memfd_create(name.as_ptr(), flags | MFD_NOEXEC_SEAL) };
    if fd == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // SAFETY: as above.
        fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    }
    let fd = check("memfd_create", fd)?;
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The kernel's answer to an access that seals forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// As seals refuse.
    Refused,
    /// The attempt failed for another reason, so nothing is known of the seals.
    Untried,
}

impl Answer {
    /// After a call: whether it worked, and how it fails for the sake of a seal.
    fn of(worked: bool, refusal: i32) -> Answer {
        match worked {
            true => Answer::Done,
            false if std::io::Error::last_os_error().raw_os_error() == Some(refusal) => Answer::Refused,
            false => Answer::Untried,
        }
    }

    fn find_broken_seal(self, done: &'static str, untried: &'static str) -> Option<&'static str> {
        match self {
            Answer::Done => Some(done),
            Answer::Refused => None,
            Answer::Untried => Some(untried),
        }
    }
}

fn writable_map(fd: i32, len: usize) -> Answer {
    let address = try_map(fd, len, libc::PROT_READ | libc::PROT_WRITE);
    let answer = Answer::of(address.is_some(), libc::EPERM);
    if let Some(address) = address {
        // SAFETY: the mapping was made a moment ago, and no reference to it exists yet.
        unsafe { libc::munmap(address, len) };
    }
    answer
}

fn later_writable_map(fd: i32, len: usize) -> Answer {
    let Some(address) = try_map(fd, len, libc::PROT_READ) else { return Answer::Untried };
    // SAFETY: the mapping was made a moment ago, no reference to it exists, and it is unmapped at once.
    let result = unsafe { libc::mprotect(address, len, libc::PROT_READ | libc::PROT_WRITE) };
    let answer = Answer::of(result == 0, libc::EACCES);
    // SAFETY: as above.
    unsafe { libc::munmap(address, len) };
    answer
}

fn resize(fd: i32, len: u64) -> Option<&'static str> {
    // SAFETY: a descriptor of ours and a number.
    let result = unsafe { libc::ftruncate(fd, len as libc::off_t) };
    Answer::of(result != -1, libc::EPERM)
        .find_broken_seal("it could be given another size", "giving it another size could not be tried")
}

fn try_map(fd: i32, len: usize, protection: i32) -> Option<*mut libc::c_void> {
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, 0) };
    (address != libc::MAP_FAILED).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn one_mapping_reads_the_words_of_another() {
        let memfd = Memfd::create(c"test", 8192).expect("memory");
        let ours = memfd.map().expect("a mapping");
        memfd.seal(Seals::READ_ONLY).expect("seals");
        let theirs = Memfd::from_descriptor(memfd.duplicate().expect("a descriptor"))
            .map_to_read()
            .expect("a mapping");
        ours[1023].store(7, Relaxed);
        assert_eq!((theirs.len(), theirs.load(1023), theirs.load(0)), (1024, 7, 0));
    }

    #[test]
    fn sealed_memory_has_no_breach() {
        let memfd = Memfd::create(c"test", 8192).expect("memory");
        memfd.seal(Seals::READ_ONLY).expect("seals");
        assert_eq!(memfd.find_broken_seal(), None);
        assert!(memfd.seals().expect("seals").contains(Seals::READ_ONLY));
        assert_eq!(memfd.map().expect_err("no writers").errno(), libc::EPERM);
        assert_eq!(memfd.seal(Seals::SIZE).expect_err("no more seals").errno(), libc::EPERM);
    }

    #[test]
    fn each_missing_seal_is_a_breach() {
        let kept = libc::F_SEAL_FUTURE_WRITE;
        let size = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        for (seals, breach) in [
            (0, "it could be mapped for writing"),
            (size, "it could be mapped for writing"),
            (kept | libc::F_SEAL_GROW, "it could be given another size"),
            (kept | libc::F_SEAL_SHRINK, "it could be given another size"),
        ] {
            let memfd = Memfd::create(c"test", 8192).expect("memory");
            memfd.seal(Seals(seals)).expect("seals");
            assert_eq!(memfd.find_broken_seal(), Some(breach), "{seals:#x}");
        }
    }

    #[test]
    fn a_seal_that_cannot_be_tried_counts_as_broken() {
        let memfd = Memfd::create(c"test", 8192).expect("memory");
        memfd.seal(Seals::READ_ONLY).expect("seals");
        // The seals hold, but this descriptor proves nothing: whatever it is refused, it is refused because it is for
        // reading.
        let reading = File::open(format!("/proc/self/fd/{}", memfd.as_fd().as_raw_fd())).expect("it again");
        let breach = Memfd::from_descriptor(reading.into()).find_broken_seal();
        assert_eq!(breach, Some("mapping it for writing could not be tried"));
        // Nothing of length 0 can be mapped.
        let empty = Memfd::create(c"test", 8192).map(|memfd| memfd.file.set_len(0).map(|()| memfd));
        let empty = empty.expect("memory").expect("another size");
        empty.seal(Seals::READ_ONLY).expect("seals");
        assert_eq!(empty.find_broken_seal(), Some("mapping it for writing could not be tried"));
    }

    #[test]
    fn files_of_a_disk_know_no_seals() {
        let file = File::open("/proc/self/exe").expect("our program");
        assert_eq!(Seals::of(file.as_fd()).expect_err("no seals").errno(), libc::EINVAL);
    }
}
