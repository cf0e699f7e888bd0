//! Endpoint addresses: `kind:target,key=value,...`.

mod absolute;
mod access;
mod af_xdp;
mod auto;
mod egress;
mod group;
mod ivshmem;
mod options;
mod vduse;
mod vhost_user;
mod virtio_user;

use std::fmt;
use std::path::{Path, PathBuf};

use mqnet_engine::EgressConfig;
use mqnet_netdev::limits::{MTU_MAX, MTU_MIN};
use mqnet_netdev::{Address, Io};

pub use absolute::absolute;
pub use access::SocketAccess;
pub use af_xdp::{AfXdp, XdpMode};
pub use auto::{Found, find_group};
pub use group::Group;
pub use ivshmem::{Ivshmem, IvshmemAt};
pub use options::parse_size;
use options::{Options, parse_mac};
pub use vduse::Vduse;
pub use vhost_user::VhostUser;
pub use virtio_user::{RxBufLayout, VirtioUser};

/// An address that is not one: which, which field, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    address: String,
    what: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither is to move the cursor of a terminal.
        write!(f, "endpoint '{}': {}", visible(&self.address), visible(&self.what))
    }
}

impl std::error::Error for BadAddress {}

/// The text with its control characters as escapes.
fn visible(text: &str) -> String {
    let one = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(one).collect()
}

/// A parsed endpoint address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A TAP device of this kernel.
    Tap(Tap),
    /// One end of a bridge.
    Ntb {
        /// The socket at which the two ends meet.
        path: PathBuf,
        /// Bytes of this end's memory window.
        window: u32,
        /// MTU to insist on.
        mtu: Option<u32>,
        /// Name of the netdev; otherwise that of the socket's file.
        name: Option<String>,
        /// Permissions of the socket, for the end that makes it.
        access: SocketAccess,
    },
    /// One end of a bridge in the memory of an ivshmem device.
    Ivshmem(Ivshmem),
    /// The network card of a guest.
    VhostUser(VhostUser),
    /// A virtio device in another process, of which we are the driver.
    VirtioUser(VirtioUser),
    /// An interface of this kernel, taken over.
    AfXdp(AfXdp),
    /// Several of these as one.
    Group(Group),
    /// A network card of this kernel.
    Vduse(Vduse),
    /// Swallows everything.
    Null,
}

/// `tap:NAME[,netns=N][,mac=M][,mtu=N][,address=A/P]...[,persist][,io=HOW][,fd=N[:N...]]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tap {
    /// Name of the device; may be empty when there are `fds`.
    pub name: String,
    /// File of its network namespace.
    pub netns: Option<PathBuf>,
    /// Ethernet address to set.
    pub mac: Option<[u8; 6]>,
    /// MTU to set and to insist on.
    pub mtu: Option<u32>,
    /// IP addresses to add.
    pub addresses: Vec<Address>,
    /// Keep the device afterwards.
    pub persist: bool,
    /// How frames are written to it.
    pub io: Io,
    /// Descriptors of its queues that the parent process left open.
    pub fds: Vec<i32>,
}

/// Default bytes of an NTB window.
const WINDOW_DEFAULT: u32 = 16 << 20;
const WINDOW_MIN: u32 = 4 << 10;
const WINDOW_MAX: u32 = 1 << 30;

const KINDS: &str =
    "tap:NAME, vduse:NAME, ntb:SOCKET, vhost-user:SOCKET, virtio-user:SOCKET, xdp:IFNAME, null:";

/// Parses one address.
pub fn parse(address: &str) -> Result<Endpoint, BadAddress> {
    parse_both(address).map(|(endpoint, _)| endpoint)
}

