#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("graph_text"), |data: &[u8]| tapline_fuzz::graph_text(data));
