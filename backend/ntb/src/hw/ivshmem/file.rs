//! Bus on the host: the file of an `ivshmem-plain` device if the path is a regular file, otherwise
//! the socket of a server. A plain file has no peer numbers and no interrupts: both ends poll.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqnet_shmem::Region;

use super::client::Client;
use super::wake::Via;
use super::{Attachment, Bus, check_size, half_of};

/// Time between two checks of the file at the path.
const AGAIN: Duration = Duration::from_secs(1);
/// Bit in the number of an attachment that distinguishes files from the client's attachments.
const OF_FILE: u64 = 1 << 63;

/// Device, inode and size of the file. A file that QEMU has just created has size 0.
type Identity = (u64, u64, u64);

/// Bus over a plain file or a server's socket.
pub(super) struct Host {
    path: PathBuf,
    client: Client,
    file: Option<(Identity, Result<Attachment, String>)>,
    /// [`OF_FILE`] plus the number of changes of the file so far.
    number: u64,
    looked: Option<Duration>,
}

fn identity(path: &Path) -> Option<Identity> {
    let found = path.metadata().ok().filter(|found| found.is_file())?;
    Some((found.dev(), found.ino(), found.len()))
}

fn open(path: &Path) -> Result<Attachment, String> {
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = File::options().read(true).write(true).open(path).map_err(said)?;
    let size = file.metadata().map_err(said)?.len();
    let half = check_size(size).map_err(|why| format!("{}: {why}", path.display()))?;
    let map = |side: usize| -> Result<Arc<Region>, String> {
        let file = OwnedFd::from(file.try_clone().map_err(said)?);
        half_of(file, side, half)
    };
    Ok(Attachment { halves: [map(0)?, map(1)?], size, id: None, vectors: Vec::new() })
}

impl Host {
    pub(super) fn new(path: PathBuf) -> Self {
        let client = Client::new(path.clone());
        Self { path, client, file: None, number: OF_FILE, looked: None }
    }

    fn refresh(&mut self, now: Duration) {
        if self.looked.is_some_and(|looked| now < looked + AGAIN) {
            return;
        }
        self.looked = Some(now);
        let there = identity(&self.path);
        if there != self.file.as_ref().map(|(known, _)| *known) {
            self.number += 1;
            self.file = there.map(|there| (there, open(&self.path)));
        }
    }
}

impl Bus for Host {
    fn poll(&mut self, now: Duration) -> Result<(u64, &Attachment), String> {
        self.refresh(now);
        match &self.file {
            None => self.client.poll(now),
            Some((_, Ok(attachment))) => Ok((self.number, attachment)),
            Some((_, Err(why))) => Err(why.clone()),
        }
    }

    fn has(&self, id: u32) -> Option<bool> {
        if self.file.is_some() { None } else { self.client.has(id) }
    }

    fn via(&self, id: Option<u32>, vector: u32, of: u32) -> Result<Via, String> {
        match (&self.file, of) {
            (None, _) => self.client.via(id, vector, of),
            (Some(_), 0) => Ok(Via::Nothing),
            (Some(_), _) => {
                Err("the peer requests interrupts, which a file does not have (if the peer has \
                     ivshmem-doorbell, use the socket of its server)"
                    .to_owned())
            }
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        if self.file.is_some() { Vec::new() } else { self.client.events() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: a file stays mapped while it does not change. A file that replaces it, or a new size,
    // is a new attachment. A wrong size is refused with the allowed sizes. Without a file, the path
    // is used as a server's socket.
    #[test]
    fn files_come_and_go() {
        let path = std::env::temp_dir().join(format!("mqnet-iv-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut host = Host::new(path.clone());
        let mut now = Duration::ZERO;
        let mut poll = |host: &mut Host| {
            now += AGAIN;
            host.poll(now).map(|(number, attachment)| (number, attachment.size))
        };
        assert!(poll(&mut host).unwrap_err().contains("no ivshmem server"));
        let file = File::create(&path).unwrap();
        assert!(poll(&mut host).unwrap_err().contains("0 bytes, allowed are powers of two"));
        file.set_len(1 << 20).unwrap();
        let (first, size) = poll(&mut host).unwrap();
        assert_eq!(size, 1 << 20);
        assert_eq!(poll(&mut host), Ok((first, 1 << 20)));
        assert!(matches!(host.via(None, 0, 0), Ok(Via::Nothing)));
        assert!(host.via(None, 1, 5).unwrap_err().contains("which a file does not have"));
        let other = path.with_extension("new");
        File::create(&other).unwrap().set_len(1 << 21).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let (second, size) = poll(&mut host).unwrap();
        assert!(second != first && size == 1 << 21);
        std::fs::remove_file(&path).unwrap();
        assert!(poll(&mut host).unwrap_err().contains("no ivshmem server"));
    }
}
