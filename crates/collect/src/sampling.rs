//! Sampling intervals, as options tell them: of the whole source, of an interface, of a sampler.

use std::collections::HashMap;

use crate::draft::Draft;

/// Interfaces and samplers of a source at most.
const SCOPES_MAX: usize = 4096;

/// The part of a source that an interval is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Interface(u32),
    Sampler(u64),
}

/// The sampling intervals of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingRates {
    /// 0 until it is told.
    pub(crate) whole: u32,
    scoped: HashMap<Scope, u32>,
    samplers: usize,
    /// The interval of the sampler that came last: of records that name none, where there is but one.
    last: u32,
}

impl SamplingRates {
    /// Takes a record of options; the interval, if it tells one.
    pub(crate) fn learn(&mut self, options: &Draft) -> Option<u32> {
        let interval = options.sampled.told()?;
        let scope = match (options.sampled.sampler, options.ingress) {
            (Some(sampler), _) => Scope::Sampler(sampler),
            (None, interface @ 1..) => Scope::Interface(interface),
            (None, 0) => {
                self.whole = interval;
                return Some(interval);
            }
        };
        if self.scoped.len() < SCOPES_MAX || self.scoped.contains_key(&scope) {
            let is_new = self.scoped.insert(scope, interval).is_none();
            if matches!(scope, Scope::Sampler(_)) {
                self.samplers += usize::from(is_new);
                self.last = interval;
            }
        }
        Some(interval)
    }

    /// The interval of a record: its own, that of its sampler, of its interface, of the source; 1 if none is told.
    #[inline]
    pub(crate) fn of(&self, record: &Draft) -> u32 {
        if let Some(interval) = record.sampled.told() {
            return interval;
        }
        if self.scoped.is_empty() {
            return self.whole.max(1);
        }
        let of_sampler = record.sampled.sampler.and_then(|sampler| self.scoped.get(&Scope::Sampler(sampler)));
        let of_interface = || self.scoped.get(&Scope::Interface(record.ingress));
        let of_rest = || if self.whole == 0 && self.samplers == 1 { self.last } else { self.whole };
        of_sampler.or_else(of_interface).copied().unwrap_or_else(of_rest).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    fn draft(fields: &[(Field, u32)]) -> Draft {
        let mut draft = Draft::new();
        fields.iter().for_each(|(field, value)| draft.set(*field, false, &value.to_be_bytes()));
        draft
    }

    #[test]
    fn the_nearest_scope_decides() {
        let mut rates = SamplingRates::default();
        assert_eq!(rates.of(&draft(&[])), 1);
        rates.learn(&draft(&[(Field::Sampler, 7), (Field::SamplingPackets, 1), (Field::SamplingSpace, 99)]));
        assert_eq!(rates.of(&draft(&[])), 100, "the only sampler");
        rates.learn(&draft(&[(Field::SamplingInterval, 10)]));
        rates.learn(&draft(&[(Field::Ingress, 3), (Field::SamplingInterval, 20)]));
        assert_eq!(rates.of(&draft(&[])), 10);
        assert_eq!(rates.of(&draft(&[(Field::Ingress, 3)])), 20);
        assert_eq!(rates.of(&draft(&[(Field::Ingress, 3), (Field::Sampler, 7)])), 100);
        assert_eq!(rates.of(&draft(&[(Field::Ingress, 3), (Field::SamplingInterval, 5)])), 5);
        assert_eq!(rates.learn(&draft(&[(Field::Ingress, 3)])), None);
    }
}
