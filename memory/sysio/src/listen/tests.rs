use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use super::*;

/// Temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("mqnet-listen-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> PathBuf {
        self.0.join("x.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listen(path: &Path, access: Access) -> Result<(OwnedFd, SocketFile), ListenError> {
    listen_at(path, Kind::Stream, access, 8)
}

// Goal: a path in a folder that does not exist is refused, and the error names the folder.
#[test]
fn missing_folder_is_named() {
    let folder = Folder::new("missing");
    let missing = folder.0.join("no").join("such");
    let path = missing.join("x.sock");
    let e = listen(&path, Access::default()).unwrap_err();
    let (shown, missing) = (path.display(), missing.display());
    let expected = format!("{shown}: no folder {missing}: create it, or choose another path");
    assert_eq!(e.to_string(), expected);
    assert_eq!(io::Error::from(e).kind(), io::ErrorKind::NotFound);
}

// Goal: regular files, links, folders and other nodes are rejected and stay unchanged.
#[test]
fn foreign_files_are_kept() {
    let folder = Folder::new("foreign");
    let path = folder.path();
    fs::write(&path, "precious").unwrap();
    let e = listen(&path, Access::default()).unwrap_err();
    assert!(matches!(e, ListenError::NotASocket(_)), "{e}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let link = folder.0.join("link");
    // A link is rejected, for any target.
    let stale = folder.0.join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    for target in [path.as_path(), Path::new("/nowhere"), stale.as_path()] {
        symlink(target, &link).unwrap();
        let e = listen(&link, Access::default()).unwrap_err();
        assert!(matches!(e, ListenError::NotASocket(_)), "{e}");
        assert_eq!(fs::read_link(&link).unwrap(), target);
        fs::remove_file(&link).unwrap();
    }
    let pipe = folder.0.join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for other in [&pipe, &folder.0] {
        let e = listen(other, Access::default()).unwrap_err();
        assert!(e.to_string().contains("is not a socket"), "{e}");
        assert!(other.exists());
    }
}

// Goal: a bound socket of any type is rejected, also before `listen`, and a listening process sees
// no connection. A stale socket is replaced.
#[test]
fn live_sockets_are_kept() {
    let folder = Folder::new("live");
    let path = folder.path();
    let refused = || {
        let before = identity(&path).unwrap();
        let e = listen(&path, Access::default()).unwrap_err();
        assert!(matches!(e, ListenError::InUse(_)), "{e}");
        assert_eq!(identity(&path).unwrap(), before);
    };
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    refused();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(listener);
    fs::remove_file(&path).unwrap();
    let datagrams = UnixDatagram::bind(&path).unwrap();
    refused();
    drop(datagrams);
    fs::remove_file(&path).unwrap();
    let flags = SockFlag::SOCK_CLOEXEC;
    let bound = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    bind(bound.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    refused();
    drop(bound);
    assert_eq!(occupant(&path).unwrap(), Occupant::StaleSocket);
    let (_fd, file) = listen(&path, Access::default()).unwrap();
    assert_eq!(occupant(&path).unwrap(), Occupant::LiveSocket);
    drop(file);
    assert_eq!(occupant(&path).unwrap(), Occupant::Nothing);
}

// Goal: a process removes the socket file that it created at exit, but not a file that replaced it.
#[test]
fn only_the_own_file_is_removed() {
    let folder = Folder::new("own");
    let path = folder.path();
    let (_fd, file) = listen(&path, Access::default()).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

// Goal: mode and owner are as requested, for any umask.
#[test]
fn mode_and_owner() {
    let folder = Folder::new("mode");
    let path = folder.path();
    for mode in [0o600, 0o666, 0o777] {
        let access = Access { mode: Some(mode), ..Access::default() };
        let made = listen(&path, access).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        drop(made);
    }
    if crate::process::is_root() {
        let access = Access { mode: None, uid: Some(65534), gid: Some(65533) };
        let _made = listen(&path, access).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!((data.uid(), data.gid()), (65534, 65533));
    }
}

// Goal: a connection succeeds only after the socket has its mode.
#[test]
fn mode_is_set_before_the_first_connection() {
    let folder = Folder::new("early");
    let path = folder.path();
    for _ in 0..50 {
        let made = std::thread::scope(|scope| {
            scope.spawn(|| {
                let begin = std::time::Instant::now();
                while UnixStream::connect(&path).is_err() {
                    assert!(begin.elapsed() < Duration::from_secs(10));
                }
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
            });
            listen(&path, Access { mode: Some(0o666), ..Access::default() }).unwrap()
        });
        drop(made);
    }
}

// Goal: of many processes that find one stale socket, exactly one listens and keeps its file.
#[test]
fn one_of_many_replaces_a_stale_socket() {
    let folder = Folder::new("many");
    let path = folder.path();
    drop(UnixListener::bind(&path).unwrap());
    let made: Vec<_> = std::thread::scope(|scope| {
        let one = |_| scope.spawn(|| listen(&path, Access::default()).ok());
        let all: Vec<_> = (0..8).map(one).collect();
        all.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 1);
    assert_eq!(identity(&path).unwrap(), made[0].1.identity);
}
