//! Bytes into and out of memory that another process looks at or writes to meanwhile.
//!
//! Memory that another thread may access at the same time must be accessed by atomics. Eight bytes at a time that is
//! slow for a packet, and the compiler may not join relaxed atomics. On x86-64 the copies are instructions that it
//! does not look into: they have the effect of a loop of relaxed loads and stores (no word of 8 aligned bytes is ever
//! torn, which is not even relied on: the sequence of the block says whether a copy is whole), 64 bytes a round.
//! Elsewhere, and under miri, they are that loop. Under loom only the metadata's first and last words are copied,
//! because each access multiplies the number of interleavings.

use crate::atomic::{AtomicU64, Relaxed};
#[cfg(not(loom))]
use crate::layout::LINE_LEN;
use crate::layout::LINE_WORDS;
use crate::memory::ReadWords;

/// Stores a record's metadata.
#[inline]
pub(crate) fn store_line(to: &[AtomicU64; LINE_WORDS], line: &[u64; LINE_WORDS]) {
    for (index, (to, word)) in to.iter().zip(line).enumerate() {
        if cfg!(loom) && index != 0 && index != LINE_WORDS - 1 {
            continue;
        }
        to.store(*word, Relaxed);
    }
}

/// Stores bytes from `to`'s beginning on. The words behind them, up to the end of `to`, mean nothing afterwards.
///
/// # Panics
/// If `to` is not long enough, or not whole lines.
#[inline]
pub(crate) fn store_bytes(to: &[AtomicU64], from: &[u8]) {
    assert!(to.len() * 8 >= from.len() && to.len().is_multiple_of(LINE_WORDS));
    if !cfg!(loom) {
        implementation::store_bytes(to, from);
    }
}

/// Stores entries of an index, their second words with `verdict` added, which has no bit in common with them. Returns
/// the sum of these words without it.
///
/// # Panics
/// If there are not as many places as entries.
#[inline]
pub(crate) fn store_entries(to: &[[AtomicU64; 2]], from: &[[u64; 2]], verdict: u64) -> u64 {
    assert_eq!(to.len(), from.len());
    implementation::store_entries(to, from, verdict)
}

