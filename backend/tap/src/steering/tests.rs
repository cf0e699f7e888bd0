//! Comparison of the program with the hash, and properties of tables.

use proptest::prelude::*;

use super::*;

fn counts(table: &BucketTable) -> Vec<usize> {
    (0..=u16::MAX).take(64).map(|q| table.iter().filter(|&&queue| queue == q).count()).collect()
}

fn moves(a: &BucketTable, b: &BucketTable) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

fn is_even(table: &BucketTable, channels: u16) -> bool {
    let counts = counts(table);
    let (used, unused) = counts.split_at(usize::from(channels));
    let (min, max) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    max - min <= 1 && unused.iter().all(|&n| n == 0)
}

/// Smallest number of moves to an even table: the deficit below the lower mark, or the excess
/// above the upper mark, whichever is greater. Removed queues have an upper mark of zero.
fn fewest(table: &BucketTable, channels: u16) -> usize {
    let (low, high) = (BUCKETS / usize::from(channels), BUCKETS.div_ceil(usize::from(channels)));
    let (mut lack, mut excess) = (0, 0);
    for (queue, n) in counts(table).into_iter().enumerate() {
        let stays = queue < usize::from(channels);
        lack += if stays { low.saturating_sub(n) } else { 0 };
        excess += n.saturating_sub(if stays { high } else { 0 });
    }
    lack.max(excess)
}

proptest! {
    // Rule: through any chain of resizes, the buckets per queue differ by at most one, and the
    // number of moved buckets is minimal. Buckets move only to added queues or from removed queues.
    #[test]
    fn resizes_move_fewest_buckets(
        first in 1u16..=64,
        sizes in prop::collection::vec(1u16..=64, 1..12),
    ) {
        let (mut table, mut channels) = (spread(first), first);
        prop_assert!(is_even(&table, channels));
        for next in sizes {
            let new = rebalance(&table, channels, next);
            prop_assert!(is_even(&new, next), "{channels} to {next}: {new:?}");
            prop_assert_eq!(moves(&table, &new), fewest(&table, next));
            for (&old, &new) in table.iter().zip(&new) {
                let grown = next > channels && old < channels && new >= channels;
                let shrunk = next < channels && old >= next && new < next;
                prop_assert!(old == new || grown || shrunk, "{channels} to {next}: {old} to {new}");
            }
            (table, channels) = (new, next);
        }
    }

    // Rule: no bucket moves between remaining channels in an uneven table either, and each new
    // channel gets its even share.
    #[test]
    fn no_bucket_moves_between_remaining_channels(
        table in prop::array::uniform32(any::<u16>()),
        from in 1u16..=64,
        to in 1u16..=64,
    ) {
        let table: BucketTable = std::array::from_fn(|i| table[i / 4] % from);
        let new = rebalance(&table, from, to);
        for (&old, &new) in table.iter().zip(&new) {
            let may = to > from && new >= from || old >= to;
            prop_assert!(new < to && (old == new || may), "{from} to {to}: {old} to {new}");
        }
        for queue in from..to {
            let buckets = new.iter().filter(|&&new| new == queue).count();
            prop_assert!(buckets >= BUCKETS / usize::from(to), "{queue} has {buckets}");
        }
    }

    // Goal: the hash of any bytes is a bucket or none, without a panic.
    #[test]
    fn any_bytes_have_a_bucket_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        for layer in [Layer::Ethernet, Layer::Ip] {
            prop_assert!(bucket(&bytes, layer).is_none_or(|bucket| bucket < BUCKETS));
        }
    }
}

/// Random bytes, mostly with valid values in the fields that the program reads.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x0806, 0x88a8]);
    let protocol = prop::sample::select(vec![6u8, 17, 132, 1, 58, 0]);
    let fragment = prop::sample::select(vec![0u16, 0, 0x4000, 0x2000, 0x0001, 0x1fff]);
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    (kind.clone(), kind, protocol, fragment, any::<bool>(), bytes).prop_map(
        |(outer, inner, protocol, fragment, plain, mut bytes)| {
            let mut put = |at: usize, value: &[u8]| {
                if let Some(room) = bytes.get_mut(at..at + value.len()) {
                    room.copy_from_slice(value);
                }
            };
            put(12, &outer.to_be_bytes());
            let at = if outer == 0x8100 { 18 } else { 14 };
            put(at - 2, &if at == 18 { inner } else { outer }.to_be_bytes());
            let v6 = (if at == 18 { inner } else { outer }) == 0x86dd;
            put(at + if v6 { 6 } else { 9 }, &[protocol]);
            if !v6 {
                put(at + 6, &fragment.to_be_bytes());
                if plain {
                    put(at, &[0x45]);
                }
            }
            bytes
        },
    )
}

