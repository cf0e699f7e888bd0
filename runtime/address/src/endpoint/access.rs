//! `mode=`, `owner=` and `group=` of a socket that others connect to.

use super::options::Options;

/// Options of a socket that this process makes.
pub(super) const KEYS: &str = "mode= owner= group=";

/// Permissions of a socket. Names are looked up where the socket is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; absent: as the umask leaves them.
    pub mode: Option<u32>,
    /// User, by name or number; absent: that of the process.
    pub owner: Option<String>,
    /// Group, by name or number; absent: that of the process.
    pub group: Option<String>,
}

impl SocketAccess {
    /// Takes an option that belongs here; `None` for others.
    pub(super) fn take(&mut self, key: &str, value: Option<&str>) -> Option<Result<(), String>> {
        Some(match (key, value?) {
            ("mode", text) => mode(text).map(|mode| self.mode = Some(mode)),
            ("owner", text) => name(key, text).map(|user| self.owner = Some(user)),
            ("group", text) => name(key, text).map(|group| self.group = Some(group)),
            _ => return None,
        })
    }

    /// Refuses permissions of a socket that another process makes.
    pub(super) fn is_ours(&self, condition: bool, why: &str) -> Result<(), String> {
        match condition || *self == Self::default() {
            true => Ok(()),
            false => {
                Err(format!("mode=, owner= and group= are of a socket that mqnet makes: {why}"))
            }
        }
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let octal = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| octal && mode <= 0o777);
    mode.ok_or(format!("mode={text}: must be octal permissions from 0 to 0777, like 0660"))
}

fn name(key: &str, text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-$".contains(c);
    let fits = (1..=64).contains(&text.len()) && !text.starts_with('-');
    match fits && text.chars().all(good) {
        true => Ok(text.to_owned()),
        false => Err(format!("{key}={text}: must be a name or a number")),
    }
}

/// What to say about the option that was read last, with the options of a socket among the allowed
/// ones.
pub(super) fn unknown(options: &Options<'_>, before: &str, after: &str) -> String {
    options.unknown(&format!("{before} {KEYS} {after}"))
}
