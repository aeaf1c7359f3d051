//! Names of hosts as the system has them: `/etc/hosts`, then reverse look-ups in the DNS.
//!
//! ```text
//! 1.2.3.4 --> PTR? 4.3.2.1.in-addr.arpa. --UDP--> the first nameserver of /etc/resolv.conf --> PTR name
//! ```
//!
//! One question a name, with a short wait: a look at packets must not stand still because a server does. The standard
//! library has no reverse look-up, and that of the C library is not safe to call from here.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::HostNames;

/// How long an answer may take.
const WAIT: Duration = Duration::from_millis(500);
/// Silent questions after which no more are asked.
const SILENT_MAX: u32 = 3;
/// Longest answer without an agreement on more (RFC 1035, 4.2.1).
const ANSWER_MAX: usize = 512;

const PTR: u16 = 12;
const INTERNET: u16 = 1;
const HEADER_LEN: usize = 12;

/// Looks names up as the system does. Sends packets: others may see which addresses are asked for.
#[derive(Debug)]
pub struct SystemHosts {
    hosts: HashMap<IpAddr, String>,
    server: Option<SocketAddr>,
    silent: u32,
    next_id: u16,
}

impl SystemHosts {
    /// Reads `/etc/hosts` and `/etc/resolv.conf`; without the latter nothing is asked of any server.
    pub fn new() -> SystemHosts {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        SystemHosts::from_texts(&hosts, &servers)
    }

    /// From texts in the form of hosts(5) and resolv.conf(5).
    pub fn from_texts(hosts: &str, resolver: &str) -> SystemHosts {
        let id = std::process::id() as u16;
        SystemHosts { hosts: parse_hosts(hosts), server: first_server(resolver), silent: 0, next_id: id }
    }

    fn ask(&mut self, address: IpAddr) -> Option<String> {
        let server = self.server?;
        if self.silent >= SILENT_MAX {
            return None;
        }
        self.next_id = self.next_id.wrapping_add(1);
        let answer = exchange(server, &question(self.next_id, address));
        match answer {
            Some(answer) => {
                self.silent = 0;
                name_in(&answer, self.next_id)
            }
            None => {
                self.silent += 1;
                None
            }
        }
    }
}

impl Default for SystemHosts {
    fn default() -> SystemHosts {
        SystemHosts::new()
    }
}

impl HostNames for SystemHosts {
    fn name(&mut self, address: IpAddr) -> Option<String> {
        match self.hosts.get(&address) {
            Some(name) => Some(name.clone()),
            None => self.ask(address),
        }
    }
}

/// The first name of each address.
fn parse_hosts(text: &str) -> HashMap<IpAddr, String> {
    let mut hosts = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        if let (Some(Ok(address)), Some(name)) = (words.next().map(str::parse), words.next()) {
            hosts.entry(address).or_insert_with(|| name.to_owned());
        }
    }
    hosts
}

fn first_server(text: &str) -> Option<SocketAddr> {
    let address =
        text.lines().find_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())?;
    Some(SocketAddr::new(address, 53))
}

/// Sends a question and waits for the answer.
fn exchange(server: SocketAddr, question: &[u8]) -> Option<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.set_read_timeout(Some(WAIT)).ok()?;
    socket.connect(server).ok()?;
    socket.send(question).ok()?;
    let mut answer = vec![0; ANSWER_MAX];
    let length = socket.recv(&mut answer).ok()?;
    answer.truncate(length);
    Some(answer)
}

fn question(id: u16, address: IpAddr) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    // Recursion desired, one question.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in reverse_name(address).split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&PTR.to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    message
}

/// The name under which an address is found (RFC 1035, 3.5; RFC 3596, 2.5).
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let labels: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

/// The name in the first PTR record of an answer.
fn name_in(answer: &[u8], id: u16) -> Option<String> {
    if answer.get(..2)? != id.to_be_bytes() {
        return None;
    }
    let records = u16_at(answer, 6)?;
    let mut at = skip_name(answer, HEADER_LEN)? + 4;
    for _ in 0..records {
        at = skip_name(answer, at)?;
        let kind = u16_at(answer, at)?;
        let length = usize::from(u16_at(answer, at + 8)?);
        if kind == PTR {
            return read_name(answer, at + 10);
        }
        at += 10 + length;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|raw| u16::from_be_bytes(*raw))
}

/// Where the name at `at` ends.
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

/// The name at `at`, followed through pointers, without the last dot. Only what a host name may hold.
fn read_name(bytes: &[u8], mut at: usize) -> Option<String> {
    let mut name = String::new();
    let mut pointers = 0;
    loop {
        let length = *bytes.get(at)?;
        match length {
            0 => return (!name.is_empty()).then_some(name),
            0xc0.. => {
                pointers += 1;
                if pointers > 16 {
                    return None;
                }
                at = usize::from(u16_at(bytes, at)? & 0x3fff);
            }
            _ => {
                let label = bytes.get(at + 1..at + 1 + usize::from(length))?;
                if !label.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|&b| char::from(b)));
                at += 1 + usize::from(length);
                if name.len() > 255 {
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read() {
        let texts = ("127.0.0.1 localhost loop # here\n::1 six\nbad line\n", "# c\nnameserver 10.0.0.53\n");
        let mut hosts = SystemHosts::from_texts(texts.0, "");
        assert_eq!(hosts.name(IpAddr::from([127, 0, 0, 1])), Some("localhost".to_owned()));
        assert_eq!(hosts.name(IpAddr::from([127, 0, 0, 2])), None);
        assert_eq!(first_server(texts.1), Some(SocketAddr::from(([10, 0, 0, 53], 53))));
    }

    #[test]
    fn a_server_is_asked() {
        let server = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let address = server.local_addr().expect("its address");
        let answering = std::thread::spawn(move || {
            let mut question = [0; 512];
            let (length, client) = server.recv_from(&mut question).expect("a question");
            let mut answer = question[..length].to_vec();
            answer[2] |= 0x80;
            answer[7] = 1;
            answer.extend_from_slice(&[0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 60, 0, 9]);
            answer.extend_from_slice(b"\x04host\x02in\0");
            server.send_to(&answer, client).expect("sent");
        });
        let mut hosts = SystemHosts { server: Some(address), ..SystemHosts::from_texts("", "") };
        assert_eq!(hosts.name(IpAddr::from([10, 1, 2, 3])), Some("host.in".to_owned()));
        answering.join().expect("no panic");
    }

    #[test]
    fn reverse_names() {
        assert_eq!(reverse_name(IpAddr::from([10, 1, 2, 3])), "3.2.1.10.in-addr.arpa");
        let six = reverse_name("2001:db8::1".parse().expect("an address"));
        assert!(six.starts_with("1.0.0.0.") && six.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{six}");
    }

    #[test]
    fn hostile_answers_are_no_names() {
        for answer in [&b""[..], &[0; 11], &[0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0xc0, 12, 0, 12, 0, 1]]
        {
            assert_eq!(name_in(answer, 1), None);
        }
        assert_eq!(read_name(&[0xc0, 0], 0), None);
    }
}
