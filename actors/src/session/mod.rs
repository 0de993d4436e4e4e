//! The session actor: one stay of one participant. It owns its transports and all their media state: rings,
//! dedup windows and jitter state of what it publishes, egress state of what it plays.
//!
//! ```text
//! Add ─▶ joining ──DTLS──▶ connected ──silent──▶ disconnected ──silent longer──▶ ended(connection_lost)
//!           │ deadline          │ ▲                  │
//!           ▼                   ▼ └────heard─────────┘
//!   ended(join_timeout)   ended(client_left | replaced | dtls_failed | …)
//! ```

mod choice;
mod health;
mod peer;
mod play;
mod publish;
mod share;

use crate::api::{IceRestarted, LeaveReason, Refusal, SessionState, TransportStats, View};
use crate::batch::{Batch, Datagram};
use crate::local::Local;
use crate::port::{Port, Post, Reply};
use crate::room::RoomMsg;
use crate::shell::Receive;
use health::Health;
use peer::{Handed, Peer, Role};
use rondo_media::ids::{SessionId, TrackId, TransportId};
use rondo_media::receive::{LayerList, LayerMask};
use rondo_media::room::TrackKey;
use rondo_media::transport::{IceRestart, Transport};
use rondo_media::units::{Bitrate, Deadline, Why};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Messages to a session.
pub enum SessionMsg {
    /// What arrived for it in one round of the worker.
    Datagrams(Vec<Datagram>),
    /// A transport moves in.
    Add(Box<AddTransport>),
    /// A batch for one section of one play transport.
    Media {
        /// Packets.
        batch: Arc<Batch>,
        /// Which transport.
        transport: u8,
        /// Which section.
        section: u16,
        /// What came before it was left out on purpose: the viewer is to see no loss.
        resumes: bool,
        /// Its publisher is among those who speak.
        speaks: bool,
    },
    /// What a section carries from now on.
    Assign {
        /// Which transport.
        transport: u8,
        /// Which section.
        section: u16,
        /// Which track; none frees it.
        carry: Option<Carry>,
    },
    /// Layers of a track have come or gone, or were measured anew.
    Layers {
        /// Which transport.
        transport: u8,
        /// Which section.
        section: u16,
        /// The track that it carries.
        track: TrackKey,
        /// All its layers.
        layers: LayerList,
    },
    /// The viewer looks at a track in another way.
    View {
        /// Which transport.
        transport: u8,
        /// Which section.
        section: u16,
        /// The track that it carries.
        track: TrackKey,
        /// How.
        view: View,
    },
    /// A section is paused or goes on.
    Pause {
        /// Which transport.
        transport: u8,
        /// Which section.
        section: u16,
        /// Nothing is sent.
        paused: bool,
    },
    /// Somebody needs a key frame of one of its tracks.
    KeyFrame {
        /// Which.
        track: TrackKey,
        /// Which layer of it.
        layer: u8,
    },
    /// Which layers of one of its tracks somebody wants.
    Wanted {
        /// Which track.
        track: TrackKey,
        /// These, and no others.
        layers: LayerMask,
    },
    /// Remote candidates that came later.
    Trickle {
        /// Which transport.
        transport: u8,
        /// `candidate:` lines.
        candidates: Vec<String>,
    },
    /// The peer restarts ICE.
    RestartIce {
        /// Which transport.
        transport: u8,
        /// The peer's new ufrag.
        remote_ufrag: String,
        /// Where the answer goes, by way of whoever must know first.
        reply: RestartReply,
    },
    /// A transport ends.
    End {
        /// Which.
        transport: u8,
        /// Why.
        reason: LeaveReason,
    },
    /// The whole session ends.
    Close(LeaveReason),
    /// What its transports have counted.
    Stats(Reply<Vec<TransportStats>>),
}

/// Who asked for an ICE restart.
pub type RestartReply = Reply<Result<IceRestarted, Refusal>>;

/// A transport that moves into its session.
pub struct AddTransport {
    /// Its index in the session; the room gave it.
    pub index: u8,
    /// The participant's number in the room.
    pub participant: u32,
    /// Its name.
    pub id: TransportId,
    /// The transport, built off the worker.
    pub transport: Transport,
    /// What it does.
    pub role: AddRole,
    /// When the request came in.
    pub asked_at: Instant,
    /// Parent of the phases' spans.
    pub span: tracing::Span,
}

/// What a transport that moves in does.
pub enum AddRole {
    /// Publishes: the track of each section, by section index; none where the section is refused.
    Publish(Vec<Option<Published>>),
    /// Plays: what each section carries at first.
    Play(Vec<Option<Carry>>),
}

