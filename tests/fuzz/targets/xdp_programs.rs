//! Arbitrary XDP programs. Every program that the verifier accepts must be harmless and have the
//! same result in all execution modes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = mqnet_ebpf::fuzzing::any_program(data) {
        panic!("{why}");
    }
});
