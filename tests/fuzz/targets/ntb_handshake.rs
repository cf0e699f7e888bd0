//! Input from a bridge's peer: its introduction and its scratchpads.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_ntb::fuzzing::handshake(data));
