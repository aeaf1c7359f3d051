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
/// Approximate bytes of an entry in addition to its key and value.
const ENTRY_LEN: usize = 80;

#[derive(Debug)]
struct Entry {
    value: Dynamic,
    /// Bytes of key and value, about.
    len: usize,
    touched_ns: i64,
}

/// Values by key. A key that was not written for longer than the time to live is gone.
#[derive(Debug)]
pub(crate) struct ScriptTable {
    most: usize,
    ttl_ns: i64,
    entries: HashMap<String, Entry>,
    len_kept: usize,
    /// The time at which old keys are looked for again.
    sweep_ns: i64,
    refused: u64,
}

impl ScriptTable {
    pub(crate) fn new(most: usize, ttl_ns: i64) -> ScriptTable {
        ScriptTable { most, ttl_ns, entries: HashMap::new(), len_kept: 0, sweep_ns: i64::MIN, refused: 0 }
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

    /// Whether there was room for the key, and within `room` bytes for a value that takes `value_len`.
    pub(crate) fn set(
        &mut self,
        key: &str,
        value: Dynamic,
        value_len: usize,
        room: usize,
        now_ns: i64,
    ) -> bool {
        let len = ENTRY_LEN + key.len() + value_len;
        let entry = Entry { value, len, touched_ns: now_ns };
        if let Some(place) = self.entries.get_mut(key) {
            if len > place.len.saturating_add(room) {
                self.refused += 1;
                return false;
            }
            self.len_kept = self.len_kept - place.len + len;
            *place = entry;
            return true;
        }
        let is_full = |table: &ScriptTable| table.entries.len() >= table.most;
        if is_full(self) && now_ns >= self.sweep_ns {
            let oldest_ns = now_ns.saturating_sub(self.ttl_ns);
            self.entries.retain(|_, entry| entry.touched_ns >= oldest_ns);
            self.len_kept = self.entries.values().map(|entry| entry.len).sum();
            self.sweep_ns = now_ns.saturating_add(1_000_000_000);
        }
        if key.len() > KEY_LEN || is_full(self) || len > room {
            self.refused += 1;
            return false;
        }
        self.len_kept += len;
        self.entries.insert(key.to_owned(), entry);
        true
    }

    /// The clock was set back: keys are as old as before.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        self.entries.values_mut().for_each(|entry| entry.touched_ns = step.moved(entry.touched_ns));
        self.sweep_ns = i64::MIN;
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.len_kept -= entry.len;
        }
    }

    /// Bytes that keys and values take, about.
    pub(crate) fn len_kept(&self) -> usize {
        self.len_kept
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

    /// Held keys, and refused ones.
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
        let set = |table: &mut ScriptTable, key, now_ns| table.set(key, 1.into(), 16, 1000, now_ns);
        assert!(set(&mut table, "b", 0) && set(&mut table, "a", 5));
        assert!(!set(&mut table, "c", 6), "two are the most");
        assert_eq!((table.keys(9, 6), table.counts()), (vec!["a", "b"], (2, 1)));
        assert!(table.get("b", 11).is_none() && table.get("a", 11).is_some());
        assert!(set(&mut table, "c", 1_000_000_020), "old ones made room");
        assert_eq!((table.len(1_000_000_020), table.len_kept()), (1, ENTRY_LEN + 17));
        assert!(!table.set("c", 1.into(), 2000, 1000, 1_000_000_020), "there is no room for a value");
        assert!(table.get("c", 1_000_000_020).is_some(), "the one before stays");
        table.remove("c");
        assert_eq!(table.len_kept(), 0);
    }
}
