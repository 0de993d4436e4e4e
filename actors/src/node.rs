//! The handle that doors hold: every command of [`crate::api`], asked of the right actor, with a timeout.

use crate::api::*;
use crate::builds::Builds;
use crate::count::{Failures, NodeCounts, WorkerCounters, WorkerHeld};
use crate::port::{Port, Refused, Reply};
use crate::room::{Attach, Attached, RoomMsg};
use crate::runtime;
use crate::session::SessionMsg;
use crate::supervisor::{Admitted, SupervisorCounts, SupervisorMsg};
use crate::worker::wheel::WakeCounts;
use rondo_media::ids::{Identity, RoomName, SessionId, TransportId};
use rondo_media::sdp::{Answer, Fragment, Offer, SdpRefusal};
use rondo_media::transport::{Accept, Role, Shared, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long an actor may take to answer before the asker is told that the server is busy.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A running node. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

/// What a node is made of, as its surroundings built it.
pub struct Inner {
    /// Admits and places.
    pub supervisor: Port<SupervisorMsg>,
    /// Certificate and crypto of every transport.
    pub shared: Shared,
    /// The workers, by index.
    pub workers: Vec<WorkerHandle>,
    /// Joins whose transport is being built, or waits for it.
    pub builds: Builds,
    /// The supervisor's counts.
    pub counts: Arc<SupervisorCounts>,
    /// The supervisor's actor ended: joins are impossible until the process is started again.
    pub supervisor_lost: Arc<AtomicU64>,
    /// No new joins.
    pub draining: AtomicBool,
    /// When the node started.
    pub started_at: Instant,
    /// The workers' threads, until they are stopped.
    pub threads: Mutex<Option<runtime::Threads>>,
}

/// What doors and metrics need of one worker.
pub struct WorkerHandle {
    /// ICE candidates: the advertised addresses with the worker's port.
    pub candidates: Vec<SocketAddr>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Its joins that never came up, by reason.
    pub failures: Arc<Failures>,
    /// What it holds.
    pub held: Arc<WorkerHeld>,
    /// Its loop has ended: nothing is received or sent any more.
    pub loop_ended: Arc<AtomicBool>,
    /// Its timer wake-ups by reason.
    pub wakeups: Arc<WakeCounts>,
    /// Milliseconds after [`Inner::started_at`] when it last answered.
    pub answered_at_ms: Arc<AtomicU64>,
}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A media socket could not be opened.
    #[error("cannot bind UDP {addr}: {source}. Is another server using the port? Choose another with media.first_port")]
    Bind {
        /// Which.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start worker {worker}: {reason}")]
    Worker {
        /// Which.
        worker: usize,
        /// Why.
        reason: String,
    },
    /// No certificate could be made.
    #[error("cannot prepare DTLS: {0}")]
    Crypto(String),
}

/// What a worker says of itself once it runs.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Bound address.
    pub addr: SocketAddr,
    /// Core it is pinned to, if it is.
    pub core: Option<usize>,
    /// Receive buffer that the kernel granted, in bytes.
    pub receive_buffer_bytes: usize,
    /// Segments that one GSO send may carry; 1 if the kernel has no GSO.
    pub gso_segments: usize,
}

/// Time for the goodbyes of a node that closes every room.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A worker is taken for stuck when it has not answered for this long.
const STUCK_AFTER: Duration = Duration::from_secs(2);

impl Node {
    /// Starts workers and supervisor. Must run inside an actix system.
    ///
    /// # Errors
    /// When a socket or a thread cannot be had; nothing is left running then.
    pub async fn start(config: NodeConfig) -> Result<(Node, Vec<WorkerReport>), StartError> {
        let (inner, reports) = runtime::start(config).await?;
        Ok((Node { inner: Arc::new(inner) }, reports))
    }

