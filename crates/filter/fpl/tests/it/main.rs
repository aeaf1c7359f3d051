//! FPL: every engine against a second, naive definition of the language; and FFPF's programs on traffic.

mod dissect;
mod evaluator;
mod ffpf;
mod random;
