//! Who owns what, and when: supervisor, rooms, sessions and the workers they live on.

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
