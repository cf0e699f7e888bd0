//! What ethtool shows and sets.

use std::time::{Duration, Instant};

use mqnet_control_api::{
    ApiError, Change, Channels, Coalesce, Code, Feature, PrivFlag, Rings, Rss, SetChannels,
    SetCoalesce, SetFeatures, SetMtu, SetPrivFlags, SetRings, SetRss,
};
use mqnet_engine::{IdlePolicy, Wish};
use mqnet_netdev::limits::{MTU_MAX, MTU_MIN};
use mqnet_netdev::{Offloads, RingSizes, RxMemory};

use super::{Entry, done};

pub(super) fn plain(code: Code, message: &str) -> ApiError {
    ApiError::new(code, message)
}

/// Lanes of a change under way would be missed.
pub(super) fn not_while_changing(entry: &Entry) -> Result<(), ApiError> {
    match entry.link.is_changing() {
        true => Err(plain(Code::Changing, "another change is under way")),
        false => Ok(()),
    }
}

fn most_channels(entry: &mut Entry) -> u16 {
    entry.link.functions().map(|function| function.caps().channels).into_iter().min().unwrap_or(1)
}

/// `ethtool -l`.
pub(super) fn channels(entry: &mut Entry) -> Channels {
    let combined = entry.link.running().map(|running| running.plan.channels);
    let wanted = entry.link.wish().channels;
    Channels {
        combined_max: most_channels(entry),
        // While it is down: what it will begin with, as far as this end knows.
        combined: combined.or(wanted).unwrap_or(1),
        wanted,
        peer_wanted: entry.link.peer_wants(),
        note: entry.link.settled_note(),
    }
}

/// `ethtool -L`.
pub(super) fn set_channels(entry: &mut Entry, want: &SetChannels) -> Change {
    let most = most_channels(entry);
    if want.combined > most {
        let why = "requested channel count exceeds maximum";
        return Err(ApiError { field: Some("combined".into()), ..plain(Code::Invalid, why) });
    }
    if want.combined == 0 {
        let why = "requested channel counts would result in no RX or TX channel being configured";
        return Err(ApiError { field: Some("combined".into()), ..plain(Code::Invalid, why) });
    }
    for function in entry.link.functions() {
        let rules = function.rules().unwrap_or_default();
        if rules.iter().any(|rule| rule.queue >= want.combined) {
            let why = "requested channel counts are too low for existing ntuple filter settings";
            return Err(plain(Code::Invalid, why));
        }
        let Some(spread) = function.indirection().filter(|spread| spread.user_set) else {
            continue;
        };
        let last = spread.table.iter().max().copied().unwrap_or(0);
        if want.combined <= last {
            let why = format!(
                "requested channel counts are too low for existing indirection table ({last})"
            );
            return Err(plain(Code::Invalid, &why));
        }
    }
    let wish = Wish { channels: Some(want.combined), ..entry.link.wish().clone() };
    entry.ask(wish)
}

/// The rings of a side that has some of its own.
fn sizes(entry: &mut Entry, side: usize) -> Result<RingSizes, ApiError> {
    let function = &mut entry.link.functions()[side];
    let sizes = function.peer().map(|peer| peer.rings());
    let dev = &entry.netdevs[side];
    sizes.ok_or_else(|| {
        plain(
            Code::NotSupported,
            &format!("{}: {}", dev.name, dev.kind.rings.replace("NAME", &dev.name)),
        )
    })
}

/// `ethtool -g`, in KiB.
pub(super) fn rings(entry: &mut Entry, side: usize) -> Result<Rings, ApiError> {
    let sizes = sizes(entry, side)?;
    let kib = |bytes: u32| Some(bytes >> 10);
    Ok(Rings {
        rx_max: kib(sizes.rx_max),
        rx: kib(sizes.rx),
        tx_max: kib(sizes.tx_max),
        tx: kib(sizes.tx),
        unit: "KiB".to_owned(),
    })
}

