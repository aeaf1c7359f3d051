//! Keeps the first sequence numbers of TCP connections, to show later numbers relative to them.
//!
//! One entry serves both directions: its `first` end is the one with the lower port (with equal ports, the lower
//! address). Any fixed order would do, as long as both directions find the same entry.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::link::slip::Lengths;

/// Maximum number of connections. When it is reached, all are forgotten, and their next segments are shown with
/// absolute numbers. This bounds the memory without ordering connections by age.
const CONNECTIONS_MAX: usize = 1 << 18;

/// Both ends of a connection, the first end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends {
    first: (IpAddr, u16),
    second: (IpAddr, u16),
}

/// Origin of each end: the sequence number of its bytes that is shown as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Origin {
    first: u32,
    second: u32,
}

/// Sequence and acknowledgement number of a segment as they are shown, and the base for its selective acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relative {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) sack_base: u32,
}

/// Connections seen so far.
pub(crate) struct Connections {
    origins: HashMap<Ends, Origin>,
    /// Lengths of earlier packets, needed to read compressed SLIP headers. They are here because they, too, are needed
    /// from packet to packet.
    pub(crate) slip: Lengths,
}

impl Connections {
    pub(crate) fn new() -> Connections {
        Connections { origins: HashMap::new(), slip: Lengths::new() }
    }

    /// Returns the numbers to show for a segment that has ACK set. The first segment of a connection, and each that
    /// opens one (`opens`: SYN), sets the origin and is shown with absolute numbers.
    pub(crate) fn relative(
        &mut self,
        source: (IpAddr, u16),
        destination: (IpAddr, u16),
        (seq, ack): (u32, u32),
        opens: bool,
    ) -> Relative {
        let reversed = source.1 > destination.1 || (source.1 == destination.1 && source.0 > destination.0);
        let ends = if reversed {
            Ends { first: destination, second: source }
        } else {
            Ends { first: source, second: destination }
        };
        // The acknowledged end has sent everything before `ack`: with `ack - 1` as its origin, its next byte is 1.
        let origin = if reversed {
            Origin { first: ack.wrapping_sub(1), second: seq }
        } else {
            Origin { first: seq, second: ack.wrapping_sub(1) }
        };
        let known = if opens { None } else { self.origins.get(&ends).copied() };
        let Some(known) = known else {
            self.remember(ends, origin);
            // As in tcpdump: `seq` and `ack` of this segment are absolute, selective acknowledgements are relative.
            let sack_base = if reversed { origin.first } else { origin.second };
            return Relative { seq, ack, sack_base };
        };
        let (mine, other) = if reversed { (known.second, known.first) } else { (known.first, known.second) };
        Relative { seq: seq.wrapping_sub(mine), ack: ack.wrapping_sub(other), sack_base: other }
    }

    fn remember(&mut self, ends: Ends, origin: Origin) {
        if self.origins.len() >= CONNECTIONS_MAX {
            self.origins.clear();
        }
        self.origins.insert(ends, origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_share_an_origin() {
        let client = (IpAddr::from([10, 0, 0, 1]), 40_000);
        let server = (IpAddr::from([10, 0, 0, 2]), 80);
        let mut connections = Connections::new();
        let first = connections.relative(server, client, (5000, 1001), true);
        assert_eq!((first.seq, first.ack), (5000, 1001));
        let reply = connections.relative(client, server, (1001, 5001), false);
        assert_eq!((reply.seq, reply.ack), (1, 1));
        let data = connections.relative(server, client, (5001, 1001), false);
        assert_eq!((data.seq, data.ack), (1, 1));
    }
}
