//! Requests to the control server, valid or malformed, in any order.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_control::fuzzing::requests(data));
