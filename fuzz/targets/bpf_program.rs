#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("bpf_program"), |data: &[u8]| tapline_fuzz::bpf_program(data));
