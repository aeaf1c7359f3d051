//! Tables as ClickHouse's Native: blocks of columns, which servers read, `clickhouse local` and `chdb`.
//!
//! ```text
//! columns (varint) | rows (varint) | for each column: name, type (a length as varint before each), its values
//! UInt8 ... UInt64, DateTime64, DateTime   little-endian        String   length as varint, bytes
//! IPv6, FixedString(16)                    16 bytes, an address of IPv4 behind ::ffff:
//! ```
//!
//! Elements that each version of IP has are one column: `sourceAddress`. A value that a flow lacks is zero or empty.

use super::goflow::varint;
use super::{
    ColumnType, Data, EncodedRows, FlowEnd, FlowTable, NULL, RowGroup, SpareBuffers, TableEncoder, TableShape,
};
use crate::Error;
use crate::export::element::{IpFamily, mac_text};
use crate::export::rows::Column;

/// Encodes tables as blocks of ClickHouse.
pub struct NativeEncoder {
    outputs: Vec<Output>,
    kinds: Vec<ColumnType>,
}

/// A column of the server.
struct Output {
    name: String,
    kind: NativeType,
    /// Columns of the table, of which at most one has a value in a row.
    sources: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NativeType {
    /// A number of so many bytes.
    Unsigned(usize),
    /// With so many digits.
    DateTime64(u8),
    /// Seconds in 32 bits.
    DateTime,
    Ipv6,
    /// Addresses for servers that know no type for them.
    FixedString,
    Text,
}

impl NativeType {
    fn of(kind: ColumnType, is_old: bool) -> NativeType {
        match kind {
            ColumnType::Unsigned(bits) => NativeType::Unsigned(usize::from(bits.unsigned_abs()) / 8),
            ColumnType::Seconds => NativeType::DateTime,
            ColumnType::Milliseconds | ColumnType::Nanoseconds if is_old => NativeType::DateTime,
            ColumnType::Milliseconds => NativeType::DateTime64(3),
            ColumnType::Nanoseconds => NativeType::DateTime64(9),
            ColumnType::Address(_) if is_old => NativeType::FixedString,
            ColumnType::Address(_) => NativeType::Ipv6,
            ColumnType::Text | ColumnType::Mac | ColumnType::Octets(_) => NativeType::Text,
        }
    }

    fn name(self) -> String {
        match self {
            NativeType::Unsigned(bytes) => format!("UInt{}", 8 * bytes),
            NativeType::DateTime64(digits) => format!("DateTime64({digits}, 'UTC')"),
            NativeType::DateTime => "DateTime('UTC')".to_owned(),
            NativeType::Ipv6 => "IPv6".to_owned(),
            NativeType::FixedString => "FixedString(16)".to_owned(),
            NativeType::Text => "String".to_owned(),
        }
    }

    /// Bytes of a value; of a text the least.
    fn width(self) -> usize {
        match self {
            NativeType::Unsigned(bytes) => bytes,
            NativeType::DateTime64(_) => 8,
            NativeType::DateTime => 4,
            NativeType::Ipv6 | NativeType::FixedString => 16,
            NativeType::Text => 1,
        }
    }
}

impl NativeEncoder {
    /// An encoder of tables of this shape. `is_old`: for servers before 20.6, which have neither `DateTime64` nor `IPv6`.
    pub fn new(shape: &TableShape, is_old: bool) -> NativeEncoder {
        let mut outputs: Vec<Output> = Vec::new();
        for (at, (column, kind)) in shape.columns.iter().zip(&shape.kinds).enumerate() {
            let name = name_of(column);
            match outputs.iter_mut().find(|output| output.name == name) {
                Some(output) => output.sources.push(at),
                None => outputs.push(Output { name, kind: NativeType::of(*kind, is_old), sources: vec![at] }),
            }
        }
        NativeEncoder { outputs, kinds: shape.kinds.clone() }
    }

    /// Names and types of the columns.
    pub fn columns(&self) -> Vec<(String, String)> {
        self.outputs.iter().map(|output| (output.name.clone(), output.kind.name())).collect()
    }

    /// Bytes of each row.
    fn sizes(&self, rows: &RowGroup) -> Vec<usize> {
        let fixed = self.outputs.iter().map(|output| output.kind.width()).sum();
        let mut sizes: Vec<usize> = vec![fixed; rows.rows];
        for (values, kind) in rows.columns.iter().zip(&self.kinds) {
            if *kind == ColumnType::Mac {
                sizes.iter_mut().for_each(|size| *size += 17);
            }
            let Data::Bytes { ends, .. } = &values.data else { continue };
            let mut start = 0;
            let mut ends = ends.iter();
            for (row, size) in sizes.iter_mut().enumerate() {
                if values.levels.get(row) != Some(&NULL)
                    && let Some(end) = ends.next()
                {
                    // Lengths of more than a byte have two or three.
                    *size += end - start + 2;
                    start = *end;
                }
            }
        }
        sizes
    }
}

/// The name of a column, without the version of IP where there is one for each.
fn name_of(column: &Column) -> String {
    match column.version {
        Some(IpFamily::V4) => column.name.replacen("IPv4", "", 1),
        Some(IpFamily::V6) => column.name.replacen("IPv6", "", 1),
        None => column.name.clone(),
    }
}

impl TableEncoder for NativeEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let sizes = self.sizes(&table.rows);
        let names = 64 * self.outputs.len();
        let mut next = vec![0; table.rows.columns.len()];
        let (mut parts, mut done, mut rows_done, mut bytes) = (Vec::new(), 0, 0, 0);
        for (at, FlowEnd { rows, .. }) in table.ends.iter().enumerate() {
            let before = at.checked_sub(1).map_or(0, |before| table.ends[before].rows);
            bytes += sizes[before..*rows].iter().sum::<usize>();
            if bytes >= bytes_max || at + 1 == table.ends.len() {
                let block = self.block(&table.rows, rows_done..*rows, &mut next, spare.take(bytes + names));
                parts.push(EncodedRows::of(&table.ends[done..=at], rows - rows_done, block));
                (done, rows_done, bytes) = (at + 1, *rows, 0);
            }
        }
        Ok(parts)
    }
}

