//! Declarations of endpoint kinds, used by the parser, help, completion and documents.

use super::Endpoint;
use super::egress;
use super::option::OptionDecl;
use super::options::Options;

/// Declaration of an endpoint kind.
#[derive(Debug)]
pub struct KindDecl {
    /// Prefix of the kind's addresses, up to the target.
    pub prefix: &'static str,
    /// Placeholder for the target in documents.
    pub target: &'static str,
    /// Description of the kind, without a full stop.
    pub summary: &'static str,
    /// Further sentences of the description; may be empty.
    pub notes: &'static str,
    /// File of the book's page on this kind, in the folder of `endpoints.md`; may be empty.
    pub document: &'static str,
    /// Example of an address.
    pub example: &'static str,
    /// Driver name for `ethtool -i`.
    pub driver: &'static str,
    /// Hint on setting the rings, shown if `ethtool -G` cannot set them. `NAME` stands for the
    /// netdev.
    pub rings: &'static str,
    /// True if the netdevs are kernel interfaces, with names that are valid in one network
    /// namespace.
    pub is_interface: bool,
    /// True if the given target is a path.
    pub(super) is_path: fn(&str) -> bool,
    /// Option groups of this kind, without the options of all kinds.
    pub(super) options: &'static [&'static [OptionDecl]],
    /// Constructor of the endpoint from the target and the options.
    pub(super) parse: fn(&str, &Options) -> Result<Endpoint, String>,
}

impl KindDecl {
    /// Name of the kind: the part of the prefix before the colon.
    pub fn name(&self) -> &'static str {
        self.prefix.split(':').next().unwrap_or_default()
    }

    /// Options that this kind declares.
    pub fn own_options(&self) -> impl Iterator<Item = &'static OptionDecl> {
        self.options.iter().copied().flatten()
    }

    /// Options that this kind declares, and options of all kinds.
    pub fn options(&self) -> impl Iterator<Item = &'static OptionDecl> {
        self.own_options().chain(egress::OPTIONS)
    }

    /// Option with this name; `None` if the kind has no such option.
    pub fn option(&self, name: &str) -> Option<&'static OptionDecl> {
        self.options().find(|option| option.name == name)
    }

    /// Parses the options of an address. Returns an error for an option that is not declared, for
    /// an invalid value, and for a repeated option that may be given only once.
    pub(super) fn read_options(&self, text: &str) -> Result<Options, String> {
        Options::parse(self.own_options().collect(), egress::OPTIONS, text)
    }
}
