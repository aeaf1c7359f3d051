//! Rules made ready for one worker: their filters, compiled for its interfaces.

use std::collections::HashMap;
use std::sync::Arc;

use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_flow_rules::RuleSet;
use tapline_graph::Packets;
use tapline_packet::{Interface, LinkType, Selection};

use crate::filter::{Filters, native};
use crate::filters::compile;
use crate::settings::InterfaceOptions;
use crate::unfit::{rejecting, unfit_text};

/// Filters of a list, by link type: compiled once for all workers.
pub(super) type Compiled = HashMap<LinkType, Vec<Arc<Filter>>>;

/// Rules and their filters.
pub(super) struct Prepared {
    pub(super) rules: Arc<RuleSet>,
    /// The first filter, for each interface.
    pub(super) filter: Filters,
    sets: Vec<(LinkType, FilterSet)>,
    /// The set of each interface.
    by_interface: Vec<usize>,
    /// Sentences about rules that an interface cannot have.
    pub(super) told: Vec<String>,
}

impl Prepared {
    pub(super) fn new(rules: Arc<RuleSet>) -> Prepared {
        let filter = Filters::new(Arc::new(native));
        Prepared { rules, filter, sets: Vec::new(), by_interface: Vec::new(), told: Vec::new() }
    }

    /// Number of interfaces whose filters are compiled.
    pub(super) fn known(&self) -> usize {
        self.by_interface.len()
    }

    /// Compiles for interfaces that are new.
    pub(super) fn extend(
        &mut self,
        interfaces: &[Interface],
        options: &InterfaceOptions,
    ) -> Result<(), String> {
        self.extend_with(interfaces, options, &mut Compiled::new())
    }

    /// Extends with filters that are compiled already.
    pub(super) fn extend_with(
        &mut self,
        interfaces: &[Interface],
        options: &InterfaceOptions,
        compiled: &mut Compiled,
    ) -> Result<(), String> {
        let rules = Arc::clone(&self.rules);
        let text = rules.file().filter.as_str();
        for interface in interfaces.iter().skip(self.known()) {
            let options = options(interface);
            let filter = (!text.is_empty()).then(|| tapline_filter::compile(text, &options)).transpose();
            // What the first interface cannot have is a mistake; of those that join, it affects only them.
            let is_first = self.by_interface.is_empty();
            let filter = match filter {
                Ok(filter) => filter,
                Err(error) if is_first => {
                    return Err(at_line(rules.file().filter_line, interface, &error.render(text)));
                }
                Err(error) => {
                    self.told.push(unfit_text(interface, "the filter of the rules", &error.render(text)));
                    Some(tapline_filter::reject_all().map_err(|error| error.to_string())?)
                }
            };
            let set = self.sets.iter().position(|(link_type, _)| *link_type == interface.link_type);
            let set = match set {
                Some(set) => set,
                None => {
                    let told = if is_first { None } else { Some(&mut self.told) };
                    let filters = filters(&rules, interface, &options, compiled, told)?;
                    self.sets.push((interface.link_type, set_of(filters)));
                    self.sets.len() - 1
                }
            };
            self.filter.extend([filter]);
            self.by_interface.push(set);
        }
        Ok(())
    }

    /// Matches packets with the list, and reports for each the matching rules, in their order.
    pub(super) fn classify(
        &mut self,
        packets: &Packets<'_>,
        selection: &Selection,
        matches: &mut Matches,
        mut found: impl FnMut(usize, usize),
    ) {
        for at in 0..self.sets.len() {
            let mut selection = selection.clone();
            if self.sets.len() > 1 {
                let of = |index: usize| packets.batch.records()[index].meta.interface.0 as usize;
                selection.retain(|index| self.by_interface.get(of(index)) == Some(&at));
            }
            self.sets[at].1.classify(&packets.batch, &selection, matches);
            for index in selection.iter() {
                // Filters were inserted into a new set in the order of the rules, and are told in this order.
                matches.of(index).iter().for_each(|rule| found(index, *rule as usize));
            }
        }
    }
}

fn at_line(line: usize, interface: &Interface, why: &str) -> String {
    match interface.name.as_str() {
        "" => format!("line {line}: {why}"),
        name => format!("line {line}, for {name}: {why}"),
    }
}

fn set_of(filters: &[Arc<Filter>]) -> FilterSet {
    let mut set = FilterSet::new(MatchPolicy::All);
    for filter in filters {
        set.insert(Arc::clone(filter), 0);
    }
    set
}

/// The filters of the list for the link type of an interface.
fn filters<'c>(
    rules: &RuleSet,
    interface: &Interface,
    options: &tapline_filter::Options,
    compiled: &'c mut Compiled,
    mut told: Option<&mut Vec<String>>,
) -> Result<&'c [Arc<Filter>], String> {
    use std::collections::hash_map::Entry;
    let filters = match compiled.entry(interface.link_type) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(place) => {
            let rules = rules.file().list.iter();
            let filter =
                |rule: &tapline_flow_rules::ListRule| match (compile(&rule.filter, options), &mut told) {
                    (Ok(filter), _) => Ok(Arc::new(filter)),
                    (Err(error), Some(told)) => {
                        let shown = format!("the rule in line {}", rule.line);
                        told.push(unfit_text(interface, &shown, &error.render(&rule.filter)));
                        Ok(Arc::new(rejecting()))
                    }
                    (Err(error), None) => Err(at_line(rule.line, interface, &error.render(&rule.filter))),
                };
            place.insert(rules.map(filter).collect::<Result<_, String>>()?)
        }
    };
    Ok(filters)
}
