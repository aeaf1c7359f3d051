//! Totals of the flows that fit a filter and have a row, and the most that may fit as well.

use std::net::IpAddr;

use serde::Serialize;
use tapline_view::{Amount, Dimension, KeyValue, Row, Table};

use crate::feed::Snapshot;
use crate::filter_line::FilterLine;

/// Totals of a filter. Each second has rows of 256 flows at most.
#[derive(Clone, Debug, Serialize)]
pub struct Fitting {
    /// The filter, where words of the line were read as parts of it: `443` as `port 443`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_as: Option<String>,
    /// In the last second.
    pub second: FittingPart,
    /// In the window.
    pub window: FittingPart,
}

/// Totals of the flows that fit. Amounts are packets and bytes, as flows count them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FittingPart {
    /// All packets of these flows.
    pub amount: [u64; 2],
    /// The part that the host of the meter sent to others.
    pub sent: [u64; 2],
    /// The part that it received.
    pub received: [u64; 2],
    /// Flows.
    pub flows: u64,
    /// Flows without a row, which may fit as well.
    pub unseen: [u64; 2],
}

impl Fitting {
    pub(crate) fn of(filter: &FilterLine, snapshot: &Snapshot, window: usize) -> Option<Fitting> {
        if filter.is_empty() {
            return None;
        }
        let part =
            |seconds| FittingPart::of(&snapshot.window(Dimension::Flow, seconds), filter, snapshot.own());
        let read_as = filter.read_as().map(str::to_owned);
        Some(Fitting { read_as, second: part(1), window: part(window) })
    }
}

impl FittingPart {
    pub(crate) fn of(flows: &Table, filter: &FilterLine, own: &[IpAddr]) -> FittingPart {
        let (mut all, mut out, mut back, mut count) = <(Amount, Amount, Amount, u64)>::default();
        for row in flows.rows.iter().filter(|row| filter.fits(row)) {
            all.add(row.amount);
            count = count.saturating_add(1);
            if let Some([sent, received]) = directions(row, own) {
                out.add(sent);
                back.add(received);
            }
        }
        let pair = |amount: Amount| [amount.packets, amount.bytes];
        FittingPart {
            amount: pair(all),
            sent: pair(out),
            received: pair(back),
            flows: count,
            unseen: pair(flows.others),
        }
    }
}

/// The parts of a flow that this host sent and received; `None` for a flow that is not between it and another.
fn directions(row: &Row, own: &[IpAddr]) -> Option<[Amount; 2]> {
    let KeyValue::Flow(_, from, to) = row.key.value(Dimension::Flow) else { return None };
    let (first, rest) = (row.first, row.amount.less(row.first));
    match [from, to].map(|(address, _)| own.contains(&address)) {
        [true, false] => Some([first, rest]),
        [false, true] => Some([rest, first]),
        _ => None,
    }
}
