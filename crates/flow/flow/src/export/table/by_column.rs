//! Flows into a table column by column: the source of a column is determined once, not for every row.
//!
//! ```text
//! flows --octetDeltaCount--> loop over flows and directions --> vector
//! flows --rarer elements---> row by row, as lines are made  --> vector
//! ```

use std::net::IpAddr;

use tapline_geo::Place;
use tapline_packet::Timestamp;

use super::{Column, ColumnSource, ColumnType, Data, PRESENT, Values, version_of};
use crate::export::element::{RowContext, Value, is_known, millis};
use crate::flow::NO_TIME;
use crate::{Endpoint, Flow, FlowContext};

impl Values {
    /// The values of flows; the bytes that they took. `places` are those of each flow, or none at all.
    pub(super) fn push_flows(
        &mut self,
        column: &Column,
        flows: &[Flow],
        context: RowContext<'_>,
        places: &[Option<[Place<'_>; 2]>],
    ) -> usize {
        if !context.is_biflow
            && let ColumnSource::Element { element, is_reverse: false } = &column.what
            && flows.iter().all(|flow| is_known_of_all(flow, element.value))
            && let Some(bytes) = self.push_plain(element.value, column, flows)
        {
            return bytes;
        }
        let mut bytes = 0;
        for (at, flow) in flows.iter().enumerate() {
            let places = places.get(at).and_then(Option::as_ref);
            let context = RowContext { places, ..context };
            context.for_each_row(flow, |view, _| bytes += self.push_field(column, view));
        }
        bytes
    }

    /// Pushes values of elements that most templates have, a row for each direction; `None` for others.
    fn push_plain(&mut self, value: Value, column: &Column, flows: &[Flow]) -> Option<usize> {
        if let (Data::Addresses(_), Value::SourceAddress | Value::DestinationAddress) = (&self.data, value) {
            return Some(self.push_addresses(value, column, flows));
        }
        // Columns of one version of IP have nulls.
        if column.version.is_some() {
            return None;
        }
        let before = self.data.count();
        match (&mut self.data, self.kind) {
            (Data::Narrow(values), _) => narrow(values, value, flows)?,
            (Data::Wide(values), ColumnType::Milliseconds) => wide_times(values, value, flows, millis)?,
            (Data::Wide(values), ColumnType::Nanoseconds) => {
                wide_times(values, value, flows, Timestamp::as_nanos)?;
            }
            (Data::Wide(values), ColumnType::Unsigned(_)) => match value {
                Value::Octets => wide(values, flows, |side| side.bytes as i64),
                Value::Packets => wide(values, flows, |side| side.packets as i64),
                _ => return None,
            },
            _ => return None,
        }
        let added = self.data.count() - before;
        self.len += added;
        if !self.levels.is_empty() {
            self.levels.resize(self.len, PRESENT);
        }
        Some(added * self.kind.width())
    }

    fn push_addresses(&mut self, value: Value, column: &Column, flows: &[Flow]) -> usize {
        let mut bytes = 0;
        for flow in flows {
            let is_null = column.version.is_some_and(|only| only != version_of(flow));
            for from in flow.senders() {
                let end = if value == Value::SourceAddress { from } else { 1 - from };
                let Data::Addresses(values) = &mut self.data else { return bytes };
                bytes += if is_null {
                    self.push_null()
                } else {
                    values.push(match flow.endpoints[end].address {
                        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                        IpAddr::V6(address) => address.octets(),
                    });
                    self.note_present();
                    self.kind.width()
                };
            }
        }
        bytes
    }
}

impl Data {
    /// Values that there are; nulls are none.
    pub(super) fn count(&self) -> usize {
        match self {
            Data::Narrow(values) => values.len(),
            Data::Wide(values) => values.len(),
            Data::Bytes { ends, .. } => ends.len(),
            Data::Addresses(values) => values.len(),
        }
    }
}

/// Whether each row of the flow has the value. Exporters elsewhere leave fields out, and packets may have no time.
#[inline]
fn is_known_of_all(flow: &Flow, value: Value) -> bool {
    let is_time =
        matches!(value, Value::StartMilliseconds | Value::StartNtp | Value::EndMilliseconds | Value::EndNtp);
    if is_time && flow.senders().any(|from| flow.endpoints[from].first == NO_TIME) {
        return false;
    }
    flow.collected.is_none() || flow.senders().all(|from| is_known(flow, value, from, false))
}

#[inline]
fn wide(values: &mut Vec<i64>, flows: &[Flow], of: impl Fn(&Endpoint) -> i64) {
    for flow in flows {
        values.extend(flow.senders().map(|from| of(&flow.endpoints[from])));
    }
}

fn wide_times(
    values: &mut Vec<i64>,
    value: Value,
    flows: &[Flow],
    of: impl Fn(Timestamp) -> i64,
) -> Option<()> {
    match value {
        Value::StartMilliseconds | Value::StartNtp => wide(values, flows, |side| of(side.first)),
        Value::EndMilliseconds | Value::EndNtp => wide(values, flows, |side| of(side.last)),
        _ => return None,
    }
    Some(())
}

fn narrow(values: &mut Vec<i32>, value: Value, flows: &[Flow]) -> Option<()> {
    let mut of_side = |of: fn(&Endpoint) -> u32| {
        for flow in flows {
            values.extend(flow.senders().map(|from| of(&flow.endpoints[from]) as i32));
        }
    };
    match value {
        Value::ClassOfService => of_side(|side| side.tos.into()),
        Value::TcpFlags => of_side(|side| side.tcp_flags.into()),
        Value::TcpFlagsFirst => of_side(|side| side.tcp_flags_first.into()),
        Value::TtlMin => of_side(|side| side.ttl_min.into()),
        Value::TtlMax => of_side(|side| side.ttl_max.into()),
        Value::SourcePort => of_side(|side| side.port.into()),
        Value::DestinationPort => {
            for flow in flows {
                values.extend(flow.senders().map(|from| i32::from(flow.endpoints[1 - from].port)));
            }
        }
        Value::Protocol => of_flow(values, flows, |flow| flow.protocol.into()),
        Value::EndReason => of_flow(values, flows, |flow| flow.end_reason as i32),
        Value::Vlan => of_flow(values, flows, |flow| match flow.context.vlan {
            FlowContext::NO_VLAN => 0,
            tag => tag.into(),
        }),
        _ => return None,
    }
    Some(())
}

#[inline]
fn of_flow(values: &mut Vec<i32>, flows: &[Flow], of: impl Fn(&Flow) -> i32) {
    for flow in flows {
        values.extend(flow.senders().map(|_| of(flow)));
    }
}
