//! What a user or a client of the control interface writes as an endpoint, or as a CPU list.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(e) = mqnet_address::parse(text) {
        // With control characters as escapes.
        let shown = text.chars().map(|c| match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        });
        assert!(e.to_string().contains(&shown.collect::<String>()), "the address is not named");
    }
    let _ = mqnet_address::parse_cpus(text);
});
