//! Test volumes: the number of random cases, rounds or packets that a test goes through.
//!
//! The volume is a quarter of the usual in `make quick`, ten times as large in `make soak`, and any number in a long
//! search. Limits on a test's work are in processor time, which the load of the machine does not change.

use std::time::Duration;

pub use tapline_sys::usage::thread_time;

use crate::surroundings::is_quick;

/// Multiplies the number of cases of every test; `make soak` sets 10.
const FACTOR: &str = "TAPLINE_VOLUME";

/// `make quick` tries one of this many cases.
const QUICK_SHARE: u64 = 4;

/// The value of the environment variable `variable`; without it `small` times `TAPLINE_VOLUME`.
///
/// # Panics
///
/// If a variable is not a whole number.
pub fn volume(variable: &str, small: u64) -> u64 {
    let usual = if is_quick() { small.div_ceil(QUICK_SHARE) } else { small };
    number(variable, usual.saturating_mul(number(FACTOR, 1)))
}

/// The number that an environment variable gives, such as a seed.
///
/// # Panics
///
/// If the variable is not a whole number.
pub fn number(variable: &str, default: u64) -> u64 {
    let Some(text) = std::env::var_os(variable) else { return default };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{variable}={} is not a whole number", text.display()))
}

/// The least processor time that `work` took in three runs, and its last result.
pub fn processor_time<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut run = || {
        let started = thread_time();
        let result = work();
        (thread_time().saturating_sub(started), result)
    };
    let (first, second) = (run().0, run().0);
    let (third, result) = run();
    (first.min(second).min(third), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_variable_the_volume_is_small() {
        assert_eq!(number("TAPLINE_NO_SUCH_VARIABLE", 7), 7);
        let usual = if is_quick() { 2 } else { 7 };
        assert_eq!(volume("TAPLINE_NO_SUCH_VARIABLE", 7), usual * number(FACTOR, 1));
    }
}
