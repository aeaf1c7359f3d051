//! Filters of a set that a link type cannot have: they accept none of its packets, and an event says so.

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filterset::Filter;
use tapline_packet::{Interface, Packet};
use tapline_source::Error;

/// A sentence about a filter that an interface cannot have.
pub(super) fn unfit_text(interface: &Interface, filter: &str, reason: &str) -> String {
    let name = if interface.label().is_empty() { "an interface" } else { interface.label() };
    let (link_type, why) = (interface.link_type, reason.lines().next().unwrap_or_default());
    format!(
        "{name}: its link type {link_type} does not support {filter}, which accepts none of its packets: {why}"
    )
}

/// A filter that accepts nothing.
pub(super) fn rejecting() -> Filter {
    Filter::from_program(Arc::new(Rejecting))
}

/// The program of [`rejecting`].
pub(super) struct Rejecting;

impl PacketFilter for Rejecting {
    fn accepts(&self, _: Packet<'_>) -> bool {
        false
    }
}

/// Filters of one stage, by their places, and whether some link type could have them.
#[derive(Default)]
pub(super) struct UnfitFilters {
    places: Vec<StageFit>,
    events: Vec<String>,
}

#[derive(Clone, Default)]
struct StageFit {
    fits: bool,
    /// The message of the first link type that cannot have it.
    reason: Option<String>,
}

impl UnfitFilters {
    /// The filter at a place for an interface: the one that was made, or one that accepts nothing.
    pub(super) fn or_reject(
        &mut self,
        place: usize,
        interface: &Interface,
        made: Result<Filter, String>,
    ) -> Result<Filter, Error> {
        if self.places.len() <= place {
            self.places.resize(place + 1, StageFit::default());
        }
        let known = &mut self.places[place];
        let reason = match made {
            Ok(filter) => {
                known.fits = true;
                return Ok(filter);
            }
            Err(reason) => reason,
        };
        self.events.push(unfit_text(interface, &format!("filter {place}"), &reason));
        known.reason.get_or_insert(reason);
        Ok(rejecting())
    }

    /// An error if some filter fits no link type that was met.
    pub(super) fn check(&self) -> Result<(), Error> {
        let never = self.places.iter().filter(|place| !place.fits).find_map(|place| place.reason.clone());
        never.map_or(Ok(()), |reason| Err(Error::Filter(reason)))
    }

    pub(super) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}
