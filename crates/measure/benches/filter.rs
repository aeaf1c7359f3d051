//! `cargo bench`: what `tapline filter bench` measures, with its defaults.

fn main() -> anyhow::Result<()> {
    tapline_measure::filter::run(&tapline_measure::filter::FilterArgs::default(), 9)
}
