//! vDPA devices in user space with API version 0 (`linux/vduse.h`,
//! Documentation/userspace-api/vduse.rst). Every kernel with VDUSE supports this version for
//! clients that request no newer version.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::c_int;
use nix::errno::Errno;

use crate::descriptors::explained;
use crate::ioctl::ioctl_request;

/// Path of the control device.
pub const CONTROL: &str = "/dev/vduse/control";

/// Maximum size of a configuration space, in bytes.
pub const CONFIG_MAX: usize = 64;

const CREATE_DEV: u32 = 0x4150_8102;
const DESTROY_DEV: u32 = 0x4100_8103;
const IOTLB_GET_FD: u32 = 0xc020_8110;
const DEV_GET_FEATURES: u32 = 0x8008_8111;
const DEV_SET_CONFIG: u32 = 0x4008_8112;
const DEV_INJECT_CONFIG_IRQ: u32 = 0x8113;
const VQ_SETUP: u32 = 0x4020_8114;
const VQ_GET_INFO: u32 = 0xc030_8115;
const VQ_SETUP_KICKFD: u32 = 0x4008_8116;
const VQ_INJECT_IRQ: u32 = 0x4004_8117;

const NAME_MAX: usize = 256;
const READ_WRITE: u8 = 3;

/// Parameters of a new device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceParameters<'a> {
    /// Name below `/dev/vduse`.
    pub name: &'a str,
    /// virtio device ID.
    pub device_id: u32,
    /// Offered features.
    pub features: u64,
    /// Number of virtqueues.
    pub queues: u32,
    /// Configuration space.
    pub config: &'a [u8],
}

#[repr(C)]
struct DevConfig {
    name: [u8; NAME_MAX],
    vendor_id: u32,
    device_id: u32,
    features: u64,
    queues: u32,
    align: u32,
    reserved: [u32; 13],
    config_len: u32,
    config: [u8; CONFIG_MAX],
}

// The request number contains the size without the configuration space.
const _: () = assert!(size_of::<DevConfig>() == 336 + CONFIG_MAX);

#[repr(C)]
#[derive(Default)]
struct IotlbEntry {
    offset: u64,
    start: u64,
    last: u64,
    perm: u8,
}

const _: () = assert!(size_of::<IotlbEntry>() == 32);

#[repr(C)]
struct ConfigData {
    offset: u32,
    len: u32,
    bytes: [u8; CONFIG_MAX],
}

const _: () = assert!(size_of::<ConfigData>() == 8 + CONFIG_MAX);

#[repr(C)]
struct QueueConfig {
    index: u32,
    max_size: u16,
    reserved: [u16; 13],
}

const _: () = assert!(size_of::<QueueConfig>() == 32);

#[repr(C)]
#[derive(Default)]
struct QueueInfo {
    index: u32,
    size: u32,
    areas: [u64; 3],
    state: [u16; 4],
    ready: u8,
}

const _: () = assert!(size_of::<QueueInfo>() == 48);

#[repr(C)]
struct QueueEvent {
    index: u32,
    fd: c_int,
}

const _: () = assert!(size_of::<QueueEvent>() == 8);

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Executes a request with a structure. The kernel reads, or reads and writes, the number of bytes
/// encoded in the request number. Two requests also use the bytes after that number, counted by a
/// field of the structure.
fn call<T>(fd: BorrowedFd<'_>, request: u32, value: &mut T) -> io::Result<c_int> {
    // SAFETY: every caller passes the structure of its request, with a size asserted above, or a
    // plain number of that size.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(request), std::ptr::from_mut(value)) })
}

fn name_bytes(name: &str) -> io::Result<[u8; NAME_MAX]> {
    let mut bytes = [0; NAME_MAX];
    // Keep the last byte at 0, which terminates the string.
    match bytes[..NAME_MAX - 1].get_mut(..name.len()) {
        Some(room) => room.copy_from_slice(name.as_bytes()),
        None => return Err(Errno::ENAMETOOLONG.into()),
    }
    Ok(bytes)
}

fn config_bytes(config: &[u8]) -> io::Result<[u8; CONFIG_MAX]> {
    let mut bytes = [0; CONFIG_MAX];
    bytes.get_mut(..config.len()).ok_or(Errno::E2BIG)?.copy_from_slice(config);
    Ok(bytes)
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    Ok(options.open(path).map_err(explained)?.into())
}

/// Opens the control device.
pub fn open_control() -> io::Result<OwnedFd> {
    open(CONTROL)
}

