//! Directories for control sockets.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use mqnet_control_api::{ApiError, Code};
use nix::unistd::{AccessFlags, eaccess, geteuid};

/// The directories where control sockets may lie, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `$MQNET_RUNTIME_DIR`: this and no other.
    pub chosen: Option<PathBuf>,
    /// For root and services.
    pub system: PathBuf,
    /// Of the user's session.
    pub session: Option<PathBuf>,
    /// Without a session. In a place where everybody may write, so that it is looked at twice.
    pub last: PathBuf,
}

impl Places {
    /// As the environment has them.
    pub fn from_env() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            chosen: path("MQNET_RUNTIME_DIR").map(PathBuf::from),
            system: "/run/mqnet".into(),
            session: path("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("mqnet")),
            last: format!("/tmp/mqnet-{}", geteuid()).into(),
        }
    }

    /// Nothing but this directory.
    pub fn only(folder: &Path) -> Self {
        Self { chosen: Some(folder.to_owned()), ..Self::from_env() }
    }

    /// The first directory that is there, or can be made, and that we may write to.
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

    /// Every directory where a process may have put its socket.
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

fn make(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    Ok(eaccess(folder, AccessFlags::W_OK | AccessFlags::X_OK)?)
}

/// Somebody else may have made it first, to read or to replace our sockets.
fn private(folder: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(folder)?;
    let why = match () {
        () if !data.is_dir() => "it is not a directory",
        () if data.uid() != geteuid().as_raw() => "it belongs to another user",
        () if data.mode() & 0o077 != 0 => "others may enter it; its mode must be 0700",
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

    // Goal: the first usable directory is taken, and a chosen one excludes the others.
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

    // Goal: a directory in /tmp that somebody could have prepared is neither used nor searched.
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
