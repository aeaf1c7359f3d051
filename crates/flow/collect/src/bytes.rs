//! Numbers in network byte order.

/// The number in these bytes; of more than eight the low ones (RFC 7011, 6.2: numbers may be shorter than their type).
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_be_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_any_length() {
        assert_eq!([&[][..], &[7], &[1, 0], &[1, 0, 0], &[0, 0, 0, 9]].map(number), [0, 7, 256, 65536, 9]);
        assert_eq!(number(&[9, 0, 0, 0, 0, 0, 0, 0, 5]), 5);
    }
}
