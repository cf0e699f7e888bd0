//! Opens the function of an endpoint address.

use std::error::Error;
use std::os::fd::OwnedFd;

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction, RequestedMode, ZeroCopy};
use mqnet_control::socket::{group_id, user_id};
use mqnet_group::{GroupConfig, GroupFunction, OnLoss};
use mqnet_host::{Opened, netns_of};
use mqnet_netdev::limits::{CHANNELS_MAX, MTU_DEFAULT, frame_of_mtu};
use mqnet_netdev::{Function, OpenChannelsError, null::Null};
use mqnet_ntb::hw::vfio_user::{VfioUser, VfioUserConfig};
use mqnet_ntb::layout::Geometry;
use mqnet_ntb::transport::geometry;
use mqnet_ntb::{DeviceLocation, IvshmemConfig, NtbConfig, NtbFunction};
use mqnet_sysio::listen::Access;
use mqnet_tap::{TapConfig, TapError, TapFunction};
use mqnet_vhost_user::vduse::{VduseConfig, VduseFunction};
use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use mqnet_virtio_user::{RequestedLayout, VirtioUserConfig, VirtioUserFunction};

use mqnet_address::{
    AfXdp, AfXdpMode, Endpoint, Group, Ivshmem, IvshmemAt, Ntb, NtbVfioUser, RxBufLayout,
    SocketAccess, TapEndpoint, Vduse, VhostUser, VirtioUser,
};

/// Validates an endpoint with the rules of its backend before any endpoint is opened.
pub(crate) fn check(end: &Endpoint, channels: u16) -> Result<(), String> {
    if let Endpoint::Group(group) = end {
        let (all, share) = (channels, channels.div_ceil(group.members.len() as u16));
        let each = if group.degrade { all } else { share };
        return group.members.iter().try_for_each(|member| check(member, each));
    }
    if let Some(access) = end.config().access() {
        permissions(access)?;
    }
    if let Endpoint::NtbVfioUser(end) = end {
        return check_slots(end);
    }
    let Endpoint::Ntb(Ntb { window, mtu, .. }) = end else { return Ok(()) };
    let frame = frame_of_mtu(mtu.unwrap_or(MTU_DEFAULT));
    let need = Geometry::window_for(channels, frame);
    if u64::from(*window) >= need {
        return Ok(());
    }
    let most = match Geometry::queue_pairs_for(*window, frame) {
        0 => String::new(),
        n => format!(" or --channels {n}"),
    };
    let ring = Geometry::ring_max(*window, channels);
    Err(format!(
        "window={window} gives {channels} channels rings of {ring} bytes, in which no frame of \
         {frame} bytes fits: use window={need} or more{most}"
    ))
}

