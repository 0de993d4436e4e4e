//! The course of a run: ramp, settle, hold, leave.

use crate::client::{Offered, State, Viewed, wall_clock};
use crate::histogram::Histogram;
use crate::io::{self, Outcome, Second, Shared};
use crate::machine;
use crate::plan::{Plan, Role, Scenario, Seat, audio_stream, video_stream};
use crate::report::{Asked, Carried, FailedCount, Joins, Moment, RefusedCount, Report, STARVED_BELOW, Server, Tool};
use crate::schedule::Ticks;
use crate::signal::{Credentials, Doors, Refused};
use crate::tally::{JoinTimes, Tally, Window};
use reqwest::Url;
use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use str0m::config::DtlsCert;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant as TokioInstant, sleep_until};

/// Longest wait, after the last join was asked for, for all that were accepted to connect.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Packets are on their way for this long after the last one that is measured.
const DRAIN: Duration = Duration::from_millis(500);
/// DELETEs at the same time.
const LEAVING_MAX: usize = 16;
/// Code of a client that could not be made.
const NO_CLIENT: &str = "no_client";
/// Longest time that taking leave may need.
const LEAVE_MAX: Duration = Duration::from_secs(15);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan cannot be.
    #[error("{0}")]
    Plan(String),
    /// Nobody answers.
    #[error("no server answers at {url}: {why}; {remedy}")]
    Unreachable {
        /// Where.
        url: Box<Url>,
        /// What the system said.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The server refuses who we are.
    #[error("{url} let nobody in: {status} {code}{detail}; give --token, or --key name:secret of one of its API keys")]
    NotAllowed {
        /// Where.
        url: Box<Url>,
        /// HTTP status.
        status: u16,
        /// The server's code.
        code: String,
        /// What it said about it, with a separator before it.
        detail: String,
    },
    /// There is no such door.
    #[error("{url} answers, but has no {door} endpoint there (status {status}): is it the address of a Rondo server?")]
    NoDoor {
        /// Where.
        url: Box<Url>,
        /// `WHIP` or `WHEP`.
        door: &'static str,
        /// HTTP status.
        status: u16,
    },
    /// There is no such process.
    #[error("there is no process {0} to measure; --pid takes the number of the server's")]
    NoProcess(u32),
    /// This machine did not give what a run needs.
    #[error("this machine cannot run the load: {0}")]
    Machine(String),
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Clients join.
    Ramp,
    /// All have joined; what that stirred up settles.
    Settle,
    /// The measurement.
    Hold,
    /// Clients leave.
    Leave,
}

/// A second of a run, for whoever watches.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Where it stands.
    pub phase: Phase,
    /// Joins asked for so far.
    pub asked: usize,
    /// Joins of the whole run.
    pub joins: usize,
    /// Joins refused so far.
    pub refused: usize,
    /// Clients that ended by themselves so far.
    pub failed: usize,
    /// This second.
    pub moment: Moment,
}

/// Runs `plan` and reports. `stop` ends it early, with a report; `watch` hears of every second.
///
/// # Errors
/// When nothing can be measured: the plan, the machine or the server does not allow it.
pub async fn run(
    plan: Plan,
    credentials: Credentials,
    stop: impl Future<Output = ()>,
    mut watch: impl FnMut(&Progress),
) -> Result<Report, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    if let Some(pid) = plan.pid
        && machine::process_cpu(pid).is_none()
    {
        return Err(LoadError::NoProcess(pid));
    }
    let doors = Doors::new(plan.url.clone(), plan.roots(), credentials)?;
    let mut run = Run::new(plan, doors)?;
    let done = tokio::select! {
        done = run.course(&mut watch) => done,
        () = stop => {
            run.interrupted = true;
            Ok(())
        }
    };
    run.end_window();
    if done.is_ok() {
        watch(&run.progress(run.timeline.moments.last().cloned().unwrap_or_default(), Phase::Leave));
        // What is on its way still counts.
        tokio::time::sleep(DRAIN).await;
    }
    let outcomes = run.stop_threads();
    run.leave().await;
    done?;
    run.report(outcomes?)
}

