//! Selects packets of a store that contain a name, in addition to the filter.

use std::cell::RefCell;
use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_packet::{Batch, Interface, LinkType, Packet, Selection};
use tapline_store::{NameFilter, NameMatcher, SearchFilter};

thread_local! {
    /// The matcher's buffers, of each thread that searches.
    static MATCHER: RefCell<NameMatcher> = RefCell::default();
}

/// Decides over the packets of an interface.
struct ByName {
    names: Arc<[NameFilter]>,
    link_type: LinkType,
    /// The filter, which is asked first.
    filter: Option<Arc<dyn PacketFilter>>,
}

impl ByName {
    fn says_name(&self, packet: Packet<'_>) -> bool {
        MATCHER.with_borrow_mut(|matcher| matcher.accepts(&self.names, self.link_type, packet))
    }
}

impl PacketFilter for ByName {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.accepts(packet)) && self.says_name(packet)
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        if let Some(filter) = &self.filter {
            filter.select(batch, selection);
        }
        selection.retain(|index| self.says_name(batch.packet(index)));
    }
}

/// Packets that a filter accepts, and that say any of these names.
pub(super) fn sieve(names: &[NameFilter], filter: Option<SearchFilter>) -> SearchFilter {
    let names: Arc<[NameFilter]> = names.into();
    Arc::new(move |interface: &Interface| {
        let filter = filter.as_ref().map_or(Ok(None), |filter| filter(interface))?;
        let (names, link_type) = (Arc::clone(&names), interface.link_type);
        Ok(Some(Arc::new(ByName { names, link_type, filter }) as Arc<dyn PacketFilter>))
    })
}
