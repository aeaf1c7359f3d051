//! The filters of all rules, as sets: a packet is looked up once, however many rules there are.
//!
//! ```text
//! every packet             --set of the link type-----------> rules on packets, new hosts, new pairs, silence
//! packets that begin flows --set of the link type-----------> rules on begun flows
//! flows that have ended    --set, of frames made of them----> rules on ended flows
//! ```

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_packet::{Batch, Interface, LinkType, Selection};

use crate::rules::{Rules, Source};

/// Makes filters ready to run.
pub trait Compile: Send + Sync {
    /// A filter of the pcap-filter language for the packets of an interface.
    ///
    /// # Errors
    /// The mistake, with its place.
    fn filter(&self, text: &str, interface: &Interface) -> Result<Filter, String>;

    /// A program in FPL, with memory of its own.
    ///
    /// # Errors
    /// The mistake, with its place.
    fn fpl(&self, text: &str, interface: &Interface) -> Result<Arc<dyn PacketFilter>, String>;
}

/// The set of a rule, one of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleFilterSet {
    Packets,
    Begun,
    Ended,
}

impl RuleFilterSet {
    pub(crate) fn of(source: Source) -> Option<RuleFilterSet> {
        match source {
            Source::Packet
            | Source::NewHost
            | Source::NewPair
            | Source::Silence(_)
            | Source::Gap(_)
            | Source::Burst => Some(RuleFilterSet::Packets),
            Source::FlowBegun => Some(RuleFilterSet::Begun),
            Source::FlowEnded => Some(RuleFilterSet::Ended),
            Source::Account(_) => None,
        }
    }
}

/// A filter in a set: the number of the rule, or of a script's trigger behind them.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) asked: RuleFilterSet,
    pub(crate) number: u32,
    /// The rule's name, for messages.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_fpl: bool,
}

impl Asking {
    /// The filters of the rules that are on.
    pub(crate) fn of_rules(rules: &Rules) -> Vec<Asking> {
        let on = rules.rules.iter().enumerate().filter(|(_, rule)| !rule.is_off);
        on.filter_map(|(number, rule)| {
            let asked = RuleFilterSet::of(rule.source)?;
            let text = rule.fpl.clone().unwrap_or_else(|| rule.filter.clone());
            let is_fpl = rule.fpl.is_some();
            Some(Asking { asked, number: number as u32, name: rule.name.clone(), text, is_fpl })
        })
        .collect()
    }
}

/// A set, and the number behind each of its indices.
#[derive(Debug)]
struct NumberedSet {
    set: FilterSet,
    numbers: Vec<u32>,
}

impl NumberedSet {
    fn new(
        askings: &[Asking],
        asked: RuleFilterSet,
        interface: &Interface,
        compile: &dyn Compile,
    ) -> Result<NumberedSet, String> {
        let mut numbered = NumberedSet { set: FilterSet::new(MatchPolicy::All), numbers: Vec::new() };
        for asking in askings.iter().filter(|asking| asking.asked == asked) {
            let filter = if asking.is_fpl {
                compile.fpl(&asking.text, interface).map(Filter::from_program)
            } else {
                compile.filter(&asking.text, interface)
            };
            let filter = filter.map_err(|why| format!("`{}`: {why}", asking.name))?;
            // A new set gives its filters the indices 0, 1, 2, ...
            numbered.set.insert(filter, 0);
            numbered.numbers.push(asking.number);
        }
        Ok(numbered)
    }
}

/// The filters of all rules and triggers for the interfaces that are known.
#[derive(Debug)]
pub(crate) struct RuleFilters {
    askings: Vec<Asking>,
    /// By link type: the sets of packets and of packets that begin flows.
    sets: Vec<(LinkType, [NumberedSet; 2])>,
    /// The set of each interface.
    by_interface: Vec<usize>,
    ended: NumberedSet,
}

