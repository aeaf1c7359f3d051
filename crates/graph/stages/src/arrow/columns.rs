//! The columns of a stream of packets.
//!
//! | column | Arrow's type | is null |
//! |---|---|---|
//! | time | timestamp (nanoseconds, UTC) | never |
//! | interface | text | never |
//! | length, captured | 64-bit integer | never |
//! | vlan | 32-bit integer | without a tag |
//! | src, dst | text | without IP |
//! | protocol | 16-bit integer | without IP |
//! | sport, dport | 32-bit integer | without ports, in later fragments, where cut off |
//! | tcp_flags | 16-bit integer | not TCP, where cut off |
//! | flow | text | without IP, where ports are cut off |
//! | data | bytes | never |
//!
//! Integers are signed, one size above their values: Spark and the JVM have no others.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int16Builder, Int32Builder, Int64Builder, StringBuilder,
    TimestampNanosecondBuilder,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tapline_packet::{Interface, Packet};

use super::rows::{Row, Scratch};

tapline_packet::named_enum! {
    /// The fact about a packet in a column.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Content {
        Time = "time",
        Interface = "interface",
        Length = "length",
        Captured = "captured",
        Vlan = "vlan",
        Source = "src",
        Destination = "dst",
        Protocol = "protocol",
        SourcePort = "sport",
        DestinationPort = "dport",
        TcpFlags = "tcp_flags",
        Flow = "flow",
        Data = "data",
    }
}

impl Content {
    fn data_type(self) -> DataType {
        match self {
            Content::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Content::Interface | Content::Source | Content::Destination | Content::Flow => DataType::Utf8,
            Content::Length | Content::Captured => DataType::Int64,
            Content::Vlan | Content::SourcePort | Content::DestinationPort => DataType::Int32,
            Content::Protocol | Content::TcpFlags => DataType::Int16,
            Content::Data => DataType::Binary,
        }
    }

    fn may_be_null(self) -> bool {
        !matches!(
            self,
            Content::Time | Content::Interface | Content::Length | Content::Captured | Content::Data
        )
    }

    /// Whether the headers of a packet are looked at for it.
    fn needs_headers(self) -> bool {
        self.may_be_null()
    }
}

/// Values of a column.
enum Values {
    Time(TimestampNanosecondBuilder),
    Short(Int16Builder),
    Number(Int32Builder),
    Long(Int64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Values {
    fn new(content: Content) -> Values {
        match content.data_type() {
            DataType::Timestamp(..) => Values::Time(TimestampNanosecondBuilder::new().with_timezone("UTC")),
            DataType::Int16 => Values::Short(Int16Builder::new()),
            DataType::Int32 => Values::Number(Int32Builder::new()),
            DataType::Int64 => Values::Long(Int64Builder::new()),
            DataType::Binary => Values::Bytes(BinaryBuilder::new()),
            _ => Values::Text(StringBuilder::new()),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Values::Time(values) => ArrayBuilder::finish(values),
            Values::Short(values) => ArrayBuilder::finish(values),
            Values::Number(values) => ArrayBuilder::finish(values),
            Values::Long(values) => ArrayBuilder::finish(values),
            Values::Text(values) => ArrayBuilder::finish(values),
            Values::Bytes(values) => ArrayBuilder::finish(values),
        }
    }
}

/// The columns of a stream, with the packets that have gathered in them.
pub(super) struct Columns {
    schema: SchemaRef,
    columns: Vec<(Content, Values)>,
    needs_headers: bool,
    scratch: Scratch,
    rows: usize,
    bytes: usize,
}

impl Columns {
    /// All of them.
    pub(super) fn all() -> Columns {
        Columns::of(Content::ALL.to_vec())
    }

    /// The columns with these names, in their order.
    pub(super) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Result<Columns, String> {
        let mut wanted = Vec::new();
        for name in names {
            let Some(column) = Content::of_name(name) else {
                let known = Content::NAMES.join(", ");
                return Err(format!("there is no column {name:?}; there are: {known}"));
            };
            if wanted.contains(&column) {
                return Err(format!("the column {name} is named twice"));
            }
            wanted.push(column);
        }
        Ok(Columns::of(wanted))
    }

    fn of(wanted: Vec<Content>) -> Columns {
        let field =
            |content: &Content| Field::new(content.name(), content.data_type(), content.may_be_null());
        let schema = Arc::new(Schema::new(wanted.iter().map(field).collect::<Vec<_>>()));
        let columns: Vec<_> = wanted.iter().map(|&content| (content, Values::new(content))).collect();
        let scratch = Scratch::new(wanted.contains(&Content::Flow));
        let needs_headers = wanted.iter().any(|content| content.needs_headers());
        Columns { schema, columns, needs_headers, scratch, rows: 0, bytes: 0 }
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(super) fn schema_ref(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Packets that have gathered.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the texts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a packet.
    pub(super) fn push(&mut self, packet: Packet<'_>, interface: &Interface) {
        let row = Row::of(packet, interface, self.needs_headers);
        self.scratch.fill(&row);
        for (content, values) in &mut self.columns {
            self.bytes += push_value(*content, values, &row, &self.scratch);
        }
        self.rows += 1;
    }

    /// Takes the gathered rows.
    pub(super) fn finish(&mut self) -> Vec<ArrayRef> {
        (self.rows, self.bytes) = (0, 0);
        self.columns.iter_mut().map(|(_, values)| values.finish()).collect()
    }
}

/// Adds a value; gives the bytes of texts and bytes.
fn push_value(content: Content, values: &mut Values, row: &Row<'_>, scratch: &Scratch) -> usize {
    match (content, values) {
        (Content::Time, Values::Time(values)) => {
            values.append_value(row.packet.meta.timestamp.as_nanos());
        }
        (Content::Length, Values::Long(values)) => values.append_value(row.packet.meta.wire_len.into()),
        (Content::Captured, Values::Long(values)) => values.append_value(row.packet.data.len() as i64),
        (Content::Vlan, Values::Number(values)) => values.append_option(row.vlan),
        (Content::SourcePort, Values::Number(values)) => {
            values.append_option(row.ports.map(|(port, _)| port.into()));
        }
        (Content::DestinationPort, Values::Number(values)) => {
            values.append_option(row.ports.map(|(_, port)| port.into()));
        }
        (Content::Protocol, Values::Short(values)) => values.append_option(row.protocol),
        (Content::TcpFlags, Values::Short(values)) => values.append_option(row.tcp_flags),
        (Content::Interface, Values::Text(values)) => return push_text(values, Some(row.interface)),
        (Content::Source, Values::Text(values)) => return push_text(values, scratch.source()),
        (Content::Destination, Values::Text(values)) => return push_text(values, scratch.destination()),
        (Content::Flow, Values::Text(values)) => return push_text(values, scratch.flow()),
        (Content::Data, Values::Bytes(values)) => {
            values.append_value(row.packet.data);
            return row.packet.data.len();
        }
        // Each content has the values of its type.
        _ => {}
    }
    0
}

fn push_text(values: &mut StringBuilder, text: Option<&str>) -> usize {
    values.append_option(text);
    text.map_or(0, str::len)
}