/// `ethtool -G`.
pub(super) fn set_rings(entry: &mut Entry, side: usize, want: &SetRings) -> Change {
    let sizes = sizes(entry, side)?;
    for (field, value, most) in [("rx", want.rx, sizes.rx_max), ("tx", want.tx, sizes.tx_max)] {
        let too_large = value.is_some_and(|value| value > most >> 10);
        if too_large {
            let why = "requested ring size exceeds maximum";
            return Err(ApiError { field: Some(field.into()), ..plain(Code::Invalid, why) });
        }
        if value == Some(0) {
            let why = format!("{field}: 0 is not a ring size from 1 to {}", most >> 10);
            return Err(ApiError { field: Some(field.into()), ..plain(Code::Invalid, &why) });
        }
    }
    let mut wish = entry.link.wish().clone();
    wish.rings.rx = want.rx.map(|kib| kib << 10).or(wish.rings.rx);
    wish.rings.tx = want.tx.map(|kib| kib << 10).or(wish.rings.tx);
    entry.ask(wish)
}

pub(super) fn set_mtu(entry: &mut Entry, want: &SetMtu) -> Change {
    if !(MTU_MIN..=MTU_MAX).contains(&want.mtu) {
        let why = format!("mtu: {} is not a number from {MTU_MIN} to {MTU_MAX}", want.mtu);
        return Err(ApiError { field: Some("mtu".into()), ..plain(Code::Range, &why) });
    }
    let wish = Wish { mtu: Some(want.mtu), ..entry.link.wish().clone() };
    entry.ask(wish)
}

/// `ethtool -c`.
pub(super) fn coalesce(entry: &mut Entry) -> Coalesce {
    Coalesce {
        rx_usecs: entry.link.idle_policy().window.as_micros() as u32,
        tx_frames: entry.link.wake_frames(),
    }
}

/// `ethtool -C`.
pub(super) fn set_coalesce(entry: &mut Entry, want: &SetCoalesce) -> Change {
    let since = Instant::now();
    let limits = [("rx-usecs", want.rx_usecs, 1_000_000), ("tx-frames", want.tx_frames, 65_536)];
    for (field, value, most) in limits {
        if let Some(value) = value.filter(|&value| value > most) {
            let why = format!("{field}: {value} is not a number from 0 to {most}");
            return Err(ApiError { field: Some(field.into()), ..plain(Code::Range, &why) });
        }
    }
    if want.tx_frames.is_some() {
        not_while_changing(entry)?;
    }
    if let Some(usecs) = want.rx_usecs {
        let window = Duration::from_micros(u64::from(usecs));
        let policy = IdlePolicy { window, ..entry.link.idle_policy() };
        entry.link.set_idle_policy(policy);
    }
    if let Some(frames) = want.tx_frames {
        entry.link.set_wake_frames(frames);
    }
    done(true, since)
}

/// `ethtool -x`.
pub(super) fn rss(entry: &mut Entry, side: usize) -> Result<Rss, ApiError> {
    let rings = entry.link.running().map_or(1, |running| running.plan.channels);
    let spread = entry.link.functions()[side].indirection();
    let spread =
        spread.ok_or_else(|| plain(Code::NotSupported, "nothing here chooses among its queues"))?;
    Ok(Rss {
        rings,
        indirection_table: spread.table,
        hash_function: spread.hash.to_owned(),
        user_set: spread.user_set,
    })
}

/// `ethtool -X`.
pub(super) fn set_rss(entry: &mut Entry, side: usize, want: &SetRss) -> Change {
    let since = Instant::now();
    let now = rss(entry, side)?;
    not_while_changing(entry)?;
    if entry.link.running().is_none() {
        let why = "the link is down: how many channels there will be is not known yet";
        return Err(plain(Code::Down, why));
    }
    let size = now.indirection_table.len();
    let asked = [
        want.indirection_table.is_some(),
        want.equal.is_some(),
        want.weights.is_some(),
        want.default == Some(true),
    ];
    if asked.iter().filter(|asked| **asked).count() != 1 {
        let why = "exactly one of indirection-table, equal, weights and default is needed";
        return Err(plain(Code::Invalid, why));
    }
    // Those that the table can name, in a group those of the primary.
    let named = entry.link.functions()[side].table_queues(now.rings);
    let most = named.len() as u16;
    if most == 0 {
        return Err(plain(Code::NotSupported, "its table can name none of these channels"));
    }
    let spread = |queues: u16| (0..size).map(|i| named[i % usize::from(queues)]).collect();
    let table: Vec<u16> = match want {
        SetRss { indirection_table: Some(table), .. } if table.len() == size => table.clone(),
        SetRss { indirection_table: Some(table), .. } => {
            let n = table.len();
            let why = format!("size ({n}) mismatch with device indir table ({size})");
            return Err(ApiError::field("indirection-table", why));
        }
        SetRss { equal: Some(queues), .. } if (1..=most).contains(queues) => spread(*queues),
        SetRss { equal: Some(queues), .. } => {
            let why = format!("equal: {queues} is not a number from 1 to {most}");
            return Err(ApiError::field("equal", why));
        }
        SetRss { weights: Some(weights), .. } => by_weight(weights, size)?,
        _ => spread(most),
    };
    if let Some(entry) = table.iter().position(|&queue| queue >= now.rings) {
        let why = format!("entry {entry}: queue out of range ({})", table[entry]);
        return Err(plain(Code::Invalid, &why));
    }
    let user_set = want.default != Some(true);
    let set = entry.link.set_indirection(side, &table, user_set);
    let set = set.map_err(|e| plain(Code::Failed, &e.to_string()))?;
    set.map_err(|why| plain(Code::Failed, &why))?;
    done(true, since)
}

