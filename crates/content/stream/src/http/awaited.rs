//! Matches responses to requests.
//!
//! ```text
//! nothing is lost     the first request that awaits a response (RFC 9112, 9.3.2)
//! requests are lost   the same for those from before the loss; behind them as below
//! responses are lost  the only request that the server received since its last response, or the only one of them
//!                     whose client had received all before this response; else unknown
//! ```
//!
//! Acknowledgements show how much each end had received when it sent a message. The last rule holds for clients that
//! send one request at a time, and its first match makes the order known again.

use std::collections::VecDeque;

/// Requests whose responses are awaited.
const REQUESTS_MAX: usize = 256;
/// Bytes of their texts.
pub(super) const BYTES_MAX: usize = 64 << 10;

/// The part of a request that its response depends on. Texts are as they were sent, cut at 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Method of the request.
    pub method: String,
    /// Target of the request.
    pub target: String,
    /// `Host`, empty without one.
    pub host: String,
    /// The offset behind its head.
    pub(super) end: u64,
    /// The offset up to which the client had received responses, if that is known.
    pub(super) received: Option<u64>,
}

impl Request {
    fn len(&self) -> usize {
        self.method.len() + self.target.len() + self.host.len()
    }
}

/// Requests whose responses are awaited. With more than there is room for, all are forgotten.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    requests: VecDeque<Request>,
    /// Bytes of their texts.
    pub(super) bytes: usize,
    /// Messages may be missing.
    is_uncertain: bool,
    /// The requests at the front whose responses come in their order all the same.
    in_order: usize,
    /// The offset up to which the server had received requests at its last response.
    answered: u64,
}

impl Awaited {
    pub(super) fn push(&mut self, request: Request) {
        if self.requests.len() == REQUESTS_MAX || self.bytes + request.len() > BYTES_MAX {
            self.clear();
        }
        // A request that comes late, out of a gap, may be answered already.
        if !self.is_uncertain || request.end > self.answered {
            self.bytes += request.len();
            self.requests.push_back(request);
        }
    }

    /// The request of the response that begins at `start`, and whose packet acknowledges requests up to an offset.
    pub(super) fn take(&mut self, start: u64, acknowledged: Option<u64>) -> Option<Request> {
        let is_received = |request: &Request| acknowledged.is_none_or(|end| request.end <= end);
        self.answered = acknowledged.unwrap_or(self.answered);
        if !self.is_uncertain || self.in_order > 0 {
            self.in_order = self.in_order.saturating_sub(1);
            if self.requests.front().is_some_and(is_received) {
                return self.pop();
            }
            // It answers a request that was not seen yet.
            self.lose_responses();
        }
        let count = self.requests.iter().take_while(|request| is_received(request)).count();
        let is_next = |&at: &usize| self.requests[at].received == Some(start);
        let mut next = (0..count).filter(is_next);
        let matched = match (count, next.next(), next.next()) {
            (1, ..) => Some(0),
            (_, Some(at), None) => Some(at),
            _ => None,
        };
        self.is_uncertain = matched.is_none();
        let mut last = None;
        for _ in 0..matched.map_or(count, |at| at + 1) {
            last = self.pop();
        }
        last.filter(|_| matched.is_some())
    }

    /// Notes that requests may be missing.
    pub(super) fn lose_requests(&mut self) {
        if !self.is_uncertain {
            (self.is_uncertain, self.in_order) = (true, self.requests.len());
        }
    }

    /// Notes that responses may be missing.
    pub(super) fn lose_responses(&mut self) {
        (self.is_uncertain, self.in_order) = (true, 0);
    }

    /// Forgets all requests.
    pub(super) fn clear(&mut self) {
        self.requests = VecDeque::new();
        self.bytes = 0;
        self.lose_responses();
    }

    fn pop(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.len();
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ends: &[u64]) -> Awaited {
        let mut awaited = Awaited::default();
        for end in ends {
            awaited.push(Request { end: *end, ..Request::default() });
        }
        awaited
    }

    fn take(awaited: &mut Awaited, acknowledged: u64) -> Option<u64> {
        awaited.take(0, Some(acknowledged)).map(|request| request.end)
    }

    #[test]
    fn without_losses_the_order_matches() {
        let mut awaited = with(&[10, 20, 30]);
        assert_eq!([20, 30, 30].map(|end| take(&mut awaited, end)), [Some(10), Some(20), Some(30)]);
        assert_eq!((take(&mut awaited, 30), awaited.bytes), (None, 0));
    }

    #[test]
    fn after_a_lost_response_acknowledgements_match() {
        let mut awaited = with(&[10, 20]);
        awaited.lose_responses();
        // The first was answered by the lost response, or by this one.
        assert_eq!(take(&mut awaited, 20), None);
        awaited.push(Request { end: 30, ..Request::default() });
        assert_eq!(take(&mut awaited, 30), Some(30));
        assert!(!awaited.is_uncertain);
        // One of two is known by what the server had received.
        let mut awaited = with(&[10, 20]);
        awaited.lose_responses();
        assert_eq!([10, 20].map(|end| take(&mut awaited, end)), [Some(10), Some(20)]);
    }

    #[test]
    fn clients_that_wait_determine_the_next_response() {
        let mut awaited = Awaited::default();
        for (end, received) in [(10, 0), (20, 0), (30, 500)] {
            awaited.push(Request { end, received: Some(received), ..Request::default() });
        }
        awaited.lose_responses();
        assert_eq!(awaited.take(500, Some(30)).map(|request| request.end), Some(30));
        // Two that were sent at once.
        let mut awaited = Awaited::default();
        for end in [10, 20] {
            awaited.push(Request { end, received: Some(0), ..Request::default() });
        }
        awaited.lose_responses();
        assert_eq!(awaited.take(0, Some(20)), None);
    }

    #[test]
    fn requests_from_before_a_loss_keep_their_order() {
        let mut awaited = with(&[10, 20]);
        awaited.lose_requests();
        awaited.push(Request { end: 50, ..Request::default() });
        assert_eq!([50, 50].map(|end| take(&mut awaited, end)), [Some(10), Some(20)]);
        assert_eq!(take(&mut awaited, 40), None, "the one that was lost");
        assert_eq!(take(&mut awaited, 50), Some(50));
    }

    #[test]
    fn late_requests_match_no_other_response() {
        let mut awaited = with(&[]);
        assert_eq!(take(&mut awaited, 20), None);
        for end in [20, 30] {
            awaited.push(Request { end, ..Request::default() });
        }
        assert_eq!(take(&mut awaited, 30), Some(30));
    }
}
