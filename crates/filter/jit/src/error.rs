//! Reasons that there is no native code. Callers go on with an interpreter.

use tapline_ir::VerifyError;
use tapline_sys::SyscallError;

/// The reason that a graph has not become native code. In each case an interpreter ([`tapline_ir::Machine`], or
/// [`tapline_bpf::Program`] for filters) gives the same answers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph is not proved safe; code from it could read bytes outside of the packet. A fault of ours.
    #[error("the graph is not safe to run: {0}")]
    Unsafe(#[from] VerifyError),
    /// This build has no code generator.
    #[error("this program was built without native code (the feature jit); the interpreter runs the filter")]
    NotBuilt,
    /// There is no code generator for this processor; x86-64 and aarch64 have one.
    #[error("no native code for this processor: {reason}; the interpreter runs the filter")]
    Processor {
        /// The missing feature.
        reason: String,
    },
    /// The system refuses executable memory: a hardening policy (`PR_SET_MDWE`, SELinux, seccomp) or a lack of memory.
    #[error("no memory for native code: {0}; the interpreter runs the filter")]
    Memory(#[from] SyscallError),
    /// The graph is so large that generating code would take longer than anyone waits.
    #[error("{values} values, of which native code takes at most {max}; the interpreter runs the filter")]
    TooLarge {
        /// Instructions of the graph.
        values: usize,
        /// The most that are taken: [`crate::VALUES_MAX`].
        max: usize,
    },
    /// The code generator failed. A fault of ours or of its own.
    #[error("generating native code failed: {reason}; the interpreter runs the filter")]
    Generator {
        /// Message of the generator.
        reason: String,
    },
}
