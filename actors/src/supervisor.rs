//! The supervisor: admits, classifies, places rooms on workers, remembers who is where, and makes anew what died.
//!
//! It knows rooms, sessions and transports by name and never touches media. Where a room goes is decided once,
//! when it is opened: on the worker with the fewest sessions.

use crate::api::{IceRestarted, LeaveReason, Limits, Refusal, RoomKind, RoomSettings, TransportInfo};
use crate::port::{Port, Refused, Reply};
use crate::room::{RoomMsg, RoomSeed};
use crate::session::RestartReply;
use crate::shell::Receive;
use rondo_media::ids::{Random, RoomId, RoomName, SessionId, TransportId};
use rondo_media::units::Deadline;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the supervisor's surroundings do for it.
pub trait Placer: 'static {
    /// How many workers there are.
    fn workers(&self) -> usize;
    /// Starts a room on a worker. Its port is usable at once.
    fn open_room(&self, worker: usize, seed: RoomSeed) -> Port<RoomMsg>;
    /// A room died: its sessions on that worker are closed.
    fn close_sessions(&self, worker: usize, room: RoomId);
}

/// Messages to the supervisor.
pub enum SupervisorMsg {
    /// Somebody wants in: on which worker is the room, or would it be? Opens nothing yet.
    Admit {
        /// Which room.
        room: RoomName,
        /// Where to go.
        reply: Reply<Result<Admitted, Refusal>>,
    },
    /// The transport is built: the room, opened if it is not there.
    Enter {
        /// Which room.
        room: RoomName,
        /// Kind to open it with.
        kind: Option<RoomKind>,
        /// The worker that the transport was built for.
        worker: usize,
        /// The room's port; `Busy` if it was opened elsewhere meanwhile.
        reply: Reply<Result<Port<RoomMsg>, Refusal>>,
    },
    /// Opens a room.
    Create(RoomName, RoomSettings, Reply<Result<Port<RoomMsg>, Refusal>>),
    /// A room, by name.
    Find(RoomName, Reply<Option<Port<RoomMsg>>>),
    /// Every room, in order of opening.
    Rooms(Reply<Vec<Port<RoomMsg>>>),
    /// The room of a session.
    RoomOf(SessionId, Reply<Result<Port<RoomMsg>, Refusal>>),
    /// What is known of a transport, and its room's port.
    Transport(TransportId, Reply<Result<(TransportInfo, Port<RoomMsg>), Refusal>>),
    /// A room took a transport in.
    TransportAdded {
        /// Which room.
        room: RoomId,
        /// Which transport.
        transport: TransportId,
        /// What doors need to know of it.
        info: TransportInfo,
    },
    /// A transport has another ICE session: trickled candidates must name it from now on.
    IceRestarted {
        /// Which.
        transport: TransportId,
        /// The new ICE session.
        restarted: IceRestarted,
        /// Who asked for it.
        reply: RestartReply,
    },
    /// A transport has ended.
    TransportEnded {
        /// Which.
        transport: TransportId,
        /// Why.
        reason: LeaveReason,
    },
    /// A participant came.
    SessionStarted {
        /// Where.
        room: RoomId,
        /// Which stay.
        session: SessionId,
    },
    /// A participant left.
    SessionEnded {
        /// Where.
        room: RoomId,
        /// Which stay.
        session: SessionId,
        /// Why.
        reason: LeaveReason,
    },
    /// A room's kind changed.
    KindChanged {
        /// Which.
        room: RoomId,
        /// To what.
        kind: RoomKind,
    },
    /// A room takes nobody any more and its name is free; its people are on their way out.
    RoomClosing {
        /// Which.
        room: RoomId,
        /// Why.
        reason: LeaveReason,
    },
    /// A room is over.
    RoomEnded {
        /// Which.
        room: RoomId,
    },
    /// A room actor panicked.
    RoomDied {
        /// Which.
        room: RoomId,
    },
    /// No new joins; everybody is told. Answered when the last room has ended.
    Drain(Reply<()>),
    /// The time to leave is over: every room ends.
    CloseAll,
    /// A worker's thread has died, and its rooms with it.
    WorkerLost(usize),
}

