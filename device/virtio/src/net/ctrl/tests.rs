use proptest::prelude::*;

use super::*;
use crate::net::rss::TYPES;

const MAC: Mac = [2, 0, 0, 0, 0, 1];

fn rules() -> Rules {
    Rules { features: Features(u64::MAX), pairs: 4 }
}

fn hashers() -> impl Strategy<Value = Hasher> {
    let key = prop::collection::vec(any::<u8>(), 0..=KEY_LEN);
    (any::<u32>(), key).prop_map(|(types, bytes)| {
        let mut key = [0; KEY_LEN];
        key[..bytes.len()].copy_from_slice(&bytes);
        Hasher { types, key_len: bytes.len() as u8, key }
    })
}

fn commands() -> impl Strategy<Value = CtrlCommand> {
    let macs = || prop::collection::vec(any::<Mac>(), 0..9);
    let table = prop::collection::vec(any::<u16>(), 1..200);
    let spread = (table, any::<u16>());
    let spread = spread.prop_map(|(table, unclassified)| IndirectionTable { table, unclassified });
    let modes = (0..6usize, any::<bool>());
    prop_oneof![
        modes.prop_map(|(mode, on)| CtrlCommand::Rx(RxMode::ALL[mode], on)),
        (macs(), macs())
            .prop_map(|(unicast, multicast)| CtrlCommand::MacTable { unicast, multicast }),
        any::<Mac>().prop_map(CtrlCommand::MacAddr),
        any::<u16>().prop_map(CtrlCommand::VlanAdd),
        any::<u16>().prop_map(CtrlCommand::VlanDel),
        Just(CtrlCommand::AnnounceAck),
        any::<u16>().prop_map(CtrlCommand::Pairs),
        (spread, hashers(), any::<u16>()).prop_map(|(spread, hasher, pairs)| CtrlCommand::Rss {
            spread,
            hasher,
            pairs
        }),
        hashers().prop_map(CtrlCommand::Hash),
        any::<u64>().prop_map(|bits| CtrlCommand::GuestOffloads(Features(bits))),
    ]
}

