//! `cargo bench`: the measurements of `tapline filter bench`, with its defaults.

fn main() -> anyhow::Result<()> {
    tapline_measure::filter::run(&tapline_measure::filter::FilterArgs::default(), 9, || ())
}
