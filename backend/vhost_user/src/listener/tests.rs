//! Tests of the connection thread without a VMM.

use mqnet_sysio::socket::StreamSocket;
use vhost::vhost_user::message::FrontendReq;

use super::*;
use crate::offer::Offer;

fn thread() -> ConnectionThread {
    let offer = Offer { mac: None, mtu: None, pairs: 1, packed: false, ctrl: false };
    ConnectionThread {
        end: Arc::new(EventFd::new().unwrap()),
        connection: Arc::default(),
        shared: Arc::new(Shared::new(offer).unwrap()),
        refused: 0,
    }
}

fn message(request: FrontendReq, body: &[u8]) -> Vec<u8> {
    let header = [request as u32, 1, body.len() as u32];
    [header.map(u32::to_ne_bytes).concat(), body.to_vec()].concat()
}

// Goal: a descriptor that can block is refused even in messages that the crate `vhost` does not
// handle. The process keeps the descriptor open, because closing it may block.
#[test]
fn descriptors_of_early_messages_are_refused() {
    for (request, body) in [(FrontendReq::SET_STATUS, &[0; 8][..]), (FrontendReq::GET_STATUS, &[])]
    {
        let mut thread = thread();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let relay = thread.relay(&ours, &mut String::new()).unwrap();
        let vmm = StreamSocket::from(OwnedFd::from(theirs));
        let (reader, writer) = std::io::pipe().unwrap();
        vmm.send(&message(request, body), &[writer.as_fd()]).unwrap();
        drop(writer);
        let why = thread.serve(&ours, relay);
        assert!(why.contains("neither an eventfd nor a file"), "{request:?}: {why}");
        assert_eq!(thread.refused, 1, "{request:?}");
        assert!(!poll::is_readable(reader.as_fd()).unwrap(), "{request:?}: the pipe has ended");
    }
    // An eventfd cannot block, but these messages must not carry descriptors.
    let mut thread = thread();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let relay = thread.relay(&ours, &mut String::new()).unwrap();
    let event = EventFd::new().unwrap();
    let vmm = StreamSocket::from(OwnedFd::from(theirs));
    vmm.send(&message(FrontendReq::SET_STATUS, &[0; 8]), &[event.as_fd()]).unwrap();
    let why = thread.serve(&ours, relay);
    assert!(why.contains("descriptors with a message that allows none"), "{why}");
    assert_eq!(thread.refused, 0);
}

// Rule: after a connection, the status contains the reason for its end, even while the thread
// already waits for the next connection.
#[test]
fn status_names_the_end_of_the_connection() {
    let thread = thread();
    let (end, connection) = (thread.end.clone(), thread.connection.clone());
    let shared = thread.shared.clone();
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let source = ConnectionSource::Once(Some(ours));
    let running = std::thread::spawn(move || thread.run(source));
    let why = mqnet_testkit::until("the second wait", || {
        shared.lock().why_down().filter(|why| why.contains("inherited connection"))
    });
    assert!(why.starts_with("the VMM disconnected ("), "{why}");
    lock(&connection).over = true;
    end.ring().unwrap();
    running.join().unwrap();
}