    async fn ask<M, T>(&self, port: &Port<M>, make: impl FnOnce(Reply<T>) -> M) -> Result<T, Refusal> {
        let (reply, answer) = Reply::pair();
        match port.tell(make(reply)) {
            Ok(()) => wait(answer).await,
            Err(Refused::Full(_)) => Err(Refusal::Busy { retry_after_s: 1 }),
            Err(Refused::Gone(_)) => Err(Refusal::Busy { retry_after_s: 1 }),
        }
    }

    async fn supervisor<T>(&self, make: impl FnOnce(Reply<T>) -> SupervisorMsg) -> Result<T, Refusal> {
        self.ask(&self.inner.supervisor, make).await
    }

    async fn find(&self, name: &RoomName) -> Result<Port<RoomMsg>, Refusal> {
        let found = self.supervisor(|reply| SupervisorMsg::Find(name.clone(), reply)).await?;
        found.ok_or_else(|| Refusal::RoomNotFound(name.clone()))
    }

    async fn room_of(&self, id: SessionId) -> Result<Port<RoomMsg>, Refusal> {
        self.supervisor(|reply| SupervisorMsg::RoomOf(id, reply)).await?
    }

    /// Lets somebody in. The current tracing span becomes the parent of the join's phases.
    ///
    /// # Errors
    /// Any refusal of admission, of the SDP, or of the room; nothing is left behind then.
    pub async fn join(&self, join: Join) -> Result<Joined, Refusal> {
        let asked_at = Instant::now();
        // Before anything is opened: a POST of garbage must not make a room.
        Offer::parse(&join.offer).map_err(refusal)?;
        let room = join.room.clone();
        let Admitted { transport: id, worker } =
            self.supervisor(|reply| SupervisorMsg::Admit { room, reply }).await??;
        let (transport, answer) = self.build(worker, &join).await?;
        let etag = transport.local_ufrag().to_owned();
        let Join { room, identity, name, guest, door, purpose, kind, .. } = join;
        let port = self.supervisor(|reply| SupervisorMsg::Enter { room, kind, worker, reply }).await??;
        let attach = |reply| {
            RoomMsg::Attach(Box::new(Attach {
                id,
                identity,
                name,
                guest,
                door,
                purpose,
                kind,
                transport,
                etag: etag.clone(),
                asked_at,
                span: tracing::Span::current(),
                reply,
            }))
        };
        let Attached { session, msids } = self.ask(&port, attach).await??;
        let msids: Vec<(usize, &str, &str)> = msids.iter().map(|(s, who, track)| (*s, &**who, &**track)).collect();
        Ok(Joined { session, transport: id, answer: answer.finish(&msids), etag })
    }

    /// A transport and its answer take 0.2–1.3 ms to build: on the blocking pool, never on a worker.
    async fn build(&self, worker: usize, join: &Join) -> Result<(Transport, Answer), Refusal> {
        let candidates = self.inner.workers.get(worker).map(|w| w.candidates.clone()).ok_or(Refusal::Internal)?;
        let (shared, offer) = (self.inner.shared.clone(), join.offer.clone());
        let role = match join.purpose {
            Purpose::Publish { .. } => Role::Publish,
            Purpose::Play { .. } => Role::Play,
        };
        let build =
            move || Transport::accept(Instant::now(), &shared, Accept { role, candidates: &candidates, offer: &offer });
        self.inner.builds.run(build).await?.map_err(refusal)
    }

    /// What a door needs to know of a transport.
    ///
    /// # Errors
    /// `TransportEnded` with its reason, or `TransportNotFound`.
    pub async fn transport(&self, id: TransportId) -> Result<TransportInfo, Refusal> {
        Ok(self.supervisor(|reply| SupervisorMsg::Transport(id, reply)).await??.0)
    }

    /// Candidates that came later (RFC 8840 fragment).
    ///
    /// # Errors
    /// `SdpMalformed`, `WrongIceSession`, or that the transport is gone.
    pub async fn trickle(&self, id: TransportId, fragment: String) -> Result<(), Refusal> {
        let (info, room) = self.supervisor(|reply| SupervisorMsg::Transport(id, reply)).await??;
        let fragment = Fragment::parse(&fragment).map_err(refusal)?;
        if fragment.ufrag.as_ref().is_some_and(|ufrag| *ufrag != info.remote_ufrag) {
            return Err(Refusal::WrongIceSession);
        }
        tell(&room, RoomMsg::Trickle { transport: id, candidates: fragment.candidates })
    }

