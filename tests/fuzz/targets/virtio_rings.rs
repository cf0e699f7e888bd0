//! Input from a guest (rings, chains and headers) while the RX and TX queues of the device run.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_vhost_user::fuzzing::rings(data));
