//! The profiling paper's Figures 6 and 9 as one picture (Degioanni and others, "Profiling and optimization of
//! software-based network-analysis applications"), on standard output.
//!
//!     cargo run -p tapline-measure --example picture > breakdown.svg

use tapline_measure::costs::picture;
use tapline_meters::{Breakdown, CostBasis};

fn main() -> anyhow::Result<()> {
    let before = Breakdown::new("as it was", 148_809, 5680.0, 0.0)
        .with("interrupt", 54.0, CostBasis::Kernel)
        .with("driver", 1497.0, CostBasis::Kernel)
        .with("tap", 830.0, CostBasis::Timed)
        .with("timestamp", 1800.0, CostBasis::Timed)
        .with("filter", 585.0, CostBasis::Timed)
        .with("copy 1", 540.0, CostBasis::Timed)
        .with("copy 2", 259.0, CostBasis::Timed)
        .with("context switch", 10.0, CostBasis::Counted);
    let after = Breakdown::new("optimised", 148_809, 3164.0, 0.0)
        .with("interrupt", 54.0, CostBasis::Kernel)
        .with("driver", 1497.0, CostBasis::Kernel)
        .with("tap", 560.0, CostBasis::Timed)
        .with("timestamp", 270.0, CostBasis::Timed)
        .with("filter", 109.0, CostBasis::Timed)
        .with("copy 1", 300.0, CostBasis::Timed)
        .with("copy 2", 259.0, CostBasis::Timed)
        .with("context switch", 10.0, CostBasis::Counted);
    print!("{}", picture(&[before, after])?);
    Ok(())
}
