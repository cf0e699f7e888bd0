//! Test in a process without free descriptors.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

fn function(meet: Meet) -> VhostUserFunction {
    let name = "vhost-user:test".to_owned();
    let config =
        VhostUserConfig { name, meet, mac: None, mtu: None, queues: 1, packed: false, ctrl: false };
    VhostUserFunction::open(config).unwrap()
}

/// Opens files until no descriptor is free.
fn fill() -> Vec<File> {
    std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).collect()
}

/// CPU time of this process.
fn used() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|t| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000)).sum()
}

/// Sends `GET_FEATURES` (request 1) and returns the length of the reply; `Err` if no reply arrives
/// within 5 s.
fn request(mut vmm: &UnixStream) -> std::io::Result<usize> {
    vmm.set_read_timeout(Some(Duration::from_secs(5)))?;
    vmm.write_all(&[1u32, 1, 0].map(u32::to_ne_bytes).concat())?;
    vmm.read_exact(&mut [0; 20]).map(|()| 20)
}

// Goal: a connection that arrives while descriptors are missing is served as soon as enough
// descriptors are free, whichever step failed. The wait takes less than half of the CPU time of one
// CPU.
#[test]
fn connections_wait_for_missing_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 128, hard).unwrap();
    let path = std::env::temp_dir().join(format!("mqnet-descriptors-{}", std::process::id()));
    for free in 0..6 {
        let listener = UnixListener::bind(&path).unwrap();
        let _function = function(Meet::Inherited(listener.into()));
        let vmm =
            socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let mut files = fill();
        files.truncate(files.len() - free);
        let before = used();
        connect(vmm.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let busy = used() - before;
        assert!(busy < Duration::from_millis(150), "{free} free descriptors: {busy:?}");
        drop(files);
        let vmm = UnixStream::from(vmm);
        assert_eq!(request(&vmm).map_err(|e| format!("{free} free descriptors: {e}")), Ok(20));
        std::fs::remove_file(&path).unwrap();
    }
}
