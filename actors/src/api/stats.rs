//! A session as it is told of, with what its transports have counted.

use super::ParticipantInfo;
use super::text::text;
use rondo_media::ids::{RoomName, TrackId};
use serde::Serialize;
use std::collections::BTreeMap;

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
