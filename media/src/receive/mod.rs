//! The receive side of one stream: what arrived, once, when, and what is missing.

pub mod dedup;
pub mod jitter;
pub mod ring;
