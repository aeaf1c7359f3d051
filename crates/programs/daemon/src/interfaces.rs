//! Interfaces of a capture: one list for all its workers and readers, which only grows.
//!
//! ```text
//! worker: interfaces of its source --learn--> list --offered--> control thread: offers, answers, status
//!         numbers of its source --renumber--> numbers of the list, in the records that are stored
//! ```
//!
//! Each source has numbers of its own: interfaces that appear while several workers run come to them in any order. A
//! worker adds an interface to the list before it stores a packet of it, so a reader that meets a number finds it there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_packet::{Batch, Interface, InterfaceId, Record};
use tapline_tap_client::protocol::{INTERFACES_MAX, OfferedInterface};

/// The description of the last interface of a full list.
const UNNAMED: &str = "interfaces beyond those that a capture can name";
/// The most bytes of a name or a description: a file may have long ones, and each fits a message to a client.
const TEXT_MAX: usize = 1024;

/// The list of a capture.
#[derive(Debug)]
pub(crate) struct InterfaceList {
    listed: Mutex<Listed>,
    /// The description of interfaces without a name: those of a file.
    file: Option<String>,
    /// The most interfaces, with the one for all that have no other number.
    most: usize,
}

#[derive(Debug, Default)]
struct Listed {
    interfaces: Vec<Interface>,
    /// Interfaces that share the last number.
    unnamed: u64,
}

impl InterfaceList {
    /// An empty list. `file` describes interfaces without a name.
    pub(crate) fn new(file: Option<String>) -> InterfaceList {
        InterfaceList::with_most(file, INTERFACES_MAX)
    }

    fn with_most(file: Option<String>, most: usize) -> InterfaceList {
        InterfaceList { listed: Mutex::default(), file, most }
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The interfaces so far.
    pub(crate) fn all(&self) -> Vec<Interface> {
        self.lock().interfaces.clone()
    }

    /// Interfaces from number `from` on, as clients get them, up to `len_max` bytes; but one at least.
    pub(crate) fn offered(&self, from: u32, len_max: usize) -> Vec<OfferedInterface> {
        let listed = self.lock();
        let interfaces = listed.interfaces.iter().skip(from as usize).map(OfferedInterface::from);
        bounded(interfaces, len_max.max(1))
    }

    /// Names for people, up to `len_max` bytes; the number of interfaces that are left out; and of those that share the
    /// last number.
    pub(crate) fn names(&self, len_max: usize) -> (Vec<String>, u64, u64) {
        let listed = self.lock();
        let labels = listed.interfaces.iter().map(|interface| interface.label().to_owned());
        let names = bounded(labels, len_max);
        let left_out = (listed.interfaces.len() - names.len()) as u64;
        (names, left_out, listed.unnamed)
    }
}

/// Cuts a text behind its last whole character.
fn shorten(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_MAX));
}

/// The first of some values, whose JSON takes `len_max` bytes at most, but for the first.
fn bounded<T: serde::Serialize>(values: impl Iterator<Item = T>, len_max: usize) -> Vec<T> {
    let mut len = 0;
    let fits = |value: &T| {
        let is_first = len == 0;
        len += serde_json::to_vec(value).map_or(len_max, |json| json.len()) + 1;
        is_first || len <= len_max
    };
    values.take_while(fits).collect()
}

/// Numbers of the list, for a source.
pub(crate) struct InterfaceNumbers {
    list: Arc<InterfaceList>,
    /// By the numbers of the source.
    ids: Vec<InterfaceId>,
    is_same: bool,
    /// Interfaces of the source that share the last number.
    unnamed: u64,
}

impl InterfaceNumbers {
    pub(crate) fn new(list: Arc<InterfaceList>) -> InterfaceNumbers {
        InterfaceNumbers { list, ids: Vec::new(), is_same: true, unnamed: 0 }
    }

    /// Adds interfaces of the source that the list does not have. Returns whether the list has become full by that.
    #[inline]
    pub(crate) fn learn(&mut self, interfaces: &[Interface]) -> bool {
        interfaces.len() > self.ids.len() && self.learn_new(interfaces)
    }

    #[cold]
    fn learn_new(&mut self, interfaces: &[Interface]) -> bool {
        let list = Arc::clone(&self.list);
        let mut listed = list.lock();
        let was_full = listed.unnamed > 0;
        for interface in &interfaces[self.ids.len()..] {
            let mut interface = interface.clone();
            [&mut interface.name, &mut interface.description].into_iter().for_each(shorten);
            if let (true, Some(file)) = (interface.label().is_empty(), &list.file) {
                interface.description.clone_from(file);
            }
            let at = self.place(&listed.interfaces, &interface).unwrap_or(listed.interfaces.len());
            let last = list.most - 1;
            if at == listed.interfaces.len() {
                let unnamed = || Interface {
                    description: UNNAMED.to_owned(),
                    snap_len: interface.snap_len,
                    ..Interface::new("", interface.link_type)
                };
                listed.interfaces.push(if at < last { interface } else { unnamed() });
            }
            self.unnamed += u64::from(at >= last);
            self.is_same &= at == self.ids.len();
            self.ids.push(InterfaceId(at as u32));
        }
        listed.unnamed = listed.unnamed.max(self.unnamed);
        !was_full && listed.unnamed > 0
    }

