//! What the transports of a session have counted.

use rondo_actors::api;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One connection of a session, with its counters since its start.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transport {
    /// `TP_…`; shown to a token of this session and to admins, never to guests: who made a transport without a token is
    /// known by its id, which its Location told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `whip` or `whep`.
    pub door: String,
    /// ICE and DTLS are up.
    pub connected: bool,
    /// Join phases that ended so far, in milliseconds from the request on.
    pub phases_ms: BTreeMap<String, u64>,
    /// RTP packets received from the peer.
    pub packets_received: u64,
    /// RTP payload bytes received from the peer.
    pub bytes_received: u64,
    /// Packets that never came, after repair.
    pub packets_lost: u64,
    /// Duplicates dropped.
    pub duplicates: u64,
    /// RTP packets sent to the peer, retransmissions not counted.
    pub packets_sent: u64,
    /// RTP payload bytes sent to the peer.
    pub bytes_sent: u64,
    /// Retransmissions sent.
    pub retransmissions_sent: u64,
    /// Packets asked for again that were no longer there.
    pub retransmissions_missed: u64,
    /// Fraction lost by the peer's newest receiver report, 0 to 1.
    pub peer_loss: Option<f32>,
    /// What the peer says it can take in all (REMB), in bits per second.
    pub remb_bits_per_second: Option<u64>,
    /// What the path to the peer takes in all, by the server's estimate, in bits per second.
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
    /// Round trip, ms.
    pub rtt_ms: Option<f32>,
    /// Interarrival jitter of the newest stream, ms.
    pub jitter_ms: Option<f32>,
    /// Layers of the video that it publishes, of each track the lowest quality first.
    pub layers: Vec<Layer>,
    /// Video that its sections carry.
    pub subscriptions: Vec<Subscription>,
}

/// One simulcast layer of a published track, or all of a track that has none.
#[derive(Debug, Serialize, ToSchema)]
pub struct Layer {
    /// `TR_…`
    pub track: String,
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
#[derive(Debug, Serialize, ToSchema)]
pub struct Subscription {
    /// The section's mid.
    pub mid: String,
    /// `TR_…`
    pub track: String,
    /// Nothing is sent, by wish or because the track is muted.
    pub paused: bool,
    /// Packets flow.
    pub flowing: bool,
    /// The layer that flows, by name; none where nothing flows, or the track has no layers.
    pub layer: Option<String>,
}

impl Transport {
    pub(super) fn of(stats: &api::TransportStats, with_id: bool) -> Self {
        Self {
            id: with_id.then(|| stats.id.clone()),
            door: stats.door.clone(),
            connected: stats.connected,
            phases_ms: stats.phases_ms.clone(),
            packets_received: stats.packets_received,
            bytes_received: stats.bytes_received,
            packets_lost: stats.packets_lost,
            duplicates: stats.duplicates,
            packets_sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            retransmissions_sent: stats.retransmissions_sent,
            retransmissions_missed: stats.retransmissions_missed,
            peer_loss: stats.peer_loss,
            remb_bits_per_second: stats.remb_bits_per_second,
            estimate_bits_per_second: stats.estimate_bits_per_second,
            acked_bits_per_second: stats.acked_bits_per_second,
            padding_bytes_sent: stats.padding_bytes_sent,
            probes_sent: stats.probes_sent,
            packets_paced: stats.packets_paced,
            packets_late: stats.packets_late,
            rtt_ms: stats.rtt_ms,
            jitter_ms: stats.jitter_ms,
            layers: stats.layers.iter().map(Into::into).collect(),
            subscriptions: stats.subscriptions.iter().map(Into::into).collect(),
        }
    }
}

impl From<&api::LayerStats> for Layer {
    fn from(layer: &api::LayerStats) -> Self {
        Self {
            track: layer.track.to_string(),
            rid: layer.rid.clone(),
            available: layer.available,
            wanted: layer.wanted,
            bits_per_second: layer.bits_per_second,
            fps: layer.fps,
            width_px: layer.width_px,
            height_px: layer.height_px,
        }
    }
}

impl From<&api::SubscriptionStats> for Subscription {
    fn from(subscription: &api::SubscriptionStats) -> Self {
        Self {
            mid: subscription.mid.clone(),
            track: subscription.track.to_string(),
            paused: subscription.paused,
            flowing: subscription.flowing,
            layer: subscription.layer.clone(),
        }
    }
}
