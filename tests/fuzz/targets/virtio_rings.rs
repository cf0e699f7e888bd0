//! What a guest can write: rings, chains and headers, while both halves work.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_vhost_user::fuzzing::rings(data));
