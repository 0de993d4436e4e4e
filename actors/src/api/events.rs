//! What happens in a room, for its event streams (interfaces §6).

use super::text::{codec_text, option_text, text};
use super::{LeaveReason, ParticipantInfo, RoomInfo, SessionState, TrackInfo, Verdicts};
use rondo_media::codec::Codec;
use rondo_media::ids::{Identity, SessionId, TrackId, TransportId};
use serde::Serialize;

/// Whether anybody wants a layer of a track, for its publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerWanted {
    /// Its name in the publisher's offer; none where the track has no layers.
    pub rid: Option<String>,
    /// Somebody sees it, or is about to.
    pub wanted: bool,
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
