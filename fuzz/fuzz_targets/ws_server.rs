#![no_main]

use stentor_wire::ws::Role;

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_fuzz::ws(Role::Server, data));
