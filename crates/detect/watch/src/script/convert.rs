//! Packets, flows and certificates as maps of scripts, and values of scripts as text and JSON.

use rhai::{Array, Blob, Dynamic, ImmutableString, Map};
use serde_json::{Number, Value};
use tapline_dissect::dns::{Message, flag};
use tapline_flow::{EndReason, Flow};
use tapline_packet::headers::Headers;
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_packet::{LinkType, Packet};

use crate::certificates::Certificate;
use crate::key::Subject;

/// Bytes of payload that a script sees.
const PAYLOAD_MAX: usize = 2048;
/// Maximum nesting depth of values.
const DEPTH_MAX: usize = 8;
/// Bits of TCP flags, and their letters in tcpdump's order.
const FLAGS: [(u8, char); 8] =
    [(0x02, 'S'), (0x01, 'F'), (0x08, 'P'), (0x04, 'R'), (0x10, '.'), (0x20, 'U'), (0x40, 'E'), (0x80, 'W')];

/// A packet: `time`, `ns`, `len`, `src`, `dst`, `sport`, `dport`, `proto`, `vlan`, `flags`, `text`; `dns` of port 53.
pub(crate) fn packet_map(link_type: LinkType, packet: Packet<'_>, subject: &Subject) -> Dynamic {
    let headers = Headers::parse(link_type, packet);
    let mut map = subject_map(subject);
    let ns = packet.meta.timestamp.as_nanos();
    map.insert("time".into(), (ns as f64 / 1e9).into());
    map.insert("ns".into(), ns.into());
    map.insert("len".into(), i64::from(packet.meta.wire_len).into());
    if let (Some(start), Some(TCP)) = (headers.l4(), headers.protocol()) {
        let bits = packet.data.get(start + 13).copied().unwrap_or(0);
        let letters = FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter);
        map.insert("flags".into(), letters.collect::<String>().into());
    }
    let end = headers.ip_end().min(packet.data.len());
    let payload = headers.payload().and_then(|start| packet.data.get(start..end)).unwrap_or_default();
    map.insert("payload_len".into(), (payload.len() as i64).into());
    let shown = &payload[..payload.len().min(PAYLOAD_MAX)];
    // Bytes that are not UTF-8 become U+FFFD.
    map.insert("text".into(), String::from_utf8_lossy(shown).into_owned().into());
    if subject.src_port == 53 || subject.dst_port == 53 {
        let message =
            if headers.protocol() == Some(UDP) { payload } else { payload.get(2..).unwrap_or_default() };
        map.insert("dns".into(), dns_map(message));
    }
    map.into()
}

/// A message of DNS: `name` of the first question in small letters, `qtype`, `response`, `rcode`, `answers`, `len`.
/// Nothing if it is none.
fn dns_map(message: &[u8]) -> Dynamic {
    let mut name = Vec::new();
    let Some(parsed) = Message::parse(message, &mut name) else { return Dynamic::UNIT };
    let mut map = Map::new();
    map.insert("name".into(), String::from_utf8_lossy(&name).to_ascii_lowercase().into());
    map.insert("qtype".into(), i64::from(parsed.question_type.unwrap_or(0)).into());
    map.insert("response".into(), parsed.header.has(flag::RESPONSE).into());
    map.insert("rcode".into(), i64::from(parsed.header.response_code()).into());
    map.insert("answers".into(), i64::from(parsed.header.answers).into());
    map.insert("len".into(), (message.len() as i64).into());
    map.into()
}

/// A flow that has ended: the fields of its ends, `packets`, `bytes`, `packets_back`, `bytes_back`, `begin` and `end`
/// in seconds since 1970, `duration` in seconds, `reason`, `flags` and `flags_back`.
pub(crate) fn flow_map(flow: &Flow, subject: &Subject) -> Dynamic {
    let mut map = subject_map(subject);
    let [from, to] = &flow.endpoints;
    let letters = |bits: u8| -> String {
        FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter).collect()
    };
    let int = |number: u64| Dynamic::from(number.min(i64::MAX as u64) as i64);
    map.insert("packets".into(), int(from.packets));
    map.insert("bytes".into(), int(from.bytes));
    map.insert("packets_back".into(), int(to.packets));
    map.insert("bytes_back".into(), int(to.bytes));
    map.insert("begin".into(), (flow.first().as_nanos() as f64 / 1e9).into());
    map.insert("end".into(), (flow.last().as_nanos() as f64 / 1e9).into());
    map.insert("duration".into(), (subject.duration_ns as f64 / 1e9).into());
    map.insert("reason".into(), reason(flow.end_reason).into());
    if flow.protocol == TCP {
        map.insert("flags".into(), letters(from.tcp_flags).into());
        map.insert("flags_back".into(), letters(to.tcp_flags).into());
    }
    map.into()
}

