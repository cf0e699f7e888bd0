//! TUN/TAP ioctls (`linux/if_tun.h`, Documentation/networking/tuntap.rst).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_char, c_int, c_short, c_uint, c_ulong};

use crate::descriptors::explained;
use crate::ioctl::ioctl_request;

/// Flag bits of a TAP queue in `TUNSETIFF`, `TUNGETIFF` and `TUNGETFEATURES`.
pub mod flag {
    /// IP packets (not Ethernet frames).
    pub const TUN: u32 = 0x0001;
    /// Ethernet frames (not IP packets).
    pub const TAP: u32 = 0x0002;
    /// The carrier is off after `TUNSETIFF` (Linux 6.2). Older kernels silently accept the bit.
    pub const NO_CARRIER: u32 = 0x0040;
    /// A full ring stops the qdisc instead of dropping (Linux 7.3). Older kernels silently accept
    /// the bit, so only `TUNGETFEATURES` shows support.
    pub const BACKPRESSURE: u32 = 0x0080;
    /// The queue is detached (result of `TUNGETIFF`).
    pub const DETACHED: u32 = 0x0400;
    /// Several queues, one descriptor each.
    pub const MULTI_QUEUE: u32 = 0x0100;
    /// No packet information header. In the result of `TUNGETIFF` this bit is `IFF_NOFILTER`.
    pub const NO_PI: u32 = 0x1000;
    /// `virtio_net_hdr` before each frame.
    pub const VNET_HDR: u32 = 0x4000;
}

/// Offload bits of `TUNSETOFFLOAD`: offloads that the reader of the device supports.
pub mod offload {
    /// Frames with a pending checksum.
    pub const CSUM: u32 = 0x01;
    /// TCP segmentation, IPv4.
    pub const TSO4: u32 = 0x02;
    /// TCP segmentation, IPv6.
    pub const TSO6: u32 = 0x04;
    /// TCP segmentation with ECN bits.
    pub const TSO_ECN: u32 = 0x08;
    /// UDP segmentation, IPv4 (Linux 6.2).
    pub const USO4: u32 = 0x20;
    /// UDP segmentation, IPv6 (Linux 6.2).
    pub const USO6: u32 = 0x40;
}

const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETPERSIST: u32 = 0x4004_54cb;
const TUNGETFEATURES: u32 = 0x8004_54cf;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNSETTXFILTER: u32 = 0x4004_54d1;
const TUNGETIFF: u32 = 0x8004_54d2;
const TUNSETSNDBUF: u32 = 0x4004_54d4;
const TUNGETVNETHDRSZ: u32 = 0x8004_54d7;
const TUNSETIFINDEX: u32 = 0x4004_54da;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
const TUNSETQUEUE: u32 = 0x4004_54d9;
const TUNSETSTEERINGEBPF: u32 = 0x8004_54e0;
const TUNSETVNETLE: u32 = 0x4004_54dc;
const TUNGETVNETLE: u32 = 0x8004_54dd;
const TUNSETCARRIER: u32 = 0x4004_54e2;
const TUNGETDEVNETNS: u32 = 0x54e3;
const ATTACH_QUEUE: c_short = 0x0200;
const DETACH_QUEUE: c_short = 0x0400;

#[repr(C)]
struct IfReq {
    name: [c_char; libc::IFNAMSIZ],
    flags: c_short,
    pad: [u8; 22],
}

const _: () = assert!(size_of::<IfReq>() == 40);

impl IfReq {
    fn new(name: &str, flags: c_short) -> io::Result<Self> {
        let mut request = Self { name: [0; libc::IFNAMSIZ], flags, pad: [0; 22] };
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in request.name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        Ok(request)
    }

    fn name(&self) -> String {
        self.name.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect()
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn ioctl_value(fd: BorrowedFd<'_>, request: u32, value: c_ulong) -> io::Result<()> {
    // SAFETY: these requests take their argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(request), value) })
}

fn ioctl_int(fd: BorrowedFd<'_>, request: u32, value: &mut c_int) -> io::Result<()> {
    // SAFETY: these requests read or write one int at the address.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(request), std::ptr::from_mut(value)) })
}

fn ioctl_ifreq(fd: BorrowedFd<'_>, request: u32, value: &mut IfReq) -> io::Result<()> {
    // SAFETY: these requests read or write one ifreq (40 bytes, asserted above) at the address.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(request), std::ptr::from_mut(value)) })
}

/// Opens `/dev/net/tun`, non-blocking.
pub fn open_clone_device() -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    Ok(options.open("/dev/net/tun").map_err(explained)?.into())
}

/// Flag bits supported by this kernel.
pub fn features(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bits: c_int = 0;
    ioctl_int(fd, TUNGETFEATURES, &mut bits)?;
    Ok(bits as c_uint)
}

/// Attaches `fd` to the device `name` (may contain `%d`), creating it if needed. Returns the real
/// name of the device.
pub fn attach(fd: BorrowedFd<'_>, name: &str, flags: u32) -> io::Result<String> {
    let mut request = IfReq::new(name, flags as u16 as c_short)?;
    ioctl_ifreq(fd, TUNSETIFF, &mut request)?;
    Ok(request.name())
}

/// Name and flags of the device to which `fd` is attached.
pub fn identify(fd: BorrowedFd<'_>) -> io::Result<(String, u32)> {
    let mut request = IfReq::new("", 0)?;
    ioctl_ifreq(fd, TUNGETIFF, &mut request)?;
    Ok((request.name(), u32::from(request.flags as u16)))
}

/// Network namespace of the device to which `fd` is attached. Needs CAP_NET_ADMIN there.
pub fn namespace_of(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument and returns a descriptor.
    let raw = unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(TUNGETDEVNETNS), 0) };
    check(raw)?;
    // SAFETY: the descriptor was just created; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Size in bytes of a device's `virtio_net_hdr`, and true if its fields are little-endian on every
