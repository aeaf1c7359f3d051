//! Calls that wait for their reply: only the call determines the contents of its reply.

use std::net::IpAddr;

/// Capacity of the table of calls; the oldest is forgotten first. tcpdump keeps as many.
const CALLS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    transaction: u32,
    client: IpAddr,
    server: IpAddr,
    procedure: u32,
    version: u32,
}

/// The last calls, in a ring.
pub(crate) struct Calls {
    ring: [Option<Call>; CALLS_MAX],
    next: usize,
    /// The index of the last call found: the search begins near it, as transaction numbers repeat.
    hint: usize,
}

impl Calls {
    /// No call yet.
    pub(crate) const fn new() -> Calls {
        Calls { ring: [None; CALLS_MAX], next: 0, hint: 0 }
    }

    /// Remembers a call.
    pub(super) fn enter(
        &mut self,
        transaction: u32,
        client: IpAddr,
        server: IpAddr,
        procedure: u32,
        version: u32,
    ) {
        self.ring[self.next] = Some(Call { transaction, client, server, procedure, version });
        self.next = (self.next + 1) % CALLS_MAX;
    }

    /// Procedure and version of the call that a reply from `server` to `client` answers.
    pub(super) fn find(&mut self, transaction: u32, client: IpAddr, server: IpAddr) -> Option<(u32, u32)> {
        let index = (0..CALLS_MAX).map(|step| (self.hint + step) % CALLS_MAX).find(|&index| {
            self.ring[index]
                .is_some_and(|c| c.transaction == transaction && c.client == client && c.server == server)
        })?;
        self.hint = index;
        self.ring[index].map(|call| (call.procedure, call.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_finds_its_call_until_64_others_came() {
        let (client, server) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut calls = Calls::new();
        calls.enter(7, client, server, 3, 2);
        assert_eq!(calls.find(7, client, server), Some((3, 2)));
        assert_eq!(calls.find(7, server, client), None);
        for transaction in 100..164 {
            calls.enter(transaction, client, server, 1, 3);
        }
        assert_eq!(calls.find(7, client, server), None);
        assert_eq!(calls.find(163, client, server), Some((1, 3)));
    }
}
