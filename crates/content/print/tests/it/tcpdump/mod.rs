//! Compares the text of all captures next to the repository with that of the installed tcpdump, line by line.
//!
//! `cargo test -p tapline-print --test it tcpdump:: -- --nocapture` prints a table of the share of equal lines by
//! protocol; the example `differences` lists the differences.

mod comparison;
mod details;

use comparison::Bench;

/// Flag sets and the share of equal lines, in per mille, that each must reach.
const FLOORS: &[(&str, u32)] =
    &[("-n", 998), ("-nve", 997), ("-nvvSttttt", 997), ("-nqX", 999), ("-nt#xx", 999), ("-ntttA", 998)];

#[test]
fn text_is_that_of_tcpdump() {
    let Some(bench) = Bench::find() else { return };
    let mut failures = Vec::new();
    for &(flags, floor) in FLOORS {
        let score = bench.score_of(flags, |_| true);
        println!("{}", score.table(flags));
        if score.per_mille() < floor {
            score.show(flags);
            failures.push(format!("{flags}: {} < {floor}", score.per_mille()));
        }
    }
    assert!(failures.is_empty(), "fewer equal lines than before: {failures:?}");
}
