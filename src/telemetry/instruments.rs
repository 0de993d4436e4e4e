//! The one list of instruments: name, unit, meaning, type and closed label sets. No room, identity, address or
//! track is ever a label: the number of series does not depend on users.

use crate::doors::paths;
use crate::tls::TlsCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use rondo_actors::api::Door;
use rondo_actors::count::{NodeCounts, WorkerCounters, WorkerHeld};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One instrument.
#[derive(Debug, Clone, Copy)]
pub struct Instrument {
    /// Name without unit and without `_total`.
    pub name: &'static str,
    /// Last part of the name.
    pub unit: Option<&'static str>,
    /// What it counts.
    pub help: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricType,
    /// Label names; every value comes from a closed set.
    pub labels: &'static [&'static str],
    source: Source,
}

/// Where an instrument's values come from.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// `rondo_actors::count`: one counter of each worker.
    Worker(&'static str),
    /// The same: one gauge of each worker.
    Held(&'static str),
    Build,
    Requests,
    RequestDuration,
    JoinsRefused,
    TlsExpiry,
    TlsReloads,
    TlsReloadFailures,
    Rooms,
    Sessions,
    Transports,
    Left,
    JoinsFailed,
    Wakeups,
    SupervisorLost,
    RoomsDied,
    Restarts,
    WorkersLost,
    ProcessStart,
    ProcessResident,
    ProcessCpu,
    ProcessFiles,
}

const fn instrument(
    name: &'static str,
    unit: Option<&'static str>,
    kind: MetricType,
    labels: &'static [&'static str],
    source: Source,
    help: &'static str,
) -> Instrument {
    Instrument { name, unit, help, kind, labels, source }
}

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;
const HISTOGRAM: MetricType = MetricType::Histogram;

/// Instruments of the node and the doors. Those of the workers join them in [`all`].
const FIXED: [Instrument; 21] = [
    instrument("rondo_build", None, MetricType::Info, &["version"], Source::Build, "This build"),
    instrument(
        "rondo_http_requests",
        None,
        COUNTER,
        &["route", "status"],
        Source::Requests,
        "HTTP requests answered, by route pattern and status class",
    ),
    instrument(
        "rondo_http_request_duration",
        Some("seconds"),
        HISTOGRAM,
        &[],
        Source::RequestDuration,
        "From a request's headers to its answer's headers",
    ),
    instrument(
        "rondo_join_refused",
        None,
        COUNTER,
        &["door", "code"],
        Source::JoinsRefused,
        "Joins refused with an HTTP status, by the error's code",
    ),
    instrument(
        "rondo_join_failed",
        None,
        COUNTER,
        &["code"],
        Source::JoinsFailed,
        "Joins that were answered and never came up, by why",
    ),
    instrument(
        "rondo_tls_certificate_expiry",
        Some("seconds"),
        GAUGE,
        &[],
        Source::TlsExpiry,
        "When the certificate in use ends, since 1970; absent without TLS",
    ),
    instrument(
        "rondo_tls_reloads",
        None,
        COUNTER,
        &[],
        Source::TlsReloads,
        "Certificates read again and taken into use",
    ),
    instrument(
        "rondo_tls_reload_failures",
        None,
        COUNTER,
        &[],
        Source::TlsReloadFailures,
        "Certificates read again that could not be used: the one before stays in use",
    ),
    instrument("rondo_rooms_open", None, GAUGE, &["kind"], Source::Rooms, "Rooms open"),
    instrument("rondo_sessions_open", None, GAUGE, &["worker"], Source::Sessions, "Participants in rooms"),
    instrument("rondo_transports_open", None, GAUGE, &["worker"], Source::Transports, "Connections of participants"),
    instrument("rondo_participants_left", None, COUNTER, &["reason"], Source::Left, "Participants that left"),
    instrument("rondo_timer_wakeups", None, COUNTER, &["reason"], Source::Wakeups, "Wake-ups by what was due"),
    instrument(
        "rondo_supervisor_lost",
        None,
        COUNTER,
        &[],
        Source::SupervisorLost,
        "Ends of the supervisor by a panic: nobody can join until the process is started again",
    ),
    instrument("rondo_rooms_died", None, COUNTER, &[], Source::RoomsDied, "Rooms whose actor panicked"),
    instrument("rondo_room_restarts", None, COUNTER, &[], Source::Restarts, "Rooms opened anew after a panic"),
    instrument("rondo_workers_lost", None, COUNTER, &[], Source::WorkersLost, "Worker threads that died"),
    instrument(
        "rondo_process_start_time",
        Some("seconds"),
        GAUGE,
        &[],
        Source::ProcessStart,
        "When the process started, since 1970",
    ),
    instrument("rondo_process_resident", Some("bytes"), GAUGE, &[], Source::ProcessResident, "Memory in use"),
    instrument("rondo_process_cpu", Some("seconds"), COUNTER, &[], Source::ProcessCpu, "CPU time used, all threads"),
    instrument("rondo_process_files_open", None, GAUGE, &[], Source::ProcessFiles, "File descriptors open"),
];

