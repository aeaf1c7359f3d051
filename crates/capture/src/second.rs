//! What decides over the packets that the filters accept: something that may remember, such as an FPL program.
//!
//! ```text
//! batch -> filters (in the kernel or here) -> second, packet by packet in order -> sinks
//! ```
//!
//! It decides from its first packet to its last in one form: what it remembers has one place.

use std::sync::Arc;

use tapline_filter::Select;
use tapline_packet::{Batch, Interface, Selection};

use crate::Error;

/// Gives what decides over the packets of an interface; the same [`Arc`] for interfaces that share it.
pub type Decide<'a> = dyn Fn(&Interface) -> Result<Arc<dyn Select>, Error> + Sync + 'a;

/// What decides after the filters.
pub(crate) struct Second<'a> {
    decide: &'a Decide<'a>,
    /// By interface.
    engines: Vec<Arc<dyn Select>>,
    /// All interfaces have the same.
    is_uniform: bool,
}

impl<'a> Second<'a> {
    pub(crate) fn new(decide: &'a Decide<'a>) -> Second<'a> {
        Second { decide, engines: Vec::new(), is_uniform: true }
    }

    /// Asks for those of interfaces that are new.
    pub(crate) fn extend(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        for interface in interfaces.iter().skip(self.engines.len()) {
            self.engines.push((self.decide)(interface)?);
        }
        self.is_uniform = self.engines.windows(2).all(|pair| Arc::ptr_eq(&pair[0], &pair[1]));
        Ok(())
    }

    /// Leaves in the selection what is accepted.
    pub(crate) fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        match self.engines.as_slice() {
            [engine, ..] if self.is_uniform => engine.select(batch, selection),
            engines => selection.retain(|index| {
                let packet = batch.packet(index);
                let engine = engines.get(packet.meta.interface.0 as usize);
                engine.is_none_or(|engine| engine.accepts(packet))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tapline_packet::{InterfaceId, LinkType, Meta, Packet, Record};

    /// Accepts packets of the lengths that it has not seen before.
    #[derive(Default)]
    struct Unseen(Mutex<Vec<u32>>);

    impl Select for Unseen {
        fn accepts(&self, packet: Packet<'_>) -> bool {
            let mut seen = self.0.lock().expect("no panic");
            let is_new = !seen.contains(&packet.meta.wire_len);
            seen.push(packet.meta.wire_len);
            is_new
        }

        fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
            selection.retain(|index| self.accepts(batch.packet(index)));
        }
    }

    /// Which of twelve packets are accepted: of interfaces 0 and 1 in turn, lengths 0 to 3 over and over.
    fn accepted(decide: &Decide<'_>) -> Vec<usize> {
        let mut second = Second::new(decide);
        let interfaces = ["a", "b"].map(|name| Interface::new(name, LinkType::ETHERNET));
        second.extend(&interfaces[..1]).expect("an engine");
        second.extend(&interfaces).expect("another");
        let record = |n: u32| Record {
            meta: Meta { interface: InterfaceId(n % 2), wire_len: n % 4, ..Meta::default() },
            ..Record::default()
        };
        let records: Vec<Record> = (0..12).map(record).collect();
        let mut selection = Selection::none();
        selection.select_all(12);
        selection.retain(|index| index != 1);
        second.select(&Batch::new(&[], &records), &mut selection);
        selection.iter().collect()
    }

    #[test]
    fn one_for_all_interfaces_remembers_all_packets() {
        let one: Arc<dyn Select> = Arc::new(Unseen::default());
        assert_eq!(accepted(&|_| Ok(Arc::clone(&one))), [0, 2, 3, 5]);
    }

    #[test]
    fn each_interface_may_have_its_own() {
        assert_eq!(accepted(&|_| Ok(Arc::new(Unseen::default()))), [0, 2, 3, 5]);
        let by_name: [Arc<dyn Select>; 2] = [Arc::new(Unseen::default()), Arc::new(tcp())];
        let decide = |interface: &Interface| Ok(Arc::clone(&by_name[usize::from(interface.name == "b")]));
        assert_eq!(accepted(&decide), [0, 2]);
    }

    /// Accepts none of these packets: they are empty.
    fn tcp() -> tapline_filter::bpf::Program {
        tapline_filter::compile("tcp", &tapline_filter::Options::default()).expect("a filter")
    }
}
