//! Receives from a virtio device into a memory file of this program, and prints the position of
//! each frame in the file.
//!
//! Usage: `payload SOCKET [FRAMES]`, with `mqnet link tap:x vhost-user:SOCKET` at the other end of
//! the socket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use mqnet::{PayloadDevice, ProvidedMemory};

const LEN: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let socket = words.first().ok_or("payload SOCKET [FRAMES]")?;
    let frames: usize = words.get(1).map_or(Ok(10), |n| n.parse())?;

    // Any memory file works: a memfd, or a file in /dev/shm or hugetlbfs. A program could map the
    // file to read frames without system calls; this one reads the file.
    let name = format!("/dev/shm/mqnet-payload-{}", std::process::id());
    let file = File::options().read(true).write(true).create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    file.set_len(LEN)?;
    let memory = ProvidedMemory::new(OwnedFd::from(file.try_clone()?), LEN);

    let (mut nic, mut receivers) = PayloadDevice::open(socket, memory, 1, Duration::from_secs(10))?;
    let rx = &mut receivers[0];
    let mut returner = rx.returner();
    for _ in 0..frames {
        let payload = loop {
            if let Some(payload) = rx.try_recv()? {
                break payload;
            }
            returner.flush();
            nic.check()?;
            std::thread::sleep(Duration::from_millis(1));
        };
        for &(place, len) in payload.places() {
            let mut head = [0; 14];
            file.read_exact_at(&mut head, place)?;
            println!("{len} bytes at {place} of the program's memory, from {:02x?}", &head[6..12]);
        }
        returner.free(payload);
    }
    Ok(())
}