/// Every instrument, in the order of the scrape.
pub fn all() -> &'static [Instrument] {
    static ALL: LazyLock<Vec<Instrument>> = LazyLock::new(|| {
        let of_worker = |name: &'static str, help: &'static str, kind, source| Instrument {
            // One small allocation an instrument, once in the life of the process.
            name: Box::leak(format!("rondo_worker_{name}").into_boxed_str()),
            unit: None,
            help: help.trim(),
            kind,
            labels: &["worker"],
            source,
        };
        let counters = WorkerCounters::default().read().into_iter();
        let gauges = WorkerHeld::default().read().into_iter();
        FIXED
            .into_iter()
            .chain(counters.map(|(name, help, _)| of_worker(name, help, COUNTER, Source::Worker(name))))
            .chain(gauges.map(|(name, help, _)| of_worker(name, help, GAUGE, Source::Held(name))))
            .collect()
    });
    &ALL
}

/// Upper bounds of the request duration, in seconds.
const DURATION_BOUNDS_S: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
/// Status classes, as `status` labels.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Route label of a path that is not served.
const OTHER: &str = "other";

/// What the doors count.
pub struct DoorCounters {
    /// By route (the last row is [`OTHER`]) and status class.
    requests: Vec<[AtomicU64; 5]>,
    /// By [`DURATION_BOUNDS_S`]; the last is beyond them all.
    durations: [AtomicU64; 11],
    duration_us: AtomicU64,
    /// By door label and code of `crate::error`, a closed set.
    refused: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Default for DoorCounters {
    fn default() -> Self {
        Self::new()
    }
}

impl DoorCounters {
    /// All zero.
    pub fn new() -> Self {
        Self {
            requests: (0..=paths::ALL.len()).map(|_| Default::default()).collect(),
            durations: Default::default(),
            duration_us: AtomicU64::new(0),
            refused: Mutex::default(),
        }
    }

    /// A request was answered.
    pub fn request(&self, route: Option<&str>, status: u16, took: Duration) {
        let row = route.and_then(|route| paths::ALL.iter().position(|path| *path == route));
        let row = self.requests.get(row.unwrap_or(paths::ALL.len()));
        let class = usize::from((status / 100).clamp(1, 5) - 1);
        if let Some(cell) = row.and_then(|row| row.get(class)) {
            cell.fetch_add(1, Relaxed);
        }
        let bucket = DURATION_BOUNDS_S.iter().position(|bound| took.as_secs_f64() <= *bound);
        if let Some(cell) = self.durations.get(bucket.unwrap_or(DURATION_BOUNDS_S.len())) {
            cell.fetch_add(1, Relaxed);
        }
        self.duration_us.fetch_add(took.as_micros().try_into().unwrap_or(u64::MAX), Relaxed);
    }

    /// A join was refused.
    pub fn join_refused(&self, door: Door, code: &'static str) {
        // A panic while holding it would leave a count behind, never a broken map.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry((door.label(), code)).or_default() += 1;
    }
}

/// How a scrape is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes every instrument with its values of now.
///
/// # Errors
/// The encoder's, for a name or label that it refuses: our bug.
pub fn scrape(
    counts: &NodeCounts,
    doors: &DoorCounters,
    tls: Option<TlsCounts>,
    format: Format,
) -> Result<String, fmt::Error> {
    let families = all().iter().map(|one| (*one, values(one.source, counts, doors, tls))).collect();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(families)));
    let mut out = String::new();
    match format {
        Format::Text => prometheus_text::encode(&mut out, &registry)?,
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Gauge(u64),
    Info,
    /// Sum, count, upper bounds with the count of each (not cumulative).
    Histogram(f64, u64, Vec<(f64, u64)>),
}

/// Label values, in the order of the instrument's label names, and a value.
type Sample = (Vec<String>, Value);

/// Exemplars are not used; the encoder wants the type of their labels all the same.
type NoLabels = [(&'static str, &'static str); 0];

