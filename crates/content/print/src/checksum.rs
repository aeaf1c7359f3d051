//! The value that a wrong checksum should have had.

pub(crate) use tapline_packet::checksum::{RunningChecksum, internet};

/// The value that a checksum field should have, from its present value and the checksum computed over the bytes with
/// it.
pub(crate) fn should_be(field: u16, computed: u16) -> u16 {
    let shifted = u32::from(field) + u32::from(computed);
    ((shifted & 0xffff) + (shifted >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_put_right() {
        let mut header =
            [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0x12, 0x34, 10, 0, 0, 1, 10, 0, 0, 2];
        let right = should_be(0x1234, internet(&header));
        header[10..12].copy_from_slice(&right.to_be_bytes());
        assert_eq!(internet(&header), 0);
    }
}
