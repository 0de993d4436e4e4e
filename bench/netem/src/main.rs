//! `rondo-netem`: a UDP proxy that makes the way to a server bad.

use clap::Parser;
use rondo_netem::{Link, Schedule, Stats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;
/// Answers of the server that wait to be looked at; what is more waits in the kernel.
const ANSWERS: usize = 1_024;

/// A UDP proxy in front of a server, over links whose delay, loss, rate and queue follow schedules.
///
/// A schedule is a JSON list: [{"rate_kbps": 3000, "delay_ms": 20}, {"at_ms": 20000, "rate_kbps": 600}]. Fields: at_ms,
/// delay_ms, jitter_ms, loss, loss_burst, reorder, duplicate, rate_kbps, queue_ms, blackout. Its time begins with the first
/// datagram. Once a second a line of JSON says what happened.
#[derive(Parser)]
#[command(name = "rondo-netem", version)]
struct Options {
    /// Where clients send to; port 0 takes a free one, which the first line names.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The server's media address.
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Schedule of the way from the server to each client.
    #[arg(long, value_name = "FILE")]
    down: Option<PathBuf>,
    /// Schedule of the way from each client to the server.
    #[arg(long, value_name = "FILE")]
    up: Option<PathBuf>,
    /// All clients are behind one link.
    #[arg(long)]
    shared: bool,
    /// Decides every arbitrary number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at once; datagrams of more are dropped.
    #[arg(long, default_value_t = 64, value_name = "N")]
    clients_max: usize,
    /// Let it listen on and send to other addresses than this machine's own.
    #[arg(long)]
    any: bool,
}

/// Both ways, for one client or for all.
struct Links {
    up: Link<(SocketAddr, Vec<u8>)>,
    down: Link<(SocketAddr, Vec<u8>)>,
}

struct Client {
    upstream: Arc<UdpSocket>,
    links: usize,
}

/// What a line says of one way.
#[derive(Serialize)]
struct Told {
    sent: u64,
    delivered: u64,
    bytes: u64,
    dropped_queue: u64,
    lost: u64,
    queue_ms_max: f64,
}

impl From<Stats> for Told {
    fn from(stats: Stats) -> Self {
        let Stats { sent, delivered, bytes, dropped_queue, lost, queue_us_max } = stats;
        Self { sent, delivered, bytes, dropped_queue, lost, queue_ms_max: queue_us_max as f64 / 1_000.0 }
    }
}

#[derive(Serialize)]
struct Line {
    second: u64,
    clients: usize,
    up: Vec<Told>,
    down: Vec<Told>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|e| format!("no runtime: {e}")).and_then(|runtime| runtime.block_on(run(options)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rondo-netem: {error}");
            ExitCode::from(2)
        }
    }
}

fn schedule(file: Option<&Path>) -> Result<Schedule, String> {
    let Some(file) = file else { return Schedule::from_json("[{}]").map_err(|e| e.to_string()) };
    let text = std::fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    Schedule::from_json(&text).map_err(|e| format!("{}: {e}", file.display()))
}

struct Proxy {
    options: Options,
    schedules: (Schedule, Schedule),
    listen: Arc<UdpSocket>,
    begun: Option<Instant>,
    clients: BTreeMap<SocketAddr, Client>,
    links: Vec<Links>,
    answers: mpsc::Sender<(SocketAddr, Vec<u8>)>,
}

async fn run(options: Options) -> Result<(), String> {
    for (name, addr) in [("--listen", options.listen), ("--to", options.to)] {
        if !options.any && !addr.ip().is_loopback() {
            return Err(format!("{name} {addr} is not on this machine; say --any if that is meant"));
        }
    }
    let schedules = (schedule(options.up.as_deref())?, schedule(options.down.as_deref())?);
    let bound = UdpSocket::bind(options.listen).await;
    let listen = Arc::new(bound.map_err(|e| format!("{} cannot be listened on: {e}", options.listen))?);
    let addr = listen.local_addr().map_err(|e| format!("no address: {e}"))?;
    println!("{}", serde_json::json!({ "listen": addr, "to": options.to }));
    let (answers, mut answered) = mpsc::channel(ANSWERS);
    let mut proxy =
        Proxy { options, schedules, listen, begun: None, clients: BTreeMap::new(), links: Vec::new(), answers };
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut seconds = 0;
    let mut buffer = vec![0; DATAGRAM_MAX];
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|e| format!("no signals: {e}"))?;
    loop {
        let wake = proxy.deliver().await.map_or(Duration::from_secs(60), |at| at.saturating_sub(proxy.now()));
        tokio::select! {
            received = proxy.listen.recv_from(&mut buffer) => {
                // An error is that of an earlier send: the client has gone.
                let Ok((len, from)) = received else { continue };
                proxy.client_said(from, &buffer[..len]).await?;
            }
            Some((to, datagram)) = answered.recv() => proxy.server_said(to, datagram),
            () = tokio::time::sleep(wake) => {}
            _ = second.tick() => {
                if proxy.begun.is_some() {
                    proxy.tell(seconds);
                    seconds += 1;
                }
            }
            _ = tokio::signal::ctrl_c() => return Ok(()),
            _ = terminated.recv() => return Ok(()),
        }
    }
}

