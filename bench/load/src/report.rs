//! What a run found, and what of it should make its reader doubt.

use crate::histogram::Percentiles;
use crate::plan::{Media, Plan, Scenario};
use crate::tally::JoinPercentiles;
use serde::Serialize;

/// A thread that is busier than this share of its core is late because of itself.
const BUSY_PCT_MAX: f64 = 85.0;
/// Publishers later than this say something about the tool's machine.
const LATE_MS_MAX: f64 = 5.0;
/// A viewer that got less than this share of what was sent to it is starved: a stream that never began is another
/// fault than stray loss.
pub const STARVED_BELOW: f64 = 0.9;

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the tool.
    pub version: &'static str,
    /// What was asked for.
    pub asked: Asked,
    /// It was ended before its time.
    pub interrupted: bool,
    /// How long was measured, in seconds.
    pub hold_s: f64,
    /// Who got in.
    pub joins: Joins,
    /// What was carried.
    pub media: Carried,
    /// How late publishers sent, against the schedule.
    pub late: Percentiles,
    /// The tool itself.
    pub tool: Tool,
    /// The server's process, where it was named.
    pub server: Option<Server>,
    /// What its reader must know before believing it.
    pub warnings: Vec<String>,
    /// Second by second.
    pub timeline: Vec<Moment>,
    /// Distribution of the latency: `(ms, share of packets that took longer)`.
    pub latency_tail: Vec<(f64, f64)>,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// Kind of rooms.
    pub scenario: Scenario,
    /// The server.
    pub url: String,
    /// Rooms.
    pub rooms: usize,
    /// Publishers of each.
    pub publishers: usize,
    /// Viewers of each that publish nothing.
    pub viewers: usize,
    /// What publishers send.
    pub media: Media,
    /// Joins a second.
    pub joins_per_s: f64,
    /// Transport-wide feedback.
    pub twcc: bool,
    /// Viewers of a room that decrypt, if not all.
    pub probes: Option<usize>,
    /// Seed.
    pub seed: u64,
}

impl RefusedCount {
    /// Status and code, as people read them.
    pub fn name(&self) -> String {
        let status = self.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
        format!("{status} {}", self.code)
    }
}

impl Asked {
    /// What `plan` asks for.
    pub fn of(plan: &Plan) -> Self {
        Self {
            scenario: plan.scenario,
            url: plan.url.to_string(),
            rooms: plan.rooms,
            publishers: plan.publishers,
            viewers: if plan.scenario == Scenario::Live { plan.viewers } else { 0 },
            media: plan.media,
            joins_per_s: plan.joins_per_s,
            twcc: plan.twcc,
            probes: plan.probes,
            seed: plan.seed,
        }
    }
}

/// Who got in.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Joins {
    /// Offers sent.
    pub asked: usize,
    /// Offers answered with 201.
    pub accepted: usize,
    /// Clients whose media flowed to the end.
    pub connected: usize,
    /// Offers answered otherwise, by status and code.
    pub refused: Vec<RefusedCount>,
    /// Clients that were accepted and ended by themselves, or never connected; by what happened.
    pub failed: Vec<FailedCount>,
    /// How long it took.
    pub times: JoinPercentiles,
}

/// Joins refused alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedCount {
    /// HTTP status; none if no answer came.
    pub status: Option<u16>,
    /// The server's code, or what happened instead.
    pub code: String,
    /// What was said about the first of them; empty if nothing was.
    pub detail: String,
    /// How many.
    pub count: usize,
}

/// Clients that failed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedCount {
    /// What happened.
    pub why: String,
    /// How many.
    pub count: usize,
}

/// Packets sent while it held, and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Carried {
    /// Packets sent by publishers.
    pub sent: u64,
    /// Packets that viewers should have got.
    pub expected: u64,
    /// Packets that they got.
    pub received: u64,
    /// Of `expected`, in per cent, what they did not get.
    pub loss_pct: f64,
    /// Packets received more than once, in the whole run.
    pub duplicates: u64,
    /// Packets received after a newer one, in the whole run.
    pub reordered: u64,
    /// Packets that nobody of this run sent, in the whole run.
    pub foreign: u64,
    /// Viewers that got less than 90 % of theirs.
    pub starved: usize,
    /// Viewers whose loss could be measured.
    pub viewers: usize,
    /// Packets a second received.
    pub packets_per_s: f64,
    /// Payload received, in Mbit/s.
    pub mbit_per_s: f64,
    /// From before the publisher encrypts to the viewer's kernel: all packets.
    pub latency: Percentiles,
    /// Audio alone.
    pub audio_latency: Percentiles,
    /// Video alone.
    pub video_latency: Percentiles,
}

