//! `filter`: packets that a filter accepts, one for each interface, interpreted at first, and by something faster once
//! that pays.
//!
//! ```text
//! first packets:                 CompiledFilter (interpreter), at hand as soon as the text is compiled
//! after NATIVE_AFTER packets:    what `faster` makes of it, such as native code; the interpreter where it makes nothing
//! ```

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_ir::CompiledFilter;
use tapline_jit::{NATIVE_AFTER, Native};
use tapline_packet::{Batch, Interface, InterfaceId, Selection};
use tapline_source::{Error, FilterAccount, UnfitLinkType};

use crate::tag_look::TagLook;

/// Compiles the filter for an interface; `None` accepts every packet.
pub type CompileFilter = Arc<dyn Fn(&Interface) -> Result<Option<CompiledFilter>, Error> + Send + Sync>;

/// Makes something that decides like the program, and faster, or says why it cannot.
pub type CompileNative = Arc<dyn Fn(&CompiledFilter) -> Result<Arc<dyn PacketFilter>, String> + Send + Sync>;

/// The first error, if a filter fits none of these interfaces; what some of them cannot have affects only them.
///
/// # Errors
/// See above.
pub fn fits_any<T>(
    interfaces: &[Interface],
    compile: impl Fn(&Interface) -> Result<T, Error>,
) -> Result<(), Error> {
    let mut first = None;
    for interface in interfaces {
        match compile(interface) {
            Ok(_) => return Ok(()),
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(()), Err)
}

/// Lets packets through that a filter accepts.
pub struct FilterStage {
    compile: CompileFilter,
    filters: Filters,
    /// Whether it is next to the source, which may have run it already.
    is_first: bool,
    /// Packets that came when the filter could not be made.
    unexamined: u64,
    /// Link types that cannot have the filter.
    unfit: Vec<UnfitLinkType>,
    /// For each interface, the place in `unfit`; `None` for those that have the filter.
    unfit_of: Vec<Option<usize>>,
    events: Vec<String>,
    /// A look for tags, as long as the filter has accepted nothing.
    tags: TagLook,
}

impl FilterStage {
    /// Filters with the result of `compile` for each interface. `is_first` means that the source may have filtered
    /// already: such packets pass.
    pub fn new(compile: CompileFilter, is_first: bool) -> FilterStage {
        let filters = Filters::new(Arc::new(native));
        FilterStage {
            compile,
            filters,
            is_first,
            unexamined: 0,
            unfit: Vec::new(),
            unfit_of: Vec::new(),
            events: Vec::new(),
            tags: TagLook::OVER,
        }
    }

    /// Counts VLAN tags of the first packets if the filter accepts none of them, for a hint.
    #[must_use]
    pub fn looking_for_tags(self) -> FilterStage {
        FilterStage { tags: TagLook::default(), ..self }
    }

    /// Keeps the filter in the interpreter for good.
    #[must_use]
    pub fn interpreted(self) -> FilterStage {
        let faster: CompileNative = Arc::new(|_| Err("the interpreter was asked for".to_owned()));
        FilterStage { filters: Filters::new(faster), ..self }
    }

    fn compile_new(&mut self, packets: &Packets<'_>) -> Result<(), Error> {
        let mut programs = Vec::new();
        for (index, interface) in packets.interfaces.iter().enumerate().skip(self.filters.len()) {
            let is_done = self.is_first && packets.is_filtered(InterfaceId(index as u32));
            let compiled = if is_done { Ok(None) } else { (self.compile)(interface) };
            let (program, unfit) = match compiled {
                Ok(program) => (program, None),
                Err(Error::Filter(reason)) => (None, Some(self.note_unfit(interface, reason))),
                Err(error) => return Err(error),
            };
            programs.push(program);
            self.unfit_of.push(unfit);
        }
        self.filters.extend(programs);
        Ok(())
    }

    /// Notes that an interface cannot have the filter. Returns the place of its link type.
    fn note_unfit(&mut self, interface: &Interface, reason: String) -> usize {
        let known = self.unfit.iter().position(|unfit| unfit.link_type == interface.link_type);
        let at = known.unwrap_or_else(|| {
            self.unfit.push(UnfitLinkType { link_type: interface.link_type, reason, packets: 0 });
            self.unfit.len() - 1
        });
        // A live source said so when the interface joined.
        if interface.if_index == 0 || !self.is_first {
            let name = if interface.label().is_empty() { "an interface" } else { interface.label() };
            self.events.push(format!("{name}: {}", self.unfit[at].clause()));
        }
        at
    }

    /// Refuses packets of interfaces that cannot have the filter, and counts them.
    fn refuse_unfit(&mut self, packets: &mut Packets<'_>) {
        let FilterStage { unfit, unfit_of, .. } = self;
        let batch = packets.batch;
        packets.selection.retain(|index| {
            let id = batch.records()[index].meta.interface.0 as usize;
            let at = unfit_of.get(id).copied().flatten();
            at.into_iter().for_each(|at| unfit[at].packets += 1);
            at.is_none()
        });
    }
}

impl Stage for FilterStage {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.filters.len()
            && let Err(error) = self.compile_new(packets)
        {
            self.unexamined += packets.len() as u64;
            return Err(error);
        }
        if !self.unfit.is_empty() {
            self.refuse_unfit(packets);
        }
        let before = (!self.tags.is_over()).then(|| packets.selection.clone());
        self.filters.select(&packets.batch, &mut packets.selection);
        match before {
            Some(before) if packets.is_empty() => self.tags.look(packets, &before),
            // The filter finds packets: nothing needs a hint.
            Some(_) => self.tags = TagLook::OVER,
            None => {}
        }
        out.pass(packets)
    }

    /// A filter that no interface can have is an error.
    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        match self.unfit.first() {
            Some(unfit) if self.unfit_of.iter().all(Option::is_some) => {
                Err(Error::Filter(unfit.reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn counters(&self) -> StageCounters {
        StageCounters {
            unexamined: self.unexamined,
            filter: Some(FilterAccount {
                unfit: self.unfit.clone(),
                tagged: self.tags.tagged(),
                ..self.filters.account()
            }),
            ..StageCounters::default()
        }
    }
}

/// The filter as native code, or why there is none: the interpreter goes on.
pub(super) fn native(filter: &CompiledFilter) -> Result<Arc<dyn PacketFilter>, String> {
    Native::of(filter)
        .map(|native| Arc::new(native) as Arc<dyn PacketFilter>)
        .map_err(|error| error.to_string())
}

/// The filters of a run.
pub(super) struct Filters {
    faster: CompileNative,
    /// By interface; `None` accepts everything.
    filters: Vec<Option<Filter>>,
    /// All interfaces have the same.
    is_uniform: bool,
    /// Filters before this one have been made faster where they could.
    tried: usize,
    seen: u64,
    /// Packets seen when the first filter was made faster.
    faster_after: Option<u64>,
}

struct Filter {
    program: CompiledFilter,
    /// `None` as long as it was not tried.
    faster: Option<Result<Arc<dyn PacketFilter>, String>>,
}

impl Filter {
    fn engine(&self) -> &dyn PacketFilter {
        match &self.faster {
            Some(Ok(faster)) => faster.as_ref(),
            _ => &self.program,
        }
    }
}

fn program(filter: &Option<Filter>) -> Option<&CompiledFilter> {
    filter.as_ref().map(|filter| &filter.program)
}

impl Filters {
    /// Programs are handed to `faster` once they have seen enough packets.
    pub(super) fn new(faster: CompileNative) -> Filters {
        Filters { faster, filters: Vec::new(), is_uniform: true, tried: 0, seen: 0, faster_after: None }
    }

    /// The engine that runs the filters at present.
    pub(super) fn account(&self) -> FilterAccount {
        let mut account = FilterAccount { compiled_after: self.faster_after, ..FilterAccount::default() };
        for filter in self.filters.iter().flatten() {
            match &filter.faster {
                Some(Ok(_)) => account.compiled += 1,
                Some(Err(reason)) => account.reason = Some(reason.clone()),
                None => {}
            }
            account.interpreted += u64::from(!matches!(filter.faster, Some(Ok(_))));
        }
        account
    }

    /// Number of interfaces that have their own.
    pub(super) fn len(&self) -> usize {
        self.filters.len()
    }

    /// Adds those of further interfaces.
    pub(super) fn extend(&mut self, programs: impl IntoIterator<Item = Option<CompiledFilter>>) {
        let filter =
            |program: Option<CompiledFilter>| program.map(|program| Filter { program, faster: None });
        self.filters.extend(programs.into_iter().map(filter));
        self.is_uniform = self.filters.windows(2).all(|pair| program(&pair[0]) == program(&pair[1]));
    }

    /// Leaves only accepted packets in the selection.
    pub(super) fn select(&mut self, batch: &Batch<'_>, selection: &mut Selection) {
        let seen_before = self.seen;
        self.seen += batch.len() as u64;
        if self.seen > NATIVE_AFTER && self.tried < self.filters.len() {
            self.make_faster(seen_before);
        }
        if self.is_uniform {
            if let Some(Some(filter)) = self.filters.first() {
                filter.engine().select(batch, selection);
            }
            return;
        }
        selection.retain(|index| {
            let packet = batch.packet(index);
            match self.filters.get(packet.meta.interface.0 as usize) {
                Some(Some(filter)) => filter.engine().accepts(packet),
                _ => true,
            }
        });
    }

    /// Each program once, however many interfaces have it.
    fn make_faster(&mut self, seen_before: u64) {
        for at in std::mem::replace(&mut self.tried, self.filters.len())..self.filters.len() {
            let (before, rest) = self.filters.split_at_mut(at);
            let Some(Some(filter)) = rest.first_mut() else { continue };
            let same = before.iter().flatten().find(|other| other.program == filter.program);
            filter.faster = match same {
                Some(other) => other.faster.clone(),
                None => Some((self.faster)(&filter.program)),
            };
            if let Some(Ok(_)) = filter.faster {
                self.faster_after.get_or_insert(seen_before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tapline_bpf::{Insn, Program};
    use tapline_packet::{ClockReading, InterfaceId, LinkType, Meta, Packet, Record};

    /// Pushes a packet of each of two interfaces; how many go on, if the stage takes them.
    fn pushed(stage: &mut FilterStage, interfaces: &[Interface]) -> u64 {
        let record = |interface| {
            let meta = Meta { interface: InterfaceId(interface), ..Meta::default() };
            Record { meta, ..Record::default() }
        };
        let records = [record(0), record(1), record(1)];
        let mut packets = Packets::all(Batch::new(&[], &records), interfaces, ClockReading::default());
        stage.push(&mut packets, &mut Out::nowhere()).expect("what some cannot have ends nothing");
        packets.len() as u64
    }

    #[test]
    fn unfit_filters_affect_only_their_link_type() {
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET), Interface::new("vpn0", LinkType::RAW)];
        let compile: CompileFilter = Arc::new(|interface: &Interface| match interface.link_type {
            LinkType::ETHERNET => Ok(Some(returning(1))),
            _ => Err(Error::Filter("no Ethernet\nhere".to_owned())),
        });
        let mut stage = FilterStage::new(Arc::clone(&compile), true);
        assert_eq!(pushed(&mut stage, &interfaces), 1);
        assert_eq!(pushed(&mut stage, &interfaces), 1);
        let [told] = &stage.events()[..] else { panic!("one event") };
        assert!(told.starts_with("vpn0: its link type RAW") && told.ends_with(": no Ethernet"), "{told}");
        let unfit = &stage.counters().filter.unwrap().unfit;
        assert_eq!((unfit.len(), unfit[0].packets, unfit[0].link_type), (1, 4, LinkType::RAW));
        let tick = TickContext::new(ClockReading::default(), &[]);
        assert!(stage.finish(&tick, &mut Out::nowhere()).is_ok());
        // A filter that no interface can have is an error at the end.
        let mut stage = FilterStage::new(compile, true);
        assert_eq!(pushed(&mut stage, &[interfaces[1].clone(), interfaces[1].clone()]), 0);
        assert!(matches!(stage.finish(&tick, &mut Out::nowhere()), Err(Error::Filter(_))));
    }

    fn returning(k: u32) -> CompiledFilter {
        Program::new(vec![Insn { code: 0x06, jt: 0, jf: 0, k }]).expect("a valid program").into()
    }

    /// Accepts nothing, as a type that differs from the code it replaces.
    struct Nothing;

    impl PacketFilter for Nothing {
        fn accepts(&self, _: Packet<'_>) -> bool {
            false
        }

        fn select(&self, _: &Batch<'_>, selection: &mut Selection) {
            selection.truncate(0);
        }
    }

    /// Number of ten packets, in turn of interface 0 and 1, that are accepted.
    fn accepted(filters: &mut Filters) -> usize {
        let meta = |interface| Meta { interface: InterfaceId(interface), ..Meta::default() };
        let records: Vec<Record> =
            (0..10).map(|index| Record { meta: meta(index % 2), ..Record::default() }).collect();
        let mut selection = Selection::none();
        selection.select_all(10);
        filters.select(&Batch::new(&[], &records), &mut selection);
        selection.len()
    }

    #[test]
    fn native_code_takes_over_once_it_pays() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let faster = move |_: &CompiledFilter| -> Result<Arc<dyn PacketFilter>, String> {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Nothing))
        };
        let mut filters = Filters::new(Arc::new(faster));
        filters.extend([Some(returning(1)), Some(returning(1))]);
        for _ in 0..NATIVE_AFTER / 10 {
            assert_eq!(accepted(&mut filters), 10);
        }
        assert_eq!(filters.account(), FilterAccount { interpreted: 2, ..FilterAccount::default() });
        assert_eq!((made.load(Ordering::Relaxed), accepted(&mut filters)), (0, 0));
        assert_eq!((accepted(&mut filters), made.load(Ordering::Relaxed)), (0, 1));
        let after = Some(NATIVE_AFTER / 10 * 10);
        let account = FilterAccount { compiled: 2, compiled_after: after, ..FilterAccount::default() };
        assert_eq!(filters.account(), account);
        filters.extend([Some(returning(2))]);
        assert_eq!((accepted(&mut filters), made.load(Ordering::Relaxed)), (0, 2));
    }

    #[test]
    fn each_interface_has_its_own() {
        let faster = |program: &CompiledFilter| -> Result<Arc<dyn PacketFilter>, String> {
            let is_easy = *program == returning(1);
            is_easy.then(|| Arc::new(Nothing) as Arc<dyn PacketFilter>).ok_or_else(|| "too hard".to_owned())
        };
        let mut filters = Filters::new(Arc::new(faster));
        filters.extend([Some(returning(1)), Some(returning(2))]);
        assert_eq!(accepted(&mut filters), 10);
        filters.seen = NATIVE_AFTER;
        assert_eq!(accepted(&mut filters), 5, "the second cannot be compiled and goes on as it was");
        let FilterAccount { interpreted, compiled, reason, .. } = filters.account();
        assert_eq!((interpreted, compiled, reason.as_deref()), (1, 1, Some("too hard")));
    }
}
