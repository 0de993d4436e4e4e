//! Where the actors really live: one pinned arbiter and socket per worker, the supervisor on the main one.

use crate::api::{MediaConfig, NodeConfig};
use crate::builds::Builds;
use crate::count::{WorkerCounters, WorkerHeld};
use crate::local::{Host, Local, MakeSession, OnEnd};
use crate::node::{Inner, StartError, WorkerHandle, WorkerReport};
use crate::port::{Port, Refused, Reply};
use crate::room::{Room, RoomMsg, RoomSeed};
use crate::session::SessionMsg;
use crate::shell::{Alarm, Ending, Receive, Shell, Woken, alive};
use crate::supervisor::{Placer, Supervisor, SupervisorCounts, SupervisorMsg};
use crate::worker::drive::{Core, Wake, drive};
use crate::worker::ingress::Ingress;
use crate::worker::outbox::Outbox;
use crate::worker::pin::spawn_arbiter;
use crate::worker::socket::{MediaSender, MediaSocket, RecvBatch};
use crate::worker::wheel::TimerKey;
use rondo_media::ids::{Random, RoomId};
use rondo_media::transport::Shared;
use rondo_media::units::{Deadline, WallClock, Why};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Messages that may wait for the supervisor.
pub const SUPERVISOR_QUEUE: usize = 16_384;
/// Messages that may wait for a room: about a second of 30 publishers.
pub const ROOM_QUEUE: usize = 4_096;
/// Messages that may wait for a session: about a second of what a viewer of a large room gets.
pub const SESSION_QUEUE: usize = 1_024;
/// Messages that may wait for a worker's own actor, which is told little.
const WORKER_QUEUE: usize = 64;
/// How often each worker is asked whether it lives.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Silence after which a worker that cannot be told anything any more is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// Random bytes from the system.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // The only failure is a kernel without getrandom(2); ids that can be guessed would be worse than none.
        getrandom::fill(out).unwrap_or_else(|error| panic!("the system gives no random bytes: {error}"));
    }
}

/// Messages to a worker's own actor.
pub enum WorkerMsg {
    /// Do you live?
    Ping(Reply<()>),
    /// A room of this worker died: its sessions end.
    CloseSessions(RoomId),
}

/// A worker's own actor: answers for the thread, and ends what a dead room leaves behind.
pub struct Worker {
    local: Rc<Local>,
    held: Arc<WorkerHeld>,
}

impl Receive for Worker {
    type Msg = WorkerMsg;
    fn receive(&mut self, _now: Instant, msg: WorkerMsg) {
        match msg {
            WorkerMsg::Ping(reply) => {
                self.local.tell_held(&self.held);
                self.held.actors.set(alive());
                reply.answer(());
            }
            WorkerMsg::CloseSessions(room) => close_sessions(&self.local, room),
        }
    }
    fn wake(&mut self, _now: Instant) {}
    fn deadline(&self) -> Option<Deadline> {
        None
    }
    fn finished(&self) -> bool {
        false
    }
}

/// Tells something that must arrive, from a place that cannot wait: what is refused as full is tried again.
fn insist<M: Send + 'static>(port: Port<M>, msg: M) {
    let Err(Refused::Full(mut msg)) = port.tell(msg) else { return };
    actix_rt::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            match port.tell(msg) {
                Err(Refused::Full(back)) => msg = back,
                Ok(()) | Err(Refused::Gone(_)) => return,
            }
        }
    });
}

/// Ends every session of a room that is no more; one that cannot be told notices by its next word to the room.
pub fn close_sessions(local: &Local, room: RoomId) {
    for (slot, port) in local.sessions_of(room) {
        let _ = port.tell(SessionMsg::Close(crate::api::LeaveReason::ServerError));
        local.close_slot(slot);
    }
}

