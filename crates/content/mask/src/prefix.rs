//! Crypto-PAn: addresses that share a prefix of n bits have images that share one of n bits.
//!
//! Each bit of an address is turned or not by a bit that AES makes of the bits before it and of a pad. Jun Xu, Jinliang
//! Fan, Mostafa Ammar, Sue Moon: "Prefix-Preserving IP Address Anonymization", ICNP 2002; the key's layout and the test
//! vectors are those of the authors' implementation. Of 128 bits for IPv6, as later implementations do.

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};

/// Bytes of a key: 16 for AES, 16 of which the pad is made.
pub const KEY_LEN: usize = 32;

/// Blocks that are enciphered at once: as many as an IPv4 address has bits.
const BLOCKS: usize = 32;

/// Entries of the memories for images, of which a trace asks again and again.
const V4_ENTRIES: usize = 4096;
const V6_ENTRIES: usize = 1024;

/// A key of Crypto-PAn.
#[derive(Clone)]
pub struct Key([u8; KEY_LEN]);

impl Key {
    /// The key in these 32 bytes.
    pub fn new(bytes: [u8; KEY_LEN]) -> Key {
        Key(bytes)
    }

    /// The key in a file: 32 bytes, or 64 hexadecimal digits, with white space between them if the file has it.
    ///
    /// # Errors
    /// The reason why `file` holds no key, as a clause.
    pub fn read(file: &[u8]) -> Result<Key, String> {
        if let Ok(bytes) = file.try_into() {
            return Ok(Key(bytes));
        }
        let digits: Vec<u8> = file.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> = match digits.len() {
            64 => digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect(),
            _ => None,
        };
        let key = bytes.and_then(|bytes| bytes.try_into().ok()).map(Key);
        key.ok_or_else(|| {
            let len = file.len();
            format!("a key is 32 bytes or 64 hexadecimal digits, and these are {len} bytes of other content")
        })
    }
}

/// Images of addresses under a key.
pub struct PrefixPreserving {
    cipher: Aes128,
    pad: u128,
    v4: Vec<Option<([u8; 4], [u8; 4])>>,
    v6: Vec<Option<([u8; 16], [u8; 16])>>,
}

impl PrefixPreserving {
    /// Images under `key`.
    pub fn new(key: &Key) -> PrefixPreserving {
        let (cipher_key, pad) = key.0.split_at(16);
        let cipher = Aes128::new(&array(cipher_key));
        let mut block = array(pad);
        cipher.encrypt_block(&mut block);
        let pad = u128::from_be_bytes(block.0);
        PrefixPreserving { cipher, pad, v4: vec![None; V4_ENTRIES], v6: vec![None; V6_ENTRIES] }
    }

    /// The image of an IPv4 address.
    pub fn v4(&mut self, address: [u8; 4]) -> [u8; 4] {
        let number = u32::from_be_bytes(address);
        let entry = (number.wrapping_mul(0x9e37_79b1) >> 20) as usize % V4_ENTRIES;
        if let Some((known, image)) = self.v4[entry]
            && known == address
        {
            return image;
        }
        let left_aligned = u128::from(number) << 96;
        let image = (number ^ (self.turns::<1>(left_aligned) >> 96) as u32).to_be_bytes();
        self.v4[entry] = Some((address, image));
        image
    }

    /// The image of an IPv6 address.
    pub fn v6(&mut self, address: [u8; 16]) -> [u8; 16] {
        let number = u128::from_be_bytes(address);
        let mixed = (number ^ number >> 64) as u64;
        let entry = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % V6_ENTRIES;
        if let Some((known, image)) = self.v6[entry]
            && known == address
        {
            return image;
        }
        let image = (number ^ self.turns::<4>(number)).to_be_bytes();
        self.v6[entry] = Some((address, image));
        image
    }

