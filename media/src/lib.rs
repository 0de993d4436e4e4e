//! Rondo's media and protocol logic, without I/O.
//!
//! Everything here is told the time and the bytes and answers with bytes, events and the moment it wants
//! to be woken. No socket, clock, thread, random source, tokio or actix is named in this crate; a test over
//! `cargo tree` and clippy bans keep it so.
#![forbid(unsafe_code)]

pub mod audible;
pub mod codec;
pub mod congestion;
pub mod ids;
pub mod packet;
pub mod quality;
pub mod receive;
pub mod room;
pub mod sdp;
pub mod send;
pub mod speaker;
pub mod transport;
pub mod units;
pub mod wire;
