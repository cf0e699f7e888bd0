//! Messages of an ivshmem server to its clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_ntb::fuzzing::ivshmem(data));
