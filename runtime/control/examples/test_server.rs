//! Server for a host of null functions: `test_server SOCKET [ADDRESS:PORT]`. Runs until killed.

use std::str::FromStr;
use std::sync::{Arc, Mutex};

use mqnet_control::socket::{ControlSocket, Places, Role, SocketAddress, SocketOptions};
use mqnet_control::testing::TestHost;
use mqnet_control::{notify, serve, serve_tcp};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let socket = ControlSocket::inherited()?;
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: test_server SOCKET [ADDRESS:PORT]")?;
    let options = SocketOptions {
        address: Some(SocketAddress::from_str(&path)?),
        ..SocketOptions::default()
    };
    let socket = match socket {
        Some(socket) => socket,
        None => ControlSocket::open(&options, Role::Daemon, &Places::from_env())?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&socket, args.next()))
}

async fn run(socket: &ControlSocket, tcp: Option<String>) -> Result<()> {
    let host = TestHost::serve(Arc::new(Mutex::new(TestHost::new())));
    if let Some(address) = tcp {
        let listener = tokio::net::TcpListener::bind(address).await?;
        tokio::spawn(serve_tcp(listener, host.clone()));
    }
    tokio::spawn(notify::watchdog(|| true));
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    notify::ready(&format!("listening at {}", socket.address())).await;
    tokio::select! {
        () = serve(socket.listener()?, host) => {}
        _ = stop.recv() => notify::stopping().await,
    }
    Ok(())
}
