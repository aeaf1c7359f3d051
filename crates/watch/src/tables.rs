//! Tables of scripts: values by key, with a bound and a time to live.

use std::collections::HashMap;

use rhai::Dynamic;

use crate::clock::ClockStep;

/// Keys of a table, unless it says.
pub(crate) const KEYS: usize = 10_000;
/// The greatest number of keys of a table.
pub(crate) const KEYS_MAX: usize = 1_000_000;
/// Tables of a script.
pub(crate) const TABLES_MAX: usize = 64;
/// Bytes of a key.
const KEY_LEN: usize = 512;

#[derive(Debug)]
struct Entry {
    value: Dynamic,
    touched_ns: i64,
}

/// Values by key. A key that was not written for longer than the time to live is gone.
#[derive(Debug)]
pub(crate) struct ScriptTable {
    most: usize,
    ttl_ns: i64,
    entries: HashMap<String, Entry>,
    /// The time at which old keys are looked for again.
    sweep_ns: i64,
    refused: u64,
}

impl ScriptTable {
    pub(crate) fn new(most: usize, ttl_ns: i64) -> ScriptTable {
        ScriptTable { most, ttl_ns, entries: HashMap::new(), sweep_ns: i64::MIN, refused: 0 }
    }

    pub(crate) fn set_bounds(&mut self, most: usize, ttl_ns: i64) {
        (self.most, self.ttl_ns) = (most, ttl_ns);
    }

    pub(crate) fn get(&self, key: &str, now_ns: i64) -> Option<&Dynamic> {
        let entry = self.entries.get(key)?;
        self.is_fresh(entry, now_ns).then_some(&entry.value)
    }

    fn is_fresh(&self, entry: &Entry, now_ns: i64) -> bool {
        entry.touched_ns >= now_ns.saturating_sub(self.ttl_ns)
    }

    /// Whether there was room.
    pub(crate) fn set(&mut self, key: &str, value: Dynamic, now_ns: i64) -> bool {
        let entry = Entry { value, touched_ns: now_ns };
        if let Some(place) = self.entries.get_mut(key) {
            *place = entry;
            return true;
        }
        if key.len() > KEY_LEN {
            self.refused += 1;
            return false;
        }
        if self.entries.len() >= self.most && now_ns >= self.sweep_ns {
            let oldest_ns = now_ns.saturating_sub(self.ttl_ns);
            self.entries.retain(|_, entry| entry.touched_ns >= oldest_ns);
            self.sweep_ns = now_ns.saturating_add(1_000_000_000);
        }
        if self.entries.len() >= self.most {
            self.refused += 1;
            return false;
        }
        self.entries.insert(key.to_owned(), entry);
        true
    }

    /// The clock was set back: keys are as old as before.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        self.entries.values_mut().for_each(|entry| entry.touched_ns = step.moved(entry.touched_ns));
        self.sweep_ns = i64::MIN;
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// The keys in their order, at most `most`.
    pub(crate) fn keys(&self, most: usize, now_ns: i64) -> Vec<&str> {
        let fresh = self.entries.iter().filter(|(_, entry)| self.is_fresh(entry, now_ns));
        let mut keys: Vec<&str> = fresh.map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys.truncate(most);
        keys
    }

    pub(crate) fn len(&self, now_ns: i64) -> usize {
        self.entries.values().filter(|entry| self.is_fresh(entry, now_ns)).count()
    }

    /// Keys that are held, and those that found no room.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_and_grow_old() {
        let mut table = ScriptTable::new(2, 10);
        assert!(table.set("b", 1.into(), 0) && table.set("a", 2.into(), 5));
        assert!(!table.set("c", 3.into(), 6), "two are the most");
        assert_eq!((table.keys(9, 6), table.counts()), (vec!["a", "b"], (2, 1)));
        assert!(table.get("b", 11).is_none() && table.get("a", 11).is_some());
        assert!(table.set("c", 3.into(), 1_000_000_020), "old ones made room");
        assert_eq!(table.len(1_000_000_020), 1);
    }
}
