use super::super::protocol::Roster;
use super::*;

const VECTORS_EACH: u16 = 3;

struct Client {
    socket: StreamSocket,
    roster: Roster<OwnedFd, EventFd>,
}

impl Client {
    fn join(server: &IvshmemServer) -> Self {
        let socket = StreamSocket::connect(&server.config.path).unwrap();
        Self { socket, roster: Roster::new() }
    }

    fn listen(&mut self) {
        loop {
            let mut bytes = [0; 8];
            let room = &mut bytes[..self.roster.missing()];
            let Some(received) = self.socket.receive(room).unwrap() else { return };
            assert!(received.len > 0 && !received.truncated, "the server is gone");
            self.roster.take(&bytes[..received.len], received.fds, EventFd::from_peer).unwrap();
        }
    }

    fn knows(&self) -> Vec<u16> {
        assert!(self.roster.peers.values().all(|e| e.len() == usize::from(VECTORS_EACH)));
        self.roster.peers.keys().copied().collect()
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mqnet-ivshmem-{name}-{}", std::process::id()))
}

fn server(name: &str) -> IvshmemServer {
    let config = ServerConfig { path: path(name), size: 1 << 20, vectors: VECTORS_EACH };
    IvshmemServer::new(config).unwrap()
}

/// Polls the server and the clients often enough to deliver all messages.
fn settle(server: &mut IvshmemServer, clients: &mut [Client]) {
    for _ in 0..50 {
        server.turn(Duration::ZERO);
        clients.iter_mut().for_each(Client::listen);
    }
}

// Rule: all peers receive the memory and each other's events. If a peer leaves, the others remove
// it, and the next peer gets its number.
#[test]
fn many_peers_know_each_other() {
    let mut server = server("many");
    // The listen backlog is short, so the clients join one after another.
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(Client::join(&server));
        settle(&mut server, &mut clients);
    }
    let all: Vec<u16> = (0..12).collect();
    for (id, client) in clients.iter().enumerate() {
        assert_eq!(client.roster.id, Some(id as u16));
        assert_eq!(client.knows(), all);
        let memory = client.roster.memory.as_ref().unwrap();
        assert_eq!(memory::file_len(memory.as_fd()).unwrap(), 1 << 20);
    }
    drop(clients.remove(5));
    settle(&mut server, &mut clients);
    let left: Vec<u16> = all.iter().copied().filter(|&id| id != 5).collect();
    assert!(clients.iter().all(|client| client.knows() == left));
    clients.push(Client::join(&server));
    settle(&mut server, &mut clients);
    assert_eq!(clients.last().unwrap().roster.id, Some(5));
    assert!(clients.iter().all(|client| client.knows() == all));
    // A client that signals another client's event makes that event readable at the other client.
    let theirs = &clients[0].roster.peers[&5][1];
    theirs.ring().unwrap();
    let own = &clients.last().unwrap().roster.own()[1];
    assert!(mqnet_sysio::poll::is_readable(own.as_fd()).unwrap());
}

// Rule: a peer that never reads delays no other peer, and is removed after `PATIENCE`.
#[test]
fn a_hung_peer_is_put_out() {
    let mut server = server("hung");
    let hung = StreamSocket::connect(&server.config.path).unwrap();
    let mut clients = vec![Client::join(&server)];
    for _ in 0..600 {
        settle_once(&mut server, &mut clients);
        clients.push(Client::join(&server));
        settle_once(&mut server, &mut clients);
        clients.pop();
    }
    assert!(server.peers[&0].waiting.len() > 100, "its socket took everything");
    let lines = server.turn(PATIENCE + Duration::from_secs(1));
    assert!(lines.contains(&"peer 0 left: it does not read its messages".to_owned()), "{lines:?}");
    settle(&mut server, &mut clients);
    assert_eq!(clients[0].knows(), [1]);
    drop(hung);
}

fn settle_once(server: &mut IvshmemServer, clients: &mut [Client]) {
    server.turn(Duration::ZERO);
    clients.iter_mut().for_each(Client::listen);
}

// Rule: a path in a folder that does not exist is refused; the error names the folder and the
// remedy.
#[test]
fn missing_folder_is_named() {
    let path = PathBuf::from("/nonexistent/x.sock");
    let refused =
        IvshmemServer::new(ServerConfig { path, size: 1 << 20, vectors: 1 }).err().unwrap();
    let why = "/nonexistent/x.sock: no folder /nonexistent: create it, or choose another path";
    assert_eq!(refused, why);
}

// Rule: a socket or file in use refuses a second server, with the reason. The socket of a killed
// server does not block the next server.
#[test]
fn sockets_are_not_shared() {
    let first = server("twice");
    let config = first.config.clone();
    let refused = IvshmemServer::new(config.clone()).err().unwrap();
    assert!(refused.starts_with("another server listens at"), "{refused}");
    drop(first);
    let stale = StreamSocket::listen(&config.path).unwrap();
    assert!(
        IvshmemServer::new(config.clone())
            .err()
            .unwrap()
            .contains(": another process listens there")
    );
    drop(stale);
    drop(IvshmemServer::new(config.clone()).unwrap());
    std::fs::write(&config.path, "").unwrap();
    let refused = IvshmemServer::new(config.clone()).err().unwrap();
    assert!(refused.contains("is not a socket"), "{refused}");
    std::fs::remove_file(&config.path).unwrap();
    let odd = ServerConfig { size: 3 << 20, ..config };
    assert!(IvshmemServer::new(odd).err().unwrap().contains("powers of two from 1M to 1G"));
}