impl RuleFilters {
    pub(crate) fn new(askings: Vec<Asking>, compile: &dyn Compile) -> Result<RuleFilters, String> {
        let interface = Interface::new("", LinkType::ETHERNET);
        let ended = NumberedSet::new(&askings, RuleFilterSet::Ended, &interface, compile)?;
        Ok(RuleFilters { askings, sets: Vec::new(), by_interface: Vec::new(), ended })
    }

    /// Number of interfaces whose filters are compiled.
    pub(crate) fn known(&self) -> usize {
        self.by_interface.len()
    }

    /// Whether flows that have ended are asked about.
    pub(crate) fn asks_ended(&self) -> bool {
        !self.ended.numbers.is_empty()
    }

    /// Whether packets that begin flows are asked about.
    pub(crate) fn asks_begun(&self) -> bool {
        self.askings.iter().any(|asking| asking.asked == RuleFilterSet::Begun)
    }

    /// Compiles for interfaces that are new.
    pub(crate) fn extend(&mut self, interfaces: &[Interface], compile: &dyn Compile) -> Result<(), String> {
        for interface in interfaces.iter().skip(self.known()) {
            let known = self.sets.iter().position(|(link_type, _)| *link_type == interface.link_type);
            let at = match known {
                Some(at) => at,
                None => {
                    let of =
                        |asked: RuleFilterSet| NumberedSet::new(&self.askings, asked, interface, compile);
                    let sets = [of(RuleFilterSet::Packets)?, of(RuleFilterSet::Begun)?];
                    self.sets.push((interface.link_type, sets));
                    self.sets.len() - 1
                }
            };
            self.by_interface.push(at);
        }
        Ok(())
    }

    /// Matches packets; `found` gets the index of each and a number, in the order of the file for each packet.
    /// Returns whether there was any.
    pub(crate) fn packets(
        &mut self,
        asked: RuleFilterSet,
        batch: &Batch<'_>,
        selection: &Selection,
        matches: &mut Matches,
        found: &mut FilterResults,
    ) {
        found.clear();
        let RuleFilters { sets, by_interface, .. } = self;
        let several = sets.len() > 1;
        for (at, (_, sets)) in sets.iter_mut().enumerate() {
            let numbered = &mut sets[usize::from(asked == RuleFilterSet::Begun)];
            if numbered.numbers.is_empty() {
                continue;
            }
            let mut selection = selection.clone();
            if several {
                let of = |index: usize| batch.records()[index].meta.interface.0 as usize;
                selection.retain(|index| by_interface.get(of(index)) == Some(&at));
            }
            numbered.set.classify(batch, &selection, matches);
            found.take(&selection, matches, &numbered.numbers);
        }
        if several {
            found.sort();
        }
    }

    /// Matches frames made of flows that have ended.
    pub(crate) fn flows(&mut self, batch: &Batch<'_>, matches: &mut Matches, found: &mut FilterResults) {
        found.clear();
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        self.ended.set.classify(batch, &selection, matches);
        found.take(&selection, matches, &self.ended.numbers);
    }
}

/// The results of filters: packets and numbers, in order.
#[derive(Debug, Default)]
pub(crate) struct FilterResults(Vec<(u8, u32)>);

impl FilterResults {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, selection: &Selection, matches: &Matches, numbers: &[u32]) {
        if matches.total() == 0 {
            return;
        }
        for index in selection.iter() {
            let of = matches.of(index).iter().map(|slot| (index as u8, numbers[*slot as usize]));
            self.0.extend(of);
        }
    }

    fn sort(&mut self) {
        self.0.sort_unstable();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of the packet at `index`, if `from` is where they begin; moves it behind them.
    pub(crate) fn of(&self, index: usize, from: &mut usize) -> &[(u8, u32)] {
        let start = *from;
        while self.0.get(*from).is_some_and(|(packet, _)| usize::from(*packet) <= index) {
            *from += 1;
        }
        &self.0[start..*from]
    }
}
