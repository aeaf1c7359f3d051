//! A test in a process of its own, for resources of a whole process: memory in use, mappings, limits that cannot be
//! taken back.
//!
//! ```text
//! test program --(first run of the test)--> the same program --exact TEST --> the test again, alone
//! ```

use std::process::Command;

/// Set in the child, to the name of its test.
const ALONE: &str = "TAPLINE_TEST_ALONE";

/// Whether this process runs the test alone. If not, runs it in a child; a failure there is a panic here.
///
/// `module` is the test's `module_path!()`; both names together are the test's name in the test harness.
///
/// ```no_run
/// # use tapline_testkit::own_process::is_alone;
/// // #[test]
/// fn memory_comes_back() {
///     if !is_alone(module_path!(), "memory_comes_back") {
///         return;
///     }
///     // measures
/// }
/// ```
///
/// # Panics
///
/// If the child cannot be started or its test fails.
pub fn is_alone(module: &str, test: &str) -> bool {
    let name = full_name(module, test);
    if std::env::var_os(ALONE).is_some_and(|alone| alone == *name) {
        return true;
    }
    let program = std::env::current_exe().expect("the path of the test program");
    let mut child = Command::new(program);
    let status = child.args(["--exact", &name, "--nocapture"]).env(ALONE, &name).status();
    let status = status.expect("the test program starts again");
    assert!(status.success(), "{name}, alone in a process: {status}");
    false
}

/// The name of a test for the harness: its path without the crate.
pub fn full_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{test}"),
        None => test.to_owned(),
    }
}

/// Whether a process has a handler for SIGINT; before it has one, the signal ends it. `SigCgt` of proc(5) has a bit for
/// each signal.
pub fn catches_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_harness() {
        assert_eq!(full_name("it::memory", "grows"), "memory::grows");
        assert_eq!(full_name("it", "grows"), "grows");
    }

    #[test]
    fn a_test_is_alone_in_its_child() {
        static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        if !is_alone(module_path!(), "a_test_is_alone_in_its_child") {
            assert_eq!(RUNS.load(std::sync::atomic::Ordering::Relaxed), 0, "the body ran in the child only");
            return;
        }
        RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
