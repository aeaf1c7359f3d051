//! Messages of applications: DNS, DHCP, NTP, TLS and HTTP, as the bytes behind the transport header.

use super::Mac;
use std::net::{IpAddr, Ipv4Addr};

/// A DNS question (RFC 1035) of this name and type: 1 A, 28 AAAA, 12 PTR, 15 MX.
pub fn dns_query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    [&dns_header(id, 0x0100, 1, 0), &dns_question(name, kind)[..]].concat()
}

/// The answer to [`dns_query`]: one address record for each of `addresses`, by a pointer to the requested name.
pub fn dns_response(id: u16, name: &str, kind: u16, ttl_s: u32, addresses: &[IpAddr]) -> Vec<u8> {
    let mut bytes =
        [&dns_header(id, 0x8180, 1, addresses.len() as u16), &dns_question(name, kind)[..]].concat();
    for address in addresses {
        let data = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        // The name: a pointer to offset 12, where the question stands.
        bytes.extend_from_slice(&[0xc0, 0x0c, 0, if data.len() == 4 { 1 } else { 28 }, 0, 1]);
        bytes.extend_from_slice(&ttl_s.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&data);
    }
    bytes
}

/// The answer that a name does not exist.
pub fn dns_no_such_name(id: u16, name: &str, kind: u16) -> Vec<u8> {
    [&dns_header(id, 0x8183, 1, 0), &dns_question(name, kind)[..]].concat()
}

fn dns_header(id: u16, flags: u16, questions: u16, answers: u16) -> Vec<u8> {
    [id, flags, questions, answers, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn dns_question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 6);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len().min(63) as u8);
        bytes.extend_from_slice(&label.as_bytes()[..label.len().min(63)]);
    }
    bytes.extend_from_slice(&[0]);
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&[0, 1]);
    bytes
}

/// The kind of a DHCP message (RFC 2132 section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dhcp {
    /// A client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// The client asks for it.
    Request = 3,
    /// The server grants it.
    Ack = 5,
}

/// A DHCP message (RFC 2131) about one client and the address it gets from `server`.
pub fn dhcp(kind: Dhcp, transaction: u32, client: Mac, address: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
    const COOKIE: [u8; 4] = [99, 130, 83, 99];
    let from_client = matches!(kind, Dhcp::Discover | Dhcp::Request);
    let granted = if from_client { Ipv4Addr::UNSPECIFIED } else { address };
    let mut bytes = vec![if from_client { 1 } else { 2 }, 1, 6, 0];
    bytes.extend_from_slice(&transaction.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&granted.octets());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&client);
    bytes.resize(236, 0);
    bytes.extend_from_slice(&COOKIE);
    bytes.extend_from_slice(&[53, 1, kind as u8]);
    let options: &[(u8, Vec<u8>)] = &match kind {
        Dhcp::Discover => vec![(55, vec![1, 3, 6, 15])],
        Dhcp::Request => {
            vec![(50, address.octets().to_vec()), (54, server.octets().to_vec()), (12, b"probe".to_vec())]
        }
        Dhcp::Offer | Dhcp::Ack => vec![
            (54, server.octets().to_vec()),
            (51, 3600_u32.to_be_bytes().to_vec()),
            (1, vec![255, 255, 0, 0]),
            (3, server.octets().to_vec()),
            (6, server.octets().to_vec()),
        ],
    };
    for (code, value) in options {
        bytes.extend_from_slice(&[*code, value.len() as u8]);
        bytes.extend_from_slice(value);
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

/// An NTP packet of version 4 (RFC 5905): mode 3 asks, 4 answers. `transmit` counts 2^-32 seconds since 1900.
pub fn ntp(mode: u8, stratum: u8, originate: u64, transmit: u64) -> Vec<u8> {
    let mut bytes = vec![4 << 3 | (mode & 7), stratum, 6, 0xe9];
    bytes.extend_from_slice(&[0, 0, 0x01, 0, 0, 0, 0x02, 0]);
    bytes.extend_from_slice(if stratum == 1 { b"GPS\0" } else { &[0; 4] });
    let received = if mode == 4 { transmit } else { 0 };
    for time in [received, originate, received, transmit] {
        bytes.extend_from_slice(&time.to_be_bytes());
    }
    bytes
}

/// A TLS record with a ClientHello (RFC 8446 section 4.1.2) for this server name (RFC 6066 section 3).
pub fn tls_client_hello(server_name: &str, random: [u8; 32]) -> Vec<u8> {
    let name = server_name.as_bytes();
    let entry = [&[0], &length(name.len())[..], name].concat();
    let names = extension(0, &[&length(entry.len())[..], &entry].concat());
    let groups = extension(10, &[0, 4, 0, 29, 0, 23]);
    let signatures = extension(13, &[0, 4, 4, 3, 8, 4]);
    let protocols = extension(16, b"\x00\x0c\x02h2\x08http/1.1");
    let versions = extension(43, &[4, 3, 4, 3, 3]);
    let key_share = extension(51, &[&[0, 36, 0, 29, 0, 32], &random[..]].concat());
    let extensions = [names, groups, signatures, protocols, versions, key_share].concat();
    let suites = [0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2f];
    let parts: [&[u8]; 8] = [
        &[3, 3],
        &random,
        &[0],
        &length(suites.len()),
        &suites,
        &[1, 0],
        &length(extensions.len()),
        &extensions,
    ];
    let hello = parts.concat();
    let handshake = [&[1, 0], &length(hello.len())[..], &hello].concat();
    tls_record(22, &handshake)
}

/// A TLS record of this type (22 handshake, 23 application data) around its bytes.
pub fn tls_record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, if kind == 22 { 1 } else { 3 }], &length(content.len())[..], content].concat()
}

fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &length(value.len())[..], value].concat()
}

fn length(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}

/// An HTTP/1.1 request.
pub fn http_get(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: probe/1.0\r\nAccept: */*\r\n\r\n")
        .into_bytes()
}

/// The head of an HTTP/1.1 response whose body has `len` bytes.
pub fn http_ok(len: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n\r\n")
        .into_bytes()
}
