//! A stage that decides packet by packet, in order, with an engine that may have memory, such as an FPL program.
//!
//! The engine does not change during a run, because its memory is its own.

use std::sync::Arc;

use tapline_bpf::{PacketFilter, retain_with};
use tapline_fpl_memory::SharedCells;
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::{Batch, Interface, Selection};
use tapline_source::{Error, FilterAccount};

use crate::labels::Labels;
use crate::unfit::{Rejecting, unfit_text};

/// Returns the filter for the packets of an interface; the same [`Arc`] for interfaces that share it.
pub type CompileFpl = Arc<dyn Fn(&Interface) -> Result<Arc<dyn PacketFilter>, Error> + Send + Sync>;

/// Lets packets through for which something that may remember decides.
pub struct FplStage {
    decide: CompileFpl,
    /// The memory, where other processes see it.
    shared: Option<Arc<SharedCells>>,
    /// By interface.
    engines: Vec<Arc<dyn PacketFilter>>,
    /// All interfaces have the same.
    is_uniform: bool,
    /// Packets that came when an engine could not be made.
    unexamined: u64,
    /// The reason why a link type cannot have the program, if one was met; and whether another one can.
    unfit: Option<String>,
    fits: bool,
    events: Vec<String>,
    /// Labels of packets, if they get the number that the program returns.
    labels: Option<Labels>,
}

impl FplStage {
    /// Filters with the result of `decide` for each interface.
    pub fn new(decide: CompileFpl) -> FplStage {
        FplStage {
            decide,
            shared: None,
            engines: Vec::new(),
            is_uniform: true,
            unexamined: 0,
            unfit: None,
            fits: false,
            events: Vec::new(),
            labels: None,
        }
    }

    /// Labels each packet with the number that the program returns for it, 255 for a greater one.
    #[must_use]
    pub fn labelling(self) -> FplStage {
        FplStage { labels: Some(Labels::default()), ..self }
    }

    /// The memory of the filters is shared with other processes: they are served between two batches.
    #[must_use]
    pub fn sharing(self, shared: Option<Arc<SharedCells>>) -> FplStage {
        FplStage { shared, ..self }
    }

    /// Makes the filters of new interfaces.
    fn extend(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        for interface in interfaces.iter().skip(self.engines.len()) {
            let engine = match (self.decide)(interface) {
                Ok(engine) => {
                    self.fits = true;
                    engine
                }
                Err(Error::Filter(reason)) => {
                    self.note_unfit(interface, reason);
                    Arc::new(Rejecting)
                }
                Err(error) => return Err(error),
            };
            self.engines.push(engine);
        }
        self.is_uniform = self.engines.windows(2).all(|pair| Arc::ptr_eq(&pair[0], &pair[1]));
        Ok(())
    }

    /// Notes that an interface cannot have the program: its packets are refused.
    fn note_unfit(&mut self, interface: &Interface, reason: String) {
        self.events.push(unfit_text(interface, "this program", &reason));
        self.unfit.get_or_insert(reason);
    }

    /// Leaves only accepted packets in the selection.
    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
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

/// Leaves only accepted packets in the selection, with the verdicts on them as labels.
fn label(
    engines: &[Arc<dyn PacketFilter>],
    is_uniform: bool,
    packets: &mut Packets<'_>,
    labels: &mut Labels,
) {
    let all = packets.batch;
    labels.begin();
    let mut note = |index: usize, verdict: u64| {
        labels.set(&all, index, u8::try_from(verdict).unwrap_or(u8::MAX));
    };
    match engines {
        [engine, ..] if is_uniform => engine.select_with(&all, &mut packets.selection, &mut note),
        engines => retain_with(&mut packets.selection, &mut note, |index| {
            let packet = all.packet(index);
            let engine = engines.get(packet.meta.interface.0 as usize);
            engine.map_or(1, |engine| engine.verdict(packet))
        }),
    }
}

impl Stage for FplStage {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.engines.len()
            && let Err(error) = self.extend(packets.interfaces)
        {
            self.unexamined += packets.len() as u64;
            return Err(error);
        }
        if let Some(shared) = &self.shared {
            shared.begin();
        }
        let all = packets.batch;
        if let Some(labels) = &mut self.labels {
            label(&self.engines, self.is_uniform, packets, labels);
        } else {
            self.select(&packets.batch, &mut packets.selection);
        }
        if let Some(shared) = &self.shared {
            shared.end();
        }
        match &self.labels {
            None => out.pass(packets),
            Some(labels) => out.pass(&mut packets.changed(labels.of(&all))),
        }
    }

    fn tick(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        if let Some(shared) = &self.shared {
            shared.obey();
        }
        Ok(StageStatus::Running)
    }

    /// A program that no interface can have is an error.
    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let reason = self.unfit.clone().filter(|_| !self.fits);
        reason.map_or(Ok(()), |reason| Err(Error::Filter(reason)))
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn counters(&self) -> StageCounters {
        // The engine never changes, so there is no change to report.
        StageCounters {
            unexamined: self.unexamined,
            filter: Some(FilterAccount::default()),
            ..StageCounters::default()
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

    impl PacketFilter for Unseen {
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

    /// The accepted ones of twelve packets: of interfaces 0 and 1 in turn, lengths 0 to 3 over and over.
    fn accepted(decide: CompileFpl) -> Vec<usize> {
        let mut second = FplStage::new(decide);
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
        let one: Arc<dyn PacketFilter> = Arc::new(Unseen::default());
        assert_eq!(accepted(Arc::new(move |_| Ok(Arc::clone(&one)))), [0, 2, 3, 5]);
    }

    #[test]
    fn each_interface_may_have_its_own() {
        assert_eq!(accepted(Arc::new(|_| Ok(Arc::new(Unseen::default())))), [0, 2, 3, 5]);
        let by_name: [Arc<dyn PacketFilter>; 2] = [Arc::new(Unseen::default()), Arc::new(tcp())];
        let decide =
            move |interface: &Interface| Ok(Arc::clone(&by_name[usize::from(interface.name == "b")]));
        assert_eq!(accepted(Arc::new(decide)), [0, 2]);
    }

    /// Accepts none of these packets: they are empty.
    fn tcp() -> tapline_ir::CompiledFilter {
        tapline_filter::compile("tcp", &tapline_filter::Options::default()).expect("a filter")
    }
}
