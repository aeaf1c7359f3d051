//! Tables as streams of Arrow, each with a schema and a record batch: pyarrow, Flink and Spark's Python read them.
//!
//! | element | Arrow's type |
//! |---|---|
//! | unsigned8, unsigned16, unsigned32 and 64 | signed integer of 16, 32, 64 bits: the JVM has no others |
//! | dateTimeSeconds, Milli, Nanoseconds | timestamp, UTC: milliseconds, nanoseconds |
//! | addresses, texts | text |
//! | octetArray | bytes |

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray,
    TimestampNanosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use super::plain::encode_parts;
use super::{
    ColumnType, Data, EncodedRows, FlowTable, NULL, RowGroup, SpareBuffers, TableEncoder, TableShape, Values,
};
use crate::Error;

/// The zone of times, as Arrow names it.
const UTC: &str = "UTC";

/// Encodes tables as streams of Arrow.
pub struct ArrowEncoder {
    kinds: Vec<ColumnType>,
    schema: SchemaRef,
}

impl ArrowEncoder {
    /// An encoder of tables of this shape.
    pub fn new(shape: &TableShape) -> ArrowEncoder {
        let fields = shape.columns.iter().zip(&shape.kinds);
        let fields = fields.map(|(column, kind)| Field::new(&column.name, data_type(kind.plain()), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        ArrowEncoder { kinds: shape.kinds.clone(), schema }
    }
}

impl TableEncoder for ArrowEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        _: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let ArrowEncoder { kinds, schema } = self;
        encode_parts(table, kinds, bytes_max, |group| {
            stream(schema, kinds, &group)
                .map_err(|error| Error::Encode { format: "Arrow", why: error.to_string() })
        })
    }
}

fn data_type(kind: ColumnType) -> DataType {
    match kind {
        ColumnType::Unsigned(8) => DataType::Int16,
        ColumnType::Unsigned(16) => DataType::Int32,
        ColumnType::Unsigned(_) => DataType::Int64,
        ColumnType::Milliseconds => DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())),
        ColumnType::Nanoseconds => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
        ColumnType::Octets(_) => DataType::Binary,
        _ => DataType::Utf8,
    }
}