/// The way to a room.
#[derive(Debug)]
pub struct Admitted {
    /// Name for the new transport.
    pub transport: TransportId,
    /// Which worker the room lives on: its socket's addresses are the candidates.
    pub worker: usize,
}

/// Counts and gauges that the supervisor keeps for metrics.
#[derive(Debug)]
pub struct SupervisorCounts {
    /// Rooms open, by kind, in the order of [`RoomKind::ALL`].
    pub rooms: [AtomicU64; RoomKind::ALL.len()],
    /// Sessions, by worker.
    pub sessions: Vec<AtomicU64>,
    /// Transports, by worker.
    pub transports: Vec<AtomicU64>,
    /// Workers whose thread died.
    pub workers_lost: AtomicU64,
    /// By reason, in the order of [`LeaveReason::ALL`].
    pub left: [AtomicU64; LeaveReason::ALL.len()],
    /// Rooms that died and whose name was opened anew.
    pub restarts: AtomicU64,
    /// Rooms that died.
    pub rooms_died: AtomicU64,
}

impl SupervisorCounts {
    /// All zero, for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            rooms: Default::default(),
            sessions: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            transports: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            workers_lost: AtomicU64::new(0),
            left: Default::default(),
            restarts: AtomicU64::new(0),
            rooms_died: AtomicU64::new(0),
        }
    }

    fn room(&self, kind: RoomKind) -> &AtomicU64 {
        let index = RoomKind::ALL.iter().position(|k| *k == kind).unwrap_or(0);
        &self.rooms[index]
    }
}

struct RoomEntry {
    seed: RoomSeed,
    kind: RoomKind,
    worker: usize,
    port: Port<RoomMsg>,
    sessions: usize,
}

struct TransportEntry {
    room: RoomId,
    worker: usize,
    info: TransportInfo,
}

/// Why things ended, for a while: the newest [`REMEMBERED`].
#[derive(Debug)]
struct Remembered<K> {
    reasons: HashMap<K, LeaveReason>,
    order: VecDeque<K>,
}

