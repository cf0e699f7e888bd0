//! `ethtool -k` and `-K`.

use mqnet_control_api::{ApiError, Change, Feature, SetFeatures};
use mqnet_engine::LinkSettings;
use mqnet_netdev::Offloads;
use mqnet_sysio::clock;

use super::done;
use crate::HostedLink;

/// ethtool's names of the offloads for frames that the netdev sends.
const TX_FEATURES: [(&str, Offloads); 5] = [
    ("tx-checksum-ip-generic", Offloads::CSUM),
    ("tx-tcp-segmentation", Offloads::TSO4),
    ("tx-tcp-ecn-segmentation", Offloads::TSO_ECN),
    ("tx-tcp6-segmentation", Offloads::TSO6),
    ("tx-udp-segmentation", Offloads::USO4),
];

/// ethtool's names of the offloads for frames that the netdev receives.
const RX_FEATURES: [(&str, Offloads); 2] =
    [("rx-checksum", Offloads::CSUM), ("rx-gro-hw", Offloads::LARGE)];

/// Name of the coalescing of small received frames.
const GRO: &str = "rx-gro";

fn offloads_of(name: &str, offload: Offloads) -> Offloads {
    match name {
        "tx-udp-segmentation" => Offloads::USO4.or(Offloads::USO6),
        "rx-gro-hw" => Offloads::LARGE,
        _ => offload,
    }
}

/// Offloads that the user has disabled: for frames received on a side, and for frames sent there.
fn unwanted(settings: &LinkSettings, side: usize) -> [Offloads; 2] {
    let both = [settings.without_forth, settings.without_back];
    [both[side], both[1 - side]]
}

/// `ethtool -k`.
pub(super) fn features(entry: &mut HostedLink, side: usize) -> Result<Vec<Feature>, ApiError> {
    let plan = entry.link.running().map(|running| running.plan.clone());
    let plan = plan.map(|plan| if side == 0 { plan } else { plan.mirrored() });
    let caps = entry.link.functions()[side].caps();
    let [no_rx, no_tx] = unwanted(entry.link.settings(), side);
    let feature = |name: &str, bits: Offloads, have: Offloads, can: Offloads, no: Offloads| {
        // A name may stand for several offloads. The feature is requested if the function supports
        // all of them, unless the user has disabled all of them.
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
        // The feature is active if the netdev receives any kind of large frame.
        let have = if *name == "rx-gro-hw" && rx.any_large() { bits } else { rx };
        list.push(feature(name, bits, have, caps.rx_offloads, no_rx));
    }
    list.extend(leaving.map(|(name, bits)| feature(name, bits, tx, caps.tx_offloads, no_tx)));
    // Kernel's name for coalescing frames for a network stack.
    list.push(Feature {
        name: GRO.to_owned(),
        active: entry.link.merges(side) != Offloads::NONE,
        fixed: !entry.link.functions()[1 - side].feeds_a_stack(),
        requested: entry.link.functions()[1 - side].feeds_a_stack() && entry.link.may_merge(side),
    });
    // Kernel's name for segmenting frames for a device without that offload.
    list.push(Feature {
        name: "tx-generic-segmentation".to_owned(),
        active: cut,
        fixed: true,
        requested: cut,
    });
    Ok(list)
}

/// `ethtool -K`.
pub(super) fn set_features(entry: &mut HostedLink, side: usize, want: &SetFeatures) -> Change {
    let since = clock::monotonic();
    let mut settings = entry.link.settings().clone();
    let known = features(entry, side)?;
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
            (true, 0) | (false, 1) => &mut settings.without_forth,
            _ => &mut settings.without_back,
        };
        *no = if on { no.minus(bits) } else { no.or(bits) };
    }
    let changed = merge != entry.link.may_merge(side);
    if settings == *entry.link.settings() {
        entry.link.set_may_merge(side, merge);
        return done(changed, since);
    }
    // A rejected request must change nothing, so set the coalescing after the request was accepted.
    let asked = entry.request(settings)?;
    entry.link.set_may_merge(side, merge);
    Ok(asked)
}