impl Proxy {
    fn now(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    async fn client_said(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), String> {
        self.begun.get_or_insert_with(Instant::now);
        let now = self.now();
        if !self.clients.contains_key(&from) {
            if self.clients.len() >= self.options.clients_max {
                return Ok(());
            }
            let client = self.client(from).await.map_err(|e| format!("no socket to {}: {e}", self.options.to))?;
            self.clients.insert(from, client);
        }
        if let Some(links) = self.clients.get(&from).and_then(|client| self.links.get_mut(client.links)) {
            let _dropped = links.up.send(now, datagram.len(), (from, datagram.to_vec()));
        }
        Ok(())
    }

    async fn client(&mut self, from: SocketAddr) -> std::io::Result<Client> {
        let upstream = Arc::new(UdpSocket::bind(SocketAddr::new(self.options.to.ip(), 0).to_any()).await?);
        upstream.connect(self.options.to).await?;
        if self.links.is_empty() || !self.options.shared {
            let seed = self.options.seed.wrapping_add(2 * self.links.len() as u64);
            let (up, down) = self.schedules.clone();
            self.links.push(Links { up: Link::new(up, seed), down: Link::new(down, seed.wrapping_add(1)) });
        }
        let (reads, answers) = (Arc::clone(&upstream), self.answers.clone());
        tokio::spawn(async move {
            let mut buffer = vec![0; DATAGRAM_MAX];
            loop {
                // The server is not there (yet): the next datagram may find it.
                let Ok(len) = reads.recv(&mut buffer).await else { continue };
                if answers.send((from, buffer[..len].to_vec())).await.is_err() {
                    return;
                }
            }
        });
        Ok(Client { upstream, links: self.links.len() - 1 })
    }

    fn server_said(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        let now = self.now();
        if let Some(links) = self.clients.get(&to).and_then(|client| self.links.get_mut(client.links)) {
            let _dropped = links.down.send(now, datagram.len(), (to, datagram));
        }
    }

    /// Sends on what has arrived; when the next one does.
    async fn deliver(&mut self) -> Option<Duration> {
        let now = self.now();
        let mut next = None;
        for links in &mut self.links {
            while let Some((from, datagram)) = links.up.poll(now) {
                if let Some(client) = self.clients.get(&from) {
                    let _gone = client.upstream.send(&datagram).await;
                }
            }
            while let Some((to, datagram)) = links.down.poll(now) {
                let _gone = self.listen.send_to(&datagram, to).await;
            }
            next = [next, links.up.deadline(), links.down.deadline()].into_iter().flatten().min();
        }
        next
    }

    fn tell(&mut self, second: u64) {
        let (up, down) =
            self.links.iter_mut().map(|links| (links.up.stats().into(), links.down.stats().into())).unzip();
        let line = Line { second, clients: self.clients.len(), up, down };
        if let Ok(line) = serde_json::to_string(&line) {
            println!("{line}");
        }
    }
}

/// Any address of the same family: the route to a server elsewhere chooses it.
trait ToAny {
    fn to_any(self) -> SocketAddr;
}

impl ToAny for SocketAddr {
    fn to_any(self) -> SocketAddr {
        match self.ip().is_loopback() {
            true => self,
            false if self.is_ipv4() => SocketAddr::from(([0, 0, 0, 0], 0)),
            false => SocketAddr::from(([0u16; 8], 0)),
        }
    }
}
