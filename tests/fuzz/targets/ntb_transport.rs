//! Writes of a peer that claims to be the kernel's `ntb_transport`: scratchpads, slots, credits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_ntb::fuzzing::transport(data));