/// Parses one address: the endpoint, and what every kind of endpoint can say about frames that
/// leave through it, `qdisc=WORDS`, `full=stop|drop`, `rx-locality=off|learn`.
pub fn parse_both(address: &str) -> Result<(Endpoint, EgressConfig), BadAddress> {
    let bad = |what: String| BadAddress { address: address.to_owned(), what };
    // Names of sockets become names of netdevs, which are shown.
    if address.contains(char::is_control) {
        return Err(bad("a control character: not allowed".to_owned()));
    }
    if let Some(found) = find_group(address, Path::new("/"))? {
        return parse_both(&found.address);
    }
    if let Some(members) = group::members_of(address) {
        let parsed = group::parse(&members).map_err(bad)?;
        return Ok((Endpoint::Group(parsed.0), parsed.1));
    }
    let Some((kind, rest)) = address.split_once(':') else {
        return Err(bad(format!("no kind; addresses are {KINDS}")));
    };
    let (target, options) = rest.split_once(',').unwrap_or((rest, ""));
    let (egress, options) = egress::split(options).map_err(bad)?;
    let options = Options::new(&options);
    let parsed = match kind {
        "tap" => parse_tap(target, options),
        "ntb" => match target.strip_prefix("ivshmem=") {
            Some(device) => ivshmem::parse(device, options).map(Endpoint::Ivshmem),
            None => parse_ntb(target, options),
        },
        "vhost-user" => vhost_user::parse(target, options).map(Endpoint::VhostUser),
        "vduse" => vduse::parse(target, options).map(Endpoint::Vduse),
        "virtio-user" => virtio_user::parse(target, options),
        "xdp" => af_xdp::parse(target, options),
        "null" => options.finish(egress::ALLOWED).map(|()| Endpoint::Null),
        _ => Err(format!("unknown kind '{kind}'; addresses are {KINDS}")),
    };
    parsed.map(|endpoint| (endpoint, egress)).map_err(bad)
}

fn parse_mtu(value: &str) -> Result<u32, String> {
    let range = MTU_MIN..=MTU_MAX;
    value
        .parse()
        .ok()
        .filter(|mtu| range.contains(mtu))
        .ok_or(format!("mtu={value}: must be a number from {MTU_MIN} to {MTU_MAX}"))
}

fn parse_tap(name: &str, mut options: Options<'_>) -> Result<Endpoint, String> {
    let mut tap = Tap { name: name.to_owned(), ..Tap::default() };
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("netns", Some(v)) if v.contains('/') => tap.netns = Some(v.into()),
            ("netns", Some(v)) => tap.netns = Some(Path::new("/run/netns").join(v)),
            ("mac", Some(v)) => tap.mac = Some(parse_mac(v)?),
            ("mtu", Some(v)) => tap.mtu = Some(parse_mtu(v)?),
            ("address", Some(v)) => {
                tap.addresses.push(v.parse().map_err(|e| format!("address={v}: {e}"))?);
            }
            ("persist", None) => tap.persist = true,
            ("io", Some(v)) => tap.io = v.parse().map_err(|e| format!("io={v}: {e}"))?,
            ("fd", Some(v)) => {
                for part in v.split(':') {
                    let fd = part.parse().ok().filter(|&fd| fd > 2);
                    let why = format!("fd={v}: must be descriptor numbers above 2, like 5:6");
                    tap.fds.push(fd.ok_or(why)?);
                }
            }
            _ => {
                let known = "netns= mac= mtu= address= persist io= fd= qdisc= full= rx-locality=";
                return Err(options.unknown(known));
            }
        }
    }
    if !name.is_empty() || tap.fds.is_empty() {
        device_name(name)?;
    }
    Ok(Endpoint::Tap(tap))
}

/// What the kernel takes for the name of a device (`dev_valid_name`), without control characters.
fn device_name(name: &str) -> Result<&str, String> {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    // To the kernel the byte 0xa0 is a blank, in whatever character.
    let is_odd = name.contains(odd) || name.bytes().any(|byte| byte == 0xa0);
    if !(1..=15).contains(&name.len()) || is_odd || [".", ".."].contains(&name) {
        return Err(format!(
            "'{}' is not a valid interface name: 1 to 15 bytes, not '.' or '..', no '/', ':' or \
             white space",
            name.escape_debug()
        ));
    }
    Ok(name)
}