/// A track that a section publishes.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Its key in the room.
    pub track: TrackKey,
    /// Its name.
    pub id: TrackId,
    /// What its publisher is asked to stay below, if it is video without layers.
    pub cap: Option<Bitrate>,
}

/// What a section carries.
#[derive(Debug, Clone)]
pub struct Carry {
    /// Which track.
    pub track: TrackKey,
    /// Its name.
    pub id: TrackId,
    /// Nothing of it is sent for now.
    pub paused: bool,
    /// Names of its simulcast layers; empty where it has none.
    pub names: Arc<[String]>,
    /// What is known of them.
    pub layers: LayerList,
    /// How the viewer looks at it.
    pub view: View,
}

/// One stay of one participant.
pub struct Session {
    id: SessionId,
    slot: u32,
    local: Rc<Local>,
    room: Post<RoomMsg>,
    peers: Vec<Option<Peer>>,
    state: SessionState,
    health: Health,
    closing: bool,
}

impl Session {
    /// A session without transports yet.
    pub fn new(id: SessionId, slot: u32, local: Rc<Local>, room: Port<RoomMsg>) -> Self {
        Self {
            id,
            slot,
            local,
            room: Post::new(room),
            peers: Vec::new(),
            state: SessionState::Joining,
            health: Health::default(),
            closing: false,
        }
    }

    fn add(&mut self, now: Instant, add: AddTransport) {
        let index = usize::from(add.index);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        let route = peer::route(self.slot, add.index);
        let added = self.local.demux.borrow_mut().add(add.transport.local_ufrag(), route);
        self.peers[index] = Some(Peer::new(now, &self.local, add));
        match added {
            Ok(()) => self.settle(now, index),
            Err(refused) => {
                tracing::warn!(%refused, "a transport cannot be reached and ends");
                self.end(now, index, LeaveReason::ServerError);
            }
        }
    }

    fn datagrams(&mut self, now: Instant, datagrams: Vec<Datagram>) {
        let mut touched = 0u64;
        for datagram in &datagrams {
            let index = usize::from(datagram.transport);
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            touched |= 1 << (index % 64);
            peer.datagram(now, &self.local, datagram, &mut self.room);
        }
        self.local.pool.borrow_mut().give_back(datagrams);
        for index in 0..self.peers.len() {
            if touched >> (index % 64) & 1 == 1 {
                self.settle(now, index);
            }
        }
        self.judge(now);
    }

    /// The answer goes by the room, so that whoever reads it finds the new session known everywhere.
    fn restart_ice(&mut self, now: Instant, transport: u8, remote_ufrag: String, reply: RestartReply) {
        let index = usize::from(transport);
        let Some(Some(peer)) = self.peers.get_mut(index) else {
            // Ended while the question was on its way: the supervisor knows why.
            return reply.answer(Err(Refusal::Busy { retry_after_s: 1 }));
        };
        let route = peer::route(self.slot, transport);
        match peer.restart_ice(now, &self.local, route, &remote_ufrag) {
            Ok(IceRestart { local_ufrag, fragment, .. }) => {
                let restarted = IceRestarted { etag: local_ufrag, remote_ufrag, fragment };
                self.room.post(now, RoomMsg::IceRestarted { session: self.id, transport, restarted, reply });
            }
            Err(refusal) => reply.answer(Err(refusal)),
        }
        self.settle(now, index);
    }

    /// Lets a transport say everything it has to say, and passes on what became ready.
    fn settle(&mut self, now: Instant, index: usize) {
        let route = peer::route(self.slot, index as u8);
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let ended = peer.settle(now, &self.local, route, self.id, &mut self.room);
        if let Some(reason) = ended {
            self.end(now, index, reason);
        }
    }

    /// Ends a transport and tells the room.
    fn end(&mut self, now: Instant, index: usize, reason: LeaveReason) {
        let Some(mut peer) = self.peers.get_mut(index).and_then(Option::take) else { return };
        let route = peer::route(self.slot, index as u8);
        peer.close(now, &self.local, route);
        self.local.demux.borrow_mut().remove(route);
        if !peer.connected() {
            self.local.counters.joins_failed.add(1);
            let code = peer.failure_code(reason);
            self.local.failures.add(code);
            peer.span().in_scope(|| {
                tracing::info!(transport = %peer.id(), code, phase = peer.phase(), "join_failed");
            });
        }
        let stats = peer.stats();
        self.room.post(now, RoomMsg::TransportEnded { session: self.id, transport: index as u8, reason, stats });
    }

