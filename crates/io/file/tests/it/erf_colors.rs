//! Colours and hashes of capture cards in ERF.

use tapline_file::ByteOrder;

use crate::samples::{Bytes, data, read};

/// Seconds of a time in 2023.
const SECOND: u64 = 1_700_000_000;

/// Colours and hashes where a card's filter wrote them.
#[test]
fn erf_colors_and_hashes() {
    let mut file = Bytes::new(ByteOrder::Little);
    let time = SECOND << 32;
    let frame = [&[0, 0], &data(60)[..]].concat();
    let with = |extensions: &[[u8; 8]]| [&extensions.concat()[..], &frame[..]].concat();
    let classified = [0x83, 0x0a, 0xbc, 0xd4, 0, 0, 0, 9];
    let filtered = [6, 0x55, 0x01, 0x02, 1, 2, 3, 4];
    let signed = [14, 1, 2, 3, 0xfe, 9, 8, 7];
    let of_flow = [16, 7, 5, 0, 0xde, 0xad, 0xbe, 0xef];
    for kind in [11, 16, 20] {
        file.erf(time, kind, 0, 0x1234, 60, &frame);
    }
    file.erf(time, 2 | 0x80, 0, 7, 60, &with(&[filtered]));
    file.erf(time, 2 | 0x80, 0, 0, 60, &with(&[signed]));
    file.erf(time, 2 | 0x80, 0, 0, 60, &with(&[classified, of_flow]));
    file.erf(time, 11 | 0x80, 0, 3, 60, &with(&[filtered]));
    file.erf(time, 10, 0, 0x4321, 8, &[0xff, 3, 0, 33, 1, 2, 3, 4]);
    file.erf(time, 2, 0, 5, 60, &frame);
    let whole = read(&file.bytes);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    let found: Vec<_> =
        whole.packets.iter().map(|p| (p.meta.color, p.meta.rx_hash, p.meta.drops_before)).collect();
    let expected = [
        (Some(0x1234), 0, 0),
        (Some(0x1234), 0, 0),
        (Some(0x1234), 0, 0),
        (Some(0x0102), 0x0102_0304, 7),
        (Some(0xfe), 0x09_0807, 0),
        (Some(0xabcd), 0xdead_beef, 0),
        (Some(3), 0x0102_0304, 0),
        (Some(0x4321), 0, 0),
        (None, 0, 5),
    ];
    assert_eq!(found, expected);
}