/// A netdev is called as its socket, without the ending.
fn stem_of(path: &Path) -> Option<String> {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
}

/// What can be the path of a socket: `sun_path` has 108 bytes with its terminating zero.
fn socket_path(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || path.len() > 107 {
        let n = path.len();
        return Err(format!("the socket path has {n} bytes, allowed are 1 to 107"));
    }
    Ok(path.into())
}

impl Endpoint {
    /// Descriptors that a parent process left open for it, by number.
    pub fn inherited(&self) -> &[i32] {
        match self {
            Self::Tap(tap) => &tap.fds,
            Self::VhostUser(card) => card.fd.as_slice(),
            Self::Ntb { .. }
            | Self::Ivshmem(_)
            | Self::VirtioUser(_)
            | Self::Vduse(_)
            | Self::AfXdp(_)
            | Self::Group(_)
            | Self::Null => &[],
        }
    }

    /// What to do about a name that is another's, for the end of a message; empty where the name is
    /// the device's own.
    pub fn rename_knob(&self) -> &'static str {
        match self {
            Self::Null | Self::Tap(_) | Self::Vduse(_) | Self::Group(_) => "",
            Self::Ntb { .. }
            | Self::Ivshmem(_)
            | Self::VhostUser(_)
            | Self::VirtioUser(_)
            | Self::AfXdp(_) => ": give this one another, name=",
        }
    }

    /// True where the address names the netdev otherwise than its interface.
    pub fn has_own_name(&self) -> bool {
        matches!(self, Self::AfXdp(nic) if nic.name.is_some())
    }

    /// Name of the netdev as far as the address tells it; the kernel may complete a TAP's.
    pub fn netdev_name(&self) -> String {
        match self {
            Self::Tap(tap) => tap.name.clone(),
            Self::Ntb { name: Some(name), .. } => name.clone(),
            Self::Ntb { path, .. } => stem_of(path).unwrap_or_else(|| "ntb".to_owned()),
            Self::Ivshmem(device) => device.netdev_name(),
            Self::VhostUser(card) => card.netdev_name(),
            Self::Vduse(card) => card.name.clone(),
            Self::VirtioUser(virtio) => virtio.name.clone().unwrap_or_else(|| {
                stem_of(&virtio.path).unwrap_or_else(|| "virtio-user".to_owned())
            }),
            Self::AfXdp(nic) => nic.name.clone().unwrap_or_else(|| nic.interface.clone()),
            // Not the primary's, which is known only when all are open.
            Self::Group(group) => group.members.first().map(Self::netdev_name).unwrap_or_default(),
            Self::Null => "null".to_owned(),
        }
    }
}

fn parse_ntb(path: &str, mut options: Options<'_>) -> Result<Endpoint, String> {
    let (mut window, mut mtu, mut name) = (WINDOW_DEFAULT, None, None);
    let mut access = SocketAccess::default();
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("window", Some(v)) => {
                let range = u64::from(WINDOW_MIN)..=u64::from(WINDOW_MAX);
                window = parse_size(v)
                    .filter(|size| range.contains(size))
                    .ok_or(format!("window={v}: must be a size from 4K to 1G, like 16M"))?
                    as u32;
            }
            ("mtu", Some(v)) => mtu = Some(parse_mtu(v)?),
            ("name", Some(v)) => name = Some(device_name(v)?.to_owned()),
            _ => match access.take(key, value) {
                Some(taken) => taken?,
                None => {
                    return Err(access::unknown(&options, "window= mtu= name=", egress::ALLOWED));
                }
            },
        }
    }
    Ok(Endpoint::Ntb { path: socket_path(path)?, window, mtu, name, access })
}

#[cfg(test)]
mod tests;
