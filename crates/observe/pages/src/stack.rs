//! Traffic by key over time: the layers of a chart.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;

use serde::Serialize;
use tapline_view::{Amount, Dimension, Key, Reading, Row, Second, Table};

use crate::answer::PageRequest;
use crate::feed::Snapshot;
use crate::tables::added_up;
use crate::words::KeyWords;

/// Keys with a layer of their own.
const LAYERS: usize = 6;

/// The layers of a dimension: the sum of all is what flows have of each point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stack {
    /// The dimension.
    pub by: &'static str,
    /// Seconds between two points.
    pub step_seconds: u64,
    /// The times of the points, in seconds since 1970: ends of seconds, or begins of longer ones.
    pub t: Vec<f64>,
    /// The keys that had the most bytes in all points, the greatest first.
    pub rows: Vec<StackRow>,
    /// All other keys, and the points in which a key above had no row.
    pub others: Layer,
}

/// Traffic of a point of time by key.
#[derive(Clone, Debug, Default)]
pub struct StackPoint<K> {
    /// The time, in seconds since 1970.
    pub t: f64,
    /// Nanoseconds that were measured.
    pub len_ns: u64,
    /// Rows; those of one key are added up.
    pub rows: Vec<(K, Amount)>,
    /// The sum of all keys, with those that have no row.
    pub sum: Amount,
}

/// A key's layer.
#[derive(Clone, Debug, Serialize)]
pub struct StackRow {
    /// The key.
    #[serde(flatten)]
    pub key: KeyWords,
    /// Traffic of the key.
    #[serde(flatten)]
    pub layer: Layer,
}

/// Traffic of each second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Layer {
    /// Bits a second.
    pub bits: Vec<f64>,
    /// Packets a second.
    pub packets: Vec<f64>,
}

impl Layer {
    fn push(&mut self, amount: Amount, len_ns: u64) {
        let rate = |count: u64| (count as f64 * 1e9 / len_ns.max(1) as f64).round();
        self.bits.push(rate(amount.bytes.saturating_mul(8)));
        self.packets.push(rate(amount.packets));
    }
}

impl Stack {
    /// The layers of a request's dimension, of the flows that fit its filter; `None` if it has none.
    pub(crate) fn of(request: &PageRequest, snapshot: &Snapshot) -> Option<Stack> {
        let dimension = request.stack?;
        let points: Vec<_> =
            snapshot.readings.iter().map(|reading| second(request, dimension, reading)).collect();
        Stack::of_points(dimension, 1, &points, Ok::<Key, Infallible>).ok()
    }

    /// The layers of points, which are `step_seconds` apart; `key_of` finds the key of a row.
    ///
    /// # Errors
    /// That of `key_of`.
    pub fn of_points<K: Copy + Ord + Hash, E>(
        dimension: Dimension,
        step_seconds: u64,
        points: &[StackPoint<K>],
        key_of: impl Fn(K) -> Result<Key, E>,
    ) -> Result<Stack, E> {
        let mut sums = HashMap::<K, Amount>::new();
        for (key, amount) in points.iter().flat_map(|point| &point.rows) {
            sums.entry(*key).or_default().add(*amount);
        }
        let mut keys: Vec<(K, Amount)> = sums.into_iter().collect();
        keys.sort_unstable_by_key(|(key, amount)| (Reverse((amount.bytes, amount.packets)), *key));
        keys.truncate(LAYERS);
        let mut stack = Stack { by: dimension.name(), step_seconds, ..Stack::default() };
        let mut layers = vec![Layer::default(); keys.len()];
        for StackPoint { t, len_ns, rows, sum } in points {
            stack.t.push(*t);
            let mut rest = *sum;
            for ((key, _), layer) in keys.iter().zip(&mut layers) {
                let mut amount = Amount::default();
                rows.iter().filter(|(known, _)| known == key).for_each(|(_, row)| amount.add(*row));
                rest = rest.less(amount);
                layer.push(amount, *len_ns);
            }
            stack.others.push(rest, *len_ns);
        }
        for ((key, _), layer) in keys.into_iter().zip(layers) {
            stack.rows.push(StackRow { key: KeyWords::of(dimension, &key_of(key)?), layer });
        }
        Ok(stack)
    }
}

/// A second of a dimension.
fn second(request: &PageRequest, dimension: Dimension, reading: &Reading) -> StackPoint<Key> {
    let Second { end_ns, len_ns, .. } = reading.second;
    let point = |table: &Table| StackPoint {
        t: end_ns as f64 / 1e9,
        len_ns,
        rows: table.rows.iter().map(|row| (row.key, row.amount)).collect(),
        sum: table.sum(),
    };
    if request.filter.is_empty() {
        return point(reading.table(dimension));
    }
    let flows = &reading.table(Dimension::Flow).rows;
    let fitting: Vec<Row> = flows.iter().filter(|row| request.filter.fits(row)).copied().collect();
    point(&added_up(&fitting, dimension, request.rights, Amount::default()))
}
