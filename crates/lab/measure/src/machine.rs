//! The machine on which is measured.

use std::fs;

/// The processor's model as `/proc/cpuinfo` names it, or `unknown`.
pub fn processor_name() -> String {
    let table = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = table.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}