/// The tool's own cost while it held.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tool {
    /// CPU time, in per cent of one core.
    pub cores_pct: f64,
    /// The busiest thread, in per cent of its core.
    pub busiest_thread_pct: f64,
    /// I/O threads.
    pub threads: usize,
    /// Datagrams that the system did not take.
    pub send_errors: u64,
}

/// The server's cost while it held.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Server {
    /// CPU time, in per cent of one core.
    pub cores_pct: f64,
    /// User and system time for each packet that viewers received, in µs.
    pub us_per_packet: Option<f64>,
    /// Resident memory at the end of the measurement, everybody still there, in KiB.
    pub resident_kib: u64,
    /// Its growth from the first viewer's offer on, for each viewer, in KiB.
    pub resident_kib_per_viewer: Option<f64>,
}

/// One second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Moment {
    /// Seconds since the first join.
    pub at_s: f64,
    /// The measurement was on.
    pub held: bool,
    /// Offers accepted so far.
    pub accepted: usize,
    /// Clients whose media flows.
    pub connected: usize,
    /// Packets a second sent.
    pub sent_per_s: f64,
    /// Packets a second received.
    pub received_per_s: f64,
    /// Latency, median.
    pub p50_ms: Option<f64>,
    /// Latency that 99 % do not exceed.
    pub p99_ms: Option<f64>,
    /// The tool's CPU, in per cent of one core.
    pub tool_pct: f64,
    /// The server's CPU, in per cent of one core.
    pub server_pct: Option<f64>,
}

/// What a run may at most show; what is not set is not asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bounds {
    /// Loss, in per cent.
    pub loss_pct: Option<f64>,
    /// Latency that 99 % of packets do not exceed, in ms.
    pub p99_ms: Option<f64>,
    /// Joins refused or failed.
    pub lost_joins: Option<usize>,
}

impl Report {
    /// Joins that did not become a connection which lasted.
    pub fn lost_joins(&self) -> usize {
        self.joins.asked.saturating_sub(self.joins.connected)
    }

