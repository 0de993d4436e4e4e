//! What a node needs to know before it starts: sockets, limits, times.

use super::{RoomKind, Source};
use rondo_media::units::Bitrate;
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
