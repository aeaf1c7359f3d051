//! Places of the endpoints of flows, for templates that have them.

use std::sync::Arc;

use tapline_geo::{Place, Places};

use super::Element;
use crate::Flow;

/// The files of places, once there are some, for records whose template has elements of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaceLookup {
    is_needed: bool,
    places: Option<Arc<Places>>,
}

impl PlaceLookup {
    /// For records of these elements.
    pub(crate) fn of<'e>(mut elements: impl Iterator<Item = &'e Element>) -> PlaceLookup {
        PlaceLookup { is_needed: elements.any(Element::has_place), places: None }
    }

    /// Whether there are files to be asked.
    pub(crate) fn is_set(&self) -> bool {
        self.places.is_some()
    }

    /// Sets the files that are asked from now on.
    pub(crate) fn set(&mut self, places: &Arc<Places>) {
        self.places = self.is_needed.then(|| Arc::clone(places));
    }

    /// The places of a flow's endpoints.
    pub(crate) fn of_flow(&self, flow: &Flow) -> Option<[Place<'_>; 2]> {
        let places = self.places.as_deref()?;
        Some(flow.endpoints.each_ref().map(|endpoint| places.of(endpoint.address)))
    }
}
