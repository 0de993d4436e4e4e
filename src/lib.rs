//! Rondo, the application: how the world reaches in, and what it keeps.
//!
//! [`serve`] is the one entry that `main`, tests and benches share.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod auth;
pub mod cli;
pub mod config;
pub mod doors;
pub mod error;
mod random;
pub mod telemetry;
pub mod tls;

use actix_web::dev::ServerHandle;
use actix_web::http::KeepAlive;
use actix_web::{HttpServer, web};
use config::Config;
use doors::Shared;
use rondo_actors::node::{Node, WorkerReport};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// An idle connection is kept this long.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Connections that wait to be taken.
const BACKLOG: i32 = 1024;
/// Requests under way when the server stops have this long, in seconds.
const STOP_S: u64 = 2;

/// A running server.
pub struct Running {
    addr: SocketAddr,
    node: Node,
    workers: Vec<WorkerReport>,
    handle: ServerHandle,
    drain: Duration,
    tls: Option<Arc<tls::Renewed>>,
}

impl Running {
    /// Address that HTTP is served on; with port 0 in the configuration, the one that the system chose.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate in use; `None` where HTTP is served in the clear.
    pub fn tls(&self) -> Option<&Arc<tls::Renewed>> {
        self.tls.as_ref()
    }

    /// The actors.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What each media worker said of itself.
    pub fn workers(&self) -> &[WorkerReport] {
        &self.workers
    }

    /// Takes nobody new, gives participants `limits.drain_s` to leave, then closes everything.
    pub async fn stop(self) {
        self.node.drain(self.drain).await;
        self.handle.stop(true).await;
        self.node.stop().await;
    }
}

/// Starts a server. Must run inside an actix system.
///
/// # Errors
/// A configuration that does not hold together, a port that is taken, a worker that cannot start: each a sentence.
pub async fn serve(config: Config) -> anyhow::Result<Running> {
    config.check()?;
    // Before the node: a bad certificate or a taken port must leave nothing running.
    let tls = tls::Files::of(&config.http).map(tls::Renewed::new).transpose()?;
    let bind = config.http_bind();
    let stalled_reader = Duration::from_secs(u64::from(config.limits.stalled_reader_s));
    let listener = listen(bind, stalled_reader).map_err(|error| cannot_bind(bind, &error))?;
    let addr = listener.local_addr()?;
    let (node, workers) = Node::start(config.node()).await?;
    let shared = web::Data::new(Shared::new(node.clone(), &config, tls.clone()));
    let threads = config.http.workers;
    let server = HttpServer::new(move || doors::app(shared.clone()))
        .workers(threads)
        .disable_signals()
        .shutdown_timeout(STOP_S)
        .client_request_timeout(Duration::from_secs(u64::from(config.limits.header_read_s)))
        .client_disconnect_timeout(Duration::from_secs(1))
        .keep_alive(KeepAlive::Timeout(KEEP_ALIVE))
        .max_connections(config.http.connections_max.div_ceil(threads))
        .tls_handshake_timeout(Duration::from_secs(u64::from(config.limits.header_read_s)));
    let server = match &tls {
        Some(renewed) => {
            actix_rt::spawn(renewed.clone().watch());
            server.listen_rustls_0_23(listener, renewed.server_config()?)?
        }
        None => server.listen(listener)?,
    }
    .run();
    let handle = server.handle();
    actix_rt::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "HTTP ended");
        }
    });
    tracing::info!(%addr, tls = tls.is_some(), workers = workers.len(), dev = config.dev, "listening");
    Ok(Running { addr, node, workers, handle, drain: Duration::from_secs(u64::from(config.limits.drain_s)), tls })
}

/// `stalled_reader`: how long a peer may leave what was sent to it unread. Without it an event stream whose reader
/// sleeps holds its connection until that reader's host is switched off.
fn listen(addr: SocketAddr, stalled_reader: Duration) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // A restarted server may take the port while connections of the old one are still being forgotten.
    socket.set_reuse_address(true)?;
    // Accepted connections inherit it (tcp(7), TCP_USER_TIMEOUT).
    socket.set_tcp_user_timeout(Some(stalled_reader))?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Why TCP could not be bound, and what to do.
pub fn cannot_bind(addr: SocketAddr, error: &io::Error) -> anyhow::Error {
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses it (perhaps another Rondo); stop it, or choose another port with http.bind"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; choose another with http.bind",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a permission; choose another with http.bind",
        _ => "choose another address with http.bind",
    };
    anyhow::anyhow!("cannot serve HTTP on {addr}: {cure} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_explained() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let error = std::net::TcpListener::bind(addr).unwrap_err();
        let text = cannot_bind(addr, &error).to_string();
        assert!(text.contains(&addr.to_string()) && text.contains("http.bind"), "{text}");
    }
}