/// Opens an existing device. Fails with `EBUSY` while another process has it open.
pub fn open_device(name: &str) -> io::Result<OwnedFd> {
    open(&format!("/dev/vduse/{name}"))
}

/// Creates a device, which exists until [`destroy`].
pub fn create(control: BorrowedFd<'_>, device: &DeviceParameters<'_>) -> io::Result<()> {
    let mut config = DevConfig {
        name: name_bytes(device.name)?,
        vendor_id: 0,
        device_id: device.device_id,
        features: device.features,
        queues: device.queues,
        align: 4096,
        reserved: [0; 13],
        config_len: device.config.len() as u32,
        config: config_bytes(device.config)?,
    };
    call(control, CREATE_DEV, &mut config).map(drop)
}

/// Removes a device that is neither open nor bound to a bus.
pub fn destroy(control: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    call(control, DESTROY_DEV, &mut name_bytes(name)?).map(drop)
}

/// Sets the maximum number of descriptors of a queue.
pub fn setup_queue(device: BorrowedFd<'_>, index: u32, max_size: u16) -> io::Result<()> {
    let mut config = QueueConfig { index, max_size, reserved: [0; 13] };
    call(device, VQ_SETUP, &mut config).map(drop)
}

/// Features accepted by the driver.
pub fn driver_features(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut features = 0u64;
    call(device, DEV_GET_FEATURES, &mut features)?;
    Ok(features)
}

/// Queue configuration set by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSetup {
    /// Number of descriptors.
    pub size: u32,
    /// Addresses of descriptor area, driver area, device area.
    pub areas: [u64; 3],
    /// Split ring: the next available index. Packed ring: wrap counter and index of the next
    /// available descriptor, then of the next used descriptor.
    pub state: [u16; 4],
    /// True if the driver has enabled the queue.
    pub ready: bool,
}

/// Returns the configuration of a queue.
pub fn queue(device: BorrowedFd<'_>, index: u32) -> io::Result<QueueSetup> {
    let mut info = QueueInfo { index, ..QueueInfo::default() };
    call(device, VQ_GET_INFO, &mut info)?;
    let QueueInfo { size, areas, state, ready, .. } = info;
    Ok(QueueSetup { size, areas, state, ready: ready != 0 })
}

/// Sets the eventfd for the driver's kicks, or removes it for `None`.
pub fn set_kick(
    device: BorrowedFd<'_>,
    index: u32,
    kick: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut event = QueueEvent { index, fd: kick.map_or(-1, |kick| kick.as_raw_fd()) };
    call(device, VQ_SETUP_KICKFD, &mut event).map(drop)
}

/// Interrupts the driver for a queue. Returns false if the driver is not running.
pub fn interrupt(device: BorrowedFd<'_>, mut index: u32) -> io::Result<bool> {
    running(call(device, VQ_INJECT_IRQ, &mut index))
}

/// Notifies the driver of a configuration change. Returns false if the driver is not running.
pub fn config_interrupt(device: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: this request has no argument.
    running(check(unsafe {
        libc::ioctl(device.as_raw_fd(), ioctl_request(DEV_INJECT_CONFIG_IRQ), 0)
    }))
}

fn running(done: io::Result<c_int>) -> io::Result<bool> {
    match done {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Changes the configuration space at `offset`.
pub fn set_config(device: BorrowedFd<'_>, offset: u32, bytes: &[u8]) -> io::Result<()> {
    let mut data = ConfigData { offset, len: bytes.len() as u32, bytes: config_bytes(bytes)? };
    call(device, DEV_SET_CONFIG, &mut data).map(drop)
}

/// Range of the driver's addresses.
#[derive(Debug)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Last address.
    pub last: u64,
    /// Offset of the range in the file.
    pub offset: u64,
    /// True if the range is readable and writable.
    pub is_open: bool,
    /// File to map.
    pub file: OwnedFd,
}

/// Returns the first range that ends at `from` or later, or `None` if there is none.
pub fn range_from(device: BorrowedFd<'_>, from: u64) -> io::Result<Option<Range>> {
    let mut entry = IotlbEntry { start: from, last: u64::MAX, ..IotlbEntry::default() };
    let fd = match call(device, IOTLB_GET_FD, &mut entry) {
        Ok(fd) => fd,
        // Accept EPERM, the documented error, and EINVAL.
        Err(e) if [Some(libc::EPERM), Some(libc::EINVAL)].contains(&e.raw_os_error()) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    // SAFETY: the kernel just created this descriptor; it has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let IotlbEntry { offset, start, last, perm } = entry;
    Ok(Some(Range { start, last, offset, is_open: perm == READ_WRITE, file }))
}

/// Type of a request by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestType {
    /// Query of a queue's state.
    QueueState(u32),
    /// Change of the device status by the driver, to this value.
    Status(u8),
    /// Change of the mapping of these addresses (first, last).
    Remap(u64, u64),
    /// Unknown type.
    Other(u32),
}

/// Length of requests and answers in bytes.
const MESSAGE: usize = 152;
/// Offset of the part that depends on the type.
const BODY: usize = 24;

/// Request by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VduseRequest {
    id: u32,
    /// Type and arguments.
    pub ask: RequestType,
}

