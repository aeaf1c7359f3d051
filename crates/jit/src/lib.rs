//! Native code from filters: the form of values as machine code for x86-64 and aarch64.