#[derive(Debug)]
struct Scrape(Vec<(Instrument, Vec<Sample>)>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for (instrument, samples) in &self.0 {
            let unit = instrument.unit.map(|unit| Unit::Other(unit.to_owned()));
            let mut metric =
                encoder.encode_descriptor(instrument.name, instrument.help, unit.as_ref(), instrument.kind)?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> =
                    instrument.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                if let Value::Info = value {
                    metric.encode_info(&labels)?;
                    continue;
                }
                let mut one = metric.encode_family(&labels)?;
                match value {
                    Value::Count(n) => one.encode_counter::<NoLabels, u64, u64>(n, None)?,
                    Value::Seconds(s) => one.encode_counter::<NoLabels, f64, u64>(s, None)?,
                    Value::Gauge(n) => one.encode_gauge(n)?,
                    Value::Histogram(sum, count, buckets) => {
                        one.encode_histogram::<NoLabels>(*sum, *count, buckets, None)?
                    }
                    Value::Info => {}
                }
            }
        }
        Ok(())
    }
}

fn values(source: Source, counts: &NodeCounts, doors: &DoorCounters, tls: Option<TlsCounts>) -> Vec<Sample> {
    let labelled = |pairs: &[(&'static str, u64)], value: fn(u64) -> Value| {
        pairs.iter().map(|(label, n)| (vec![(*label).to_owned()], value(*n))).collect()
    };
    let by_worker = |per_worker: &[u64]| {
        per_worker.iter().enumerate().map(|(worker, n)| (vec![worker.to_string()], Value::Gauge(*n))).collect()
    };
    let alone = |value: Value| vec![(Vec::new(), value)];
    match source {
        Source::Worker(name) => of_workers(&counts.workers, name, Value::Count),
        Source::Held(name) => of_workers(&counts.held, name, Value::Gauge),
        Source::Build => vec![(vec![env!("CARGO_PKG_VERSION").to_owned()], Value::Info)],
        Source::Requests => requests(doors),
        Source::RequestDuration => alone(request_duration(doors)),
        Source::JoinsRefused => {
            let refused = doors.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let each = refused.iter();
            each.map(|((door, code), n)| (vec![(*door).to_owned(), (*code).to_owned()], Value::Count(*n))).collect()
        }
        Source::TlsExpiry => tls.map_or_else(Vec::new, |tls| alone(Value::Gauge(tls.not_after_s))),
        Source::TlsReloads => tls.map_or_else(Vec::new, |tls| alone(Value::Count(tls.reloads))),
        Source::TlsReloadFailures => tls.map_or_else(Vec::new, |tls| alone(Value::Count(tls.failures))),
        Source::Rooms => labelled(&counts.rooms, Value::Gauge),
        Source::Sessions => by_worker(&counts.sessions),
        Source::Transports => by_worker(&counts.transports),
        Source::Left => labelled(&counts.left, Value::Count),
        Source::JoinsFailed => labelled(&counts.failed, Value::Count),
        Source::Wakeups => labelled(&counts.wakeups, Value::Count),
        Source::SupervisorLost => alone(Value::Count(counts.supervisor_lost)),
        Source::RoomsDied => alone(Value::Count(counts.rooms_died)),
        Source::Restarts => alone(Value::Count(counts.restarts)),
        Source::WorkersLost => alone(Value::Count(counts.workers_lost)),
        Source::ProcessStart => alone(Value::Gauge(process_start_s())),
        Source::ProcessResident => alone(Value::Gauge(resident_bytes().unwrap_or(0))),
        Source::ProcessCpu => alone(Value::Seconds(cpu_s().unwrap_or(0.0))),
        Source::ProcessFiles => {
            alone(Value::Gauge(std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)))
        }
    }
}

/// One cell of every worker.
fn of_workers(workers: &[Vec<(&'static str, &'static str, u64)>], name: &str, value: fn(u64) -> Value) -> Vec<Sample> {
    let cells = workers.iter().enumerate().filter_map(|(worker, cells)| {
        let (_, _, n) = cells.iter().find(|(cell, _, _)| *cell == name)?;
        Some((vec![worker.to_string()], value(*n)))
    });
    cells.collect()
}

fn requests(doors: &DoorCounters) -> Vec<Sample> {
    let routes = paths::ALL.iter().copied().chain([OTHER]);
    let cells = routes.zip(&doors.requests).flat_map(|(route, row)| {
        CLASSES
            .iter()
            .zip(row)
            .map(move |(class, cell)| (vec![route.to_owned(), (*class).to_owned()], cell.load(Relaxed)))
    });
    // What never happened yet is left out: a scrape stays readable.
    cells.filter(|(_, n)| *n > 0).map(|(labels, n)| (labels, Value::Count(n))).collect()
}

fn request_duration(doors: &DoorCounters) -> Value {
    let counts: Vec<u64> = doors.durations.iter().map(|cell| cell.load(Relaxed)).collect();
    let bounds = DURATION_BOUNDS_S.into_iter().chain([f64::INFINITY]);
    let sum = Duration::from_micros(doors.duration_us.load(Relaxed)).as_secs_f64();
    Value::Histogram(sum, counts.iter().sum(), bounds.zip(counts).collect())
}

