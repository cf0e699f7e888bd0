//! Owner and mode of a control socket.

use std::str::FromStr;

use mqnet_control_api::ApiError;
use nix::unistd::{Group, User};

/// Owner of a socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id; `None`: the group is not changed.
    pub gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = ApiError;

    /// Parses `USER[:GROUP]`, each a name or a number.
    fn from_str(text: &str) -> Result<Self, ApiError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let uid = user_id(user).map_err(|why| refused(text, &why))?;
        let gid = group.map(group_id).transpose().map_err(|why| refused(text, &why))?;
        Ok(Self { uid, gid })
    }
}

/// Returns the id of a user, given by number or name.
pub fn user_id(user: &str) -> Result<u32, String> {
    let other = || User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    id(user, "/etc/passwd", other).ok_or_else(|| format!("no user `{user}`"))
}

/// Returns the id of a group, given by number or name.
pub fn group_id(group: &str) -> Result<u32, String> {
    let other = || Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw());
    id(group, "/etc/group", other).ok_or_else(|| format!("no group `{group}`"))
}

/// Resolves a number, or a name from `file`, otherwise by `other`; `None` if all fail. A statically
/// linked program skips `other`: the modules of `nsswitch.conf` would crash it.
fn id(text: &str, file: &str, other: impl FnOnce() -> Option<u32>) -> Option<u32> {
    if let Ok(number) = text.parse() {
        // Reject the value that `chown` interprets as "do not change".
        return Some(number).filter(|&number| number != u32::MAX);
    }
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    in_lines(text, &lines)
        .or_else(|| if cfg!(target_feature = "crt-static") { None } else { other() })
}

/// Finds the number of `name` in lines of `NAME:PASSWORD:NUMBER:...`; `None` if no such line exists
/// or the number is invalid.
fn in_lines(name: &str, lines: &str) -> Option<u32> {
    let mut fields = lines.lines().map(|line| line.split(':'));
    let mut found =
        fields.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    found.nth(1)?.parse().ok()
}

fn refused(text: &str, why: &str) -> ApiError {
    let why = format!("owner of the control socket `{text}`: {why}; wanted: USER or USER:GROUP");
    ApiError::field("control-owner", why)
}

/// Parses an octal mode, 0..=0777.
pub fn parse_mode(text: &str) -> Result<u32, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && digits => Ok(mode),
        _ => {
            let why = format!("mode of the control socket `{text}`: wanted: octal, 0 to 0777");
            Err(ApiError::field("control-mode", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names are resolved from the files, numbers are used unchanged, and the value "do not
    /// change" of `chown` is rejected.
    #[test]
    fn users_and_groups_have_numbers() {
        let lines = "root:x:0:0::/:/bin/sh\nkvm:x:104:\nbroken\n";
        assert_eq!(in_lines("kvm", lines), Some(104));
        assert_eq!(in_lines("broken", lines), None);
        assert_eq!(in_lines("x", lines), None);
        assert_eq!(user_id("root"), Ok(0));
        assert_eq!(group_id("77"), Ok(77));
        assert!(user_id("4294967295").is_err());
        assert_eq!(user_id("no such user"), Err("no user `no such user`".to_owned()));
    }
}
