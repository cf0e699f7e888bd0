//! Programs for XDP: what the verifier accepts must be harmless, and the same everywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = mqnet_xdp::fuzzing::any_program(data) {
        panic!("{why}");
    }
});
