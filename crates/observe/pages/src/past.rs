//! A window of the history, as its page has it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use tapline_view::Dimension;

use crate::feed::Snapshot;
use crate::stack::Stack;
use crate::tables::SumTable;

/// Totals over time, and the greatest keys of a window.
#[derive(Clone, Debug, Serialize)]
pub struct PastWindow {
    /// The dimension of the table.
    #[serde(skip)]
    pub dimension: Dimension,
    /// The length of the buckets from which the chart is made, as a word: minute, hour, day. It is the longest that the
    /// window needs: where minutes are no longer kept, hours or days are read.
    pub tier: &'static str,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Seconds between two points of the chart.
    pub step_seconds: u64,
    /// Buckets of this length that are there.
    pub buckets: usize,
    /// The begin of the first bucket of the file and the end of the last, in seconds since 1970.
    pub span: Option<[i64; 2]>,
    /// The begin of each point, in seconds since 1970.
    pub t: Vec<u64>,
    /// Bits a second.
    pub bits: Vec<f64>,
    /// Packets a second.
    pub packets: Vec<f64>,
    /// Packets lost.
    pub lost: Vec<i64>,
    /// Traffic by key over time, if it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stack>,
    /// The latest name of each host that has one, for those who may have names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<IpAddr, String>,
    /// The greatest keys.
    pub table: SumTable,
}

impl PastWindow {
    /// Adds the names that hosts have now.
    pub fn name_hosts(&mut self, snapshot: &Snapshot) {
        let rows = self.table.rows.iter().map(|row| &row.key);
        let layers = self.stack.iter().flat_map(|stack| stack.rows.iter().map(|row| &row.key));
        let hosts = rows.chain(layers).flat_map(|key| key.hosts());
        self.names = snapshot.names().latest(hosts);
    }
}
