//! `ethtool -g` and `-G`.

use mqnet_control_api::{ApiError, Change, Code, Rings, SetRings};
use mqnet_netdev::RingSizes;

use super::plain;
use crate::HostedLink;

/// Ring sizes of a side. Returns an error if the rings of the side cannot be resized.
fn sizes(entry: &mut HostedLink, side: usize) -> Result<RingSizes, ApiError> {
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

/// Numbers of slots with an `ntb_transport`; `None` for other functions. Current and maximum sizes
/// are equal, because the far end always sets up all slots.
fn slots(entry: &mut HostedLink, side: usize) -> Option<Rings> {
    let rings = (*entry.link.functions()[side]).slot_rings()?;
    let first = rings.pairs.first()?;
    let (rx, tx) = (Some(first.rx_slots), Some(first.tx_slots));
    Some(Rings { rx_max: rx, rx, tx_max: tx, tx, unit: "slots".to_owned() })
}

/// `ethtool -g`, in slots for an `ntb_transport`, otherwise in KiB.
pub(super) fn rings(entry: &mut HostedLink, side: usize) -> Result<Rings, ApiError> {
    if let Some(slots) = slots(entry, side) {
        return Ok(slots);
    }
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
pub(super) fn set_rings(entry: &mut HostedLink, side: usize, want: &SetRings) -> Change {
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
    let mut settings = entry.link.settings().clone();
    settings.rings.rx = want.rx.map(|kib| kib << 10).or(settings.rings.rx);
    settings.rings.tx = want.tx.map(|kib| kib << 10).or(settings.rings.tx);
    entry.request(settings)
}
