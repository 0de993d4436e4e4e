//! The server in this process, on free ports.

use super::http::Api;
use super::token;
use rondo::config::{Config, Secret};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running server; stopped when dropped.
pub struct TestServer {
    addr: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// A server for development: guests may publish and play, on IPv4 and IPv6; tokens of [`token::KEY`] are taken.
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// The same, with a changed configuration.
    pub fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::dev();
        config.http.bind = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.media.bind = Ipv6Addr::UNSPECIFIED.into();
        config.media.advertise = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        config.media.first_port = 0;
        config.media.workers = Some(1);
        config.media.pin = false;
        config.limits.drain_s = 0;
        config.auth.keys.0.insert(token::KEY.to_owned(), Secret::new(token::SECRET));
        change(&mut config);
        let (ready, started) = channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || serve(config, &ready, stopped));
        let addr = started.recv_timeout(Duration::from_secs(15)).expect("the server starts");
        Self { addr, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it serves HTTP.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its HTTP interface, asked without a token.
    pub fn api(&self) -> Api {
        Api::new(&format!("http://{}", self.addr))
    }
}

fn serve(config: Config, ready: &Sender<SocketAddr>, stopped: tokio::sync::oneshot::Receiver<()>) {
    actix_rt::System::new().block_on(async move {
        let running = rondo::serve(config).await.expect("the server starts");
        ready.send(running.addr()).expect("the test waits");
        // An error is the test's end, too.
        let _ = stopped.await;
        running.stop().await;
    });
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server's thread failed; its message stands above");
        }
    }
}
