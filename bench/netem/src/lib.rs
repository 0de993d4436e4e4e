//! Bad networks to order: one direction of a link, whose conditions follow a schedule. No clock, no socket: times are
//! durations since the beginning, and the same seed gives the same losses.
#![forbid(unsafe_code)]

pub mod link;
pub mod schedule;

pub use link::{Dropped, Link, Stats};
pub use schedule::{BadSchedule, Conditions, Schedule};
