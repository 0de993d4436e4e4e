//! The receive side of one stream: what arrived, once, when, and what is missing.

pub mod clock;
pub mod dedup;
pub mod jitter;
pub mod key_frames;
pub mod layers;
pub mod loss;
mod parameter_sets;
pub mod ring;
pub mod stream;

pub use clock::TransportClock;
pub use key_frames::KeyFrameRequests;
pub use layers::{LayerInfo, LayerList, LayerMask, Layers, Measured};
pub use ring::Ring;
pub use stream::{ReceiveStats, Received, StreamReceiver};
