//! Traffic by key over the last seconds: the layers of a chart.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use tapline_view::{Amount, Dimension, Key, Reading, Row};

use crate::answer::PageRequest;
use crate::feed::Snapshot;
use crate::tables::added_up;
use crate::words::KeyWords;

/// Keys with a layer of their own.
const LAYERS: usize = 6;

/// The layers of a dimension: the sum of all is what flows have of each second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stack {
    /// The dimension.
    pub by: &'static str,
    /// The ends of the seconds, in seconds since 1970.
    pub t: Vec<f64>,
    /// The keys that had the most bytes in these seconds, the greatest first.
    pub rows: Vec<StackRow>,
    /// All other keys, and the seconds in which a key above had no row.
    pub others: Layer,
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
        let seconds: Vec<(Vec<(Key, Amount)>, Amount)> =
            snapshot.readings.iter().map(|reading| second(request, dimension, reading)).collect();
        let mut sums = HashMap::<Key, Amount>::new();
        for (key, amount) in seconds.iter().flat_map(|(rows, _)| rows) {
            sums.entry(*key).or_default().add(*amount);
        }
        let mut keys: Vec<(Key, Amount)> = sums.into_iter().collect();
        keys.sort_unstable_by_key(|(key, amount)| (Reverse((amount.bytes, amount.packets)), *key));
        keys.truncate(LAYERS);
        let mut stack = Stack { by: dimension.name(), ..Stack::default() };
        let mut layers = vec![Layer::default(); keys.len()];
        for (reading, (rows, whole)) in snapshot.readings.iter().zip(&seconds) {
            stack.t.push(reading.second.end_ns as f64 / 1e9);
            let mut rest = *whole;
            for ((key, _), layer) in keys.iter().zip(&mut layers) {
                let found = rows.iter().find(|(known, _)| known == key);
                let amount = found.map_or_else(Amount::default, |(_, amount)| *amount);
                rest = rest.less(amount);
                layer.push(amount, reading.second.len_ns);
            }
            stack.others.push(rest, reading.second.len_ns);
        }
        let rows = keys.iter().zip(layers);
        stack.rows =
            rows.map(|((key, _), layer)| StackRow { key: KeyWords::of(dimension, key), layer }).collect();
        Some(stack)
    }
}

/// The rows of a second, and the sum of all keys.
fn second(request: &PageRequest, dimension: Dimension, reading: &Reading) -> (Vec<(Key, Amount)>, Amount) {
    let pairs = |rows: &[Row]| rows.iter().map(|row| (row.key, row.amount)).collect::<Vec<_>>();
    if request.filter.is_empty() {
        let table = reading.table(dimension);
        return (pairs(&table.rows), table.sum());
    }
    let flows = &reading.table(Dimension::Flow).rows;
    let fitting: Vec<Row> = flows.iter().filter(|row| request.filter.fits(row)).copied().collect();
    let table = added_up(&fitting, dimension, request.rights, Amount::default());
    (pairs(&table.rows), table.sum())
}
