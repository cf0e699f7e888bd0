//! Network interfaces of the kernel through ioctls (netdevice(7), `linux/ethtool.h`), and
//! promiscuous membership that ends with its socket (packet(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_char, c_int, c_short, c_void, socklen_t};

use crate::descriptors::explained;
use crate::ioctl::ioctl_request;

mod features;

pub use features::NicFeature;

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCSIFHWADDR: u32 = 0x8924;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_SRSSH: u32 = 0x47;
/// `ETH_FLAG_RXVLAN` of `ETHTOOL_GFLAGS`.
const FLAG_RXVLAN: u32 = 1 << 8;
/// Value for an unchanged transformation of the hash input.
const RXH_XFRM_NO_CHANGE: u8 = 0xff;
/// Maximum size of an indirection table; drivers have at most a quarter of it.
const BUCKETS_MAX: usize = 8192;

/// `struct ifreq` with a number or an address in its second half.
#[repr(C)]
struct Request {
    name: [c_char; libc::IFNAMSIZ],
    value: Value,
}

#[repr(C)]
union Value {
    number: c_int,
    flags: c_short,
    data: *mut c_void,
    address: HardwareAddress,
    room: [u64; 3],
}

/// `struct sockaddr` of a link-layer address.
#[repr(C)]
#[derive(Clone, Copy)]
struct HardwareAddress {
    kind: u16,
    bytes: [u8; 14],
}

const _: () = assert!(size_of::<HardwareAddress>() == 16);
const _: () = assert!(size_of::<Value>() == 24);
const _: () = assert!(size_of::<Request>() == 40);

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ChannelsRequest {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

const _: () = assert!(size_of::<ChannelsRequest>() == 36);

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverRequest {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<DriverRequest>() == 196);

/// `struct ethtool_rxnfc`: the start, which is all that this request uses, and the remaining bytes.
#[repr(C)]
struct FieldsRequest {
    command: u32,
    flow_type: u32,
    data: u64,
    rest: [u64; 30],
}

/// `struct ethtool_rxfh` with space for an indirection table and a key.
#[repr(C)]
struct SpreadRequest {
    command: u32,
    context: u32,
    buckets: u32,
    key_len: u32,
    hash: u8,
    transform: u8,
    rest: [u8; 6],
    table: [u32; BUCKETS_MAX],
}

const _: () = assert!(size_of::<SpreadRequest>() == 24 + 4 * BUCKETS_MAX);
const _: () = assert!(size_of::<FieldsRequest>() == 256);

/// RSS configuration of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RssConfig {
    /// Indirection table: the queue of each bucket.
    pub table: Vec<u32>,
    /// Hash function, by its ethtool(8) name.
    pub hash: &'static str,
    /// Hash key; empty if the driver does not report it.
    pub key: Vec<u8>,
    /// True if the hash input is transformed first (`RXH_XFRM_SYM_XOR` and similar).
    pub is_transformed: bool,
}

/// Flow types for which a driver may hash different fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "protocols")]
pub enum FlowType {
    Tcp4 = 0x01,
    Udp4 = 0x02,
    Tcp6 = 0x05,
    Udp6 = 0x06,
}

/// Hashed fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// No field: the driver selects the first queue.
    Nothing,
    /// Both IP addresses.
    Addresses,
    /// Both IP addresses and both ports.
    Ports,
    /// Any other combination.
    Others,
}

impl Fields {
    /// Decodes the bits of the request (`RXH_IP_SRC`, `RXH_IP_DST`, `RXH_L4_B_0_1`,
    /// `RXH_L4_B_2_3`).
    fn of(bits: u64) -> Self {
        match bits {
            0 => Self::Nothing,
            0x30 => Self::Addresses,
            0xf0 => Self::Ports,
            _ => Self::Others,
        }
    }
}

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Interface index.
    pub index: u32,
    /// True if the interface is administratively up.
    pub is_up: bool,
    /// True if the interface is up and has a carrier.
    pub is_running: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Type of the link-layer header (`ARPHRD_...` of `linux/if_arp.h`).
    pub link_type: u16,
}

