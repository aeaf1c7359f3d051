//! FPL: every engine against a second, naive statement of what the language means; and FFPF's programs on traffic.

mod dissect;
mod evaluator;
mod ffpf;
mod random;
