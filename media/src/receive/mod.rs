//! The receive side of one stream: what arrived, once, when, and what is missing.

pub mod clock;
pub mod dedup;
pub mod jitter;
pub mod key_frames;
pub mod loss;
pub mod ring;
