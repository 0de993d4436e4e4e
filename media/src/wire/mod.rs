//! Wire formats: parse and emit only.

pub mod rtcp;
pub mod rtp;
pub mod stun;
