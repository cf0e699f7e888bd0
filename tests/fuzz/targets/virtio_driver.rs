//! Input from a virtio device (used rings, lengths and headers) while the RX and TX queues of the
//! driver run.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_virtio_user::fuzzing::rings(data));
