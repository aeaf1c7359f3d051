//! The program `tapline-bench`; all it does is in the library.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    tapline_bench::main()
}
