//! The simulator: every actor on one virtual-time heap, seeded.
//!
//! It runs the shipped supervisor, room, session and worker logic: only actix, the socket and the clock are
//! replaced. Peers and the links to them are the test's ([`Client`], [`Link`]). Two runs from one seed do the
//! same things in the same order; the event log says so.

use crate::api::{Limits, RoomTimes};
use crate::count::{Failures, WorkerCounters};
use crate::local::{Host, Local, MakeSession, OnEnd};
use crate::port::{Port, Refused, Tell};
use crate::room::{Room, RoomMsg, RoomSeed};
use crate::session::{Session, SessionMsg};
use crate::shell::{Ending, Receive, Woken};
use crate::supervisor::{Placer, Supervisor, SupervisorCounts, SupervisorMsg};
use crate::worker::ingress::Ingress;
use crate::worker::outbox::Outbox;
use crate::worker::wheel::{TimerKey, WakeCounts};
use bytes::Bytes;
use rondo_media::ids::{Random, RoomId};
use rondo_media::units::WallClock;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A small seeded generator (SplitMix64): the same seed gives the same run on every machine.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits fit a double exactly.
        ((self.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// A duration below `limit`.
    pub fn below(&mut self, limit: Duration) -> Duration {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.next_u64() % nanos)
    }
}

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// What a link does to the datagrams of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link {
    /// One way, without jitter.
    pub delay: Duration,
    /// Added, uniformly from 0 up to this: reorders.
    pub jitter: Duration,
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplicate: f64,
}

/// A peer in the simulation.
pub trait Client {
    /// Its address.
    fn addr(&self) -> SocketAddr;
    /// A datagram from the server.
    fn datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]);
    /// Its deadline has come.
    fn wake(&mut self, now: Instant);
    /// When it next wants to be woken.
    fn deadline(&self) -> Option<Instant>;
    /// The next datagram that it wants sent: to which address, and what.
    fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)>;
}

enum Actor {
    Supervisor(Supervisor),
    Room(Room),
    Session(Session),
}

impl Actor {
    fn step(&mut self, now: Instant, mail: Mail) {
        match (self, mail) {
            (Actor::Supervisor(a), Mail::Supervisor(msg)) => a.receive(now, msg),
            (Actor::Room(a), Mail::Room(msg)) => a.receive(now, msg),
            (Actor::Session(a), Mail::Session(msg)) => a.receive(now, msg),
            (Actor::Supervisor(a), Mail::Wake) => a.wake(now),
            (Actor::Room(a), Mail::Wake) => a.wake(now),
            (Actor::Session(a), Mail::Wake) => a.wake(now),
            (_, Mail::Supervisor(_) | Mail::Room(_) | Mail::Session(_)) => {
                unreachable!("a port carries one message type")
            }
        }
    }

    fn deadline(&self) -> Option<rondo_media::units::Deadline> {
        match self {
            Actor::Supervisor(a) => a.deadline(),
            Actor::Room(a) => a.deadline(),
            Actor::Session(a) => a.deadline(),
        }
    }

    fn finished(&self) -> bool {
        match self {
            Actor::Supervisor(a) => a.finished(),
            Actor::Room(a) => a.finished(),
            Actor::Session(a) => a.finished(),
        }
    }
}

enum Mail {
    Supervisor(SupervisorMsg),
    Room(RoomMsg),
    Session(SessionMsg),
    Wake,
}

/// Messages that were posted and not put on the heap yet; the ports' side of the simulator.
type Posted = Arc<Mutex<VecDeque<(usize, Mail)>>>;

#[derive(Clone)]
struct SimPort {
    actor: usize,
    bound: usize,
    depth: Arc<AtomicUsize>,
    alive: Arc<AtomicBool>,
    posted: Posted,
}

impl SimPort {
    #[allow(clippy::result_large_err, reason = "the message itself comes back, as the port's contract says")]
    fn send(&self, mail: Mail) -> Result<(), Refused<Mail>> {
        if !self.alive.load(Ordering::Relaxed) {
            return Err(Refused::Gone(mail));
        }
        if self.depth.load(Ordering::Relaxed) >= self.bound {
            return Err(Refused::Full(mail));
        }
        self.depth.fetch_add(1, Ordering::Relaxed);
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push_back((self.actor, mail));
        Ok(())
    }
}

