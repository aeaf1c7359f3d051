#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("application"), |data: &[u8]| tapline_fuzz::application(data));