/// host (`TUNSETVNETLE`).
pub fn vnet_header(fd: BorrowedFd<'_>) -> io::Result<(u32, bool)> {
    let (mut size, mut little): (c_int, c_int) = (0, 0);
    ioctl_int(fd, TUNGETVNETHDRSZ, &mut size)?;
    ioctl_int(fd, TUNGETVNETLE, &mut little)?;
    Ok((size as c_uint, little != 0))
}

/// Restores the values returned by [`vnet_header`].
pub fn restore_vnet_header(fd: BorrowedFd<'_>, (size, little): (u32, bool)) -> io::Result<()> {
    ioctl_int(fd, TUNSETVNETHDRSZ, &mut (size as c_int))?;
    ioctl_int(fd, TUNSETVNETLE, &mut c_int::from(little))
}

/// Sets the index of the device that [`attach`] creates. If the index is in use, `attach` fails
/// with `EBUSY`.
pub fn set_index(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let mut index = c_int::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    ioctl_int(fd, TUNSETIFINDEX, &mut index)
}

/// Selects a `virtio_net_hdr` of 12 bytes in little-endian order (virtio 1).
pub fn set_vnet_header(fd: BorrowedFd<'_>) -> io::Result<()> {
    ioctl_int(fd, TUNSETVNETHDRSZ, &mut 12)?;
    match ioctl_int(fd, TUNSETVNETLE, &mut 1) {
        // Not built in (CONFIG_TUN_VNET_CROSS_LE only affects big endian): the native order of such
        // hosts is little-endian.
        Err(e) if cfg!(target_endian = "little") && e.raw_os_error() == Some(libc::EINVAL) => {
            Ok(())
        }
        other => other,
    }
}

/// Sets the offloads that the reader of this device supports.
pub fn set_offload(fd: BorrowedFd<'_>, bits: u32) -> io::Result<()> {
    ioctl_value(fd, TUNSETOFFLOAD, c_ulong::from(bits))
}

/// Selects whether the device persists after its last descriptor is closed.
pub fn set_persist(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    ioctl_value(fd, TUNSETPERSIST, c_ulong::from(on))
}

/// Limits the bytes of frames, written to this queue, that the kernel buffers; the default is no
/// limit.
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    ioctl_int(fd, TUNSETSNDBUF, &mut { bytes })
}

/// Switches the carrier of the device.
pub fn set_carrier(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    ioctl_int(fd, TUNSETCARRIER, &mut c_int::from(on))
}

/// Enables or disables a queue of a multi-queue device. A disabled queue keeps its descriptor, is
/// not counted by `ethtool -l`, and receives no frames.
pub fn set_queue(fd: BorrowedFd<'_>, attached: bool) -> io::Result<()> {
    let mut request = IfReq::new("", if attached { ATTACH_QUEUE } else { DETACH_QUEUE })?;
    ioctl_ifreq(fd, TUNSETQUEUE, &mut request)
}

/// Sets a program of type "socket filter" that selects the queue of each frame sent by the kernel.
/// The queue is the result modulo the number of attached queues. `None` restores the kernel's
/// selection.
pub fn set_steering(fd: BorrowedFd<'_>, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut program = program.map_or(-1, |program| program.as_raw_fd());
    ioctl_int(fd, TUNSETSTEERINGEBPF, &mut program)
}

/// Makes the kernel drop and count all frames to this device (on all of its queues, including
/// queues attached later), or no frames.
///
/// Uses an address filter with one unused address. Rejected: a socket filter (`TUNATTACHFILTER`). A
/// queue opened later has no such filter, because `IFF_NO_PI` and `IFF_NOFILTER` are the same bit.
/// Frames of that queue would be purged without a count.
pub fn set_filter(fd: BorrowedFd<'_>, drop_all: bool) -> io::Result<()> {
    let filter = AddressFilter { flags: 0, count: u16::from(drop_all), address: [0; 6] };
    // SAFETY: the request reads the two numbers and `count` addresses of six bytes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(TUNSETTXFILTER), &raw const filter) })
}

/// `struct tun_filter` with space for one address.
#[repr(C)]
struct AddressFilter {
    flags: u16,
    count: u16,
    address: [u8; 6],
}

const _: () = assert!(size_of::<AddressFilter>() == 10);