proptest! {
    // Goal: an encoded command decodes to the same command; with an additional or a missing byte it
    // is rejected.
    #[test]
    fn commands_round_trip(command in commands(), extra: u8) {
        let bytes = command.to_bytes();
        prop_assert_eq!(CtrlCommand::parse(&bytes), Ok(command));
        let mut more = bytes.clone();
        more.push(extra);
        prop_assert!(CtrlCommand::parse(&more).is_err());
        for len in 0..bytes.len() {
            prop_assert!(CtrlCommand::parse(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
    }

    // Goal: no bytes cause a panic, a rejected command changes nothing, and settings stay within
    // the limits of the device.
    #[test]
    fn settings_stay_within_limits(
        all in prop::collection::vec(
            prop_oneof![
                commands().prop_map(|command| command.to_bytes()),
                (0..7u8, 0..7u8, prop::collection::vec(any::<u8>(), 0..80)).prop_map(
                    |(class, number, data)| [vec![class, number], data].concat()),
            ],
            0..20,
        ),
        features: u64,
    ) {
        let rules = Rules { features: Features(features), pairs: 4 };
        let mut settings = rules.begin(MAC);
        for bytes in all {
            let before = settings.clone();
            if rules.obey(&mut settings, &bytes).is_err() {
                prop_assert_eq!(&before, &settings);
            }
            prop_assert!((1..=4).contains(&settings.pairs));
            prop_assert!(rules.features.and(Features::GUEST).has(settings.guest));
            if let Some(spread) = &settings.spread {
                prop_assert!(spread.table.len().is_power_of_two());
                prop_assert!(spread.table.iter().all(|queue| *queue < 4));
            }
        }
    }
}

// Goal: commands have the encoding of the specification, which the test states as bytes.
#[test]
fn commands_have_their_layout() {
    let bytes = |command: CtrlCommand| command.to_bytes();
    assert_eq!(bytes(CtrlCommand::Rx(RxMode::NoBcast, true)), [0, 5, 1]);
    assert_eq!(bytes(CtrlCommand::MacAddr(MAC)), [1, 1, 2, 0, 0, 0, 0, 1]);
    let table = CtrlCommand::MacTable { unicast: vec![MAC], multicast: Vec::new() };
    assert_eq!(bytes(table), [1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(bytes(CtrlCommand::VlanDel(0x123)), [2, 1, 0x23, 1]);
    assert_eq!(bytes(CtrlCommand::AnnounceAck), [3, 0]);
    assert_eq!(bytes(CtrlCommand::Pairs(8)), [4, 0, 8, 0]);
    let hasher = Hasher { types: 0x12, key_len: 3, key: std::array::from_fn(|i| i as u8) };
    let hasher = Hasher { key: hasher.key.map(|b| if b < 3 { b + 1 } else { 0 }), ..hasher };
    let spread = IndirectionTable { table: vec![1, 0], unclassified: 3 };
    let rss = bytes(CtrlCommand::Rss { spread, hasher, pairs: 2 });
    assert_eq!(rss, [4, 1, 0x12, 0, 0, 0, 1, 0, 3, 0, 1, 0, 0, 0, 2, 0, 3, 1, 2, 3]);
    let hash = [4, 2, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3];
    assert_eq!(bytes(CtrlCommand::Hash(hasher)), hash);
    let offloads = bytes(CtrlCommand::GuestOffloads(Features::GUEST_CSUM.or(Features::GUEST_USO4)));
    assert_eq!(offloads, [5, 0, 2, 0, 0, 0, 0, 0, 0x40, 0]);
}

// Goal: each check rejects a violation and reports the values.
#[test]
fn violations_are_rejected_with_values() {
    let refused = |command: CtrlCommand| {
        let rules = rules();
        let before = rules.begin(MAC);
        let mut settings = before.clone();
        let why = rules.obey(&mut settings, &command.to_bytes()).unwrap_err().to_string();
        assert_eq!(settings, before);
        why
    };
    assert_eq!(refused(CtrlCommand::Pairs(5)), "5 queue pairs, allowed: 1 to 4");
    assert_eq!(refused(CtrlCommand::Pairs(0)), "0 queue pairs, allowed: 1 to 4");
    assert_eq!(refused(CtrlCommand::VlanAdd(4096)), "VLAN 4096, allowed: 0 to 4095");
    assert!(refused(CtrlCommand::MacAddr([1; 6])).contains("not a unicast address"));
    let odd = Features::GUEST_CSUM.or(Features::CSUM);
    assert_eq!(refused(CtrlCommand::GuestOffloads(odd)), "offloads that were not negotiated: csum");
    let key = Hasher { types: TYPES, key_len: 40, key: [1; KEY_LEN] };
    let rss = |table: Vec<u16>, unclassified, hasher| {
        refused(CtrlCommand::Rss {
            spread: IndirectionTable { table, unclassified },
            hasher,
            pairs: 4,
        })
    };
    assert!(rss(vec![0; 3], 0, key).contains("a table of 3 queues"));
    assert!(rss(vec![0; 256], 0, key).contains("a table of 256 queues"));
    assert_eq!(rss(vec![0, 4], 0, key), "queue 4 in a table of 4 queues");
    assert_eq!(rss(vec![0, 1], 9, key), "queue 9 in a table of 4 queues");
    let short = Hasher { key_len: 39, ..key };
    assert_eq!(rss(vec![0, 1], 0, short), "a key of 39 bytes, allowed: 40");
    assert!(refused(CtrlCommand::Hash(Hasher { types: 0x40, ..key })).contains("0x40"));
    let none = Rules { features: Features::default(), pairs: 4 };
    let why = none.obey(&mut none.begin(MAC), &CtrlCommand::Pairs(1).to_bytes()).unwrap_err();
    assert_eq!(why.to_string(), "a command needs mq, which was not negotiated");
}

// Goal: setting the number of pairs ends RSS, as specified; the hash configuration stays.
#[test]
fn pairs_command_ends_rss() {
    let (rules, hasher) = (rules(), Hasher { types: 1, key_len: 40, key: [7; KEY_LEN] });
    let mut settings = rules.begin(MAC);
    let spread = IndirectionTable { table: vec![0, 1], unclassified: 0 };
    let rss = CtrlCommand::Rss { spread, hasher, pairs: 2 };
    assert_eq!(rules.obey(&mut settings, &rss.to_bytes()), Ok(Changed::Link));
    assert_eq!((settings.pairs, settings.spread.is_some()), (2, true));
    assert_eq!(rules.obey(&mut settings, &CtrlCommand::Pairs(3).to_bytes()), Ok(Changed::Link));
    assert_eq!((settings.pairs, settings.spread, settings.hasher), (3, None, hasher));
}
