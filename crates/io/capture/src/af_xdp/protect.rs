//! Whom a capture would cut off.
//!
//! AF_XDP takes packets from the host. An interface by which the person at the terminal came, or by which the host
//! reaches the world, is not taken by mistake: neither with all its packets, nor with a filter that matches the
//! session.
//!
//! ```text
//! way       = the interface to which the kernel routes an address, and those that it stands on: VLAN's lower one, ports of a bridge or bond
//! protected = the way to the other end of the SSH session, the ways of the default routes
//! ```
//!
//! sudo takes the session's address out of the environment; so the environments of the processes above ours are asked
//! too.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use tapline_ir::{Ir, Machine, Memory};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_sys::{Link, RouteSocket, SyscallError};

use super::AfXdpError;

/// Processes above ours that are asked.
const ANCESTORS_MAX: usize = 32;

/// An SSH session: its other end, and ours if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    peer: SocketAddr,
    /// The port that the session was made to.
    port: u16,
    local: Option<IpAddr>,
}

/// The address of this host to which the SSH session was made that this process runs in, if it runs in one.
pub fn address_of_ssh_session() -> Option<IpAddr> {
    Session::ours()?.local
}

impl Session {
    /// The one that this process runs in.
    pub(super) fn ours() -> Option<Session> {
        let own = |name| std::env::var(name).ok();
        let here = own("SSH_CONNECTION").or_else(|| own("SSH_CLIENT")).and_then(|text| Session::parse(&text));
        here.or_else(|| above(std::process::id()))
    }

    /// `PEER PORT LOCAL PORT` (`SSH_CONNECTION`) or `PEER PORT LOCAL-PORT` (`SSH_CLIENT`).
    fn parse(text: &str) -> Option<Session> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let address = |word: &str| word.split('%').next()?.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        let peer = SocketAddr::new(address(words.first()?)?, words.get(1)?.parse().ok()?);
        let local = if words.len() == 4 { address(words[2]) } else { None };
        Some(Session { peer, port: words.last()?.parse().ok()?, local })
    }

    /// Whether a filter for Ethernet takes some of what the other end may send: short and long segments, with and
    /// without PSH, with a tag or none. Link addresses and payload are not known here.
    fn is_taken_by(&self, front: &Ir) -> bool {
        const ACK: u8 = 0x10;
        const PSH: u8 = 0x08;
        let (mut machine, memory) = (Machine::new(front.clone()), Memory::new(0));
        let shapes = [ACK, ACK | PSH].into_iter().flat_map(|flags| [0, 1000].map(|len| (flags, len)));
        shapes.flat_map(|(flags, len)| [false, true].map(|tag| self.frame(flags, len, tag))).any(|frame| {
            let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
            machine.run(Packet { data: &frame, meta: &meta }, &memory) != 0
        })
    }

    /// A TCP segment of the session, with this many bytes of payload.
    fn frame(&self, flags: u8, payload: u16, has_tag: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0x00, 0x00, 0x01].iter().filter(|_| has_tag));
        let segment = 20 + payload;
        match self.peer.ip() {
            IpAddr::V4(peer) => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((20 + segment).to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                frame.extend(peer.octets());
                frame.extend(match self.local {
                    Some(IpAddr::V4(local)) => local.octets(),
                    _ => [0; 4],
                });
            }
            IpAddr::V6(peer) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(segment.to_be_bytes());
                frame.extend([6, 64]);
                frame.extend(peer.octets());
                frame.extend(match self.local {
                    Some(IpAddr::V6(local)) => local.octets(),
                    _ => [0; 16],
                });
            }
        }
        frame.extend(self.peer.port().to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        // Sequence number and acknowledgement, header length, flags, window, checksum, urgent pointer.
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + usize::from(payload), 0);
        frame
    }
}

fn above(process: u32) -> Option<Session> {
    let mut process = process;
    for _ in 0..ANCESTORS_MAX {
        process = parent(process).filter(|parent| *parent > 1)?;
        // Of processes of other users only root may see it.
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut words =
            environment.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
        if let Some(session) =
            words.find_map(|word| word.strip_prefix("SSH_CONNECTION=").and_then(Session::parse))
        {
            return Some(session);
        }
    }
    None
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The packets to be taken: all, or those of the filter in front.
pub(super) struct Taking<'a> {
    pub(super) front: Option<&'a Ir>,
    /// Whether that is the whole filter, and no weaker part, which may take all packets.
    pub(super) is_whole: bool,
    pub(super) link_type: LinkType,
}