macro_rules! sim_tell {
    ($msg:ty, $mail:ident) => {
        impl Tell<$msg> for SimPort {
            fn tell(&self, msg: $msg) -> Result<(), Refused<$msg>> {
                let back = |mail| match mail {
                    Mail::$mail(msg) => msg,
                    _ => unreachable!("the mail that was refused is the mail that was sent"),
                };
                self.send(Mail::$mail(msg)).map_err(|refused| match refused {
                    Refused::Full(mail) => Refused::Full(back(mail)),
                    Refused::Gone(mail) => Refused::Gone(back(mail)),
                })
            }
        }
    };
}
sim_tell!(SupervisorMsg, Supervisor);
sim_tell!(RoomMsg, Room);
sim_tell!(SessionMsg, Session);

impl Woken for SimPort {
    fn wake(&self) -> Result<(), Refused<()>> {
        self.send(Mail::Wake).map_err(|refused| match refused {
            Refused::Full(_) => Refused::Full(()),
            Refused::Gone(_) => Refused::Gone(()),
        })
    }
}

struct Hosted {
    actor: Option<Actor>,
    port: SimPort,
    worker: Option<Rc<Local>>,
    timer: Option<TimerKey>,
    armed: Option<rondo_media::units::Deadline>,
    on_end: Option<OnEnd>,
}

/// What the actors' surroundings share with the simulator.
struct Stage {
    posted: Posted,
    hosted: RefCell<Vec<Hosted>>,
    wire: RefCell<VecDeque<(usize, SocketAddr, Bytes)>>,
    flush: RefCell<Vec<usize>>,
    locals: RefCell<Vec<Rc<Local>>>,
    supervisor: RefCell<Option<SimPort>>,
    now: Cell<Instant>,
    panics: Cell<u64>,
}

impl Stage {
    fn host(self: &Rc<Self>, bound: usize, worker: Option<Rc<Local>>, on_end: Option<OnEnd>) -> SimPort {
        let mut hosted = self.hosted.borrow_mut();
        let port = SimPort {
            actor: hosted.len(),
            bound,
            depth: Arc::default(),
            alive: Arc::new(AtomicBool::new(true)),
            posted: self.posted.clone(),
        };
        let timer = worker.as_ref().map(|local| local.timer(Arc::new(port.clone())));
        hosted.push(Hosted { actor: None, port: port.clone(), worker, timer, armed: None, on_end });
        port
    }

    /// The actor is there; its first deadline may come before its first message.
    fn fill(&self, port: &SimPort, actor: Actor) {
        self.put_back(port.actor, actor);
    }

    fn put_back(&self, number: usize, actor: Actor) {
        let deadline = actor.deadline();
        let mut all = self.hosted.borrow_mut();
        let hosted = &mut all[number];
        hosted.actor = Some(actor);
        if hosted.armed == deadline {
            return;
        }
        hosted.armed = deadline;
        if let (Some(local), Some(timer)) = (hosted.worker.clone(), hosted.timer) {
            drop(all);
            local.arm(timer, deadline);
        }
    }
}

struct SimHost {
    worker: usize,
    stage: Rc<Stage>,
}

impl Host for SimHost {
    fn session(&self, local: &Rc<Local>, make: MakeSession, on_end: OnEnd) -> Port<SessionMsg> {
        let port = self.stage.host(crate::runtime::SESSION_QUEUE, Some(local.clone()), Some(on_end));
        let session = make(Arc::new(port.clone()));
        self.stage.fill(&port, Actor::Session(session));
        Arc::new(port)
    }

    fn flush_soon(&self) {
        self.stage.flush.borrow_mut().push(self.worker);
    }

    fn send(&self, outbox: &mut Outbox) {
        let mut wire = self.stage.wire.borrow_mut();
        for run in outbox.runs() {
            for segment in outbox.bytes(run).chunks(run.segment_bytes.max(1)) {
                wire.push_back((self.worker, run.dest, Bytes::copy_from_slice(segment)));
            }
        }
        outbox.clear();
    }

    fn wake_earlier(&self) {}
}

struct SimPlacer {
    stage: Rc<Stage>,
}

impl Placer for SimPlacer {
    fn workers(&self) -> usize {
        self.stage.locals.borrow().len()
    }

