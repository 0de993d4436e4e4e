//! What one worker is made of: its socket, demux, timers, outbox and the loop that turns them.
//!
//! One worker is one thread. Nothing in here is shared between threads but the counters, which one thread
//! writes and others read. Only the platform files in `sys/` may hold unsafe code.
#![deny(unsafe_code)]

pub mod budget;
pub mod demux;
pub mod drive;
mod hash;
pub mod ingress;
pub mod outbox;
pub mod pin;
pub mod socket;
#[allow(unsafe_code, reason = "system calls that no crate of ours wraps")]
mod sys;
pub mod tick;
pub mod wheel;
