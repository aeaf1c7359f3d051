//! The account for machines.

use serde_json::{Map, Value, json};
use tapline_graph::{ChainCounts, GraphAccount, StageAccount};
use tapline_source::{
    FilterAccount, InterfaceAccount, Loss, LossCounts, OutputAccount, SkipCause, UnfitLinkType,
};

use crate::live::link_type_text;

/// The account as one JSON object, `{"account": ...}`; unknown numbers are null.
pub(crate) fn json(account: &GraphAccount) -> Value {
    let faults = account.faults();
    let mut value = json!({
        "interfaces": account.interfaces.iter().map(interface_json).collect::<Vec<_>>(),
        "delivered": account.delivered,
        "unexamined": account.unexamined,
        "lost": account.lost(),
        "balanced": faults.is_empty(),
        "faults": faults,
    });
    if let Some(ChainCounts { filtered, filter, accepted, unexamined }) = account.chain() {
        value["filtered"] = filtered.into();
        value["filter"] = filter_json(&filter);
        value["accepted"] = accepted.into();
        value["unexamined"] = unexamined.into();
        value["outputs"] = account.outputs().map(output_json).collect();
        if !filter.unfit.is_empty() {
            value["unfit_link_types"] = unfit_json(&filter);
        }
    } else {
        value["paused"] = account.paused.into();
        value["stages"] = account.stages.iter().map(stage_json).collect();
    }
    json!({ "account": value })
}

fn stage_json(stage: &StageAccount) -> Value {
    let mut value = json!({
        "name": stage.name,
        "class": stage.class,
        "received": stage.received,
        // Packets that collected flows count: received beside those of the edges.
        "reported": stage.counters.reported,
        "bytes": stage.bytes,
        "passed": stage.passed,
        "refused": stage.refused(),
        "held": stage.counters.held,
        "unexamined": stage.counters.unexamined,
        "recordings_lost": stage.counters.recordings_lost,
        "filter": stage.counters.filter.as_ref().map(filter_json),
        "output": stage.counters.output.as_ref().map(output_json),
    });
    if let Some(filter) = stage.counters.filter.as_ref().filter(|filter| !filter.unfit.is_empty()) {
        value["unfit_link_types"] = unfit_json(filter);
    }
    value
}

/// Link types that cannot have a filter.
fn unfit_json(filter: &FilterAccount) -> Value {
    let of = |unfit: &UnfitLinkType| {
        json!({
            "link_type": link_type_text(unfit.link_type),
            "packets": unfit.packets,
            "reason": unfit.reason,
        })
    };
    filter.unfit.iter().map(of).collect()
}

pub(crate) fn interface_json(interface: &InterfaceAccount) -> Value {
    // One that could not be captured has no ring that counted 0.
    let is_captured = !interface.is_uncaptured();
    json!({
        "name": interface.name,
        "losses": interface.losses.iter().map(loss_json).collect::<Vec<_>>(),
        "kernel_filtered": interface.kernel_filtered.known().filter(|_| is_captured),
        "ring": interface.ring.filter(|_| is_captured).map(|ring| json!({
            "received": ring.received,
            "dropped": ring.dropped,
            "freezes": ring.freezes,
            "unread": ring.unread,
        })),
        // With AF_XDP: of what the ring dropped, where; and what the kernel counts besides.
        "xdp": interface.xdp.map(|xdp| json!({
            "rx_dropped": xdp.no_room,
            "rx_ring_full": xdp.ring_full,
            "rx_fill_ring_empty_descs": xdp.fill_empty,
            "rx_invalid_descs": xdp.invalid,
            "several_buffers": xdp.joined,
        })),
        // From a capture of tapline serve: what it had for us, and what was lost of that.
        "tap": interface.tap.map(|tap| json!({
            "offered": tap.offered,
            "index_full": tap.index_full,
            "overwritten": tap.overwritten,
            "damaged": tap.damaged,
            "unread": tap.unread,
        })),
        // Packets that ended in a count in the kernel, of those received.
        "counted": interface.counted.map(|counted| json!({
            "packets": counted.packets,
            "bytes": counted.bytes,
        })),
        "partial": interface.is_partial,
        "delivered": interface.delivered,
    })
}

fn loss_json(loss: &Loss) -> Value {
    json!({"place": loss.place.name(), "counter": loss.counter, "count": loss.count.known()})
}

fn output_json(output: &OutputAccount) -> Value {
    let OutputAccount { name, written, lost, lost_by, buffered, skipped } = output;
    let mut value = json!({"name": name, "written": written, "lost": lost, "buffered": buffered});
    let unsent = unsent_json(*skipped, lost_by);
    if !unsent.is_empty() {
        value["unsent"] = unsent.into();
    }
    value
}

/// Packets that an output left out or lost, by the name of the cause.
pub(crate) fn unsent_json(skipped: Option<(SkipCause, u64)>, lost: &LossCounts) -> Map<String, Value> {
    let skipped = skipped.filter(|(_, packets)| *packets > 0).map(|(cause, packets)| (cause.name(), packets));
    let lost = lost.iter().map(|(cause, packets)| (cause.name(), packets));
    skipped.into_iter().chain(lost).map(|(name, packets)| (name.to_owned(), packets.into())).collect()
}

/// The engines by number, null without a filter in user space.
fn filter_json(filter: &FilterAccount) -> Value {
    let FilterAccount { interpreted, compiled, compiled_after, reason, .. } = filter;
    if interpreted + compiled == 0 {
        return Value::Null;
    }
    json!({"interpreted": interpreted, "native": compiled, "native_after": compiled_after, "reason": reason})
}