struct Run {
    plan: Arc<Plan>,
    seats: Arc<Vec<Seat>>,
    doors: Doors,
    certificate: DtlsCert,
    shared: Arc<Shared>,
    threads: Vec<io::Thread>,
    seconds: UnboundedReceiver<Second>,
    joining: JoinSet<Result<Joined, Refused>>,
    began: Instant,
    asked: usize,
    joined: Vec<Joined>,
    answer_times: Histogram,
    refused: Refusals,
    interrupted: bool,
    hold: Option<Hold>,
    all: Tally,
    held: Tally,
    timeline: Timeline,
    resident_kib_before_viewers: Option<u64>,
}

/// A client that the server let in.
struct Joined {
    resource: Option<Url>,
    token: Option<String>,
    answer_time: Duration,
}

/// The measurement, from its beginning on.
struct Hold {
    began: Instant,
    ended: Option<Instant>,
    tool_cpu: Duration,
    server_cpu: Option<Duration>,
    /// The server's memory when it ended.
    resident_kib: Option<u64>,
    busy: Vec<(Duration, Duration)>,
}

/// Joins that the server did not take: how many, and what was said about the first, by status and code.
#[derive(Default)]
struct Refusals(BTreeMap<(Option<u16>, String), (usize, String)>);

impl Refusals {
    fn count(&mut self, refused: Refused) {
        self.0.entry((refused.status, refused.code)).or_insert((0, refused.detail)).0 += 1;
    }

    fn sum(&self) -> usize {
        self.0.values().map(|(count, _)| count).sum()
    }

    fn counts(&self) -> Vec<RefusedCount> {
        let each = self.0.iter().map(|((status, code), (count, detail))| RefusedCount {
            status: *status,
            code: code.clone(),
            detail: detail.clone(),
            count: *count,
        });
        each.collect()
    }
}

/// Seconds of all threads, and the last reading of CPU times.
struct Timeline {
    moments: Vec<Moment>,
    second: Tally,
    length: Duration,
    waiting: HashSet<usize>,
    connected: Vec<(usize, usize)>,
    tool_cpu: Duration,
    server_cpu: Option<Duration>,
    read_at: Instant,
}

impl Run {
    fn new(plan: Plan, doors: Doors) -> Result<Self, LoadError> {
        let machine = |what: &str, error: &dyn std::fmt::Display| LoadError::Machine(format!("{what}: {error}"));
        let seats = plan.seats();
        let publishers = plan.rooms * plan.publishers;
        let window = Window::new(publishers * 2);
        let shared = Arc::new(Shared { window, stop: AtomicBool::new(false) });
        let (sender, seconds) = unbounded_channel();
        let threads = (0..plan.threads).map(|n| io::start(n, Arc::clone(&shared), sender.clone()));
        let threads = threads.collect::<Result<Vec<_>, _>>().map_err(|e| machine("a thread", &e))?;
        // One for all clients: making it is the costliest part of one.
        let certificate = str0m::crypto::from_feature_flags()
            .dtls_provider
            .generate_certificate()
            .ok_or_else(|| machine("a DTLS certificate", &"none could be made"))?;
        let now = Instant::now();
        Ok(Self {
            timeline: Timeline {
                moments: Vec::new(),
                second: Tally::default(),
                length: Duration::ZERO,
                waiting: (0..plan.threads).collect(),
                connected: vec![(0, 0); plan.threads],
                tool_cpu: machine::own_cpu().unwrap_or_default(),
                server_cpu: plan.pid.and_then(machine::process_cpu),
                read_at: now,
            },
            plan: Arc::new(plan),
            seats: Arc::new(seats),
            doors,
            certificate,
            shared,
            threads,
            seconds,
            joining: JoinSet::new(),
            began: now,
            asked: 0,
            joined: Vec::new(),
            answer_times: Histogram::default(),
            refused: Refusals::default(),
            interrupted: false,
            hold: None,
            all: Tally::default(),
            held: Tally::default(),
            resident_kib_before_viewers: None,
        })
    }

