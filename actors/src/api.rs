//! What the doors ask of the actors, and what they hear back. No door and no protocol of theirs is named here.

use rondo_media::codec::{Codec, Kind};
use rondo_media::ids::{Identity, RoomId, RoomName, SessionId, TrackId, TransportId};
use rondo_media::quality::{Cause, Quality, Verdict};
use rondo_media::units::Bitrate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Everything a node needs to know before it starts.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Media sockets.
    pub media: MediaConfig,
    /// Bounds; each refusal names the one it met.
    pub limits: Limits,
    /// How long rooms live without people.
    pub rooms: RoomTimes,
}

/// Media sockets and their threads.
#[derive(Debug, Clone)]
pub struct MediaConfig {
    /// Address to bind; `::` serves IPv6 and IPv4 from one socket.
    pub bind: IpAddr,
    /// Addresses told to peers as ICE candidates, best first. Never empty.
    pub advertise: Vec<IpAddr>,
    /// UDP port of worker 0; worker *n* has `first_port + n`. 0 lets the system choose (tests).
    pub first_port: u16,
    /// Workers: 1 to 32.
    pub workers: usize,
    /// Pin each worker to a core.
    pub pin: bool,
}

/// Bounds on what is accepted.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Participants of one room.
    pub participants_per_room: usize,
    /// Rooms of this node.
    pub rooms: usize,
    /// Sessions of one worker.
    pub sessions_per_worker: usize,
    /// Transports of one session.
    pub transports_per_session: usize,
    /// Event streams of one room.
    pub event_streams_per_room: usize,
    /// From the answer to DTLS; a lite agent sends no checks, so nothing else would notice.
    pub join_deadline: Duration,
    /// Without STUN or media: shown as disconnected.
    pub silent_after: Duration,
    /// Without STUN or media: gone.
    pub gone_after: Duration,
    /// What a publisher of video may send.
    pub video: VideoCaps,
}

/// What publishers of video that has no layers are asked to stay below (REMB), by what it is for. Those that send layers
/// bound each of them themselves, and rest those that nobody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoCaps {
    /// A camera in a call or a conference.
    pub camera: Bitrate,
    /// A screen in one.
    pub screen: Bitrate,
    /// Anything in a live push.
    pub live: Bitrate,
}

impl Default for VideoCaps {
    /// 720p of a talking head, a screen that is read, and 1080p60.
    fn default() -> Self {
        Self { camera: Bitrate::from_kbps(1_200), screen: Bitrate::from_kbps(2_500), live: Bitrate::from_kbps(8_000) }
    }
}

impl VideoCaps {
    /// The cap of one track.
    pub fn of(&self, kind: RoomKind, source: Source) -> Bitrate {
        match (kind, source) {
            (RoomKind::Live, _) => self.live,
            (_, Source::Screen) => self.screen,
            _ => self.camera,
        }
    }
}

/// How long a room lives without people.
#[derive(Debug, Clone)]
pub struct RoomTimes {
    /// Nobody ever came.
    pub empty_timeout: Duration,
    /// The last one left.
    pub departure_timeout: Duration,
}

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

/// A session as the API shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionInfo {
    /// Its room.
    #[serde(serialize_with = "text")]
    pub room: RoomName,
    /// Who, and how.
    #[serde(flatten)]
    pub participant: ParticipantInfo,
    /// Its transports.
    pub transports: Vec<TransportStats>,
}

/// One transport's state and counters since its start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TransportStats {
    /// `TP_…`; shown only to whom may end it.
    pub id: String,
    /// `whip` or `whep`.
    pub door: String,
    /// ICE and DTLS are up.
    pub connected: bool,
    /// Join phases that ended so far, in milliseconds from the request on: `sdp`, `ice`, `dtls`,
    /// `first_packet`, `first_key_frame`, `first_frame_sent`.
    pub phases_ms: BTreeMap<String, u64>,
    /// RTP packets received from the peer.
    pub packets_received: u64,
    /// RTP payload bytes received from the peer.
    pub bytes_received: u64,
    /// Packets that never came (publisher), after repair.
    pub packets_lost: u64,
    /// Duplicates dropped.
    pub duplicates: u64,
    /// RTP packets sent to the peer, retransmissions not counted.
    pub packets_sent: u64,
    /// RTP payload bytes sent to the peer.
    pub bytes_sent: u64,
    /// Retransmissions sent.
    pub retransmissions_sent: u64,
    /// NACKed packets that the ring no longer had.
    pub retransmissions_missed: u64,
    /// What the peer says it can take in all (REMB), in bits per second.
    pub remb_bits_per_second: Option<u64>,
    /// What the path to the peer takes in all, by our own estimate, in bits per second.
    pub estimate_bits_per_second: Option<u64>,
    /// What arrives there, in bits per second.
    pub acked_bits_per_second: Option<u64>,
    /// Bytes sent as padding, to find out what the path takes.
    pub padding_bytes_sent: u64,
    /// Bursts of it.
    pub probes_sent: u64,
    /// Packets of video that waited because the path takes no more at once.
    pub packets_paced: u64,
    /// Packets of video dropped because they would have waited for too long.
    pub packets_late: u64,
    /// Fraction lost by the peer's newest receiver report, 0–1.
    pub peer_loss: Option<f32>,
    /// Round trip by the peer's receiver reports, ms.
    pub rtt_ms: Option<f32>,
    /// Interarrival jitter of the newest stream, ms.
    pub jitter_ms: Option<f32>,
    /// Layers of the video that it publishes, of each track the lowest quality first.
    pub layers: Vec<LayerStats>,
    /// Video that its sections carry.
    pub subscriptions: Vec<SubscriptionStats>,
}

