//! Sampling intervals from options: of the whole source, of an interface, of a sampler. An interval that no option
//! gives is unknown, which is not 1.
//!
//! ```text
//! interval of a record :=  its own | of its sampler | of its sampler in other domains of the exporter | of its interface
//!                          | of its template | of the source, told by it or another domain | of the only sampler | of the exporter
//! ```

use std::collections::HashMap;

use crate::draft::Draft;

/// Interfaces and samplers of a source at most.
const SCOPES_MAX: usize = 4096;
/// Samplers at most that the domains of an exporter share.
const SHARED_MAX: usize = 256;
/// Memory of each, in bytes, about.
const SCOPE_LEN: usize = 48;

/// The sampling of the counters of a record. Missing values are 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sampled {
    /// One packet of `interval` was taken.
    pub(crate) interval: u32,
    /// `packets` packets of `packets + space` were taken (RFC 5477, 8.2.2 and 8.2.3).
    pub(crate) packets: u32,
    pub(crate) space: u32,
    /// `size` packets of `population` were taken (8.2.6, 8.2.7).
    pub(crate) size: u32,
    pub(crate) population: u32,
    /// The share of packets that were taken (8.2.8).
    pub(crate) probability: f64,
    /// `selectorAlgorithm`: which of these count, where a record has several.
    pub(crate) algorithm: u16,
    /// The sampler whose interval the options give.
    pub(crate) sampler: Option<u64>,
    /// The options are of the exporter, whatever its domains.
    pub(crate) is_of_system: bool,
    pub(crate) domain: Option<u32>,
    /// The template that the options are of, or that the record has.
    pub(crate) template: Option<u16>,
}

/// Selector algorithms (IANA, PSAMP parameters).
const RANDOM_OF_POPULATION: u16 = 3;
const UNIFORM_PROBABILITY: u16 = 4;

impl Sampled {
    /// The interval N (1 packet in N), if it is given, rounded to the next whole number.
    pub(crate) fn told(&self) -> Option<u32> {
        if self.packets | self.space | self.size | self.population == 0 && self.probability == 0.0 {
            return (self.interval > 0).then_some(self.interval);
        }
        let ratio = |taken: u32, of: u64| {
            let taken = u64::from(taken);
            (taken > 0 && of >= taken).then(|| u32::try_from((of + taken / 2) / taken).unwrap_or(u32::MAX))
        };
        let systematic = ratio(self.packets, u64::from(self.packets) + u64::from(self.space));
        let random = ratio(self.size, self.population.into());
        let share = self.probability;
        let uniform = (share > 0.0 && share <= 1.0).then(|| (1.0 / share).round() as u32);
        let direct = (self.interval > 0).then_some(self.interval);
        match self.algorithm {
            RANDOM_OF_POPULATION => random.or(direct).or(uniform).or(systematic),
            UNIFORM_PROBABILITY => uniform.or(direct).or(random).or(systematic),
            _ => direct.or(systematic).or(random).or(uniform),
        }
    }
}

/// The part of a source that an interval is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The source.
    Whole,
    /// All domains of the exporter.
    System,
    /// A domain, as another domain reports it.
    Domain(u32),
    Template(u16),
    Interface(u32),
    Sampler(u64),
}

/// The sampling intervals of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingRates {
    whole: Option<u32>,
    system: Option<u32>,
    scoped: HashMap<Scope, u32>,
    samplers: usize,
    /// The interval of the sampler that came last: of records that name none, where there is but one.
    last: Option<u32>,
}

/// Intervals that all domains of an exporter share: line cards export under domains of their own, while the router
/// reports its samplers under another.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRates {
    system: Option<u32>,
    /// `None` for a sampler for which domains report different intervals.
    samplers: HashMap<u64, Option<u32>>,
    domains: HashMap<u32, u32>,
}

impl SharedRates {
    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        (self.samplers.len() + self.domains.len()) * SCOPE_LEN
    }

    /// Takes an interval that one domain reported. The others know it from then on.
    pub(crate) fn learn(&mut self, scope: Scope, interval: u32, before: Option<u32>) {
        let has_room = self.samplers.len() < SHARED_MAX;
        match scope {
            Scope::System => self.system = Some(interval),
            Scope::Sampler(sampler) => match self.samplers.get_mut(&sampler) {
                // A domain may change its own mind.
                Some(known) if known.is_some() && *known == before => *known = Some(interval),
                Some(known) if *known == Some(interval) => {}
                Some(known) => *known = None,
                None if has_room => {
                    self.samplers.insert(sampler, Some(interval));
                }
                None => {}
            },
            Scope::Domain(domain)
                if self.domains.len() < SHARED_MAX || self.domains.contains_key(&domain) =>
            {
                self.domains.insert(domain, interval);
            }
            Scope::Whole | Scope::Domain(_) | Scope::Template(_) | Scope::Interface(_) => {}
        }
    }
}

