//! Who owns what, and when: supervisor, rooms, sessions and the workers they live on.

// The tests' hall is also the benches', which see this crate from outside.
#[cfg(test)]
extern crate self as rondo_actors;

pub mod api;
pub mod batch;
mod builds;
pub mod count;
pub mod local;
pub mod node;
pub mod port;
pub mod room;
pub mod runtime;
pub mod session;
pub mod shell;
pub mod sim;
pub mod supervisor;
pub mod worker;
