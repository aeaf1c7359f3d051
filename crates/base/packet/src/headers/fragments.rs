//! Fragments that follow their flow: a bounded memory of first fragments.
//!
//! ```text
//! first fragment   addresses, protocol, identification --> hash of its flow, as it has ports
//! later fragment   the same three                      --> that hash; without it (early, or forgotten) one of addresses
//! ```

use super::Headers;

/// First fragments that are remembered: each has one place, and the next one with that place takes it.
const PLACES: usize = 4096;
/// The seed of places.
const SEED: u64 = 0x6672_6167_0000_0000;

/// Remembers the flows of packets in fragments. Takes 64 KiB from the first fragment on.
#[derive(Clone, Debug, Default)]
pub struct FragmentFlows {
    /// The fragmented packet, and the hash of its flow.
    places: Vec<(u64, u64)>,
    early: u64,
}

impl FragmentFlows {
    /// [`Headers::flow_hash`], but fragments have the hash of their flow's whole packets if their first fragment came
    /// before and is remembered.
    pub fn flow_hash(&mut self, headers: &Headers, data: &[u8], seed: u64) -> u64 {
        match headers.fragment() {
            None => headers.flow_hash(data, seed),
            Some(fragment) => {
                let packet = headers.flow_hash(data, SEED ^ u64::from(fragment.id));
                self.of_fragment(headers, data, (packet, fragment.is_later()), seed)
            }
        }
    }

    #[cold]
    fn of_fragment(
        &mut self,
        headers: &Headers,
        data: &[u8],
        (packet, is_later): (u64, bool),
        seed: u64,
    ) -> u64 {
        if self.places.is_empty() {
            self.places = vec![(0, 0); PLACES];
        }
        let place = &mut self.places[packet as usize % PLACES];
        if !is_later {
            *place = (packet, Headers { fragment: None, ..*headers }.flow_hash(data, seed));
            return place.1;
        }
        if place.0 == packet {
            return place.1;
        }
        self.early += 1;
        headers.flow_hash(data, seed)
    }

    /// Later fragments whose first fragment was not remembered, since the last call.
    pub fn take_early(&mut self) -> u64 {
        std::mem::take(&mut self.early)
    }
}
