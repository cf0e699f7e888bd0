//! XDP programs: every program that the verifier accepts is harmless, with the same result
//! everywhere.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = mqnet_ebpf::fuzzing::any_program(data) {
        panic!("{why}");
    }
});
