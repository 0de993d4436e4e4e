//! `rondo serve`: start, say how to use it, stop in order.

use super::Failure;
use crate::config::{Config, DEV_KEY, LogFormat};
use crate::tls::{Files, TlsError};
use crate::{Running, telemetry};
use std::fmt::Write;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What may still be under way after draining has this long.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Runs until a signal.
pub fn run(config: Config) -> Result<(), Failure> {
    let failed = |error: anyhow::Error| match error.downcast_ref::<TlsError>() {
        // The files are named in the configuration: it is wrong, or they are.
        Some(error) => Failure::Usage(error.to_string()),
        None => Failure::Failed(format!("{error:#}")),
    };
    let telemetry = telemetry::init(&config.telemetry).map_err(failed)?;
    // Never dropped: dropping waits for every blocking thread, and a stuck one must not keep the process alive.
    let system = ManuallyDrop::new(actix_rt::System::new());
    let done = system.block_on(until_signal(config)).map_err(failed);
    telemetry.flush();
    done
}

async fn until_signal(config: Config) -> anyhow::Result<()> {
    // Before the server starts: a signal in between must not be lost.
    let mut signals = Signals::new(Files::of(&config.http).is_some())?;
    let running = crate::serve(config.clone()).await?;
    let summary = summary(&config, &running);
    match config.telemetry.log_format {
        LogFormat::Text => println!("{summary}"),
        LogFormat::Json => tracing::info!(addr = %running.addr(), "ready"),
    }
    let name = loop {
        match signals.next_or_reload().await {
            Some(name) => break name,
            None => {
                if let Some(tls) = running.tls() {
                    tls.reload();
                }
            }
        }
    };
    tracing::info!(signal = name, drain_s = config.limits.drain_s, "stopping: no new joins, participants are told");
    let within = Duration::from_secs(u64::from(config.limits.drain_s)) + STOP_WITHIN;
    tokio::select! {
        stopped = tokio::time::timeout(within, running.stop()) => match stopped {
            Ok(()) => tracing::info!("stopped"),
            Err(_) => tracing::error!(within_s = within.as_secs(), "stopped in the middle: not everything ended in time"),
        },
        name = signals.next() => tracing::warn!(signal = name, "stopped at once by a second signal"),
    }
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Only with TLS: without it SIGHUP ends the process, as whoever closes a terminal expects.
    hangup: Option<Signal>,
}

impl Signals {
    fn new(tls: bool) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: tls.then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }
    /// The signal to end.
    async fn next(&mut self) -> &'static str {
        loop {
            if let Some(name) = self.next_or_reload().await {
                return name;
            }
        }
    }
    /// The signal to end, or `None` for SIGHUP.
    async fn next_or_reload(&mut self) -> Option<&'static str> {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Some("SIGTERM"),
            _ = self.interrupt.recv() => Some("SIGINT"),
            _ = hangup => None,
        }
    }
}

/// What a person needs to know to use the server that just started.
fn summary(config: &Config, running: &Running) -> String {
    let scheme = if running.tls().is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable(config, running.addr()));
    let workers = running.workers();
    let list = |items: Vec<String>| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {name:<14} {value}");
    };
    if cfg!(feature = "ui") {
        line("pages", format!("{url}/"));
    }
    line("publish", format!("{url}/whip/{{room}}            (WHIP: OBS, browsers)"));
    line("play", format!("{url}/whep/{{room}}            (WHEP)"));
    line("API", format!("{url}/api/v1/openapi.json"));
    line("operations", format!("{url}/healthz, /readyz, /metrics"));
    line("media", format!("UDP {}", list(workers.iter().map(|w| w.addr.to_string()).collect())));
    line("told to peers", list(config.advertised().iter().map(ToString::to_string).collect()));
    let cores = workers.iter().map(|w| w.core.map_or("not pinned".to_owned(), |core| format!("core {core}")));
    line("workers", format!("{} ({})", workers.len(), list(cores.collect())));
    let smallest = workers.iter().map(|w| w.receive_buffer_bytes).min().unwrap_or(0);
    let gso = workers.iter().map(|w| w.gso_segments).min().unwrap_or(1);
    line("buffers", format!("{} KiB to receive; {gso} packets in one send", smallest / 1024));
    line("who may join", joiners(config));
    let next = if config.dev {
        format!("open {url}/ in a browser, or publish from OBS to {url}/whip/demo. Ctrl-C stops.")
    } else {
        "make a token: rondo token create --room demo --identity ann".to_owned()
    };
    line("next", next);
    let mode = if config.dev { ", development mode (this machine only)" } else { "" };
    format!("Rondo {} is running{mode}\n\n{out}", env!("CARGO_PKG_VERSION"))
}

/// An address that a person can open: the first one told to peers where HTTP listens on all of them.
fn reachable(config: &Config, addr: SocketAddr) -> SocketAddr {
    let told = config.advertised().into_iter().find(|ip| ip.is_ipv4() || addr.is_ipv6());
    match told {
        Some(ip) if addr.ip().is_unspecified() => SocketAddr::new(ip, addr.port()),
        _ => addr,
    }
}

fn joiners(config: &Config) -> String {
    if config.dev {
        format!("anybody on this machine; tokens are made with the key {:?}", DEV_KEY.0)
    } else {
        let keys: Vec<&str> = config.auth.keys.0.keys().map(String::as_str).collect();
        format!("whoever has a token of {}", keys.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_an_address_that_opens() {
        let mut config = Config::default();
        config.media.advertise = vec!["2001:db8::1".parse().unwrap(), "203.0.113.9".parse().unwrap()];
        let told = |addr: &str| reachable(&config, addr.parse().unwrap()).to_string();
        assert_eq!(told("0.0.0.0:7880"), "203.0.113.9:7880");
        assert_eq!(told("[::]:7880"), "[2001:db8::1]:7880");
        assert_eq!(told("127.0.0.1:80"), "127.0.0.1:80");
    }
}