/// Buckets in proportion to the weights.
fn by_weight(weights: &[u32], size: usize) -> Result<Vec<u16>, ApiError> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    if total == 0 || weights.len() > usize::from(mqnet_netdev::limits::CHANNELS_MAX) {
        return Err(ApiError::field("weights", "weights: 1 to 64 numbers, not all 0, are needed"));
    }
    let mut table = Vec::with_capacity(size);
    let mut sum = 0;
    for (queue, &weight) in (0u16..).zip(weights) {
        sum += u64::from(weight);
        let end = (size as u64 * sum / total) as usize;
        table.resize(end.max(table.len()), queue);
    }
    Ok(table)
}

/// Names of offloads as ethtool has them: how frames may leave through the netdev.
const TX_FEATURES: [(&str, Offloads); 5] = [
    ("tx-checksum-ip-generic", Offloads::CSUM),
    ("tx-tcp-segmentation", Offloads::TSO4),
    ("tx-tcp-ecn-segmentation", Offloads::TSO_ECN),
    ("tx-tcp6-segmentation", Offloads::TSO6),
    ("tx-udp-segmentation", Offloads::USO4),
];

/// The same for frames that arrive there.
const RX_FEATURES: [(&str, Offloads); 2] =
    [("rx-checksum", Offloads::CSUM), ("rx-gro-hw", Offloads::LARGE)];

/// What arrives in small frames is merged.
const GRO: &str = "rx-gro";

fn offloads_of(name: &str, offload: Offloads) -> Offloads {
    match name {
        "tx-udp-segmentation" => Offloads::USO4.or(Offloads::USO6),
        "rx-gro-hw" => Offloads::LARGE,
        _ => offload,
    }
}

/// What the user does not want: of frames from a side, and of frames to it.
fn unwanted(wish: &Wish, side: usize) -> [Offloads; 2] {
    let both = [wish.without_forth, wish.without_back];
    [both[side], both[1 - side]]
}

/// `ethtool -k`.
pub(super) fn features(entry: &mut Entry, side: usize) -> Vec<Feature> {
    let plan = entry.link.running().map(|running| running.plan.clone());
    let plan = plan.map(|plan| if side == 0 { plan } else { plan.mirrored() });
    let caps = entry.link.functions()[side].caps();
    let [no_rx, no_tx] = unwanted(entry.link.wish(), side);
    let feature = |name: &str, bits: Offloads, have: Offloads, can: Offloads, no: Offloads| {
        // Several kinds may be behind one name: it is off when all of them are.
        let requested = can.has(bits) && !no.has(bits);
        Feature { name: name.to_owned(), active: have.has(bits), fixed: !can.has(bits), requested }
    };
    let none = (Offloads::NONE, Offloads::NONE);
    let cut = plan
        .as_ref()
        .is_some_and(|plan| plan.tx_emulation.cuts || plan.tx_emulation.offloads.any_large());
    let (rx, tx) = plan.map_or(none, |plan| (plan.rx_offloads, plan.tx_offloads));
    let arriving = RX_FEATURES.iter().map(|(name, bit)| (name, offloads_of(name, *bit)));
    let leaving = TX_FEATURES.iter().map(|(name, bit)| (name, offloads_of(name, *bit)));
    let mut list: Vec<Feature> = Vec::new();
    for (name, bits) in arriving {
        // Large frames arrive if any kind of them does.
        let have = if *name == "rx-gro-hw" && rx.any_large() { bits } else { rx };
        list.push(feature(name, bits, have, caps.rx_offloads, no_rx));
    }
    list.extend(leaving.map(|(name, bits)| feature(name, bits, tx, caps.tx_offloads, no_tx)));
    // As the kernel calls it when it merges frames for a stack.
    list.push(Feature {
        name: GRO.to_owned(),
        active: entry.link.merges(side) != Offloads::NONE,
        fixed: !entry.link.functions()[1 - side].feeds_a_stack(),
        requested: entry.link.functions()[1 - side].feeds_a_stack() && entry.link.may_merge(side),
    });
    // As the kernel calls it when it cuts frames for a device that cannot.
    list.push(Feature {
        name: "tx-generic-segmentation".to_owned(),
        active: cut,
        fixed: true,
        requested: cut,
    });
    list
}

