//! Whole-server tests, in one binary: what the layers promise, then real clients over loopback.
//!
//! Nothing here sleeps: a test waits for the condition it is about, with a deadline.

mod abuse;
mod calls;
mod churn;
mod doors;
mod floods;
mod fuzz;
mod layers;
mod licences;
mod lifecycle;
mod load;
mod network;
mod room_events;
mod simulcast;
mod support;
mod tls;
