//! Messages of NetFlow version 9 and of IPFIX.
//!
//! ```text
//! v9      version 2 | count 2 | uptime ms 4 | seconds 4 | sequence 4 | source id 4 | sets to the end
//! IPFIX   version 2 | length 2 | seconds 4 | sequence 4 | domain 4 | sets
//! set     id 2 | length 2 | templates (0, 2) | options templates (1, 3) | records by template id (256 on)
//! ```

use tapline_dissect::ByteReader;

use crate::draft::MessageTime;
use crate::template::{Form, LEAST_ID};

const SET_HEADER_LEN: usize = 4;

/// The header of a message.
pub(crate) struct Header {
    pub(crate) form: Form,
    pub(crate) time: MessageTime,
    pub(crate) sequence: u32,
    pub(crate) domain: u32,
}

/// The header of version 9, behind the version; `None` if it is cut short.
pub(crate) fn header9(bytes: &mut ByteReader<'_>) -> Option<Header> {
    let (_count, uptime, seconds) = (bytes.u16()?, bytes.u32()?, bytes.u32()?);
    let (sequence, domain) = (bytes.u32()?, bytes.u32()?);
    let export_ns = i64::from(seconds) * 1_000_000_000;
    let boot_ns = export_ns - i64::from(uptime) * 1_000_000;
    let time = MessageTime { export_ns, uptime: Some((uptime, boot_ns)) };
    Some(Header { form: Form::V9, time, sequence, domain })
}

/// The header of IPFIX, behind the version; bytes beyond the message's length are taken off the end. `None` if the
/// message is cut short.
pub(crate) fn header10(bytes: &mut ByteReader<'_>) -> Option<Header> {
    let behind_version = bytes.0.len();
    let len = usize::from(bytes.u16()?).checked_sub(2).filter(|len| *len <= behind_version)?;
    bytes.0 = bytes.0.get(..len.checked_sub(2)?)?;
    let (seconds, sequence, domain) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let time = MessageTime { export_ns: i64::from(seconds) * 1_000_000_000, uptime: None };
    Some(Header { form: Form::Ipfix, time, sequence, domain })
}

/// The contents of a set.
pub(crate) enum Set<'a> {
    Templates(ByteReader<'a>),
    OptionsTemplates(ByteReader<'a>),
    Records(u16, ByteReader<'a>),
    /// An id that the protocol reserves.
    Unknown,
}

/// The next set; `None` at the end, an error if its length does not fit.
pub(crate) fn next<'a>(bytes: &mut ByteReader<'a>, form: Form) -> Option<Result<Set<'a>, ()>> {
    // Less than a header is padding, and so are zeros up to the end: some exporters send datagrams of one length.
    if bytes.0.len() < SET_HEADER_LEN || bytes.0.iter().all(|octet| *octet == 0) {
        return None;
    }
    let (id, len) = (bytes.u16()?, bytes.u16()?);
    let Some(content) = usize::from(len).checked_sub(SET_HEADER_LEN).and_then(|len| bytes.take(len)) else {
        bytes.0 = &[];
        return Some(Err(()));
    };
    let content = ByteReader(content);
    skip_padding(bytes, form, usize::from(len));
    Some(Ok(match (form, id) {
        (_, LEAST_ID..) => Set::Records(id, content),
        (Form::V9, 0) | (Form::Ipfix, 2) => Set::Templates(content),
        (Form::V9, 1) | (Form::Ipfix, 3) => Set::OptionsTemplates(content),
        _ => Set::Unknown,
    }))
}

/// Skips the padding behind a set of `len` octets: some exporters do not count it to the set.
fn skip_padding(bytes: &mut ByteReader<'_>, form: Form, len: usize) {
    let padding = len.next_multiple_of(4) - len;
    let Some((zeros, rest)) = bytes.0.split_at_checked(padding) else { return };
    let is_set = |octets: &[u8]| match octets {
        [high, low, len_high, len_low, ..] => {
            let id = u16::from_be_bytes([*high, *low]);
            let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
            (id <= 3 || id >= LEAST_ID) && (SET_HEADER_LEN..=octets.len()).contains(&len)
        }
        _ => true,
    };
    // In IPFIX a set may end anywhere.
    let is_right = form == Form::Ipfix && is_set(bytes.0);
    if padding > 0 && !is_right && zeros.iter().all(|octet| *octet == 0) && is_set(rest) {
        bytes.0 = rest;
    }
}
