//! Payloads of packets, with checksums of any part at hand.
//!
//! ```text
//! bytes  b0 b1 b2 b3 b4 ...        sums[i] = b0·256 + b1 + b2·256 + ...  of the first i bytes
//!           |-- payload --|        sum of a part that begins at an even place = a difference of two
//! ```

use crate::random::Random;
use crate::recipe::Payload;

/// Number of bytes within which random payloads begin. A power of two.
const STARTS: usize = 16_384;

/// Bytes, and the sums of their beginnings.
pub(crate) struct Pool {
    bytes: Vec<u8>,
    sums: Vec<u32>,
    /// Payloads begin at random even places.
    is_random: bool,
}

impl Pool {
    /// For payloads of up to `len` bytes.
    pub(crate) fn new(payload: &Payload, len: usize, seed: u64) -> Pool {
        let is_random = matches!(payload, Payload::Random);
        let bytes: Vec<u8> = match payload {
            Payload::Zero => vec![0; len],
            Payload::Counting => (0..len).map(|at| at as u8).collect(),
            Payload::Text(text) if text.is_empty() => vec![0; len],
            Payload::Text(text) => text.iter().copied().cycle().take(len).collect(),
            Payload::Random => random(len + STARTS, seed),
        };
        let mut sums = Vec::with_capacity(bytes.len() + 1);
        sums.push(0);
        let mut sum = 0_u32;
        for (at, &byte) in bytes.iter().enumerate() {
            // Wraps for long pools; the difference of two sums at most 64 KiB apart is right all the same.
            sum = sum.wrapping_add(if at % 2 == 0 { u32::from(byte) << 8 } else { byte.into() });
            sums.push(sum);
        }
        Pool { bytes, sums, is_random }
    }

    /// The offset of the next payload in the pool, which is even.
    #[inline]
    pub(crate) fn start(&self, random: &mut Random) -> usize {
        if self.is_random { (random.bits() as usize % STARTS) & !1 } else { 0 }
    }

    /// The bytes of a payload, and their sum.
    #[inline]
    pub(crate) fn part(&self, start: usize, len: usize) -> (&[u8], u32) {
        (&self.bytes[start..start + len], self.sums[start + len].wrapping_sub(self.sums[start]))
    }
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed, 0x7061_796c_6f61_6400);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    #[test]
    fn sums_are_those_of_the_bytes() {
        let payloads = [Payload::Zero, Payload::Counting, Payload::Random, Payload::Text(b"odd".to_vec())];
        for payload in payloads {
            let pool = Pool::new(&payload, 65_535, 3);
            let mut random = Random::new(1, 1);
            for len in [0, 1, 2, 17, 1471, 65_535] {
                let start = pool.start(&mut random);
                let (bytes, sum) = pool.part(start, len);
                assert_eq!((bytes.len(), sum), (len, checksum::sum(bytes)), "{payload:?}");
            }
        }
    }
}