/// `ethtool -K`.
pub(super) fn set_features(entry: &mut Entry, side: usize, want: &SetFeatures) -> Change {
    let since = Instant::now();
    let mut wish = entry.link.wish().clone();
    let known = features(entry, side);
    let mut merge = entry.link.may_merge(side);
    for (name, &on) in &want.features {
        let bits = |list: &[(&str, Offloads)]| {
            let found = list.iter().find(|(known, _)| known == name);
            found.map(|(known, bit)| offloads_of(known, *bit))
        };
        let fixed = known.iter().any(|feature| feature.name == *name && feature.fixed);
        if fixed && on {
            return Err(ApiError::field(name, format!("{name}: cannot be changed")));
        }
        if name == GRO {
            merge = on;
            continue;
        }
        let (arrives, bits) = match (bits(&RX_FEATURES), bits(&TX_FEATURES)) {
            (Some(bits), _) => (true, bits),
            (_, Some(bits)) => (false, bits),
            _ => return Err(ApiError::field(name, "bit name not found")),
        };
        let no = match (arrives, side) {
            (true, 0) | (false, 1) => &mut wish.without_forth,
            _ => &mut wish.without_back,
        };
        *no = if on { no.minus(bits) } else { no.or(bits) };
    }
    let changed = merge != entry.link.may_merge(side);
    if wish == *entry.link.wish() {
        entry.link.set_may_merge(side, merge);
        return done(changed, since);
    }
    // A request that is refused changes nothing.
    let asked = entry.ask(wish)?;
    entry.link.set_may_merge(side, merge);
    Ok(asked)
}

/// The flag of which there is more to say than on and off.
const FULL_PAGE: &str = "full-page-rx";

/// How the buffers of RX queues lie; queues that agree are one line.
fn layout_notes(queues: &[RxMemory]) -> Vec<String> {
    let same = |a: &RxMemory, b: &RxMemory| (a.full, &a.reason) == (b.full, &b.reason);
    let line = |group: &[RxMemory]| {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        let who = match first.queue == last.queue {
            true => format!("queue {}", first.queue),
            false => format!("queues {}-{}", first.queue, last.queue),
        };
        format!("{who}: {} ({})", first.layout(), first.reason)
    };
    queues.chunk_by(same).map(line).collect()
}

/// `ethtool --show-priv-flags`.
pub(super) fn priv_flags(entry: &mut Entry, side: usize) -> Result<Vec<PrivFlag>, ApiError> {
    let flags = entry.link.functions()[side].flags();
    if flags.is_empty() {
        return Err(plain(Code::NotSupported, "this kind of device has no private flags"));
    }
    let mut notes = layout_notes(&entry.link.functions()[side].rx_memory());
    let flag = |(name, on): (&str, bool)| {
        let notes = if name == FULL_PAGE { std::mem::take(&mut notes) } else { Vec::new() };
        PrivFlag { name: name.to_owned(), on, notes }
    };
    Ok(flags.into_iter().map(flag).collect())
}

/// `ethtool --set-priv-flags`.
pub(super) fn set_priv_flags(entry: &mut Entry, side: usize, want: &SetPrivFlags) -> Change {
    let since = Instant::now();
    let known = priv_flags(entry, side)?;
    not_while_changing(entry)?;
    for name in want.flags.keys() {
        if !known.iter().any(|flag| flag.name == *name) {
            return Err(ApiError::field(name, "bit name not found"));
        }
    }
    let mut changed = false;
    for (name, &on) in &want.flags {
        if known.iter().any(|flag| flag.name == *name && flag.on != on) {
            let set = entry.link.functions()[side].set_flag(name, on);
            set.map_err(|e| plain(Code::Failed, &e.to_string()))?;
            changed = true;
        }
    }
    done(changed, since)
}
