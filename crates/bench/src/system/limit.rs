//! The highest rate at which nothing is lost, by bisection.

use anyhow::Result;
use serde::Serialize;

use super::trial::Outcome;

/// A rate is tried so often before it counts as too high: others disturb the machine.
const TRIES: usize = 2;
/// Probes of one search. Each halves what is left.
const PROBES_MAX: usize = 24;
/// The generator kept its rate if it sent this share of it at least.
const KEPT_RATE: f64 = 0.98;
/// No rate below this is asked for.
const RATE_MIN: f64 = 100.0;

/// One rate that was tried.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Probe {
    /// Packets a second; `None` is as fast as the generator can.
    pub(crate) asked: Option<u64>,
    /// What became of them.
    pub(crate) outcome: Outcome,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    /// The highest rate without loss, packets a second; 0 if there was none.
    pub(crate) rate: f64,
    /// The generator was the limit: the receiver might take more.
    pub(crate) is_generators: bool,
    /// All rates that were tried, in their order.
    pub(crate) probes: Vec<Probe>,
}

/// Looks for it. `try_rate` sends at a rate, or as fast as it goes; the search ends when what is left is a share of `resolution`.
///
/// # Errors
/// Those of `try_rate`.
pub(crate) fn find(
    resolution: f64,
    mut try_rate: impl FnMut(Option<u64>) -> Result<Outcome>,
) -> Result<Limit> {
    let mut probes = Vec::new();
    let flood = try_rate(None)?;
    let (lost, top, captured) = (flood.lost(), flood.offered_rate(), flood.captured_rate());
    probes.push(Probe { asked: None, outcome: flood });
    if lost == 0 {
        return Ok(Limit { rate: top, is_generators: true, probes });
    }
    // What it captures of a flood is often near to what it takes without loss.
    let (mut low, mut high, mut next) = (0.0, top, captured);
    while probes.len() < PROBES_MAX && high - low > resolution * high && high > RATE_MIN {
        let asked = next.max(RATE_MIN).round();
        let (is_lossless, kept) = tried(asked as u64, &mut probes, &mut try_rate)?;
        match (is_lossless, kept) {
            (false, _) => high = asked,
            (true, None) => low = asked,
            // The generator cannot do more than this at an even pace.
            (true, Some(rate)) => return Ok(Limit { rate: rate.max(low), is_generators: true, probes }),
        }
        next = (low + high) / 2.0;
    }
    Ok(Limit { rate: low, is_generators: false, probes })
}

/// Whether a rate is without loss; and if the generator did not keep it, what it did.
fn tried(
    rate: u64,
    probes: &mut Vec<Probe>,
    try_rate: &mut impl FnMut(Option<u64>) -> Result<Outcome>,
) -> Result<(bool, Option<f64>)> {
    for _ in 0..TRIES {
        let outcome = try_rate(Some(rate))?;
        let (lost, did) = (outcome.lost(), outcome.offered_rate());
        probes.push(Probe { asked: Some(rate), outcome });
        if lost == 0 {
            return Ok((true, (did < rate as f64 * KEPT_RATE).then_some(did)));
        }
    }
    Ok((false, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that loses what is beyond `limit`, with a generator that does `most` at the most.
    fn machine(limit: f64, most: f64) -> impl FnMut(Option<u64>) -> Result<Outcome> {
        move |asked| {
            let rate = asked.map_or(most, |asked| (asked as f64).min(most));
            let captured = rate.min(limit);
            Ok(Outcome { made: rate as u64, captured: captured as u64, seconds: 1.0, ..Outcome::default() })
        }
    }

    #[test]
    fn the_limit_is_found() {
        for limit in [1_000.0, 123_456.0, 999_999.0] {
            let found = find(0.02, machine(limit, 1e6)).unwrap();
            assert!(!found.is_generators);
            assert!(found.rate <= limit && found.rate > limit * 0.95, "{limit}: {}", found.rate);
        }
    }

    #[test]
    fn who_limits_is_told() {
        let found = find(0.02, machine(1e7, 1e6)).unwrap();
        assert!(found.is_generators && (found.rate - 1e6).abs() < 2.0);
    }

    #[test]
    fn one_disturbed_run_counts_for_nothing() {
        let mut quiet = machine(500_000.0, 1e6);
        let mut count = 0;
        let found = find(0.02, |asked| {
            count += 1;
            let mut outcome = quiet(asked)?;
            outcome.captured -= u64::from(count % 2 == 0 && outcome.captured > 0);
            Ok(outcome)
        });
        assert!(found.unwrap().rate > 470_000.0);
    }

    #[test]
    fn what_always_loses_has_no_limit() {
        let found =
            find(0.02, |_| Ok(Outcome { made: 100_000, seconds: 1.0, ..Outcome::default() })).unwrap();
        assert_eq!(found.rate, 0.0);
        assert!(found.probes.len() <= PROBES_MAX + TRIES);
    }
}
