//! `rondo doctor`: what this machine would do to a server, each finding with its cause and its cure.

use super::{ConfigArgs, Failure};
use crate::config::Config;
use crate::tls::Files;
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::time::{Duration, SystemTime};

/// Asked for by each worker; below [`RECEIVE_BYTES_MIND`] a burst of one key frame to some viewers is lost.
const RECEIVE_BYTES_WANTED: usize = 4 * 1024 * 1024;
/// Less than this deserves a word.
const RECEIVE_BYTES_MIND: usize = 1024 * 1024;
/// A server needs one for each HTTP connection.
const FILES_MIND: u64 = 10_000;
/// 2026-01-01, in seconds since 1970: this program is younger.
const CLOCK_S_MIN: u64 = 1_767_225_600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Works, and could be better.
    Mind,
    /// Does not work.
    Broken,
}

/// One thing looked at.
#[derive(Debug)]
struct Finding {
    verdict: Verdict,
    what: String,
    /// Empty if all is well.
    cure: String,
}

impl Finding {
    fn ok(what: String) -> Self {
        Self { verdict: Verdict::Ok, what, cure: String::new() }
    }
    fn mind(what: String, cure: &str) -> Self {
        Self { verdict: Verdict::Mind, what, cure: cure.to_owned() }
    }
    fn broken(what: String, cure: &str) -> Self {
        Self { verdict: Verdict::Broken, what, cure: cure.to_owned() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Mind => "mind",
            Verdict::Broken => "BROKEN",
        };
        write!(f, "{word:<7} {}", self.what)?;
        if self.cure.is_empty() { Ok(()) } else { write!(f, "\n        → {}", self.cure) }
    }
}

/// Prints every finding; fails if one is broken.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let config = args.sources(Vec::new()).read()?;
    let findings = [
        rules(&config),
        http_port(&config),
        tls(&config),
        media_ports(&config),
        receive_buffer(),
        pinning(&config),
        addresses(&config),
        files(),
        clock(),
        clock_source(),
    ];
    for finding in &findings {
        println!("{finding}");
    }
    let broken = findings.iter().filter(|finding| finding.verdict == Verdict::Broken).count();
    if broken == 0 { Ok(()) } else { Err(Failure::Failed(format!("{broken} of {} are broken", findings.len()))) }
}

fn rules(config: &Config) -> Finding {
    match config.check() {
        Ok(()) => Finding::ok("the configuration holds together".to_owned()),
        Err(error) => Finding::broken("the configuration does not hold together".to_owned(), &error.to_string()),
    }
}

fn http_port(config: &Config) -> Finding {
    let addr = config.http_bind();
    match TcpListener::bind(addr) {
        Ok(_) => Finding::ok(format!("TCP {addr} is free for HTTP")),
        Err(error) => Finding::broken(
            format!("TCP {addr} cannot be bound: {error}"),
            "stop the program that has it (a running Rondo?), or change http.bind",
        ),
    }
}

/// A certificate that ends sooner than this deserves a word: the usual tools renew 30 days ahead.
const RENEW_WITHIN: Duration = Duration::from_secs(14 * 24 * 3600);

fn tls(config: &Config) -> Finding {
    let Some(files) = Files::of(&config.http) else {
        return match config.http_bind().ip().is_loopback() {
            true => Finding::ok("HTTP is served in the clear, on this machine only".to_owned()),
            false => Finding::mind(
                "HTTP is served in the clear".to_owned(),
                "browsers give the camera to https pages only: set http.tls_cert and http.tls_key, or put a proxy with TLS before it",
            ),
        };
    };
    match files.load() {
        Err(error) => Finding::broken("HTTP cannot be served with TLS".to_owned(), &error.to_string()),
        Ok(loaded) => {
            let days =
                loaded.not_after.duration_since(SystemTime::now()).map_or(0, |left| left.as_secs() / (24 * 3600));
            let text = format!("the TLS certificate holds for {days} more days");
            match loaded.expires_within(RENEW_WITHIN) {
                true if loaded.expired() => Finding::broken("the TLS certificate has expired".to_owned(), "renew it"),
                true => Finding::mind(text, "renew it; a running server reads the files again by itself"),
                false => Finding::ok(text),
            }
        }
    }
}

fn media_ports(config: &Config) -> Finding {
    let workers = config.media_workers();
    let bind = config.media.bind;
    let ports = (0..workers).map(|n| match config.media.first_port {
        0 => 0,
        // `Config::check` keeps the last one below 65536.
        first => first.saturating_add(u16::try_from(n).unwrap_or(u16::MAX)),
    });
    let taken: Vec<String> =
        ports.filter_map(|port| UdpSocket::bind((bind, port)).err().map(|error| format!("{port} ({error})"))).collect();
    if taken.is_empty() {
        return Finding::ok(format!("UDP on {bind} from {} is free for {workers} workers", config.media.first_port));
    }
    Finding::broken(
        format!("UDP on {bind}: {} cannot be bound", taken.join(", ")),
        "stop the program that has them (a running Rondo?), or change media.first_port or media.bind",
    )
}

fn receive_buffer() -> Finding {
    let granted = || -> io::Result<usize> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_recv_buffer_size(RECEIVE_BYTES_WANTED)?;
        // Linux counts its own bookkeeping too and reports twice what may be used.
        Ok(socket.recv_buffer_size()? / 2)
    };
    match granted() {
        Ok(bytes) => judge_buffer(bytes),
        Err(error) => Finding::broken(format!("no UDP socket can be made: {error}"), "allow sockets to this process"),
    }
}