    /// The image of a hardware address. Addresses of groups, of which protocols are known, stay; the image of any
    /// other is one of local administration.
    pub fn mac(&self, address: [u8; 6]) -> [u8; 6] {
        if address[0] & 1 == 1 || address == [0; 6] {
            return address;
        }
        let mut block = [0xff; 16];
        block[..6].copy_from_slice(&address);
        let mut block = Array(block);
        self.cipher.encrypt_block(&mut block);
        let [a, b, c, d, e, f, ..] = block.0;
        [a & 0xfc | 2, b, c, d, e, f]
    }

    /// The bits to flip among the first `32 * GROUPS` bits of an address.
    fn turns<const GROUPS: usize>(&self, address: u128) -> u128 {
        let mut turns = 0;
        for group in 0..GROUPS {
            let mut blocks: [_; BLOCKS] = std::array::from_fn(|bit| {
                let bits = group * BLOCKS + bit;
                let prefix = !(u128::MAX.checked_shr(bits as u32).unwrap_or(0));
                Array((address & prefix | self.pad & !prefix).to_be_bytes())
            });
            self.cipher.encrypt_blocks(&mut blocks);
            for (bit, block) in blocks.iter().enumerate() {
                turns |= u128::from(block.0[0] >> 7) << (127 - group * BLOCKS - bit);
            }
        }
        turns
    }
}

fn array(bytes: &[u8]) -> aes::Block {
    let mut array = [0; 16];
    array.copy_from_slice(bytes);
    Array(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The key of the sample trace that the authors of Crypto-PAn published.
    const KEY: [u8; KEY_LEN] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121,
        101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    #[test]
    fn the_published_sample_of_ipv4() {
        let mut images = PrefixPreserving::new(&Key::new(KEY));
        let sample = [
            ("128.11.68.132", "135.242.180.132"),
            ("129.118.74.4", "134.136.186.123"),
            ("130.132.252.244", "133.68.164.234"),
            ("141.223.7.43", "141.167.8.160"),
            ("152.163.225.39", "151.140.114.167"),
            ("192.102.249.13", "252.138.62.131"),
            ("198.51.77.238", "249.18.186.254"),
            ("24.0.250.221", "100.15.198.226"),
            ("64.39.15.238", "0.219.7.41"),
            ("10.185.25.118", "117.161.29.118"),
        ];
        for _ in 0..2 {
            for (address, image) in sample {
                let address: Ipv4Addr = address.parse().expect("an address");
                assert_eq!(Ipv4Addr::from(images.v4(address.octets())).to_string(), image, "{address}");
            }
        }
    }

    #[test]
    fn ipv6_as_other_implementations_have_it() {
        let mut images = PrefixPreserving::new(&Key::new(KEY));
        let sample = [
            ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
            ("::2", "78ff:f001:9fc0:20df:8380:b1f1:704:ef"),
            ("::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"),
            ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
            ("2001:db8::2", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"),
        ];
        for (address, image) in sample {
            let address: Ipv6Addr = address.parse().expect("an address");
            assert_eq!(Ipv6Addr::from(images.v6(address.octets())).to_string(), image, "{address}");
        }
    }

    #[test]
    fn groups_keep_their_hardware_addresses() {
        let images = PrefixPreserving::new(&Key::new(KEY));
        assert_eq!(images.mac([0xff; 6]), [0xff; 6]);
        assert_eq!(images.mac([1, 0, 0x5e, 1, 2, 3]), [1, 0, 0x5e, 1, 2, 3]);
        let [first, second] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].map(|mac| images.mac(mac));
        assert_ne!(first, second);
        assert_eq!((first[0] & 3, second[0] & 3), (2, 2));
    }

    #[test]
    fn keys_are_bytes_or_digits() {
        assert_eq!(Key::read(&KEY).expect("bytes").0, KEY);
        let digits: String = KEY.iter().map(|byte| format!("{byte:02x} ")).collect();
        assert_eq!(Key::read(digits.as_bytes()).expect("digits").0, KEY);
        for bad in [&b""[..], b"secret", &[b'g'; 64], &[7; 33]] {
            assert!(Key::read(bad).is_err(), "{bad:?}");
        }
    }
}
