//! Real captures, other programs and root, which a machine may lack. A test that needs one then says on standard error
//! that it is skipped, and passes. `make quick` skips all of these tests.

use std::path::PathBuf;

pub use tapline_arena::netns::{QUICK, has_program};

/// Real captures next to the repository; none of them is part of it. `TAPLINE_CAPTURES` names another folder.
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/captures");

/// Whether this is a run of `make quick`.
pub fn is_quick() -> bool {
    std::env::var_os(QUICK).is_some()
}

/// Paths of the real captures, by name; none where they are not there.
pub fn captures() -> Vec<PathBuf> {
    let folder = std::env::var_os("TAPLINE_CAPTURES").unwrap_or_else(|| CAPTURES.into());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending != "md"));
    paths.sort();
    paths
}

/// Paths of the real captures, for a test that goes through many of them.
pub fn captures_or_skip(test: &str) -> Option<Vec<PathBuf>> {
    let captures = captures();
    let lack = || format!("no real captures in {CAPTURES}");
    unless_quick(test, (!captures.is_empty()).then_some(captures).ok_or_else(lack))
}

/// Whether a program is installed.
pub fn program_or_skip(test: &str, program: &str) -> bool {
    programs_or_skip(test, &[program])
}

/// Whether all these programs are installed.
pub fn programs_or_skip(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !has_program(program)).collect();
    let lack = format!("not installed: {}", missing.join(", "));
    unless_quick(test, missing.is_empty().then_some(()).ok_or(lack)).is_some()
}

/// Whether this process is root.
pub fn root_or_skip(test: &str) -> bool {
    let is_root = tapline_sys::privilege::is_root();
    unless_quick(test, is_root.then_some(()).ok_or_else(|| "it needs root".to_owned())).is_some()
}

fn unless_quick<T>(test: &str, found: Result<T, String>) -> Option<T> {
    let found = if is_quick() { Err(format!("{QUICK} is set")) } else { found };
    found.inspect_err(|lack| eprintln!("skipped: {test}: {lack}")).ok()
}
