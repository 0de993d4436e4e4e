//! Who owns what, and when: supervisor, rooms, sessions and the workers they live on.

pub mod api;
pub mod count;
pub mod node;
pub mod worker;