thread_local! {
    /// The worker that this thread is; rooms are started here from elsewhere.
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// A deadline on the worker's timer wheel.
struct WheelAlarm {
    local: Rc<Local>,
    key: TimerKey,
}

impl WheelAlarm {
    fn boxed(local: Rc<Local>, wakes: Arc<dyn Woken>) -> Box<dyn Alarm> {
        let key = local.timer(wakes);
        Box::new(Self { local, key })
    }
}

impl Alarm for WheelAlarm {
    fn set(&mut self, deadline: Option<Deadline>) {
        self.local.arm(self.key, deadline);
    }
}

impl Drop for WheelAlarm {
    fn drop(&mut self) {
        self.local.drop_timer(self.key);
    }
}

/// For actors that never ask to be woken.
struct NoAlarm;

impl Alarm for NoAlarm {
    fn set(&mut self, deadline: Option<Deadline>) {
        debug_assert!(deadline.is_none(), "this actor has no alarm: {deadline:?}");
    }
}

struct ActixHost {
    sender: RefCell<MediaSender>,
    wake: Wake,
}

impl Host for ActixHost {
    fn session(&self, local: &Rc<Local>, make: MakeSession, on_end: OnEnd) -> Port<SessionMsg> {
        let local = local.clone();
        Shell::start(SESSION_QUEUE, make, move |wakes| WheelAlarm::boxed(local, wakes), on_end)
    }

    fn flush_soon(&self) {
        // The loop's turn comes after those of the actors that wait for theirs: one send for all of them.
        self.wake.wake();
    }

    fn send(&self, outbox: &mut Outbox) {
        self.sender.borrow_mut().send(outbox);
        outbox.clear();
    }

    fn wake_earlier(&self) {
        self.wake.wake();
    }
}

/// What the worker's loop drives. A panic in here must not end the loop: sockets and sessions stay.
struct Round {
    local: Rc<Local>,
    ingress: Ingress,
    port: u16,
    any: IpAddr,
}

impl Round {
    fn guarded(&mut self, what: &'static str, f: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| f(self))).is_err() {
            self.local.counters.loop_panics.add(1);
            tracing::error!(worker = self.local.worker, what, "worker loop panicked; it goes on");
            self.ingress = Ingress::new(self.local.clone());
        }
    }
}

impl Core for Round {
    fn next_deadline(&mut self) -> Option<Instant> {
        self.local.next_deadline()
    }

    fn expire(&mut self, now: Instant, due: &mut Vec<(TimerKey, Why)>) {
        // After all receive calls of the round: one message per session and wake-up.
        self.guarded("delivery", |round| round.ingress.deliver());
        self.guarded("timers", |round| round.local.expire(now, due));
    }

    fn datagrams(&mut self, now: Instant, batch: &mut RecvBatch) {
        self.guarded("datagrams", |round| {
            for datagram in batch.drain() {
                let to = SocketAddr::new(datagram.to.unwrap_or(round.any), round.port);
                round.ingress.datagram(now, datagram.from, to, datagram.bytes);
            }
        });
    }

    fn flush(&mut self, _now: Instant) {
        self.guarded("flush", |round| round.local.flush());
    }

    fn reads_every(&mut self, now: Instant) -> Option<Duration> {
        self.local.reads_every(now)
    }
}

struct ActixPlacer {
    arbiters: Vec<actix::ArbiterHandle>,
    ports: Vec<Port<WorkerMsg>>,
    counters: Vec<Arc<WorkerCounters>>,
    supervisor: Port<SupervisorMsg>,
}

impl Placer for ActixPlacer {
    fn workers(&self) -> usize {
        self.arbiters.len()
    }

    fn open_room(&self, worker: usize, seed: RoomSeed) -> Port<RoomMsg> {
        let (supervisor, told, id) = (self.supervisor.clone(), self.supervisor.clone(), seed.id);
        let counters = self.counters[worker].clone();
        Shell::start_in(
            &self.arbiters[worker],
            ROOM_QUEUE,
            move |me| Room::new(Instant::now(), seed, here(), me, supervisor),
            |wakes| WheelAlarm::boxed(here(), wakes),
            move |ending| {
                if ending == Ending::Panicked {
                    counters.room_panics.add(1);
                    insist(told, SupervisorMsg::RoomDied { room: id });
                }
            },
        )
    }

    fn close_sessions(&self, worker: usize, room: RoomId) {
        insist(self.ports[worker].clone(), WorkerMsg::CloseSessions(room));
    }
}

