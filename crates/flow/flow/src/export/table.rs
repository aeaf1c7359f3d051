//! Flows as columns in memory: the type of an element, and the values of many rows.
//!
//! ```text
//! Flow --direction by direction--> FlowTable: a vector for each column --> encoders: JSON, protobuf, IPFIX, Native, Arrow, Parquet
//! ```
//!
//! Every column may be null: elements of the other IP version are, and those that a flow lacks. Nulls take no place
//! among the values.

#[cfg(feature = "arrow")]
mod arrow;
mod by_column;
mod cells;
mod goflow;
mod ipfix;
mod json;
mod native;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod plain;

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use tapline_geo::{Place, Places};
use tapline_packet::Timestamp;

use super::ExportOptions;
use super::community;
use super::element::{FieldValue, IpFamily, PlaceLookup, RecordView, RowContext, mac_text, millis};
use super::rows::{self, Column, ColumnSource};
use crate::{Error, Flow, Sampling};
#[cfg(feature = "arrow")]
pub use arrow::ArrowEncoder;
use by_column::FlowRows;
pub(super) use cells::{Cell, Cells};
pub use goflow::{GoflowEncoder, goflow_template};
pub use ipfix::IpfixEncoder;
pub use json::JsonEncoder;
pub use native::NativeEncoder;
#[cfg(feature = "parquet")]
pub(super) use plain::encode_parts;

/// Values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// An unsigned number of this many bits.
    Unsigned(i8),
    Milliseconds,
    Nanoseconds,
    /// Whole seconds in the element, milliseconds here.
    Seconds,
    Text,
    /// An address of this version.
    Address(IpFamily),
    /// A MAC address, as a number of 48 bits.
    Mac,
    /// The low octets of a number, of this length; or bytes as they are.
    Octets(u16),
}

impl ColumnType {
    pub(super) fn of(what: &ColumnSource) -> ColumnType {
        let element = match what {
            ColumnSource::CommunityId => return ColumnType::Text,
            ColumnSource::Element { element, .. } => element,
        };
        match (element.time_digits(), element.len) {
            (Some(9), _) => ColumnType::Nanoseconds,
            (Some(0), _) => ColumnType::Seconds,
            (Some(_), _) => ColumnType::Milliseconds,
            _ if element.is_address() && element.len == 4 => ColumnType::Address(IpFamily::V4),
            _ if element.is_address() => ColumnType::Address(IpFamily::V6),
            _ if element.is_mac() => ColumnType::Mac,
            _ if element.is_octets() => ColumnType::Octets(element.len),
            _ if !element.is_number() => ColumnType::Text,
            (_, 1) => ColumnType::Unsigned(8),
            (_, 2) => ColumnType::Unsigned(16),
            (_, 3 | 4) => ColumnType::Unsigned(32),
            _ => ColumnType::Unsigned(64),
        }
    }

    /// Addresses as their texts, and seconds as milliseconds: for formats that know neither.
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(super) fn plain(self) -> ColumnType {
        match self {
            ColumnType::Address(_) | ColumnType::Mac => ColumnType::Text,
            ColumnType::Seconds => ColumnType::Milliseconds,
            kind => kind,
        }
    }

    /// Bytes of a value in memory, without those of texts.
    fn width(self) -> usize {
        match self {
            ColumnType::Unsigned(8 | 16 | 32) => 4,
            ColumnType::Address(_) => 16,
            _ => 8,
        }
    }
}

/// Rows, column by column, that become a row group.
pub(super) struct RowGroup {
    pub(super) rows: usize,
    /// Packets of the flows in the rows.
    pub(super) packets: u64,
    /// Bytes of the values in memory; encoded they take less.
    pub(super) bytes: usize,
    pub(super) columns: Vec<Values>,
}

impl RowGroup {
    pub(super) fn new(kinds: &[ColumnType]) -> RowGroup {
        RowGroup { rows: 0, packets: 0, bytes: 0, columns: kinds.iter().copied().map(Values::new).collect() }
    }

    /// Removes the rows, and keeps their memory.
    fn clear(&mut self) {
        (self.rows, self.packets, self.bytes) = (0, 0, 0);
        self.columns.iter_mut().for_each(Values::clear);
    }

