//! Configuration: every setting defined once, with its default, its bounds and its meaning.
//!
//! Layers, later ones win: the defaults below, `rondo.toml`, `RONDO_SECTION__KEY` in the environment, flags.
//! `rondo.example.toml` is written from the same definitions ([`Config::example`]).

mod load;
mod value;

pub use load::{ConfigError, FlagValue, Origin, Sources};
pub use value::{Keys, LogFormat, Secret};

use rondo_actors::api::{Limits, MediaConfig, NodeConfig, RoomTimes, VideoCaps};
use rondo_media::units::Bitrate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;
use value::{Given, Setting};

/// A setting as documents and errors show it.
#[derive(Debug, Clone)]
pub struct KeyDoc {
    /// `[section]`.
    pub section: &'static str,
    /// The key in it.
    pub key: &'static str,
    /// What it means.
    pub doc: String,
    /// What is allowed, as the end of a sentence.
    pub allowed: &'static str,
    /// The default as TOML, absent where leaving it out means something of its own.
    pub default: Option<String>,
    /// A value to show where there is no default.
    pub example: &'static str,
}

/// Why one value was not taken.
enum Rejected {
    UnknownSection,
    UnknownKey,
    NotAllowed { allowed: &'static str, secret: bool },
}

macro_rules! sections {
    ($(
        $(#[doc = $section_doc:literal])+
        [$section:ident] $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $ty:ty = $default:expr, $allowed:literal, $valid:expr $(, example $example:literal)?;
            )+
        }
    )+) => {
        /// The whole configuration of one server.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct Config {
            /// Development mode (`--dev`): HTTP on loopback only, and a request without a token is a guest.
            pub dev: bool,
            $( $(#[doc = $section_doc])+ pub $section: $Section, )+
        }
        $(
            $(#[doc = $section_doc])+
            #[derive(Debug, Clone, PartialEq)]
            pub struct $Section { $( $(#[doc = $doc])+ pub $key: $ty, )+ }
            impl Default for $Section {
                fn default() -> Self {
                    Self { $( $key: $default, )+ }
                }
            }
        )+
        impl Config {
            /// Names and meanings of the sections, in file order.
            const SECTIONS: &[(&str, &str)] = &[$( (stringify!($section), concat!($($section_doc, "\n"),+)), )+];

            /// Every setting, in file order.
            pub fn keys() -> Vec<KeyDoc> {
                let defaults = Config::default();
                vec![$($( KeyDoc {
                    section: stringify!($section),
                    key: stringify!($key),
                    doc: concat!($($doc, "\n"),+).to_owned(),
                    allowed: $allowed,
                    default: defaults.$section.$key.to_toml(),
                    example: concat!($($example)?),
                }, )+)+]
            }

            fn set(&mut self, section: &str, key: &str, given: Given<'_>) -> Result<(), Rejected> {
                match section {
                    $( stringify!($section) => match key {
                        $( stringify!($key) => {
                            let valid: fn(&$ty) -> bool = $valid;
                            self.$section.$key = <$ty as Setting>::read(given)
                                .filter(valid)
                                .ok_or(Rejected::NotAllowed { allowed: $allowed, secret: <$ty as Setting>::SECRET })?;
                            Ok(())
                        } )+
                        _ => Err(Rejected::UnknownKey),
                    }, )+
                    _ => Err(Rejected::UnknownSection),
                }
            }
        }
    };
}

sections! {
    /// Pages, HTTP API, WHIP, WHEP and events: one TCP port.
    [http] Http {
        /// Address and port. Left out: 127.0.0.1:7880 with --dev (other addresses are refused there), else 0.0.0.0:7880.
        bind: Option<SocketAddr> = None, "an IP address with a port, such as \"0.0.0.0:7880\" or \"[::]:7880\"",
            |_| true, example "\"0.0.0.0:7880\"";
        /// PEM file of the server's certificate, followed by its chain. With it and tls_key everything is served over
        /// https; both files are read again when they change, and on SIGHUP.
        tls_cert: Option<PathBuf> = None, "the path of a file", |p| p.as_ref().is_none_or(|p| !p.as_os_str().is_empty()),
            example "\"/etc/rondo/fullchain.pem\"";
        /// PEM file of the certificate's private key, without a passphrase.
        tls_key: Option<PathBuf> = None, "the path of a file", |p| p.as_ref().is_none_or(|p| !p.as_os_str().is_empty()),
            example "\"/etc/rondo/privkey.pem\"";
        /// Threads that serve HTTP. Media has threads of its own.
        workers: usize = 2, "a number of threads from 1 to 64", |n| (1..=64).contains(n);
        /// Open connections at once; an event stream holds one for as long as its page is open.
        connections_max: usize = 10_000, "a number of connections from 16 to 1000000", |n| (16..=1_000_000).contains(n);
    }
    /// Media: one UDP socket for each worker thread.
    [media] Media {
        /// Address to bind. "::" serves IPv6 and IPv4 from one socket, IPv4 alone where there is no IPv6.
        bind: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED), "an IP address without a port", |ip| !ip.is_multicast();
        /// Addresses told to peers, best first. Left out: the bind address if it names one machine, else this
        /// machine's outward address, with --dev the loopback address before it. Behind NAT: the public address.
        advertise: Vec<IpAddr> = Vec::new(), "a list of IP addresses that peers can reach, without ports",
            |ips| ips.iter().all(|ip| !ip.is_unspecified() && !ip.is_multicast()), example "[\"203.0.113.10\"]";
        /// UDP port of the first worker; the next one has the next port.
        first_port: u16 = 7882, "a UDP port from 0 to 65535; 0 lets the system choose", |_| true;
        /// Worker threads. Left out: one for each core.
        workers: Option<usize> = None, "a number of threads from 1 to 32", |n| n.is_none_or(|n| (1..=32).contains(&n)),
            example "2";
        /// Keep each worker on a core of its own.
        pin: bool = true, "true or false", |_| true;
    }
    /// Who may come in.
    [auth] Auth {
        /// API keys and their secrets; access tokens are signed with them (HS256). In the environment:
        /// RONDO_AUTH__KEYS="key:secret,key2:secret2". A secret has 32 characters or more, except with --dev.
        /// Make one with: openssl rand -hex 32
        keys: Keys = Keys::default(), "a table of key = \"secret\", neither of them empty; in the environment key:secret,…",
            |_| true, example "{ mykey = \"…\" }";
    }
    /// Bounds. Whoever meets one is told which.
    [limits] Bounds {
        /// Participants of one room.
        participants_per_room: usize = 500, "a number from 1 to 100000", |n| (1..=100_000).contains(n);
        /// Rooms at once.
        rooms: usize = 10_000, "a number from 1 to 1000000", |n| (1..=1_000_000).contains(n);
        /// Sessions of one worker.
        sessions_per_worker: usize = 2_000, "a number from 1 to 100000", |n| (1..=100_000).contains(n);
        /// Connections of one participant.
        transports_per_session: usize = 8, "a number from 1 to 64", |n| (1..=64).contains(n);
        /// Event streams of one room.
        event_streams_per_room: usize = 1_000, "a number from 1 to 100000", |n| (1..=100_000).contains(n);
        /// An SDP or a trickle fragment, in bytes.
        sdp_bytes: usize = 128 * 1024, "a number of bytes from 4096 to 1048576", |n| (4096..=1_048_576).contains(n);
        /// Any other HTTP body, in bytes.
        body_bytes: usize = 256 * 1024, "a number of bytes from 4096 to 16777216", |n| (4096..=16_777_216).contains(n);
        /// Seconds until the headers of a request must have come.
        header_read_s: u32 = 5, "seconds from 1 to 120", |n| (1..=120).contains(n);
        /// Seconds that a peer may leave what was sent to it unread, or unacknowledged, before its connection is closed.
        stalled_reader_s: u32 = 30, "seconds from 1 to 600", |n| (1..=600).contains(n);
        /// Seconds from the answer until media must be connected.
        join_deadline_s: u32 = 15, "seconds from 1 to 300", |n| (1..=300).contains(n);
        /// Seconds of silence until a participant is shown as disconnected.
        silent_after_s: u32 = 5, "seconds from 1 to 300", |n| (1..=300).contains(n);
        /// Seconds of silence until a participant is gone.
        gone_after_s: u32 = 15, "seconds from 1 to 3600", |n| (1..=3600).contains(n);
        /// What a camera in a call or conference may send, where it has no layers; its publisher is asked to stay below.
        camera_kbps: u32 = 1_200, "kbit/s from 100 to 100000", |n| (100..=100_000).contains(n);
        /// The same, of a shared screen.
        screen_kbps: u32 = 2_500, "kbit/s from 100 to 100000", |n| (100..=100_000).contains(n);
        /// The same, of a live push.
        live_kbps: u32 = 8_000, "kbit/s from 100 to 100000", |n| (100..=100_000).contains(n);
        /// Seconds that participants have to leave when the server is stopped.
        drain_s: u32 = 10, "seconds from 0 to 3600", |n| *n <= 3600;
    }
    /// How long rooms live without people.
    [rooms] Rooms {
        /// Seconds until a room that nobody ever entered ends.
        empty_timeout_s: u32 = 300, "seconds from 0 to 604800", |n| *n <= 604_800;
        /// Seconds until a room ends after the last one left.
        departure_timeout_s: u32 = 20, "seconds from 0 to 604800", |n| *n <= 604_800;
    }
    /// Logs. OpenTelemetry export is set by its own standard variables (OTEL_EXPORTER_OTLP_ENDPOINT and others).
    [telemetry] Telemetry {
        /// "text" for people, "json" for machines. Logs go to standard error.
        log_format: LogFormat = LogFormat::Text, "\"text\" or \"json\"", |_| true;
        /// What is logged, as in RUST_LOG, which wins over it.
        log_filter: String = "info,actix_server=warn".to_owned(), "a filter such as \"info\" or \"warn,rondo=debug\"",
            |filter| tracing_subscriber::EnvFilter::try_new(filter).is_ok();
        /// Write peers' addresses into logs and traces.
        log_addresses: bool = false, "true or false", |_| true;
    }
}

/// The key pair that exists with `--dev`, known to everybody.
pub const DEV_KEY: (&str, &str) = ("devkey", "secret");
/// Bytes of a secret outside `--dev`: the output of SHA-256 (RFC 7518 §3.2).
const SECRET_CHARS_MIN: usize = 32;
/// TCP port of the documents.
const HTTP_PORT: u16 = 7880;
/// Most workers (interfaces: 7882–7913).
const WORKERS_MAX: usize = 32;

impl Config {
    /// Defaults of development mode, for tests and `rondo` without arguments.
    pub fn dev() -> Self {
        Self { dev: true, ..Self::default() }
    }

    /// Address that HTTP is served on.
    pub fn http_bind(&self) -> SocketAddr {
        let ip = if self.dev { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        self.http.bind.unwrap_or(SocketAddr::from((ip, HTTP_PORT)))
    }

    /// Keys that tokens are checked with: the configured ones, and with `--dev` the development pair.
    pub fn effective_keys(&self) -> Keys {
        let mut keys = self.auth.keys.clone();
        if self.dev {
            keys.0.entry(DEV_KEY.0.to_owned()).or_insert_with(|| Secret::new(DEV_KEY.1));
        }
        keys
    }

    /// Media workers: as configured, else one for each core this process may use.
    pub fn media_workers(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.media.workers.unwrap_or(cores).clamp(1, WORKERS_MAX)
    }

    /// Addresses told to peers, best first; never empty.
    pub fn advertised(&self) -> Vec<IpAddr> {
        if !self.media.advertise.is_empty() {
            return self.media.advertise.clone();
        }
        let bind = self.media.bind;
        if !bind.is_unspecified() {
            return vec![bind];
        }
        let mut ips: Vec<IpAddr> = Vec::new();
        if self.dev {
            ips.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let v6 = bind.is_ipv6() && UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
            ips.extend(v6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        }
        ips.extend(outward(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        if bind.is_ipv6() {
            ips.extend(outward(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        }
        if ips.is_empty() {
            ips.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        ips.dedup();
        ips
    }

    /// What the actors need to know.
    pub fn node(&self) -> NodeConfig {
        let seconds = |s: u32| Duration::from_secs(u64::from(s));
        NodeConfig {
            media: MediaConfig {
                bind: self.media.bind,
                advertise: self.advertised(),
                first_port: self.media.first_port,
                workers: self.media_workers(),
                pin: self.media.pin,
            },
            limits: Limits {
                participants_per_room: self.limits.participants_per_room,
                rooms: self.limits.rooms,
                sessions_per_worker: self.limits.sessions_per_worker,
                transports_per_session: self.limits.transports_per_session,
                event_streams_per_room: self.limits.event_streams_per_room,
                join_deadline: seconds(self.limits.join_deadline_s),
                silent_after: seconds(self.limits.silent_after_s),
                gone_after: seconds(self.limits.gone_after_s),
                video: VideoCaps {
                    camera: Bitrate::from_kbps(self.limits.camera_kbps.into()),
                    screen: Bitrate::from_kbps(self.limits.screen_kbps.into()),
                    live: Bitrate::from_kbps(self.limits.live_kbps.into()),
                },
            },
            rooms: RoomTimes {
                empty_timeout: seconds(self.rooms.empty_timeout_s),
                departure_timeout: seconds(self.rooms.departure_timeout_s),
            },
        }
    }

    /// What single values cannot say: rules between settings.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] with a sentence that names the settings and the way out.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rule = |text: String| Err(ConfigError::Rule(text));
        let bind = self.http_bind();
        if self.dev && !bind.ip().is_loopback() {
            return rule(format!(
                "http.bind = {bind}: with --dev only a loopback address is allowed, because anybody may join there \
                 without a token. Set auth.keys and start with `rondo serve`, or bind 127.0.0.1"
            ));
        }
        if self.http.tls_cert.is_some() != self.http.tls_key.is_some() {
            let (given, missing) = match self.http.tls_cert {
                Some(_) => ("http.tls_cert", "http.tls_key"),
                None => ("http.tls_key", "http.tls_cert"),
            };
            return rule(format!("{given} is set and {missing} is not: https needs both, http neither"));
        }
        if !self.dev {
            if self.auth.keys.0.is_empty() {
                return rule(
                    "auth.keys is empty: without --dev nobody could join. Set a key and a secret in [auth] keys of \
                     rondo.toml, or RONDO_AUTH__KEYS=\"mykey:$(openssl rand -hex 32)\"; to try things on this machine \
                     alone, start with `rondo serve --dev`"
                        .to_owned(),
                );
            }
            let short = self.auth.keys.0.iter().find(|(_, secret)| secret.chars() < SECRET_CHARS_MIN);
            if let Some((key, secret)) = short {
                return rule(format!(
                    "auth.keys: the secret of {key:?} has {} characters, {SECRET_CHARS_MIN} or more are allowed \
                     (RFC 7518 §3.2). Make one with `openssl rand -hex 32`",
                    secret.chars()
                ));
            }
        }
        if self.limits.silent_after_s >= self.limits.gone_after_s {
            return rule(format!(
                "limits.silent_after_s = {} must be less than limits.gone_after_s = {}",
                self.limits.silent_after_s, self.limits.gone_after_s
            ));
        }
        let last = usize::from(self.media.first_port) + self.media_workers() - 1;
        if self.media.first_port != 0 && last > usize::from(u16::MAX) {
            return rule(format!(
                "media.first_port = {} with {} workers would need UDP port {last}; 65535 is the last one",
                self.media.first_port,
                self.media_workers()
            ));
        }
        Ok(())
    }

    /// `rondo.example.toml`: every setting with its meaning and its default.
    pub fn example() -> String {
        let mut out = String::from(
            "# Every setting of Rondo with its default. Written by `rondo check-config --print-example`.\n\
             # The environment wins over this file (RONDO_SECTION__KEY, such as RONDO_HTTP__BIND), flags win over both.\n",
        );
        let keys = Self::keys();
        for (section, doc) in Self::SECTIONS {
            out.push('\n');
            comment(&mut out, doc);
            out.push_str(&format!("[{section}]\n"));
            for key in keys.iter().filter(|key| key.section == *section) {
                comment(&mut out, &key.doc);
                comment(&mut out, &format!("Allowed: {}.", key.allowed));
                match &key.default {
                    Some(default) => out.push_str(&format!("{} = {default}\n", key.key)),
                    None => out.push_str(&format!("# {} = {}\n", key.key, key.example)),
                }
            }
        }
        out
    }
}

fn comment(out: &mut String, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        out.push_str(&format!("# {line}\n"));
    }
}

/// The address this machine would send from to the outside; nothing is sent to find it (a UDP connect only
/// chooses the route). `None` without such a route.
pub fn outward(any: IpAddr) -> Option<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849): routed like any other, owned by nobody.
    let far: SocketAddr = match any {
        IpAddr::V4(_) => (Ipv4Addr::new(192, 0, 2, 1), 9).into(),
        IpAddr::V6(_) => (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(far).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_file_is_the_committed_one_and_means_the_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/rondo.example.toml");
        let example = Config::example();
        if std::env::var_os("RONDO_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, &example).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            example,
            "run the tests once with RONDO_UPDATE_SNAPSHOTS=1 and commit rondo.example.toml"
        );
        let read = Sources { file: Some(path.into()), ..Sources::default() }.read().unwrap();
        assert_eq!(read, Config::default());
    }

    #[test]
    fn defaults_are_those_of_the_interfaces() {
        let config = Config::default();
        assert_eq!(config.http_bind(), "0.0.0.0:7880".parse().unwrap());
        assert_eq!(Config::dev().http_bind(), "127.0.0.1:7880".parse().unwrap());
        let node = config.node();
        assert_eq!((node.media.first_port, node.limits.participants_per_room, node.limits.rooms), (7882, 500, 10_000));
        assert_eq!(node.limits.join_deadline, Duration::from_secs(15));
        assert_eq!(node.limits.silent_after, Duration::from_secs(5));
        assert_eq!(node.limits.video, VideoCaps::default());
        assert_eq!(node.limits.gone_after, Duration::from_secs(15));
        assert_eq!(node.rooms.empty_timeout, Duration::from_secs(300));
        assert_eq!(node.rooms.departure_timeout, Duration::from_secs(20));
        assert_eq!((config.limits.sdp_bytes, config.limits.body_bytes), (131_072, 262_144));
    }

    #[test]
    fn the_advertised_address_is_the_one_given_or_bound_or_outward() {
        let mut config = Config::dev();
        assert_eq!(config.advertised().first(), Some(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        config.media.bind = "192.0.2.7".parse().unwrap();
        assert_eq!(config.advertised(), vec![config.media.bind]);
        config.media.advertise = vec!["198.51.100.1".parse().unwrap()];
        assert_eq!(config.advertised(), config.media.advertise);
        assert!(!Config::default().advertised().is_empty());
    }

    fn refusal(config: &Config) -> String {
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn rules_between_settings_are_sentences_without_secrets() {
        assert!(Config::dev().check().is_ok());
        assert!(refusal(&Config::default()).contains("auth.keys is empty"));

        let mut open = Config::dev();
        open.http.bind = Some("0.0.0.0:7880".parse().unwrap());
        assert!(refusal(&open).contains("0.0.0.0:7880") && refusal(&open).contains("loopback"));

        let mut weak = Config::default();
        weak.auth.keys.0.insert("k".into(), Secret::new("hunter2"));
        assert!(refusal(&weak).contains("7 characters"));
        assert!(!refusal(&weak).contains("hunter2"));
        weak.auth.keys.0.insert("k".into(), Secret::new("0123456789abcdef0123456789abcdef"));
        assert!(weak.check().is_ok());
        assert!(!format!("{weak:?}").contains("0123456789abcdef"));

        let mut late = Config::dev();
        late.limits.silent_after_s = 15;
        assert!(refusal(&late).contains("silent_after_s"));
        let mut ports = Config::dev();
        (ports.media.first_port, ports.media.workers) = (65_535, Some(2));
        assert!(refusal(&ports).contains("65536"));
    }
}
