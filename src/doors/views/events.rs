//! What happens in a room, as its event stream tells it.

use super::{LeaveReason, Participant, Room, SessionState, Track, TrackCodec, Verdicts};
use rondo_actors::api;
use serde::Serialize;
use utoipa::ToSchema;

/// Whether anybody wants a layer of a track.
#[derive(Debug, Serialize, ToSchema)]
pub struct LayerWanted {
    /// Its name in the publisher's offer; none where the track has no layers.
    pub rid: Option<String>,
    /// Somebody sees it, or is about to.
    pub wanted: bool,
}

/// What one section (m-line) of a play connection carries; nothing if `track` is absent.
#[derive(Debug, Serialize, ToSchema)]
pub struct Section {
    /// `TP_…`
    pub transport: String,
    /// The section's mid.
    pub mid: String,
    /// The track in it.
    pub track: Option<String>,
    /// Whose it is.
    pub identity: Option<String>,
}

/// An event of a room's stream: the name in `event:` is the field `event` of the data.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// First on a stream: everything as it is now.
    Snapshot {
        /// The room.
        room: Room,
        /// Sections of your play connections.
        sections: Vec<Section>,
        /// Your session, where it is known.
        you: Option<String>,
        /// Identities that speak, loudest first.
        speakers: Vec<String>,
    },
    /// The room was opened.
    RoomStarted {
        /// The room.
        room: Room,
    },
    /// The room is over; the stream ends.
    RoomFinished {
        /// Why.
        reason: LeaveReason,
        /// Who ended it.
        by: Option<String>,
    },
    /// Somebody came.
    ParticipantJoined {
        /// Who.
        participant: Participant,
    },
    /// Somebody changed name or metadata.
    ParticipantUpdated {
        /// Who.
        participant: Participant,
    },
    /// Somebody left.
    ParticipantLeft {
        /// Who.
        identity: String,
        /// Which stay.
        session: String,
        /// Why.
        reason: LeaveReason,
    },
    /// A track is there.
    TrackPublished {
        /// Whose.
        identity: String,
        /// Which.
        track: Track,
    },
    /// A track is gone.
    TrackUnpublished {
        /// Whose.
        identity: String,
        /// Which.
        track: Track,
        /// Why.
        reason: LeaveReason,
    },
    /// A track is not forwarded for now.
    TrackMuted {
        /// Whose.
        identity: String,
        /// Which.
        track: Track,
    },
    /// A track is forwarded again.
    TrackUnmuted {
        /// Whose.
        identity: String,
        /// Which.
        track: Track,
    },
    /// Who speaks, loudest first.
    Speakers {
        /// Identities.
        identities: Vec<String>,
    },
    /// To you: what a section carries from now on.
    SectionAssigned(Section),
    /// To you: tracks that found no section; open a second connection for them.
    SectionsFull {
        /// `TP_…`
        transport: String,
        /// How many.
        missing: usize,
    },
    /// To you: a track whose codec your connection did not offer.
    CodecUnsupported {
        /// `TP_…`
        transport: String,
        /// Which.
        track: String,
        /// Its codec.
        codec: Option<TrackCodec>,
    },
    /// To you, who publish: which layers of a track anybody wants, all of them each time. What is not wanted need not be
    /// sent; what is, at once. A track of which nothing is said is wanted as a whole.
    LayersWanted {
        /// Which.
        track: String,
        /// In the order of its offer.
        layers: Vec<LayerWanted>,
    },
    /// Somebody's connection changed.
    StreamState {
        /// Whose.
        identity: String,
        /// Which stay.
        session: String,
        /// How it is now.
        state: SessionState,
    },
    /// Somebody's connection has become better or worse. Who is never told of is well.
    Quality {
        /// Whose.
        identity: String,
        /// How it is now.
        #[serde(flatten)]
        verdicts: Verdicts,
    },
    /// To you: `muted`, `removed`, `moving`, `replaced`, `join_again`.
    MessageToYou {
        /// What.
        what: String,
        /// Who did it.
        by: Option<String>,
        /// The track it is about.
        track: Option<String>,
    },
}

impl From<&api::SectionAssignment> for Section {
    fn from(section: &api::SectionAssignment) -> Self {
        Self {
            transport: section.transport.to_string(),
            mid: section.mid.clone(),
            track: section.track.map(|track| track.to_string()),
            identity: section.identity.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&api::RoomEvent> for Event {
    fn from(event: &api::RoomEvent) -> Self {
        use api::RoomEvent as E;
        match event {
            E::Snapshot { room, sections, you, speakers } => Event::Snapshot {
                room: room.into(),
                sections: sections.iter().map(Into::into).collect(),
                you: you.map(|session| session.to_string()),
                speakers: speakers.clone(),
            },
            E::RoomStarted { room } => Event::RoomStarted { room: room.into() },
            E::RoomFinished { reason, by } => Event::RoomFinished { reason: (*reason).into(), by: by.clone() },
            E::ParticipantJoined { participant } => Event::ParticipantJoined { participant: participant.into() },
            E::ParticipantUpdated { participant } => Event::ParticipantUpdated { participant: participant.into() },
            E::ParticipantLeft { identity, session, reason } => Event::ParticipantLeft {
                identity: identity.to_string(),
                session: session.to_string(),
                reason: (*reason).into(),
            },
            E::TrackPublished { identity, track } => {
                Event::TrackPublished { identity: identity.to_string(), track: track.into() }
            }
            E::TrackUnpublished { identity, track, reason } => Event::TrackUnpublished {
                identity: identity.to_string(),
                track: track.into(),
                reason: (*reason).into(),
            },
            E::TrackMuted { identity, track } => {
                Event::TrackMuted { identity: identity.to_string(), track: track.into() }
            }
            E::TrackUnmuted { identity, track } => {
                Event::TrackUnmuted { identity: identity.to_string(), track: track.into() }
            }
            E::Speakers { identities } => Event::Speakers { identities: identities.clone() },
            E::SectionAssigned(section) => Event::SectionAssigned(section.into()),
            E::SectionsFull { transport, missing } => {
                Event::SectionsFull { transport: transport.to_string(), missing: *missing }
            }
            E::CodecUnsupported { transport, track, codec } => Event::CodecUnsupported {
                transport: transport.to_string(),
                track: track.to_string(),
                codec: codec.map(Into::into),
            },
            E::LayersWanted { track, layers } => Event::LayersWanted {
                track: track.to_string(),
                layers: layers.iter().map(|l| LayerWanted { rid: l.rid.clone(), wanted: l.wanted }).collect(),
            },
            E::StreamState { identity, session, state } => Event::StreamState {
                identity: identity.to_string(),
                session: session.to_string(),
                state: (*state).into(),
            },
            E::Quality { identity, verdicts } => {
                Event::Quality { identity: identity.to_string(), verdicts: (*verdicts).into() }
            }
            E::MessageToYou { what, by, track } => Event::MessageToYou {
                what: (*what).to_owned(),
                by: by.clone(),
                track: track.map(|track| track.to_string()),
            },
        }
    }
}
