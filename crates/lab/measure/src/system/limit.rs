//! The highest rate at which nothing is lost, by bisection.

use anyhow::Result;
use serde::Serialize;

use super::trial::TrialOutcome;

/// A rate is tried so often before it counts as too high: others disturb the machine.
const TRIES: usize = 2;
/// Maximum number of probes of one search. Each halves the range.
const PROBES_MAX: usize = 24;
/// The rate was kept if this share of it was sent at least: where the link is full, the generator waits.
const KEPT_RATE: f64 = 0.98;
/// Share of the generator's own limit from which a result counts as limited by it.
const NEAR: f64 = 0.95;
/// The lowest rate to try.
const RATE_MIN: f64 = 100.0;

/// One rate that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct RateTrial {
    /// Packets a second; `None` is as fast as it goes.
    pub asked: Option<u64>,
    /// Outcome of the trials.
    pub outcome: TrialOutcome,
}

impl RateTrial {
    /// Whether all arrived, and that fast.
    fn is_borne(&self) -> bool {
        let rate = self.outcome.offered_rate();
        self.outcome.lost() == 0 && self.asked.is_none_or(|asked| rate >= asked as f64 * KEPT_RATE)
    }
}

/// Result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// The highest rate without loss, packets a second; 0 if there was none.
    pub rate: f64,
    /// The generator was the limit: the receiver might take more.
    pub is_generators: bool,
    /// All rates that were tried, in their order.
    pub probes: Vec<RateTrial>,
}

/// Searches the limit. `try_rate` sends at a rate, or as fast as possible; the search ends when the range is a share
/// of `resolution`. `generators` is the generator's rate where nothing limits it.
///
/// # Errors
/// Errors of `try_rate`.
pub fn find(
    resolution: f64,
    generators: f64,
    mut try_rate: impl FnMut(Option<u64>) -> Result<TrialOutcome>,
) -> Result<Limit> {
    let mut probes = Vec::new();
    let rate = search(resolution, &mut |asked| {
        let probe = RateTrial { asked, outcome: try_rate(asked)? };
        let (is_borne, rate) = (probe.is_borne(), probe.outcome.offered_rate());
        probes.push(probe);
        Ok((is_borne, rate, probes.len() < PROBES_MAX))
    })?;
    Ok(Limit { rate, is_generators: rate >= generators * NEAR, probes })
}

/// `probe` returns whether a rate was sustained, the rate, and whether there may be more probes.
fn search(resolution: f64, probe: &mut impl FnMut(Option<u64>) -> Result<(bool, f64, bool)>) -> Result<f64> {
    // A flood that loses nothing was held by flow control to what the receiver can take: that is the limit.
    let (is_borne, top, _) = probe(None)?;
    if is_borne {
        return Ok(top);
    }
    let (mut low, mut high) = (0.0, top);
    while high - low > resolution * high && high > RATE_MIN {
        let asked = f64::midpoint(low, high).max(RATE_MIN).round();
        let mut is_borne = false;
        for _ in 0..TRIES {
            let (borne, _, goes_on) = probe(Some(asked as u64))?;
            is_borne |= borne;
            if !goes_on {
                return Ok(if is_borne { asked } else { low });
            }
            if is_borne {
                break;
            }
        }
        if is_borne { low = asked } else { high = asked }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver that loses packets beyond `limit`, with a generator of at most `most`.
    fn machine(limit: f64, most: f64) -> impl FnMut(Option<u64>) -> Result<TrialOutcome> {
        move |asked| {
            let rate = asked.map_or(most, |asked| (asked as f64).min(most));
            let captured = rate.min(limit);
            Ok(TrialOutcome {
                made: rate as u64,
                captured: captured as u64,
                seconds: 1.0,
                ..TrialOutcome::default()
            })
        }
    }

    #[test]
    fn the_limit_is_found() {
        for limit in [1_000.0, 123_456.0, 899_999.0] {
            let found = find(0.02, 1e6, machine(limit, 1e6)).unwrap();
            assert!(!found.is_generators);
            assert!(found.rate <= limit && found.rate > limit * 0.95, "{limit}: {}", found.rate);
        }
    }

    #[test]
    fn a_flood_without_loss_is_the_limit() {
        // A link that makes the generator wait: nothing is lost, and the rate is what the receiver takes.
        let found = find(0.02, 1e6, machine(f64::INFINITY, 400_000.0)).unwrap();
        assert_eq!((found.rate, found.is_generators, found.probes.len()), (400_000.0, false, 1));
        let found = find(0.02, 1e6, machine(f64::INFINITY, 990_000.0)).unwrap();
        assert!(found.is_generators);
    }

    #[test]
    fn a_rate_that_was_not_kept_is_too_high() {
        // The flood loses, and rates above 300,000 are held by the link without a loss.
        let found = find(0.02, 1e6, |asked| {
            let rate = asked.map_or(1e6, |asked| (asked as f64).min(300_000.0));
            let captured = if asked.is_none() { rate / 2.0 } else { rate };
            Ok(TrialOutcome {
                made: rate as u64,
                captured: captured as u64,
                seconds: 1.0,
                ..TrialOutcome::default()
            })
        });
        let found = found.unwrap();
        assert!((290_000.0..=307_000.0).contains(&found.rate), "{}", found.rate);
    }

    #[test]
    fn one_disturbed_run_counts_for_nothing() {
        let mut quiet = machine(500_000.0, 1e6);
        let mut count = 0;
        let found = find(0.02, 1e6, |asked| {
            count += 1;
            let mut outcome = quiet(asked)?;
            outcome.captured -= u64::from(count % 2 == 0 && outcome.captured > 0);
            Ok(outcome)
        });
        assert!(found.unwrap().rate > 470_000.0);
    }

    #[test]
    fn constant_loss_has_no_limit() {
        let lossy = |_| Ok(TrialOutcome { made: 100_000, seconds: 1.0, ..TrialOutcome::default() });
        let found = find(0.02, 1e6, lossy).unwrap();
        assert_eq!(found.rate, 0.0);
        assert!(found.probes.len() <= PROBES_MAX);
    }
}
