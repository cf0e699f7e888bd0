//! Arbitrary bytes as a frame to dissect. Only the first `HEADERS_MAX` bytes affect the result, and
//! all offsets are within the frame.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqnet_wire::{FlowKeys, HEADERS_MAX, Layer};

fuzz_target!(|bytes: &[u8]| {
    for layer in [Layer::Ethernet, Layer::Ip] {
        let keys = FlowKeys::dissect(bytes, layer);
        let seen = &bytes[..bytes.len().min(HEADERS_MAX)];
        assert_eq!(keys, FlowKeys::dissect(seen, layer));
        if let Some(ip) = keys.ip {
            let fixed = if keys.is_v6 { 40 } else { 20 };
            assert!(usize::from(ip) + fixed <= seen.len());
        }
        assert!(!keys.fragment || keys.ports == [0, 0]);
        let mut back = keys;
        (back.src, back.dst) = (keys.dst, keys.src);
        back.ports.reverse();
        back.mac.reverse();
        assert_eq!(keys.hash(), back.hash());
    }
});
