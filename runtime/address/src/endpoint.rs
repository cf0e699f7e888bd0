//! Endpoint addresses: `kind:target,key=value,...`.

mod egress;
mod options;

use std::fmt;
use std::path::{Path, PathBuf};

use mqnet_engine::EgressConfig;
use mqnet_netdev::Address;
use mqnet_netdev::limits::{MTU_MAX, MTU_MIN};

use options::{Options, parse_mac, parse_size};

/// An address that is not one: which, which field, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    address: String,
    what: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint '{}': {}", self.address, self.what)
    }
}

impl std::error::Error for BadAddress {}

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
    },
    /// Swallows everything.
    Null,
}

/// `tap:NAME[,netns=N][,mac=M][,mtu=N][,address=A/P]...[,persist][,fd=N[:N...]]`
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
    /// Descriptors of its queues that the parent process left open.
    pub fds: Vec<i32>,
}

/// Default bytes of an NTB window.
const WINDOW_DEFAULT: u32 = 16 << 20;
const WINDOW_MIN: u32 = 4 << 10;
const WINDOW_MAX: u32 = 1 << 30;

const KINDS: &str = "tap:NAME, ntb:SOCKET, null:";

/// Parses one address.
pub fn parse(address: &str) -> Result<Endpoint, BadAddress> {
    parse_both(address).map(|(endpoint, _)| endpoint)
}

/// Parses one address: the endpoint, and what every kind of endpoint can say about frames that
/// leave through it, `qdisc=WORDS` and `full=stop|drop`.
pub fn parse_both(address: &str) -> Result<(Endpoint, EgressConfig), BadAddress> {
    let bad = |what: String| BadAddress { address: address.to_owned(), what };
    let Some((kind, rest)) = address.split_once(':') else {
        return Err(bad(format!("no kind; addresses are {KINDS}")));
    };
    let (target, options) = rest.split_once(',').unwrap_or((rest, ""));
    let (egress, options) = egress::split(options).map_err(bad)?;
    let options = Options::new(&options);
    let parsed = match kind {
        "tap" => parse_tap(target, options),
        "ntb" => parse_ntb(target, options),
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
            ("fd", Some(v)) => {
                for part in v.split(':') {
                    let fd = part.parse().ok().filter(|&fd| fd > 2);
                    let why = format!("fd={v}: must be descriptor numbers above 2, like 5:6");
                    tap.fds.push(fd.ok_or(why)?);
                }
            }
            _ => return Err(options.unknown("netns= mac= mtu= address= persist fd= qdisc= full=")),
        }
    }
    if !name.is_empty() || tap.fds.is_empty() {
        device_name(name)?;
    }
    Ok(Endpoint::Tap(tap))
}

/// What the kernel takes for the name of a device.
fn device_name(name: &str) -> Result<&str, String> {
    let odd = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > 15 || name.contains(odd) {
        return Err(format!("'{name}' is not a device name (1 to 15 characters, no '/' or space)"));
    }
    Ok(name)
}

impl Endpoint {
    /// Name of the netdev as far as the address tells it; the kernel may complete a TAP's.
    pub fn netdev_name(&self) -> String {
        match self {
            Self::Tap(tap) => tap.name.clone(),
            Self::Ntb { name: Some(name), .. } => name.clone(),
            Self::Ntb { path, .. } => {
                let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                stem.unwrap_or_else(|| "ntb".to_owned())
            }
            Self::Null => "null".to_owned(),
        }
    }
}

fn parse_ntb(path: &str, mut options: Options<'_>) -> Result<Endpoint, String> {
    let (mut window, mut mtu, mut name) = (WINDOW_DEFAULT, None, None);
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
            _ => return Err(options.unknown("window= mtu= name= qdisc= full=")),
        }
    }
    // sun_path has 108 bytes with its terminating zero.
    if path.is_empty() || path.len() > 107 {
        let n = path.len();
        return Err(format!("the socket path has {n} bytes, allowed are 1 to 107"));
    }
    Ok(Endpoint::Ntb { path: path.into(), window, mtu, name })
}

#[cfg(test)]
mod tests;
