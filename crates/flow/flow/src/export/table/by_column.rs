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

/// A row of a flow: the packets of one side.
#[derive(Clone, Copy)]
pub(super) struct FlowRow<'f> {
    flow: &'f Flow,
    from: usize,
}

impl<'f> FlowRow<'f> {
    fn source(self) -> &'f Endpoint {
        &self.flow.endpoints[self.from]
    }

    fn destination(self) -> &'f Endpoint {
        &self.flow.endpoints[1 - self.from]
    }
}

/// Flows and their rows, one for each direction that sent: looked for once, and not for every column.
pub(super) struct FlowRows<'f> {
    pub(super) flows: &'f [Flow],
    rows: Vec<FlowRow<'f>>,
    /// Whether all flows are a meter's, which knows all of their values.
    are_metered: bool,
    /// Whether all rows have times: packets may have none.
    have_times: bool,
}

impl<'f> FlowRows<'f> {
    pub(super) fn of(flows: &'f [Flow]) -> FlowRows<'f> {
        let mut rows = Vec::with_capacity(2 * flows.len());
        for flow in flows {
            flow.senders().for_each(|from| rows.push(FlowRow { flow, from }));
        }
        FlowRows {
            flows,
            are_metered: flows.iter().all(|flow| flow.collected.is_none()),
            have_times: rows.iter().all(|row| row.source().first != NO_TIME),
            rows,
        }
    }

    /// Whether each row has the value. Exporters elsewhere leave fields out.
    fn all_have(&self, value: Value) -> bool {
        let is_time = matches!(
            value,
            Value::StartMilliseconds | Value::StartNtp | Value::EndMilliseconds | Value::EndNtp
        );
        (self.have_times || !is_time)
            && (self.are_metered || self.rows.iter().all(|row| is_known(row.flow, value, row.from, false)))
    }
}

impl Values {
    /// The values of flows; the bytes that they took. `places` are those of each flow, or none at all.
    pub(super) fn push_flows(
        &mut self,
        column: &Column,
        flows: &FlowRows<'_>,
        context: RowContext<'_>,
        places: &[Option<[Place<'_>; 2]>],
    ) -> usize {
        if !context.is_biflow
            && let ColumnSource::Element { element, is_reverse: false } = &column.what
            && flows.all_have(element.value)
            && let Some(bytes) = self.push_plain(element.value, column, &flows.rows)
        {
            return bytes;
        }
        let mut bytes = 0;
        for (at, flow) in flows.flows.iter().enumerate() {
            let places = places.get(at).and_then(Option::as_ref);
            let context = RowContext { places, ..context };
            context.for_each_row(flow, |view, _| bytes += self.push_field(column, view));
        }
        bytes
    }

    /// Pushes values of elements that most templates have; `None` for others.
    fn push_plain(&mut self, value: Value, column: &Column, rows: &[FlowRow<'_>]) -> Option<usize> {
        // Columns of one version of IP have nulls.
        if column.version.is_some() {
            return match (&self.data, value) {
                (Data::Addresses(_), Value::SourceAddress | Value::DestinationAddress) => {
                    Some(self.push_addresses_or_null(value, column, rows))
                }
                _ => None,
            };
        }
        match (&mut self.data, self.kind) {
            (Data::Addresses(values), _) => match value {
                Value::SourceAddress => extend(values, rows, |row| octets(row.source())),
                Value::DestinationAddress => extend(values, rows, |row| octets(row.destination())),
                _ => return None,
            },
            (Data::Narrow(values), _) => narrow(values, value, rows)?,
            (Data::Wide(values), ColumnType::Milliseconds) => wide_times(values, value, rows, millis)?,
            (Data::Wide(values), ColumnType::Nanoseconds) => {
                wide_times(values, value, rows, Timestamp::as_nanos)?;
            }
            (Data::Wide(values), ColumnType::Unsigned(_)) => match value {
                Value::Octets => extend(values, rows, |row| row.source().bytes as i64),
                Value::Packets => extend(values, rows, |row| row.source().packets as i64),
                _ => return None,
            },
            _ => return None,
        }
        self.len += rows.len();
        if !self.levels.is_empty() {
            self.levels.resize(self.len, PRESENT);
        }
        Some(rows.len() * self.kind.width())
    }

    /// Addresses of one version of IP.
    fn push_addresses_or_null(&mut self, value: Value, column: &Column, rows: &[FlowRow<'_>]) -> usize {
        let mut bytes = 0;
        for row in rows {
            let is_null = column.version.is_some_and(|only| only != version_of(row.flow));
            let Data::Addresses(values) = &mut self.data else { return bytes };
            bytes += if is_null {
                self.push_null()
            } else {
                let end = if value == Value::SourceAddress { row.source() } else { row.destination() };
                values.push(octets(end));
                self.note_present();
                self.kind.width()
            };
        }
        bytes
    }
}

impl Data {
    /// Whether there are no values but nulls.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Data::Narrow(values) => values.is_empty(),
            Data::Wide(values) => values.is_empty(),
            Data::Bytes { ends, .. } => ends.is_empty(),
            Data::Addresses(values) => values.is_empty(),
        }
    }
}

#[inline]
fn octets(end: &Endpoint) -> [u8; 16] {
    match end.address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[inline]
fn extend<T>(values: &mut Vec<T>, rows: &[FlowRow<'_>], of: impl Fn(FlowRow<'_>) -> T) {
    values.extend(rows.iter().map(|row| of(*row)));
}

fn wide_times(
    values: &mut Vec<i64>,
    value: Value,
    rows: &[FlowRow<'_>],
    of: impl Fn(Timestamp) -> i64,
) -> Option<()> {
    match value {
        Value::StartMilliseconds | Value::StartNtp => extend(values, rows, |row| of(row.source().first)),
        Value::EndMilliseconds | Value::EndNtp => extend(values, rows, |row| of(row.source().last)),
        _ => return None,
    }
    Some(())
}

fn narrow(values: &mut Vec<i32>, value: Value, rows: &[FlowRow<'_>]) -> Option<()> {
    match value {
        Value::ClassOfService => extend(values, rows, |row| row.source().tos.into()),
        Value::TcpFlags => extend(values, rows, |row| row.source().tcp_flags.into()),
        Value::TcpFlagsFirst => extend(values, rows, |row| row.source().tcp_flags_first.into()),
        Value::TtlMin => extend(values, rows, |row| row.source().ttl_min.into()),
        Value::TtlMax => extend(values, rows, |row| row.source().ttl_max.into()),
        Value::SourcePort => extend(values, rows, |row| row.source().port.into()),
        Value::DestinationPort => extend(values, rows, |row| row.destination().port.into()),
        Value::Protocol => extend(values, rows, |row| row.flow.protocol.into()),
        Value::EndReason => extend(values, rows, |row| row.flow.end_reason as i32),
        Value::Vlan => extend(values, rows, |row| match row.flow.context.vlan {
            FlowContext::NO_VLAN => 0,
            tag => tag.into(),
        }),
        _ => return None,
    }
    Some(())
}
