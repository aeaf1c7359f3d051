#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapline_fuzz::bpf_program(data));
