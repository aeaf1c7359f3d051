#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("rules_text"), |data: &[u8]| tapline_fuzz::rules_text(data));
