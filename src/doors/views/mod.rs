//! What the HTTP API shows: rooms, sessions, events. The schemas of the OpenAPI document are made from these.

mod events;
mod stats;

pub use events::Event;
use rondo_actors::api;
use rondo_media::codec::{Codec, Kind};
use serde::{Deserialize, Serialize};
pub use stats::Transport;
use utoipa::ToSchema;

/// An enum of the actors as the API writes it; the compiler holds the two together.
macro_rules! mirror {
    ($(#[$doc:meta])* $view:ident of $from:path { $($(#[doc = $variant_doc:literal])+ $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $view { $($(#[doc = $variant_doc])+ $variant,)+ }
        impl From<$from> for $view {
            fn from(value: $from) -> Self {
                use $from as From;
                match value { $(From::$variant => $view::$variant,)+ }
            }
        }
        impl From<$view> for $from {
            fn from(value: $view) -> Self {
                use $from as To;
                match value { $($view::$variant => To::$variant,)+ }
            }
        }
    };
}

mirror! {
    /// What a room is for.
    RoomKind of api::RoomKind {
        /// Up to two people publish.
        Call,
        /// Three or more have published.
        Conference,
        /// One pushes, many watch.
        Live,
        /// Only voice streams.
        Voice,
    }
}

mirror! {
    /// Which executor serves a room.
    Executor of api::Executor {
        /// Audio jobs first.
        AudioPriority,
        /// Picture and start-up first.
        VideoPriority,
    }
}

mirror! {
    /// What a track shows or says.
    Source of api::Source {
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
}

mirror! {
    /// How a session is.
    SessionState of api::SessionState {
        /// Answered, media path not open yet.
        Joining,
        /// At least one transport is connected.
        Connected,
        /// Silent for some seconds.
        Disconnected,
        /// Over.
        Left,
    }
}

mirror! {
    /// Why somebody or something went away.
    LeaveReason of api::LeaveReason {
        /// Left by itself.
        ClientLeft,
        /// The same participant published the same source anew.
        Replaced,
        /// Never connected in time.
        JoinTimeout,
        /// Connected, then silent for too long.
        ConnectionLost,
        /// The encryption handshake failed.
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
}

mirror! {
    /// Sound or pictures.
    MediaKind of Kind {
        /// Sound.
        Audio,
        /// Pictures.
        Video,
    }
}

mirror! {
    /// How a track is encoded.
    TrackCodec of Codec {
        /// RFC 6716.
        Opus,
        /// RFC 6386.
        Vp8,
        /// RFC 9628.
        Vp9,
        /// RFC 6184.
        H264,
        /// AV1.
        Av1,
    }
}

mirror! {
    /// How good a connection is, over the last five seconds; worse after three seconds of it, better after ten.
    Quality of rondo_media::quality::Quality {
        /// Loss after repair at most 2 %, round trip at most 200 ms.
        Good,
        /// At most 5 % and 400 ms, or a picture is sent in a lower layer than it is shown in.
        Fair,
        /// Beyond that.
        Poor,
        /// Nothing has come for three seconds, where something should.
        NoData,
    }
}

mirror! {
    /// Why a connection is not better.
    Cause of rondo_media::quality::Cause {
        /// The path carries no better layer.
        Layer,
        /// The round trip is long.
        Delay,
        /// Packets were lost and not repaired.
        Loss,
        /// Nothing comes.
        Silence,
    }
}

/// How good one direction of a connection is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verdict {
    /// In a word.
    pub quality: Quality,
    /// Why it is not better; none while it is good.
    pub cause: Option<Cause>,
}

/// How good somebody's connection is; none where nothing was judged yet, or nothing goes that way.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verdicts {
    /// Of what it sends.
    pub up: Option<Verdict>,
    /// Of what it gets.
    pub down: Option<Verdict>,
}

/// A room.
#[derive(Debug, Serialize, ToSchema)]
pub struct Room {
    /// One life of this room, `RM_…`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is for.
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
    pub participants: Vec<Participant>,
}

/// Somebody in a room.
#[derive(Debug, Serialize, ToSchema)]
pub struct Participant {
    /// Who.
    pub identity: String,
    /// Name to show.
    pub name: String,
    /// This stay, `PA_…`.
    pub session: String,
    /// As given by the participant.
    pub metadata: String,
    /// Milliseconds since 1970.
    pub joined_at_ms: u64,
    /// How it is.
    pub state: SessionState,
    /// How good its connection is.
    pub quality: Verdicts,
    /// What it publishes, in order of publication.
    pub tracks: Vec<Track>,
}

/// A published medium.
#[derive(Debug, Serialize, ToSchema)]
pub struct Track {
    /// `TR_…`
    pub id: String,
    /// What it shows or says.
    pub source: Source,
    /// Sound or pictures.
    pub kind: MediaKind,
    /// Known from the first packet on.
    pub codec: Option<TrackCodec>,
    /// Not forwarded at present.
    pub muted: bool,
}

/// One stay of one participant in one room.
#[derive(Debug, Serialize, ToSchema)]
pub struct Session {
    /// Its room.
    pub room: String,
    /// Who, and how.
    #[serde(flatten)]
    pub participant: Participant,
    /// Its connections.
    pub transports: Vec<Transport>,
}

impl From<&api::RoomInfo> for Room {
    fn from(room: &api::RoomInfo) -> Self {
        Self {
            id: room.id.to_string(),
            name: room.name.to_string(),
            kind: room.kind.into(),
            executor: room.executor.into(),
            worker: room.worker,
            created_at_ms: room.created_at_ms,
            max_participants: room.max_participants,
            metadata: room.metadata.clone(),
            participants: room.participants.iter().map(Into::into).collect(),
        }
    }
}

impl From<&api::ParticipantInfo> for Participant {
    fn from(one: &api::ParticipantInfo) -> Self {
        Self {
            identity: one.identity.to_string(),
            name: one.name.clone(),
            session: one.session.to_string(),
            metadata: one.metadata.clone(),
            joined_at_ms: one.joined_at_ms,
            state: one.state.into(),
            quality: one.quality.into(),
            tracks: one.tracks.iter().map(Into::into).collect(),
        }
    }
}

impl From<api::Verdicts> for Verdicts {
    fn from(verdicts: api::Verdicts) -> Self {
        let verdict = |one: rondo_media::quality::Verdict| Verdict {
            quality: one.quality.into(),
            cause: one.cause.map(Into::into),
        };
        Self { up: verdicts.up.map(verdict), down: verdicts.down.map(verdict) }
    }
}

impl From<&api::TrackInfo> for Track {
    fn from(track: &api::TrackInfo) -> Self {
        Self {
            id: track.id.to_string(),
            source: track.source.into(),
            kind: track.kind.into(),
            codec: track.codec.map(Into::into),
            muted: track.muted,
        }
    }
}

impl Session {
    /// `ids`: the caller may end its transports, so it is told their ids.
    pub fn of(session: &api::SessionInfo, ids: bool) -> Self {
        Self {
            room: session.room.to_string(),
            participant: (&session.participant).into(),
            transports: session.transports.iter().map(|transport| Transport::of(transport, ids)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    fn track() -> api::TrackInfo {
        api::TrackInfo {
            id: "TR_abcdefghijkl".parse().unwrap(),
            source: api::Source::ScreenAudio,
            kind: Kind::Audio,
            codec: Some(Codec::Opus),
            muted: true,
        }
    }

    fn verdicts() -> api::Verdicts {
        use rondo_media::quality::{Cause, Quality, Verdict};
        api::Verdicts { up: Some(Verdict { quality: Quality::NoData, cause: Some(Cause::Silence) }), down: None }
    }

    fn participant() -> api::ParticipantInfo {
        api::ParticipantInfo {
            identity: "ann".parse().unwrap(),
            name: "Ann".into(),
            session: "PA_abcdefghijkl".parse().unwrap(),
            metadata: "{}".into(),
            joined_at_ms: 5,
            state: api::SessionState::Connected,
            quality: verdicts(),
            tracks: vec![track()],
        }
    }

    fn room() -> api::RoomInfo {
        api::RoomInfo {
            id: "RM_abcdefghijkl".parse().unwrap(),
            name: "r".parse().unwrap(),
            kind: api::RoomKind::Live,
            executor: api::Executor::VideoPriority,
            worker: 1,
            created_at_ms: 4,
            max_participants: 500,
            metadata: String::new(),
            participants: vec![participant()],
        }
    }

    #[test]
    fn the_words_are_those_of_the_actors() {
        let word = |value: serde_json::Value| value.as_str().unwrap().to_owned();
        for kind in api::RoomKind::ALL {
            assert_eq!(word(to_value(RoomKind::from(kind)).unwrap()), kind.label());
        }
        for state in api::SessionState::ALL {
            assert_eq!(word(to_value(SessionState::from(state)).unwrap()), state.label());
        }
        for reason in api::LeaveReason::ALL {
            assert_eq!(word(to_value(LeaveReason::from(reason)).unwrap()), reason.label());
        }
        for codec in Codec::ALL {
            assert_eq!(word(to_value(TrackCodec::from(codec)).unwrap()), codec.label());
        }
        for source in [api::Source::Camera, api::Source::Screen, api::Source::ScreenAudio, api::Source::Voice] {
            assert_eq!(word(to_value(Source::from(source)).unwrap()), source.label());
        }
    }

    #[test]
    fn events_read_as_the_actors_write_them() {
        use api::RoomEvent as E;
        let identity = || "ann".parse().unwrap();
        let session = || "PA_abcdefghijkl".parse().unwrap();
        let transport = || "TP_abcdefghijkl".parse().unwrap();
        let reason = api::LeaveReason::Replaced;
        let section = || api::SectionAssignment {
            transport: transport(),
            mid: "0".into(),
            track: Some(track().id),
            identity: Some(identity()),
        };
        let events = [
            E::Snapshot { room: room(), sections: vec![section()], you: Some(session()), speakers: vec!["ann".into()] },
            E::RoomStarted { room: room() },
            E::RoomFinished { reason, by: Some("root".into()) },
            E::ParticipantJoined { participant: participant() },
            E::ParticipantUpdated { participant: participant() },
            E::ParticipantLeft { identity: identity(), session: session(), reason },
            E::TrackPublished { identity: identity(), track: track() },
            E::TrackUnpublished { identity: identity(), track: track(), reason },
            E::TrackMuted { identity: identity(), track: track() },
            E::TrackUnmuted { identity: identity(), track: track() },
            E::Speakers { identities: vec![] },
            E::SectionAssigned(section()),
            E::SectionsFull { transport: transport(), missing: 2 },
            E::CodecUnsupported { transport: transport(), track: track().id, codec: None },
            E::LayersWanted {
                track: track().id,
                layers: vec![
                    api::LayerWanted { rid: Some("q".into()), wanted: true },
                    api::LayerWanted { rid: None, wanted: false },
                ],
            },
            E::StreamState { identity: identity(), session: session(), state: api::SessionState::Disconnected },
            E::Quality { identity: identity(), verdicts: verdicts() },
            E::MessageToYou { what: "muted", by: None, track: Some(track().id) },
        ];
        for event in events {
            let view = to_value(Event::from(&event)).unwrap();
            assert_eq!(view, to_value(&event).unwrap());
            assert_eq!(view["event"], event.name());
        }
    }

    #[test]
    fn a_transports_id_is_shown_only_where_told_so() {
        let layer = api::LayerStats {
            track: track().id,
            rid: Some("h".into()),
            available: true,
            wanted: false,
            bits_per_second: Some(500_000),
            fps: Some(30),
            width_px: Some(640),
            height_px: None,
        };
        let subscription = api::SubscriptionStats {
            mid: "3".into(),
            track: track().id,
            paused: false,
            flowing: true,
            layer: Some("q".into()),
        };
        let stats = api::TransportStats {
            id: "TP_abcdefghijkl".into(),
            door: "whip".into(),
            layers: vec![layer],
            subscriptions: vec![subscription],
            ..Default::default()
        };
        let session =
            api::SessionInfo { room: "r".parse().unwrap(), participant: participant(), transports: vec![stats] };
        let shown = to_value(Session::of(&session, true)).unwrap();
        assert_eq!(shown, to_value(&session).unwrap());
        let hidden = to_value(Session::of(&session, false)).unwrap();
        assert_eq!(hidden["transports"][0].get("id"), None);
        assert_eq!(hidden["tracks"][0]["source"], json!("screen_audio"));
    }
}
