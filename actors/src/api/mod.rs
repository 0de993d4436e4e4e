//! What the doors ask of the actors, and what they hear back. No door and no protocol of theirs is named here.

mod config;
mod events;
mod stats;
mod text;

pub use config::{Limits, MediaConfig, NodeConfig, RoomTimes, VideoCaps};
pub use events::{EventFeed, LayerWanted, Numbered, RoomEvent, SectionAssignment};
use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{Identity, RoomId, RoomName, SessionId, TrackId, TransportId};
use rondo_media::quality::{Quality, Verdict};
use serde::Serialize;
pub use stats::{LayerStats, SessionInfo, SubscriptionStats, TransportStats};
use std::collections::BTreeMap;
use text::{codec_text, kind_text, text, verdict};

/// What a room is for; it chooses executor, budgets and policies (interfaces §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RoomKind {
    /// Up to two people publish.
    Call,
    /// Three or more have published.
    Conference,
    /// One pushes, many watch.
    Live,
    /// Only voice streams.
    Voice,
}

impl RoomKind {
    /// Every kind, in label order.
    pub const ALL: [RoomKind; 4] = [RoomKind::Call, RoomKind::Conference, RoomKind::Live, RoomKind::Voice];
    /// The metric label and wire name.
    pub fn label(self) -> &'static str {
        match self {
            RoomKind::Call => "call",
            RoomKind::Conference => "conference",
            RoomKind::Live => "live",
            RoomKind::Voice => "voice",
        }
    }
    /// The executor that this kind's signal work goes to.
    pub fn executor(self) -> Executor {
        match self {
            RoomKind::Call | RoomKind::Conference | RoomKind::Voice => Executor::AudioPriority,
            RoomKind::Live => Executor::VideoPriority,
        }
    }
}

/// Which executor serves a room; recorded with the room, the executors themselves come with the voice work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Audio jobs first.
    AudioPriority,
    /// Picture and start-up first.
    VideoPriority,
}

/// What a track shows or says (interfaces §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A camera.
    Camera,
    /// A microphone.
    Microphone,
    /// A shared screen.
    Screen,
    /// The sound of a shared screen.
    ScreenAudio,
    /// A voice stream.
    Voice,
}

impl Source {
    /// The wire name.
    pub fn label(self) -> &'static str {
        match self {
            Source::Camera => "camera",
            Source::Microphone => "microphone",
            Source::Screen => "screen",
            Source::ScreenAudio => "screen_audio",
            Source::Voice => "voice",
        }
    }
}

/// Which door a transport came in by; a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// WHIP, RFC 9725.
    Whip,
    /// WHEP, draft-ietf-wish-whep-04.
    Whep,
}

impl Door {
    /// Every door, in label order.
    pub const ALL: [Door; 2] = [Door::Whip, Door::Whep];
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Door::Whip => "whip",
            Door::Whep => "whep",
        }
    }
}

/// What a transport is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Publishes; audio sections become `audio`, video sections `video`. A source the token does not allow
    /// was refused by the door before.
    Publish {
        /// Source of an audio section.
        audio: Source,
        /// Source of a video section.
        video: Source,
    },
    /// Plays the room, or what one participant publishes.
    Play {
        /// Only this participant.
        only: Option<Identity>,
    },
}

/// Somebody wants in.
#[derive(Debug, Clone)]
pub struct Join {
    /// Which room; opened if it is not there.
    pub room: RoomName,
    /// Who.
    pub identity: Identity,
    /// Name to show; the identity if absent.
    pub name: Option<String>,
    /// Came without a token (`--dev`): nobody else may end this transport by a token of the same identity,
    /// whoever knows its id may.
    pub guest: bool,
    /// The door it came in by.
    pub door: Door,
    /// What for.
    pub purpose: Purpose,
    /// Kind to open the room with, where the door knows it.
    pub kind: Option<RoomKind>,
    /// SDP offer.
    pub offer: String,
}

/// The answer to a [`Join`].
#[derive(Debug, Clone)]
pub struct Joined {
    /// The participant's session, new or the one it had.
    pub session: SessionId,
    /// The new transport.
    pub transport: TransportId,
    /// SDP answer.
    pub answer: String,
    /// ICE session tag for `ETag` (RFC 9725 §4.3.1): changes with an ICE restart.
    pub etag: String,
}

/// A transport's new ICE session (RFC 9725 §4.3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IceRestarted {
    /// ICE session tag for `ETag`.
    pub etag: String,
    /// The peer's ufrag, by which it was asked for.
    pub remote_ufrag: String,
    /// Our half: `application/trickle-ice-sdpfrag`.
    pub fragment: String,
}

/// What a door needs to know of a transport before it lets somebody change it.
#[derive(Debug, Clone)]
pub struct TransportInfo {
    /// Its room.
    pub room: RoomName,
    /// Its session.
    pub session: SessionId,
    /// Whose it is.
    pub identity: Identity,
    /// Made without a token.
    pub guest: bool,
    /// Which door.
    pub door: Door,
    /// ICE session tag.
    pub etag: String,
    /// The peer's ICE ufrag: a trickle fragment must name it.
    pub remote_ufrag: String,
}

