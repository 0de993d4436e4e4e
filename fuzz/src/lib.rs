//! What the fuzz targets do with an input. Each body panics where something that must hold does not.
//!
//! The same sources are compiled twice: here, for libFuzzer, and as a module of the whole-server tests, which replay
//! the committed seeds and findings with the stable compiler (`tests/fuzz.rs`).

pub mod codec;
pub mod doors;
pub mod egress;
pub mod receive;
pub mod room;
pub mod sdp;
pub mod srtp;
pub mod time;
pub mod transport;
pub mod wire;

/// A target's name and body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, as `make fuzz` runs them.
pub const TARGETS: [Target; 14] = [
    ("wire_rtp", wire::rtp),
    ("wire_rtcp", wire::rtcp),
    ("wire_stun", wire::stun),
    ("sdp_offer", sdp::offer),
    ("sdp_fragment", sdp::fragment),
    ("codec", codec::payload),
    ("transport", transport::datagrams),
    ("srtp", srtp::open),
    ("receive", receive::packets),
    ("egress", egress::script),
    ("room", room::script),
    ("doors", doors::requests),
    ("doors_token", doors::token),
    ("doors_config", doors::config),
];