    /// A sentence for each bound that does not hold.
    pub fn breaches(&self, bounds: &Bounds) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(most) = bounds.loss_pct
            && (self.media.loss_pct > most || self.media.received == 0)
        {
            found.push(format!("{:.3} % of the packets were lost; the bound is {most} %", self.media.loss_pct));
        }
        if let Some(most) = bounds.p99_ms {
            match self.media.latency.p99_ms {
                Some(p99) if p99 <= most => {}
                Some(p99) => found.push(format!("the latency's p99 is {p99:.2} ms; the bound is {most} ms")),
                None => found.push(format!("no latency was measured; the bound of its p99 is {most} ms")),
            }
        }
        if let Some(most) = bounds.lost_joins
            && self.lost_joins() > most
        {
            found.push(format!("{} joins were refused or failed; the bound is {most}", self.lost_joins()));
        }
        found
    }

    /// Finds what its reader must know, and keeps it in `warnings`.
    pub fn judge(&mut self) {
        let mut found = Vec::new();
        if self.tool.busiest_thread_pct > BUSY_PCT_MAX {
            found.push(format!(
                "A thread of this tool used {:.0} % of its core: the figures speak of the tool as much as of the server. Use \
                 more --threads, fewer clients, or --probes.",
                self.tool.busiest_thread_pct
            ));
        }
        if let Some(late) = self.late.p99_ms.filter(|late| *late > LATE_MS_MAX) {
            found.push(format!(
                "Publishers were up to {late:.1} ms late (p99): this machine had no time for the tool, and the media came in \
                 bursts."
            ));
        }
        if self.tool.send_errors > 0 {
            let n = self.tool.send_errors;
            found.push(format!("The system did not take {n} datagrams of the clients; they count as lost."));
        }
        if self.media.starved > 0 {
            let (n, of) = (self.media.starved, self.media.viewers);
            found.push(format!("{n} of {of} viewers got less than 90 % of theirs: a stream did not begin, or ended."));
        }
        if self.media.foreign > 0 {
            let n = self.media.foreign;
            found.push(format!("{n} packets came that nobody of this run sent: somebody else is in these rooms."));
        }
        if self.interrupted {
            found.push("The run was interrupted; it measured for a shorter time than asked.".to_owned());
        }
        self.warnings = found;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::tests::plan;

    pub(crate) fn report() -> Report {
        let moment = |n: usize| Moment {
            at_s: n as f64,
            held: n >= 3,
            accepted: 2 * n,
            connected: 2 * n,
            sent_per_s: 180.0,
            received_per_s: 900.0 * n as f64,
            p50_ms: (n > 0).then_some(0.4),
            p99_ms: (n > 0).then_some(1.5 + n as f64),
            tool_pct: 12.0,
            server_pct: Some(9.0),
        };
        Report {
            version: "0",
            asked: Asked::of(&plan(Scenario::Live, 1, 1, 10)),
            interrupted: false,
            hold_s: 5.0,
            joins: Joins { asked: 11, accepted: 11, connected: 11, ..Joins::default() },
            media: Carried {
                sent: 900,
                expected: 9_000,
                received: 8_991,
                loss_pct: 0.1,
                viewers: 10,
                latency: Percentiles {
                    count: 8_991,
                    p50_ms: Some(0.4),
                    p95_ms: Some(1.0),
                    p99_ms: Some(2.0),
                    max_ms: Some(3.0),
                },
                ..Carried::default()
            },
            late: Percentiles { count: 400, p99_ms: Some(0.6), ..Percentiles::default() },
            tool: Tool { cores_pct: 20.0, busiest_thread_pct: 18.0, threads: 1, send_errors: 0 },
            server: Some(Server {
                cores_pct: 9.0,
                us_per_packet: Some(6.5),
                resident_kib: 40_000,
                resident_kib_per_viewer: Some(120.0),
            }),
            warnings: Vec::new(),
            timeline: (0..8).map(moment).collect(),
            latency_tail: vec![(0.2, 1.0), (0.4, 0.5), (2.0, 0.01), (3.0, 0.001)],
        }
    }

    #[test]
    fn a_run_without_a_fault_warns_of_nothing_and_each_fault_has_its_warning() {
        let of = |change: fn(&mut Report)| {
            let mut report = report();
            change(&mut report);
            report.judge();
            report.warnings
        };
        assert_eq!(of(|_| {}), Vec::<String>::new());
        for (change, words) in [
            ((|r| r.tool.busiest_thread_pct = 97.0) as fn(&mut Report), "97 % of its core"),
            (|r| r.late.p99_ms = Some(8.0), "8.0 ms late"),
            (|r| r.tool.send_errors = 3, "3 datagrams"),
            (|r| r.media.starved = 2, "2 of 10 viewers"),
            (|r| r.media.foreign = 4, "4 packets"),
            (|r| r.interrupted = true, "interrupted"),
        ] {
            let warnings = of(change);
            assert!(warnings.len() == 1 && warnings[0].contains(words), "{words}: {warnings:?}");
        }
    }

    #[test]
    fn bounds_are_inclusive_and_nothing_measured_breaks_them() {
        let all = Bounds { loss_pct: Some(0.1), p99_ms: Some(2.0), lost_joins: Some(0) };
        let mut report = report();
        assert_eq!(report.breaches(&all), Vec::<String>::new());
        assert_eq!(report.breaches(&Bounds::default()), Vec::<String>::new());
        report.media.loss_pct = 0.2;
        report.media.latency.p99_ms = Some(2.1);
        report.joins.connected = 10;
        assert_eq!(report.breaches(&all).len(), 3);
        report.media = Carried::default();
        assert_eq!(report.breaches(&all).len(), 3, "nothing received is no success");
    }
}
