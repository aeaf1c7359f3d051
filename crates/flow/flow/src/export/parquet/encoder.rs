//! Tables as files of Parquet in memory: blocks for receivers that keep objects.

use ::parquet::errors::Result as ParquetResult;
use ::parquet::file::writer::SerializedFileWriter;

use super::column;
use super::sorting::SortOrder;
use crate::Error;
use crate::export::rows::Column;
use crate::export::table::{
    ColumnType, EncodedRows, FlowTable, RowGroup, SpareBuffers, TableEncoder, TableShape, encode_parts,
};

/// Encodes tables as files of Parquet, of one row group each, sorted as those of [`ParquetWriter`](super::ParquetWriter);
/// without Bloom filters, which would take as much as the rows.
pub struct ParquetEncoder {
    columns: Vec<Column>,
    kinds: Vec<ColumnType>,
    order: SortOrder,
}

impl ParquetEncoder {
    /// An encoder of tables of this shape.
    pub fn new(shape: &TableShape) -> ParquetEncoder {
        let (columns, kinds) = shape.columns();
        let order = SortOrder::of(columns);
        ParquetEncoder { columns: columns.to_vec(), kinds: kinds.to_vec(), order }
    }

    fn file(&self, mut group: RowGroup) -> ParquetResult<Vec<u8>> {
        group.sort(&self.order);
        let properties = column::properties(&self.columns, &self.order, false);
        let mut file = SerializedFileWriter::new(Vec::new(), column::schema(&self.columns)?, properties)?;
        column::write(group, &mut file)?;
        file.into_inner()
    }
}

impl TableEncoder for ParquetEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        _: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        encode_parts(table, &self.kinds, bytes_max, |group| {
            self.file(group).map_err(|error| Error::Encode { format: "Parquet", why: error.to_string() })
        })
    }
}