// Goal: the program in the kernel and the hash agree on every frame, whole or truncated.
#[test]
fn program_and_hash_agree() {
    if !mqnet_testkit::has(&[mqnet_testkit::Need::Root]) {
        return;
    }
    // The queue is the bucket plus one; 0 is the queue of truncated frames.
    let table = std::array::from_fn(|bucket| bucket as u16 + 1);
    let steering = Steering::load(&table, Layer::Ethernet).unwrap();
    let tun = Steering::load(&table, Layer::Ip).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(4000));
    let seen = std::cell::Cell::new((0, 0));
    runner
        .run(&frames(), |frame| {
            let expected = bucket(&frame, Layer::Ethernet).map_or(0, |b| b as u32 + 1);
            // The kernel removes 14 bytes before the program reads the frame.
            let mut packet = vec![0; 14];
            packet.extend(&frame);
            prop_assert_eq!(steering.program.test_run(&packet)?, expected);
            if frame.len() > 14 {
                // The bytes after the Ethernet header are a packet of a TUN.
                packet.drain(14..28);
                let expected = bucket(&frame[14..], Layer::Ip).map_or(0, |b| b as u32 + 1);
                prop_assert_eq!(tun.program.test_run(&packet)?, expected);
            }
            let (some, none) = seen.get();
            let cut = usize::from(expected == 0);
            seen.set((some + 1 - cut, none + cut));
            Ok(())
        })
        .unwrap();
    let (some, none) = seen.get();
    assert!(some > 500 && none > 500, "{some} whole and {none} cut short");
}

/// Random rule that uses values of `frames`, so that some frames match.
fn rules() -> impl Strategy<Value = SteeringRule> {
    use mqnet_netdev::{Field, FlowKind, MaskedField};
    let kind = prop::sample::select(vec![
        FlowKind::Ether,
        FlowKind::Ip { v6: false },
        FlowKind::Ip { v6: true },
        FlowKind::Transport { v6: false, protocol: 6 },
        FlowKind::Transport { v6: false, protocol: 17 },
        FlowKind::Transport { v6: true, protocol: 132 },
    ]);
    let fields = prop::sample::subsequence(
        vec![
            Field::EtherSource,
            Field::EtherDestination,
            Field::EtherType,
            Field::Source,
            Field::Destination,
            Field::TrafficClass,
            Field::Protocol,
            Field::SourcePort,
            Field::DestinationPort,
        ],
        0..=3,
    );
    // Use few mask bits, so that some rules match.
    let bits = prop::sample::select(vec![0u8, 0, 0, 0, 1, 0x80, 0x41]);
    let bytes = prop::collection::vec((any::<u8>(), bits), 16);
    (kind, fields, bytes).prop_map(|(kind, fields, bytes)| {
        let matches = fields.into_iter().filter_map(|field| {
            let (value, mask) = bytes[..kind.width(field)?].iter().copied().unzip();
            Some(MaskedField { field, value, mask })
        });
        SteeringRule { location: 0, kind, matches: matches.collect(), queue: 0 }
    })
}

/// Reference implementation of a rule, with the header parser of `mqnet-wire`.
fn is_matched(rule: &SteeringRule, frame: &[u8]) -> bool {
    use mqnet_netdev::{Field, FlowKind};
    let keys = mqnet_wire::FlowKeys::dissect(frame, Layer::Ethernet);
    let at = usize::from(keys.ip.unwrap_or(0));
    let (v6, protocol) = match rule.kind {
        FlowKind::Ether => (false, None),
        FlowKind::Ip { v6 } => (v6, None),
        FlowKind::Transport { v6, protocol } => (v6, Some(protocol)),
    };
    if rule.kind != FlowKind::Ether && (keys.ip.is_none() || keys.is_v6 != v6) {
        return false;
    }
    // The program reads only the first header after IPv6.
    let first = if v6 { frame.get(at + 6) } else { frame.get(at + 9) };
    if protocol.is_some_and(|wanted| Some(&wanted) != first || keys.fragment) {
        return false;
    }
    let n = if v6 { 16 } else { 4 };
    rule.matches.iter().all(|m| {
        let [from, to] = keys.ports.map(|port| port.to_be_bytes().to_vec());
        let bytes = match m.field {
            Field::EtherDestination => keys.mac[0].to_vec(),
            Field::EtherSource => keys.mac[1].to_vec(),
            Field::EtherType => frame[12..14].to_vec(),
            Field::Source => keys.src[..n].to_vec(),
            Field::Destination => keys.dst[..n].to_vec(),
            Field::TrafficClass => vec![keys.tos],
            Field::Protocol => vec![*first.unwrap()],
            Field::SourcePort => from,
            Field::DestinationPort => to,
        };
        bytes.iter().zip(&m.value).zip(&m.mask).all(|((b, v), mask)| b & mask == v & mask)
    })
}

