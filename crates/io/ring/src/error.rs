//! Errors with the shared ring.

use tapline_sys::SyscallError;

/// Buffers that could not be made, passed on or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call that failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempt: `make the packet buffer`.
        action: &'static str,
        /// The call, and the kernel's error.
        source: SyscallError,
    },
    /// A number that the format does not allow.
    #[error("the {what} cannot be {value}; it is {least} to {most}, sizes of buffers a power of two")]
    Size {
        /// The part with the wrong size.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// The kernel takes the seals and does not keep to them, or it cannot be proved that it does.
    #[error(
        "the seals of the packet buffer cannot be relied on: {breach}; readers could change packets, so nothing is shared. It takes Linux 5.1, and /proc"
    )]
    SealBroken {
        /// The access that was possible, or could not be tried.
        breach: &'static str,
    },
    /// A file without the seals that make it safe to map.
    #[error(
        "the {file} is not sealed: its writer could cut it short under its readers; take buffers from tapline only"
    )]
    NotSealed {
        /// `packet buffer` or `index`.
        file: &'static str,
    },
    /// A file of another size than its header says.
    #[error("the {file} has {found} bytes and should have {expected}: it is damaged, or not one of ours")]
    WrongLength {
        /// `packet buffer` or `index`.
        file: &'static str,
        /// Size of the part.
        found: u64,
        /// The value that is expected.
        expected: u64,
    },
    /// A header that this version cannot read.
    #[error(
        "the {file} has {found:#x} at offset {offset}, where {expected:#x} should be: made by another version, or damaged"
    )]
    WrongHeader {
        /// `packet buffer` or `index`.
        file: &'static str,
        /// In bytes.
        offset: usize,
        /// The value that was found.
        found: u64,
        /// The value that should be there.
        expected: u64,
    },
    /// As many readers as there may be.
    #[error(
        "this packet buffer has {most} reader(s) of this kind, and no room for more (leased ones: one for each 4 blocks of it); end one, read lossy, or take a larger buffer"
    )]
    TooManyReaders {
        /// The most that there may be.
        most: usize,
    },
    /// A credit that the buffer cannot grant.
    #[error(
        "a credit of {asked} bytes is more than this buffer can promise, {most}; ask for less, or give it more blocks"
    )]
    CreditTooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Maximum.
        most: u64,
    },
    /// No such reader: it was taken away.
    #[error("the reader is gone")]
    UnknownReader,
    /// More at once than a lossless reader can ever have room for.
    #[error(
        "a batch of {packets} packets in {blocks} new blocks is more than the buffers of a lossless reader hold; store fewer at once"
    )]
    BatchTooLarge {
        /// Packets of the batch.
        packets: usize,
        /// Blocks that it would open.
        blocks: usize,
    },
    /// The writer's head makes no sense.
    #[error(
        "the index is damaged: its writer claims {head} entries, {consumed} were read, and it has room for {room}"
    )]
    IndexDamaged {
        /// The claimed position of the head.
        head: u64,
        /// The entries that were consumed.
        consumed: u64,
        /// Entries that the index has.
        room: u64,
    },
}

impl Error {
    pub(crate) fn system(action: &'static str) -> impl Fn(SyscallError) -> Error {
        move |source| Error::System { action, source }
    }
}
