//! TCP and UDP.

mod connections;
pub(crate) mod tcp;
pub(crate) mod udp;

pub(crate) use connections::Connections;

use tapline_packet::Checksum;

use crate::bytes::Span;
use crate::checksum::RunningChecksum;
use crate::context::Context;
use crate::names::PortKind;
use crate::net::Ip;
use crate::text::Text;

/// The result of checking a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumResult {
    Correct,
    /// The computed sum, over the bytes with the checksum in them.
    Wrong(u16),
    /// The NIC was to fill it in after this copy was taken.
    Unfinished,
}

/// Verifies the checksum of the first `length` bytes with their pseudo-header; all must be captured.
pub(crate) fn verify(cx: &Context<'_>, bytes: &[u8], number: u8, ip: &Ip) -> ChecksumResult {
    if cx.meta.checksum == Checksum::Valid && cx.is_outermost() {
        return ChecksumResult::Correct;
    }
    let computed = pseudo_header(bytes.len(), number, ip).with(bytes).finish();
    match (computed, cx.meta.checksum) {
        (0, _) => ChecksumResult::Correct,
        (_, Checksum::NotReady) => ChecksumResult::Unfinished,
        (computed, _) => ChecksumResult::Wrong(computed),
    }
}

/// The sum of addresses, length and protocol (RFC 9293, 3.1; RFC 8200, 8.1).
pub(crate) fn pseudo_header(length: usize, number: u8, ip: &Ip) -> RunningChecksum {
    let sum = match (ip.source, ip.final_destination) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            RunningChecksum::default().with(&source.octets()).with(&destination.octets())
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
            RunningChecksum::default().with(&source.octets()).with(&destination.octets())
        }
        _ => RunningChecksum::default(),
    };
    sum.with(&(length as u32).to_be_bytes()).with(&[0, number])
}

/// `source.port > destination.port: `; ports only if other headers are between IP and the transport.
pub(crate) fn print_ends(
    cx: &mut Context<'_>,
    ip: &Ip,
    number: u8,
    kind: PortKind,
    (source, destination): (u16, u16),
) {
    let with_hosts = ip.protocol == number;
    if with_hosts {
        cx.host(ip.source);
        cx.text(".");
    }
    cx.port(kind, source);
    cx.text(" > ");
    if with_hosts {
        cx.host(ip.destination);
        cx.text(".");
    }
    cx.port(kind, destination);
    cx.text(": ");
}

/// The bytes of a segment if all of them were captured.
pub(crate) fn captured<'p>(span: Span<'p>, length: usize) -> Option<&'p [u8]> {
    span.data.get(..length)
}