/// The local state of the worker that the current thread is.
fn here() -> Rc<Local> {
    let local = LOCAL.with_borrow(Option::clone);
    local.unwrap_or_else(|| unreachable!("rooms are started on worker threads only, and those set it first"))
}

/// The workers' threads, until they are stopped.
pub struct Threads {
    arbiters: Vec<actix::Arbiter>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Threads {
    /// Ends the workers' loops and their threads; blocks until they have ended.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        for arbiter in self.arbiters {
            arbiter.stop();
            let _ = arbiter.join();
        }
    }
}

/// Opens every socket, starts every worker and the supervisor.
pub async fn start(config: NodeConfig) -> Result<(Inner, Vec<WorkerReport>), StartError> {
    let started_at = Instant::now();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let wall = WallClock::new(started_at, since_1970);
    let shared = Shared::new().map_err(|error| StartError::Crypto(error.to_string()))?;
    let sockets = open_sockets(&config.media)?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (mut threads, mut handles, mut reports, mut ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, socket) in sockets.into_iter().enumerate() {
        let (arbiter, core) = spawn_arbiter(index, config.media.pin)
            .map_err(|error| StartError::Worker { worker: index, reason: error.to_string() })?;
        let addr = socket.addr();
        let advertise = config.media.advertise.iter().map(|ip| SocketAddr::new(*ip, addr.port()));
        let handle = WorkerHandle {
            candidates: advertise.collect(),
            counters: Arc::default(),
            failures: Arc::default(),
            held: Arc::default(),
            loop_ended: Arc::default(),
            wakeups: Arc::default(),
            answered_at_ms: Arc::new(AtomicU64::new(0)),
        };
        reports.push(WorkerReport {
            addr,
            core,
            receive_buffer_bytes: socket.receive_buffer_bytes(),
            gso_segments: socket.gso_segments(),
        });
        ports.push(start_worker(index, &arbiter, socket, &config, wall, &handle, stopped.clone()).await?);
        threads.push(arbiter);
        handles.push(handle);
    }
    let counts = Arc::new(SupervisorCounts::new(handles.len()));
    let supervisor_lost = Arc::<AtomicU64>::default();
    let supervisor = start_supervisor(&config, &threads, &ports, &handles, counts.clone(), supervisor_lost.clone());
    for (index, (port, handle)) in ports.into_iter().zip(&handles).enumerate() {
        let health = (handle.answered_at_ms.clone(), handle.loop_ended.clone());
        actix_rt::spawn(watch(index, port, health, started_at, supervisor.clone(), stopped.clone()));
    }
    let inner = Inner {
        supervisor,
        shared,
        builds: Builds::new(std::thread::available_parallelism().map_or(1, usize::from)),
        workers: handles,
        counts,
        supervisor_lost,
        draining: AtomicBool::new(false),
        started_at,
        threads: Mutex::new(Some(Threads { arbiters: threads, stop })),
    };
    Ok((inner, reports))
}

fn open_sockets(media: &MediaConfig) -> Result<Vec<MediaSocket>, StartError> {
    (0..media.workers)
        .map(|index| {
            let port = match media.first_port {
                0 => 0,
                first => first.saturating_add(u16::try_from(index).unwrap_or(u16::MAX)),
            };
            let bind = |source| StartError::Bind { addr: SocketAddr::new(media.bind, port), source };
            MediaSocket::open(media.bind, port).map_err(bind)
        })
        .collect()
}