    /// The place of an interface that another worker has added, or the last one of a full list.
    fn place(&self, interfaces: &[Interface], interface: &Interface) -> Option<usize> {
        let last = self.list.most - 1;
        let is_it = |at: &usize| {
            let known = &interfaces[*at];
            known.if_index == interface.if_index
                && known.name == interface.name
                && known.link_type == interface.link_type
                && !self.ids.contains(&InterfaceId(*at as u32))
        };
        let (named, ours) = (interfaces.len().min(last), self.ids.len() - self.unnamed as usize);
        // With one worker all have a number already.
        let known = if ours < named { (0..named).find(is_it) } else { None };
        known.or((interfaces.len() > last).then_some(last))
    }

    /// The batch with numbers of the list. `records` is memory for it.
    #[inline]
    pub(crate) fn renumber<'a>(&self, batch: Batch<'a>, records: &'a mut Vec<Record>) -> Batch<'a> {
        if self.is_same {
            return batch;
        }
        records.clear();
        records.extend(batch.records().iter().map(|record| {
            let mut record = *record;
            let number = record.meta.interface.0 as usize;
            record.meta.interface = self.ids.get(number).copied().unwrap_or_default();
            record
        }));
        Batch::new(batch.base(), records)
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{LinkType, Meta};

    use super::*;

    fn interfaces(names: &[&str]) -> Vec<Interface> {
        names.iter().map(|name| Interface::new(name, LinkType::ETHERNET)).collect()
    }

    fn numbers(numbers: &InterfaceNumbers, of_source: &[u32]) -> Vec<u32> {
        let record = |number: &u32| Record {
            meta: Meta { interface: InterfaceId(*number), ..Meta::default() },
            ..Record::default()
        };
        let (records, mut memory): (Vec<Record>, _) = (of_source.iter().map(record).collect(), Vec::new());
        let batch = numbers.renumber(Batch::new(&[], &records), &mut memory);
        batch.records().iter().map(|record| record.meta.interface.0).collect()
    }

    #[test]
    fn workers_share_a_list_in_any_order() {
        let list = Arc::new(InterfaceList::new(None));
        let (mut one, mut other) =
            (InterfaceNumbers::new(Arc::clone(&list)), InterfaceNumbers::new(Arc::clone(&list)));
        for worker in [&mut one, &mut other] {
            assert!(!worker.learn(&interfaces(&["v0"])));
        }
        one.learn(&interfaces(&["v0", "v1", "v2"]));
        other.learn(&interfaces(&["v0", "v2", "v3", "v1"]));
        one.learn(&interfaces(&["v0", "v1", "v2", "v1", "v3"]));
        assert_eq!(list.names(1000), (["v0", "v1", "v2", "v3", "v1"].map(str::to_owned).to_vec(), 0, 0));
        assert_eq!(numbers(&one, &[0, 1, 2, 3, 4]), [0, 1, 2, 4, 3]);
        assert_eq!(numbers(&other, &[0, 1, 2, 3]), [0, 2, 3, 1]);
    }

    /// A file may have names that no message has room for.
    #[test]
    fn long_names_are_cut() {
        let list = Arc::new(InterfaceList::new(None));
        let mut worker = InterfaceNumbers::new(Arc::clone(&list));
        let long = "\u{1}é".repeat(20_000);
        let interface = Interface { description: long.clone(), ..Interface::new(&long, LinkType::ETHERNET) };
        worker.learn(&[interface.clone(), interface]);
        let offered = list.offered(0, 96 << 10);
        assert_eq!(offered.len(), 2);
        assert!(offered[0].name.len() <= TEXT_MAX && long.starts_with(&offered[0].name));
        assert!(serde_json::to_vec(&offered).unwrap().len() < 32 << 10);
    }

    /// A full list has a number for all further interfaces.
    #[test]
    fn the_last_number_is_for_all_others() {
        let list = Arc::new(InterfaceList::with_most(None, 3));
        let mut workers = [0, 1].map(|_| InterfaceNumbers::new(Arc::clone(&list)));
        let names = ["v0", "v1", "v2", "v3", "v4"];
        assert!(!workers[0].learn(&interfaces(&names[..2])));
        assert!(workers[0].learn(&interfaces(&names[..4])), "it is full now");
        assert!(!workers[0].learn(&interfaces(&names)), "that was said");
        workers[1].learn(&interfaces(&["v4", "v1", "v0"]));
        assert_eq!(list.names(1000), (vec!["v0".to_owned(), "v1".to_owned(), UNNAMED.to_owned()], 0, 3));
        assert_eq!(numbers(&workers[0], &[0, 1, 2, 3, 4]), [0, 1, 2, 2, 2]);
        assert_eq!(numbers(&workers[1], &[0, 1, 2]), [2, 1, 0]);
    }

    #[test]
    fn long_lists_are_offered_in_parts() {
        let list = Arc::new(InterfaceList::new(Some("trace.pcap".to_owned())));
        let names: Vec<String> = (0..5000).map(|number| format!("v{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).chain([""]).collect();
        InterfaceNumbers::new(Arc::clone(&list)).learn(&interfaces(&names));
        let (mut got, mut parts) = (Vec::new(), 0);
        loop {
            let part = list.offered(got.len() as u32, 10_000);
            assert!(serde_json::to_vec(&part).expect("JSON").len() <= 10_001);
            if part.is_empty() {
                break;
            }
            got.extend(part);
            parts += 1;
        }
        assert!((20..500).contains(&parts), "{parts}");
        assert!(got.iter().map(|one| one.name.as_str()).eq(names));
        assert_eq!(got[5000].description, "trace.pcap");
        assert_eq!(list.offered(0, 0).len(), 1);
        let (shown, left_out, _) = list.names(1000);
        assert_eq!(shown.len() as u64 + left_out, 5001);
        assert!((100..200).contains(&shown.len()), "{}", shown.len());
    }
}
