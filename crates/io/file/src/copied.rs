//! The queue of pcapng blocks without packets, from a reader to the copy that a writer makes.
//!
//! ```text
//! FileSource --section headers, secrets, names, custom and unknown blocks--> BlockQueue --> FileWriter
//! ```
//!
//! A batch of packets ends before such a block, so that in the copy the block is between the same packets.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::blocks::LOCAL;
use crate::byte_order::ByteOrder;
use crate::read::pcapng::option::heads_to_native;
use crate::section::Section;

/// Name resolution (draft-ietf-opsawg-pcapng, section 4.5).
pub(crate) const NAME_RESOLUTION: u32 = 4;
/// An entry of the journal of systemd.
const JOURNAL_EXPORT: u32 = 9;
/// Decryption secrets (section 4.7).
pub(crate) const DECRYPTION_SECRETS: u32 = 10;
/// Custom blocks (section 4.8): those that may be copied by programs that do not know them, and those that may not.
const CUSTOM: u32 = 0x0bad;
const CUSTOM_NOT_COPIED: u32 = 0x4000_0bad;

/// TLS key log (section 4.7), and that of WireGuard.
const SECRETS_TLS: u32 = 0x544c_534b;
const SECRETS_WIREGUARD: u32 = 0x5747_4b4c;

/// The most bytes of blocks that wait between a reader and a writer, and that a writer repeats in each file.
pub(crate) const WAITING_MAX: usize = 64 << 20;

/// Memory of a waiting block in addition to its bytes, so that empty blocks have a limit, too.
const WAITING_COST: usize = 160;

/// Bytes of a block before its body, and after it.
const HEAD_LEN: usize = 8;
const TRAILER_LEN: usize = 4;

/// A block on its way into a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopiedBlock {
    /// A section begins.
    Section(Section),
    /// Any other block.
    Other(RawBlock),
}

/// A whole block in this machine's byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    kind: u32,
    bytes: Vec<u8>,
}

/// The reasons for which a block is not in the copy, each with a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Custom blocks that programs are asked not to copy (type 0x40000bad).
    pub not_to_copy: u64,
    /// Blocks for local use: of meaning only where they were written.
    pub local: u64,
    /// Blocks of an unknown layout in the other byte order, whose numbers cannot be turned around.
    pub other_byte_order: u64,
    /// Blocks whose lengths contradict each other.
    pub damaged: u64,
    /// Blocks of more than 16 MiB, and those for which no room was left.
    pub too_long: u64,
    /// Blocks for which the format of the copy has no place.
    pub other_format: u64,
}

/// A queue of blocks between a reader and a writer of pcapng. Clones are handles of one queue.
#[derive(Clone, Debug, Default)]
pub struct BlockQueue(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    blocks: VecDeque<CopiedBlock>,
    /// Bytes of memory of these.
    memory: usize,
    left_out: LeftOut,
}

/// The kinds of secrets that a block can hold, by the words of their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsKind {
    /// Lines of `SSLKEYLOGFILE` (RFC 9850), as browsers and TLS libraries write them.
    Tls,
    /// Lines of WireGuard's `extract-handshakes.sh`.
    WireGuard,
}

impl SecretsKind {
    /// The kind of a file of secrets, by its first line that is not a comment; `None` if no program writes such lines.
    pub fn of(text: &str) -> Option<SecretsKind> {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let word = line.split([' ', '\t', '=']).next().unwrap_or_default();
        match word {
            "RSA" | "PMS_CLIENT_RANDOM" | "EXPORTER_SECRET" | "EARLY_EXPORTER_SECRET" => {
                Some(SecretsKind::Tls)
            }
            "ECH_SECRET" | "ECH_CONFIG" => Some(SecretsKind::Tls),
            _ if word.starts_with("CLIENT_") || word.starts_with("SERVER_") => Some(SecretsKind::Tls),
            _ if word.starts_with("QUIC_CLIENT_") || word.starts_with("QUIC_SERVER_") => {
                Some(SecretsKind::Tls)
            }
            "LOCAL_STATIC_PRIVATE_KEY" | "REMOTE_STATIC_PUBLIC_KEY" | "LOCAL_EPHEMERAL_PRIVATE_KEY" => {
                Some(SecretsKind::WireGuard)
            }
            "PRESHARED_KEY" => Some(SecretsKind::WireGuard),
            _ => None,
        }
    }
}

