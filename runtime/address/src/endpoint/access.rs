//! Options `mode=`, `owner=` and `group=` of a socket that mqnet creates.

use super::option::{Custom, OptionDecl, ValueType, option};
use super::options::Options;
use super::value::Value;

/// Permissions of a socket. Names are resolved when the socket is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; `None`: determined by the umask.
    pub mode: Option<u32>,
    /// User name or number; `None`: user of the process.
    pub owner: Option<String>,
    /// Group name or number; `None`: group of the process.
    pub group: Option<String>,
}

const OWNER: Custom = Custom {
    syntax: "USER",
    allowed: "a name or a number",
    example: "libvirt-qemu",
    read: |text| name(text).then(|| Value::Text(text.to_owned())),
};

pub(super) const OPTIONS: &[OptionDecl] = &[
    option(
        "mode",
        ValueType::Custom(&Custom {
            syntax: "OCTAL",
            allowed: "octal permissions from 0 to 0777",
            example: "0660",
            read: |text| mode(text).map(Value::Number),
        }),
        "permissions of the socket that mqnet creates; otherwise as the umask leaves them",
    ),
    option("owner", ValueType::Custom(&OWNER), "owner of that socket"),
    option(
        "group",
        ValueType::Custom(&Custom { syntax: "GROUP", example: "kvm", ..OWNER }),
        "group of that socket",
    ),
];

impl SocketAccess {
    /// Reads the options. If mqnet does not create the socket (`ours` is false), any of the options
    /// is an error with the reason `why`.
    pub(super) fn read(options: &Options, ours: bool, why: &str) -> Result<Self, String> {
        let access = Self {
            mode: options.optional("mode"),
            owner: options.optional("owner"),
            group: options.optional("group"),
        };
        match ours || access == Self::default() {
            true => Ok(access),
            false => {
                Err(format!("mode=, owner= and group= apply to a socket that mqnet creates: {why}"))
            }
        }
    }
}

fn mode(text: &str) -> Option<u64> {
    let octal = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    u64::from_str_radix(text, 8).ok().filter(|&mode| octal && mode <= 0o777)
}

fn name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-$".contains(c);
    let fits = (1..=64).contains(&text.len()) && !text.starts_with('-');
    fits && text.chars().all(good)
}
