//! The load tool: WHIP and WHEP clients that join, publish and play on an open-loop schedule, and a report of what they saw.
//!
//! [`run`] drives a [`Plan`] through ramp, settle, hold and leave. Clients live on few I/O threads (`io`), each client is
//! str0m in RTP mode with a socket of its own (`client`). Every payload is stamped (`stamp`), so that a viewer knows what
//! it missed and how long each packet took.
//!
//! **Open loop.** Joins and frames are due at absolute times (`schedule`). Who is late does not move what comes after;
//! how late is measured and told.
//!
//! **Latency** is from just before a publisher encrypts a packet to its arrival in the viewer's kernel, by one clock: it covers
//! the client's encryption and send call, the way, the server and delivery; it leaves out how long this tool takes to
//! look. Where client and server do not share a machine, both clients still share this one.

#![forbid(unsafe_code)]

mod client;
mod histogram;
mod html;
mod io;
mod ledger;
mod machine;
mod plan;
mod report;
mod run;
mod schedule;
mod signal;
mod stamp;
mod tally;
mod text;

pub use html::page;
pub use plan::{Media, Plan, Scenario};
pub use report::{Bounds, Report};
pub use run::{LoadError, Phase, Progress, run};
pub use signal::{Credentials, TokenMaker};
pub use text::{Screen, summary};
