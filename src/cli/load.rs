//! `rondo load call|conference|live`: clients that join, publish and play, and what they saw.

use super::Failure;
use crate::auth::{Auth, Claims, VideoClaim, unix_s};
use crate::config::{Keys, Secret};
use clap::{Args, Subcommand};
use rondo_load::{Bounds, Credentials, LoadError, Media, Plan, Report, Scenario, Screen};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Tokens of a run live this long, in seconds.
const TOKEN_TTL_S: u64 = 24 * 3600;

#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    /// Rooms of two who publish and play each other.
    Call(CallArgs),
    /// Rooms of some who publish and play all others.
    Conference(ConferenceArgs),
    /// A few publish, many play.
    Live(LiveArgs),
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// Rooms, each of two people.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rooms: usize,
    #[command(flatten)]
    common: Box<CommonArgs>,
}

#[derive(Debug, Args)]
pub struct ConferenceArgs {
    /// Rooms.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rooms: usize,
    /// People of each room, all of whom publish and play all others.
    #[arg(long, value_name = "N", default_value_t = 5)]
    publishers: usize,
    #[command(flatten)]
    common: Box<CommonArgs>,
}

#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Rooms.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rooms: usize,
    /// Publishers of each room.
    #[arg(long, value_name = "N", default_value_t = 1)]
    publishers: usize,
    /// Viewers of each room.
    #[arg(long, value_name = "N", default_value_t = 20)]
    viewers: usize,
    #[command(flatten)]
    common: Box<CommonArgs>,
}

/// What all scenarios take.
#[derive(Debug, Args)]
struct CommonArgs {
    /// The server, http or https.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7880")]
    url: String,
    /// For https: the server's certificate, or of who signed it, in PEM form.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The access token that everybody shows.
    #[arg(long, value_name = "TOKEN", conflicts_with = "key")]
    token: Option<String>,
    /// An API key and its secret, to make a token for each client: name:secret.
    #[arg(long, value_name = "KEY", env = "RONDO_LOAD_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Joins a second.
    #[arg(long, value_name = "N", default_value_t = 20.0)]
    rate: f64,
    /// How long to measure once all have joined: 30s, 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    hold: Duration,
    /// How long to let things settle before that.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    settle: Duration,
    /// Send no video.
    #[arg(long, conflicts_with = "video_only")]
    audio_only: bool,
    /// Send no audio.
    #[arg(long)]
    video_only: bool,
    /// Bit rate of each video.
    #[arg(long, value_name = "KBPS", default_value_t = Media::default().video_kbps)]
    video_kbps: u32,
    /// Frames a second of each video.
    #[arg(long, value_name = "N", default_value_t = Media::default().video_fps)]
    video_fps: u32,
    /// Offer no transport-wide feedback.
    #[arg(long)]
    no_twcc: bool,
    /// Only so many viewers of a room decrypt and send feedback; all others count packets by their clear headers.
    #[arg(long, value_name = "N")]
    probes: Option<usize>,
    /// I/O threads, up to 64; one less than there are cores otherwise.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Address that the clients' sockets are bound to.
    #[arg(long, value_name = "ADDR", default_value_t = Ipv4Addr::LOCALHOST.into())]
    ip: IpAddr,
    /// Process id of the server, if it runs on this machine: its CPU and memory are told.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// What every arbitrary number of the run follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fail if more than so many per cent of the packets are lost.
    #[arg(long, value_name = "PCT")]
    max_loss: Option<f64>,
    /// Fail if the latency's p99 is more.
    #[arg(long, value_name = "MS")]
    max_p99_ms: Option<f64>,
    /// Fail if more joins are refused or fail.
    #[arg(long, value_name = "N")]
    max_lost_joins: Option<usize>,
}

impl LoadCommand {
    fn parts(self) -> (Scenario, usize, usize, usize, CommonArgs) {
        match self {
            Self::Call(args) => (Scenario::Call, args.rooms, 2, 0, *args.common),
            Self::Conference(args) => (Scenario::Conference, args.rooms, args.publishers, 0, *args.common),
            Self::Live(args) => (Scenario::Live, args.rooms, args.publishers, args.viewers, *args.common),
        }
    }

    fn plan(self) -> Result<(Plan, CommonArgs), Failure> {
        let (scenario, rooms, publishers, viewers, args) = self.parts();
        let url =
            args.url.parse().map_err(|why| Failure::Usage(format!("--url {:?} is no address: {why}", args.url)))?;
        let read = |file: &PathBuf| {
            std::fs::read(file).map_err(|error| Failure::Usage(format!("--ca {}: {error}", file.display())))
        };
        let plan = Plan {
            scenario,
            url,
            trusted: args.ca.as_ref().map(read).transpose()?.unwrap_or_default(),
            rooms,
            publishers,
            viewers,
            media: Media {
                audio: !args.video_only,
                video: !args.audio_only,
                video_kbps: args.video_kbps,
                video_fps: args.video_fps,
                ..Media::default()
            },
            joins_per_s: args.rate,
            settle: args.settle,
            hold: args.hold,
            twcc: !args.no_twcc,
            probes: args.probes,
            threads: args.threads.unwrap_or_else(threads),
            ip: args.ip,
            pid: args.pid,
            seed: args.seed,
        };
        plan.check().map_err(Failure::Usage)?;
        Ok((plan, args))
    }
}

/// One core is left to the server.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).clamp(1, 64)
}

