//! Who may use a control socket.

use std::str::FromStr;

use mqnet_control_api::ApiError;
use nix::unistd::{Group, User};

/// Owner of a socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group, if it is to be changed too.
    pub gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = ApiError;

    /// `USER[:GROUP]`, by name or number.
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

/// A user, by number or name.
pub fn user_id(user: &str) -> Result<u32, String> {
    let named = || User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    user.parse().ok().or_else(named).ok_or_else(|| format!("no user `{user}`"))
}

/// A group, by number or name.
pub fn group_id(group: &str) -> Result<u32, String> {
    let named = || Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw());
    group.parse().ok().or_else(named).ok_or_else(|| format!("no group `{group}`"))
}

fn refused(text: &str, why: &str) -> ApiError {
    let why = format!("owner of the control socket `{text}`: {why}; wanted: USER or USER:GROUP");
    ApiError::field("control-owner", why)
}

/// An octal mode, 0..=0777.
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