    /// Ramp, settle, hold.
    async fn course(&mut self, watch: &mut impl FnMut(&Progress)) -> Result<(), LoadError> {
        let mut ticks = Ticks::new(self.began, self.plan.joins_per_s);
        while self.asked < self.seats.len() {
            let due = ticks.due();
            self.listen_until(due, Phase::Ramp, watch, |_| false).await?;
            while self.asked < self.seats.len() && ticks.take(Instant::now()).is_some() {
                self.ask();
            }
        }
        let all_in = |run: &Self| run.joining.is_empty() && run.connected() + run.failed() >= run.joined.len();
        self.listen_until(Instant::now() + CONNECT_MAX, Phase::Ramp, watch, all_in).await?;
        self.listen_until(Instant::now() + self.plan.settle, Phase::Settle, watch, |_| false).await?;
        self.begin_window();
        self.listen_until(Instant::now() + self.plan.hold, Phase::Hold, watch, |_| false).await
    }

    /// Takes what comes until `deadline`, or until `enough`.
    async fn listen_until(
        &mut self,
        deadline: Instant,
        phase: Phase,
        watch: &mut impl FnMut(&Progress),
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), LoadError> {
        while !enough(self) {
            tokio::select! {
                () = sleep_until(TokioInstant::from_std(deadline)) => return Ok(()),
                Some(second) = self.seconds.recv() => {
                    if let Some(moment) = self.note(second) {
                        watch(&self.progress(moment, phase));
                    }
                }
                Some(joined) = self.joining.join_next() => match joined {
                    Ok(Ok(joined)) => {
                        self.answer_times.record(joined.answer_time);
                        self.joined.push(joined);
                    }
                    Ok(Err(refused)) => self.refuse(refused)?,
                    Err(error) => return Err(LoadError::Machine(error.to_string())),
                },
            }
        }
        Ok(())
    }

    /// Sends the next seat's offer.
    fn ask(&mut self) {
        let index = self.asked;
        self.asked += 1;
        let seat = self.seats[index].clone();
        if matches!(seat.role, Role::Play { .. }) && self.resident_kib_before_viewers.is_none() {
            self.resident_kib_before_viewers = self.plan.pid.and_then(machine::resident_kib);
        }
        let thread = &self.threads[index % self.threads.len()];
        let join = Join {
            plan: Arc::clone(&self.plan),
            doors: self.doors.clone(),
            certificate: self.certificate.clone(),
            clients: thread.clients.clone(),
            index,
            seat,
        };
        self.joining.spawn(join.run());
    }

    /// Counts a refusal. Before anybody was let in, one that all others would share ends the run; a client that this
    /// machine cannot make ends it at any time.
    fn refuse(&mut self, refused: Refused) -> Result<(), LoadError> {
        let url = Box::new(self.plan.url.clone());
        let first = self.joined.is_empty() && self.refused.0.is_empty();
        match refused.status {
            None if refused.code == NO_CLIENT => return Err(LoadError::Machine(refused.detail)),
            None if first && refused.code == "unreachable" => {
                let remedy = match url.scheme() {
                    "https" => "name yours with --url, and its certificate with --ca",
                    _ => "start one with `rondo serve --dev`, or name yours with --url",
                };
                return Err(LoadError::Unreachable { url, why: refused.detail, remedy });
            }
            None if first && refused.code == "no_token" => return Err(LoadError::Plan(refused.detail)),
            Some(status @ (401 | 403)) if first => {
                let detail = if refused.detail.is_empty() { String::new() } else { format!(" ({})", refused.detail) };
                return Err(LoadError::NotAllowed { url, status, code: refused.code, detail });
            }
            Some(status @ (404 | 405)) if first => return Err(LoadError::NoDoor { url, door: "WHIP", status }),
            _ => {}
        }
        self.refused.count(refused);
        Ok(())
    }

    fn connected(&self) -> usize {
        self.timeline.connected.iter().map(|(connected, _)| connected).sum()
    }

    fn failed(&self) -> usize {
        self.timeline.connected.iter().map(|(_, failed)| failed).sum()
    }