    fn open_room(&self, worker: usize, seed: RoomSeed) -> Port<RoomMsg> {
        let local = self.stage.locals.borrow()[worker].clone();
        let supervisor = self.stage.supervisor.borrow().clone();
        let id = seed.id;
        let told = supervisor.clone();
        let on_end: OnEnd = Box::new(move |ending| {
            if ending == Ending::Panicked
                && let Some(supervisor) = told
            {
                let _ = supervisor.tell(SupervisorMsg::RoomDied { room: id });
            }
        });
        let port = self.stage.host(crate::runtime::ROOM_QUEUE, Some(local.clone()), Some(on_end));
        if let Some(supervisor) = supervisor {
            let room = Room::new(self.stage.now.get(), seed, local, Arc::new(port.clone()), Arc::new(supervisor));
            self.stage.fill(&port, Actor::Room(room));
        }
        Arc::new(port)
    }

    fn close_sessions(&self, worker: usize, room: RoomId) {
        let local = self.stage.locals.borrow()[worker].clone();
        crate::runtime::close_sessions(&local, room);
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    number: u64,
    what: What,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    ToServer { worker: usize, from: SocketAddr, bytes: Vec<u8> },
    ToClient { client: usize, from: SocketAddr, bytes: Vec<u8> },
}

/// A worker's socket: what has arrived waits here until the worker looks.
struct SimSocket {
    ingress: Ingress,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    looked_at: Instant,
}

/// A simulated node with its peers.
pub struct Sim<C: Client> {
    stage: Rc<Stage>,
    now: Instant,
    started_at: Instant,
    random: Seeded,
    heap: BinaryHeap<Reverse<Due>>,
    next_number: u64,
    sockets: Vec<SimSocket>,
    clients: Vec<(C, Link, Link)>,
    addrs: BTreeMap<SocketAddr, usize>,
    server: Vec<SocketAddr>,
    log: Option<Vec<String>>,
    counts: Arc<SupervisorCounts>,
}

/// The stage and what stands on it know each other; without this a thousand simulations would stay in memory.
impl<C: Client> Drop for Sim<C> {
    fn drop(&mut self) {
        let hosted = self.stage.hosted.take();
        let locals = self.stage.locals.take();
        self.stage.supervisor.take();
        drop((hosted, locals));
    }
}

impl<C: Client> Sim<C> {
    /// A node with `workers` workers; everything random comes from `seed`.
    pub fn new(seed: u64, workers: usize, limits: &Limits, times: &RoomTimes, started_at: Instant) -> Self {
        let stage = Rc::new(Stage {
            posted: Posted::default(),
            hosted: RefCell::default(),
            wire: RefCell::default(),
            flush: RefCell::default(),
            locals: RefCell::default(),
            supervisor: RefCell::default(),
            now: Cell::new(started_at),
            panics: Cell::new(0),
        });
        let mut random = Seeded::new(seed);
        let wall = WallClock::new(started_at, Duration::from_secs(1_800_000_000));
        for worker in 0..workers {
            let host = Box::new(SimHost { worker, stage: stage.clone() });
            let local = Local::new(
                worker,
                limits.clone(),
                times.clone(),
                wall,
                Arc::<WorkerCounters>::default(),
                Arc::<Failures>::default(),
                started_at,
                Arc::<WakeCounts>::default(),
                Box::new(Seeded::new(random.next_u64())),
                host,
            );
            stage.locals.borrow_mut().push(local);
        }
        let port = stage.host(crate::runtime::SUPERVISOR_QUEUE, None, None);
        *stage.supervisor.borrow_mut() = Some(port.clone());
        let placer = Box::new(SimPlacer { stage: stage.clone() });
        let counts = Arc::new(SupervisorCounts::new(workers));
        let supervisor =
            Supervisor::new(placer, limits.clone(), Box::new(Seeded::new(random.next_u64())), counts.clone());
        stage.fill(&port, Actor::Supervisor(supervisor));
        let socket = |local: &Rc<Local>| SimSocket {
            ingress: Ingress::new(local.clone()),
            waiting: VecDeque::new(),
            looked_at: started_at,
        };
        let sockets = stage.locals.borrow().iter().map(socket).collect();
        let server = (0..workers).map(|n| SocketAddr::from(([192, 0, 2, 1], 7_882 + n as u16))).collect();
        Self {
            stage,
            now: started_at,
            started_at,
            random,
            heap: BinaryHeap::new(),
            next_number: 0,
            sockets,
            clients: Vec::new(),
            addrs: BTreeMap::new(),
            server,
            log: None,
            counts,
        }
    }

