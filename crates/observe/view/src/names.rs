//! Names of hosts from DNS answers, for the rows of hosts. The sender of an answer chooses its names, so their number is
//! bounded; a row's name has 64 bytes at most.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tapline_flow::NamedAddresses;

use crate::dimension::{Dimension, Key, halves};
use crate::table::Tables;

/// Hosts with names, some 2 MB; beyond these the first one that got a name goes.
const HOSTS_MAX: usize = 16_384;

/// The latest name of each host.
#[derive(Debug, Default)]
pub(crate) struct AnsweredNames {
    by_host: HashMap<[u64; 2], Key>,
    /// Hosts in the order in which they got a name.
    order: VecDeque<[u64; 2]>,
}

/// Locks the names; a thread that panicked with them has changed them as a whole.
pub(crate) fn lock(names: &Mutex<AnsweredNames>) -> MutexGuard<'_, AnsweredNames> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AnsweredNames {
    /// Takes an answer. Servers that block names answer with an address that is nobody's.
    pub(crate) fn learn(&mut self, named: &NamedAddresses) {
        let name = Key::name(&named.name);
        for address in named.addresses.iter().filter(|address| !address.is_unspecified()) {
            let host = halves(*address);
            if self.by_host.insert(host, name).is_some() {
                continue;
            }
            self.order.push_back(host);
            if self.order.len() > HOSTS_MAX
                && let Some(first) = self.order.pop_front()
            {
                self.by_host.remove(&first);
            }
        }
    }

    /// Writes names into the rows of hosts.
    pub(crate) fn name_hosts(&self, tables: &mut Tables) {
        if self.by_host.is_empty() {
            return;
        }
        for dimension in [Dimension::HostIn, Dimension::HostOut] {
            for row in &mut tables[dimension as usize].rows {
                let host = [row.key.0[0], row.key.0[1]];
                row.name = self.by_host.get(&host).copied().unwrap_or(row.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::table::{Row, Table};

    #[test]
    fn names_of_answers_are_bounded() {
        let mut names = AnsweredNames::default();
        let host = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        for number in 0..2 * HOSTS_MAX as u32 {
            let name = format!("{number}.example").into();
            names.learn(&NamedAddresses { name, addresses: vec![host(number)] });
        }
        assert_eq!((names.by_host.len(), names.order.len()), (HOSTS_MAX, HOSTS_MAX));
        let last = host(2 * HOSTS_MAX as u32 - 1);
        names.learn(&NamedAddresses { name: "a".repeat(500).into(), addresses: vec![last] });
        assert_eq!(names.order.len(), HOSTS_MAX, "a host that has a name gets the later one");
        let table = || Table {
            rows: [last, host(0)].map(|host| Row { key: Key::host(host), ..Row::default() }).to_vec(),
            ..Table::default()
        };
        let mut tables: Tables = std::array::from_fn(|_| table());
        names.name_hosts(&mut tables);
        let named = |dimension: Dimension| {
            tables[dimension as usize].rows.iter().map(|row| row.name).collect::<Vec<_>>()
        };
        for dimension in [Dimension::HostIn, Dimension::HostOut] {
            assert_eq!(named(dimension), [Key::name(&"a".repeat(64)), Key::default()]);
        }
        assert_eq!(named(Dimension::Pair), [Key::default(); 2]);
    }
}