/// Refuses an interface that should not be taken.
///
/// # Errors
/// [`AfXdpError::CutsSession`], [`AfXdpError::CutsHost`]; the kernel's error for a query of routes.
pub(super) fn check(
    target: &Link,
    links: &[Link],
    session: Option<&Session>,
    taking: &Taking<'_>,
    route: &mut RouteSocket,
) -> Result<(), AfXdpError> {
    if let Some(session) = session {
        let peer = session.peer.ip();
        let what = match taking.front {
            None => Some("all its packets"),
            Some(front) if taking.link_type == LinkType::ETHERNET => {
                session.is_taken_by(front).then_some("what the filter matches, the session too,")
            }
            Some(_) => Some("what the filter matches, which is unknown for this link layer,"),
        };
        let way = route_to(peer, route)?;
        if let Some(what) = what.filter(|_| carries(target.index, way.as_slice(), links)) {
            return Err(AfXdpError::CutsSession { peer, what });
        }
    }
    let is_default = !taking.is_whole && carries(target.index, &route.default_routes()?, links);
    if is_default { Err(AfXdpError::CutsHost) } else { Ok(()) }
}

fn route_to(peer: IpAddr, route: &mut RouteSocket) -> Result<Vec<u32>, SyscallError> {
    Ok(route.route_to(peer)?.into_iter().collect())
}

/// Whether packets of these interfaces pass this one.
fn carries(index: u32, ways: &[u32], links: &[Link]) -> bool {
    let mut found: Vec<u32> = ways.to_vec();
    let mut next = 0;
    while let Some(&way) = found.get(next) {
        next += 1;
        for link in links {
            // The other end of a veth is not below it.
            let is_below =
                links.iter().any(|w| w.index == way && w.kind != "veth" && w.peer == Some(link.index));
            let is_port = link.controller == Some(way);
            if (is_below || is_port) && !found.contains(&link.index) {
                found.push(link.index);
            }
        }
    }
    found.contains(&index)
}

#[cfg(test)]
mod tests {
    use tapline_filter::{Options, compile};

    use super::*;

    fn session(text: &str) -> Session {
        Session::parse(text).unwrap()
    }

    #[test]
    fn sessions_as_sshd_writes_them() {
        let ours = session("192.0.2.7 51022 198.51.100.1 2222");
        assert_eq!(ours.peer, "192.0.2.7:51022".parse().unwrap());
        assert_eq!((ours.port, ours.local), (2222, Some("198.51.100.1".parse().unwrap())));
        assert_eq!(session("::ffff:192.0.2.7 51022 22").peer.ip(), "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!(session("fe80::1%eth0 5 fe80::2%eth0 22").local, Some("fe80::2".parse().unwrap()));
        for text in ["", "here", "192.0.2.7", "192.0.2.7 x 22", "192.0.2.7 70000 22"] {
            assert_eq!(Session::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_filter_that_matches_the_session_is_noticed() {
        for text in ["192.0.2.7 51022 198.51.100.1 2222", "2001:db8::7 51022 2001:db8::1 2222"] {
            let session = session(text);
            let takes = |filter: &str| {
                session.is_taken_by(compile(filter, &Options::new(LinkType::ETHERNET)).unwrap().values())
            };
            assert!(takes("tcp") && takes("port 2222") && takes("src port 51022 and not udp"), "{text}");
            assert!(takes("greater 1000") && takes("less 80") && takes("vlan and port 2222"), "{text}");
            let is_v4 = session.peer.is_ipv4();
            assert_eq!(
                takes("tcp[tcpflags] & tcp-push != 0"),
                is_v4,
                "without extensions(...) tcp[...] is IPv4's: {text}"
            );
            assert!(!takes("vlan and udp") && !takes("greater 1200"), "{text}");
            assert!(!takes("udp") && !takes("tcp and not port 2222") && !takes("port 80"), "{text}");
        }
    }

    #[test]
    fn lower_interfaces_are_protected_too() {
        let link = |index, kind: &str, peer, controller| Link {
            index,
            kind: kind.to_owned(),
            peer,
            controller,
            ..Link::default()
        };
        // A VLAN on a bond of two; a veth whose other end is a port of a bridge.
        let links = [
            link(1, "", None, Some(3)),
            link(2, "", None, Some(3)),
            link(3, "bond", None, None),
            link(4, "vlan", Some(3), None),
            link(5, "veth", Some(6), None),
            link(6, "veth", Some(5), Some(7)),
            link(7, "bridge", None, None),
            link(8, "", None, None),
        ];
        let carried = |way| (1..=8).filter(|index| carries(*index, &[way], &links)).collect::<Vec<u32>>();
        assert_eq!(carried(4), [1, 2, 3, 4]);
        assert_eq!((carried(5), carried(7)), (vec![5], vec![6, 7]));
        assert_eq!((carried(8), carried(99)), (vec![8], vec![]));
    }

    #[test]
    fn a_process_above_has_a_number() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }
}
