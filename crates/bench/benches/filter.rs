//! `cargo bench`: what `tapline filter bench` measures, with its defaults.

fn main() -> anyhow::Result<()> {
    tapline_bench::filter::run(&tapline_bench::filter::FilterArgs::default(), 9)
}
