//! Tables of ClickHouse for flows: their statement, from the columns that a template has.

use std::fmt::Write as _;

/// The columns of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The version of the columns in blocks.
    pub version: u64,
    /// Names and types of ClickHouse.
    pub columns: Vec<(String, String)>,
}

impl Schema {
    /// Names of the columns, with commas.
    pub fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The statement that makes a table, unless there is one. It deletes nothing: flows of old captures would be gone at
    /// once. `is_old`: for servers before 20.6, without deduplication.
    pub fn create(&self, table: &str, is_old: bool) -> String {
        let mut text = format!("CREATE TABLE IF NOT EXISTS {table}\n(\n");
        let mut lines: Vec<String> =
            self.columns.iter().map(|(name, kind)| column(name, kind, is_old)).collect();
        let addresses = self.columns.iter().filter(|(_, kind)| kind == "IPv6");
        lines.extend(
            addresses.map(|(name, _)| {
                format!("    INDEX {name}_index {name} TYPE bloom_filter(0.01) GRANULARITY 4")
            }),
        );
        let _ = writeln!(text, "{}\n)\nENGINE = MergeTree", lines.join(",\n"));
        let has = |name: &str| self.columns.iter().any(|(other, _)| other == name);
        let of_key =
            ["destinationAddress", "sourceAddress", "destinationTransportPort", "sourceTransportPort"];
        let mut key: Vec<String> = of_key.into_iter().filter(|name| has(name)).map(str::to_owned).collect();
        let start = self.columns.iter().find(|(name, _)| name.starts_with("flowStart"));
        if let Some((start, _)) = start {
            let _ = writeln!(text, "PARTITION BY toDate({start})");
            key.insert(0, format!("toStartOfMinute({start})"));
        }
        let _ = writeln!(
            text,
            "ORDER BY ({})",
            if key.is_empty() { "tuple()".to_owned() } else { key.join(", ") }
        );
        if !is_old {
            let _ = writeln!(text, "SETTINGS non_replicated_deduplication_window = 1000");
        }
        text
    }
}

/// A column with its codec: times in steps, counters with their leading zeros cut off.
fn column(name: &str, kind: &str, is_old: bool) -> String {
    let codec = match kind {
        _ if is_old => "",
        kind if kind.starts_with("DateTime") => " CODEC(DoubleDelta, ZSTD(1))",
        "UInt32" | "UInt64" => " CODEC(T64, ZSTD(1))",
        _ => " CODEC(ZSTD(1))",
    };
    format!("    {name} {kind}{codec}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_key_codecs_and_indexes() {
        let columns = [
            ("flowStartNanoseconds", "DateTime64(9, 'UTC')"),
            ("sourceAddress", "IPv6"),
            ("octetDeltaCount", "UInt64"),
        ];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec();
        let schema = Schema { version: 1, columns };
        assert_eq!(schema.names(), "flowStartNanoseconds, sourceAddress, octetDeltaCount");
        assert_eq!(
            schema.create("net.flows", false),
            "CREATE TABLE IF NOT EXISTS net.flows\n(\n    flowStartNanoseconds DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),\n    \
             sourceAddress IPv6 CODEC(ZSTD(1)),\n    octetDeltaCount UInt64 CODEC(T64, ZSTD(1)),\n    \
             INDEX sourceAddress_index sourceAddress TYPE bloom_filter(0.01) GRANULARITY 4\n)\nENGINE = MergeTree\n\
             PARTITION BY toDate(flowStartNanoseconds)\nORDER BY (toStartOfMinute(flowStartNanoseconds), sourceAddress)\n\
             SETTINGS non_replicated_deduplication_window = 1000\n"
        );
        assert!(!schema.create("net.flows", true).contains("CODEC"));
    }
}
