//! Captures and their interfaces, as clients may know them.

use tapline_tap_client::protocol::{OfferedCapture, Reply};

use super::{Server, name, rights};
use crate::client::Client;
use crate::log_budget::quoted;
use crate::{AccessRule, Capture, ClientIdentity};

/// The longest list of interfaces of all captures in a message, in bytes: it is sent without waiting for the client.
pub(super) const OFFERED_LEN_MAX: usize = 96 << 10;

impl Server {
    /// The captures that a client may read.
    pub(super) fn offers(&self, who: &ClientIdentity) -> Vec<OfferedCapture> {
        let len_max = OFFERED_LEN_MAX / self.captures.len().max(1);
        let offer = |capture: &Capture| {
            let access = self.rules.access(who, &capture.rule().name, self.ours)?;
            Some(offer(capture, &access, len_max))
        };
        self.captures.iter().filter_map(offer).collect()
    }

    /// Interfaces of a capture that a client may read, from a number on.
    ///
    /// # Errors
    /// The refusal, for the client to read.
    pub(super) fn interfaces(
        &mut self,
        client: &Client,
        capture: &str,
        from: u32,
        log: &mut dyn FnMut(&str),
    ) -> Result<Reply, String> {
        let found = self.captures.iter().find(|known| known.rule().name == capture);
        let access = self.rules.access(&client.who, capture, self.ours);
        let Some((known, _)) = found.zip(access) else {
            let what = format!("{}: {} is not there for them", name(client), quoted(capture));
            self.refuse(client.who.uid, log, &what);
            return Err(self.no_such_capture(&client.who, capture));
        };
        Ok(Reply::Interfaces { from, list: known.interfaces().offered(from, OFFERED_LEN_MAX) })
    }
}

/// A capture as readers with this access know it, with `len_max` bytes of interfaces.
pub(super) fn offer(capture: &Capture, access: &AccessRule, len_max: usize) -> OfferedCapture {
    OfferedCapture {
        name: capture.rule().name.clone(),
        interfaces: capture.interfaces().offered(0, len_max),
        forced_filter: access.filter.clone(),
        snap_len: rights(capture, access).snap_len,
    }
}
