//! What a user or a client of the control interface writes as an endpoint, or as a CPU list.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(e) = mqnet_address::parse(text) {
        assert!(e.to_string().contains(text), "the address is not named");
    }
    let _ = mqnet_address::parse_cpus(text);
});