impl NativeEncoder {
    /// A block of some rows; `next` are the values of each column that come next, and `out` is empty.
    fn block(
        &self,
        table: &RowGroup,
        rows: std::ops::Range<usize>,
        next: &mut [usize],
        mut out: Vec<u8>,
    ) -> Vec<u8> {
        varint(self.outputs.len() as u64, &mut out);
        varint(rows.len() as u64, &mut out);
        for output in &self.outputs {
            text(output.name.as_bytes(), &mut out);
            text(output.kind.name().as_bytes(), &mut out);
            // Most columns have a value in each row, and of a column for each version of IP one is often empty.
            let mut filled =
                output.sources.iter().filter(|source| !table.columns[**source].data.is_empty()).copied();
            match (filled.next(), filled.next()) {
                (None, _) => {
                    out.resize(out.len() + output.kind.width() * rows.len(), 0);
                    continue;
                }
                (Some(source), None) if table.columns[source].levels.is_empty() => {
                    let values = next[source]..next[source] + rows.len();
                    next[source] = values.end;
                    output.write_all(&table.columns[source].data, self.kinds[source], values, &mut out);
                    continue;
                }
                _ => {}
            }
            for row in rows.clone() {
                let mut is_written = false;
                for source in &output.sources {
                    let values = &table.columns[*source];
                    if values.levels.get(row) == Some(&NULL) {
                        continue;
                    }
                    let value = next[*source];
                    next[*source] += 1;
                    if !is_written {
                        output.write(&values.data, self.kinds[*source], value, &mut out);
                        is_written = true;
                    }
                }
                if !is_written {
                    out.resize(out.len() + output.kind.width(), 0);
                }
            }
        }
        out
    }
}

impl Output {
    /// Values that follow each other.
    fn write_all(&self, data: &Data, kind: ColumnType, values: std::ops::Range<usize>, out: &mut Vec<u8>) {
        match (data, self.kind) {
            (Data::Narrow(all), NativeType::Unsigned(1)) => {
                out.extend(all[values].iter().map(|value| *value as u8));
            }
            (Data::Narrow(all), NativeType::Unsigned(2)) => {
                write_fixed(&all[values], out, |value| (value as u16).to_le_bytes());
            }
            (Data::Narrow(all), NativeType::Unsigned(4)) => {
                write_fixed(&all[values], out, i32::to_le_bytes);
            }
            (Data::Wide(all), NativeType::Unsigned(_) | NativeType::DateTime64(_)) => {
                write_fixed(&all[values], out, i64::to_le_bytes);
            }
            (Data::Addresses(all), _) => out.extend_from_slice(all[values].as_flattened()),
            _ => values.for_each(|at| self.write(data, kind, at, out)),
        }
    }

    fn write(&self, data: &Data, kind: ColumnType, at: usize, out: &mut Vec<u8>) {
        match (data, self.kind) {
            (Data::Narrow(values), NativeType::Unsigned(bytes)) => {
                out.extend_from_slice(&values[at].to_le_bytes()[..bytes.min(4)]);
            }
            (Data::Wide(values), NativeType::DateTime) => {
                let a_second = if kind == ColumnType::Nanoseconds { 1_000_000_000 } else { 1000 };
                let seconds = values[at].div_euclid(a_second).clamp(0, u32::MAX.into()) as u32;
                out.extend_from_slice(&seconds.to_le_bytes());
            }
            (Data::Wide(values), NativeType::Text) => text(mac_text(values[at] as u64).as_bytes(), out),
            (Data::Wide(values), _) => out.extend_from_slice(&values[at].to_le_bytes()),
            (Data::Addresses(values), _) => out.extend_from_slice(&values[at]),
            (Data::Bytes { bytes, ends }, _) => {
                let start = at.checked_sub(1).map_or(0, |before| ends[before]);
                text(&bytes[start..ends[at]], out);
            }
            // The types follow from the kinds of the data.
            (Data::Narrow(_), _) => out.resize(out.len() + self.kind.width(), 0),
        }
    }
}

fn write_fixed<T: Copy, const LEN: usize>(values: &[T], out: &mut Vec<u8>, octets: impl Fn(T) -> [u8; LEN]) {
    let start = out.len();
    out.resize(start + LEN * values.len(), 0);
    for (slot, value) in out[start..].as_chunks_mut::<LEN>().0.iter_mut().zip(values) {
        *slot = octets(*value);
    }
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
