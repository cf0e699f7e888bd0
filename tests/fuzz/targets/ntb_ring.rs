//! Input from a bridge's peer: words and records of the window.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_ntb::fuzzing::ring(data));
