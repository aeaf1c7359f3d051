#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("packet_json"), |data: &[u8]| tapline_fuzz::packet_json(data));