/// `1.5s`, `30s`, `2m`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let (digits, factor) = match text.strip_suffix('m') {
        Some(digits) => (digits, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = digits.parse::<f64>().ok().map(|n| n * factor).filter(|s| (0.0..=86_400.0).contains(s));
    let wrong = || format!("{text:?} is no time up to a day; allowed is a number with s or m, such as 30s");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

fn credentials(args: &CommonArgs) -> Result<Credentials, Failure> {
    if let Some(token) = &args.token {
        return Ok(Credentials::Fixed(token.clone()));
    }
    let Some(key) = &args.key else { return Ok(Credentials::Development) };
    let (name, secret) = key
        .split_once(':')
        .filter(|(name, secret)| !name.is_empty() && !secret.is_empty())
        .ok_or_else(|| Failure::Usage("--key takes a name and its secret: name:secret".to_owned()))?;
    let mut keys = Keys::default();
    keys.0.insert(name.to_owned(), Secret::new(secret));
    let auth = Auth::new(keys, false);
    Ok(Credentials::Made(Arc::new(move |room, identity| {
        let claims = Claims {
            sub: identity.to_owned(),
            exp: unix_s().saturating_add(TOKEN_TTL_S),
            video: VideoClaim { room_join: true, room: room.to_owned(), ..VideoClaim::default() },
            ..Claims::default()
        };
        auth.sign(None, claims).map_err(|fault| fault.to_string())
    })))
}

/// Runs the load; fails if a bound does not hold or nobody connected.
pub fn run(command: LoadCommand) -> Result<(), Failure> {
    let (plan, args) = command.plan()?;
    let credentials = credentials(&args)?;
    let failed = |what: &str, error: std::io::Error| Failure::Failed(format!("{what}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("the runtime", error))?;
    let mut screen = Screen::stderr();
    let report = runtime.block_on(rondo_load::run(plan, credentials, interrupted(), |now| screen.draw(now)));
    let report = report.map_err(|error| match error {
        LoadError::Plan(_) | LoadError::NoProcess(_) => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    })?;
    print!("{}", rondo_load::summary(&report));
    write(&report, &args)?;
    judged(&report, &args)
}

/// Ends with Ctrl-C or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        // Where the system lets nobody wait for it, it ends the process as ever.
        heard = tokio::signal::ctrl_c() => if heard.is_err() { std::future::pending::<()>().await },
        _ = terminate.recv() => {}
    }
}

fn write(report: &Report, args: &CommonArgs) -> Result<(), Failure> {
    let save = |file: &Path, text: String| {
        std::fs::write(file, text).map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))
    };
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(report).map_err(|error| Failure::Failed(error.to_string()))?;
        save(file, json + "\n")?;
    }
    if let Some(file) = &args.html {
        save(file, rondo_load::page(report))?;
    }
    Ok(())
}

fn judged(report: &Report, args: &CommonArgs) -> Result<(), Failure> {
    let bounds = Bounds { loss_pct: args.max_loss, p99_ms: args.max_p99_ms, lost_joins: args.max_lost_joins };
    let mut breaches = report.breaches(&bounds);
    if report.joins.connected == 0 && !report.interrupted {
        breaches.push("nobody connected".to_owned());
    }
    if breaches.is_empty() { Ok(()) } else { Err(Failure::Failed(breaches.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(subcommand)]
        command: LoadCommand,
    }

    fn of(args: &[&str]) -> Result<(Plan, CommonArgs), String> {
        let command = Only::try_parse_from([&["load"], args].concat()).map_err(|e| e.to_string())?.command;
        command.plan().map_err(|failure| match failure {
            Failure::Usage(text) | Failure::Failed(text) => text,
        })
    }

    #[test]
    fn no_flag_is_needed() {
        for (word, joins) in [("call", 20), ("conference", 10), ("live", 21)] {
            let (plan, args) = of(&[word]).unwrap();
            assert_eq!((plan.joins(), plan.url.as_str()), (joins, "http://127.0.0.1:7880/"), "{word}");
            assert!(matches!(credentials(&args), Ok(Credentials::Development)));
        }
    }

    #[test]
    fn flags_become_a_plan() {
        let args = ["live", "--publishers", "2", "--viewers", "50", "--rooms", "3", "--hold", "2m", "--audio-only"];
        let (plan, _) = of(&args).unwrap();
        assert_eq!((plan.rooms, plan.publishers, plan.viewers), (3, 2, 50));
        assert_eq!((plan.hold, plan.media.audio, plan.media.video), (Duration::from_secs(120), true, false));
    }

    #[test]
    fn mistakes_are_named() {
        for (args, words) in [
            (["live", "--viewers", "0"], "viewers"),
            (["call", "--url", "here"], "--url \"here\""),
            (["call", "--url", "ftp://a"], "http://"),
            (["call", "--ca", "/nowhere"], "--ca /nowhere"),
            (["call", "--threads", "100000"], "more than the 64"),
            (["call", "--rate", "0"], "joins a second"),
            (["call", "--hold", "long"], "30s"),
            (["conference", "--publishers", "1"], "room of one"),
        ] {
            let error = of(&args).unwrap_err();
            assert!(error.contains(words), "{args:?}: {error}");
        }
        let (_, args) = of(&["call", "--key", "name"]).unwrap();
        assert!(matches!(credentials(&args), Err(Failure::Usage(text)) if text.contains("name:secret")));
    }

    #[test]
    fn a_key_makes_a_token_for_each() {
        let (_, args) = of(&["call", "--key", "k:0123456789abcdef0123456789abcdef"]).unwrap();
        let Ok(Credentials::Made(make)) = credentials(&args) else { panic!("a key makes tokens") };
        let (ann, ben) = (make("r", "ann").unwrap(), make("r", "ben").unwrap());
        assert_ne!(ann, ben);
        assert_eq!(ann.split('.').count(), 3);
    }
}
