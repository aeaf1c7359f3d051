//! Whether programs may be loaded here, and the missing rights if not.

use std::fs;

use tapline_bpf::ebpf::{Insn, R0};

use super::{LoadError, LoadedProgram, ProgramKind};

/// The right to call bpf(2) without a capability: `kernel.unprivileged_bpf_disabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprivileged {
    /// Everyone, for socket filters of at most 4096 instructions.
    Allowed,
    /// Refused until the next start of the system.
    Forbidden,
    /// Refused until an administrator changes it.
    ForbiddenForNow,
    /// The kernel does not say: it has no bpf(2), or `/proc` is not there.
    Unknown,
}

/// The kernel's rule for callers without a capability. Minimum kernel: 4.4.
pub fn unprivileged() -> Unprivileged {
    let text = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled").unwrap_or_default();
    match text.trim() {
        "0" => Unprivileged::Allowed,
        "1" => Unprivileged::Forbidden,
        "2" => Unprivileged::ForbiddenForNow,
        _ => Unprivileged::Unknown,
    }
}

/// Whether programs of this kind may be loaded, by loading one that does nothing.
///
/// # Errors
/// [`LoadError`] has the missing rights.
pub fn probe(kind: ProgramKind) -> Result<(), LoadError> {
    let nothing = [Insn::set(R0, 0), Insn::EXIT];
    LoadedProgram::load(kind, "tapline_probe", &nothing).map(|_| ())
}