    /// Adds a row.
    #[cfg(feature = "parquet")]
    pub(super) fn push(&mut self, columns: &[Column], view: &RecordView<'_>, packets: u64) {
        for (values, column) in self.columns.iter_mut().zip(columns) {
            self.bytes += values.push_field(column, view);
        }
        self.rows += 1;
        self.packets += packets;
    }
}

/// Definition levels.
pub(super) const PRESENT: i16 = 1;
pub(super) const NULL: i16 = 0;

/// Values of a column.
pub(super) struct Values {
    kind: ColumnType,
    pub(super) data: Data,
    /// Rows.
    pub(super) len: usize,
    /// Whether each row has a value; empty as long as all have.
    pub(super) levels: Vec<i16>,
}

pub(super) enum Data {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
    /// Texts and octets behind each other, and where each ends.
    Bytes {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
    /// Addresses of IPv6, and those of IPv4 behind `::ffff:`.
    Addresses(Vec<[u8; 16]>),
}

/// Each push gives the bytes that it took.
impl Values {
    fn new(kind: ColumnType) -> Values {
        let data = match kind {
            ColumnType::Unsigned(8 | 16 | 32) => Data::Narrow(Vec::new()),
            ColumnType::Address(_) => Data::Addresses(Vec::new()),
            ColumnType::Text | ColumnType::Octets(_) => Data::Bytes { bytes: Vec::new(), ends: Vec::new() },
            _ => Data::Wide(Vec::new()),
        };
        Values { kind, data, len: 0, levels: Vec::new() }
    }

    fn clear(&mut self) {
        match &mut self.data {
            Data::Narrow(values) => values.clear(),
            Data::Wide(values) => values.clear(),
            Data::Bytes { bytes, ends } => {
                bytes.clear();
                ends.clear();
            }
            Data::Addresses(values) => values.clear(),
        }
        self.len = 0;
        self.levels.clear();
    }

    /// The value of a column in a row.
    #[inline]
    fn push_field(&mut self, column: &Column, view: &RecordView<'_>) -> usize {
        match &column.what {
            _ if column.version.is_some_and(|only| only != version_of(view.flow)) => self.push_null(),
            ColumnSource::CommunityId => match community::of_flow(view.flow) {
                Some(text) => self.push_bytes(&text),
                None => self.push_null(),
            },
            ColumnSource::Element { element, is_reverse } => {
                self.push(view.field_value(element.value, *is_reverse))
            }
        }
    }

    /// Adds a value; a value that does not suit this column is null.
    fn push(&mut self, field_value: FieldValue<'_>) -> usize {
        match (field_value, &mut self.data, self.kind) {
            (FieldValue::Text(text), ..) => return self.push_text(text),
            (FieldValue::Bytes(bytes), ..) => return self.push_bytes(bytes),
            (FieldValue::Number(number), Data::Narrow(values), _) => values.push(number as u32 as i32),
            (FieldValue::Number(number), Data::Wide(values), _) => values.push(number as i64),
            (FieldValue::Time(time), Data::Wide(values), ColumnType::Milliseconds | ColumnType::Seconds) => {
                values.push(millis(time))
            }
            (FieldValue::Time(time), Data::Wide(values), _) => values.push(time.as_nanos()),
            (FieldValue::Number(number), Data::Bytes { .. }, ColumnType::Octets(len)) => {
                let octets = number.to_be_bytes();
                return self.push_bytes(&octets[8 - usize::from(len.min(8))..]);
            }
            // No other number is a text: a MAC address.
            (FieldValue::Number(number), Data::Bytes { .. }, ColumnType::Text) => {
                return self.push_text(&mac_text(number));
            }
            (FieldValue::Address(IpAddr::V4(address)), Data::Addresses(values), _) => {
                values.push(address.to_ipv6_mapped().octets());
            }
            (FieldValue::Address(IpAddr::V6(address)), Data::Addresses(values), _) => {
                values.push(address.octets());
            }
            (FieldValue::Address(address), Data::Bytes { .. }, _) => {
                let mut text = [0; 64];
                let mut rest = &mut text[..];
                // The longest address has 45 characters.
                let _ = write!(rest, "{address}");
                let len = 64 - rest.len();
                return self.push_bytes(&text[..len]);
            }
            _ => return self.push_null(),
        }
        self.note_present();
        self.kind.width()
    }