/// An interval that an option reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Learnt {
    pub(crate) scope: Scope,
    pub(crate) interval: u32,
    /// The interval of this scope before.
    pub(crate) before: Option<u32>,
}

impl SamplingRates {
    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        self.scoped.len() * SCOPE_LEN
    }

    /// Takes a record of options of this domain. Returns the interval, if it has one and the table has room for it.
    pub(crate) fn learn(&mut self, options: &Draft, domain: u32) -> Option<Learnt> {
        let interval = options.sampled.told()?;
        let Sampled { sampler, template, is_of_system, domain: of_domain, .. } = options.sampled;
        let scope = match (sampler, options.ingress, template) {
            (Some(sampler), ..) => Scope::Sampler(sampler),
            (None, interface @ 1.., _) => Scope::Interface(interface),
            (None, 0, Some(template)) => Scope::Template(template),
            (None, 0, None) => match of_domain.filter(|of_domain| *of_domain != domain) {
                Some(other) => Scope::Domain(other),
                None if is_of_system => Scope::System,
                None => Scope::Whole,
            },
        };
        let before = self.set(scope, interval)?;
        Some(Learnt { scope, interval, before })
    }

    /// Sets the interval of a scope. Returns the previous one, or `None` if the table is full.
    pub(crate) fn set(&mut self, scope: Scope, interval: u32) -> Option<Option<u32>> {
        match scope {
            Scope::Whole => return Some(self.whole.replace(interval)),
            Scope::System => return Some(self.system.replace(interval)),
            _ => {}
        }
        if self.scoped.len() >= SCOPES_MAX && !self.scoped.contains_key(&scope) {
            return None;
        }
        let before = self.scoped.insert(scope, interval);
        if matches!(scope, Scope::Sampler(_)) {
            self.samplers += usize::from(before.is_none());
            self.last = Some(interval);
        }
        Some(before)
    }

    /// All intervals, in order.
    pub(crate) fn all(&self) -> Vec<(Scope, u32)> {
        let mut all: Vec<(Scope, u32)> =
            self.scoped.iter().map(|(scope, interval)| (*scope, *interval)).collect();
        all.extend(self.whole.map(|interval| (Scope::Whole, interval)));
        all.extend(self.system.map(|interval| (Scope::System, interval)));
        all.sort_unstable();
        all
    }

    /// The interval of a record; `None` if unknown.
    #[inline]
    pub(crate) fn of(&self, record: &Draft, domain: u32, shared: &SharedRates) -> Option<u32> {
        if let Some(interval) = record.sampled.told() {
            return Some(interval);
        }
        let of_sampler = record.sampled.sampler.and_then(|sampler| {
            let own = self.scoped.get(&Scope::Sampler(sampler)).copied();
            own.or_else(|| shared.samplers.get(&sampler).copied().flatten())
        });
        let of_interface = || self.scoped.get(&Scope::Interface(record.ingress)).copied();
        let of_template = || self.scoped.get(&Scope::Template(record.sampled.template?)).copied();
        let of_domain = || shared.domains.get(&domain).copied();
        let only = || self.last.filter(|_| self.samplers == 1);
        let of_source = self.whole.or(self.system).or_else(of_domain);
        of_sampler.or_else(of_interface).or_else(of_template).or(of_source).or_else(only).or(shared.system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_flow::export::{Foreign, Value};

    fn draft(fields: &[(Value, u32)]) -> Draft {
        let mut draft = Draft::new();
        fields.iter().for_each(|(field, value)| draft.set(*field, false, &value.to_be_bytes()));
        draft
    }

    #[test]
    fn the_nearest_scope_decides() {
        let mut rates = SamplingRates::default();
        let of = |rates: &SamplingRates, fields: &[(Value, u32)]| {
            rates.of(&draft(fields), 0, &SharedRates::default())
        };
        assert_eq!(of(&rates, &[]), None, "unknown is not 1");
        rates.learn(
            &draft(&[
                (Value::Foreign(Foreign::Sampler), 7),
                (Value::Foreign(Foreign::SamplingPackets), 1),
                (Value::Foreign(Foreign::SamplingSpace), 99),
            ]),
            0,
        );
        assert_eq!(of(&rates, &[]), Some(100), "the only sampler");
        rates.learn(&draft(&[(Value::SamplingInterval, 10)]), 0);
        rates.learn(&draft(&[(Value::Ingress, 3), (Value::SamplingInterval, 20)]), 0);
        rates.learn(&draft(&[(Value::Foreign(Foreign::Template), 300), (Value::SamplingInterval, 30)]), 0);
        assert_eq!(of(&rates, &[]), Some(10));
        assert_eq!(of(&rates, &[(Value::Ingress, 3)]), Some(20));
        assert_eq!(of(&rates, &[(Value::Foreign(Foreign::Template), 300)]), Some(30));
        assert_eq!(of(&rates, &[(Value::Ingress, 3), (Value::Foreign(Foreign::Sampler), 7)]), Some(100));
        assert_eq!(of(&rates, &[(Value::Ingress, 3), (Value::SamplingInterval, 5)]), Some(5));
        assert_eq!(rates.learn(&draft(&[(Value::Ingress, 3)]), 0), None);
    }

    /// RFC 5477, 8.2: which elements count follows from the algorithm.
    #[test]
    fn each_algorithm_has_its_elements() {
        let told = |fields: &[(Value, u32)]| draft(fields).sampled.told();
        let systematic =
            [(Value::Foreign(Foreign::SamplingPackets), 1), (Value::Foreign(Foreign::SamplingSpace), 0)];
        let random =
            [(Value::Foreign(Foreign::SamplingSize), 1), (Value::Foreign(Foreign::SamplingPopulation), 256)];
        assert_eq!(told(&[systematic, random].concat()), Some(1));
        let algorithm = [(Value::Foreign(Foreign::SelectorAlgorithm), 3)];
        assert_eq!(told(&[&systematic[..], &random, &algorithm].concat()), Some(256));
        assert_eq!(told(&random), Some(256));
        assert_eq!(
            told(&[
                (Value::Foreign(Foreign::SamplingSize), 4),
                (Value::Foreign(Foreign::SamplingPopulation), 10)
            ]),
            Some(3),
            "2.5, rounded"
        );
        assert_eq!(
            told(&[
                (Value::Foreign(Foreign::SamplingSize), 4),
                (Value::Foreign(Foreign::SamplingPopulation), 1)
            ]),
            None
        );
        assert_eq!(told(&[(Value::Foreign(Foreign::SamplingProbability), 0.01_f32.to_bits())]), Some(100));
        for nonsense in [0.0_f32, -1.0, 2.0, f32::NAN, f32::INFINITY] {
            assert_eq!(told(&[(Value::Foreign(Foreign::SamplingProbability), nonsense.to_bits())]), None);
        }
    }

    #[test]
    fn domains_share_samplers_unless_they_differ() {
        let (mut shared, none) = (SharedRates::default(), SamplingRates::default());
        let record = draft(&[(Value::Foreign(Foreign::Sampler), 7)]);
        shared.learn(Scope::Sampler(7), 100, None);
        shared.learn(Scope::Sampler(7), 100, None);
        assert_eq!(none.of(&record, 0, &shared), Some(100));
        shared.learn(Scope::Sampler(7), 200, Some(100));
        assert_eq!(none.of(&record, 0, &shared), Some(200), "it was changed");
        shared.learn(Scope::Sampler(7), 300, None);
        assert_eq!(none.of(&record, 0, &shared), None, "which one is not known");
        shared.learn(Scope::System, 50, None);
        assert_eq!(none.of(&draft(&[]), 0, &shared), Some(50));
        let options = draft(&[(Value::ObservationDomain, 9), (Value::SamplingInterval, 70)]);
        let learnt = SamplingRates::default().learn(&options, 0).expect("an interval");
        shared.learn(learnt.scope, learnt.interval, learnt.before);
        assert_eq!([8, 9].map(|domain| none.of(&draft(&[]), domain, &shared)), [Some(50), Some(70)]);
        let own = SamplingRates::default().learn(&options, 9).map(|learnt| learnt.scope);
        assert_eq!(own, Some(Scope::Whole), "it tells of itself");
    }
}
