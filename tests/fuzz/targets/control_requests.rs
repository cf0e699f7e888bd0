//! Requests to the control server, well-formed, broken and in any order.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_control::fuzzing::requests(data));
