//! Link types of a store that do not support the filter: their packets are not accepted, which is reported once and
//! counted. The filter is an error only if none of the link types that were read supports it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tapline_bpf::{Insn, PacketFilter, Program, code};
use tapline_graph::grouped;
use tapline_ir::CompiledFilter;
use tapline_packet::{LinkType, Packet};
use tapline_source::Error;

use crate::live::link_type_text;

/// Link types that cannot have the filter, met so far.
#[derive(Default)]
pub(crate) struct UnfitLinkTypes {
    /// A link type can have the filter.
    fits: AtomicBool,
    met: Mutex<Vec<Arc<Unfit>>>,
}

/// A link type that cannot have the filter.
struct Unfit {
    link_type: LinkType,
    /// The compiler's message.
    message: String,
    packets: AtomicU64,
}

/// The filter of such a link type: it accepts no packet and counts each.
impl PacketFilter for Unfit {
    fn accepts(&self, _: Packet<'_>) -> bool {
        // Relaxed: a counter on its own, read after the search.
        self.packets.fetch_add(1, Ordering::Relaxed);
        false
    }
}

impl UnfitLinkTypes {
    /// Notes that a link type can have the filter.
    pub(super) fn note_fit(&self) {
        self.fits.store(true, Ordering::Relaxed);
    }

    /// The filter for a link type that does not support the requested one. The first call for a link type prints a
    /// line.
    pub(super) fn refuse(&self, link_type: LinkType, error: &Error) -> Arc<dyn PacketFilter> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unfit) = met.iter().find(|unfit| unfit.link_type == link_type) {
            return Arc::clone(unfit) as Arc<dyn PacketFilter>;
        }
        let message = error.to_string();
        let reason = message.lines().next().unwrap_or_default();
        let name = link_type_text(link_type);
        let _ = writeln!(
            io::stderr(),
            "tapline: {name} does not support this filter, so its packets are not accepted: {reason}"
        );
        let unfit = Arc::new(Unfit { link_type, message, packets: AtomicU64::new(0) });
        met.push(Arc::clone(&unfit));
        unfit
    }

    /// The program for a link type that was refused; `None` for others.
    pub(crate) fn program(&self, link_type: LinkType) -> Option<CompiledFilter> {
        let reject = || Program::new(vec![Insn::new(code::RET | code::K, 0)]).ok();
        self.has(link_type).then(reject).flatten().map(CompiledFilter::from)
    }

    /// Whether the filter was refused for a link type.
    pub(crate) fn has(&self, link_type: LinkType) -> bool {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.iter().any(|unfit| unfit.link_type == link_type)
    }

    /// The compiler's message, if link types were met and none of them can have the filter.
    pub(crate) fn error(&self) -> Option<String> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let first = met.first().filter(|_| !self.fits.load(Ordering::Relaxed))?;
        Some(first.message.clone())
    }

    /// A line with the packets that were not accepted; `None` where every link type can have the filter.
    pub(crate) fn text(&self) -> Option<String> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |unfit: &Arc<Unfit>| {
            let packets = grouped(unfit.packets.load(Ordering::Relaxed));
            format!("{packets} of {}", link_type_text(unfit.link_type))
        };
        let parts: Vec<String> = met.iter().map(of).collect();
        (!parts.is_empty()).then(|| {
            format!(
                "packets not accepted because their link type does not support the filter: {}",
                parts.join(", ")
            )
        })
    }

    /// For machines.
    pub(crate) fn to_json(&self) -> Value {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |unfit: &Arc<Unfit>| {
            json!({
                "link_type": link_type_text(unfit.link_type),
                "packets": unfit.packets.load(Ordering::Relaxed),
                "reason": unfit.message,
            })
        };
        met.iter().map(of).collect()
    }
}
