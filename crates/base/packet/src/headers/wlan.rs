//! IEEE 802.11 data frames: where their 802.2 header is.
//!
//! ```text
//! control 2 | duration 2 | address 6 | address 6 | address 6 | sequence 2 | [address 6] | [QoS 2] | [pad] | 802.2
//! control:  subtype 4b, type 2b (2: data), version 2b | order, protected, ... from DS, to DS
//! radiotap: version 1 | pad 1 | length 2 (little-endian) | present 4 ... | fields
//! ```
//!
//! Sources: IEEE 802.11-2020, 9.2.4, 9.3.2.1; <https://www.radiotap.org/fields/Flags.html>.

use super::read::{array, u8_at};

const DATA: u8 = 2;
/// Bits of the subtype: QoS control is there; there is no body.
const HAS_QOS: u8 = 0x8;
const NO_DATA: u8 = 0x4;
const BOTH_DS: u8 = 0x03;
const PROTECTED: u8 = 0x40;

/// The start of a data frame's 802.2 header; `None` if it has none or is encrypted.
pub(super) fn body(data: &[u8], at: usize, padded: bool) -> Option<usize> {
    let &[first, second] = array(data, at)?;
    let (kind, subtype) = (first >> 2 & 3, first >> 4);
    if kind != DATA || subtype & NO_DATA != 0 || second & PROTECTED != 0 {
        return None;
    }
    let addresses = if second & BOTH_DS == BOTH_DS { 30 } else { 24 };
    let len = addresses + if subtype & HAS_QOS != 0 { 2 } else { 0 };
    let len: usize = if padded { (len + 3) & !3 } else { len };
    let body = at + len;
    (body <= data.len()).then_some(body)
}

/// The network header behind a radiotap header.
pub(super) fn behind_radiotap(data: &[u8]) -> Option<usize> {
    let &[0, _, l0, l1, p0, p1, p2, p3] = array(data, 0)? else { return None };
    let present = u32::from_le_bytes([p0, p1, p2, p3]);
    let frame = usize::from(u16::from_le_bytes([l0, l1]));
    let padded = pads(data, present)?;
    body(data, frame, padded)
}

/// Whether headers are padded to whole words: bit 5 of the flags, which follow the time stamp, if there is one.
fn pads(data: &[u8], present: u32) -> Option<bool> {
    const TIME: u32 = 1;
    const FLAGS: u32 = 2;
    const EXTENDED: u32 = 1 << 31;
    // Behind more words of `present`, where the first field begins takes walking over them; drivers do not pad there.
    if present & FLAGS == 0 || present & EXTENDED != 0 {
        return Some(false);
    }
    let at = if present & TIME != 0 { 16 } else { 8 };
    Some(u8_at(data, at)? & 0x20 != 0)
}
