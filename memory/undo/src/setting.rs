//! Settings and their values.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_sysio::nic::Nics;
use mqnet_sysio::{clock, poll};
use serde::{Deserialize, Serialize};

use crate::rtnl;
use crate::tun::TunState;

/// Retry interval. Sockets of a killed process may hold queues for a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// Setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Content of a file in `/proc/irq` or `/sys/class/net`.
    File(PathBuf),
    /// Numbers of queues of an interface (`ethtool -L`): rx, tx, other, combined.
    Queues(String),
    /// RSS indirection table of an interface (`ethtool -X`): the queue of each bucket.
    Table(String),
    /// MTU of an interface.
    Mtu(String),
    /// Ethernet address of an interface.
    Mac(String),
    /// Maximum size of GSO frames of an interface (`ip link set gso_max_size`).
    GsoMaxSize(String),
    /// State of a TUN or TAP device in the TUN driver, set by its programs. Restored for any
    /// current value, unless another program uses the device.
    Tun(String),
}

/// Value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Value of a file or an address.
    Text(String),
    /// Value of queues and tables.
    Numbers(Vec<u32>),
    /// Value of a size.
    Number(u32),
    /// Value of a TUN or TAP device.
    Tun(TunState),
}

impl Value {
    /// Creates the value of an Ethernet address.
    pub fn mac(mac: [u8; 6]) -> Self {
        let parts = mac.map(|byte| format!("{byte:02x}"));
        Self::Text(parts.join(":"))
    }
}

fn parse_mac(text: &str) -> io::Result<[u8; 6]> {
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Result<Vec<u8>, _> = bytes.collect();
    bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or(ErrorKind::InvalidData.into())
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Queues(interface) => write!(f, "{interface}: its queues (ethtool -L)"),
            Self::Table(interface) => write!(f, "{interface}: its RSS table (ethtool -X)"),
            Self::Mtu(interface) => write!(f, "{interface}: its MTU"),
            Self::Mac(interface) => write!(f, "{interface}: its Ethernet address"),
            Self::GsoMaxSize(interface) => write!(f, "{interface}: its gso_max_size"),
            Self::Tun(interface) => write!(f, "{interface}: its TUN driver state"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Numbers(numbers) if numbers.len() == 4 => {
                let names = ["rx", "tx", "other", "combined"].iter().zip(numbers);
                let some = names.filter(|(_, number)| **number > 0);
                let words: Vec<_> = some.map(|(name, n)| format!("{name} {n}")).collect();
                f.write_str(&words.join(" "))
            }
            Self::Numbers(numbers) => write!(f, "{} buckets", numbers.len()),
            Self::Number(number) => write!(f, "{number}"),
            Self::Tun(state) => write!(f, "{state}"),
        }
    }
}

fn is_gone(e: &io::Error) -> bool {
    e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(nix::libc::ENODEV)
}