fn judge_buffer(bytes: usize) -> Finding {
    let text = format!("the kernel grants {} KiB to receive on a media socket", bytes / 1024);
    if bytes >= RECEIVE_BYTES_MIND {
        return Finding::ok(text);
    }
    Finding::mind(text, "bursts may be dropped: sysctl -w net.core.rmem_max=4194304, and keep it in /etc/sysctl.d")
}

fn pinning(config: &Config) -> Finding {
    if !config.media.pin {
        return Finding::ok("workers are not pinned, as media.pin says".to_owned());
    }
    let workers = config.media_workers();
    let Some(cores) = core_affinity::get_core_ids() else {
        return Finding::mind(
            "the cores of this process cannot be listed".to_owned(),
            "workers run unpinned: allow sched_getaffinity, or set media.pin = false",
        );
    };
    // On a thread of its own, so that this one keeps its cores.
    let tried = cores.first().copied();
    let allowed = std::thread::spawn(move || tried.is_some_and(core_affinity::set_for_current)).join();
    if !allowed.unwrap_or(false) {
        return Finding::mind(
            "this process may not pin threads to cores".to_owned(),
            "workers run unpinned: allow sched_setaffinity in the container, or set media.pin = false",
        );
    }
    if workers > cores.len() {
        return Finding::mind(
            format!("{workers} workers share {} cores", cores.len()),
            "set media.workers to the number of cores, or leave it out",
        );
    }
    Finding::ok(format!("{workers} workers can be pinned to {} cores", cores.len()))
}

fn addresses(config: &Config) -> Finding {
    let told = config.advertised();
    let list: Vec<String> = told.iter().map(ToString::to_string).collect();
    let text = format!("peers are told {}", list.join(", "));
    if config.dev || told.iter().any(|ip| !ip.is_loopback()) {
        let private = |ip: &IpAddr| matches!(ip, IpAddr::V4(ip) if ip.is_private());
        if !config.dev && config.media.advertise.is_empty() && told.iter().all(private) {
            return Finding::mind(
                text,
                "private addresses: peers elsewhere cannot reach them; set media.advertise to the public address",
            );
        }
        return Finding::ok(text);
    }
    Finding::broken(text, "nobody on another machine can send media: set media.advertise to an address they reach")
}

fn files() -> Finding {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    match soft {
        Some(n) if n < FILES_MIND => Finding::mind(
            format!("this process may open {n} files, and every HTTP connection is one"),
            "raise it: ulimit -n 65536, or LimitNOFILE=65536 in the service",
        ),
        Some(n) => Finding::ok(format!("this process may open {n} files")),
        None => Finding::ok("files that may be opened: no limit is known".to_owned()),
    }
}

fn clock() -> Finding {
    let now = crate::auth::unix_s();
    if now < CLOCK_S_MIN {
        return Finding::broken(
            format!("the wall clock reads {now} s since 1970, which is long ago"),
            "set the time (ntp): access tokens and sender reports depend on it",
        );
    }
    Finding::ok("the wall clock is plausible".to_owned())
}

fn clock_source() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    judge_clock_source(std::fs::read_to_string(path).unwrap_or_default().trim())
}

fn judge_clock_source(name: &str) -> Finding {
    match name {
        "hpet" | "acpi_pm" | "jiffies" => Finding::mind(
            format!("the kernel's clock source is {name}, which is slow to read"),
            "prefer tsc or the hypervisor's own (kvm-clock, hyperv_clocksource_tsc_page)",
        ),
        "" => Finding::ok("the kernel's clock source is not told".to_owned()),
        name => Finding::ok(format!("the kernel's clock source is {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn a_taken_port_is_broken_with_a_cure() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = Config::dev();
        config.http.bind = taken.local_addr().ok();
        let finding = http_port(&config);
        assert_eq!(finding.verdict, Verdict::Broken);
        assert!(finding.to_string().contains("http.bind"));

        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        config.media.bind = "127.0.0.1".parse().unwrap();
        config.media.first_port = taken.local_addr().as_ref().map(SocketAddr::port).unwrap();
        config.media.workers = Some(1);
        assert_eq!(media_ports(&config).verdict, Verdict::Broken);
        drop(taken);
        assert_eq!(media_ports(&config).verdict, Verdict::Ok);
    }

    #[test]
    fn verdicts_follow_their_bounds() {
        assert_eq!(judge_buffer(1024 * 1024).verdict, Verdict::Ok);
        assert_eq!(judge_buffer(212_992).verdict, Verdict::Mind);
        assert_eq!(judge_clock_source("hpet").verdict, Verdict::Mind);
        assert_eq!(judge_clock_source("tsc").verdict, Verdict::Ok);
        assert_eq!(clock().verdict, Verdict::Ok);
        let mut config = Config { ..Config::default() };
        config.media.advertise = vec!["127.0.0.1".parse().unwrap()];
        assert_eq!(addresses(&config).verdict, Verdict::Broken);
        config.media.advertise = vec!["203.0.113.1".parse().unwrap()];
        assert_eq!(addresses(&config).verdict, Verdict::Ok);
    }
}
