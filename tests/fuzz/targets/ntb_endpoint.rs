//! Inputs of a VMM and its guest's drivers to an emulated endpoint: messages, registers,
//! scratchpads, DMA ranges, slots.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_ntb::fuzzing::endpoint(data));
