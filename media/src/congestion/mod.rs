//! What each link carries: the rate that a viewer's path takes, and what is sent with it.
//!
//! The estimate is made where packets are sent, from what the viewer reports of each (transport-wide feedback,
//! draft-holmer-rmcat-transport-wide-cc-extensions-01): by the trend of delays (`trend.rs`), by losses while a queue
//! stands (`estimator.rs`), and by probes (`probe.rs`). It follows draft-ietf-rmcat-gcc-02 and what libwebrtc made of it
//! (revision bd3d2d3150, January 2026, by str0m's account of it); where a source of layers asks for something else, the
//! place says so. `allocation.rs` turns the rate into layers, `pacer.rs` spreads long frames.

mod acked;
pub mod allocation;
mod estimator;
mod pacer;
mod probe;
mod trend;

pub use estimator::{Estimate, Estimator};
pub use pacer::Pacer;
pub use probe::Probe;
pub use trend::Usage;

/// Bytes of UDP and IPv4 headers that come with every packet (RFC 768, RFC 791).
pub const OVERHEAD: u64 = 28;