/// Opens a function. `fds` contains the descriptors that the endpoint's address names.
pub fn open(end: Endpoint, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn Error>> {
    let (mut name, mut ifindex, netns) = (end.config().netdev_name(), None, netns_of(&end));
    let function: Box<dyn Function> = match end {
        Endpoint::Tap(config) => {
            let function = tap(config, fds)?;
            // Read the name back: the kernel may have chosen it.
            (name, ifindex) = (function.device().to_owned(), Some(function.index()));
            Box::new(function)
        }
        Endpoint::Vduse(card) => {
            let function = vduse(card)?;
            if let Some((device, index)) = function.netdev() {
                (name, ifindex) = (device.to_owned(), Some(index));
            }
            Box::new(function)
        }
        Endpoint::Group(members) => Box::new(group(members)?),
        Endpoint::Null => Box::new(Null::new(CHANNELS_MAX)),
        Endpoint::Ntb(Ntb { path, window, mtu, access, .. }) => {
            let config = NtbConfig { path, window, mtu };
            Box::new(NtbFunction::memfd_as(&config, permissions(&access)?, random_seed()))
        }
        Endpoint::Ivshmem(device) => Box::new(ivshmem(device)),
        Endpoint::NtbVfioUser(end) => Box::new(ntb_vfio_user(end)?),
        Endpoint::VhostUser(card) => Box::new(vhost_user(card, &name, fds)?),
        Endpoint::VirtioUser(virtio) => {
            let address = format!("virtio-user:{}", virtio.path.display());
            let function = VirtioUserFunction::new(virtio_user(virtio)?);
            Box::new(function.map_err(|e| format!("{address}: {e}"))?)
        }
        Endpoint::AfXdp(nic) => Box::new(AfXdpFunction::new(af_xdp(nic))?),
    };
    Ok(Opened { function, name, ifindex, netns })
}

/// Opens a TAP device.
fn tap(tap: TapEndpoint, fds: Vec<OwnedFd>) -> Result<TapFunction, TapError> {
    TapFunction::open(TapConfig {
        tun: false,
        name: tap.name,
        netns: tap.netns,
        mac: tap.mac,
        mtu: tap.mtu,
        addresses: tap.addresses,
        persist: tap.persist,
        io: tap.io,
        fds,
    })
}

/// Creates one end of a bridge in the memory of an ivshmem device.
fn ivshmem(device: Ivshmem) -> NtbFunction {
    let place = match device.at {
        IvshmemAt::Socket(path) => DeviceLocation::Socket(path),
        IvshmemAt::OnlyPci => DeviceLocation::OnlyPci,
        IvshmemAt::Pci(address) => DeviceLocation::Pci(address),
    };
    let config = IvshmemConfig { place, side: device.side };
    NtbFunction::ivshmem(config, device.mtu, random_seed())
}

/// Opens an emulated bridge for a guest's kernel.
fn ntb_vfio_user(end: NtbVfioUser) -> Result<NtbFunction, Box<dyn Error>> {
    let name = format!("ntb:vfio-user={}", end.path.display());
    let config = vfio_user_config(&end)?;
    let hw = VfioUser::new(&config).map_err(|e| format!("{name}: {e}"))?;
    let function = NtbFunction::with_hw(name, Box::new(hw), end.mtu, random_seed());
    Ok(function.with_transport_mtu(end.transport_mtu))
}

/// Returns an error if a window has too few slots: the kernel's netdev would never transmit.
fn check_slots(end: &NtbVfioUser) -> Result<(), String> {
    let sizes = vec![end.window; end.windows.into()];
    geometry::WindowPart::all(&sizes, end.queues, end.transport_mtu)
        .map(drop)
        .map_err(|e| e.to_string())
}

/// Configuration of the emulated device.
pub(crate) fn vfio_user_config(end: &NtbVfioUser) -> Result<VfioUserConfig, String> {
    Ok(VfioUserConfig {
        path: end.path.clone(),
        access: permissions(&end.access)?,
        endpoint: end.device.parse()?,
        windows: end.windows.into(),
        window: end.window,
        vectors: end.vectors,
    })
}

/// Configuration of a virtio device driven by mqnet.
fn virtio_user(virtio: VirtioUser) -> Result<VirtioUserConfig, String> {
    Ok(VirtioUserConfig {
        access: permissions(&virtio.access)?,
        path: virtio.path,
        server: virtio.server,
        queues: virtio.queues,
        mtu: virtio.mtu,
        mac: virtio.mac,
        packed: virtio.packed,
        in_order: virtio.in_order,
        csum: virtio.csum,
        mergeable: virtio.mergeable,
        rx_buf_layout: match virtio.rx_buf_layout {
            RxBufLayout::Frag => RequestedLayout::Frag,
            RxBufLayout::Full => RequestedLayout::Full,
            RxBufLayout::Auto => RequestedLayout::Auto,
        },
        rx_memory: None,
    })
}

/// Permissions, with user and group names resolved on this machine.
fn permissions(access: &SocketAccess) -> Result<Access, String> {
    let owner = access.owner.as_deref().map(user_id).transpose();
    let group = access.group.as_deref().map(group_id).transpose();
    Ok(Access {
        mode: access.mode,
        uid: owner.map_err(|why| format!("owner=: {why}"))?,
        gid: group.map_err(|why| format!("group=: {why}"))?,
    })
}

/// Configuration of AF_XDP on a kernel interface.
fn af_xdp(nic: AfXdp) -> AfXdpConfig {
    AfXdpConfig {
        interface: nic.interface,
        netns: nic.netns,
        mode: match nic.mode {
            AfXdpMode::Auto => RequestedMode::Auto,
            AfXdpMode::Native => RequestedMode::Native,
            AfXdpMode::Generic => RequestedMode::Generic,
        },
        zero_copy: match nic.zero_copy {
            None => ZeroCopy::Auto,
            Some(true) => ZeroCopy::On,
            Some(false) => ZeroCopy::Off,
        },
        queues: nic.queues,
        ring: nic.ring,
        mtu: nic.mtu,
        keep_filter: nic.keep_filter,
        patience: None,
    }
}

/// Opens several functions as a group. If one fails, those already open are closed.
fn group(group: Group) -> Result<GroupFunction, Box<dyn Error>> {
    let mut members = Vec::new();
    for member in group.members {
        members.push(open(member, Vec::new())?.function);
    }
    let names: Vec<&str> = members.iter().map(|member| member.name()).collect();
    let config = GroupConfig {
        name: names.join("+"),
        on_loss: if group.degrade { OnLoss::Degrade } else { OnLoss::Destroy },
        primary: group.primary,
        members,
        seed: random_seed(),
    };
    Ok(GroupFunction::new(config)?)
}

/// Opens a vhost-user backend: the device of a guest's network card.
fn vhost_user(
    card: VhostUser,
    name: &str,
    fds: Vec<OwnedFd>,
) -> Result<VhostUserFunction, Box<dyn Error>> {
    let access = permissions(&card.access)?;
    let meet = match (fds.into_iter().next(), card.connect) {
        (Some(fd), _) => Meet::Inherited(fd),
        (None, true) => Meet::Connect(card.path),
        (None, false) => Meet::ListenAs(card.path, access),
    };
    Ok(VhostUserFunction::open(VhostUserConfig {
        name: format!("vhost-user:{name}"),
        meet,
        mac: card.mac,
        mtu: card.mtu,
        queues: card.queues,
        packed: card.packed,
        ctrl: card.ctrl,
    })?)
}

/// Opens a VDUSE network card of this kernel.
fn vduse(card: Vduse) -> Result<VduseFunction, OpenChannelsError> {
    VduseFunction::open(VduseConfig {
        name: format!("vduse:{}", card.name),
        device: card.name,
        mac: card.mac,
        mtu: card.mtu,
        packed: card.packed,
        persist: card.persist,
    })
}

/// Returns a random number that identifies a session or a group. The number need not be secret: it
/// guards against stale memory, not against guessing.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a window that can never carry a frame is refused, and the message has a window size
    // that works.
    #[test]
    fn impossible_windows_are_refused() {
        let ntb =
            |window| mqnet_address::parse(&format!("ntb:/x,window={window},mtu=9000")).unwrap();
        let text = check(&ntb(64 << 10), 8).unwrap_err();
        let need = Geometry::window_for(8, frame_of_mtu(9000)) as u32;
        assert!(text.contains(&format!("window={need} or more or --channels")), "{text}");
        assert_eq!(check(&ntb(need), 8), Ok(()));
    }

    // Goal: an unknown user or group is refused before anything is opened.
    #[test]
    fn unknown_owners_are_refused() {
        for (options, words) in [
            ("owner=no-such-user", "owner=: no user `no-such-user`"),
            ("group=no-such-group", "group=: no group `no-such-group`"),
        ] {
            let card = mqnet_address::parse(&format!("vhost-user:/x,{options}")).unwrap();
            assert_eq!(check(&card, 1), Err(words.to_owned()));
        }
        let card = mqnet_address::parse("vhost-user:/x,mode=0660,owner=0,group=0").unwrap();
        assert_eq!(check(&card, 1), Ok(()));
    }
}