fn stream(schema: &SchemaRef, kinds: &[ColumnType], group: &RowGroup) -> Result<Vec<u8>, ArrowError> {
    let columns = group.columns.iter().zip(kinds).map(|(values, kind)| array(values, kind.plain()));
    let batch = RecordBatch::try_new(Arc::clone(schema), columns.collect())?;
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn array(values: &Values, kind: ColumnType) -> ArrayRef {
    match &values.data {
        Data::Narrow(numbers) => {
            // Widths of 8 to 32 bits: none has a sign.
            let numbers = numbers.iter().map(|number| *number as u32);
            match kind {
                ColumnType::Unsigned(8) => {
                    Arc::new(Int16Array::from_iter(values.with_nulls(numbers.map(|number| number as i16))))
                }
                ColumnType::Unsigned(16) => {
                    Arc::new(Int32Array::from_iter(values.with_nulls(numbers.map(|number| number as i32))))
                }
                _ => Arc::new(Int64Array::from_iter(values.with_nulls(numbers.map(i64::from)))),
            }
        }
        Data::Wide(numbers) => {
            let numbers = values.with_nulls(numbers.iter().copied());
            match kind {
                ColumnType::Milliseconds => {
                    Arc::new(TimestampMillisecondArray::from_iter(numbers).with_timezone(UTC))
                }
                ColumnType::Nanoseconds => {
                    Arc::new(TimestampNanosecondArray::from_iter(numbers).with_timezone(UTC))
                }
                _ => Arc::new(Int64Array::from_iter(numbers)),
            }
        }
        Data::Bytes { bytes, ends } => {
            let starts = std::iter::once(&0).chain(ends);
            let slices = starts.zip(ends).map(|(start, end)| bytes.get(*start..*end).unwrap_or_default());
            let slices = values.with_nulls(slices);
            if let ColumnType::Octets(_) = kind {
                let mut builder = BinaryBuilder::with_capacity(values.len, bytes.len());
                slices.for_each(|slice| builder.append_option(slice));
                return Arc::new(builder.finish());
            }
            let mut builder = StringBuilder::with_capacity(values.len, bytes.len());
            slices.for_each(|slice| builder.append_option(slice.map(String::from_utf8_lossy)));
            Arc::new(builder.finish())
        }
        // A plain column has its addresses as texts.
        Data::Addresses(_) => Arc::new(StringBuilder::new().finish()),
    }
}

impl Values {
    /// The values of all rows; `present` are those that are not null.
    fn with_nulls<T>(&self, mut present: impl Iterator<Item = T>) -> impl Iterator<Item = Option<T>> {
        (0..self.len).map(move |row| match self.levels.get(row) {
            Some(&NULL) => None,
            _ => present.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{
        Int16Type, Int32Type, Int64Type, TimestampMillisecondType, TimestampNanosecondType,
    };
    use arrow_ipc::reader::StreamReader;

    use super::super::tests::{flows, table};
    use super::super::{Cell, Cells};
    use super::*;
    use crate::export::ExportOptions;
    use crate::export::element::mac_text;

    /// A value as text; `None` is null.
    fn value_of(array: &ArrayRef, row: usize) -> Option<String> {
        if array.is_null(row) {
            return None;
        }
        Some(match array.data_type() {
            DataType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
            DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
            DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                array.as_primitive::<TimestampMillisecondType>().value(row).to_string()
            }
            DataType::Timestamp(..) => array.as_primitive::<TimestampNanosecondType>().value(row).to_string(),
            DataType::Binary => format!("{:?}", array.as_binary::<i32>().value(row)),
            DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
            other => panic!("{other}"),
        })
    }

    fn cell_text(cell: Cell<'_>, kind: ColumnType) -> Option<String> {
        Some(match cell {
            Cell::Null => return None,
            Cell::Number(number) if kind == ColumnType::Mac => mac_text(number),
            Cell::Number(number) => (number as i64).to_string(),
            Cell::Time(time) => time.to_string(),
            Cell::Address(address) => address.to_string(),
            Cell::Bytes(bytes) if matches!(kind, ColumnType::Octets(_)) => format!("{bytes:?}"),
            Cell::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        })
    }

    #[test]
    fn a_stream_keeps_to_its_limit() {
        let numbers = crate::export::ELEMENTS
            .iter()
            .filter(|element| element.len == 4 && element.is_number() && element.time_digits().is_none())
            .map(|element| element.name)
            .filter(|name| !name.contains("UpTime"));
        let options = ExportOptions {
            has_places: true,
            ..ExportOptions::of_rows(&numbers.collect::<Vec<_>>().join(","), false)
        };
        let shape = TableShape::new(&options).expect("a template");
        let columns = shape.columns.len();
        assert!(columns > 3, "{columns} columns");
        let parts = ArrowEncoder::new(&shape).encode(&table(&shape, &flows(5000)), 100_000).expect("rows");
        assert!(parts.len() > 1);
        for part in parts {
            // Names, types and what fills buffers up.
            assert!(
                part.bytes.len() < 100_000 + 500 * columns,
                "{} bytes, {columns} columns",
                part.bytes.len()
            );
        }
    }

    #[test]
    fn streams_have_the_cells_of_their_table() {
        let flows = flows(300);
        let template =
            "default,flowStartMilliseconds,flowEndSeconds,mplsTopLabelStackSection,sourceMacAddress";
        for (template, bytes_max) in [(template, 20_000), (template, usize::MAX), ("packetDeltaCount", 1)] {
            let shape = TableShape::new(&ExportOptions::of_rows(template, false)).expect("a template");
            let table = table(&shape, &flows);
            let mut cells = Cells::new(&table.rows, &shape.kinds);
            let parts = ArrowEncoder::new(&shape).encode(&table, bytes_max).expect("rows");
            assert_eq!(parts.iter().map(|part| part.flows).sum::<u64>(), 300);
            assert!(parts.len() > 3 || bytes_max == usize::MAX, "{} parts", parts.len());
            let mut rows = 0;
            for part in &parts {
                if bytes_max == 20_000 {
                    assert!(part.bytes.len() < 45_000, "{} bytes of values of 20,000", part.bytes.len());
                }
                let batches: Vec<RecordBatch> = StreamReader::try_new(part.bytes.as_slice(), None)
                    .and_then(Iterator::collect)
                    .expect("a stream");
                let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
                assert_eq!(batch.num_rows() as u64, part.rows);
                for row in 0..batch.num_rows() {
                    let expected = cells.next_row();
                    for ((array, cell), kind) in batch.columns().iter().zip(expected).zip(&shape.kinds) {
                        assert_eq!(value_of(array, row), cell_text(*cell, *kind), "row {row} of {kind:?}");
                    }
                    rows += 1;
                }
            }
            assert_eq!(rows, table.rows());
        }
    }
}
