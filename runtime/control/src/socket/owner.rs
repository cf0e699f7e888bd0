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
        let uid = user
            .parse()
            .ok()
            .or_else(|| User::from_name(user).ok().flatten().map(|user| user.uid.as_raw()));
        let Some(uid) = uid else { return Err(refused(text, &format!("no user `{user}`"))) };
        let Some(group) = group else { return Ok(Self { uid, gid: None }) };
        let gid = group
            .parse()
            .ok()
            .or_else(|| Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw()));
        match gid {
            Some(gid) => Ok(Self { uid, gid: Some(gid) }),
            None => Err(refused(text, &format!("no group `{group}`"))),
        }
    }
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