/// Channels of an interface (`ethtool -l`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelCounts(ChannelsRequest);

impl ChannelCounts {
    /// Number of RX queues in use.
    pub fn rx(&self) -> u32 {
        self.0.rx.saturating_add(self.0.combined)
    }

    /// Number of TX queues in use.
    pub fn tx(&self) -> u32 {
        self.0.tx.saturating_add(self.0.combined)
    }

    /// Maximum number of queues in each direction.
    pub fn max(&self) -> u32 {
        self.0.max_combined.max(self.0.max_rx.min(self.0.max_tx))
    }

    /// Queues in use: rx, tx, other, combined.
    pub fn numbers(&self) -> [u32; 4] {
        [self.0.rx, self.0.tx, self.0.other, self.0.combined]
    }

    /// Returns the channels with these numbers.
    pub fn with_numbers(&self, [rx, tx, other, combined]: [u32; 4]) -> Self {
        Self(ChannelsRequest { rx, tx, other, combined, ..self.0 })
    }

    /// Returns the channels with `queues` queues in each direction.
    pub fn with(&self, queues: u32) -> Self {
        let mut with = self.0;
        if with.max_combined > 0 {
            (with.combined, with.rx, with.tx) = (queues, 0, 0);
        } else {
            (with.rx, with.tx) = (queues, queues);
        }
        Self(with)
    }
}

/// Queries and configures interfaces of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Nics {
    fd: OwnedFd,
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let raw = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    check(raw).map_err(explained)?;
    // SAFETY: the socket was just created; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