/// Loads lines of 64 bytes from the word `first` on. They are not valid until a fence and a check of the block's
/// sequence.
///
/// # Panics
/// If the words end before, or `into` is not whole lines.
#[inline]
pub(crate) fn load_lines(from: &ReadWords, first: usize, into: &mut [u64]) {
    #[cfg(not(loom))]
    implementation::load_lines(from, first, into);
    #[cfg(loom)]
    for index in [0, LINE_WORDS - 1] {
        into[index] = from.load(first + index);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod implementation {
    use std::arch::asm;

    use super::*;

    const CHUNK: usize = 16;

    #[inline]
    pub(super) fn store_bytes(to: &[AtomicU64], from: &[u8]) {
        let len = from.len();
        let (source, target) = (from.as_ptr(), to.as_ptr().cast_mut().cast::<u8>());
        if len < CHUNK {
            return store_few(to, from);
        }
        let lines = len / LINE_LEN;
        // SAFETY: all that is read lies in `from`, all that is written in `to`, which is at least as long, as the
        // caller asserted: `lines` lines first, then chunks that end before `len`, then the last chunk, which ends at
        // `len` and begins at 0 or later.
        unsafe {
            if lines > 0 {
                copy_lines(target, source, lines);
            }
            let mut at = lines * LINE_LEN;
            while at + CHUNK <= len {
                copy_chunk(target.add(at), source.add(at));
                at += CHUNK;
            }
            if at < len {
                copy_chunk(target.add(len - CHUNK), source.add(len - CHUNK));
            }
        }
    }

    /// Fewer than 16 bytes.
    #[cold]
    fn store_few(to: &[AtomicU64], from: &[u8]) {
        super::store_words(to, from);
    }

    #[inline]
    pub(super) fn load_lines(from: &ReadWords, first: usize, into: &mut [u64]) {
        let end = first.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= from.len()) && into.len().is_multiple_of(LINE_WORDS));
        if !into.is_empty() {
            // SAFETY: as many words are there from `first` on as `into` has, and these are whole lines.
            unsafe {
                let source = from.as_ptr().add(first).cast::<u8>();
                copy_lines(into.as_mut_ptr().cast(), source, into.len() / LINE_WORDS);
            }
        }
    }

    /// Entries of one round.
    const ROUND: usize = 4;

    #[inline]
    pub(super) fn store_entries(to: &[[AtomicU64; 2]], from: &[[u64; 2]], verdict: u64) -> u64 {
        let rounds = from.len() / ROUND;
        let whole = rounds * ROUND;
        let sum = if rounds == 0 { 0 } else { store_rounds(&to[..whole], &from[..whole], verdict) };
        sum + store_entry_words(&to[whole..], &from[whole..], verdict)
    }

    /// At least one round of entries, with as many places.
    #[inline]
    fn store_rounds(to: &[[AtomicU64; 2]], from: &[[u64; 2]], verdict: u64) -> u64 {
        let verdict = [0, verdict];
        let mut sums = [0u64; 2];
        // SAFETY: 64 bytes are read from `from` and written to `to` for each round, of which both have as many, and at
        // least one; `verdict` and `sums` have 16 bytes each.
        unsafe {
            asm!(
                "movdqu {v}, [{verdict}]",
                "pxor {sum}, {sum}",
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "paddq {sum}, {a}",
                "por {a}, {v}",
                "movdqu [{to}], {a}",
                "paddq {sum}, {b}",
                "por {b}, {v}",
                "movdqu [{to} + 16], {b}",
                "paddq {sum}, {c}",
                "por {c}, {v}",
                "movdqu [{to} + 32], {c}",
                "paddq {sum}, {d}",
                "por {d}, {v}",
                "movdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {left}",
                "jnz 2b",
                "movdqu [{sums}], {sum}",
                verdict = in(reg) verdict.as_ptr(),
                sums = in(reg) sums.as_mut_ptr(),
                from = inout(reg) from.as_ptr() => _,
                to = inout(reg) to.as_ptr() => _,
                left = inout(reg) from.len() / ROUND => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                v = out(xmm_reg) _,
                sum = out(xmm_reg) _,
                options(nostack)
            );
        }
        sums[1]
    }

    /// # Safety
    /// `lines` is not 0, and this many lines can be read at `from` and written at `to`, which do not overlap.
    #[inline]
    unsafe fn copy_lines(to: *mut u8, from: *const u8, lines: usize) {
        // SAFETY: the loop touches 64 bytes on both sides for each line, as the caller allows, and registers that it
        // names.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                lines = inout(reg) lines => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack)
            );
        }
    }

    /// # Safety
    /// 16 bytes can be read at `from` and written at `to`.
    #[inline]
    unsafe fn copy_chunk(to: *mut u8, from: *const u8) {
        // SAFETY: 16 bytes on both sides, as the caller allows.
        unsafe {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu [{to}], {a}",
                from = in(reg) from,
                to = in(reg) to,
                a = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(all(any(not(target_arch = "x86_64"), miri), not(loom)))]
mod implementation {
    use super::*;

    pub(super) use super::{store_entry_words as store_entries, store_words as store_bytes};

    pub(super) fn load_lines(from: &ReadWords, first: usize, into: &mut [u64]) {
        for (index, word) in into.iter_mut().enumerate() {
            *word = from.load(first + index);
        }
    }
}

#[cfg(loom)]
mod implementation {
    pub(super) use super::{store_entry_words as store_entries, store_words as store_bytes};
}

/// One after the other.
fn store_entry_words(to: &[[AtomicU64; 2]], from: &[[u64; 2]], verdict: u64) -> u64 {
    let mut sum = 0;
    for ([position, what], from) in to.iter().zip(from) {
        position.store(from[0], Relaxed);
        what.store(from[1] | verdict, Relaxed);
        sum += from[1];
    }
    sum
}

/// Word by word; the last one is filled up with zeros.
fn store_words(to: &[AtomicU64], from: &[u8]) {
    for (to, bytes) in to.iter().zip(from.chunks(8)) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        to.store(u64::from_ne_bytes(word), Relaxed);
    }
}

/// Private words as bytes.
pub(crate) fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any byte of a word is a valid byte, there are eight for each, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Words;

    #[test]
    fn every_length_comes_out_as_it_went_in() {
        let bytes: Vec<u8> = (0..300u32).map(|n| (n * 7 + 1) as u8).collect();
        let words = Words::private(64);
        let reading = words.to_read();
        for len in 0..=bytes.len() {
            words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
            let room = len.next_multiple_of(LINE_LEN) / 8;
            store_bytes(&words[8..8 + room], &bytes[..len]);
            let mut out = vec![0; room];
            load_lines(&reading, 8, &mut out);
            assert_eq!(&as_bytes(&out)[..len], &bytes[..len], "{len}");
            assert!(words[..8].iter().chain(&words[8 + room..]).all(|word| word.load(Relaxed) == u64::MAX));
        }
    }

    #[test]
    fn entries_get_their_verdict() {
        let words = Words::private(64);
        let (places, _) = words[2..].as_chunks::<2>();
        let from: Vec<[u64; 2]> = (0..20).map(|n| [n, 100 + n]).collect();
        for len in 0..=from.len() {
            let sum = store_entries(&places[..len], &from[..len], 7 << 32);
            assert_eq!(sum, from[..len].iter().map(|entry| entry[1]).sum::<u64>());
            for (place, from) in places.iter().zip(&from[..len]) {
                assert_eq!([0, 1].map(|at| place[at].load(Relaxed)), [from[0], from[1] | 7 << 32]);
            }
            assert!(words[2 + 2 * len..].iter().all(|word| word.load(Relaxed) == 0));
        }
    }

    #[test]
    #[should_panic]
    fn lines_behind_the_end_are_not_loaded() {
        load_lines(&Words::private(64).to_read(), 64, &mut [0; 8]);
    }
}
