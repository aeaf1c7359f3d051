//! The owner of each chunk.
//!
//! One byte for each chunk; the picture of [the module](super) has the transitions. Free chunks are in a stack, so
//! that the one used last, which the processor still has in its cache, is used next.

/// The number of a chunk, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkId(pub(super) u32);

impl ChunkId {
    /// Number of the chunk, less than the count of chunks.
    pub fn number(self) -> u32 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Ours, and free.
    Free,
    /// Ours, and the caller has its number.
    Held,
    /// The kernel's, to write a packet to.
    KernelReceive,
    /// Owned by the kernel, which sends its contents.
    KernelTransmit,
}

/// All chunks of a UMEM.
#[derive(Debug)]
pub(super) struct Chunks {
    owners: Box<[Owner]>,
    free: Vec<u32>,
}

impl Chunks {
    /// `count` chunks, all free.
    pub(super) fn new(count: u32) -> Chunks {
        Chunks { owners: vec![Owner::Free; count as usize].into(), free: (0..count).rev().collect() }
    }

    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// A free chunk for this owner.
    #[inline]
    pub(super) fn take(&mut self, owner: Owner) -> Option<ChunkId> {
        let number = self.free.pop()?;
        self.owners[number as usize] = owner;
        Some(ChunkId(number))
    }

    /// From one owner to another. Changes nothing and says so if the chunk does not exist or is not the first's.
    #[inline]
    #[must_use]
    pub(super) fn pass(&mut self, chunk: ChunkId, from: Owner, to: Owner) -> bool {
        let Some(owner) = self.owners.get_mut(chunk.0 as usize).filter(|owner| **owner == from) else {
            return false;
        };
        *owner = to;
        if to == Owner::Free {
            // Each chunk is in the stack at most once, so this never exceeds what was reserved at the start.
            self.free.push(chunk.0);
        }
        true
    }

    #[inline]
    pub(super) fn is(&self, chunk: ChunkId, owner: Owner) -> bool {
        self.owners.get(chunk.0 as usize) == Some(&owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_one_owner() {
        let mut chunks = Chunks::new(2);
        let first = chunks.take(Owner::KernelReceive).unwrap();
        assert_eq!((first, chunks.free()), (ChunkId(0), 1));
        assert!(!chunks.pass(first, Owner::Held, Owner::Free), "it is the kernel's");
        assert!(chunks.pass(first, Owner::KernelReceive, Owner::Held));
        assert!(!chunks.pass(first, Owner::KernelReceive, Owner::Held), "a descriptor that came twice");
        assert!(chunks.pass(first, Owner::Held, Owner::Free));
        assert!(!chunks.pass(first, Owner::Held, Owner::Free), "given back twice");
        assert_eq!(chunks.free(), 2);
        assert!(!chunks.pass(ChunkId(2), Owner::Held, Owner::Free), "there is no such chunk");
        assert_eq!(chunks.take(Owner::Held), Some(first), "what was used last is used next");
        assert!(chunks.take(Owner::Held).is_some() && chunks.take(Owner::Held).is_none());
    }
}
