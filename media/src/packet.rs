//! What travels through a room: packets whose payload is shared by every reader, never copied for one.

use std::sync::Arc;
use std::time::Instant;

/// An RTP payload, shared by fan-out, retransmission rings, and later recorder, GOP cache and relays.
pub type Payload = Arc<[u8]>;

/// Loudness of one audio packet (RFC 6464 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioLevel {
    /// 0 is the loudest, 127 silence, in −dBov.
    pub dbov: u8,
    /// The sender's voice activity detector says speech.
    pub voice: bool,
}

/// Where a stream's RTP clock stood at a moment of ours: RTP time `rtp_time` was captured at our instant `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamClock {
    /// Our time of the capture.
    pub at: Instant,
    /// RTP timestamp of the capture, at the codec's clock rate.
    pub rtp_time: u32,
    /// Taken from a sender report; `false`: only guessed from an arrival.
    pub synced: bool,
}

/// One RTP packet of a stream, as received and unprotected.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Sequence number, extended: never wraps.
    pub ext_seq: u64,
    /// RTP timestamp at the codec's clock rate, as sent.
    pub rtp_time: u32,
    /// For video, the last packet of a frame; for audio, the first of a talk spurt.
    pub marker: bool,
    /// A decoder can begin with this packet.
    pub key_frame: bool,
    /// Loudness, where the sender tells it.
    pub level: Option<AudioLevel>,
    /// When it reached the server.
    pub arrived: Instant,
    /// Payload after padding was removed; empty only for padding-only packets.
    pub payload: Payload,
}
