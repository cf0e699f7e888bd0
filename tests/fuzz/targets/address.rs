//! Endpoint addresses and CPU lists, as from a user or a client of the control interface.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(e) = mqnet_address::parse(text) {
        // Control characters are escaped in the error, so the expected text must escape them too.
        let shown = text.chars().map(|c| match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        });
        assert!(e.to_string().contains(&shown.collect::<String>()), "the address is not named");
    }
    let _ = mqnet_address::parse_cpus(text);
});
