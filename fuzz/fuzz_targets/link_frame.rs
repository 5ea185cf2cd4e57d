#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_fuzz::link::frame(data));
