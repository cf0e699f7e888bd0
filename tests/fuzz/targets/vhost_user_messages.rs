//! Messages of a vhost-user front end, its guest's memory, and polls of the link, in any order.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mqnet_vhost_user::fuzzing::messages(data));
