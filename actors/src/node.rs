//! The handle that doors hold: every command of [`crate::api`], asked of the right actor, with a timeout.

use crate::api::*;
use crate::count::NodeCounts;
use rondo_media::ids::{Identity, RoomName, SessionId, TransportId};
use std::time::Duration;

/// A running node. Cheap to clone.
#[derive(Clone)]
pub struct Node {}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A media socket could not be opened.
    #[error("cannot bind UDP {addr}: {source}. Is another server using the port? Choose another with media.first_port")]
    Bind {
        /// Which.
        addr: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start worker {worker}: {reason}")]
    Worker {
        /// Which.
        worker: usize,
        /// Why.
        reason: String,
    },
}

/// What a worker says of itself once it runs.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Bound address.
    pub addr: std::net::SocketAddr,
    /// Core it is pinned to, if it is.
    pub core: Option<usize>,
    /// Receive buffer that the kernel granted, in bytes.
    pub receive_buffer_bytes: usize,
    /// Segments that one GSO send may carry; 1 if the kernel has no GSO.
    pub gso_segments: usize,
}

#[allow(unused_variables, clippy::unused_async, reason = "seam: filled by the actors' author")]
impl Node {
    /// Starts workers and supervisor. Must run inside an actix system.
    pub async fn start(config: NodeConfig) -> Result<(Node, Vec<WorkerReport>), StartError> {
        unimplemented!()
    }
    /// Lets somebody in.
    pub async fn join(&self, join: Join) -> Result<Joined, Refusal> {
        unimplemented!()
    }
    /// What a door needs to know of a transport.
    pub async fn transport(&self, id: TransportId) -> Result<TransportInfo, Refusal> {
        unimplemented!()
    }
    /// Candidates that came later (RFC 8840 fragment).
    pub async fn trickle(&self, id: TransportId, fragment: String) -> Result<(), Refusal> {
        unimplemented!()
    }
    /// Ends a transport; its session too when it was the last.
    pub async fn leave(&self, id: TransportId) -> Result<(), Refusal> {
        unimplemented!()
    }
    /// Rooms in order of opening, participants included.
    pub async fn rooms(&self) -> Result<Vec<RoomInfo>, Refusal> {
        unimplemented!()
    }
    /// One room.
    pub async fn room(&self, name: &RoomName) -> Result<RoomInfo, Refusal> {
        unimplemented!()
    }
    /// Opens a room.
    pub async fn create_room(&self, name: RoomName, settings: RoomSettings) -> Result<RoomInfo, Refusal> {
        unimplemented!()
    }
    /// Changes a room.
    pub async fn patch_room(&self, name: &RoomName, settings: RoomSettings) -> Result<RoomInfo, Refusal> {
        unimplemented!()
    }
    /// Ends a room for everybody in it; `by` is told to them.
    pub async fn delete_room(&self, name: &RoomName, by: Option<String>) -> Result<(), Refusal> {
        unimplemented!()
    }
    /// Sessions that are not over, of one room or all.
    pub async fn sessions(
        &self,
        room: Option<RoomName>,
        state: Option<SessionState>,
    ) -> Result<Vec<SessionInfo>, Refusal> {
        unimplemented!()
    }
    /// One session.
    pub async fn session(&self, id: SessionId) -> Result<SessionInfo, Refusal> {
        unimplemented!()
    }
    /// Changes a session.
    pub async fn patch_session(&self, id: SessionId, patch: SessionPatch) -> Result<SessionInfo, Refusal> {
        unimplemented!()
    }
    /// What a viewer wishes of tracks.
    pub async fn wish(&self, id: SessionId, wishes: Vec<Wish>) -> Result<(), Refusal> {
        unimplemented!()
    }
    /// Removes somebody; `by` is told to them.
    pub async fn remove_session(&self, id: SessionId, by: Option<String>) -> Result<(), Refusal> {
        unimplemented!()
    }
    /// Opens an event stream. `me`: whose private events come along. `after`: resume behind this event.
    pub async fn events(
        &self,
        room: &RoomName,
        me: Option<SessionId>,
        after: Option<u64>,
    ) -> Result<EventFeed, Refusal> {
        unimplemented!()
    }
    /// The session of a participant, if it is in.
    pub async fn session_of(&self, room: &RoomName, identity: &Identity) -> Option<SessionId> {
        unimplemented!()
    }
    /// Counters and gauges of the whole node, read without disturbing it.
    pub fn counts(&self) -> NodeCounts {
        unimplemented!()
    }
    /// Every worker has answered within the last second and joins are taken.
    pub fn ready(&self) -> bool {
        unimplemented!()
    }
    /// No new joins; participants are told; returns when all have left or `within` is over.
    pub async fn drain(&self, within: Duration) {
        unimplemented!()
    }
}
