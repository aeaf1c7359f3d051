//! The order of rows in a row group: by source address, then by destination, so that the index of pages leads to the
//! few pages that have an address.
//!
//! ```text
//! rows as flows ended --> key of each: version, source, destination --> order --> columns in that order
//! ```
//!
//! Addresses compare as the texts that they are in the columns, octet by octet, which is the order of Parquet's own
//! least and greatest values of texts. Rows of the same addresses stay in the order in which they ended.

use ::parquet::file::metadata::SortingColumn;

use crate::export::rows::Column;
use crate::export::table::{Data, PRESENT, RowGroup, Values};

/// Elements by which rows are sorted, the first before the second.
const SORTED_BY: [[&str; 2]; 2] =
    [["sourceIPv4Address", "sourceIPv6Address"], ["destinationIPv4Address", "destinationIPv6Address"]];
/// Octets of a text in a row's key: all of an IPv4 address, and of a long IPv6 address the beginning.
const HEAD: usize = size_of::<u128>();

/// Places of the columns by which rows are sorted, in the order of [`SORTED_BY`], each with that of the other
/// version. Empty if the template has no source address.
#[derive(Clone, Debug, Default)]
pub(super) struct SortOrder(Vec<[Option<usize>; 2]>);

impl SortOrder {
    pub(super) fn of(columns: &[Column]) -> SortOrder {
        let place = |name: &str| columns.iter().position(|column| column.name == name);
        let places = SORTED_BY.map(|names| names.map(place));
        SortOrder(places.into_iter().take_while(|places| places.iter().any(Option::is_some)).collect())
    }

    /// The order as files declare it, or `None` if rows keep their order of arrival.
    pub(super) fn told(&self) -> Option<Vec<SortingColumn>> {
        let columns = self.0.iter().flatten().flatten();
        let told = columns
            .map(|at| SortingColumn { column_idx: *at as i32, descending: false, nulls_first: false })
            .collect::<Vec<_>>();
        Some(told).filter(|told| !told.is_empty())
    }
}

/// The sort key of a row: an address's version is in the places of the texts, since each version has a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AddressKey {
    /// The column of the version: the first has all rows that are not null there.
    column: u8,
    head: u128,
}

impl RowGroup {
    pub(super) fn sort(&mut self, order: &SortOrder) {
        if order.0.is_empty() || self.rows < 2 {
            return;
        }
        let keys: Vec<Keys<'_>> = order.0.iter().map(|places| Keys::new(self, *places)).collect();
        let mut rows: Vec<u32> = (0..self.rows as u32).collect();
        rows.sort_by(|a, b| {
            let (a, b) = (*a as usize, *b as usize);
            keys.iter()
                .map(|keys| keys.compare(a, b))
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        drop(keys);
        for values in &mut self.columns {
            values.reorder(&rows);
        }
    }
}

/// The addresses of one side of all rows.
struct Keys<'a> {
    keys: Vec<AddressKey>,
    /// The text of each row.
    texts: Vec<&'a [u8]>,
}

impl<'a> Keys<'a> {
    fn new(group: &'a RowGroup, places: [Option<usize>; 2]) -> Keys<'a> {
        let columns = places.map(|place| place.map(|at| group.columns[at].texts()));
        let mut columns = columns.map(|texts| texts.into_iter().flatten());
        let (mut keys, mut texts) = (Vec::with_capacity(group.rows), Vec::with_capacity(group.rows));
        for _ in 0..group.rows {
            let [first, second] = columns.each_mut().map(|column| column.next().flatten());
            let (column, text) = match (first, second) {
                (Some(text), _) => (0, text),
                (None, Some(text)) => (1, text),
                (None, None) => (2, &[][..]),
            };
            let mut head = [0; HEAD];
            let len = text.len().min(HEAD);
            head[..len].copy_from_slice(&text[..len]);
            keys.push(AddressKey { column, head: u128::from_be_bytes(head) });
            texts.push(text);
        }
        Keys { keys, texts }
    }

    fn compare(&self, a: usize, b: usize) -> std::cmp::Ordering {
        self.keys[a].cmp(&self.keys[b]).then_with(|| self.texts[a].cmp(self.texts[b]))
    }
}

impl Values {
    /// The text of each row, or `None` where it is null.
    fn texts(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let (bytes, ends): (&[u8], &[usize]) = match &self.data {
            Data::Bytes { bytes, ends } => (bytes, ends),
            _ => (&[], &[]),
        };
        let mut starts =
            std::iter::once(&0).chain(ends).zip(ends).map(move |(start, end)| &bytes[*start..*end]);
        (0..self.len).map(move |row| if self.is_present(row) { starts.next() } else { None })
    }

    /// Moves the row at `rows[0]` to the first place, and so on.
    fn reorder(&mut self, rows: &[u32]) {
        let places = self.places();
        let place =
            |row: &u32| places.as_ref().map_or(*row as usize, |places| places[*row as usize] as usize);
        let present = |row: &&u32| self.levels.get(**row as usize).is_none_or(|level| *level == PRESENT);
        let kept = || rows.iter().filter(present).map(place);
        let data = match &self.data {
            Data::Narrow(values) => Data::Narrow(kept().map(|at| values[at]).collect()),
            Data::Wide(values) => Data::Wide(kept().map(|at| values[at]).collect()),
            Data::Bytes { bytes, ends } => {
                let (mut sorted, mut sorted_ends) =
                    (Vec::with_capacity(bytes.len()), Vec::with_capacity(ends.len()));
                for at in kept() {
                    let start = if at == 0 { 0 } else { ends[at - 1] };
                    sorted.extend_from_slice(&bytes[start..ends[at]]);
                    sorted_ends.push(sorted.len());
                }
                Data::Bytes { bytes: sorted, ends: sorted_ends }
            }
            Data::Addresses(values) => Data::Addresses(kept().map(|at| values[at]).collect()),
        };
        let levels = if self.levels.is_empty() {
            Vec::new()
        } else {
            rows.iter().map(|row| self.levels[*row as usize]).collect()
        };
        (self.data, self.levels) = (data, levels);
    }

    /// Position of each row's value among those that are not null; `None` if no row is null.
    fn places(&self) -> Option<Vec<u32>> {
        let mut count = 0;
        let places = self.levels.iter().map(|level| {
            let place = count;
            count += u32::from(*level == PRESENT);
            place
        });
        Some(places.collect()).filter(|places: &Vec<u32>| !places.is_empty())
    }

    fn is_present(&self, row: usize) -> bool {
        self.levels.get(row).is_none_or(|level| *level == PRESENT)
    }
}
