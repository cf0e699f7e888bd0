//! Commands of the control queue. Arbitrary bytes are applied or refused, and a refused command
//! changes no state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::{CtrlCommand, Rules};

fuzz_target!(|data: &[u8]| {
    let Some((features, mut rest)) = data.split_first_chunk() else { return };
    let rules = Rules { features: Features(u64::from_le_bytes(*features)), pairs: 4 };
    let mut settings = rules.begin([2, 0, 0, 0, 0, 1]);
    while let Some((&len, more)) = rest.split_first() {
        let (bytes, after) = more.split_at(usize::from(len).min(more.len()));
        rest = after;
        if let Ok(command) = CtrlCommand::parse(bytes) {
            assert_eq!(CtrlCommand::parse(&command.to_bytes()), Ok(command));
        }
        let before = settings.clone();
        if rules.obey(&mut settings, bytes).is_err() {
            assert_eq!(before, settings);
        }
        assert!((1..=4).contains(&settings.pairs));
    }
});