    fn push_text(&mut self, text: &str) -> usize {
        self.push_bytes(text.as_bytes())
    }

    fn push_bytes(&mut self, value: &[u8]) -> usize {
        let Data::Bytes { bytes, ends } = &mut self.data else { return self.push_null() };
        bytes.extend_from_slice(value);
        ends.push(bytes.len());
        self.note_present();
        value.len() + self.kind.width()
    }

    fn push_null(&mut self) -> usize {
        if self.levels.is_empty() {
            self.levels.resize(self.len, PRESENT);
        }
        self.levels.push(NULL);
        self.len += 1;
        size_of::<i16>()
    }

    fn note_present(&mut self) {
        if !self.levels.is_empty() {
            self.levels.push(PRESENT);
        }
        self.len += 1;
    }
}

fn version_of(flow: &Flow) -> IpFamily {
    if flow.endpoints[0].address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
}

/// The shape of a table: its columns, and the data that their values need in addition to the flow.
#[derive(Clone, Debug)]
pub struct TableShape {
    columns: Vec<Column>,
    kinds: Vec<ColumnType>,
    is_biflow: bool,
    domain: u32,
    exporter: Option<IpAddr>,
    pub(super) places: PlaceLookup,
}

impl TableShape {
    /// The columns of a template; without one, those of lines of text. Of `options` the template, the domain, the exporter
    /// and the biflow setting apply.
    ///
    /// # Errors
    /// If the template is invalid.
    pub fn new(options: &ExportOptions) -> Result<TableShape, Error> {
        let columns = rows::columns(options)?;
        let kinds = columns.iter().map(|column| ColumnType::of(&column.what)).collect();
        let ExportOptions { biflow, domain, exporter, .. } = *options;
        let places = rows::place_lookup(&columns);
        Ok(TableShape { columns, kinds, is_biflow: biflow, domain, exporter, places })
    }

    /// The data of rows in addition to their flows and places.
    pub(super) fn context(&self, sampling: Sampling) -> RowContext<'static> {
        let TableShape { is_biflow, domain, exporter, .. } = *self;
        RowContext { is_biflow, domain, exporter, sampling, places: None }
    }

    /// Sets the files of places of addresses, from the next flow on.
    pub fn set_places(&mut self, places: &Arc<Places>) {
        self.places.set(places);
    }

    /// The columns and their types.
    #[cfg(feature = "parquet")]
    pub(super) fn columns(&self) -> (&[Column], &[ColumnType]) {
        (&self.columns, &self.kinds)
    }