    /// How the session is, from how its transports are; the room hears of changes.
    fn judge(&mut self, now: Instant) {
        let limits = &self.local.limits;
        // Every one is judged, also after one was heard: each has its own deadline.
        let heard = self.peers.iter_mut().flatten().filter_map(|p| p.heard_lately(now, limits).then_some(())).count();
        let state = if heard > 0 {
            SessionState::Connected
        } else if self.peers.iter().flatten().any(Peer::connected) {
            SessionState::Disconnected
        } else {
            SessionState::Joining
        };
        if state != self.state {
            self.state = state;
            self.room.post(now, RoomMsg::State { session: self.id, state });
        }
        if let Some(verdicts) = self.health.judge(now, self.peers.iter().flatten()) {
            self.room.post(now, RoomMsg::Quality { session: self.id, verdicts });
        }
    }

    /// A session does not outlive its room, nor its last transport once the room knows nothing of it.
    fn follow_room(&mut self, now: Instant) {
        if self.room.is_gone() && !self.closing {
            self.close(now, LeaveReason::ServerError);
        }
    }

    fn close(&mut self, now: Instant, reason: LeaveReason) {
        for index in 0..self.peers.len() {
            self.end(now, index, reason);
        }
        self.closing = true;
    }

    /// What a transport does, and the room that it may have to tell of it.
    fn role_mut(&mut self, transport: u8) -> Option<(&mut Role, &mut Post<RoomMsg>)> {
        let peer = self.peers.get_mut(usize::from(transport))?.as_mut()?;
        Some((peer.role_mut(), &mut self.room))
    }
}

impl Receive for Session {
    type Msg = SessionMsg;

    fn receive(&mut self, now: Instant, msg: SessionMsg) {
        match msg {
            SessionMsg::Datagrams(datagrams) => self.datagrams(now, datagrams),
            SessionMsg::Media { batch, transport, section, resumes, speaks } => {
                let Some(Some(peer)) = self.peers.get_mut(usize::from(transport)) else { return };
                peer.media(now, &self.local, &batch, Handed { section, resumes, speaks }, self.id, &mut self.room);
            }
            SessionMsg::Add(add) => self.add(now, *add),
            SessionMsg::Assign { transport, section, carry } => {
                if let Some((Role::Play(play), room)) = self.role_mut(transport) {
                    play.assign(now, section, carry, room);
                }
            }
            SessionMsg::Layers { transport, section, track, layers } => {
                if let Some((Role::Play(play), room)) = self.role_mut(transport) {
                    play.layers(now, section, track, layers, room);
                }
            }
            SessionMsg::View { transport, section, track, view } => {
                if let Some((Role::Play(play), room)) = self.role_mut(transport) {
                    play.view(now, section, track, view, room);
                }
            }
            SessionMsg::Pause { transport, section, paused } => {
                if let Some((Role::Play(play), _)) = self.role_mut(transport) {
                    play.pause(section, paused);
                }
            }
            SessionMsg::KeyFrame { track, layer } => {
                for index in 0..self.peers.len() {
                    if let Some(Some(peer)) = self.peers.get_mut(index)
                        && peer.key_frame(now, &self.local, track, layer)
                    {
                        self.settle(now, index);
                    }
                }
            }
            SessionMsg::Wanted { track, layers } => {
                for peer in self.peers.iter_mut().flatten() {
                    if let Role::Publish(publish) = peer.role_mut() {
                        publish.wanted(track, layers);
                    }
                }
            }
            SessionMsg::Trickle { transport, candidates } => {
                if let Some(Some(peer)) = self.peers.get_mut(usize::from(transport)) {
                    peer.trickle(now, &candidates);
                }
                self.settle(now, usize::from(transport));
            }
            SessionMsg::RestartIce { transport, remote_ufrag, reply } => {
                self.restart_ice(now, transport, remote_ufrag, reply);
            }
            SessionMsg::End { transport, reason } => self.end(now, usize::from(transport), reason),
            SessionMsg::Close(reason) => self.close(now, reason),
            SessionMsg::Stats(reply) => {
                reply.answer(self.peers.iter().flatten().map(Peer::stats).collect());
            }
        }
        self.follow_room(now);
    }

    fn wake(&mut self, now: Instant) {
        self.room.retry(now);
        for index in 0..self.peers.len() {
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            peer.wake(now, &self.local, &mut self.room);
            self.settle(now, index);
        }
        self.judge(now);
        self.follow_room(now);
    }

    fn deadline(&self) -> Option<Deadline> {
        let retry = self.room.deadline().map(|at| Deadline { at, why: Why::Restart });
        let own = Deadline::earlier(retry, self.health.deadline());
        let limits = &self.local.limits;
        self.peers.iter().flatten().fold(own, |soonest, peer| Deadline::earlier(soonest, peer.deadline(limits)))
    }

    fn finished(&self) -> bool {
        self.closing && self.room.deadline().is_none()
    }
}
