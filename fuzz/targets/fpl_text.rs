#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapline_fuzz::fpl_text(data));