/// One simulcast layer of a published track, or all of a track that has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerStats {
    /// `TR_…`
    #[serde(serialize_with = "text")]
    pub track: TrackId,
    /// Its name in the publisher's offer; none where the track has no layers.
    pub rid: Option<String>,
    /// Packets of it come.
    pub available: bool,
    /// Somebody follows it now.
    pub wanted: bool,
    /// Payload received, over the last second.
    pub bits_per_second: Option<u64>,
    /// Frames received, over the last second.
    pub fps: Option<u8>,
    /// Width of its key frames, where they tell.
    pub width_px: Option<u16>,
    /// Height of its key frames, where they tell.
    pub height_px: Option<u16>,
}

/// What a section that carries video sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubscriptionStats {
    /// The section.
    pub mid: String,
    /// `TR_…`
    #[serde(serialize_with = "text")]
    pub track: TrackId,
    /// Nothing is sent, by wish or because the track is muted.
    pub paused: bool,
    /// Packets flow.
    pub flowing: bool,
    /// The layer that flows, by name; none where nothing flows, or the track has no layers.
    pub layer: Option<String>,
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

/// Whether anybody wants a layer of a track, for its publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerWanted {
    /// Its name in the publisher's offer; none where the track has no layers.
    pub rid: Option<String>,
    /// Somebody sees it, or is about to.
    pub wanted: bool,
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

/// Something that happened in a room, for its event streams (interfaces §6).
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RoomEvent {
    /// First thing on a stream: everything as it is now.
    Snapshot {
        /// The room.
        room: RoomInfo,
        /// Sections of the asking session's play transports, as they are filled now.
        sections: Vec<SectionAssignment>,
        /// The session that asks, where it is known.
        #[serde(serialize_with = "option_text")]
        you: Option<SessionId>,
        /// Identities that speak, loudest first.
        speakers: Vec<String>,
    },
    /// The room was opened: the first event of its life. Streams open later and see it only by resuming.
    RoomStarted {
        /// The room.
        room: RoomInfo,
    },
    /// The room is over; the stream ends after this.
    RoomFinished {
        /// Why.
        reason: LeaveReason,
        /// Who ended it, where somebody did.
        by: Option<String>,
    },
    /// Somebody came.
    ParticipantJoined {
        /// Who.
        participant: ParticipantInfo,
    },
    /// Somebody changed name or metadata.
    ParticipantUpdated {
        /// Who.
        participant: ParticipantInfo,
    },
    /// Somebody left.
    ParticipantLeft {
        /// Who.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which stay.
        #[serde(serialize_with = "text")]
        session: SessionId,
        /// Why.
        reason: LeaveReason,
    },
    /// A track is there, or its codec has changed.
    TrackPublished {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which.
        track: TrackInfo,
    },
    /// A track is gone.
    TrackUnpublished {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which.
        track: TrackInfo,
        /// Why.
        reason: LeaveReason,
    },
    /// A track is not forwarded for now.
    TrackMuted {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which.
        track: TrackInfo,
    },
    /// A track is forwarded again.
    TrackUnmuted {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which.
        track: TrackInfo,
    },
    /// Who speaks, loudest first; only when it changes.
    Speakers {
        /// Identities.
        identities: Vec<String>,
    },
    /// To one session: what a section of its play transport carries from now on.
    SectionAssigned(SectionAssignment),
    /// To one session: how many tracks that it would see or hear have no section of a play transport; on every change,
    /// 0 included. A paused or muted track is not missed.
    SectionsFull {
        /// `TP_…`
        #[serde(serialize_with = "text")]
        transport: TransportId,
        /// How many.
        missing: usize,
    },
    /// To one session: a track whose codec its transport did not offer; it gets the rest.
    CodecUnsupported {
        /// `TP_…`
        #[serde(serialize_with = "text")]
        transport: TransportId,
        /// Which.
        #[serde(serialize_with = "text")]
        track: TrackId,
        /// Its codec.
        #[serde(serialize_with = "codec_text")]
        codec: Option<Codec>,
    },
    /// To the publisher's session: which layers of a track anybody wants, all of them each time. What is not wanted need
    /// not be sent; what is, at once. A track of which nothing is said is wanted as a whole.
    LayersWanted {
        /// Which.
        #[serde(serialize_with = "text")]
        track: TrackId,
        /// In the order of its offer.
        layers: Vec<LayerWanted>,
    },
    /// Somebody's connection changed: `connected`, `disconnected`.
    StreamState {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// Which stay.
        #[serde(serialize_with = "text")]
        session: SessionId,
        /// How it is now.
        state: SessionState,
    },
    /// Somebody's connection has become better or worse, by one rule for all (`media/src/quality.rs`). Who is never told of
    /// is well.
    Quality {
        /// Whose.
        #[serde(serialize_with = "text")]
        identity: Identity,
        /// How it is now.
        #[serde(flatten)]
        verdicts: Verdicts,
    },
    /// To one session: muted by, removed by, moving, replaced.
    MessageToYou {
        /// `muted`, `unmuted`, `removed`, `moving`, `replaced`, `join_again`.
        what: &'static str,
        /// Who did it, where somebody did.
        by: Option<String>,
        /// The track it is about.
        #[serde(serialize_with = "option_text")]
        track: Option<TrackId>,
    },
}

