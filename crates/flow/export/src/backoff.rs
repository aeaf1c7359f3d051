//! Pauses between attempts: each twice as long as the one before, up to a limit.

use std::time::{Duration, Instant};

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Attempts that fail, and when the next one is due.
#[derive(Default)]
pub(crate) struct Backoff {
    pause: Option<Duration>,
    until: Option<Instant>,
}

impl Backoff {
    /// An attempt has failed.
    pub(crate) fn fail(&mut self, now: Instant) {
        // Blocks that were offered together fail together: one pause for all.
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let pause = self.pause.map_or(FIRST, |pause| (2 * pause).min(LONGEST));
        self.pause = Some(pause);
        self.until = Some(now + pause);
    }

    /// An attempt has succeeded. Whether some had failed before.
    pub(crate) fn succeed(&mut self) -> bool {
        self.until = None;
        self.pause.take().is_some()
    }

    /// Whether the last attempt has failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.pause.is_some()
    }

    /// The time until the next attempt is due.
    pub(crate) fn rest(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.fail(now);
            backoff.fail(now);
            pauses.push(backoff.rest(now).as_millis());
            now += backoff.rest(now);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert!(backoff.is_failing() && backoff.succeed() && !backoff.succeed());
        assert_eq!(backoff.rest(now), Duration::ZERO);
    }
}