async fn start_worker(
    index: usize,
    arbiter: &actix::Arbiter,
    socket: MediaSocket,
    config: &NodeConfig,
    wall: WallClock,
    handle: &WorkerHandle,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> Result<Port<WorkerMsg>, StartError> {
    let (limits, times) = (config.limits.clone(), config.rooms.clone());
    let (counters, wakeups) = (handle.counters.clone(), handle.wakeups.clone());
    let (failures, held, loop_ended) = (handle.failures.clone(), handle.held.clone(), handle.loop_ended.clone());
    let any = handle.candidates.first().map_or(config.media.bind, SocketAddr::ip);
    let (started, is_up) = tokio::sync::oneshot::channel();
    arbiter.spawn_fn(move || {
        let (wake, port) = (Wake::default(), socket.addr().port());
        let (receiver, sender) = socket.split(counters.clone());
        let host = ActixHost { sender: RefCell::new(sender), wake: wake.clone() };
        let (now, random) = (Instant::now(), Box::new(SystemRandom));
        let host = Box::new(host);
        let local = Local::new(index, limits, times, wall, counters, failures, now, wakeups, random, host);
        LOCAL.set(Some(local.clone()));
        let worker = Worker { local: local.clone(), held };
        let own = Shell::start(WORKER_QUEUE, |_| worker, |_| Box::new(NoAlarm) as Box<dyn Alarm>, |_| {});
        let round = Round { ingress: Ingress::new(local.clone()), local, port, any };
        let stop = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        actix_rt::spawn(async move {
            // In a task of its own: a panic of the loop ends that task, and is seen here.
            let driven = actix_rt::spawn(drive(Rc::new(RefCell::new(round)), receiver, wake, stop)).await;
            match driven {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(worker = index, %error, "worker loop could not start"),
                Err(error) => tracing::error!(worker = index, %error, "worker loop ended"),
            }
            loop_ended.store(true, Ordering::Relaxed);
        });
        let _ = started.send(own);
    });
    is_up.await.map_err(|_| StartError::Worker { worker: index, reason: "its thread ended at once".to_owned() })
}

fn start_supervisor(
    config: &NodeConfig,
    arbiters: &[actix::Arbiter],
    ports: &[Port<WorkerMsg>],
    handles: &[WorkerHandle],
    counts: Arc<SupervisorCounts>,
    lost: Arc<AtomicU64>,
) -> Port<SupervisorMsg> {
    let limits = config.limits.clone();
    let arbiters = arbiters.iter().map(actix::Arbiter::handle).collect();
    let ports = ports.to_vec();
    let counters = handles.iter().map(|handle| handle.counters.clone()).collect();
    let make = move |me: Port<SupervisorMsg>| {
        let placer = ActixPlacer { arbiters, ports, counters, supervisor: me };
        Supervisor::new(Box::new(placer), limits, Box::new(SystemRandom), counts)
    };
    Shell::start(
        SUPERVISOR_QUEUE,
        make,
        |_| Box::new(NoAlarm) as Box<dyn Alarm>,
        move |ending| {
            // What it knew of rooms and sessions cannot be made anew from outside: calls go on, joins do not, and
            // readiness says so to whoever restarts servers.
            lost.fetch_add(1, Ordering::Relaxed);
            tracing::error!(?ending, "supervisor ended; no more joins are possible, restart the server");
        },
    )
}

/// Asks a worker again and again whether it lives; one whose thread is gone is given up.
async fn watch(
    index: usize,
    port: Port<WorkerMsg>,
    (answered_at_ms, loop_ended): (Arc<AtomicU64>, Arc<AtomicBool>),
    started_at: Instant,
    supervisor: Port<SupervisorMsg>,
    stopped: tokio::sync::watch::Receiver<bool>,
) {
    let mut silent_since = Instant::now();
    while !*stopped.borrow() {
        let (reply, answer) = Reply::pair();
        let told = port.tell(WorkerMsg::Ping(reply));
        let told_ok = told.is_ok();
        if told_ok
            && !loop_ended.load(Ordering::Relaxed)
            && matches!(tokio::time::timeout(ASK_EVERY, answer).await, Ok(Ok(())))
        {
            silent_since = Instant::now();
            let now_ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            answered_at_ms.store(now_ms, Ordering::Relaxed);
        }
        let gone = matches!(told, Err(Refused::Gone(_))) && silent_since.elapsed() > GIVE_UP_AFTER;
        if !*stopped.borrow() && (gone || loop_ended.load(Ordering::Relaxed)) {
            insist(supervisor, SupervisorMsg::WorkerLost(index));
            return;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

impl Inner {
    /// Ends every worker thread. Nothing can be asked of the node afterwards.
    pub fn stop_threads(&self) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            threads.stop();
        }
    }
}
