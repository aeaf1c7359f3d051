//! Memory that holds machine code: written once, then executable and never writable again (W^X).
//!
//! ```text
//! mmap rw- --copy--> mprotect r-x --caches--> callers run it --drop--> munmap
//! ```
//!
//! Systems refuse the second step where a policy says so: `PR_SET_MDWE`, SELinux's `execmem`, a seccomp filter. That is
//! an error; callers then use an interpreter.

use std::ptr::{self, NonNull};

use crate::SyscallError;

/// Machine code in a mapping of its own, readable and executable.
#[derive(Debug)]
pub struct ExecutableMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing writes to it after `new`.
unsafe impl Send for ExecutableMemory {}
// SAFETY: as above: it is only read and executed.
unsafe impl Sync for ExecutableMemory {}

impl ExecutableMemory {
    /// Copies `code` to memory that can be executed. Whether to run it, and how, is the caller's to prove.
    ///
    /// # Errors
    /// `mmap` or `mprotect`, if the system refuses memory, or executable memory.
    pub fn new(code: &[u8]) -> Result<ExecutableMemory, SyscallError> {
        let len = code.len().max(1);
        // SAFETY: a new private mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(ptr::null_mut(), len, access, kind, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap"));
        }
        let base = NonNull::new(base.cast::<u8>()).expect("the kernel never maps address 0 unless told to");
        let memory = ExecutableMemory { base, len };
        // SAFETY: the mapping has room for `len` bytes, may be written, and no other reference to it exists.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), base.as_ptr(), code.len()) };
        // SAFETY: the pages are ours; from here on they are only read and executed.
        let refused = unsafe { libc::mprotect(base.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_EXEC) };
        if refused != 0 {
            return Err(SyscallError::last("mprotect(PROT_EXEC)"));
        }
        synchronise(base.as_ptr(), len)?;
        Ok(memory)
    }

    /// The first byte of the code.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// The code.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping has this many bytes, and nothing writes to them.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for ExecutableMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; running its code borrows this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// On x86 instruction fetches see earlier stores.
#[cfg(not(target_arch = "aarch64"))]
fn synchronise(_: *const u8, _: usize) -> Result<(), SyscallError> {
    Ok(())
}

/// On Arm, instruction caches do not follow stores: Arm ARM (DDI 0487), B2.7.4.2: clean data to the point of
/// unification, drop the instructions, and make every processor that may run this process fetch again.
#[cfg(target_arch = "aarch64")]
fn synchronise(start: *const u8, len: usize) -> Result<(), SyscallError> {
    /// No processor has shorter lines; cleaning one twice does no harm.
    const LINE: usize = 16;
    let lines = || (start as usize & !(LINE - 1)..start as usize + len).step_by(LINE);
    // SAFETY: cache maintenance by address on memory that is mapped; it changes no register but the scratch ones.
    unsafe {
        lines().for_each(|line| std::arch::asm!("dc cvau, {}", in(reg) line));
        std::arch::asm!("dsb ish");
        lines().for_each(|line| std::arch::asm!("ic ivau, {}", in(reg) line));
        std::arch::asm!("dsb ish", "isb");
    }
    flush_instruction_fetch()
}

/// membarrier(2), `SYNC_CORE`: Linux 4.16. Older kernels get by with the barrier of each switch to another thread.
#[cfg(target_arch = "aarch64")]
fn flush_instruction_fetch() -> Result<(), SyscallError> {
    let barrier = |command: libc::c_int| {
        // SAFETY: the call takes numbers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    };
    if barrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == 0 {
        return Ok(());
    }
    barrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE);
    match barrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) {
        0 => Ok(()),
        _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) => Ok(()),
        _ => Err(SyscallError::last("membarrier")),
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// A function without arguments that returns 42.
    #[cfg(target_arch = "x86_64")]
    const ANSWER: &[u8] = &[0xb8, 42, 0, 0, 0, 0xc3];
    #[cfg(target_arch = "aarch64")]
    const ANSWER: &[u8] = &[0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6];

    #[test]
    fn code_runs() {
        let memory = ExecutableMemory::new(ANSWER).expect("executable memory");
        // SAFETY: the bytes are a function of this type.
        let answer: extern "C" fn() -> i32 = unsafe { std::mem::transmute(memory.as_ptr()) };
        assert_eq!(answer(), 42);
    }
}
