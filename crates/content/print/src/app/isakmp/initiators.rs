//! Initiators of IKE exchanges: only the first message of an exchange shows which end began it.

use std::net::IpAddr;

/// Initiators that are remembered; tcpdump keeps as many.
const INITIATORS_MAX: usize = 20;

/// One exchange: the initiator's cookie and the addresses of both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    cookie: u64,
    ends: Option<(IpAddr, IpAddr)>,
}

/// An end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Initiator,
    Responder,
}

/// The last exchanges, in a ring.
pub(crate) struct Initiators {
    ring: [Exchange; INITIATORS_MAX],
    next: usize,
}

impl Initiators {
    /// No exchange yet.
    pub(crate) const fn new() -> Initiators {
        Initiators { ring: [Exchange { cookie: 0, ends: None }; INITIATORS_MAX], next: 0 }
    }

    /// Whether the exchange of a cookie is remembered. Places that are still empty hold the cookie 0.
    pub(super) fn knows(&self, cookie: u64) -> bool {
        self.ring.iter().any(|exchange| exchange.cookie == cookie)
    }

    /// Remembers an exchange; the oldest is forgotten first.
    pub(super) fn enter(&mut self, cookie: u64, initiator: IpAddr, responder: IpAddr) {
        self.ring[self.next] = Exchange { cookie, ends: Some((initiator, responder)) };
        self.next = (self.next + 1) % INITIATORS_MAX;
    }

    /// The end of an exchange to which an address belongs.
    pub(super) fn end(&self, cookie: u64, address: IpAddr) -> Option<End> {
        let (initiator, responder) = self.ring.iter().find(|exchange| exchange.cookie == cookie)?.ends?;
        match address {
            _ if address == initiator => Some(End::Initiator),
            _ if address == responder => Some(End::Responder),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_an_exchange_are_told_apart() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut initiators = Initiators::new();
        assert!(initiators.knows(0) && initiators.end(0, a).is_none());
        initiators.enter(7, a, b);
        assert_eq!(
            (initiators.end(7, a), initiators.end(7, b)),
            (Some(End::Initiator), Some(End::Responder))
        );
        assert_eq!(initiators.end(7, IpAddr::from([10, 0, 0, 3])), None);
        for cookie in 100..120 {
            initiators.enter(cookie, a, b);
        }
        assert!(!initiators.knows(7));
    }
}
