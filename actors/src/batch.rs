//! What travels between actors: never one packet, always a batch that every receiver shares.

use bytes::Bytes;
use rondo_media::codec::{Format, Kind};
use rondo_media::packet::{Packet, Payload, StreamClock};
use rondo_media::room::TrackKey;
use std::net::SocketAddr;
use std::sync::Arc;

/// Packets of one track that became ready together: an audio packet or two, or one video frame.
#[derive(Debug)]
pub struct Batch {
    /// Which track of the room.
    pub track: TrackKey,
    /// Counts the streams (SSRCs) that the track has had: a new one starts a new sequence.
    pub epoch: u32,
    /// Audio is delivered before video.
    pub kind: Kind,
    /// What the packets carry.
    pub format: Format,
    /// Capture time of the stream, for sender reports.
    pub clock: StreamClock,
    /// What a viewer who begins here must have first, where the stream is H.264 and a key frame begins.
    pub parameter_sets: Option<Arc<[Payload]>>,
    /// In order of arrival.
    pub packets: Vec<Packet>,
}

/// One datagram for a session.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Index of the session's transport.
    pub transport: u8,
    /// Where it came from.
    pub from: SocketAddr,
    /// The local address it was sent to.
    pub to: SocketAddr,
    /// Contents; a slice of the receive call's buffer.
    pub bytes: Bytes,
}
