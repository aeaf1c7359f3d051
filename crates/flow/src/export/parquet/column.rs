//! Columns: what type an element has, values in memory, and how they are encoded.
//!
//! ```text
//! element                 column (logical type)               encoding
//! unsigned8 ... 64        UINT_8, UINT_16, UINT_32, UINT_64   dictionary
//! dateTimeSeconds, Milli  TIMESTAMP(MILLIS, UTC)              delta
//! dateTimeNanoseconds     TIMESTAMP(NANOS, UTC)               delta
//! addresses, texts        STRING                              dictionary
//! octetArray              bytes, without a logical type       dictionary
//! ```
//!
//! A column with too many values for a dictionary is encoded plainly. Every column may be null: elements of the other
//! IP version are, and those that a flow lacks.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use ::parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::Result;
use ::parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::export::community::community_id;
use crate::export::element::{FieldValue, IpFamily, RecordView, mac_text, millis};
use crate::export::rows::{Column, ColumnSource};

/// Values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// An unsigned number of this many bits.
    Unsigned(i8),
    Milliseconds,
    Nanoseconds,
    Text,
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
            (Some(_), _) => ColumnType::Milliseconds,
            _ if element.is_octets() => ColumnType::Octets(element.len),
            _ if !element.is_number() => ColumnType::Text,
            (_, 1) => ColumnType::Unsigned(8),
            (_, 2) => ColumnType::Unsigned(16),
            (_, 3 | 4) => ColumnType::Unsigned(32),
            _ => ColumnType::Unsigned(64),
        }
    }

    fn physical(self) -> Physical {
        match self {
            ColumnType::Unsigned(8 | 16 | 32) => Physical::INT32,
            ColumnType::Unsigned(_) | ColumnType::Milliseconds | ColumnType::Nanoseconds => Physical::INT64,
            ColumnType::Text | ColumnType::Octets(_) => Physical::BYTE_ARRAY,
        }
    }

    fn logical(self) -> Option<LogicalType> {
        match self {
            ColumnType::Unsigned(bits) => Some(LogicalType::integer(bits, false)),
            ColumnType::Milliseconds => Some(LogicalType::timestamp(true, TimeUnit::MILLIS)),
            ColumnType::Nanoseconds => Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
            ColumnType::Text => Some(LogicalType::String),
            ColumnType::Octets(_) => None,
        }
    }

    fn is_time(self) -> bool {
        matches!(self, ColumnType::Milliseconds | ColumnType::Nanoseconds)
    }

    /// Bytes of a value in memory, besides those of texts.
    fn width(self) -> usize {
        if self.physical() == Physical::INT32 { 4 } else { 8 }
    }
}

/// The columns as Parquet describes them.
pub(super) fn schema(columns: &[Column]) -> Result<TypePtr> {
    let field = |column: &Column| {
        let kind = ColumnType::of(&column.what);
        let field = Type::primitive_type_builder(&column.name, kind.physical())
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(kind.logical());
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
    Type::group_type_builder("flow").with_fields(fields).build().map(Arc::new)
}

/// How files are written. Of a million flows zstd made 14.7 MB at level 1, which is its default here, 14.8 at 3, 14.5
/// at 6; snappy 19.1.
pub(super) fn properties(columns: &[Column]) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("tapline ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    for column in columns.iter().filter(|column| ColumnType::of(&column.what).is_time()) {
        let path = ColumnPath::from(column.name.as_str());
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(properties.build())
}

/// Rows, column by column, that become a row group.
pub(super) struct RowGroup {
    pub(super) rows: usize,
    /// Packets of the flows that they tell of.
    pub(super) packets: u64,
    /// Bytes of the values in memory; encoded they take less.
    pub(super) bytes: usize,
    columns: Vec<Values>,
}

impl RowGroup {
    pub(super) fn new(kinds: &[ColumnType]) -> RowGroup {
        RowGroup { rows: 0, packets: 0, bytes: 0, columns: kinds.iter().copied().map(Values::new).collect() }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, columns: &[Column], view: &RecordView<'_>, packets: u64) {
        let version = if view.flow.endpoints[0].address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 };
        for (values, column) in self.columns.iter_mut().zip(columns) {
            self.bytes += match &column.what {
                _ if column.version.is_some_and(|only| only != version) => values.push_null(),
                ColumnSource::CommunityId => values.push_text(&community_id(view.flow)),
                ColumnSource::Element { element, is_reverse } => {
                    values.push(view.field_value(element.value, *is_reverse))
                }
            };
        }
        self.rows += 1;
        self.packets += packets;
    }

    /// Writes all of it.
    pub(super) fn write(self, file: &mut SerializedFileWriter<File>) -> Result<()> {
        let all_present = vec![PRESENT; self.rows];
        let mut group = file.next_row_group()?;
        for values in self.columns {
            if let Some(mut column) = group.next_column()? {
                values.write(&mut column, &all_present)?;
                column.close()?;
            }
        }
        group.close().map(|_| ())
    }
}

/// Definition levels.
const PRESENT: i16 = 1;
const NULL: i16 = 0;

/// Values of a column.
struct Values {
    kind: ColumnType,
    data: Data,
    /// Rows.
    len: usize,
    /// Of each row whether it has a value; empty as long as all have.
    levels: Vec<i16>,
}

enum Data {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
    /// Texts and octets behind each other, and where each ends.
    Bytes {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
}

/// Each push gives the bytes that it took.
impl Values {
    fn new(kind: ColumnType) -> Values {
        let data = match kind.physical() {
            Physical::INT32 => Data::Narrow(Vec::new()),
            Physical::INT64 => Data::Wide(Vec::new()),
            _ => Data::Bytes { bytes: Vec::new(), ends: Vec::new() },
        };
        Values { kind, data, len: 0, levels: Vec::new() }
    }

    /// A value; what is of no use in this column is null.
    fn push(&mut self, field_value: FieldValue<'_>) -> usize {
        match (field_value, &mut self.data, self.kind) {
            (FieldValue::Text(text), ..) => return self.push_text(text),
            (FieldValue::Bytes(bytes), ..) => return self.push_bytes(bytes),
            (FieldValue::Number(number), Data::Narrow(values), _) => values.push(number as u32 as i32),
            (FieldValue::Number(number), Data::Wide(values), _) => values.push(number as i64),
            (FieldValue::Time(time), Data::Wide(values), ColumnType::Milliseconds) => {
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

    fn write(self, column: &mut SerializedColumnWriter<'_>, all_present: &[i16]) -> Result<()> {
        let levels = if self.levels.is_empty() { all_present } else { self.levels.as_slice() };
        match (self.data, column.untyped()) {
            (Data::Narrow(values), ColumnWriter::Int32ColumnWriter(to)) => {
                to.write_batch(&values, Some(levels), None)?;
            }
            (Data::Wide(values), ColumnWriter::Int64ColumnWriter(to)) => {
                to.write_batch(&values, Some(levels), None)?;
            }
            (Data::Bytes { bytes, ends }, ColumnWriter::ByteArrayColumnWriter(to)) => {
                to.write_batch(&slices(bytes, &ends), Some(levels), None)?;
            }
            // The schema is made of the same kinds.
            _ => {}
        }
        Ok(())
    }
}

/// The values in place, without a copy.
fn slices(bytes: Vec<u8>, ends: &[usize]) -> Vec<ByteArray> {
    let all = ByteArray::from(bytes);
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| all.slice(*start, end - start)).collect()
}
