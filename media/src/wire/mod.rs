//! wire

pub mod rtp;
pub mod stun;