    /// Writes down every datagram and every round from now on.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// What was written down.
    pub fn log(&self) -> &[String] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The run's own random source.
    pub fn random(&mut self) -> &mut Seeded {
        &mut self.random
    }

    /// Media address of a worker.
    pub fn server(&self, worker: usize) -> SocketAddr {
        self.server[worker]
    }

    /// Counters of a worker.
    pub fn counters(&self, worker: usize) -> Arc<WorkerCounters> {
        self.stage.locals.borrow()[worker].counters.clone()
    }

    /// The supervisor's counts.
    pub fn supervisor_counts(&self) -> &SupervisorCounts {
        &self.counts
    }

    /// The supervisor's port.
    pub fn supervisor(&self) -> Port<SupervisorMsg> {
        match self.stage.supervisor.borrow().as_ref() {
            Some(port) => Arc::new(port.clone()),
            None => unreachable!("made in new()"),
        }
    }

    /// Actors that have not ended, the supervisor included.
    pub fn actors(&self) -> usize {
        self.stage.hosted.borrow().iter().filter(|hosted| hosted.actor.is_some()).count()
    }

    /// Actors that panicked.
    pub fn panics(&self) -> u64 {
        self.stage.panics.get()
    }

    /// A peer with its links: `to_server`, `to_client`. Its number.
    pub fn connect(&mut self, client: C, to_server: Link, to_client: Link) -> usize {
        let number = self.clients.len();
        self.addrs.insert(client.addr(), number);
        self.clients.push((client, to_server, to_client));
        number
    }

    /// A peer.
    pub fn client(&mut self, number: usize) -> &mut C {
        &mut self.clients[number].0
    }

    /// Changes the links of a peer.
    pub fn relink(&mut self, number: usize, to_server: Link, to_client: Link) {
        (self.clients[number].1, self.clients[number].2) = (to_server, to_client);
    }

    /// Runs until nothing is left to do at the present time.
    pub fn settle(&mut self) {
        loop {
            self.pump_clients();
            if !self.deliver_mail() && !self.flush() {
                return;
            }
        }
    }

