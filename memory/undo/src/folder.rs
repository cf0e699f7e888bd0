//! Ownership of the folder with the journals.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

/// True if users other than the owner may write.
pub(crate) fn is_writable_by_others(data: &Metadata) -> bool {
    data.mode() & 0o022 != 0
}

/// True if only this user can create files in the folder. The folder must belong to this user, and
/// not be writable by others. Its parent must belong to this user or to root, and be sticky if
/// others may write to it.
pub(crate) fn is_safe(folder: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let us = geteuid().as_raw();
    let Ok(folder) = folder.canonicalize() else { return false };
    let above = folder.parent().unwrap_or(Path::new("/"));
    let (Ok(own), Ok(above)) = (fs::metadata(&folder), fs::metadata(above)) else { return false };
    own.uid() == us
        && !is_writable_by_others(&own)
        && (above.uid() == us || above.uid() == 0)
        && (!is_writable_by_others(&above) || above.mode() & STICKY != 0)
}