impl RoomEvent {
    /// The event's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            RoomEvent::Snapshot { .. } => "snapshot",
            RoomEvent::RoomStarted { .. } => "room_started",
            RoomEvent::RoomFinished { .. } => "room_finished",
            RoomEvent::ParticipantJoined { .. } => "participant_joined",
            RoomEvent::ParticipantUpdated { .. } => "participant_updated",
            RoomEvent::ParticipantLeft { .. } => "participant_left",
            RoomEvent::TrackPublished { .. } => "track_published",
            RoomEvent::TrackUnpublished { .. } => "track_unpublished",
            RoomEvent::TrackMuted { .. } => "track_muted",
            RoomEvent::TrackUnmuted { .. } => "track_unmuted",
            RoomEvent::Speakers { .. } => "speakers",
            RoomEvent::SectionAssigned(_) => "section_assigned",
            RoomEvent::SectionsFull { .. } => "sections_full",
            RoomEvent::CodecUnsupported { .. } => "codec_unsupported",
            RoomEvent::LayersWanted { .. } => "layers_wanted",
            RoomEvent::StreamState { .. } => "stream_state",
            RoomEvent::Quality { .. } => "quality",
            RoomEvent::MessageToYou { .. } => "message_to_you",
        }
    }
}

/// What one section of a play transport carries; nothing if `track` is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SectionAssignment {
    /// `TP_…`
    #[serde(serialize_with = "text")]
    pub transport: TransportId,
    /// The section.
    pub mid: String,
    /// The track in it.
    #[serde(serialize_with = "option_text")]
    pub track: Option<TrackId>,
    /// Whose it is.
    #[serde(serialize_with = "option_text")]
    pub identity: Option<Identity>,
}

/// An event with its number in the room; `id:` of an event stream. Numbers grow; those of other people's
/// private events are skipped.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// Number. A snapshot has that of the newest event it contains.
    pub id: u64,
    /// What happened.
    pub event: std::sync::Arc<RoomEvent>,
}

/// An open event stream. When its queue is full it is closed: the client resumes by `Last-Event-ID`.
#[derive(Debug)]
pub struct EventFeed {
    /// Snapshot, or the events missed since the given id.
    pub first: Vec<Numbered>,
    /// What follows. Ends when the room ends or the reader was too slow.
    pub next: tokio::sync::mpsc::Receiver<Numbered>,
}

fn text<T: std::fmt::Display, S: serde::Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}
fn option_text<T: std::fmt::Display, S: serde::Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => s.collect_str(value),
        None => s.serialize_none(),
    }
}
fn codec_text<S: serde::Serializer>(value: &Option<Codec>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(codec) => s.serialize_str(codec.label()),
        None => s.serialize_none(),
    }
}
fn verdict<S: serde::Serializer>(value: &Option<Verdict>, s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Words {
        quality: &'static str,
        cause: Option<&'static str>,
    }
    let words = |verdict: &Verdict| Words { quality: verdict.quality.label(), cause: verdict.cause.map(Cause::label) };
    value.as_ref().map(words).serialize(s)
}
fn kind_text<S: serde::Serializer>(value: &Kind, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match value {
        Kind::Audio => "audio",
        Kind::Video => "video",
    })
}
