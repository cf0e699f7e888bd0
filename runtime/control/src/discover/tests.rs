use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::testing::{Folder, Server, TestHost};

fn start(folder: &Folder, name: &str, pid: u32, device: &str, netns: Option<u64>) -> Server {
    let host = TestHost::new().named(device, netns).with_pid(pid);
    Server::start(&folder.options(name), host)
}

fn search(folder: &Folder) -> Search {
    Search::In(Places::only(folder.path()))
}

// Goal: a search for a device fails with `NoDevice` without a match, and returns the process of a
// single match. With two matches the error names both processes.
#[test]
fn claims_are_counted() {
    let folder = Folder::new("claims");
    let e = find_device("vm7", None, &search(&folder)).unwrap_err();
    assert_eq!((e.code, &*e.message), (Code::NoDevice, "no running mqnet has a device `vm7`"));
    let _one = start(&folder, "link-1.sock", 11, "vm7", Some(5));
    let found = find_device("vm7", Some(6), &search(&folder)).unwrap();
    assert_eq!((found.instance.pid, found.netdevs.len()), (11, 2));
    assert_eq!(found.client().get("/v1/netdevs/vm7/channels").unwrap()["combined"], 4);
    let _two = start(&folder, "ctl.sock", 12, "vm7", Some(5));
    let e = find_device("vm7", None, &search(&folder)).unwrap_err();
    let (one, two) = (folder.path().join("link-1.sock"), folder.path().join("ctl.sock"));
    for words in [
        format!("pid 12 ({})", two.display()),
        format!("pid 11 ({})", one.display()),
        "--control SOCKET".to_owned(),
    ] {
        assert!(e.message.starts_with("vm7: ambiguous: ") && e.message.contains(&words), "{e}");
    }
    let at = Search::At(one.display().to_string());
    assert_eq!(find_device("vm7", None, &at).unwrap().instance.pid, 11);
    assert_eq!(find_device("vm8", None, &at).unwrap_err().code, Code::NoDevice);
}

// Goal: a device of the caller's network namespace has precedence over a device of the same name in
// another namespace. Two devices of the same name in the caller's namespace are ambiguous.
#[test]
fn the_own_namespace_wins() {
    let folder = Folder::new("netns");
    let _far = start(&folder, "link-1.sock", 21, "vm0", Some(5));
    let _near = start(&folder, "link-2.sock", 22, "vm0", Some(6));
    assert_eq!(find_device("vm0", Some(6), &search(&folder)).unwrap().instance.pid, 22);
    assert_eq!(find_device("vm0", Some(5), &search(&folder)).unwrap().instance.pid, 21);
    assert!(find_device("vm0", Some(7), &search(&folder)).is_err());
    let _also = start(&folder, "link-3.sock", 23, "vm0", Some(6));
    let e = find_device("vm0", Some(6), &search(&folder)).unwrap_err();
    assert!(e.message.contains("pid 22") && !e.message.contains("pid 21"), "{e}");
    assert!(own_netns().is_some_and(|inode| inode > 0));
}

// Goal: a link is found by its own name, and otherwise by the name of one of its netdevs.
#[test]
fn links_are_found() {
    let folder = Folder::new("links");
    // The link is named vm0, and its first netdev has another name.
    let _one = start(&folder, "link-1.sock", 31, "other", None);
    assert_eq!(find_link("vm0", None, &search(&folder)).unwrap().instance.pid, 31);
    assert_eq!(find_link("other", None, &search(&folder)).unwrap().instance.pid, 31);
    let e = find_link("none", None, &search(&folder)).unwrap_err();
    assert!(e.message.contains("`none`"), "{e}");
}

// Goal: stale sockets are removed, and foreign files are kept. A process that does not answer is
// reported and does not delay the others.
#[test]
fn the_dead_are_buried_and_the_silent_named() {
    let folder = Folder::new("silent");
    let dead = folder.path().join("link-99.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let foreign = folder.path().join("foreign.sock");
    drop(UnixListener::bind(&foreign).unwrap());
    let _silent = UnixListener::bind(folder.path().join("link-1.sock")).unwrap();
    let _alive = start(&folder, "ctl.sock", 41, "vm0", None);
    let begin = std::time::Instant::now();
    let survey = survey(&search(&folder)).unwrap();
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    assert!(!dead.exists() && foreign.exists());
    assert_eq!((survey.found.len(), survey.silent.len()), (1, 1));
    assert!(survey.silent[0].0.ends_with("link-1.sock"));
    let e = survey.clone().device("vm9", None).unwrap_err();
    let said = format!("link-1.sock, pid {} did not answer within 5 s", std::process::id());
    assert!(e.message.contains(&said), "{e}");
    assert_eq!(survey.device("vm0", None).unwrap().instance.pid, 41);
}

/// Forwards connections from `at` to `to` once `gate` is true.
fn pass_on_later(at: &Path, to: PathBuf, gate: Arc<AtomicBool>) {
    let listener = UnixListener::bind(at).unwrap();
    std::thread::spawn(move || {
        for mut from in listener.incoming().map_while(Result::ok) {
            let (to, gate) = (to.clone(), gate.clone());
            std::thread::spawn(move || {
                while !gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let mut onward = UnixStream::connect(to).unwrap();
                let halves = (onward.try_clone().unwrap(), from.try_clone().unwrap());
                let (mut answer, mut back) = halves;
                std::thread::spawn(move || std::io::copy(&mut answer, &mut back));
                // The client disconnects when it has its answer.
                let _ = std::io::copy(&mut from, &mut onward);
            });
        }
    });
}

// Goal: only a search that needs the answer of a busy process waits for that process.
#[test]
fn the_busy_are_waited_for() {
    let (folder, behind) = (Folder::new("busy"), Folder::new("behind"));
    let _late = start(&behind, "ctl.sock", 51, "vm5", None);
    let _alive = start(&folder, "link-2.sock", 52, "vm2", None);
    let gate = Arc::new(AtomicBool::new(false));
    let front = folder.path().join("link-1.sock");
    pass_on_later(&front, behind.path().join("ctl.sock"), gate.clone());
    assert_eq!(find_device("vm2", None, &search(&folder)).unwrap().instance.pid, 52);
    std::thread::spawn(move || {
        std::thread::sleep(IDENTITY_TIMEOUT + Duration::from_secs(1));
        gate.store(true, Ordering::Relaxed);
    });
    assert_eq!(find_device("vm5", None, &search(&folder)).unwrap().instance.pid, 51);
}

// Goal: an unreachable socket given by the user is reported with a remedy.
#[test]
fn unreachable_sockets_are_explained() {
    let folder = Folder::new("unreachable");
    let path = folder.path().join("ctl.sock");
    let at = path.display().to_string();
    let e = Client::connect(&at).unwrap_err();
    assert!(e.message.contains(&at) && e.message.contains("is mqnet running?"), "{e}");
    drop(UnixListener::bind(&path).unwrap());
    let e = find_device("vm0", None, &Search::At(at.clone())).unwrap_err();
    assert!(e.message.contains("no process listens there"), "{e}");
    assert!(Search::new(Some("@")).is_err());
    assert_eq!(Search::new(Some(&at)).unwrap(), Search::At(at));
}