fn process_start_s() -> u64 {
    static START: LazyLock<u64> =
        LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    *START
}

/// `VmRSS` of `/proc/self/status`; `None` where there is no such file.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// User and system time of `/proc/self/stat` (fields 14 and 15), which counts in hundredths of a second.
fn cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command name in parentheses may hold spaces; after it comes field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) as f64 / 100.0)
}

/// Remembers when the process started; the first call counts.
pub fn mark_start() {
    process_start_s();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn full_name(one: &Instrument) -> String {
        let unit = one.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = match one.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("{}{unit}{suffix}", one.name)
    }

    fn counts() -> NodeCounts {
        NodeCounts {
            workers: vec![WorkerCounters::default().read(), WorkerCounters::default().read()],
            held: vec![WorkerHeld::default().read(), WorkerHeld::default().read()],
            rooms: vec![("call", 2)],
            sessions: vec![1, 2],
            transports: vec![3, 4],
            left: vec![("client_left", 5)],
            failed: vec![("join_timeout", 3)],
            wakeups: vec![("nack", 6)],
            supervisor_lost: 1,
            rooms_died: 7,
            restarts: 8,
            workers_lost: 9,
        }
    }

    fn tls() -> TlsCounts {
        TlsCounts { not_after_s: 1_893_456_000, reloads: 10, failures: 11 }
    }

    #[test]
    fn names_and_labels_are_legal_and_never_of_users() {
        let mut seen = BTreeSet::new();
        for one in all() {
            let name = full_name(one);
            assert!(name.starts_with("rondo_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            assert!(!one.name.ends_with("_total") && !name.contains("__"), "{name}");
            assert!(!one.help.is_empty() && !one.help.contains('\n'), "{name}");
            assert!(seen.insert(name.clone()), "{name} twice");
            for label in one.labels {
                const CLOSED: [&str; 8] = ["version", "route", "status", "door", "code", "kind", "worker", "reason"];
                assert!(CLOSED.contains(label), "{name}: {label}");
            }
        }
    }

    #[test]
    fn every_instrument_is_in_both_kinds_of_scrape() {
        let doors = DoorCounters::new();
        doors.request(Some(paths::WHIP), 201, Duration::from_millis(3));
        doors.join_refused(Door::Whip, "bad_name");
        for format in [Format::Text, Format::OpenMetrics] {
            let text = scrape(&counts(), &doors, Some(tls()), format).unwrap();
            for one in all() {
                let name = full_name(one);
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                let of_it =
                    |line: &str| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['{', ' ', '_']));
                assert!(lines.clone().any(of_it), "{format:?}: {name}\n{text}");
                assert!(text.contains(&format!("# HELP {}", one.name)), "{name}");
            }
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn without_tls_no_certificate_seems_to_have_expired() {
        let text = scrape(&counts(), &DoorCounters::new(), None, Format::Text).unwrap();
        assert!(!text.lines().any(|line| line.starts_with("rondo_tls_certificate_expiry_seconds")), "{text}");
    }

    #[test]
    fn values_come_out_as_they_went_in() {
        let doors = DoorCounters::new();
        doors.request(Some(paths::WHIP), 201, Duration::from_millis(3));
        doors.request(Some("/nowhere"), 404, Duration::from_millis(3));
        doors.request(None, 404, Duration::from_secs(60));
        let text = scrape(&counts(), &doors, Some(tls()), Format::Text).unwrap();
        for line in [
            "rondo_tls_certificate_expiry_seconds 1893456000",
            "rondo_tls_reloads_total 10",
            "rondo_tls_reload_failures_total 11",
            "rondo_http_requests_total{route=\"/whip/{room}\",status=\"2xx\"} 1",
            "rondo_http_requests_total{route=\"other\",status=\"4xx\"} 2",
            "rondo_http_request_duration_seconds_bucket{le=\"0.005\"} 2",
            "rondo_http_request_duration_seconds_bucket{le=\"+Inf\"} 3",
            "rondo_http_request_duration_seconds_sum 60.006",
            "rondo_rooms_open{kind=\"call\"} 2",
            "rondo_sessions_open{worker=\"1\"} 2",
            "rondo_participants_left_total{reason=\"client_left\"} 5",
            "rondo_join_failed_total{code=\"join_timeout\"} 3",
            "rondo_supervisor_lost_total 1",
            "rondo_rooms_died_total 7",
            "rondo_room_restarts_total 8",
            "rondo_worker_datagrams_received_total{worker=\"0\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let resident = text.lines().find_map(|l| l.strip_prefix("rondo_process_resident_bytes ")).unwrap();
        assert!(resident.parse::<u64>().unwrap() > 100_000);
    }
}