impl VduseRequest {
    fn parse(bytes: &[u8; MESSAGE]) -> Self {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let double = |at: usize| {
            let mut all = [0; 8];
            all.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(all)
        };
        let ask = match word(0) {
            0 => RequestType::QueueState(word(BODY)),
            1 => RequestType::Status(bytes[BODY]),
            2 => RequestType::Remap(double(BODY), double(BODY + 8)),
            other => RequestType::Other(other),
        };
        Self { id: word(4), ask }
    }
}

/// Reads the next request. Returns `None` if there is none.
pub fn read_request(device: BorrowedFd<'_>) -> io::Result<Option<VduseRequest>> {
    let mut bytes = [0; MESSAGE];
    match nix::unistd::read(device, &mut bytes) {
        Ok(MESSAGE) => Ok(Some(VduseRequest::parse(&bytes))),
        Ok(n) => Err(io::Error::other(format!("a request of {n} bytes"))),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Answers a request. `None` reports a failure. Only the answer to a queue query contains the
/// state.
pub fn answer(
    device: BorrowedFd<'_>,
    request: &VduseRequest,
    state: Option<[u16; 4]>,
) -> io::Result<()> {
    let bytes = answer_bytes(request, state);
    nix::unistd::write(device.as_fd(), &bytes)?;
    Ok(())
}

fn answer_bytes(request: &VduseRequest, state: Option<[u16; 4]>) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..4].copy_from_slice(&request.id.to_ne_bytes());
    bytes[4..8].copy_from_slice(&u32::from(state.is_none()).to_ne_bytes());
    if let (RequestType::QueueState(index), Some(state)) = (request.ask, state) {
        bytes[BODY..BODY + 4].copy_from_slice(&index.to_ne_bytes());
        for (at, number) in state.into_iter().enumerate() {
            let place = BODY + 4 + 2 * at;
            bytes[place..place + 2].copy_from_slice(&number.to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: each type of request is parsed, and an unknown one is reported.
    #[test]
    fn requests_are_parsed() {
        let with = |kind: u32, body: &[u8]| {
            let mut bytes = [0; MESSAGE];
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            bytes[4..8].copy_from_slice(&7u32.to_ne_bytes());
            bytes[BODY..BODY + body.len()].copy_from_slice(body);
            let request = VduseRequest::parse(&bytes);
            assert_eq!(request.id, 7);
            request.ask
        };
        assert_eq!(with(0, &1u32.to_ne_bytes()), RequestType::QueueState(1));
        assert_eq!(with(1, &[15]), RequestType::Status(15));
        let range = [0x1000u64.to_ne_bytes(), 0x1fffu64.to_ne_bytes()].concat();
        assert_eq!(with(2, &range), RequestType::Remap(0x1000, 0x1fff));
        assert_eq!(with(9, &[]), RequestType::Other(9));
    }

    // Goal: an answer has its request's id and result, and contains a queue state if and only if
    // one was requested.
    #[test]
    fn answers_are_encoded() {
        let asked = VduseRequest { id: 3, ask: RequestType::QueueState(1) };
        let bytes = answer_bytes(&asked, Some([1, 2, 3, 4]));
        assert_eq!(bytes[..8], [[3, 0, 0, 0], [0; 4]].concat());
        assert_eq!(bytes[BODY..BODY + 12], [1, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0]);
        assert_eq!(answer_bytes(&asked, None)[4..8], [1, 0, 0, 0]);
        let status = VduseRequest { id: 3, ask: RequestType::Status(0) };
        assert!(answer_bytes(&status, Some([1; 4]))[8..].iter().all(|&byte| byte == 0));
    }

    // Goal: a name or configuration that is too long is rejected instead of truncated.
    #[test]
    fn long_names_and_configurations_are_rejected() {
        assert!(name_bytes(&"x".repeat(NAME_MAX - 1)).is_ok());
        assert!(name_bytes(&"x".repeat(NAME_MAX)).is_err());
        assert!(config_bytes(&[1; CONFIG_MAX + 1]).is_err());
    }
}