impl Nics {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self { fd: socket(libc::AF_INET, libc::SOCK_DGRAM)? })
    }

    fn query(&self, name: &str, request: u32, value: Value) -> io::Result<Value> {
        self.request(name, request, value).map(|ifreq| ifreq.value)
    }

    fn request(&self, name: &str, request: u32, value: Value) -> io::Result<Request> {
        let mut ifreq = Request { name: [0; libc::IFNAMSIZ], value };
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in ifreq.name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        // SAFETY: these requests read and write one ifreq (40 bytes, asserted above). An address in
        // it belongs to a structure of the caller with the length that the request requires.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), ioctl_request(request), &raw mut ifreq) })?;
        Ok(ifreq)
    }

    /// Index of an interface.
    pub fn index_of(&self, name: &str) -> io::Result<u32> {
        let value = self.query(name, SIOCGIFINDEX, Value { room: [0; 3] })?;
        // SAFETY: the answer begins with a number, and any bytes are valid.
        Ok(unsafe { value.number } as u32)
    }

    /// Name of the interface with this index.
    pub fn name_of(&self, index: u32) -> io::Result<String> {
        let mut value = Value { room: [0; 3] };
        value.number = index as c_int;
        let name = self.request("", SIOCGIFNAME, value)?.name;
        let bytes: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the state of an interface.
    pub fn interface_state(&self, name: &str) -> io::Result<InterfaceState> {
        let zero = || Value { room: [0; 3] };
        let index = self.index_of(name)?;
        let flags = self.query(name, SIOCGIFFLAGS, zero())?;
        let mtu = self.query(name, SIOCGIFMTU, zero())?;
        let link_type = self.hardware_address(name)?.kind;
        // SAFETY: each answer begins with a number, and any bytes are valid.
        let (flags, mtu) = unsafe { (flags.flags, mtu.number) };
        let has = |bit: c_int| c_int::from(flags) & bit != 0;
        Ok(InterfaceState {
            index,
            is_up: has(libc::IFF_UP),
            is_running: has(libc::IFF_UP) && has(libc::IFF_RUNNING) && self.has_carrier(name),
            mtu: mtu as u32,
            link_type,
        })
    }

    fn hardware_address(&self, name: &str) -> io::Result<HardwareAddress> {
        let answer = self.query(name, SIOCGIFHWADDR, Value { room: [0; 3] })?;
        // SAFETY: the answer is an address, and any bytes are valid.
        Ok(unsafe { answer.address })
    }

    /// Ethernet address of an interface.
    pub fn mac(&self, name: &str) -> io::Result<[u8; 6]> {
        let [a, b, c, d, e, f, ..] = self.hardware_address(name)?.bytes;
        Ok([a, b, c, d, e, f])
    }

    /// Sets the Ethernet address. Needs CAP_NET_ADMIN.
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let mut address = HardwareAddress { kind: libc::ARPHRD_ETHER, bytes: [0; 14] };
        address.bytes[..6].copy_from_slice(&mac);
        let mut value = Value { room: [0; 3] };
        value.address = address;
        self.query(name, SIOCSIFHWADDR, value).map(drop)
    }

    /// Sets the MTU. Needs CAP_NET_ADMIN.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        let mut value = Value { room: [0; 3] };
        value.number = mtu as c_int;
        self.query(name, SIOCSIFMTU, value).map(drop)
    }

    /// True if the driver reports a carrier, or does not report its state. The kernel's flag may
    /// lag by up to a second.
    pub fn has_carrier(&self, name: &str) -> bool {
        let mut request = [ETHTOOL_GLINK, 1];
        self.ethtool(name, &mut request).map_or(true, |()| request[1] != 0)
    }

    fn ethtool<T>(&self, name: &str, request: &mut T) -> io::Result<()> {
        let data = std::ptr::from_mut(request).cast();
        self.query(name, SIOCETHTOOL, Value { data }).map(drop)
    }

    /// Returns the channels. Fails if the driver does not report them.
    pub fn channels(&self, name: &str) -> io::Result<ChannelCounts> {
        let mut request = ChannelsRequest { command: ETHTOOL_GCHANNELS, ..Default::default() };
        self.ethtool(name, &mut request)?;
        Ok(ChannelCounts(request))
    }

    /// Changes the channels. Needs CAP_NET_ADMIN.
    pub fn set_channels(&self, name: &str, channels: &ChannelCounts) -> io::Result<()> {
        self.ethtool(name, &mut ChannelsRequest { command: ETHTOOL_SCHANNELS, ..channels.0 })
    }

    fn spread_request(
        &self,
        name: &str,
        command: u32,
        table: &[u32],
        [buckets, key_len]: [u32; 2],
        transform: u8,
    ) -> io::Result<Box<SpreadRequest>> {
        let mut request = Box::new(SpreadRequest {
            command,
            context: 0,
            buckets,
            key_len,
            hash: 0,
            transform,
            rest: [0; 6],
            table: [0; BUCKETS_MAX],
        });
        request.table[..table.len()].copy_from_slice(table);
        self.ethtool(name, &mut *request)?;
        Ok(request)
    }

    /// Returns the RSS configuration. Fails if the driver does not report it. `table` and `key` are
    /// empty without an indirection table, or if both together exceed the buffer.
    pub fn spread(&self, name: &str) -> io::Result<RssConfig> {
        let sizes = self.spread_request(name, ETHTOOL_GRSSH, &[], [0; 2], 0)?;
        let hash = match sizes.hash {
            0x01 => "toeplitz",
            0x02 => "xor",
            0x04 => "crc32",
            // The value is 0 if the driver does not report its hash function.
            _ => "unknown",
        };
        let (buckets, key_len) = (sizes.buckets, sizes.key_len);
        // The kernel writes as many entries as the request has space for.
        let words = buckets as usize + (key_len as usize).div_ceil(4);
        if buckets == 0 || words > BUCKETS_MAX {
            let (table, key) = (Vec::new(), Vec::new());
            return Ok(RssConfig { table, hash, key, is_transformed: false });
        }
        let request = self.spread_request(name, ETHTOOL_GRSSH, &[], [buckets, key_len], 0)?;
        let (table, key) = request.table[..words].split_at(buckets as usize);
        let mut key: Vec<u8> = key.iter().flat_map(|word| word.to_ne_bytes()).collect();
        key.truncate(key_len as usize);
        let is_transformed = ![0, RXH_XFRM_NO_CHANGE].contains(&request.transform);
        Ok(RssConfig { table: table.to_vec(), hash, key, is_transformed })
    }

    /// Returns the hashed fields of a flow type. Fails if the driver does not report them.
    pub fn hashed_fields(&self, name: &str, of: FlowType) -> io::Result<Fields> {
        let (command, flow_type) = (ETHTOOL_GRXFH, of as u32);
        let mut request = FieldsRequest { command, flow_type, data: 0, rest: [0; 30] };
        self.ethtool(name, &mut request)?;
        Ok(Fields::of(request.data))
    }

    /// Sets the indirection table, which must have the current length. An empty table selects the
    /// kernel's default, which follows the number of queues. Needs CAP_NET_ADMIN.
    pub fn set_spread(&self, name: &str, table: &[u32]) -> io::Result<()> {
        if table.len() > BUCKETS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let set = |transform| {
            let sizes = [table.len() as u32, 0];
            self.spread_request(name, ETHTOOL_SRSSH, table, sizes, transform).map(drop)
        };
        match set(RXH_XFRM_NO_CHANGE) {
            // Kernels before 6.8 support no transformations, and require 0.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => set(0),
            done => done,
        }
    }

    /// True if the device strips VLAN tags from received frames (`rxvlan on`).
    pub fn strips_tags(&self, name: &str) -> io::Result<bool> {
        let mut request = [ETHTOOL_GFLAGS, 0];
        self.ethtool(name, &mut request)?;
        Ok(request[1] & FLAG_RXVLAN != 0)
    }

    /// Name of the driver.
    pub fn driver(&self, name: &str) -> io::Result<String> {
        let mut request =
            DriverRequest { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        self.ethtool(name, &mut request)?;
        let text = request.driver.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// Promiscuous mode of an interface, while this value exists. Needs CAP_NET_RAW.
#[derive(Debug)]
pub struct Promiscuous {
    _fd: OwnedFd,
}

impl Promiscuous {
    /// Enables the mode for an interface of the calling thread's network namespace.
    pub fn new(ifindex: u32) -> io::Result<Self> {
        // A socket without a protocol receives no frames.
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        let member = libc::packet_mreq {
            mr_ifindex: ifindex as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
        let len = size_of::<libc::packet_mreq>() as socklen_t;
        let place = (&raw const member).cast();
        // SAFETY: `member` has `len` readable bytes.
        check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, place, len) })?;
        Ok(Self { _fd: fd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an existing interface is found by name and index, and a missing one is reported as
    // such.
    #[test]
    fn interfaces_are_found_by_name_and_index() {
        let nics = Nics::open().unwrap();
        let lo = nics.interface_state("lo").unwrap();
        assert!(lo.index > 0 && lo.mtu >= 68, "{lo:?}");
        assert_eq!(nics.name_of(lo.index).unwrap(), "lo");
        assert_eq!(nics.name_of(1 << 30).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        let missing = nics.interface_state("mqnet-no-such").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        assert!(nics.interface_state("a-name-that-is-too-long-for-any").is_err());
        assert_eq!(nics.spread("lo").unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        assert!(nics.set_spread("lo", &[0; BUCKETS_MAX + 1]).is_err());
        let fields = nics.hashed_fields("lo", FlowType::Tcp4).unwrap_err();
        assert_eq!(fields.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    // Goal: the number of queues is set in the fields that the driver uses.
    #[test]
    fn queues_are_set_in_the_drivers_fields() {
        let pairs = ChannelsRequest { max_combined: 8, combined: 2, ..Default::default() };
        let pairs = ChannelCounts(pairs);
        assert_eq!((pairs.rx(), pairs.tx(), pairs.max()), (2, 2, 8));
        assert_eq!((pairs.with(5).rx(), pairs.with(5).0.combined), (5, 5));
        let apart = ChannelsRequest { max_rx: 4, max_tx: 6, rx: 1, tx: 2, ..Default::default() };
        let apart = ChannelCounts(apart);
        assert_eq!((apart.rx(), apart.tx(), apart.max()), (1, 2, 4));
        assert_eq!((apart.with(3).rx(), apart.with(3).0.combined), (3, 0));
    }
}