    /// Takes note of a thread's second; a moment, once all threads have told theirs.
    fn note(&mut self, second: Second) -> Option<Moment> {
        self.all.merge(&second.tally);
        if let Some(hold) = &mut self.hold
            && hold.ended.is_none()
            && let Some(busy) = hold.busy.get_mut(second.thread)
        {
            *busy = (busy.0 + second.tally.busy, busy.1 + second.length);
        }
        if self.hold.is_some() {
            self.held.merge(&second.tally);
        }
        let timeline = &mut self.timeline;
        timeline.connected[second.thread] = (second.connected, second.failed);
        timeline.second.merge(&second.tally);
        timeline.length = timeline.length.max(second.length);
        timeline.waiting.remove(&second.thread);
        if !timeline.waiting.is_empty() {
            return None;
        }
        let moment = self.moment();
        self.timeline.moments.push(moment.clone());
        Some(moment)
    }

    fn moment(&mut self) -> Moment {
        let (at_s, accepted, connected) = (self.began.elapsed().as_secs_f64(), self.joined.len(), self.connected());
        let timeline = &mut self.timeline;
        timeline.waiting = (0..self.threads.len()).collect();
        let second = std::mem::take(&mut timeline.second);
        let length_s = std::mem::take(&mut timeline.length).as_secs_f64();
        let now = Instant::now();
        let since = now.duration_since(std::mem::replace(&mut timeline.read_at, now));
        let share = |before: &mut Duration, after: Option<Duration>| {
            let after = after?;
            let used = after.saturating_sub(std::mem::replace(before, after));
            (!since.is_zero()).then(|| 100.0 * used.as_secs_f64() / since.as_secs_f64())
        };
        let tool_pct = share(&mut timeline.tool_cpu, machine::own_cpu()).unwrap_or_default();
        let server_pct =
            timeline.server_cpu.as_mut().and_then(|cpu| share(cpu, self.plan.pid.and_then(machine::process_cpu)));
        let latency = second.latency.percentiles();
        Moment {
            at_s,
            held: self.hold.is_some(),
            accepted,
            connected,
            sent_per_s: second.sent as f64 / length_s,
            received_per_s: second.received as f64 / length_s,
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            tool_pct,
            server_pct,
        }
    }

    fn progress(&self, moment: Moment, phase: Phase) -> Progress {
        Progress {
            phase,
            asked: self.asked,
            joins: self.seats.len(),
            refused: self.refused.sum(),
            failed: self.failed(),
            moment,
        }
    }

    fn begin_window(&mut self) {
        self.hold = Some(Hold {
            began: Instant::now(),
            ended: None,
            tool_cpu: machine::own_cpu().unwrap_or_default(),
            server_cpu: self.plan.pid.and_then(machine::process_cpu),
            resident_kib: None,
            busy: vec![(Duration::ZERO, Duration::ZERO); self.threads.len()],
        });
        self.shared.window.begin(wall_clock());
    }

    /// Ends the measurement, turns CPU readings into what was used, and reads the server's memory while all are there.
    fn end_window(&mut self) {
        self.shared.window.end(wall_clock());
        if let Some(hold) = &mut self.hold {
            hold.ended = Some(Instant::now());
            hold.tool_cpu = machine::own_cpu().unwrap_or_default().saturating_sub(hold.tool_cpu);
            let server_cpu = self.plan.pid.and_then(machine::process_cpu);
            hold.server_cpu = hold.server_cpu.zip(server_cpu).map(|(before, after)| after.saturating_sub(before));
            hold.resident_kib = self.plan.pid.and_then(machine::resident_kib);
        }
    }

    fn stop_threads(&mut self) -> Result<Vec<Outcome>, LoadError> {
        self.shared.stop.store(true, Relaxed);
        let ended = self.threads.drain(..).map(|thread| {
            let outcome = thread.handle.join().map_err(|_| LoadError::Machine("a thread panicked".to_owned()))?;
            outcome.map_err(|error| LoadError::Machine(error.to_string()))
        });
        let outcomes: Result<Vec<_>, _> = ended.collect();
        // Their last seconds: too short for the timeline.
        while let Ok(second) = self.seconds.try_recv() {
            self.all.merge(&second.tally);
            if self.hold.is_some() {
                self.held.merge(&second.tally);
            }
        }
        outcomes
    }

