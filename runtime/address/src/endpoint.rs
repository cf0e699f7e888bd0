//! Endpoint addresses: `kind:target,key=value,...`.

mod absolute;
mod access;
mod af_xdp;
mod auto;
mod complete;
mod declaration;
mod egress;
mod group;
mod ivshmem;
mod ntb;
mod ntb_vfio_user;
mod null;
mod option;
mod options;
mod reference;
mod tap;
mod value;
mod values;
mod vduse;
mod vhost_user;
mod virtio_user;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use mqnet_engine::EgressConfig;

pub use absolute::absolute;
pub use access::SocketAccess;
pub use af_xdp::{AfXdp, AfXdpMode};
pub use auto::{AutoGroup, find_group};
pub use complete::complete;
pub use declaration::KindDecl;
pub use group::Group;
pub use ivshmem::{Ivshmem, IvshmemAt};
pub use ntb::Ntb;
pub use ntb_vfio_user::NtbVfioUser;
pub use option::{Custom, OptionDecl, ValueType, parse_size};
pub use reference::{document, help};
pub use tap::TapEndpoint;
pub use vduse::Vduse;
pub use vhost_user::VhostUser;
pub use virtio_user::{RxBufLayout, VirtioUser};

/// All kinds except groups, in the order of the documents.
pub static KINDS: [&KindDecl; 9] = [
    &tap::KIND,
    &vduse::KIND,
    &ntb::KIND,
    &ivshmem::KIND,
    &ntb_vfio_user::KIND,
    &vhost_user::KIND,
    &virtio_user::KIND,
    &af_xdp::KIND,
    &null::KIND,
];

/// Parsed endpoint address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TAP device of this kernel.
    Tap(TapEndpoint),
    /// End of a bridge between two processes.
    Ntb(Ntb),
    /// End of a bridge in the memory of an ivshmem device.
    Ivshmem(Ivshmem),
    /// Emulated NTB endpoint, driven by a guest's kernel.
    NtbVfioUser(NtbVfioUser),
    /// Virtio NIC of a guest.
    VhostUser(VhostUser),
    /// Virtio device in another process, with mqnet as its driver.
    VirtioUser(VirtioUser),
    /// Interface of this kernel, taken over by AF_XDP sockets.
    AfXdp(AfXdp),
    /// Several endpoints that form one netdev.
    Group(Group),
    /// Virtio NIC of this kernel, implemented in user space (VDUSE).
    Vduse(Vduse),
    /// Endpoint that discards all frames.
    Null,
}

/// Properties of an endpoint that do not depend on its backend.
pub trait EndpointConfig {
    /// Name of the netdev. The kernel may complete the name of a TAP device, such as `tap%d`.
    fn netdev_name(&self) -> String;

    /// Socket or file of the endpoint; `None`: the endpoint has none.
    fn path(&self) -> Option<Cow<'_, Path>> {
        None
    }

    /// Network namespace file that the address names; `None`: none.
    fn namespace(&self) -> Option<&Path> {
        None
    }

    /// Permissions of the endpoint's socket; `None`: the kind never creates a socket.
    fn access(&self) -> Option<&SocketAccess> {
        None
    }

    /// Numbers of the descriptors that the endpoint inherits from the parent process.
    fn inherited(&self) -> &[i32] {
        &[]
    }
}

impl Endpoint {
    fn parts(&self) -> (&'static KindDecl, &dyn EndpointConfig) {
        match self {
            Self::Tap(config) => (&tap::KIND, config),
            Self::Ntb(config) => (&ntb::KIND, config),
            Self::Ivshmem(config) => (&ivshmem::KIND, config),
            Self::NtbVfioUser(config) => (&ntb_vfio_user::KIND, config),
            Self::VhostUser(config) => (&vhost_user::KIND, config),
            Self::VirtioUser(config) => (&virtio_user::KIND, config),
            Self::AfXdp(config) => (&af_xdp::KIND, config),
            Self::Group(config) => (&group::KIND, config),
            Self::Vduse(config) => (&vduse::KIND, config),
            Self::Null => (&null::KIND, &null::Null),
        }
    }

    /// Declaration of the endpoint's kind.
    pub fn kind(&self) -> &'static KindDecl {
        self.parts().0
    }

    /// Configuration of the endpoint.
    pub fn config(&self) -> &dyn EndpointConfig {
        self.parts().1
    }

    /// True for one end of a bridge.
    pub fn is_bridge(&self) -> bool {
        matches!(self, Self::Ntb(_) | Self::Ivshmem(_) | Self::NtbVfioUser(_))
    }

    /// Advice for a netdev name that is in use, as the end of a message. Empty if the kind has no
    /// option `name`.
    pub fn rename_knob(&self) -> &'static str {
        match self.kind().option("name") {
            Some(_) => ": set another one with name=",
            None => "",
        }
    }
}

/// Error of an invalid address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    address: String,
    what: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escape control characters, which could control a terminal.
        write!(f, "endpoint '{}': {}", visible(&self.address), visible(&self.what))
    }
}

impl std::error::Error for BadAddress {}

/// Escapes the control characters of a text.
fn visible(text: &str) -> String {
    let one = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(one).collect()
}

/// Returns the kind of an address and the text after its prefix; `None` for an unknown kind. Groups
/// are not recognized.
fn kind_of(address: &str) -> Option<(&'static KindDecl, &str)> {
    let fits = |kind: &&'static KindDecl| Some((*kind, address.strip_prefix(kind.prefix)?));
    // The longest matching prefix counts: `ntb:ivshmem=` also begins with `ntb:`.
    KINDS.iter().filter_map(fits).max_by_key(|(kind, _)| kind.prefix.len())
}

/// Parses an address. Returns an error with the wrong part and the allowed values.
pub fn parse(address: &str) -> Result<Endpoint, BadAddress> {
    parse_both(address).map(|(endpoint, _)| endpoint)
}

/// Parses an address. Returns the endpoint, and the egress options, which all kinds have.
pub fn parse_both(address: &str) -> Result<(Endpoint, EgressConfig), BadAddress> {
    let bad = |what: String| BadAddress { address: address.to_owned(), what };
    // Names of sockets become names of netdevs, which are shown on terminals, so control characters
    // are rejected.
    if address.contains(char::is_control) {
        return Err(bad("a control character: not allowed".to_owned()));
    }
    if let Some(found) = find_group(address, Path::new("/"))? {
        return parse_both(&found.address);
    }
    let (kind, target, options) = if group::members_of(address).is_some() {
        let (members, options) = group::split(address);
        (&group::KIND, members, options)
    } else {
        let (kind, rest) = kind_of(address).ok_or_else(|| bad(no_kind(address)))?;
        let (target, options) = rest.split_once(',').unwrap_or((rest, ""));
        (kind, target.to_owned(), options.to_owned())
    };
    let parsed = kind
        .read_options(&options)
        .and_then(|options| Ok(((kind.parse)(&target, &options)?, egress::read(&options)?)));
    parsed.map_err(bad)
}

/// Lists the forms of addresses on one line.
pub fn addresses() -> String {
    KINDS.map(|kind| format!("{}{}", kind.prefix, kind.target)).join(", ")
}

fn no_kind(address: &str) -> String {
    let known = addresses();
    match address.split_once(':') {
        Some((kind, _)) => format!("unknown kind '{kind}'; addresses are {known}"),
        None => format!("no kind; addresses are {known}"),
    }
}

#[cfg(test)]
mod tests;
