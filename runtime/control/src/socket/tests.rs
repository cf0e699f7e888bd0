use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::testing::{Folder, Server, TestHost};

fn open(options: &SocketOptions) -> Result<ControlSocket, ApiError> {
    ControlSocket::open(options, Role::Daemon, &Places::only(Path::new("/nowhere")))
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// Goal: a socket has the requested mode and owner, and drop removes its files.
#[test]
fn mode_owner_and_removal() {
    let folder = Folder::new("mode");
    let mut options = folder.options("ctl.sock");
    let socket = open(&options).unwrap();
    let path = folder.path().join("ctl.sock");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o660);
    assert_eq!(names(&folder), ["ctl.sock", "ctl.sock.lock"]);
    drop(socket);
    assert!(names(&folder).is_empty());
    options.mode = Some(0o600);
    let is_root = mqnet_sysio::process::is_root();
    options.owner = is_root.then(|| "65534:65533".parse().unwrap());
    let _socket = open(&options).unwrap();
    let data = fs::metadata(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert!(!is_root || (data.uid(), data.gid()) == (65534, 65533));
}

// Goal: a second process gets an error with the owner's pid, and affects neither the owner nor its
// files.
#[test]
fn two_servers_never_share() {
    let folder = Folder::new("two");
    let options = folder.options("ctl.sock");
    let server = Server::start(&options, TestHost::new().with_pid(4711));
    for _ in 0..2 {
        let e = open(&options).unwrap_err();
        assert_eq!(e.code, Code::Busy);
        assert!(e.message.contains("in use by mqnet process 4711"), "{e}");
    }
    assert_eq!(server.client().get("/v1/instance").unwrap()["pid"], 4711);
    drop(server);
    open(&options).unwrap();
}

// Goal: only one server can use an abstract socket, although an abstract socket has no lock file.
#[test]
fn two_servers_never_share_a_name() {
    let name = format!("@mqnet-two-{}", std::process::id());
    let options =
        SocketOptions { address: Some(name.parse().unwrap()), ..SocketOptions::default() };
    let _server = Server::start(&options, TestHost::new().with_pid(4712));
    let e = open(&options).unwrap_err();
    assert!(e.message.contains("in use by mqnet process 4712"), "{e}");
    let options = SocketOptions { mode: Some(0o600), ..options };
    assert!(open(&options).unwrap_err().message.contains("neither mode nor owner"));
}

// Goal: files of a killed process are removed, and foreign files are kept.
#[test]
fn stale_sockets_are_removed_and_nothing_else() {
    let folder = Folder::new("stale");
    let path = folder.path().join("ctl.sock");
    drop(UnixListener::bind(&path).unwrap());
    fs::write(folder.path().join("ctl.sock.lock"), "").unwrap();
    drop(open(&folder.options("ctl.sock")).unwrap());
    assert!(names(&folder).is_empty());

    drop(UnixListener::bind(&path).unwrap());
    assert!(remove_stale(&path));
    assert!(names(&folder).is_empty());

    let stranger = UnixListener::bind(&path).unwrap();
    assert!(!remove_stale(&path));
    let e = open(&folder.options("ctl.sock")).unwrap_err();
    assert!(e.message.contains("does not answer"), "{e}");
    assert_eq!(names(&folder), ["ctl.sock"]);
    drop(stranger);

    fs::write(folder.path().join("file"), "precious").unwrap();
    let e = open(&folder.options("file")).unwrap_err();
    assert!(e.message.contains("not a socket"), "{e}");
    assert!(!remove_stale(&folder.path().join("file")));
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "precious");
}

// Goal: the error for a path in a missing folder names the folder and a remedy.
#[test]
fn missing_folder_is_named() {
    let folder = Folder::new("missing");
    let e = open(&folder.options("none/ctl.sock")).unwrap_err();
    let none = folder.path().join("none");
    let why = format!("no folder {}: create it, or choose another path", none.display());
    assert!(e.message.ends_with(&why), "{e}");
}

// Goal: the socket of a starting process, which is locked and has no listener yet, is not removed.
#[test]
fn a_starting_process_keeps_its_socket() {
    let folder = Folder::new("starting");
    let path = folder.path().join("ctl.sock");
    let lock = FileLock::try_take(&lock_path(&path)).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(lock.is_some() && !remove_stale(&path));
    assert!(open(&folder.options("ctl.sock")).is_err());
    assert!(path.exists());
    drop(lock);
    assert!(remove_stale(&path));
}

// Goal: at most one thread holds the lock at any time, although each holder removes the lock file.
#[test]
fn the_lock_survives_its_removal() {
    let folder = Folder::new("race");
    let (path, holders, served) = (folder.path().join("s"), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let lock = lock_path(&path);
                    let held = FileLock::try_take(&lock).unwrap();
                    let Some(held) = held.filter(|held| held.is_at(&lock)) else { continue };
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    served.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(Files { socket: None, lock, held });
                }
            });
        }
    });
    assert!(served.load(Ordering::SeqCst) > 4);
}

// Goal: a foreign file with the name of the lock is neither used nor removed. A foreign socket that
// replaced the process's socket is kept.
#[test]
fn foreign_locks_and_sockets_are_kept() {
    let folder = Folder::new("foreign");
    let path = folder.path().join("s");
    fs::write(lock_path(&path), "precious").unwrap();
    let e = open(&folder.options("s")).unwrap_err();
    assert!(e.message.contains("not an empty lock file"), "{e}");
    assert_eq!(fs::read_to_string(lock_path(&path)).unwrap(), "precious");
    fs::remove_file(lock_path(&path)).unwrap();
    let ours = open(&folder.options("s")).unwrap();
    fs::remove_file(&path).unwrap();
    let theirs = UnixListener::bind(&path).unwrap();
    fs::remove_file(lock_path(&path)).unwrap();
    fs::write(lock_path(&path), "precious").unwrap();
    drop(ours);
    UnixStream::connect(&path).unwrap();
    assert_eq!(names(&folder), ["s", "s.lock"]);
    drop(theirs);
}

// Goal: invalid addresses, modes and owners are rejected with an explanation.
#[test]
fn bad_options_are_refused() {
    let long = format!("/tmp/{}", "x".repeat(103));
    for (address, words) in
        [(&*long, "108 bytes, at most 107"), ("", "neither empty"), ("@", "name must follow")]
    {
        let e = address.parse::<SocketAddress>().unwrap_err();
        assert!(e.message.contains(words), "{e}");
    }
    let fits = &long[..107];
    assert!(fits.parse::<SocketAddress>().unwrap().to_socket().is_ok());
    for mode in ["", "8", "1000", "-1", "+7", "0x1", "rw"] {
        assert!(parse_mode(mode).unwrap_err().message.contains("octal"), "{mode}");
    }
    assert_eq!(parse_mode("0750").unwrap(), 0o750);
    for (owner, words) in
        [("no-such-user", "no user `no-such-user`"), ("0:no-such", "no group `no-such`")]
    {
        let e = owner.parse::<Owner>().unwrap_err();
        assert!(e.message.contains(words) && e.message.contains("USER:GROUP"), "{e}");
    }
    assert_eq!("root:0".parse::<Owner>().unwrap(), Owner { uid: 0, gid: Some(0) });
    let e = open(&Folder::new("gone").options("missing/ctl.sock")).unwrap_err();
    assert!(e.message.contains("missing/ctl.sock"), "{e}");
}