    /// Runs for `time`.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = self.next_due().filter(|at| *at <= end);
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            self.stage.now.set(self.now);
            self.arrivals();
            for worker in 0..self.sockets.len() {
                if self.round_at(worker).is_some_and(|at| at <= self.now) {
                    self.round(worker);
                }
            }
            self.wake_clients();
        }
        self.now = end;
        self.stage.now.set(end);
    }

    fn next_due(&self) -> Option<Instant> {
        let rounds = (0..self.sockets.len()).filter_map(|worker| self.round_at(worker)).min();
        let clients = self.clients.iter().filter_map(|(client, ..)| client.deadline()).min();
        let heap = self.heap.peek().map(|due| due.0.at);
        [rounds, clients, heap].into_iter().flatten().min()
    }

    /// When a worker has its next round, if there is anything for it: at once, or on its tick.
    fn round_at(&self, worker: usize) -> Option<Instant> {
        let (local, socket) = (&self.stage.locals.borrow()[worker], &self.sockets[worker]);
        let arrived = (!socket.waiting.is_empty()).then_some(self.now);
        let at = [arrived, local.next_deadline()].into_iter().flatten().min()?;
        Some(local.reads_every(self.now).map_or(at, |every| at.max(socket.looked_at + every)))
    }

    fn arrivals(&mut self) {
        while self.heap.peek().is_some_and(|due| due.0.at <= self.now) {
            let Some(Reverse(due)) = self.heap.pop() else { return };
            match due.what {
                What::ToServer { worker, from, bytes } => {
                    self.note(|| format!("in w{worker} {from} {}", hash(&bytes)));
                    self.sockets[worker].waiting.push_back((from, bytes));
                }
                What::ToClient { client, from, bytes } => {
                    self.note(|| format!("out c{client} {}", hash(&bytes)));
                    self.clients[client].0.datagram(self.now, from, &bytes);
                }
            }
        }
    }

    /// What the loop of a worker does in a round, up to the turns of the actors.
    fn round(&mut self, worker: usize) {
        let (socket, to) = (&mut self.sockets[worker], self.server[worker]);
        socket.looked_at = self.now;
        for (from, bytes) in socket.waiting.drain(..) {
            socket.ingress.datagram(self.now, from, to, Bytes::from(bytes));
        }
        socket.ingress.deliver();
        let local = self.stage.locals.borrow()[worker].clone();
        let mut due = Vec::new();
        local.expire(self.now, &mut due);
        for (_, why) in &due {
            self.note(|| format!("wake w{worker} {}", why.label()));
        }
    }

    fn wake_clients(&mut self) {
        for (client, ..) in &mut self.clients {
            if client.deadline().is_some_and(|at| at <= self.now) {
                client.wake(self.now);
            }
        }
    }

    fn pump_clients(&mut self) {
        for number in 0..self.clients.len() {
            while let Some((to, bytes)) = self.clients[number].0.transmit() {
                let (from, link) = (self.clients[number].0.addr(), self.clients[number].1);
                if let Some(worker) = self.server.iter().position(|addr| *addr == to) {
                    self.travel(link, |bytes| What::ToServer { worker, from, bytes }, bytes);
                }
            }
        }
        loop {
            let Some((worker, to, bytes)) = self.stage.wire.borrow_mut().pop_front() else { return };
            let Some(client) = self.addrs.get(&to).copied() else { continue };
            let (link, from) = (self.clients[client].2, self.server[worker]);
            self.travel(link, |bytes| What::ToClient { client, from, bytes }, bytes.to_vec());
        }
    }

    fn travel(&mut self, link: Link, what: impl Fn(Vec<u8>) -> What, bytes: Vec<u8>) {
        let copies = 1 + u32::from(self.random.chance(link.duplicate));
        for _ in 0..copies {
            if self.random.chance(link.loss) {
                continue;
            }
            let at = self.now + link.delay + self.random.below(link.jitter);
            self.next_number += 1;
            self.heap.push(Reverse(Due { at, number: self.next_number, what: what(bytes.clone()) }));
        }
    }

    /// One actor has its turn and works through what waits for it, as on actix.
    fn deliver_mail(&mut self) -> bool {
        let Some(number) = self.posted(VecDeque::pop_front).map(|(number, mail)| {
            self.deliver(number, mail);
            number
        }) else {
            return false;
        };
        let next = |posted: &mut VecDeque<(usize, Mail)>| {
            let place = posted.iter().position(|(to, _)| *to == number)?;
            posted.remove(place)
        };
        while let Some((_, mail)) = self.posted(next) {
            self.deliver(number, mail);
        }
        true
    }

    fn posted<R>(&self, f: impl FnOnce(&mut VecDeque<(usize, Mail)>) -> R) -> R {
        f(&mut self.stage.posted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn deliver(&self, number: usize, mail: Mail) {
        let Some((mut actor, port)) = self.take(number) else { return };
        port.depth.fetch_sub(1, Ordering::Relaxed);
        if matches!(mail, Mail::Wake) {
            self.stage.hosted.borrow_mut()[number].armed = None;
        }
        let now = self.now;
        let outcome = catch_unwind(AssertUnwindSafe(move || {
            actor.step(now, mail);
            actor
        }));
        match outcome {
            Ok(actor) if actor.finished() => self.end(number, Ending::Finished),
            Ok(actor) => self.stage.put_back(number, actor),
            Err(_) => self.end(number, Ending::Panicked),
        }
    }

    fn take(&self, number: usize) -> Option<(Actor, SimPort)> {
        let mut hosted = self.stage.hosted.borrow_mut();
        let hosted = hosted.get_mut(number)?;
        Some((hosted.actor.take()?, hosted.port.clone()))
    }

    fn end(&self, number: usize, ending: Ending) {
        self.stage.panics.set(self.stage.panics.get() + u64::from(ending == Ending::Panicked));
        let mut all = self.stage.hosted.borrow_mut();
        let hosted = &mut all[number];
        hosted.port.alive.store(false, Ordering::Relaxed);
        let (local, timer, on_end) = (hosted.worker.clone(), hosted.timer.take(), hosted.on_end.take());
        drop(all);
        if let (Some(local), Some(timer)) = (local, timer) {
            local.drop_timer(timer);
        }
        if let Some(on_end) = on_end {
            on_end(ending);
        }
    }

    fn flush(&mut self) -> bool {
        let asked = std::mem::take(&mut *self.stage.flush.borrow_mut());
        for worker in &asked {
            let local = self.stage.locals.borrow()[*worker].clone();
            local.flush();
        }
        !asked.is_empty()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now.duration_since(self.started_at);
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9} us {}", at.as_micros(), line()));
        }
    }
}

/// FNV-1a: equal logs mean equal bytes, without keeping them.
fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    format!("{} B {hash:016x}", bytes.len())
}