fn reason(reason: EndReason) -> &'static str {
    reason.name()
}

/// A certificate: `server`, `port`, `client`, `name` that the client asked for, `sha256` of the certificate, `len`.
pub(crate) fn certificate_map(certificate: &Certificate) -> Dynamic {
    let mut map = Map::new();
    let tuple = &certificate.tuple;
    map.insert("server".into(), tuple.src.to_string().into());
    map.insert("port".into(), i64::from(tuple.src_port).into());
    map.insert("client".into(), tuple.dst.to_string().into());
    map.insert("name".into(), certificate.name.clone().into());
    map.insert("sha256".into(), certificate.sha256.clone().into());
    map.insert("len".into(), (certificate.len as i64).into());
    map.into()
}

fn subject_map(subject: &Subject) -> Map {
    let mut map = Map::new();
    let address =
        |address: Option<std::net::IpAddr>| address.map_or(String::new(), |address| address.to_string());
    map.insert("src".into(), address(subject.src).into());
    map.insert("dst".into(), address(subject.dst).into());
    map.insert("sport".into(), i64::from(subject.src_port).into());
    map.insert("dport".into(), i64::from(subject.dst_port).into());
    map.insert("proto".into(), i64::from(subject.protocol).into());
    map.insert("vlan".into(), i64::from(subject.vlan).into());
    map
}

/// Bytes of memory that a value takes, about; `None` if it is nested deeper than tables and recorders keep.
pub(super) fn kept_len(value: &Dynamic) -> Option<usize> {
    len_within(value, DEPTH_MAX)
}

/// Bytes of a value in an array or variable.
const VALUE_LEN: usize = 16;
/// Bytes of a text in addition to its characters, and of a member of a map in addition to its value.
const TEXT_LEN: usize = 48;

fn len_within(value: &Dynamic, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1);
    if let Some(text) = value.read_lock::<ImmutableString>() {
        return Some(VALUE_LEN + TEXT_LEN + text.len());
    }
    if let Some(bytes) = value.read_lock::<Blob>() {
        return Some(VALUE_LEN + bytes.len());
    }
    let mut sum = VALUE_LEN;
    if let Some(array) = value.read_lock::<Array>() {
        for element in array.iter() {
            sum += len_within(element, depth?)?;
        }
    } else if let Some(map) = value.read_lock::<Map>() {
        for (name, member) in map.iter() {
            sum += TEXT_LEN + name.len() + len_within(member, depth?)?;
        }
    }
    Some(sum)
}

/// A value as text: a key of a table, of a ranking, a setting.
pub(super) fn to_text(value: &Dynamic) -> String {
    match value.read_lock::<ImmutableString>() {
        Some(text) => text.to_string(),
        None => value.to_string(),
    }
}

/// A value as JSON; values without a form in JSON become text.
pub(super) fn to_json(value: &Dynamic) -> Value {
    json_within(value, DEPTH_MAX)
}

fn json_within(value: &Dynamic, depth: usize) -> Value {
    if value.is_unit() || depth == 0 {
        return Value::Null;
    }
    if let Ok(number) = value.as_int() {
        return number.into();
    }
    if let Ok(number) = value.as_float() {
        return Number::from_f64(number).map_or(Value::Null, Value::Number);
    }
    if let Ok(is) = value.as_bool() {
        return is.into();
    }
    if let Some(array) = value.read_lock::<Array>() {
        return array.iter().map(|element| json_within(element, depth - 1)).collect::<Vec<_>>().into();
    }
    if let Some(map) = value.read_lock::<Map>() {
        let json = map.iter().map(|(name, value)| (name.to_string(), json_within(value, depth - 1)));
        return Value::Object(json.collect());
    }
    to_text(value).into()
}