impl RawBlock {
    /// A block of decryption secrets.
    ///
    /// # Panics
    /// If `text` has 4 GiB or more.
    pub fn secrets(kind: SecretsKind, text: &[u8]) -> RawBlock {
        let kind = match kind {
            SecretsKind::Tls => SECRETS_TLS,
            SecretsKind::WireGuard => SECRETS_WIREGUARD,
        };
        let len = u32::try_from(text.len()).expect("secrets have less than 4 GiB");
        let mut body = [kind.to_ne_bytes(), len.to_ne_bytes()].concat();
        body.extend_from_slice(text);
        RawBlock::new(DECRYPTION_SECRETS, &body)
    }

    fn new(kind: u32, body: &[u8]) -> RawBlock {
        let padded = body.len().next_multiple_of(4);
        let len = (HEAD_LEN + padded + TRAILER_LEN) as u32;
        let mut bytes = [kind.to_ne_bytes(), len.to_ne_bytes()].concat();
        bytes.extend_from_slice(body);
        bytes.resize(HEAD_LEN + padded, 0);
        bytes.extend_from_slice(&len.to_ne_bytes());
        RawBlock { kind, bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether each file of a rotation needs it: packets of any of them may have to be read with it.
    pub(crate) fn is_for_each_file(&self) -> bool {
        matches!(self.kind, NAME_RESOLUTION | DECRYPTION_SECRETS)
    }
}

impl CopiedBlock {
    /// The block whose first byte is that of `block`, which ends with its trailer, of a section in this `order`.
    pub(crate) fn read(order: ByteOrder, kind: u32, block: &[u8]) -> Result<RawBlock, Fate> {
        let mut body = block[HEAD_LEN..block.len() - TRAILER_LEN].to_vec();
        if order != ByteOrder::NATIVE {
            turn_around(order, kind, &mut body)?;
        }
        Ok(RawBlock::new(kind, &body))
    }

    /// The memory that it takes while it waits, in bytes.
    fn cost(&self) -> usize {
        let bytes = match self {
            CopiedBlock::Section(section) => section.len(),
            CopiedBlock::Other(block) => block.bytes.len(),
        };
        WAITING_COST + bytes
    }
}

/// Reason for which a block is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    NotToCopy,
    Local,
    OtherByteOrder,
    Damaged,
    TooLong,
}

impl Fate {
    /// The fate of blocks of a type, whatever they hold; `None` for those that are copied.
    pub(crate) fn of_kind(kind: u32) -> Option<Fate> {
        match kind {
            CUSTOM_NOT_COPIED => Some(Fate::NotToCopy),
            _ if kind & LOCAL != 0 => Some(Fate::Local),
            _ => None,
        }
    }
}

/// Puts the numbers of a block's body into this machine's order.
fn turn_around(order: ByteOrder, kind: u32, body: &mut [u8]) -> Result<(), Fate> {
    match kind {
        DECRYPTION_SECRETS => turn_secrets(order, body).ok_or(Fate::Damaged),
        NAME_RESOLUTION => turn_names(order, body).ok_or(Fate::Damaged),
        JOURNAL_EXPORT => Ok(()),
        // The number of the enterprise is known to stand in front; the order of the data behind it is the writer's.
        CUSTOM => Err(Fate::OtherByteOrder),
        _ => Err(Fate::OtherByteOrder),
    }
}

/// `type u32, length u32, secrets, padding, options`
fn turn_secrets(order: ByteOrder, body: &mut [u8]) -> Option<()> {
    let len = order.u32(body.get(..8)?, 4) as usize;
    body[..4].reverse();
    body[4..8].reverse();
    let options = 8usize.checked_add(len)?.checked_next_multiple_of(4)?;
    heads_to_native(order, body.get_mut(options..)?);
    Some(())
}

/// `(type u16, length u16, address and names, padding)*, type 0, options`
fn turn_names(order: ByteOrder, body: &mut [u8]) -> Option<()> {
    let mut at = 0;
    loop {
        let head = body.get_mut(at..at + 4)?;
        let (kind, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        head[..2].reverse();
        head[2..].reverse();
        at += 4 + len.next_multiple_of(4);
        if kind == 0 {
            heads_to_native(order, body.get_mut(at..)?);
            return Some(());
        }
    }
}

impl BlockQueue {
    /// Adds a block at the end.
    pub fn push(&self, block: CopiedBlock) {
        let mut waiting = self.lock();
        if waiting.memory.saturating_add(block.cost()) > WAITING_MAX {
            waiting.left_out.too_long += 1;
            return;
        }
        waiting.memory += block.cost();
        waiting.blocks.push_back(block);
    }

    /// The blocks that were left out so far.
    pub fn left_out(&self) -> LeftOut {
        self.lock().left_out
    }

    /// Takes the block that has waited longest.
    pub(crate) fn pop(&self) -> Option<CopiedBlock> {
        let mut waiting = self.lock();
        let block = waiting.blocks.pop_front()?;
        waiting.memory -= block.cost();
        Some(block)
    }

    /// Takes over all that `other` holds.
    pub(crate) fn take_from(&self, other: &BlockQueue) {
        let taken = std::mem::take(&mut *other.lock());
        let mut waiting = self.lock();
        waiting.left_out.add(taken.left_out);
        drop(waiting);
        taken.blocks.into_iter().for_each(|block| self.push(block));
    }

    pub(crate) fn leave_out(&self, fate: Fate) {
        let mut waiting = self.lock();
        let left_out = &mut waiting.left_out;
        *match fate {
            Fate::NotToCopy => &mut left_out.not_to_copy,
            Fate::Local => &mut left_out.local,
            Fate::OtherByteOrder => &mut left_out.other_byte_order,
            Fate::Damaged => &mut left_out.damaged,
            Fate::TooLong => &mut left_out.too_long,
        } += 1;
    }

    /// Takes all blocks as left out: the copy has another format.
    pub(crate) fn refuse(&self) {
        let mut waiting = self.lock();
        let others = waiting.blocks.iter().filter(|block| matches!(block, CopiedBlock::Other(_))).count();
        waiting.left_out.other_format += others as u64;
        waiting.blocks.clear();
        waiting.memory = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftOut {
    fn add(&mut self, more: LeftOut) {
        self.not_to_copy += more.not_to_copy;
        self.local += more.local;
        self.other_byte_order += more.other_byte_order;
        self.damaged += more.damaged;
        self.too_long += more.too_long;
        self.other_format += more.other_format;
    }

    /// Clauses for a message, one for each reason; none if every block was copied.
    pub fn clauses(&self) -> Vec<String> {
        let reasons = [
            (self.other_format, "for which this format has no place: write pcapng to keep them"),
            (self.not_to_copy, "that programs are asked not to copy (type 0x40000bad)"),
            (self.local, "for local use"),
            (self.other_byte_order, "of an unknown layout in the other byte order"),
            (self.damaged, "whose lengths contradict each other"),
            (self.too_long, "of more than 16 MiB, or without room in 64 MiB"),
        ];
        let told = reasons.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, reason)| format!("{count} {} {reason}", Blocks(count))).collect()
    }
}

/// The noun for a count.
struct Blocks(u64);

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 1 { "block" } else { "blocks" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other_order() -> ByteOrder {
        if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little }
    }

    #[test]
    fn secrets_are_known_by_their_words() {
        assert_eq!(SecretsKind::of("# c\n\nCLIENT_RANDOM 00 11\n"), Some(SecretsKind::Tls));
        assert_eq!(SecretsKind::of("SERVER_HANDSHAKE_TRAFFIC_SECRET 0 1"), Some(SecretsKind::Tls));
        assert_eq!(SecretsKind::of("PRESHARED_KEY = AAAA"), Some(SecretsKind::WireGuard));
        assert_eq!(SecretsKind::of("-----BEGIN PRIVATE KEY-----"), None);
        assert_eq!(SecretsKind::of(""), None);
    }

    #[test]
    fn a_cut_body_is_damaged_never_a_panic() {
        let names = [0, 1, 0, 6, 10, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'c', 0, 0, 0];
        for kind in [NAME_RESOLUTION, DECRYPTION_SECRETS] {
            for len in (0..=names.len()).step_by(4) {
                let mut body = names[..len].to_vec();
                let _ = turn_around(other_order(), kind, &mut body);
            }
        }
        let mut short = vec![0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(turn_around(other_order(), DECRYPTION_SECRETS, &mut short), Err(Fate::Damaged));
    }

    #[test]
    fn a_queue_without_room_counts() {
        let queue = BlockQueue::default();
        let block = RawBlock::new(7, &vec![0; WAITING_MAX / 4]);
        for _ in 0..5 {
            queue.push(CopiedBlock::Other(block.clone()));
        }
        assert_eq!(queue.left_out().too_long, 2);
        assert!(queue.pop().is_some());
        queue.push(CopiedBlock::Other(block));
        assert_eq!(queue.left_out().too_long, 2);
    }

    #[test]
    fn empty_blocks_have_their_cost() {
        let queue = BlockQueue::default();
        for _ in 0..WAITING_MAX / WAITING_COST {
            queue.push(CopiedBlock::Other(RawBlock::new(7, &[])));
        }
        assert!(queue.left_out().too_long > 0);
    }
}