// Goal: the program sends every frame to the queue of the first rule that matches, and other
// frames to the queue of their bucket.
#[test]
fn rules_take_precedence_over_the_table() {
    if !mqnet_testkit::has(&[mqnet_testkit::Need::Root]) {
        return;
    }
    let table = std::array::from_fn(|bucket| bucket as u16 + 1);
    let mut steering = Steering::load(&table, Layer::Ethernet).unwrap();
    let seen = std::cell::Cell::new([0, 0]);
    let lists = prop::collection::vec(rules(), 0..=8);
    let many = prop::collection::vec(frames(), 60);
    let cell = std::cell::RefCell::new(&mut steering);
    let round = || {
        // A runner counts its cases over its lifetime, so each round needs a new one.
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(60));
        runner.run(&(&lists, &many), |(mut list, frames)| {
            for (place, rule) in (0u32..).zip(&mut list) {
                (rule.location, rule.queue) = (place, 1000 + place as u16);
            }
            cell.borrow_mut().set_rules(&list)?;
            // Exclude truncated headers and invalid IPv4 headers.
            let whole = |frame: &&Vec<u8>| {
                frame.len() >= 100 && frame[14] >> 4 != 4 || frame.len() >= 100 && frame[14] == 0x45
            };
            for frame in frames.iter().filter(whole) {
                let keys = mqnet_wire::FlowKeys::dissect(frame, Layer::Ethernet);
                let is_ip = matches!(keys.ethertype, 0x0800 | 0x86dd);
                if is_ip && (keys.ip.is_none() || keys.tpid == 0x88a8) {
                    continue;
                }
                let rule = list.iter().find(|rule| is_matched(rule, frame));
                let plain = bucket(frame, Layer::Ethernet).map_or(0, |b| b as u32 + 1);
                let expected = rule.map_or(plain, |rule| rule.queue.into());
                let mut packet = vec![0; 14];
                packet.extend(frame);
                let got = cell.borrow().program.test_run(&packet)?;
                prop_assert_eq!(got, expected, "{:?} {:x?}", rule, frame);
                let mut now = seen.get();
                now[usize::from(rule.is_some())] += 1;
                seen.set(now);
            }
            Ok(())
        })
    };
    // The share of matched frames is random, so repeat until both counts suffice.
    for _ in 0..50 {
        round().unwrap();
        if seen.get().iter().all(|&n| n > 100) {
            break;
        }
    }
    let [none, some] = seen.get();
    assert!(none > 100 && some > 100, "{some} matched, {none} did not");
}

// Goal: a change of the table updates every entry in the kernel.
#[test]
fn table_changes_update_the_kernel() {
    if !mqnet_testkit::has(&[mqnet_testkit::Need::Root]) {
        return;
    }
    let mut steering = Steering::load(&spread(4), Layer::Ethernet).unwrap();
    for [before, channels] in [[4, 7], [7, 64], [64, 1], [1, 3]] {
        let table = rebalance(steering.table(), before, channels);
        steering.set(&table).unwrap();
        assert_eq!(steering.table(), &table);
        for (key, &queue) in (0..).zip(&table) {
            assert_eq!(steering.array.get(key).unwrap(), u32::from(queue));
        }
    }
}

// Goal: both directions of a flow share a bucket, flows spread, and fragments stay together.
#[test]
fn flows_keep_one_bucket_and_spread() {
    let udp = |from: [u8; 4], to: [u8; 4], ports: (u16, u16), fragment: u16| {
        let mut frame = vec![0; 42];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[23] = 17;
        frame[26..30].copy_from_slice(&from);
        frame[30..34].copy_from_slice(&to);
        frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
        frame[36..38].copy_from_slice(&ports.1.to_be_bytes());
        bucket(&frame, Layer::Ethernet).unwrap()
    };
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut used = [0; BUCKETS];
    for port in 40_000..40_256 {
        let there = udp(a, b, (port, 5201), 0x4000);
        assert_eq!(there, udp(b, a, (5201, port), 0));
        used[there] += 1;
    }
    // 256 neighbouring ports are distributed nearly evenly.
    assert!(used.iter().all(|&n| n <= 6), "{used:?}");
    assert!(used.iter().filter(|&&n| n > 0).count() > 100, "{used:?}");
    let fragments = [(1, 2, 0x2000), (3, 4, 0x20b9), (5, 6, 0x0172)];
    let [first, rest @ ..] = fragments.map(|(from, to, word)| udp(a, b, (from, to), word));
    assert_eq!(rest, [first; 2]);
}