    /// A number that differs where names or types of columns do: FNV-1a of them.
    pub fn version(&self) -> u64 {
        let names =
            self.columns.iter().zip(&self.kinds).map(|(column, kind)| format!("{} {kind:?};", column.name));
        names
            .flat_map(String::into_bytes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// The end of a flow among the rows: tables are cut there only.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEnd {
    /// Rows up to here.
    pub(super) rows: usize,
    pub(super) packets: u64,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// Flows as columns.
pub struct FlowTable {
    rows: RowGroup,
    ends: Vec<FlowEnd>,
}

impl FlowTable {
    /// A table without rows.
    pub fn new(shape: &TableShape) -> FlowTable {
        FlowTable { rows: RowGroup::new(&shape.kinds), ends: Vec::new() }
    }

    /// Removes all rows, and keeps their memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
    }

    /// Adds the rows of flows, column by column: one for each direction that sent, or one for both.
    pub fn push(&mut self, shape: &TableShape, flows: &[Flow], sampling: Sampling) {
        let places: Vec<Option<[Place<'_>; 2]>> = match shape.places.is_set() {
            true => flows.iter().map(|flow| shape.places.of_flow(flow)).collect(),
            false => Vec::new(),
        };
        let context = shape.context(sampling);
        let of_flows = FlowRows::of(flows);
        for (values, column) in self.rows.columns.iter_mut().zip(&shape.columns) {
            self.rows.bytes += values.push_flows(column, &of_flows, context, &places);
        }
        for flow in flows {
            self.rows.rows += if shape.is_biflow { 1 } else { flow.senders().count() };
            let (rows, packets, first, last) =
                (self.rows.rows, flow.answered_packets(), flow.first(), flow.last());
            self.rows.packets += packets;
            self.ends.push(FlowEnd { rows, packets, first, last });
        }
    }

    /// Flows.
    pub fn flows(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.rows.rows as u64
    }

    /// Packets of the flows.
    pub fn packets(&self) -> u64 {
        self.rows.packets
    }

    /// Bytes of the values in memory.
    pub fn bytes(&self) -> usize {
        self.rows.bytes + self.ends.len() * size_of::<FlowEnd>()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Encoded rows of whole flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRows {
    /// Flows in the rows.
    pub flows: u64,
    /// Rows.
    pub rows: u64,
    /// Packets of the flows.
    pub packets: u64,
    /// The start of the earliest flow.
    pub first: Timestamp,
    /// The end of the latest flow.
    pub last: Timestamp,
    /// The rows.
    pub bytes: Vec<u8>,
}

impl EncodedRows {
    fn of(ends: &[FlowEnd], rows: usize, bytes: Vec<u8>) -> EncodedRows {
        let time = |times: Option<Timestamp>| times.unwrap_or(Timestamp::EPOCH);
        EncodedRows {
            flows: ends.len() as u64,
            rows: rows as u64,
            packets: ends.iter().map(|end| end.packets).sum(),
            first: time(ends.iter().map(|end| end.first).min()),
            last: time(ends.iter().map(|end| end.last).max()),
            bytes,
        }
    }
}

/// Makes bytes of tables.
pub trait TableEncoder: Send {
    /// Encodes all rows of a table, in parts of `bytes_max` bytes, beyond which a part goes by one flow at most.
    ///
    /// # Errors
    /// [`Error::Encode`] if the format's library refuses a table: none of its rows is encoded.
    fn encode(&mut self, table: &FlowTable, bytes_max: usize) -> Result<Vec<EncodedRows>, Error> {
        self.encode_into(table, bytes_max, &mut SpareBuffers::default())
    }

    /// As [`encode`](Self::encode), into memory of `spare` if the format's library allows it.
    ///
    /// # Errors
    /// As of [`encode`](Self::encode).
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error>;
}

/// Memory of encoded rows that are done with, to be filled again: fresh pages cost more than filling them.
#[derive(Debug, Default)]
pub struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    /// The most buffers that are kept.
    const MAX: usize = 4;

    /// Keeps a buffer, or drops it if there are enough.
    pub fn put(&mut self, mut bytes: Vec<u8>) {
        if self.0.len() < SpareBuffers::MAX {
            bytes.clear();
            self.0.push(bytes);
        }
    }

    /// An empty buffer with room for this number of bytes.
    fn take(&mut self, capacity: usize) -> Vec<u8> {
        let mut bytes = self.0.pop().unwrap_or_default();
        bytes.reserve(capacity);
        bytes
    }
}

/// Encodes rows one after the other, and cuts between flows.
fn encode_rows(
    table: &FlowTable,
    kinds: &[ColumnType],
    bytes_max: usize,
    spare: &mut SpareBuffers,
    mut write: impl FnMut(&[Cell<'_>], &mut Vec<u8>),
) -> Vec<EncodedRows> {
    let mut cells = Cells::new(&table.rows, kinds);
    let (mut parts, mut bytes) = (Vec::new(), spare.take(0));
    let (mut done, mut rows_done, mut rows) = (0, 0, 0);
    for (at, end) in table.ends.iter().enumerate() {
        while rows < end.rows {
            write(cells.next_row(), &mut bytes);
            rows += 1;
        }
        if bytes.len() >= bytes_max || at + 1 == table.ends.len() {
            let full = std::mem::replace(&mut bytes, spare.take(0));
            parts.push(EncodedRows::of(&table.ends[done..=at], rows - rows_done, full));
            (done, rows_done) = (at + 1, rows);
        }
    }
    spare.put(bytes);
    parts
}

#[cfg(test)]
mod tests;