    /// Deletes what was made, some at a time.
    async fn leave(&mut self) {
        let all = async {
            // Offers on their way make resources, too.
            while let Some(joined) = self.joining.join_next().await {
                match joined {
                    Ok(Ok(joined)) => self.joined.push(joined),
                    Ok(Err(refused)) => self.refused.count(refused),
                    Err(_) => {}
                }
            }
            let mut leaving = JoinSet::new();
            for joined in &self.joined {
                let Some(resource) = joined.resource.clone() else { continue };
                if leaving.len() >= LEAVING_MAX {
                    leaving.join_next().await;
                }
                let (doors, token) = (self.doors.clone(), joined.token.clone());
                leaving.spawn(async move { doors.delete(resource, token).await });
            }
            while leaving.join_next().await.is_some() {}
        };
        // A server that does not answer any more keeps nobody here.
        let _ = tokio::time::timeout(LEAVE_MAX, all).await;
    }

    fn report(self, outcomes: Vec<Outcome>) -> Result<Report, LoadError> {
        let mut times = JoinTimes { answer: self.answer_times.clone(), ..JoinTimes::default() };
        let (mut viewed, mut connected, mut failed) = (Vec::new(), HashSet::new(), BTreeMap::<String, usize>::new());
        for outcome in &outcomes {
            times.merge(&outcome.joins);
            for client in &outcome.clients {
                viewed.extend(client.viewed());
                match client.state() {
                    State::Connected => {
                        connected.insert(client.seat);
                    }
                    State::Connecting => *failed.entry("it never connected".to_owned()).or_default() += 1,
                    State::Failed(why) => *failed.entry(why.clone()).or_default() += 1,
                }
            }
        }
        let hold_s = self.hold.as_ref().map_or(0.0, Hold::length_s);
        let media = self.carried(&viewed, &connected, hold_s);
        let viewers = viewed.len();
        let joins = Joins {
            asked: self.asked,
            accepted: self.joined.len(),
            connected: connected.len(),
            refused: self.refused.counts(),
            failed: failed.into_iter().map(|(why, count)| FailedCount { why, count }).collect(),
            times: times.percentiles(),
        };
        let mut latency = self.held.audio_inside.clone();
        latency.merge(&self.held.video_inside);
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            asked: Asked::of(&self.plan),
            interrupted: self.interrupted,
            hold_s,
            joins,
            late: self.held.late.percentiles(),
            tool: self.tool(hold_s),
            server: self.server(hold_s, media.received, viewers),
            media,
            warnings: Vec::new(),
            timeline: self.timeline.moments,
            latency_tail: latency.tail(),
        };
        report.judge();
        Ok(report)
    }

    /// What was sent inside the window, against what viewers saw of it. Viewers who did not stay have no part in it:
    /// they count as failed.
    fn carried(&self, viewed: &[Viewed], connected: &HashSet<usize>, hold_s: f64) -> Carried {
        let sent_by = |publisher: usize| {
            let window = &self.shared.window;
            window.sent_of(audio_stream(publisher)) + window.sent_of(video_stream(publisher))
        };
        let publishers = self.plan.publishers;
        let mut carried = Carried {
            sent: (0..self.plan.rooms * publishers).map(sent_by).sum(),
            duplicates: self.all.duplicates,
            reordered: self.all.reordered,
            foreign: self.all.foreign,
            ..Carried::default()
        };
        for viewer in viewed.iter().filter(|viewer| connected.contains(&viewer.seat)) {
            let Some(Seat { room, role: Role::Play { own, .. }, .. }) = self.seats.get(viewer.seat) else { continue };
            let of_room = (room * publishers..(room + 1) * publishers).filter(|publisher| Some(*publisher) != *own);
            let sent: u64 = of_room.map(sent_by).sum();
            // Who only counts knows what it missed by its numbers, and when it came, not when it was sent.
            let expected = viewer.numbered.unwrap_or(sent);
            carried.viewers += 1;
            carried.expected += expected;
            carried.received += viewer.received;
            carried.starved += usize::from((viewer.received as f64) < STARVED_BELOW * sent as f64);
        }
        let lost = carried.expected.saturating_sub(carried.received);
        carried.loss_pct = if carried.expected > 0 { 100.0 * lost as f64 / carried.expected as f64 } else { 0.0 };
        if hold_s > 0.0 {
            carried.packets_per_s = carried.received as f64 / hold_s;
            carried.mbit_per_s = self.held.bytes_inside as f64 * 8.0 / 1e6 / hold_s;
        }
        let mut latency = self.held.audio_inside.clone();
        latency.merge(&self.held.video_inside);
        carried.latency = latency.percentiles();
        carried.audio_latency = self.held.audio_inside.percentiles();
        carried.video_latency = self.held.video_inside.percentiles();
        carried
    }

    fn tool(&self, hold_s: f64) -> Tool {
        let Some(hold) = self.hold.as_ref().filter(|_| hold_s > 0.0) else { return Tool::default() };
        let busy = hold.busy.iter().filter(|(_, length)| !length.is_zero());
        Tool {
            cores_pct: 100.0 * hold.tool_cpu.as_secs_f64() / hold_s,
            busiest_thread_pct: busy
                .map(|(busy, all)| 100.0 * busy.as_secs_f64() / all.as_secs_f64())
                .fold(0.0, f64::max),
            threads: hold.busy.len(),
            send_errors: self.all.send_errors,
        }
    }

    fn server(&self, hold_s: f64, received: u64, viewers: usize) -> Option<Server> {
        let hold = self.hold.as_ref().filter(|_| hold_s > 0.0)?;
        let (cpu, resident_kib) = (hold.server_cpu?.as_secs_f64(), hold.resident_kib?);
        let growth = self.resident_kib_before_viewers.map(|before| resident_kib.saturating_sub(before) as f64);
        Some(Server {
            cores_pct: 100.0 * cpu / hold_s,
            us_per_packet: (received > 0).then(|| cpu * 1e6 / received as f64),
            resident_kib,
            resident_kib_per_viewer: growth.filter(|_| viewers > 0).map(|growth| growth / viewers as f64),
        })
    }
}