    /// A new ICE session for a transport whose peer sends this RFC 8840 fragment. `None`: the fragment is of the ICE
    /// session that is there, and its candidates are taken.
    ///
    /// # Errors
    /// `SdpMalformed`, `TooManyRestarts`, or that the transport is gone; the ICE session stays as it is then.
    pub async fn restart_ice(&self, id: TransportId, fragment: String) -> Result<Option<IceRestarted>, Refusal> {
        let (info, room) = self.supervisor(|reply| SupervisorMsg::Transport(id, reply)).await??;
        let fragment = Fragment::parse(&fragment).map_err(refusal)?;
        let (Some(remote_ufrag), Some(_)) = (fragment.ufrag, fragment.pwd) else {
            let missing = "an ICE restart needs a=ice-ufrag and a=ice-pwd (RFC 9725 §4.3.3)";
            return Err(Refusal::SdpMalformed(missing.to_owned()));
        };
        let candidates = fragment.candidates;
        if remote_ufrag == info.remote_ufrag {
            return tell(&room, RoomMsg::Trickle { transport: id, candidates }).map(|()| None);
        }
        let restarted = self.ask(&room, |reply| RoomMsg::RestartIce { transport: id, remote_ufrag, reply }).await??;
        if !candidates.is_empty() {
            tell(&room, RoomMsg::Trickle { transport: id, candidates })?;
        }
        Ok(Some(restarted))
    }