/// Why something was not done. The doors give each a status and a stable code, in one table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such room.
    #[error("there is no room {0}")]
    RoomNotFound(RoomName),
    /// A room of that name exists.
    #[error("room {0} exists already")]
    RoomExists(RoomName),
    /// No such session.
    #[error("there is no session {0}")]
    SessionNotFound(SessionId),
    /// Ended; the reason is kept for a while.
    #[error("session {0} has ended: {1}")]
    SessionEnded(SessionId, LeaveReason),
    /// No such track.
    #[error("there is no track {0} in this session")]
    TrackNotFound(TrackId),
    /// Never existed, or ended so long ago that the reason is forgotten.
    #[error("there is no transport {0}")]
    TransportNotFound(TransportId),
    /// Ended; the reason is kept for a while.
    #[error("transport {0} has ended: {1}")]
    TransportEnded(TransportId, LeaveReason),
    /// The room is full.
    #[error("room {room} is full ({limit} of {limit})")]
    RoomFull {
        /// Which.
        room: RoomName,
        /// `limits.participants_per_room` or the room's own.
        limit: usize,
    },
    /// `limits.rooms` is reached.
    #[error("this server has {limit} rooms, its limit")]
    TooManyRooms {
        /// `limits.rooms`.
        limit: usize,
    },
    /// Too many transports of one session.
    #[error("this participant has {limit} connections, the limit; close one first")]
    TooManyTransports {
        /// `limits.transports_per_session`.
        limit: usize,
    },
    /// Too many event streams of one room.
    #[error("room has {limit} event streams, the limit")]
    TooManyStreams {
        /// `limits.event_streams_per_room`.
        limit: usize,
    },
    /// Every worker is at its limit.
    #[error("the server is full; try again in {retry_after_s} s")]
    ServerFull {
        /// When to try again.
        retry_after_s: u32,
    },
    /// A queue inside is full, or an answer did not come in time.
    #[error("the server is busy; try again in {retry_after_s} s")]
    Busy {
        /// When to try again.
        retry_after_s: u32,
    },
    /// The server is going down and takes nobody new.
    #[error("the server is shutting down; join again on another one")]
    Draining,
    /// The SDP cannot be read.
    #[error("the SDP cannot be read: {0}")]
    SdpMalformed(String),
    /// The SDP can be read, but not served at all.
    #[error("the SDP cannot be served: {0}")]
    SdpUnsupported(String),
    /// No section has a codec that both sides know.
    #[error("no section of the offer has a codec that this server forwards (Opus; VP8, H.264, VP9, AV1)")]
    NoCommonCodec,
    /// Too many ICE restarts of one transport in a short time.
    #[error("too many ICE restarts of this transport; try again in {retry_after_s} s")]
    TooManyRestarts {
        /// When to try again.
        retry_after_s: u32,
    },
    /// The trickle fragment belongs to another ICE session.
    #[error("the fragment's ufrag is not the one of this transport")]
    WrongIceSession,
    /// Asked for something that this version does not do.
    #[error("{0}")]
    Unsupported(String),
    /// Our bug; counted and logged.
    #[error("an error inside the server; it was logged")]
    Internal,
}

/// Why a participant, transport or track went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveReason {
    /// DELETE, or DTLS closed by the peer.
    ClientLeft,
    /// A new transport of the same (room, identity, source) took its place.
    Replaced,
    /// Never connected within the join deadline.
    JoinTimeout,
    /// Connected, then silent for too long.
    ConnectionLost,
    /// DTLS failed.
    DtlsFailed,
    /// Removed by an admin.
    Removed,
    /// The room was ended.
    RoomClosed,
    /// The server is going down.
    ServerShutdown,
    /// A fault inside the server; join again.
    ServerError,
}

impl LeaveReason {
    /// Every reason, in label order.
    pub const ALL: [LeaveReason; 9] = [
        LeaveReason::ClientLeft,
        LeaveReason::Replaced,
        LeaveReason::JoinTimeout,
        LeaveReason::ConnectionLost,
        LeaveReason::DtlsFailed,
        LeaveReason::Removed,
        LeaveReason::RoomClosed,
        LeaveReason::ServerShutdown,
        LeaveReason::ServerError,
    ];
    /// The wire name and metric label.
    pub fn label(self) -> &'static str {
        match self {
            LeaveReason::ClientLeft => "client_left",
            LeaveReason::Replaced => "replaced",
            LeaveReason::JoinTimeout => "join_timeout",
            LeaveReason::ConnectionLost => "connection_lost",
            LeaveReason::DtlsFailed => "dtls_failed",
            LeaveReason::Removed => "removed",
            LeaveReason::RoomClosed => "room_closed",
            LeaveReason::ServerShutdown => "server_shutdown",
            LeaveReason::ServerError => "server_error",
        }
    }
}

