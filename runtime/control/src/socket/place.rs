//! Directories for control sockets.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use mqnet_control_api::{ApiError, Code};
use nix::unistd::{AccessFlags, eaccess, geteuid};

/// Directories for control sockets, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Value of `$MQNET_RUNTIME_DIR`; if set, the other directories are not used.
    pub chosen: Option<PathBuf>,
    /// Directory for root and services.
    pub system: PathBuf,
    /// Directory of the user's session.
    pub session: Option<PathBuf>,
    /// Directory for a user without a session. The parent directory is world-writable, so owner and
    /// mode of this directory are checked before use.
    pub last: PathBuf,
}

impl Places {
    /// Determines the directories from the environment.
    pub fn from_env() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let user = outer_user();
        // Without `XDG_RUNTIME_DIR`, the usual session directory is used if it is private.
        let session = path("XDG_RUNTIME_DIR").map(PathBuf::from).or_else(|| {
            Some(PathBuf::from(format!("/run/user/{user}")))
                .filter(|folder| private(folder).is_ok())
        });
        Self {
            chosen: path("MQNET_RUNTIME_DIR").map(PathBuf::from),
            system: "/run/mqnet".into(),
            session: session.map(|folder| folder.join("mqnet")),
            last: format!("/tmp/mqnet-{user}").into(),
        }
    }

    /// Lists all candidate directories, existing or not.
    pub fn searched(&self) -> Vec<PathBuf> {
        match &self.chosen {
            Some(folder) => vec![folder.clone()],
            None => {
                let session = self.session.as_ref();
                std::iter::once(&self.system).chain(session).chain([&self.last]).cloned().collect()
            }
        }
    }

    /// Creates a set with only this directory.
    pub fn only(folder: &Path) -> Self {
        Self { chosen: Some(folder.to_owned()), ..Self::from_env() }
    }

    /// Returns the first writable directory, creating it if necessary. Returns an error if none is
    /// writable.
    pub fn writable(&self) -> Result<PathBuf, ApiError> {
        if let Some(folder) = &self.chosen {
            return match make(folder, 0o755) {
                Ok(()) => Ok(folder.clone()),
                Err(e) => Err(refused(folder, "MQNET_RUNTIME_DIR", &e)),
            };
        }
        if make(&self.system, 0o755).is_ok() {
            return Ok(self.system.clone());
        }
        if let Some(folder) = self.session.as_ref().filter(|folder| make(folder, 0o700).is_ok()) {
            return Ok(folder.clone());
        }
        match make(&self.last, 0o700).and_then(|()| private(&self.last)) {
            Ok(()) => Ok(self.last.clone()),
            Err(e) => Err(refused(&self.last, "set MQNET_RUNTIME_DIR or XDG_RUNTIME_DIR", &e)),
        }
    }

    /// Lists the existing directories that may contain sockets, without duplicates.
    pub fn existing(&self) -> Vec<PathBuf> {
        let candidates = match &self.chosen {
            Some(folder) => vec![folder.clone()],
            None => {
                let last = Some(&self.last).filter(|folder| private(folder).is_ok());
                let session = self.session.as_ref();
                std::iter::once(&self.system).chain(session).chain(last).cloned().collect()
            }
        };
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in candidates.iter().filter(|folder| folder.is_dir()) {
            let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
            if !folders.contains(&real) {
                folders.push(real);
            }
        }
        folders
    }
}

/// Returns the user id outside the user namespace, so that processes inside and outside use one
/// directory.
fn outer_user() -> u32 {
    let own = geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(own, &map).unwrap_or(own)
}

/// Maps a user id with the lines of a `uid_map`: first id inside, first id outside, count. Returns
/// `None` if no line contains the id.
fn outside(user: u32, map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let at = user.checked_sub(inside).filter(|&at| at < count)?;
        outside.checked_add(at)
    })
}

fn make(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    Ok(eaccess(folder, AccessFlags::W_OK | AccessFlags::X_OK)?)
}

/// Returns an error unless `folder` is a directory of this user that no other user may enter.
/// Otherwise another user could read or replace sockets.
fn private(folder: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(folder)?;
    let why = match () {
        () if !data.is_dir() => "it is not a directory",
        () if data.uid() != geteuid().as_raw() => "it belongs to another user",
        () if data.mode() & 0o077 != 0 => "other users may enter it; its mode must be 0700",
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn refused(folder: &Path, knob: &str, e: &io::Error) -> ApiError {
    let why = format!("no directory for the control socket: {}: {e} ({knob})", folder.display());
    ApiError::new(Code::Permission, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn places(folder: &Path) -> Places {
        Places {
            chosen: None,
            system: folder.join("missing/system"),
            session: Some(folder.join("missing/session")),
            last: folder.join("last"),
        }
    }

    // Goal: the first usable directory is selected, and `MQNET_RUNTIME_DIR` excludes the others.
    #[test]
    fn the_best_directory_wins() {
        let world = crate::testing::Folder::new("places");
        let folder = world.path();
        let mut places = places(folder);
        assert_eq!(places.writable().unwrap(), folder.join("last"));
        assert_eq!(places.existing().len(), 1);
        places.session = Some(folder.join("session"));
        assert_eq!(places.writable().unwrap(), folder.join("session"));
        places.system = folder.join("system");
        assert_eq!(places.writable().unwrap(), folder.join("system"));
        assert_eq!(places.existing().len(), 3);
        places.chosen = Some(folder.join("chosen"));
        assert_eq!(places.writable().unwrap(), folder.join("chosen"));
        assert_eq!(places.existing().len(), 1);
        places.chosen = Some(folder.join("missing/chosen"));
        let e = places.writable().unwrap_err();
        assert!(e.message.contains("MQNET_RUNTIME_DIR"), "{e}");
    }

    // Goal: the root user of a user namespace and the corresponding user outside use the same
    // directory.
    #[test]
    fn users_are_those_outside() {
        assert_eq!(outside(0, "         0       1000          1\n"), Some(1000));
        assert_eq!(outside(7, "0 1000 1\n1 100000 65536\n"), Some(100_006));
        assert_eq!(outside(1000, "0 0 4294967295\n"), Some(1000));
        assert_eq!(outside(5, "0 1000 1\n"), None);
        assert_eq!(outside(5, "not numbers\n"), None);
    }

    // Goal: a directory in /tmp that another user may have prepared is neither used nor searched.
    #[test]
    fn a_prepared_directory_is_refused() {
        let world = crate::testing::Folder::new("prepared");
        let folder = world.path();
        let places = places(folder);
        let real = folder.join("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, &places.last).unwrap();
        let e = places.writable().unwrap_err();
        assert!(e.message.contains("not a directory"), "{e}");
        assert!(places.existing().is_empty());
        fs::remove_file(&places.last).unwrap();
        fs::create_dir(&places.last).unwrap();
        fs::set_permissions(&places.last, fs::Permissions::from_mode(0o755)).unwrap();
        let e = places.writable().unwrap_err();
        assert!(e.message.contains("0700"), "{e}");
        assert!(places.existing().is_empty());
    }
}
