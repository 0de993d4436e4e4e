//! What whole-server tests stand on: a server, real clients, and a way to wait that is not a sleep.

pub mod call;
pub mod client;
pub mod continuity;
pub mod events;
pub mod flood;
pub mod http;
pub mod media;
pub mod metrics;
pub mod peer;
pub mod process;
pub mod server;
pub mod steps;
pub mod token;
pub mod wait;
