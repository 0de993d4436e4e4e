//! Floods beside a live call: the call is whole, and with `RONDO_FLOOD_S` set, the table of what each flood costs.

use crate::support::call::Call;
use crate::support::flood::{self, Done, Flood, Pace, Target};
use crate::support::http::Api;
use crate::support::metrics::Metrics;
use crate::support::process::Rondo;
use crate::support::wait::poll;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);
/// Where nothing is measured: as much as a debug build beside other tests can take.
const TEST_LASTS: Duration = Duration::from_millis(1_200);
const TEST_SHARE: u32 = 20;
/// Where it is measured: how much later than at rest the 99th percentile of audio may be.
const LATER_MS_MAX: f64 = 20.0;

/// What one span of time was like.
struct Span {
    p99_ms: f64,
    cpu_s: f64,
    took_s: f64,
}

/// How late the call's audio was, and what the server used, while `happens`.
fn during<R>(call: &Call, api: &Api, happens: impl FnOnce() -> R) -> (Span, R) {
    let cpu = |metrics: &Metrics| metrics.get("rondo_process_cpu_seconds_total");
    let (before, begun) = (Metrics::of(api), Instant::now());
    let heard = call.bob.stats().audio_latencies_us.len();
    let result = happens();
    let took_s = begun.elapsed().as_secs_f64();
    let mut late = call.bob.stats().audio_latencies_us.split_off(heard);
    late.sort_unstable();
    let p99_ms = late.get(late.len() * 99 / 100).map_or(f64::INFINITY, |us| f64::from(*us) / 1_000.0);
    (Span { p99_ms, cpu_s: cpu(&Metrics::of(api)) - cpu(&before), took_s }, result)
}

/// What the server refused of a flood, by its own counters where it refuses in silence.
fn refused(flood: &Flood, done: &Done, before: &Metrics, after: &Metrics) -> u64 {
    if flood.datagrams { (after.all_with("_dropped_") - before.all_with("_dropped_")) as u64 } else { done.refused }
}

#[test]
fn a_call_is_whole_beside_every_flood() {
    let seconds: Option<u32> = std::env::var("RONDO_FLOOD_S").ok().map(|s| s.parse().expect("RONDO_FLOOD_S: seconds"));
    let (lasts, share) = seconds.map_or((TEST_LASTS, TEST_SHARE), |s| (Duration::from_secs(s.into()), 1));
    let only = std::env::var("RONDO_FLOOD_ONLY").unwrap_or_default();
    let server = Rondo::serve(&["--dev"], &[("RONDO_MEDIA__WORKERS", "1"), ("RONDO_LIMITS__HEADER_READ_S", "1")]);
    let api = server.api();
    let call = Call::start(&api);
    let target = Target::new(&api, &call.ann);
    let (idle, ()) = during(&call, &api, || {
        let heard = call.bob.stats().audio_packets;
        let packets = u64::try_from(lasts.as_millis() / 20).expect("a short time");
        call.bob.wait_until("a while at rest", lasts * 2 + SOON, |s| s.audio_packets >= heard + packets);
    });
    println!("flood {:<22} {:>9} {:>9} {:>8} {:>8} {:>10}", "", "sent/s", "refused", "p99 ms", "CPU %", "us each");
    let row = |name: &str, span: &Span, sent: u64, refused: u64| {
        let more_us = (span.cpu_s - idle.cpu_s / idle.took_s * span.took_s) * 1e6;
        let each = if refused == 0 { "-".to_owned() } else { format!("{:.2}", more_us / refused as f64) };
        println!(
            "flood {name:<22} {:>9.0} {refused:>9} {:>8.2} {:>8.1} {each:>10}",
            sent as f64 / span.took_s,
            span.p99_ms,
            span.cpu_s / span.took_s * 100.0
        );
    };
    row("none", &idle, 0, 0);
    for flood in flood::ALL.iter().filter(|flood| flood.name.contains(&only)) {
        let pace = Pace { per_s: (flood.per_s / share).max(20), lasts };
        let before = Metrics::of(&api);
        let (span, mut done) = during(&call, &api, || (flood.run)(&target, pace));
        assert!(done.sent > 0, "{}: nothing was sent", flood.name);
        let after = poll(&format!("{} is refused and counted", flood.name), SOON, || {
            done.look_again();
            let now = Metrics::of(&api);
            let refused = refused(flood, &done, &before, &now);
            (refused > 0 && (!flood.datagrams || refused * 2 >= done.sent)).then_some(now)
        });
        row(flood.name, &span, done.sent, refused(flood, &done, &before, &after));
        if seconds.is_some() {
            let most = idle.p99_ms + LATER_MS_MAX;
            assert!(span.p99_ms <= most, "{}: audio p99 {:.2} ms, allowed {most:.2} ms", flood.name, span.p99_ms);
        }
        call.goes_on();
    }
}
