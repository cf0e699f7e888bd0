//! Messages of a vfio-user client.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_vfio_user::fuzzing::messages(data));