    /// Ends a transport; its session too when it was the last.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn leave(&self, id: TransportId) -> Result<(), Refusal> {
        let (_, room) = self.supervisor(|reply| SupervisorMsg::Transport(id, reply)).await??;
        self.ask(&room, |reply| RoomMsg::End { transport: id, reason: LeaveReason::ClientLeft, reply }).await
    }

    /// Rooms in order of opening, participants included.
    ///
    /// # Errors
    /// `Busy` when the supervisor does not answer; a room that ends meanwhile is left out.
    pub async fn rooms(&self) -> Result<Vec<RoomInfo>, Refusal> {
        let mut rooms = Vec::new();
        for port in self.supervisor(SupervisorMsg::Rooms).await? {
            rooms.extend(self.ask(&port, RoomMsg::Info).await.ok());
        }
        Ok(rooms)
    }

    /// One room.
    ///
    /// # Errors
    /// `RoomNotFound`.
    pub async fn room(&self, name: &RoomName) -> Result<RoomInfo, Refusal> {
        let port = self.find(name).await?;
        self.ask(&port, RoomMsg::Info).await
    }

    /// Opens a room.
    ///
    /// # Errors
    /// `RoomExists`, `TooManyRooms`, `Draining`.
    pub async fn create_room(&self, name: RoomName, settings: RoomSettings) -> Result<RoomInfo, Refusal> {
        let port = self.supervisor(|reply| SupervisorMsg::Create(name, settings, reply)).await??;
        self.ask(&port, RoomMsg::Info).await
    }

    /// Changes a room.
    ///
    /// # Errors
    /// `RoomNotFound`.
    pub async fn patch_room(&self, name: &RoomName, settings: RoomSettings) -> Result<RoomInfo, Refusal> {
        let port = self.find(name).await?;
        self.ask(&port, |reply| RoomMsg::Patch(settings, reply)).await
    }

    /// Ends a room for everybody in it; `by` is told to them.
    ///
    /// # Errors
    /// `RoomNotFound`.
    pub async fn delete_room(&self, name: &RoomName, by: Option<String>) -> Result<(), Refusal> {
        let port = self.find(name).await?;
        self.ask(&port, |reply| RoomMsg::Close { reason: LeaveReason::RoomClosed, by, reply }).await
    }

    async fn with_stats(&self, sessions: Vec<(SessionInfo, Port<SessionMsg>)>) -> Vec<SessionInfo> {
        let mut infos = Vec::with_capacity(sessions.len());
        for (mut info, port) in sessions {
            // A session that ends meanwhile is shown without counters.
            info.transports = self.ask(&port, SessionMsg::Stats).await.unwrap_or_default();
            infos.push(info);
        }
        infos
    }

    /// Sessions that are not over, of one room or all.
    ///
    /// # Errors
    /// `RoomNotFound` when a room is named that is not there.
    pub async fn sessions(
        &self,
        room: Option<RoomName>,
        state: Option<SessionState>,
    ) -> Result<Vec<SessionInfo>, Refusal> {
        let ports = match &room {
            Some(name) => vec![self.find(name).await?],
            None => self.supervisor(SupervisorMsg::Rooms).await?,
        };
        let mut all = Vec::new();
        for port in ports {
            let mut sessions = self.ask(&port, RoomMsg::Sessions).await.unwrap_or_default();
            sessions.retain(|(info, _)| state.is_none_or(|state| info.participant.state == state));
            all.extend(self.with_stats(sessions).await);
        }
        Ok(all)
    }

    /// One session.
    ///
    /// # Errors
    /// `SessionNotFound`.
    pub async fn session(&self, id: SessionId) -> Result<SessionInfo, Refusal> {
        let room = self.room_of(id).await?;
        let mut sessions = self.ask(&room, RoomMsg::Sessions).await?;
        sessions.retain(|(info, _)| info.participant.session == id);
        self.with_stats(sessions).await.pop().ok_or(Refusal::SessionNotFound(id))
    }

    /// Changes a session.
    ///
    /// # Errors
    /// `SessionNotFound`, `TrackNotFound`; nothing has changed then.
    pub async fn patch_session(&self, id: SessionId, patch: SessionPatch) -> Result<SessionInfo, Refusal> {
        let room = self.room_of(id).await?;
        self.ask(&room, |reply| RoomMsg::PatchSession(id, patch, reply)).await??;
        self.session(id).await
    }

    /// What a viewer wishes of tracks.
    ///
    /// # Errors
    /// `SessionNotFound`, `TrackNotFound`; nothing has changed then.
    pub async fn wish(&self, id: SessionId, wishes: Vec<Wish>) -> Result<(), Refusal> {
        let room = self.room_of(id).await?;
        self.ask(&room, |reply| RoomMsg::Wish(id, wishes, reply)).await?
    }

    /// Removes somebody; `by` is told to them.
    ///
    /// # Errors
    /// `SessionNotFound`.
    pub async fn remove_session(&self, id: SessionId, by: Option<String>) -> Result<(), Refusal> {
        let room = self.room_of(id).await?;
        self.ask(&room, |reply| RoomMsg::Remove { session: id, by, reply }).await?
    }

    /// Opens an event stream. `me`: whose private events come along. `after`: resume behind this event.
    ///
    /// # Errors
    /// `RoomNotFound`, `TooManyStreams`.
    pub async fn events(
        &self,
        room: &RoomName,
        me: Option<SessionId>,
        after: Option<u64>,
    ) -> Result<EventFeed, Refusal> {
        let port = self.find(room).await?;
        self.ask(&port, |reply| RoomMsg::Events { me, after, reply }).await?
    }

    /// The session of a participant, if it is in.
    pub async fn session_of(&self, room: &RoomName, identity: &Identity) -> Option<SessionId> {
        let port = self.find(room).await.ok()?;
        self.ask(&port, |reply| RoomMsg::SessionOf(identity.clone(), reply)).await.ok()?
    }

    /// Counters and gauges of the whole node, read without disturbing it.
    pub fn counts(&self) -> NodeCounts {
        let inner = &self.inner;
        let load = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
        let mut wakeups: Vec<(&'static str, u64)> = Vec::new();
        for worker in &inner.workers {
            for (index, (why, n)) in worker.wakeups.read().into_iter().enumerate() {
                match wakeups.get_mut(index) {
                    Some(entry) => entry.1 += n,
                    None => wakeups.push((why, n)),
                }
            }
        }
        let mut failed: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (code, n) in inner.workers.iter().flat_map(|worker| worker.failures.read()) {
            *failed.entry(code).or_default() += n;
        }
        NodeCounts {
            workers: inner.workers.iter().map(|worker| worker.counters.read()).collect(),
            held: inner.workers.iter().map(|worker| worker.held.read()).collect(),
            rooms: RoomKind::ALL.iter().zip(&inner.counts.rooms).map(|(k, n)| (k.label(), load(n))).collect(),
            sessions: inner.counts.sessions.iter().map(load).collect(),
            transports: inner.counts.transports.iter().map(load).collect(),
            left: LeaveReason::ALL.iter().zip(&inner.counts.left).map(|(r, n)| (r.label(), load(n))).collect(),
            failed: failed.into_iter().collect(),
            supervisor_lost: load(&inner.supervisor_lost),
            wakeups,
            rooms_died: load(&inner.counts.rooms_died),
            restarts: load(&inner.counts.restarts),
            workers_lost: load(&inner.counts.workers_lost),
        }
    }

    /// Every worker has answered lately and joins are taken.
    pub fn ready(&self) -> bool {
        let now_ms = u64::try_from(self.inner.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let limit = u64::try_from(STUCK_AFTER.as_millis()).unwrap_or(u64::MAX);
        !self.inner.draining.load(Ordering::Relaxed)
            && self.inner.supervisor_lost.load(Ordering::Relaxed) == 0
            && self
                .inner
                .workers
                .iter()
                .all(|worker| now_ms.saturating_sub(worker.answered_at_ms.load(Ordering::Relaxed)) < limit)
    }

    /// No new joins; participants are told to move and have `within` to leave, then every room ends. Returns when
    /// all have left.
    pub async fn drain(&self, within: Duration) {
        self.inner.draining.store(true, Ordering::Relaxed);
        let (reply, mut done) = Reply::pair();
        if !self.insist(SupervisorMsg::Drain(reply)).await {
            return;
        }
        if tokio::time::timeout(within, &mut done).await.is_ok() {
            return;
        }
        if self.insist(SupervisorMsg::CloseAll).await {
            let _ = tokio::time::timeout(LAST_WORDS, done).await;
        }
    }

    /// Tells the supervisor, and tries again while its queue is full. False if it has ended.
    async fn insist(&self, mut msg: SupervisorMsg) -> bool {
        loop {
            match self.inner.supervisor.tell(msg) {
                Ok(()) => return true,
                Err(Refused::Gone(_)) => return false,
                Err(Refused::Full(back)) => msg = back,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends the workers' threads; call it after [`Node::drain`]. Nothing can be asked of the node afterwards.
    pub async fn stop(&self) {
        let inner = self.inner.clone();
        let _ = tokio::task::spawn_blocking(move || inner.stop_threads()).await;
    }
}

async fn wait<T>(answer: oneshot::Receiver<T>) -> Result<T, Refusal> {
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        // The actor ended, or panicked, with the question in its queue.
        Ok(Err(_)) => Err(Refusal::Busy { retry_after_s: 1 }),
        Err(_) => Err(Refusal::Busy { retry_after_s: 5 }),
    }
}

fn tell<M>(port: &Port<M>, msg: M) -> Result<(), Refusal> {
    port.tell(msg).map_err(|refused| match refused {
        Refused::Full(_) => Refusal::Busy { retry_after_s: 1 },
        Refused::Gone(_) => Refusal::Internal,
    })
}

fn refusal(refused: SdpRefusal) -> Refusal {
    match refused {
        SdpRefusal::NoCommonCodec => Refusal::NoCommonCodec,
        SdpRefusal::Unsupported(_) => Refusal::SdpUnsupported(refused.to_string()),
        other => Refusal::SdpMalformed(other.to_string()),
    }
}
