//! Columns in files: the type of an element, and the encoding of its values.
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

use std::io::Write;
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

use super::GROUP_ROWS;
use super::sorting::SortOrder;
use crate::export::rows::Column;
use crate::export::table::{ColumnType, Data, PRESENT, RowGroup, Values};

impl ColumnType {
    fn physical(self) -> Physical {
        match self.plain() {
            ColumnType::Unsigned(8 | 16 | 32) => Physical::INT32,
            ColumnType::Unsigned(_) | ColumnType::Milliseconds | ColumnType::Nanoseconds => Physical::INT64,
            _ => Physical::BYTE_ARRAY,
        }
    }

    fn logical(self) -> Option<LogicalType> {
        match self.plain() {
            ColumnType::Unsigned(bits) => Some(LogicalType::integer(bits, false)),
            ColumnType::Milliseconds => Some(LogicalType::timestamp(true, TimeUnit::MILLIS)),
            ColumnType::Nanoseconds => Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
            ColumnType::Octets(_) => None,
            _ => Some(LogicalType::String),
        }
    }

    fn is_time(self) -> bool {
        matches!(self.plain(), ColumnType::Milliseconds | ColumnType::Nanoseconds)
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

/// Columns with a Bloom filter: a query for an address skips the row groups that lack it.
const ADDRESSES: [&str; 4] =
    ["sourceIPv4Address", "destinationIPv4Address", "sourceIPv6Address", "destinationIPv6Address"];
/// The part of row groups without an address that are read for it all the same.
const BLOOM_ERROR: f64 = 0.01;

/// Properties of written files. Of a million flows zstd made 14.7 MB at level 1, which is its default here, 14.8 at
/// 3, 14.5 at 6; snappy 19.1. With `has_filters`, addresses have Bloom filters.
pub(super) fn properties(columns: &[Column], order: &SortOrder, has_filters: bool) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("tapline ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_sorting_columns(order.told());
    for column in columns.iter().filter(|column| ColumnType::of(&column.what).is_time()) {
        let path = ColumnPath::from(column.name.as_str());
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    let has_filter = |column: &&Column| has_filters && ADDRESSES.contains(&column.name.as_str());
    for column in columns.iter().filter(has_filter) {
        let path = ColumnPath::from(column.name.as_str());
        properties = properties
            .set_column_bloom_filter_fpp(path.clone(), BLOOM_ERROR)
            .set_column_bloom_filter_max_ndv(path, GROUP_ROWS as u64);
    }
    Arc::new(properties.build())
}

pub(super) fn write<W: Write + Send>(rows: RowGroup, file: &mut SerializedFileWriter<W>) -> Result<()> {
    let all_present = vec![PRESENT; rows.rows];
    let mut group = file.next_row_group()?;
    for values in rows.columns {
        if let Some(mut column) = group.next_column()? {
            write_column(values, &mut column, &all_present)?;
            column.close()?;
        }
    }
    group.close().map(|_| ())
}

fn write_column(values: Values, column: &mut SerializedColumnWriter<'_>, all_present: &[i16]) -> Result<()> {
    let levels = if values.levels.is_empty() { all_present } else { values.levels.as_slice() };
    match (values.data, column.untyped()) {
        (Data::Narrow(numbers), ColumnWriter::Int32ColumnWriter(to)) => {
            to.write_batch(&numbers, Some(levels), None)?;
        }
        (Data::Wide(numbers), ColumnWriter::Int64ColumnWriter(to)) => {
            to.write_batch(&numbers, Some(levels), None)?;
        }
        (Data::Bytes { bytes, ends }, ColumnWriter::ByteArrayColumnWriter(to)) => {
            to.write_batch(&slices(bytes, &ends), Some(levels), None)?;
        }
        // The schema is made of the same kinds.
        _ => {}
    }
    Ok(())
}

/// The values in place, without a copy.
fn slices(bytes: Vec<u8>, ends: &[usize]) -> Vec<ByteArray> {
    let all = ByteArray::from(bytes);
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| all.slice(*start, end - start)).collect()
}
