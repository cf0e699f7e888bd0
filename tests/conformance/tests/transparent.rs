//! Shared memory on a system that backs it with transparent huge pages
//! (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`, or `huge=` of a tmpfs).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mqnet_conformance::rigs::Folder;
use mqnet_shmem::Region;
use mqnet_sysio::memory;
use mqnet_testkit::skip;

/// tmpfs with huge pages. The mount exists until its owner process ends.
struct Place {
    owner: Child,
    folder: Folder,
}

impl Place {
    /// Mounts the tmpfs; `None` if the namespaces or the mount are refused.
    fn mount() -> Option<Self> {
        let folder = Folder::new();
        let script = "mount -t tmpfs -o huge=always mqnet \"$0\" && echo ready && exec sleep 60";
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script]).arg(&folder.0).stdout(Stdio::piped());
        let mut owner = command.spawn().expect("unshare of util-linux");
        let mut printed = String::new();
        let out = owner.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut printed).expect("its output");
        let place = Self { owner, folder };
        (printed == "ready\n").then_some(place)
    }

    fn file(&self, len: u64) -> File {
        let root = format!("/proc/{}/root", self.owner.id());
        let folder = self.folder.0.strip_prefix("/").expect("an absolute path");
        let path = Path::new(&root).join(folder).join("memory");
        let options = &mut File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        let file = file.expect("a file there");
        file.set_len(len).expect("its length");
        file
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Both calls fail only if the owner has ended.
        let _ = self.owner.kill();
        let _ = self.owner.wait();
    }
}

// Goal: a file backed by transparent huge pages is treated as ordinary memory. Such a file of a
// peer is accepted, and such a file of a guest is mapped in units of 4 KiB.
#[test]
fn transparent_huge_pages_are_no_huge_pages() {
    let Some(place) = Place::mount() else {
        skip("no tmpfs with huge pages: `unshare -rm` or the mount was refused");
        return;
    };
    let file = place.file(3 * 4096);
    // The file reports the block size of hugetlbfs (2 MiB), although it has no hugetlb pages.
    if file.metadata().expect("its status").blksize() != 2 << 20 {
        skip("this kernel backs no tmpfs with huge pages");
        return;
    }
    assert!(memory::has_small_pages(file.as_fd()));
    let (region, skip) = Region::of_guest(file.into(), 4096, 8192).expect("a guest's memory");
    assert_eq!((region.len(), skip), (8192, 0));
}
