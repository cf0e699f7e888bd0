//! Cache of downloaded and built files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::Result;

/// Name of the file that marks a folder as complete. The file contains `made_of`, the inputs of the
/// folder.
const STAMP: &str = "made-of";

/// Folders with downloaded files, or files built from them.
const DOWNLOADED: [&str; 8] =
    ["arm64", "images", "kernels", "ntb", "passt", "qemu-vfio-user", "selftests", "tools"];

/// Cache folder.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Cache for the parts of guests.
    pub fn open() -> Result<Self> {
        Self::in_cache("guest")
    }

    /// `mqnet/NAME` in the user's cache folder.
    pub fn in_cache(name: &str) -> Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
        let Some(cache) = cache else {
            return Err("no cache folder: set HOME or XDG_CACHE_HOME".into());
        };
        Self::at(&cache.join("mqnet").join(name))
    }

    pub(crate) fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).map_err(|e| format!("{}: {e}", root.display()))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Path of a file or folder in the cache.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Deletes downloaded and built files, so that the next use downloads current ones.
    pub fn forget(&self) -> Result<()> {
        for folder in DOWNLOADED {
            match fs::remove_dir_all(self.path(folder)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{}: {e}", self.path(folder).display()).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Path of the folder `name`, created by `make` unless it exists with the same `made_of`. Other
    /// programs wait while one program creates the folder.
    pub fn folder(
        &self,
        name: &str,
        made_of: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let folder = self.path(name);
        let _lock = self.lock(name)?;
        if fs::read_to_string(folder.join(STAMP)).is_ok_and(|text| text == made_of) {
            return Ok(folder);
        }
        // `make` fills a folder with another name, so that an interrupted run leaves no complete
        // folder.
        let unfinished = self.path(&format!("{name}.unfinished"));
        for old in [&folder, &unfinished] {
            if old.exists() {
                fs::remove_dir_all(old)?;
            }
        }
        fs::create_dir_all(&unfinished)?;
        make(&unfinished)?;
        fs::write(unfinished.join(STAMP), made_of)?;
        fs::rename(&unfinished, &folder)?;
        Ok(folder)
    }

    /// Takes a file lock, which is released on drop. Blocks while another process holds the lock.
    pub(crate) fn lock(&self, name: &str) -> Result<Flock<File>> {
        let path = self.path(&format!("{}.lock", name.replace('/', "-")));
        let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, e)| format!("{}: {e}", path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> Store {
        let folder =
            std::env::temp_dir().join(format!("mqnet-store-{name}-{}", std::process::id()));
        Store::at(&folder).unwrap()
    }

    // Goal: a folder is created once, and created again for other inputs. A failed creation leaves
    // no folder that is regarded as complete.
    #[test]
    fn a_folder_is_made_once() {
        let store = scratch("once");
        let make =
            |text: &'static str| move |folder: &Path| Ok(fs::write(folder.join("file"), text)?);
        let read = |folder: PathBuf| fs::read_to_string(folder.join("file")).unwrap();
        assert_eq!(read(store.folder("a/b", "1", make("first")).unwrap()), "first");
        assert_eq!(read(store.folder("a/b", "1", make("second")).unwrap()), "first");
        assert_eq!(read(store.folder("a/b", "2", make("third")).unwrap()), "third");
        assert!(store.folder("a/b", "3", |_| Err("no".into())).is_err());
        assert!(!store.path("a/b").exists());
        assert_eq!(read(store.folder("a/b", "3", make("fourth")).unwrap()), "fourth");
        fs::remove_dir_all(&store.root).unwrap();
    }
}