impl Setting {
    /// Reads the current value, in the calling thread's namespace.
    pub fn read(&self) -> io::Result<Value> {
        match self {
            Self::File(path) => {
                fs::read_to_string(path).map(|text| Value::Text(text.trim_end().to_owned()))
            }
            Self::Queues(interface) => {
                let channels = Nics::open()?.channels(interface)?;
                Ok(Value::Numbers(channels.numbers().to_vec()))
            }
            Self::Table(interface) => {
                Nics::open()?.spread(interface).map(|s| Value::Numbers(s.table))
            }
            Self::Mtu(interface) => {
                Ok(Value::Number(Nics::open()?.interface_state(interface)?.mtu))
            }
            Self::Mac(interface) => Nics::open()?.mac(interface).map(Value::mac),
            Self::GsoMaxSize(interface) => {
                rtnl::read_interface(interface).map(|found| Value::Number(found.gso_max_size))
            }
            Self::Tun(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn write(&self, value: &Value) -> io::Result<()> {
        match (self, value) {
            (Self::File(path), Value::Text(text)) => fs::write(path, text),
            (Self::Queues(interface), Value::Numbers(numbers)) => {
                let Ok(numbers) = numbers.as_slice().try_into() else {
                    return Err(ErrorKind::InvalidData.into());
                };
                let nics = Nics::open()?;
                nics.set_channels(interface, &nics.channels(interface)?.with_numbers(numbers))
            }
            (Self::Table(interface), Value::Numbers(table)) => {
                Nics::open()?.set_spread(interface, table)
            }
            (Self::Mtu(interface), Value::Number(mtu)) => Nics::open()?.set_mtu(interface, *mtu),
            (Self::Mac(interface), Value::Text(text)) => {
                Nics::open()?.set_mac(interface, parse_mac(text)?)
            }
            (Self::GsoMaxSize(interface), Value::Number(size)) => {
                let index = Nics::open()?.interface_state(interface)?.index;
                rtnl::set_gso_max_size(index, *size)
            }
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Restores the value `before` of the interface with index `device`, if the current value is
    /// still `ours` (or if `ours` is unknown). Busy queues are retried until the time `until`.
    pub(crate) fn put_back(
        &self,
        device: Option<u32>,
        before: &Value,
        ours: Option<&Value>,
        until: Duration,
    ) -> Outcome {
        let renamed = device.and_then(|device| self.renamed(device));
        if let Some(renamed) = renamed {
            return renamed.put_back(device, before, ours, until);
        }
        match self.device() {
            Ok(now) if device.is_none() || now == device => {}
            Ok(_) => return Outcome::Gone,
            Err(e) if is_gone(&e) => return Outcome::Gone,
            Err(e) => return Outcome::Failed(self.explain(&e, before)),
        }
        if let (Self::Tun(name), Value::Tun(state), Some(device)) = (self, before, device) {
            return self.put_back_tun((name, device), state, until);
        }
        match self.read() {
            Ok(now) if now == *before => {
                self.reset_default_table(before);
                Outcome::Restored
            }
            Ok(now) if ours.is_none_or(|ours| now == *ours) => {
                match self.write_with_retries(before, until) {
                    Ok(()) => {
                        self.reset_default_table(before);
                        Outcome::Restored
                    }
                    Err(e) => Outcome::Failed(self.explain(&e, before)),
                }
            }
            Ok(_) => Outcome::ChangedSince,
            Err(e) if is_gone(&e) => Outcome::Gone,
            Err(e) => Outcome::Failed(self.explain(&e, before)),
        }
    }

    /// Returns the setting under the interface's new name. Returns `None` if the name has not
    /// changed, or if the interface is gone.
    fn renamed(&self, device: u32) -> Option<Self> {
        let name = Nics::open().ok()?.name_of(device).ok()?;
        if self.interface()? == name {
            return None;
        }
        self.of(name)
    }

    /// Same setting of the interface `name`, or `None` if the setting is not one of an interface.
    fn of(&self, name: String) -> Option<Self> {
        Some(match self {
            Self::File(path) => {
                self.interface()?;
                // `interface` has checked the components: NAME/queues/QUEUE/FILE.
                let queue = path.parent()?;
                let folder = queue.parent()?.parent()?.with_file_name(name);
                Self::File(folder.join("queues").join(queue.file_name()?).join(path.file_name()?))
            }
            Self::Queues(_) => Self::Queues(name),
            Self::Table(_) => Self::Table(name),
            Self::Mtu(_) => Self::Mtu(name),
            Self::Mac(_) => Self::Mac(name),
            Self::GsoMaxSize(_) => Self::GsoMaxSize(name),
            Self::Tun(_) => Self::Tun(name),
        })
    }

    /// Restores a TUN device once it has no attached queues. Queues of a killed process may exist
    /// for a moment. If queues stay attached until `until`, another program uses the device and has
    /// set its driver state: the result is `ChangedSince`.
    fn put_back_tun(
        &self,
        (name, device): (&str, u32),
        state: &TunState,
        until: Duration,
    ) -> Outcome {
        let failed = |e: io::Error| match e {
            e if is_gone(&e) => Outcome::Gone,
            e => Outcome::Failed(self.explain(&e, &Value::Tun(state.clone()))),
        };
        loop {
            match rtnl::read_interface(name).map(|found| found.tun.map_or(0, |tun| tun.attached)) {
                Ok(0) => break,
                Ok(_) if clock::monotonic() < until => poll::pause(PAUSE),
                Ok(_) => return Outcome::ChangedSince,
                Err(e) => return failed(e),
            }
        }
        match state.put_back(name, device) {
            Ok(true) => Outcome::Restored,
            Ok(false) => Outcome::Gone,
            Err(e) => failed(e),
        }
    }

    /// Resets an RSS table that equals the kernel's default. The kernel records that a table was
    /// set, and then refuses to remove queues used by it. A reset clears that record.
    fn reset_default_table(&self, before: &Value) {
        let (Self::Table(interface), Value::Numbers(table)) = (self, before) else { return };
        let queues = table.iter().max().map_or(1, |most| most.saturating_add(1));
        if !(0u32..).zip(table).all(|(bucket, &queue)| queue == bucket % queues) {
            return;
        }
        let reset = Nics::open().and_then(|nics| nics.set_spread(interface, &[]));
        // The kernel's default may be for another number of queues than the table.
        if reset.is_ok() && !self.read().is_ok_and(|now| now == *before) {
            let _ = self.write(before);
        }
    }

    fn explain(&self, e: &io::Error, before: &Value) -> String {
        match e.kind() {
            ErrorKind::PermissionDenied => format!(
                "{self}: {e} (needs root; an interrupt that the kernel manages cannot be moved)"
            ),
            _ => format!("{self}: {e} (it was {before})"),
        }
    }

    fn write_with_retries(&self, value: &Value, until: Duration) -> io::Result<()> {
        loop {
            let done = self.write(value);
            let busy = [nix::libc::EBUSY, nix::libc::EINVAL].map(Some);
            match &done {
                Err(e) if matches!(self, Self::Queues(_)) && busy.contains(&e.raw_os_error()) => {}
                _ => return done,
            }
            if clock::monotonic() >= until {
                return done;
            }
            poll::pause(PAUSE);
        }
    }

    /// Interface of the setting.
    fn interface(&self) -> Option<&str> {
        match self {
            Self::File(path) => {
                let mut parts = path.iter().rev();
                (parts.nth(2)? == "queues").then_some(parts.next()?.to_str()?)
            }
            Self::Queues(interface)
            | Self::Table(interface)
            | Self::Mtu(interface)
            | Self::Mac(interface)
            | Self::GsoMaxSize(interface)
            | Self::Tun(interface) => Some(interface),
        }
    }

    /// Interface index of the setting, in the calling thread's namespace. A different index with
    /// the same name is another interface.
    pub(crate) fn device(&self) -> io::Result<Option<u32>> {
        let Some(interface) = self.interface() else { return Ok(None) };
        Nics::open()?.interface_state(interface).map(|look| Some(look.index))
    }

    /// True if mqnet changes such settings. Records of other settings in a journal are ignored.
    pub(crate) fn is_managed(&self, root: &Path) -> bool {
        let Self::File(path) = self else { return true };
        let Some(text) = path.strip_prefix(root).ok().and_then(Path::to_str) else { return false };
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        match text.split('/').collect::<Vec<_>>()[..] {
            ["proc", "irq", irq, "smp_affinity_list"] => is_number(irq),
            ["sys", "class", "net", name, "queues", queue, "xps_cpus"] => {
                !name.starts_with('.') && queue.strip_prefix("tx-").is_some_and(is_number)
            }
            _ => false,
        }
    }
}

/// Result of a restoration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Setting with its original value.
    Restored,
    /// Setting that no longer exists.
    Gone,
    /// Setting that another program has changed. The change is kept.
    ChangedSince,
    /// Failed restoration, with the reason.
    Failed(String),
}

impl Outcome {
    /// Message for the user, or `None` if there is no problem.
    pub(crate) fn problem(self, setting: &Setting) -> Option<String> {
        match self {
            Self::Restored | Self::Gone => None,
            Self::ChangedSince => Some(format!("{setting}: changed since, left as it is")),
            Self::Failed(why) => Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: settings of a renamed interface are restored under its new name, files too.
    #[test]
    fn settings_follow_a_renamed_interface() {
        let file = |name: &str| {
            Setting::File(format!("/sys/class/net/{name}/queues/tx-1/xps_cpus").into())
        };
        assert_eq!(file("eth0").of("lan0".to_owned()), Some(file("lan0")));
        let irq = Setting::File("/proc/irq/30/smp_affinity_list".into());
        assert_eq!(irq.of("lan0".to_owned()), None);
        let settings =
            [Setting::Queues, Setting::Table, Setting::Mtu, Setting::Mac, Setting::GsoMaxSize];
        for setting in settings.into_iter().chain([Setting::Tun as fn(String) -> Setting]) {
            let renamed = setting("eth0".to_owned()).of("lan0".to_owned());
            assert_eq!(renamed, Some(setting("lan0".to_owned())));
        }
    }

    // Goal: a file of an interface is restored although the interface was renamed since. The
    // loopback interface stands for the renamed one.
    #[test]
    fn a_file_of_a_renamed_interface_is_found() {
        let file = |name: &str| {
            Setting::File(format!("/sys/class/net/{name}/queues/tx-0/xps_cpus").into())
        };
        let index = Nics::open().unwrap().interface_state("lo").unwrap().index;
        assert_eq!(file("mqnet-old").renamed(index), Some(file("lo")));
        assert_eq!(file("lo").renamed(index), None);
    }
}