impl<K> Default for Remembered<K> {
    fn default() -> Self {
        Self { reasons: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Remembered<K> {
    fn remember(&mut self, key: K, reason: LeaveReason) {
        if self.reasons.insert(key, reason).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.reasons.remove(&oldest);
        }
    }

    fn get(&self, key: &K) -> Option<&LeaveReason> {
        self.reasons.get(key)
    }
}

/// After a room died, its name is opened again only after a pause that doubles with each death.
struct Cooling {
    until: Instant,
    deaths: u32,
}

/// Every worker is at its limit; people leave all the time.
const FULL: Refusal = Refusal::ServerFull { retry_after_s: 20 };
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Deaths are forgotten after this time without another.
const FORGIVEN: Duration = Duration::from_secs(300);
/// Ended transports, and ended sessions, whose reason is remembered (interfaces §3: 404 `replaced`).
const REMEMBERED: usize = 4_096;

/// The supervisor.
pub struct Supervisor {
    placer: Box<dyn Placer>,
    limits: Limits,
    random: Box<dyn Random + Send>,
    rooms: BTreeMap<u64, RoomEntry>,
    next_room: u64,
    names: HashMap<RoomName, u64>,
    ids: HashMap<RoomId, u64>,
    sessions: HashMap<SessionId, (RoomId, usize)>,
    transports: HashMap<TransportId, TransportEntry>,
    ended: Remembered<TransportId>,
    left: Remembered<SessionId>,
    cooling: HashMap<RoomName, Cooling>,
    lost: Vec<usize>,
    draining: Vec<Reply<()>>,
    closed: bool,
    counts: Arc<SupervisorCounts>,
}

impl Supervisor {
    /// A supervisor without rooms.
    pub fn new(
        placer: Box<dyn Placer>,
        limits: Limits,
        random: Box<dyn Random + Send>,
        counts: Arc<SupervisorCounts>,
    ) -> Self {
        Self {
            placer,
            limits,
            random,
            rooms: BTreeMap::new(),
            next_room: 0,
            names: HashMap::new(),
            ids: HashMap::new(),
            sessions: HashMap::new(),
            transports: HashMap::new(),
            ended: Remembered::default(),
            left: Remembered::default(),
            cooling: HashMap::new(),
            lost: Vec::new(),
            draining: Vec::new(),
            closed: false,
            counts,
        }
    }

    fn admit(&mut self, name: &RoomName) -> Result<Admitted, Refusal> {
        if self.closed {
            return Err(Refusal::Draining);
        }
        let known = self.names.get(name).and_then(|key| self.rooms.get(key)).map(|room| room.worker);
        if known.is_none() && self.rooms.len() >= self.limits.rooms {
            return Err(Refusal::TooManyRooms { limit: self.limits.rooms });
        }
        let worker = known.or_else(|| self.emptiest()).ok_or(FULL)?;
        if self.sessions_on(worker) >= self.limits.sessions_per_worker {
            return Err(FULL);
        }
        Ok(Admitted { transport: TransportId::generate(&mut *self.random), worker })
    }

    fn enter(
        &mut self,
        now: Instant,
        name: RoomName,
        kind: Option<RoomKind>,
        worker: usize,
    ) -> Result<Port<RoomMsg>, Refusal> {
        let key = match self.names.get(&name) {
            Some(key) => *key,
            None => self.open(now, name, RoomSettings { kind, ..RoomSettings::default() }, Some(worker))?,
        };
        let room = self.rooms.get(&key).ok_or(Refusal::Internal)?;
        if room.worker != worker {
            return Err(Refusal::Busy { retry_after_s: 1 });
        }
        Ok(room.port.clone())
    }

    fn open(
        &mut self,
        now: Instant,
        name: RoomName,
        settings: RoomSettings,
        worker: Option<usize>,
    ) -> Result<u64, Refusal> {
        if self.closed {
            return Err(Refusal::Draining);
        }
        if self.names.contains_key(&name) {
            return Err(Refusal::RoomExists(name));
        }
        if self.rooms.len() >= self.limits.rooms {
            return Err(Refusal::TooManyRooms { limit: self.limits.rooms });
        }
        if let Some(cooling) = self.cooling.get(&name) {
            if now < cooling.until {
                let left = (cooling.until - now).as_secs() + 1;
                return Err(Refusal::Busy { retry_after_s: u32::try_from(left).unwrap_or(u32::MAX) });
            }
            self.counts.restarts.fetch_add(1, Ordering::Relaxed);
        }
        let worker = worker.or_else(|| self.emptiest()).ok_or(FULL)?;
        let kind = settings.kind.unwrap_or(RoomKind::Call);
        let seed = RoomSeed { id: RoomId::generate(&mut *self.random), name: name.clone(), settings, kind };
        let port = self.placer.open_room(worker, seed.clone());
        let key = self.next_room;
        self.next_room += 1;
        self.names.insert(name, key);
        self.ids.insert(seed.id, key);
        self.rooms.insert(key, RoomEntry { seed, kind, worker, port, sessions: 0 });
        self.counts.room(kind).fetch_add(1, Ordering::Relaxed);
        Ok(key)
    }

    fn sessions_on(&self, worker: usize) -> usize {
        let gauge = self.counts.sessions.get(worker).map_or(0, |sessions| sessions.load(Ordering::Relaxed));
        usize::try_from(gauge).unwrap_or(usize::MAX)
    }

    /// The worker with the fewest sessions; none if every worker has died.
    fn emptiest(&self) -> Option<usize> {
        let rooms_on = |worker| self.rooms.values().filter(|room| room.worker == worker).count();
        (0..self.placer.workers())
            .filter(|worker| !self.lost.contains(worker))
            .min_by_key(|worker| (self.sessions_on(*worker), rooms_on(*worker)))
    }

    fn room(&self, id: RoomId) -> Option<&RoomEntry> {
        self.ids.get(&id).and_then(|key| self.rooms.get(key))
    }

    fn room_mut(&mut self, id: RoomId) -> Option<&mut RoomEntry> {
        self.ids.get(&id).and_then(|key| self.rooms.get_mut(key))
    }

    fn transport(&self, id: TransportId) -> Result<(TransportInfo, Port<RoomMsg>), Refusal> {
        let found = self.transports.get(&id).and_then(|t| Some((t.info.clone(), self.room(t.room)?.port.clone())));
        found.ok_or_else(|| match self.ended.get(&id) {
            Some(reason) => Refusal::TransportEnded(id, *reason),
            None => Refusal::TransportNotFound(id),
        })
    }

    fn transport_ended(&mut self, id: TransportId, reason: LeaveReason) {
        let Some(entry) = self.transports.remove(&id) else { return };
        if let Some(gauge) = self.counts.transports.get(entry.worker) {
            gauge.fetch_sub(1, Ordering::Relaxed);
        }
        self.ended.remember(id, reason);
    }

    fn session_ended(&mut self, room: RoomId, session: SessionId, reason: LeaveReason) {
        let Some((_, worker)) = self.sessions.remove(&session) else { return };
        self.left.remember(session, reason);
        if let Some(entry) = self.room_mut(room) {
            entry.sessions = entry.sessions.saturating_sub(1);
        }
        if let Some(gauge) = self.counts.sessions.get(worker) {
            gauge.fetch_sub(1, Ordering::Relaxed);
        }
        let index = LeaveReason::ALL.iter().position(|r| *r == reason).unwrap_or(0);
        self.counts.left[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets a room and whatever was left in it.
    fn remove_room(&mut self, id: RoomId, reason: LeaveReason) -> Option<RoomEntry> {
        let key = self.ids.remove(&id)?;
        let entry = self.rooms.remove(&key)?;
        // Another room may have the name by now.
        if self.names.get(&entry.seed.name) == Some(&key) {
            self.names.remove(&entry.seed.name);
        }
        self.counts.room(entry.kind).fetch_sub(1, Ordering::Relaxed);
        let sessions: Vec<SessionId> = self.sessions.iter().filter(|(_, r)| r.0 == id).map(|(s, _)| *s).collect();
        for session in sessions {
            self.session_ended(id, session, reason);
        }
        let transports: Vec<TransportId> =
            self.transports.iter().filter(|(_, t)| t.room == id).map(|(id, _)| *id).collect();
        for transport in transports {
            self.transport_ended(transport, reason);
        }
        if self.closed && self.rooms.is_empty() {
            self.draining.drain(..).for_each(|reply| reply.answer(()));
        }
        Some(entry)
    }

    fn room_died(&mut self, now: Instant, id: RoomId) {
        let Some(entry) = self.remove_room(id, LeaveReason::ServerError) else { return };
        self.counts.rooms_died.fetch_add(1, Ordering::Relaxed);
        let name = entry.seed.name;
        let cooling = self.cooling.entry(name.clone()).or_insert(Cooling { until: now, deaths: 0 });
        if now.saturating_duration_since(cooling.until) > FORGIVEN {
            cooling.deaths = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << cooling.deaths.min(6)).min(LONGEST_PAUSE);
        *cooling = Cooling { until: now + pause, deaths: cooling.deaths + 1 };
        tracing::error!(room = %name, pause_s = pause.as_secs(), "room actor died; its people are told to join again");
        self.placer.close_sessions(entry.worker, id);
    }

    fn drain(&mut self, reply: Reply<()>) {
        self.closed = true;
        if self.rooms.is_empty() {
            reply.answer(());
            return;
        }
        self.draining.push(reply);
        let mut dead = Vec::new();
        for room in self.rooms.values() {
            if let Err(Refused::Gone(_)) = room.port.tell(RoomMsg::Drain) {
                dead.push(room.seed.id);
            }
        }
        for id in dead {
            self.remove_room(id, LeaveReason::ServerShutdown);
        }
    }

    fn close_all(&mut self) {
        self.closed = true;
        for room in self.rooms.values() {
            let (reply, _) = Reply::pair();
            // One that cannot be told goes with the process, a moment later.
            let _ = room.port.tell(RoomMsg::Close { reason: LeaveReason::ServerShutdown, by: None, reply });
        }
    }

    /// The room's name is free at once, and nobody finds its transports any more.
    fn room_closing(&mut self, id: RoomId, reason: LeaveReason) {
        let Some(key) = self.ids.get(&id) else { return };
        self.names.retain(|_, named| named != key);
        let ending: Vec<TransportId> =
            self.transports.iter().filter(|(_, t)| t.room == id).map(|(id, _)| *id).collect();
        for transport in ending {
            self.transport_ended(transport, reason);
        }
    }

    fn worker_lost(&mut self, worker: usize) {
        if self.lost.contains(&worker) {
            return;
        }
        self.lost.push(worker);
        self.counts.workers_lost.fetch_add(1, Ordering::Relaxed);
        let rooms: Vec<RoomId> = self.rooms.values().filter(|r| r.worker == worker).map(|r| r.seed.id).collect();
        tracing::error!(worker, rooms = rooms.len(), "worker died; its people are told to join again, on another one");
        for room in rooms {
            self.remove_room(room, LeaveReason::ServerError);
        }
    }
}

impl Receive for Supervisor {
    type Msg = SupervisorMsg;

    fn receive(&mut self, now: Instant, msg: SupervisorMsg) {
        match msg {
            SupervisorMsg::Admit { room, reply } => reply.answer(self.admit(&room)),
            SupervisorMsg::Enter { room, kind, worker, reply } => reply.answer(self.enter(now, room, kind, worker)),
            SupervisorMsg::Create(name, settings, reply) => {
                let opened = self.open(now, name, settings, None);
                let port = opened.and_then(|key| self.rooms.get(&key).map(|r| r.port.clone()).ok_or(Refusal::Internal));
                reply.answer(port);
            }
            SupervisorMsg::Find(name, reply) => {
                let key = self.names.get(&name);
                reply.answer(key.and_then(|key| self.rooms.get(key)).map(|room| room.port.clone()));
            }
            SupervisorMsg::Rooms(reply) => reply.answer(self.rooms.values().map(|room| room.port.clone()).collect()),
            SupervisorMsg::RoomOf(session, reply) => {
                let room = self.sessions.get(&session).and_then(|(id, _)| self.room(*id));
                reply.answer(room.map(|room| room.port.clone()).ok_or_else(|| match self.left.get(&session) {
                    Some(reason) => Refusal::SessionEnded(session, *reason),
                    None => Refusal::SessionNotFound(session),
                }));
            }
            SupervisorMsg::Transport(id, reply) => reply.answer(self.transport(id)),
            SupervisorMsg::TransportAdded { room, transport, info } => {
                let Some(worker) = self.room(room).map(|r| r.worker) else { return };
                if self.transports.insert(transport, TransportEntry { room, worker, info }).is_none() {
                    self.counts.transports[worker].fetch_add(1, Ordering::Relaxed);
                }
            }
            SupervisorMsg::IceRestarted { transport, restarted, reply } => match self.transports.get_mut(&transport) {
                Some(entry) => {
                    entry.info.etag.clone_from(&restarted.etag);
                    entry.info.remote_ufrag.clone_from(&restarted.remote_ufrag);
                    reply.answer(Ok(restarted));
                }
                None => reply.answer(Err(self.transport(transport).err().unwrap_or(Refusal::Internal))),
            },
            SupervisorMsg::TransportEnded { transport, reason } => self.transport_ended(transport, reason),
            SupervisorMsg::SessionStarted { room, session } => {
                let Some(entry) = self.room_mut(room) else { return };
                entry.sessions += 1;
                let worker = entry.worker;
                if self.sessions.insert(session, (room, worker)).is_none() {
                    self.counts.sessions[worker].fetch_add(1, Ordering::Relaxed);
                }
            }
            SupervisorMsg::SessionEnded { room, session, reason } => self.session_ended(room, session, reason),
            SupervisorMsg::KindChanged { room, kind } => {
                if let Some(entry) = self.room_mut(room) {
                    let before = std::mem::replace(&mut entry.kind, kind);
                    self.counts.room(before).fetch_sub(1, Ordering::Relaxed);
                    self.counts.room(kind).fetch_add(1, Ordering::Relaxed);
                }
            }
            SupervisorMsg::RoomEnded { room } => {
                self.remove_room(room, LeaveReason::RoomClosed);
            }
            SupervisorMsg::RoomDied { room } => self.room_died(now, room),
            SupervisorMsg::Drain(reply) => self.drain(reply),
            SupervisorMsg::CloseAll => self.close_all(),
            SupervisorMsg::RoomClosing { room, reason } => self.room_closing(room, reason),
            SupervisorMsg::WorkerLost(worker) => self.worker_lost(worker),
        }
        // Deaths that lie far enough back are forgotten, so that the table does not grow.
        if self.cooling.len() > 64 {
            self.cooling.retain(|_, c| now.saturating_duration_since(c.until) <= FORGIVEN);
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