impl std::fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

/// Settings of a room that an app may give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoomSettings {
    /// Fixes the kind.
    pub kind: Option<RoomKind>,
    /// Below `limits.participants_per_room`.
    pub max_participants: Option<usize>,
    /// Opaque to the server, at most 64 KiB (the door checks).
    pub metadata: Option<String>,
}

/// A room as lists and pages show it.
#[derive(Debug, Clone, Serialize)]
pub struct RoomInfo {
    /// `RM_…`
    #[serde(serialize_with = "text")]
    pub id: RoomId,
    /// Its name.
    #[serde(serialize_with = "text")]
    pub name: RoomName,
    /// Its kind.
    pub kind: RoomKind,
    /// Which executor its kind maps to.
    pub executor: Executor,
    /// The worker it lives on.
    pub worker: usize,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Most participants at once.
    pub max_participants: usize,
    /// As given by the app.
    pub metadata: String,
    /// Who is in, in order of arrival.
    pub participants: Vec<ParticipantInfo>,
}

/// Somebody in a room.
#[derive(Debug, Clone, Serialize)]
pub struct ParticipantInfo {
    /// Who.
    #[serde(serialize_with = "text")]
    pub identity: Identity,
    /// Name to show.
    pub name: String,
    /// `PA_…`
    #[serde(serialize_with = "text")]
    pub session: SessionId,
    /// As given by the participant.
    pub metadata: String,
    /// Milliseconds since 1970.
    pub joined_at_ms: u64,
    /// How it is.
    pub state: SessionState,
    /// How good its connection is.
    pub quality: Verdicts,
    /// What it publishes, in order of publication.
    pub tracks: Vec<TrackInfo>,
}

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Answered, media path not open yet.
    Joining,
    /// At least one transport is connected.
    Connected,
    /// Silent for `limits.silent_after`.
    Disconnected,
    /// Over.
    Left,
}

impl SessionState {
    /// Every state, in label order.
    pub const ALL: [SessionState; 4] =
        [SessionState::Joining, SessionState::Connected, SessionState::Disconnected, SessionState::Left];
    /// The wire name and metric label.
    pub fn label(self) -> &'static str {
        match self {
            SessionState::Joining => "joining",
            SessionState::Connected => "connected",
            SessionState::Disconnected => "disconnected",
            SessionState::Left => "left",
        }
    }
}

/// A published medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackInfo {
    /// `TR_…`
    #[serde(serialize_with = "text")]
    pub id: TrackId,
    /// What it shows or says.
    pub source: Source,
    /// `audio` or `video`.
    #[serde(serialize_with = "kind_text")]
    pub kind: Kind,
    /// Known from the first packet on.
    #[serde(serialize_with = "codec_text")]
    pub codec: Option<Codec>,
    /// Not forwarded at present.
    pub muted: bool,
}

/// What a participant, or an admin for it, changes of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// Track → muted.
    pub muted: BTreeMap<TrackId, bool>,
    /// Name to show.
    pub name: Option<String>,
    /// Opaque, at most 64 KiB (the door checks).
    pub metadata: Option<String>,
    /// Set when somebody else does it: who. A participant muted by another reads so in `message_to_you`.
    pub by: Option<String>,
}

/// What a viewer wishes of one track (interfaces §6): the one type that every door fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Which.
    pub track: TrackId,
    /// Send nothing of it; its section goes to a track that waits for one.
    pub paused: bool,
    /// Picture size it is shown at, in physical pixels.
    pub width_px: Option<u32>,
    /// Picture size it is shown at, in physical pixels.
    pub height_px: Option<u32>,
    /// Frames a second that are of use.
    pub fps_max: Option<u32>,
    /// Higher is served first.
    pub priority: Option<u8>,
}

impl Wish {
    /// How the track is looked at.
    pub fn view(&self) -> View {
        let Self { track: _, paused: _, width_px, height_px, fps_max, priority } = *self;
        View { width_px, height_px, fps_max, priority }
    }
}

/// How a viewer looks at a track: what a layer is chosen by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// Picture size it is shown at, in physical pixels.
    pub width_px: Option<u32>,
    /// Picture size it is shown at, in physical pixels.
    pub height_px: Option<u32>,
    /// Frames a second that are of use.
    pub fps_max: Option<u32>,
    /// Higher is served first.
    pub priority: Option<u8>,
}

/// How good somebody's connection is, in each direction; none where nothing was judged yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Of what it sends.
    #[serde(serialize_with = "verdict")]
    pub up: Option<Verdict>,
    /// Of what it gets.
    #[serde(serialize_with = "verdict")]
    pub down: Option<Verdict>,
}

impl Verdicts {
    /// Nothing is to be said of it.
    pub fn good(&self) -> bool {
        [self.up, self.down].iter().flatten().all(|verdict| verdict.quality == Quality::Good)
    }
}
