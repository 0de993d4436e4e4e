//! The room actor: who is in, what they publish, who sees it in which section, and what everybody is told.
//!
//! It lives on one worker, beside its sessions. Arrows: supervisor and doors ask the room; the room tells its
//! sessions and the supervisor; sessions tell the room. Nobody here waits for an answer.

mod commands;
#[cfg(test)]
mod crowd_tests;
mod fanout;
mod feeds;
mod joining;
mod layers;
mod members;

use crate::api::{
    EventFeed, IceRestarted, LeaveReason, Refusal, RoomEvent, RoomInfo, RoomKind, RoomSettings, SessionInfo,
    SessionPatch, SessionState, TransportStats, Verdicts, Wish,
};
use crate::batch::Batch;
use crate::local::Local;
use crate::port::{Port, Post, Reply};
use crate::session::{RestartReply, SessionMsg};
use crate::shell::Receive;
use crate::supervisor::SupervisorMsg;
use feeds::Feeds;
pub use joining::{Attach, Attached};
pub use members::Viewer;
use members::{Member, Qualities, Track};
use rondo_media::audible::Audible;
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{Identity, RoomId, RoomName, SessionId, TrackId, TransportId};
use rondo_media::receive::{LayerList, LayerMask};
use rondo_media::room::TrackKey;
use rondo_media::speaker::Speakers;
use rondo_media::units::{Deadline, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Messages to a room.
pub enum RoomMsg {
    /// A transport wants in.
    Attach(Box<Attach>),
    /// A transport is to end.
    End {
        /// Which.
        transport: TransportId,
        /// Why.
        reason: LeaveReason,
        /// Answered when nobody finds it any more.
        reply: Reply<()>,
    },
    /// Remote candidates that came later.
    Trickle {
        /// Which transport.
        transport: TransportId,
        /// `candidate:` lines.
        candidates: Vec<String>,
    },
    /// A peer restarts ICE.
    RestartIce {
        /// Which transport.
        transport: TransportId,
        /// The peer's new ufrag.
        remote_ufrag: String,
        /// Answered by the supervisor, which is the last to know.
        reply: RestartReply,
    },
    /// A session has done so.
    IceRestarted {
        /// Which session.
        session: SessionId,
        /// Which of its transports.
        transport: u8,
        /// The new ICE session.
        restarted: IceRestarted,
        /// As above.
        reply: RestartReply,
    },
    /// The room as lists show it.
    Info(Reply<RoomInfo>),
    /// New settings.
    Patch(RoomSettings, Reply<RoomInfo>),
    /// The room ends.
    Close {
        /// Why.
        reason: LeaveReason,
        /// Who ended it.
        by: Option<String>,
        /// Answered when nobody finds it any more.
        reply: Reply<()>,
    },
    /// The server is going down: everybody is told, calls go on until they end or the time is up.
    Drain,
    /// Its sessions, with the ports to ask for their counters.
    Sessions(Reply<Vec<(SessionInfo, Port<SessionMsg>)>>),
    /// A participant's session.
    SessionOf(Identity, Reply<Option<SessionId>>),
    /// A session changes.
    PatchSession(SessionId, SessionPatch, Reply<Result<(), Refusal>>),
    /// What a viewer wishes of tracks.
    Wish(SessionId, Vec<Wish>, Reply<Result<(), Refusal>>),
    /// Somebody is removed.
    Remove {
        /// Which session.
        session: SessionId,
        /// Who does it.
        by: Option<String>,
        /// Done.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Somebody wants to hear what happens.
    Events {
        /// Whose private events come along.
        me: Option<SessionId>,
        /// Resume behind this event.
        after: Option<u64>,
        /// Snapshot or backlog, and what follows.
        reply: Reply<Result<EventFeed, Refusal>>,
    },
    /// A batch of a track, for everybody who sees it.
    Media(Arc<Batch>),
    /// The first packet of a track came, or its codec changed.
    TrackStarted {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackKey,
        /// What it carries.
        codec: Codec,
    },
    /// A viewer needs a key frame.
    KeyFrameWanted {
        /// Of which track.
        track: TrackKey,
        /// Of which of its layers.
        layer: u8,
    },
    /// Layers of a track have come or gone, or were measured anew.
    Layers {
        /// Which track.
        track: TrackKey,
        /// All its layers.
        layers: LayerList,
    },
    /// A session follows other layers of a track than before: it gets batches of these alone.
    Follows {
        /// Which track.
        track: TrackKey,
        /// The section that carries it.
        viewer: Viewer,
        /// As above.
        section: u16,
        /// Which layers.
        layers: LayerMask,
    },
    /// A viewer's transport did not offer the codec of a track.
    CodecUnsupported {
        /// Whose.
        session: SessionId,
        /// Which track.
        track: TrackKey,
        /// Its codec.
        codec: Codec,
    },
    /// A transport has ended.
    TransportEnded {
        /// Whose.
        session: SessionId,
        /// Its index.
        transport: u8,
        /// Why.
        reason: LeaveReason,
        /// What it had counted.
        stats: TransportStats,
    },
    /// A session's state changed.
    State {
        /// Which.
        session: SessionId,
        /// How it is now.
        state: SessionState,
    },
    /// A session's connection became better or worse.
    Quality {
        /// Which.
        session: SessionId,
        /// How it is now.
        verdicts: Verdicts,
    },
    /// A session actor panicked; its state is lost.
    SessionDied {
        /// Which.
        session: SessionId,
    },
}

/// What the supervisor knows of a room when it opens it.
#[derive(Debug, Clone)]
pub struct RoomSeed {
    /// Its id.
    pub id: RoomId,
    /// Its name.
    pub name: RoomName,
    /// What an app fixed.
    pub settings: RoomSettings,
    /// Kind to begin with.
    pub kind: RoomKind,
}

/// One room.
pub struct Room {
    seed: RoomSeed,
    kind: RoomKind,
    local: Rc<Local>,
    me: Port<RoomMsg>,
    supervisor: Post<SupervisorMsg>,
    /// By their numbers, which is as they came.
    members: Vec<Member>,
    next_participant: u32,
    tracks: BTreeMap<TrackKey, Track>,
    track_keys: BTreeMap<TrackId, TrackKey>,
    next_track: u32,
    /// When somebody is to be told what nobody wants of a track.
    fading: BTreeSet<(Instant, TrackKey)>,
    speakers: Speakers,
    audible: Audible,
    speaking: Vec<Identity>,
    qualities: Qualities,
    feeds: Feeds,
    created_at: Instant,
    empty_since: Option<Instant>,
    ever_joined: bool,
    /// An app or the configuration chose the kind.
    fixed_kind: bool,
    draining: bool,
    closing: bool,
}

impl Room {
    /// A room that nobody has entered yet.
    pub fn new(
        now: Instant,
        seed: RoomSeed,
        local: Rc<Local>,
        me: Port<RoomMsg>,
        supervisor: Port<SupervisorMsg>,
    ) -> Self {
        let kind = seed.kind;
        tracing::info!(room = %seed.name, id = %seed.id, kind = kind.label(), worker = local.worker, "room opened");
        let mut room = Self {
            kind,
            me,
            supervisor: Post::new(supervisor),
            members: Vec::new(),
            next_participant: 0,
            tracks: BTreeMap::new(),
            track_keys: BTreeMap::new(),
            next_track: 0,
            fading: BTreeSet::new(),
            speakers: Speakers::new(),
            audible: Audible::new(),
            speaking: Vec::new(),
            qualities: Qualities::default(),
            feeds: Feeds::new(local.limits.event_streams_per_room, local.wall.unix_ms(now)),
            created_at: now,
            empty_since: Some(now),
            ever_joined: false,
            fixed_kind: seed.settings.kind.is_some(),
            draining: false,
            closing: false,
            seed,
            local,
        };
        let room_started = RoomEvent::RoomStarted { room: room.info() };
        room.emit(now, None, room_started);
        room
    }

    fn info(&self) -> RoomInfo {
        RoomInfo {
            id: self.seed.id,
            name: self.seed.name.clone(),
            kind: self.kind,
            executor: self.kind.executor(),
            worker: self.local.worker,
            created_at_ms: self.local.wall.unix_ms(self.created_at),
            max_participants: self.max_participants(),
            metadata: self.seed.settings.metadata.clone().unwrap_or_default(),
            participants: self.members.iter().map(|member| self.participant(member)).collect(),
        }
    }

    fn max_participants(&self) -> usize {
        let limit = self.local.limits.participants_per_room;
        self.seed.settings.max_participants.map_or(limit, |own| own.min(limit))
    }

    fn lifetime(&self) -> Option<Instant> {
        let times = &self.local.times;
        let stay = if self.ever_joined { times.departure_timeout } else { times.empty_timeout };
        self.empty_since.map(|since| since + stay)
    }

    /// Two people make a call, a third who publishes makes it a conference for good (interfaces §4).
    fn judge_kind(&mut self, now: Instant) {
        if self.fixed_kind || self.kind != RoomKind::Call {
            return;
        }
        let publishing: BTreeSet<u32> = self.tracks.values().filter(|t| t.started()).map(|t| t.participant).collect();
        if publishing.len() > 2 {
            self.become_kind(now, RoomKind::Conference);
        }
    }

    fn become_kind(&mut self, now: Instant, kind: RoomKind) {
        if self.kind != kind {
            self.kind = kind;
            self.supervisor.post(now, SupervisorMsg::KindChanged { room: self.seed.id, kind });
            tracing::info!(room = %self.seed.name, kind = kind.label(), "room changed its kind");
        }
    }
}

impl Receive for Room {
    type Msg = RoomMsg;

    fn receive(&mut self, now: Instant, msg: RoomMsg) {
        match msg {
            RoomMsg::Media(batch) => self.media(now, &batch),
            RoomMsg::KeyFrameWanted { track, layer } => self.key_frame_wanted(now, track, LayerMask::of(layer)),
            RoomMsg::Layers { track, layers } => self.layers_changed(now, track, &layers),
            RoomMsg::Follows { track, viewer, section, layers } => self.follows(now, track, viewer, section, layers),
            RoomMsg::Attach(attach) => self.attach(now, *attach),
            RoomMsg::End { transport, reason, reply } => {
                self.end_transport(now, transport, reason);
                reply.answer(());
            }
            RoomMsg::Trickle { transport, candidates } => self.trickle(now, transport, candidates),
            RoomMsg::RestartIce { transport, remote_ufrag, reply } => {
                self.restart_ice(now, transport, remote_ufrag, reply);
            }
            RoomMsg::IceRestarted { session, transport, restarted, reply } => {
                self.ice_restarted(now, session, transport, restarted, reply);
            }
            RoomMsg::Info(reply) => reply.answer(self.info()),
            RoomMsg::Patch(settings, reply) => {
                self.patch(now, settings);
                reply.answer(self.info());
            }
            RoomMsg::Close { reason, by, reply } => {
                self.close(now, reason, by);
                reply.answer(());
            }
            RoomMsg::Drain => self.drain(now),
            RoomMsg::Sessions(reply) => reply.answer(self.sessions()),
            RoomMsg::SessionOf(identity, reply) => {
                reply.answer(self.members.iter().find(|m| m.identity == identity).map(|m| m.session));
            }
            RoomMsg::PatchSession(session, patch, reply) => reply.answer(self.patch_session(now, session, patch)),
            RoomMsg::Wish(session, wishes, reply) => reply.answer(self.wish(now, session, &wishes)),
            RoomMsg::Remove { session, by, reply } => reply.answer(self.remove(now, session, by)),
            RoomMsg::Events { me, after, reply } => reply.answer(self.open_feed(me, after)),
            RoomMsg::TrackStarted { session, track, codec } => self.track_started(now, session, track, codec),
            RoomMsg::CodecUnsupported { session, track, codec } => self.codec_unsupported(now, session, track, codec),
            RoomMsg::TransportEnded { session, transport, reason, stats } => {
                self.transport_ended(now, session, transport, reason, &stats);
            }
            RoomMsg::State { session, state } => self.state_changed(now, session, state),
            RoomMsg::Quality { session, verdicts } => self.quality_changed(now, session, verdicts),
            RoomMsg::SessionDied { session } => self.session_died(now, session),
        }
        self.bury(now);
    }

    fn wake(&mut self, now: Instant) {
        self.supervisor.retry(now);
        for member in &mut self.members {
            member.port.retry(now);
        }
        self.bury(now);
        self.judge_speakers(now);
        self.wake_layers(now);
        self.wake_qualities(now);
        if !self.closing && self.lifetime().is_some_and(|at| at <= now) {
            self.close(now, LeaveReason::RoomClosed, None);
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        let retry = std::iter::once(self.supervisor.deadline())
            .chain(self.members.iter().map(|m| m.port.deadline()))
            .flatten()
            .min()
            .map(|at| Deadline { at, why: Why::Restart });
        let life = match self.closing {
            true => None,
            false => self.lifetime().map(|at| Deadline { at, why: Why::RoomLifetime }),
        };
        let goodbye = self.members.iter().filter_map(Member::goodbye_until).min();
        let goodbye = goodbye.map(|at| Deadline { at, why: Why::Liveness });
        let fading = self.fading.first().map(|(at, _)| Deadline { at: *at, why: Why::Layers });
        let own = Deadline::earlier(Deadline::earlier(Deadline::earlier(retry, life), goodbye), fading);
        let told = self.qualities.next_at.map(|at| Deadline { at, why: Why::Statistics });
        Deadline::earlier(Deadline::earlier(own, told), self.speakers.deadline())
    }

    fn finished(&self) -> bool {
        self.closing && self.members.is_empty() && self.supervisor.deadline().is_none()
    }
}

/// What a track of a section is called: audio and video of one transport have different sources.
fn source_of(kind: Kind, audio: crate::api::Source, video: crate::api::Source) -> crate::api::Source {
    match kind {
        Kind::Audio => audio,
        Kind::Video => video,
    }
}

/// Text of a track id, for SDP and events.
fn track_text(id: TrackId) -> String {
    id.to_string()
}
