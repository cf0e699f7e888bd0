//! Address of a control socket: a path, or a name in the abstract namespace.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mqnet_control_api::ApiError;
use socket2::SockAddr;

/// Usable bytes of `sun_path`: a path is followed by a zero byte, an abstract name is preceded by
/// one.
const LENGTH_MAX: usize = 107;

/// Address of a control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// Path of a socket file.
    File(PathBuf),
    /// Abstract name, written `@name`: without a file, valid in one network namespace.
    Abstract(String),
}

impl SocketAddress {
    /// Creates the address of a path. Rejects an empty path, a zero byte, and more than 107 bytes.
    pub fn file(path: &Path) -> Result<Self, ApiError> {
        let length = path.as_os_str().len();
        if length > LENGTH_MAX {
            let why = format!(
                "control socket {}: {length} bytes, at most {LENGTH_MAX} are possible: \
                 choose a shorter path or MQNET_RUNTIME_DIR",
                path.display()
            );
            return Err(ApiError::field("control", why));
        }
        if length == 0 || path.as_os_str().as_bytes().contains(&0) {
            let why = "control socket: a path or @name, neither empty nor with a zero byte";
            return Err(ApiError::field("control", why));
        }
        Ok(Self::File(path.to_owned()))
    }

    /// Converts the address to a socket address.
    pub(crate) fn to_socket(&self) -> io::Result<SockAddr> {
        match self {
            Self::File(path) => SockAddr::unix(path),
            Self::Abstract(name) => SockAddr::unix(format!("\0{name}")),
        }
    }
}

impl FromStr for SocketAddress {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        // An abstract name has the limits of a path: 107 bytes with the `@`, and no zero byte.
        Self::file(Path::new(text))?;
        match text.strip_prefix('@') {
            Some("") => Err(ApiError::field("control", "control socket @: a name must follow")),
            Some(name) => Ok(Self::Abstract(name.to_owned())),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}