impl Hold {
    fn length_s(&self) -> f64 {
        self.ended.map_or(0.0, |ended| ended.duration_since(self.began).as_secs_f64())
    }
}

/// One seat on its way in.
struct Join {
    plan: Arc<Plan>,
    doors: Doors,
    certificate: DtlsCert,
    clients: Sender<crate::client::Client>,
    index: usize,
    seat: Seat,
}

impl Join {
    async fn run(self) -> Result<Joined, Refused> {
        let own = |code: &str, detail: String| Refused { status: None, code: code.to_owned(), detail };
        let room = self.plan.room(self.seat.room);
        let token = self.doors.token(&room, &self.seat.identity).await?;
        let offered =
            Offered::new(&self.plan, self.index, &self.seat, &self.certificate).map_err(|e| own(NO_CLIENT, e))?;
        let door = match self.seat.role {
            Role::Publish { .. } => "whip",
            Role::Play { .. } => "whep",
        };
        let asked_at = Instant::now();
        let accepted = self.doors.offer(door, &room, token, offered.sdp.clone()).await?;
        let answer_time = asked_at.elapsed();
        match offered.accept(&accepted.answer) {
            // The thread has ended when the run is being ended: the resource is deleted all the same.
            Ok(client) => drop(self.clients.send(client)),
            Err(error) => {
                if let Some(resource) = accepted.resource {
                    self.doors.delete(resource, accepted.token).await;
                }
                return Err(own("unusable_answer", error));
            }
        }
        Ok(Joined { resource: accepted.resource, token: accepted.token, answer_time })
    }
}

impl Plan {
    /// Name of room `n`: the same in every run of a seed, and not that of people's rooms.
    fn room(&self, n: usize) -> String {
        let kind = match self.scenario {
            Scenario::Call => "call",
            Scenario::Conference => "conference",
            Scenario::Live => "live",
        };
        format!("load-{kind}-{}-{n}", self.seed)
    }
}
