//! A FUSE file system that stops answering.
//!
//! The server implements only the requests of the FUSE protocol (`linux/fuse.h`) that opening one
//! file requires. Other requests, including those of reads and `fstatfs`, get no reply.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_sysio::poll;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FILE: u64 = 2;

/// Mounted file system. The drop unmounts it and ends all waiting calls.
pub(crate) struct Fuse {
    folder: PathBuf,
    file: Option<File>,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

/// `struct fuse_attr` of a regular file or a folder.
fn attributes(node: u64) -> Vec<u8> {
    let size: u64 = if node == FILE { 1 << 30 } else { 0 };
    let mode: u32 = if node == FILE { 0o100_666 } else { 0o040_777 };
    let mut out: Vec<u8> =
        [node, size, 0, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    out.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
    out
}

/// True for a thread of the test program, and for its child before exec.
fn is_of_test(thread: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm"));
    name.is_ok_and(|name| name.starts_with("hostile"))
}

/// Body of a reply; `None` for a request that gets no reply.
fn answer(operation: u32, node: u64, thread: u32) -> Option<Vec<u8>> {
    let long = |all: &[u64]| -> Vec<u8> { all.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let short = |all: &[u32]| -> Vec<u8> { all.iter().flat_map(|n| n.to_le_bytes()).collect() };
    Some(match operation {
        INIT => {
            let mut out = short(&[7, 31, 4096, 0, 0, 4096, 1]);
            out.resize(64, 0);
            out
        }
        LOOKUP => [long(&[FILE, 0, 3600, 3600]), short(&[0, 0]), attributes(FILE)].concat(),
        GETATTR => [long(&[3600, 0]), attributes(node)].concat(),
        OPEN => vec![0; 16],
        // Child processes of the test close the file on exec, and must not block.
        FLUSH if is_of_test(thread) => Vec::new(),
        _ => return None,
    })
}

fn serve(mut device: File, stop: &AtomicBool) {
    let mut question = vec![0; 1 << 17];
    while !stop.load(Ordering::Relaxed) {
        let _ = poll::wait_readable(&[device.as_fd()], Duration::from_millis(20));
        if !poll::is_readable(device.as_fd()).unwrap_or(false) {
            continue;
        }
        let Ok(len) = device.read(&mut question) else { continue };
        if len < 40 {
            continue;
        }
        let word = |at: usize| u32::from_le_bytes(question[at..at + 4].try_into().unwrap());
        let node = u64::from(word(16));
        let Some(body) = answer(word(4), node, word(32)) else { continue };
        let len = (16 + body.len()) as u32;
        let head = [&len.to_le_bytes()[..], &0_i32.to_le_bytes(), &question[8..16]].concat();
        let _ = device.write(&[head, body].concat());
    }
}

impl Fuse {
    /// Mounts the file system in a new folder. Reading that folder blocks.
    pub(crate) fn mount() -> Self {
        let folder = std::env::temp_dir().join(format!("mqnet-fuse-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.expect("/dev/fuse");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount(Some("mqnet-test"), &folder, Some("fuse"), MsFlags::empty(), Some(options.as_str()))
            .expect("mounting a file system in user space");
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let server = std::thread::spawn(move || serve(device, &stopped));
        let file = OpenOptions::new().read(true).write(true).open(folder.join("file"));
        let file = Some(file.expect("the file"));
        Self { folder, file, stop, server: Some(server) }
    }

    /// Open file; reading it blocks, and so does `fstatfs`.
    pub(crate) fn file(&self) -> &File {
        self.file.as_ref().expect("it is closed last")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Closing the device ends every pending request with an error.
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        self.file = None;
        let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_dir(&self.folder);
    }
}
